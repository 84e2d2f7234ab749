"""What the benchmark of particle fluids runs: scenes, each in processes of its own.

    python -m loki_vfx.benchmarks._particle_cases '{"scene": "dam_break", "n": 30, "warm": 2}'

A dam break is SPlisHSPlasH's (`peers/_splishsplash_dam_break.py`): a cube of n^3 particles, 1 / (n
+ 1) m apart, in a corner of a tank of 3 x 2 x 1 m, above the floor and off the walls. There the
first particles are two spacings away from walls, which push at one; here they are "wall" spacings
away, 1.5 unless told, from walls that push at a half. So both fall by one spacing. With "depth" the
cube and the tank have that many layers along z instead of n.

A spray is droplets of all sizes in a cube, a thousandth to a hundredth of which they fill, that fly
in all directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as lk
from loki_core.data.particle_system import ParticleSystem
from loki_core.kernels.jit import thread_count
from loki_core.objects.particles.neighbour_search import NeighbourSearch
from loki_core.operating_system import (
    forget_peak_resident_bytes,
    peak_resident_bytes,
    resident_bytes,
)
from loki_core.parallel.comm import Communicator, one_fails_all_fail, world
from loki_vfx.benchmarks._processes import Case, answer

Array = NDArray[Any]

TANK = (3.0, 2.0, 1.0)  # m
STEPS = 10  # of a frame
TIME_STEP = 0.001  # s
BALL = 4.0 / 3.0 * np.pi
#: The scenes by which kernels are loaded before anything is measured from the start.
TINY = {"n": 8, "depth": 8, "count": 1000}

SPRAY_RADIUS, SPRAY_SPREAD = 1.0e-4, 0.5  # m, median; of the logarithm
SPRAY_SPEED, SPRAY_STEP = 3.0, 1.0e-3  # m/s along each axis, s
SPRAY_FILLED = 2.0e-3  # part of the cube


# -- scenes ------------------------------------------------------------------------------------


def build(case: Case) -> tuple[lk.SolverSetup, dict[str, Any]]:
    """Return the Solver Setup of a case and its inputs."""
    return {"dam_break": dam_break, "spray": spray}[case["scene"]](case)


def dam_break(case: Case) -> tuple[lk.SolverSetup, dict[str, Any]]:
    """Water in a corner of a tank."""
    n, wall = int(case["n"]), float(case.get("wall", 1.5))
    depth = int(case.get("depth", n))
    spacing = 1.0 / (n + 1)
    out = (wall - 1.0) * spacing  # by how much walls are beyond those of the tank
    tank = (*TANK[:2], (depth + 1) * spacing)
    radius = spacing / float(np.cbrt(BALL))
    fluid: Any = lk.PositionBasedFluid(iterations=5, surface_tension=0.0)
    if case.get("fluid") == "SPH":
        fluid = lk.SmoothedParticleFluid(
            tolerance=float(case["tolerance"]), viscosity=float(case["viscosity"])
        )
    setup = lk.SolverSetup(
        "dam_break",
        lk.ParticleObject(name="Water", input="water", radius=radius),
        fluid,
        lk.GravityForce(),
        frames_per_second=1.0 / (STEPS * TIME_STEP),
        substeps=STEPS,
        domain_lower=(-out,) * 3,
        domain_upper=tuple(edge + out for edge in tank),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )

    def water(frame: int) -> lk.Points:
        """All particles at the start; later frames need none, so this memory is free again."""
        if frame > setup.settings.start_frame:
            return lk.Points(np.zeros((0, 3), np.float32))
        place = np.indices((n, n, depth), np.float32).reshape(3, -1).T
        points = lk.Points(np.ascontiguousarray((place + 1.0) * np.float32(spacing)))
        count = len(place)
        points.set_channel("point", "velocity", np.zeros((count, 3), np.float32))
        points.set_channel("point", "Cd", np.full((count, 3), 0.5, np.float32))
        points.set_channel("point", "radius", np.full(count, radius, np.float32))
        points.set_channel("point", "age", np.zeros(count, np.float32))
        return points

    return setup, {"water": water}


def spray(case: Case) -> tuple[lk.SolverSetup, dict[str, Any]]:
    """Droplets that fly in all directions."""
    from loki_core.operators.droplet_collisions import BinaryDropletCollisions

    count, rng = int(case["count"]), np.random.default_rng(1)
    radius = SPRAY_RADIUS * np.exp(rng.normal(0.0, SPRAY_SPREAD, count))
    edge = np.cbrt(BALL * np.sum(radius**3) / SPRAY_FILLED)
    points = lk.Points(edge * rng.random((count, 3)))
    points.set_channel("point", "velocity", rng.normal(0.0, SPRAY_SPEED, (count, 3)))
    points.set_channel("point", "radius", radius)
    setup = lk.SolverSetup(
        "spray",
        lk.ParticleObject(name="Spray", input="spray"),
        BinaryDropletCollisions(),
        lk.GravityForce(),
        frames_per_second=1.0 / (STEPS * SPRAY_STEP),
        substeps=STEPS,
    )
    return setup, {"spray": points}


# -- measuring ---------------------------------------------------------------------------------


def run_case(case: Case) -> dict[str, Any] | None:
    """Run a case in this process; rank 0 gets its figures."""
    comm = world()
    with one_fails_all_fail(comm):
        found = (measure_memory if case.get("memory") else measure_steps)(case, comm)
    return found if comm.rank == 0 else None


def measure_steps(case: Case, comm: Communicator) -> dict[str, Any]:
    """Time the substeps of one frame, after "warm" frames."""
    load_kernels(case, comm)
    solver = lk.Solver(*build(case), comm=comm)
    solver.run(int(case["warm"]))
    watch, before, former = Watch(solver), iterations_of(solver), accounts_of(solver)
    with neighbour_clock() as spent:
        watch.start()
        solver.advance_frame()
    return {
        **watch.figures(),
        "iterations": (iterations_of(solver) - before) / len(watch.seconds),
        "neighbour_seconds": {name: one / len(watch.seconds) for name, one in spent.items()},
        "threads": thread_count(),
        "retried": solver.timeline.retried,
        "accounts": {name: one - former[name] for name, one in accounts_of(solver).items()},
        "warnings": solver.warnings[-3:],
        "tasks": solver.statistics(),
    }


def load_kernels(case: Case, comm: Communicator) -> None:
    """Compile all that the case needs, or read it."""
    lk.Solver(*build(case | TINY), comm=comm).run(2)


class Watch:
    """A clock on substeps, which stands while figures are read.

    Attributes:
        seconds: Of each substep, of the slowest rank.
    """

    def __init__(self, solver: lk.Solver) -> None:
        self.solver, self.comm = solver, solver.comm
        (self.item,) = solver.objects.values()
        self.seconds: list[float] = []
        self.counts: list[int] = []
        self.errors: list[float] = []
        self.cpu_seconds = 0.0
        solver.observe("SUBSTEP_END", lambda *_: self.note())

    def start(self) -> None:
        """Begin, at the start of a substep."""
        self.comm.barrier()
        self._resumed, self._cpu_resumed = perf_counter(), process_time()

    def note(self) -> None:
        """Take what a substep took, and what came out of it."""
        self.comm.barrier()
        self.seconds.append(perf_counter() - self._resumed)
        self.cpu_seconds += process_time() - self._cpu_resumed
        particles: Any = self.item.data["particles"]
        excess = 0.0
        if "density_ratio" in particles.channels:
            ratio = particles.local("density_ratio")
            excess = float(np.maximum(ratio - 1.0, 0.0).sum(dtype=np.float64))
        count, excess = self.comm.all_reduce(np.array([float(self.item.count()), excess]), "sum")
        self.counts.append(int(count))
        self.errors.append(100.0 * float(excess) / max(1.0, float(count)))
        self.start()

    def figures(self) -> dict[str, Any]:
        """What was measured of all substeps."""
        steps = len(self.seconds)
        return {
            "step_seconds": self.seconds,
            "step_seconds_mean": float(np.mean(self.seconds)),
            "step_seconds_median": float(np.median(self.seconds)),
            "cpu_seconds_mean": self.cpu_seconds / steps,
            "particles": self.counts[-1],
            "particle_steps": sum(self.counts),
            "density_error_percent": float(np.mean(self.errors)),
        }


@contextmanager
def neighbour_clock() -> Iterator[dict[str, float]]:
    """Yield the seconds that sorts and searches take meanwhile.

    "build" and "rebucketize" are the two; "gather" and "scatter" bring values to the order of the
    search and back, which the solvers would do with any search that has an order of its own.
    """
    methods: list[tuple[Any, str]] = [
        (NeighbourSearch, "build"),
        (NeighbourSearch, "gather"),
        (NeighbourSearch, "scatter"),
        (ParticleSystem, "rebucketize"),
    ]
    spent = {name: 0.0 for _, name in methods}

    def timed(name: str, method: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            start = perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                spent[name] += perf_counter() - start

        return run

    originals = [(owner, name, getattr(owner, name)) for owner, name in methods]
    for owner, name, method in originals:
        setattr(owner, name, timed(name, method))
    try:
        yield spent
    finally:
        for owner, name, method in originals:
            setattr(owner, name, method)


def iterations_of(solver: lk.Solver) -> int:
    """How many iterations all Tasks have made so far."""
    return sum(int(one["iterations"]) for one in solver.statistics())


def accounts_of(solver: lk.Solver) -> dict[str, int]:
    """What has happened to droplets so far, by the kind of collision."""
    accounts = [
        getattr(action, "account", {}) for some in solver.actions.values() for action in some
    ]
    return {
        name: value for one in accounts for name, value in one.items() if isinstance(value, int)
    }


def measure_memory(case: Case, comm: Communicator) -> dict[str, Any]:
    """Find by how much memory peaks above what it is without the scene.

    There are two peaks: from the start, when the input is there too, and in motion.
    """
    load_kernels(case, comm)
    forget_peak_resident_bytes()
    before = resident_bytes()
    solver = lk.Solver(*build(case), comm=comm)
    solver.run(1)
    at_start = peak_resident_bytes() - before
    forget_peak_resident_bytes()
    solver.run(int(case["warm"]))
    in_motion = peak_resident_bytes() - before
    particles: Any = solver.objects["Water"].data["particles"]
    held = particles.memory()
    return {
        "peak_at_start": at_start,
        "peak_in_motion": in_motion,
        "at_rest": resident_bytes() - before,
        "particles": int(particles.count),
        "held_by_particles": sum(held.values()),
        "channel_bytes": sum(one.bytes_per_particle for one in particles.channels.values()),
    }


if __name__ == "__main__":
    answer(run_case)
