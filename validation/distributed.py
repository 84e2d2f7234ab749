"""Smoke, hair and liquids on 1, 2, 3 and 4 ranks: what their number changes, which is nothing.

Two scenes of each at two sizes. Without a linear solve, advection along short and long traces,
transfers between particles and grid, emission, forces, the corrections of Position-Based Fluid, and
Smoothed Particle Fluid, whose sums over all particles are in fixed point, give the same bits. With
pressure solved to 1e-13 in double precision, and for strands, whose solves round otherwise in
groups of eight than alone, differences are at most 1e-10 a step, while everything finds its rank
anew after each of them. Mass, and the momentum of smoke and liquid, do not depend on the partition;
what hair in wind exchanges is accounted for to round-off. The same run twice, with one thread and
with two, is the same bit for bit.

A kernel that a process has just compiled may differ in the last bit from the one that it left on
the disk, so one run goes before all others and fills the kernel cache.

Strands are those of a soft fibre. A hair's own modulus is a hundred times that, and round-off of
its solves is as much larger: 1e-11 of the positions, but 1e-9 of the velocities.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki
from loki_core.parallel.comm import Communicator, one_fails_all_fail, world
from loki_core.parallel.reduce import exact_sums

from ._report import result

SIZES = (16, 32)  # voxels along the width of the source's room; strands along the patch of hair
RANKS = (2, 3, 4)
STEPS = 4
GAS = tuple(("Gas", name) for name in ("velocity", "density", "temperature"))
HAIR = tuple(("Hair", name) for name in ("position", "velocity", "edges.angle"))
LIQUID = tuple(("Water", name) for name in ("id", "position", "velocity"))
FLUID = (*LIQUID, ("Water", "density_ratio"))
#: Channels of each scene that are compared, and whether they have to be the same bits.
SCENES = {
    "carried": (GAS, True),
    "solved": (GAS, False),
    "strands": (HAIR, False),
    "hair in wind": ((*HAIR, ("Air", "velocity")), False),
    "stirred": (LIQUID, True),
    "dam break": (LIQUID, False),
    "position-based": (FLUID, True),
    "smoothed particles": (FLUID, True),
}
Fields = dict[str, NDArray[Any]]


def run(sizes: tuple[int, ...] = SIZES, ranks: tuple[int, ...] = RANKS) -> list[dict[str, Any]]:
    """Run all scenes on all numbers of ranks and compare with one rank."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        _run_on(1, min(sizes), Path(folder) / "first")
        for size in sizes:
            alone = _run_on(1, size, Path(folder))
            for count in ranks:
                several = _run_on(count, size, Path(folder))
                for scene in SCENES:
                    label = f"{scene}, {size}, {count} ranks"
                    results += _compare(alone[scene], several[scene], label, scene)
            if size == sizes[0]:
                again = _run_on(1, size, Path(folder), threads=2)
                for scene in SCENES:
                    label = f"{scene}, {size}, 1 and 2 threads"
                    results.append(_bitwise(alone[scene], again[scene], label, scene))
    return results


def _compare(alone: Fields, several: Fields, label: str, scene: str) -> list[dict[str, Any]]:
    channels, is_bitwise = SCENES[scene]
    if is_bitwise:
        return [_bitwise(alone, several, label, scene), _sums(alone, several, label, 0.0, 0.0)]
    worst = 0.0
    for step in range(STEPS):
        for name in channels:
            one, other = alone[_key(name, step)], several[_key(name, step)]
            if one.shape != other.shape:
                worst = np.inf
                break
            size = float(np.linalg.norm(one))
            worst = max(worst, float(np.linalg.norm(other - one)) / size / (step + 1))
    relative = result(
        "distributed",
        f"relative L2 difference a step, {label}",
        worst,
        0.0,
        error=worst,
        production=1e-10,
        best=1e-10,
    )
    return [relative, _sums(alone, several, label, 1e-13, 1e-13)]


def _key(channel: tuple[str, str], step: int) -> str:
    return f"{'_'.join(channel)}_{step}"


def _bitwise(alone: Fields, several: Fields, label: str, scene: str) -> dict[str, Any]:
    differing = sum(
        int(not np.array_equal(alone[_key(name, step)], several[_key(name, step)]))
        for step in range(STEPS)
        for name in SCENES[scene][0]
    )
    return result(
        "distributed",
        f"channels that differ in any bit, {label}",
        differing,
        0,
        error=differing,
        production=0,
        best=0,
    )


def _sums(
    alone: Fields, several: Fields, label: str, production: float, best: float
) -> dict[str, Any]:
    """Difference of mass and momentum of the two runs, relative to what is summed."""
    difference = np.abs(several["sums"][:, 0] - alone["sums"][:, 0])
    error = float(np.max(difference / alone["sums"][:, 1]))
    return result(
        "distributed",
        f"relative difference of mass and momentum, {label}",
        error,
        0.0,
        error=error,
        production=production,
        best=best,
    )


def _run_on(ranks: int, size: int, folder: Path, *, threads: int = 1) -> dict[str, Fields]:
    """Run all scenes in child processes; returns what rank 0 saw of each."""
    target = folder / f"{size}_{ranks}_{threads}"
    target.mkdir(parents=True)
    module = __name__ if __name__ != "__main__" else "validation.distributed"
    words = [sys.executable, "-m", module, str(target), str(size)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "HYD"))}
    environment["NUMBA_NUM_THREADS"] = str(threads)
    # The children import this module by the name that it has here.
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    if ranks > 1:
        words = [_mpiexec(), "-n", str(ranks), *words]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise loki.LokiError(f"size {size}, {ranks} ranks failed:\n{done.stdout}\n{done.stderr}")
    found = {}
    for scene in SCENES:
        with np.load(target / f"{scene}.npz") as saved:
            found[scene] = dict(saved)
    return found


def _mpiexec() -> str:
    from loki_vfx.bridges.standalone.launch import find_mpiexec

    return find_mpiexec()


# -- what the children do ---------------------------------------------------------------------


def build(scene: str, size: int) -> tuple[loki.SolverSetup, dict[str, Any]]:
    """Return a scene of this size, and its inputs."""
    channels = SCENES[scene][0]
    make = {GAS: _plume, LIQUID: _liquid, FLUID: _fluid}.get(channels, _hair)
    return make(scene, size)


def _plume(scene: str, size: int) -> tuple[loki.SolverSetup, dict[str, Any]]:
    """A plume over a burner of hot smoke, on sparse Buckets, with or without pressure."""
    h = 2.0 / size
    density = np.zeros((size, size, size))
    part = slice(3 * size // 8, 5 * size // 8)
    density[part, size // 8 : size // 4, part] = 1.0
    behaviors: list[loki.Behavior] = [
        loki.BuoyancyForce(),
        loki.VorticityConfinementOperator(strength=0.2),
        loki.VolumeEmission(source="burner", temperature=600.0),
    ]
    wind = (0.0, 0.0, 0.0)
    if scene == "solved":
        behaviors.append(loki.PressureMaterial(tolerance=1e-13))
    else:
        wind = (9.0, 3.0, -5.0)  # several voxels a step: traces reach other ranks
    setup = loki.SolverSetup(
        "plume",
        loki.VolumeObject(name="Gas", voxel_size=h, padding=8, ambient_velocity=wind),
        *behaviors,
        precision="double",
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        boundary_lower=("open", "wall", "open"),
    )
    return setup, {"burner": loki.Voxels.from_dense(density, (0.0, 0.0, 0.0), h)}


def _liquid(scene: str, size: int) -> tuple[loki.SolverSetup, dict[str, Any]]:
    """A column of water that falls: incompressible, or stirred and without any pressure."""
    h = 1.0 / size
    place = 0.5 * h * (np.indices((size, size, size)).reshape(3, -1).T + 0.5)
    water = loki.Points(place)
    behaviors: list[loki.Behavior] = [loki.GravityForce()]
    if scene == "dam break":
        behaviors.append(loki.PressureMaterial(tolerance=1e-13))
    else:
        x, y, z = (place - 0.25).T
        water.set_channel("point", "velocity", np.stack((3.0 + 9.0 * y, -9.0 * x, 5.0 * z), axis=1))
    setup = loki.SolverSetup(
        "dam",
        loki.HybridObject(name="Water", voxel_size=h, input="water"),
        *behaviors,
        precision="double",
        substeps=2,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 1.0, 1.0),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )
    return setup, {"water": water}


def _fluid(scene: str, size: int) -> tuple[loki.SolverSetup, dict[str, Any]]:
    """A cube of fluid particles that turns, and hits the walls of its tank."""
    d = 0.5 / size
    place = d * (np.indices((size, size, size)).reshape(3, -1).T + 0.5)
    water = loki.Points(place)
    x, y, z = (place - 0.25).T
    water.set_channel("point", "velocity", np.stack((3.0 + 9.0 * y, -9.0 * x, 0.0 * z), axis=1))
    is_smoothed = scene == "smoothed particles"
    setup = loki.SolverSetup(
        "fluid",
        loki.ParticleObject(name="Water", input="water", radius=d * np.cbrt(0.75 / np.pi)),
        loki.SmoothedParticleFluid() if is_smoothed else loki.PositionBasedFluid(),
        loki.GravityForce(),
        precision="double",
        frames_per_second=120.0,
        substeps=2,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 1.0, 1.0),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )
    return setup, {"water": water}


def _hair(scene: str, size: int) -> tuple[loki.SolverSetup, dict[str, Any]]:
    """A patch of wavy hair whose skin moves, alone or in wind that it slows down."""
    behaviors: list[Any] = [
        loki.CurvesObject(name="Hair", input="hair"),
        loki.StretchingConstraint(young_modulus=3.0e7),
        loki.BendingConstraint(young_modulus=3.0e7, shear_modulus=1.1e7, damping_time=0.01),
        loki.GravityForce(),
    ]
    if scene == "hair in wind":
        behaviors += [
            loki.VolumeObject(
                name="Air",
                voxel_size=0.32 / size,
                around="Hair",
                padding=8,
                channels=(),
                ambient_velocity=(2.0, 0.0, -0.5),
            ),
            loki.PressureMaterial(tolerance=1e-13),
            loki.CoupledDragForce(),
            loki.CoupledBuoyancyOperator(),
        ]
    setup = loki.SolverSetup(
        "hair",
        *behaviors,
        precision="double",
        substeps=2,
        bucket_size=8 * 0.32 / size,
    )
    return setup, {"hair": lambda frame: _patch(size, 0.01 * (frame - 1))}


def _patch(size: int, turned: float) -> loki.Curves:
    """size^2 / 4 strands of 12 points on a square of 0.32 m that is turned about y [rad]."""
    rng = np.random.default_rng(1)
    axis = 0.32 * (np.arange(size // 2) + 0.5) / (size // 2)
    roots = np.stack(np.meshgrid(axis, [0.0], axis, indexing="ij"), axis=-1).reshape(-1, 1, 3)
    along = 0.008 * np.arange(12)
    wave = 60.0 * along + 2.0 * np.pi * rng.random((len(roots), 1))
    strands = roots + np.stack(
        (0.004 * np.sin(wave), along + 0.0 * wave, 0.3 * along + 0.0 * wave), -1
    )
    c, s = np.cos(turned), np.sin(turned)
    return loki.Curves.from_strands(
        strands @ np.array([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])
    )


def _child(target: str, size: str) -> None:
    comm = world()
    with one_fails_all_fail(comm):
        for scene in SCENES:
            fields = _fields_of(scene, int(size), comm)
            if comm.rank == 0:
                np.savez(Path(target) / f"{scene}.npz", **fields)  # type: ignore[arg-type]


def _fields_of(scene: str, size: int, comm: Communicator) -> Fields:
    """Run a scene; returns what is compared of it. Collective."""
    solver = loki.Solver(*build(scene, size), comm=comm)
    fields: Fields = {}
    for step in range(STEPS):
        solver.run(1)
        for path, name in SCENES[scene][0]:
            fields[_key((path, name), step)] = solver.read(path, name)
        solver.balance()  # whatever it costs: everything finds its rank anew
    fields["sums"] = _sums_of(solver, comm)
    return fields


def _sums_of(solver: loki.Solver, comm: Communicator) -> NDArray[np.float64]:
    """Sums and the sums of their magnitudes, [n, 2]: mass, and momentum as far as it is kept."""
    if "Gas" in solver.objects:
        volume = solver.objects["Gas"].data["volume"]
        mass = volume.local("density")
        momentum = np.moveaxis(mass * volume.local("velocity"), 1, 0).reshape(3, -1)
        columns = np.stack([mass.reshape(-1), *momentum], axis=1)
        both = np.concatenate((columns, np.abs(columns)), axis=1)
        return exact_sums(comm, both).reshape(2, 4).T
    if "Water" in solver.objects:
        velocity = solver.objects["Water"].data["particles"].local("velocity")
        columns = np.concatenate((np.ones((len(velocity), 1)), velocity), axis=1)
        both = np.concatenate((columns, np.abs(columns)), axis=1)
        return exact_sums(comm, both).reshape(2, 4).T
    mass = solver.objects["Hair"].data["particles"].local("mass")
    sums = [np.repeat(exact_sums(comm, mass[:, None]), 2)]
    for document in solver.exchanges().values():
        if document["momentum_residual"] is None:  # one side is not measured
            continue
        size = float(np.abs(document["momentum_to_fluid"]).sum())
        sums += [np.array([left, size]) for left in document["momentum_residual"]]
    return np.array(sums)


if __name__ == "__main__":
    _child(*sys.argv[1:])
