"""Hair against Blender's, against itself on more strands and ranks, in a wind, and in memory.

Strands of 0.5 m stand on a wall of 1 m, clamped, curved down by half a radian, and fall:
stretching, bending and twist of hair, gravity, substeps of 1/120 s with one Newton iteration. A
frame has ten substeps and everything that comes with them (snapshots, checks, load balance). A
frame's time is the sum of its substeps, each the best over all frames but the first; that of a
substep is a tenth of it. Each case runs in a process of its own:

    python -m loki_vfx.benchmarks.hair '{"strands": 1000, "vertices": 17, "frames": 2}'

`joined_figures` is about the linear solver alone: strands that are attached to their neighbours.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as lk
from loki_core.operating_system import peak_resident_bytes
from loki_vfx.benchmarks._measure import best_seconds, figure
from loki_vfx.benchmarks._processes import answer, ranks2_speedup, run_apart
from loki_vfx.benchmarks.peers.blender_hair import hair_frame
from loki_vfx.benchmarks.peers.mantaflow import PeerError

WALL, LENGTH, BEND = 1.0, 0.5, 0.5  # m, m, rad
STEP = 1.0 / 120.0  # s
SUBSTEPS = 10  # of a frame; every second one begins with a look at the load balance
PEER_SUBSTEPS = 5  # Blender's default
VOXEL = 0.02  # m; with 10,000 strands there are about as many voxels as vertices
BOX = (-0.16, -0.64, -0.16), (0.64, 1.12, 1.12)  # m; whole Buckets around all that strands reach
WIND = (2.0, 0.0, 1.0)  # m/s

JOINED, ATTACHMENTS = 1000, 5000
# Twice a vertex's mass over the step squared; validation/manybodies.py has it once. Iterations
# grow as its root: at 0.1 N/m there are three times as many, and PARDISO is quicker.
ATTACHMENT_STIFFNESS = 0.01  # N/m
# A hair has 3e9 Pa. From 3e10 Pa on strands are rigid in a step: iterations fall, to 2/3 at 3e11.
SOFT = 3.0e5  # Pa
STIFFENINGS = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
TOLERANCE = 1e-8

Array = NDArray[Any]
Figures = dict[str, dict[str, Any]]


def run(quick: bool) -> Figures:
    """Measure everything; `quick` uses smaller sizes."""
    strands = 2000 if quick else 10_000
    frames = 4 if quick else 5
    return (
        strand_figures(strands, frames)
        | peer_figures(strands, frames)
        | coupling_figures(strands, frames)
        | rank_figures(strands, frames)
        | joined_figures(JOINED // 5 if quick else JOINED)
    )


def strand_figures(strands: int, frames: int) -> Figures:
    """Rate of one core, what scattering takes, growth, and memory."""
    case = {"strands": strands, "vertices": 17, "frames": frames, "scatter": True}
    long_case = {"strands": strands // 10, "vertices": 32, "frames": 2 * frames}
    twice = case | {"strands": 2 * strands}
    base = [measure(case, ranks=1)]
    double = measure(twice, ranks=1)
    base.append(measure(case, ranks=1))
    long = measure(long_case, ranks=1)
    best = min(one["substep_seconds"] for one in base)
    rates = [one["vertices"] / seconds for one, seconds in (
        (base[0], best), (long, long["substep_seconds"])
    )]  # fmt: skip
    size = f"{strands} strands of 17 vertices"
    scatter = min(one["scatter_seconds"] for one in base)
    more = double["vertices"] - base[0]["vertices"]
    slope = (double["peak_memory"] - min(one["peak_memory"] for one in base)) / more
    return {
        "vertex_steps_per_s_core": figure(
            min(rates),
            "1/s",
            3.0e5,
            "higher",
            f"one thread, a substep of one Newton iteration: {size} {rates[0]:.3g}/s "
            f"({best:.3g} s), {strands // 10} of 32 {rates[1]:.3g}/s",
        ),
        "scatter_fraction": figure(
            scatter / best,
            "",
            0.20,
            "lower",
            f"matrix and force sums, {scatter:.3g} s, of a substep of {size}, one thread",
        ),
        "growth_double_strands": figure(
            double["substep_seconds"] / best,
            "x",
            2.3,
            "lower",
            f"{2 * strands} over {strands} strands of 17 vertices, one thread",
        ),
        "bytes_per_vertex": figure(
            slope, "B", 4000.0, "lower", f"peak of the process, {2 * strands} over {size}"
        ),
    }


def peer_figures(strands: int, frames: int) -> Figures:
    """Compare a frame with Blender's."""
    case = {"strands": strands, "vertices": 17, "frames": frames, "substeps": PEER_SUBSTEPS}
    value, ours = None, []
    try:
        ours.append(measure(case)["frame_seconds"])
        peer = hair_frame(strands, vertices=17, frames=frames)
        ours.append(measure(case)["frame_seconds"])
        value = peer["frame_seconds"] / min(ours)
        how = (
            f"{strands} strands of 17 vertices that fall, 1/24 s in {PEER_SUBSTEPS} substeps, "
            f"best of {frames}: {min(ours):.3g} s against {peer['frame_seconds']:.3g} s of Blender "
            f"{peer['blender']}"
        )
    except PeerError as error:
        how = str(error)
    return {"hair_vs_blender_hair": figure(value, "x", 1.0, "higher", how)}


def coupling_figures(strands: int, frames: int) -> Figures:
    """What hair and wind take beyond hair alone and wind alone."""
    case = {"strands": strands, "vertices": 17, "frames": frames, "box": True}
    best = dict.fromkeys(("coupled", "hair", "wind"), np.inf)
    for _ in range(2):
        for parts in best:
            best[parts] = min(best[parts], measure(case | {"parts": parts})["substep_seconds"])
    whole = best["coupled"]
    shape = " x ".join(str(n) for n in _voxels())
    return {
        "coupling_overhead": figure(
            (whole - best["hair"] - best["wind"]) / whole,
            "",
            0.10,
            "lower",
            f"{strands} strands of 17 vertices in {shape} voxels of turbulent wind, drag and "
            f"buoyancy both ways: {whole:.3g} s a substep, {best['hair']:.3g} s and "
            f"{best['wind']:.3g} s alone",
        )
    }


def rank_figures(strands: int, frames: int) -> Figures:
    """Compare two ranks of one thread with one."""
    case = {"strands": strands, "vertices": 17, "frames": frames}
    how = f"{strands} strands of 17 vertices, a substep"
    return {"ranks2_speedup": ranks2_speedup(__name__, case, "substep_seconds", how)}


# -- linear solvers ----------------------------------------------------------------------------


def joined_figures(strands: int) -> Figures:
    """The manybodies solver against a direct one and plain conjugate gradients."""
    from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
    from loki_core.linear_solvers.manybodies import Manybodies

    attachments = strands * ATTACHMENTS // JOINED
    system, b = joined_system(strands, attachments)
    solvers: dict[str, Callable[[], Any]] = {
        "manybodies": lambda: _solve(Manybodies, system, b),
        "conjugate gradients": lambda: _solve(ConjugateGradient, system, b),
    }
    missing = "pypardiso is not installed: pip install pypardiso"
    if importlib.util.find_spec("pypardiso") is not None:
        solvers["pardiso"] = _pardiso(system, b)
    seconds = best_seconds(solvers, rounds=3)
    ours = _solve(Manybodies, system, b)
    plain = _solve(ConjugateGradient, system, b)
    direct = seconds.get("pardiso")
    where = (
        f"{strands} strands of 17 vertices, {attachments} attachments of "
        f"{ATTACHMENT_STIFFNESS:g} N/m between neighbours, set-up included; "
        f"manybodies to 1e-8 in {ours.iterations} iterations, {seconds['manybodies']:.3g} s"
    )
    bound = "" if plain.converged else f"and then {plain.residual:.1g}, not "
    counts = [
        _solve(Manybodies, *joined_system(strands, attachments, SOFT * factor)).iterations
        for factor in STIFFENINGS
    ]
    return {
        "manybodies_vs_pardiso": figure(
            None if direct is None else direct / seconds["manybodies"],
            "x",
            1.0,
            "higher",
            missing if direct is None else f"{where}; PARDISO (spd) {direct:.3g} s",
        ),
        "manybodies_vs_cg": figure(
            seconds["conjugate gradients"] / seconds["manybodies"],
            "x",
            1.0,
            "higher",
            f"{where}; conjugate gradients with the diagonal {plain.iterations} iterations, "
            f"{bound}1e-8, {seconds['conjugate gradients']:.3g} s",
        ),
        "manybodies_iterations_soft_to_stiff": figure(
            max(counts) / counts[0],
            "x",
            1.3,
            "lower",
            "most iterations over those of the softest; the same, moduli from "
            f"{SOFT:g} Pa times {STIFFENINGS[0]:g} to "
            f"{STIFFENINGS[-1]:g}: {', '.join(str(count) for count in counts)} iterations",
        ),
    }


def joined_system(strands: int, attachments: int, young_modulus: float = 3.0e9) -> tuple[Any, Any]:
    """System and right-hand side of the first substep of strands attached to neighbours."""
    curves = wall_of_strands(strands, 17)
    pairs = neighbour_pairs(strands, 17, attachments)
    solver = lk.Solver(
        lk.SolverSetup(
            "joined",
            lk.CurvesObject(name="Strands", input="strands"),
            lk.StretchingConstraint(young_modulus=young_modulus),
            lk.BendingConstraint(young_modulus=young_modulus, shear_modulus=young_modulus / 2.7),
            lk.GravityForce(),
            lk.AttachmentConstraint(
                source="Strands",
                target="Strands",
                emission="explicit",
                pairs="pairs",
                stiffness=ATTACHMENT_STIFFNESS,
            ),
            frames_per_second=1.0 / STEP,
        ),
        {"strands": curves, "pairs": pairs},
    )
    solver.advance_frame()
    assert solver.solids is not None
    return solver.solids.linear, solver.solids.rhs.copy()


def neighbour_pairs(strands: int, vertices: int, count: int) -> lk.Points:
    """Pairs of vertices at one height of strands whose roots are neighbours, evenly taken."""
    side = int(np.ceil(np.sqrt(strands)))
    rng = np.random.default_rng(0)
    first = rng.permutation(count) % (strands - side)
    second = first + np.where(rng.random(count) < 0.5, 1, side)
    height = rng.integers(2, vertices, count)  # the first two are clamped
    pairs = lk.Points(np.zeros((count, 3)))
    pairs.set_channel("point", "source_id", first * vertices + height)
    pairs.set_channel("point", "target_id", second * vertices + height)
    return pairs


def _solve(kind: Any, system: Any, b: Array) -> Any:
    solver = kind()
    solver.prepare(system)
    return solver.solve(b, np.zeros_like(b), tol=TOLERANCE, max_iterations=20_000)


def _pardiso(system: Any, b: Array) -> Callable[[], Any]:
    """A solve of the whole system by PARDISO's factors for positive definite matrices."""
    pardiso = importlib.import_module("pypardiso")
    sparse = importlib.import_module("scipy.sparse")
    indptr, indices, data = system.csr()
    matrix = sparse.csr_matrix((data, indices, indptr), shape=(system.size, system.size))
    upper = sparse.triu(matrix, format="csr")

    solver = pardiso.PyPardisoSolver(mtype=2)  # looks for the library on the disk: not counted

    def solve() -> Any:
        solver.free_memory(everything=True)
        solver.factorize(upper)
        return solver.solve(upper, b)

    wrong = np.linalg.norm(matrix @ solve() - b) / np.linalg.norm(b)
    if not wrong < TOLERANCE:
        raise PeerError(f"PARDISO leaves a residual of {wrong:.3g}")
    return solve


# -- processes ---------------------------------------------------------------------------------


def measure(case: dict[str, Any], *, ranks: int = 0) -> dict[str, Any]:
    """Run a case of ours in a process of its own, or in ranks of one thread each."""
    return run_apart(__name__, case, ranks=ranks)


def wall_of_strands(strands: int, vertices: int) -> lk.Curves:
    """Strands on a wall across x, that leave it along x and bend down."""
    side = int(np.ceil(np.sqrt(strands)))
    number = np.arange(strands)
    roots = np.stack((0.0 * number, number // side, number % side), axis=1)
    roots *= WALL / side
    turn = BEND * np.linspace(0.0, 1.0, vertices)
    arc = (LENGTH / BEND) * np.stack((np.sin(turn), np.cos(turn) - 1.0, 0.0 * turn), axis=1)
    points = roots[:, None, :] + arc
    return lk.Curves(points.reshape(-1, 3), np.arange(strands + 1) * vertices)


def build(case: dict[str, Any]) -> tuple[lk.SolverSetup, dict[str, Any]]:
    """Return the Solver Setup of a case and its inputs."""
    parts = case.get("parts", "hair")
    groups: list[Any] = []
    inputs: dict[str, Any] = {}
    if parts != "wind":
        inputs["strands"] = wall_of_strands(int(case["strands"]), int(case["vertices"]))
        groups.append(
            lk.Group(
                "Hair",
                lk.CurvesObject(name="Strands", input="strands"),
                lk.StretchingConstraint(),
                lk.BendingConstraint(),
            )
        )
    if parts != "hair":
        air = lk.VolumeObject(
            name="Air", voxel_size=VOXEL, region="box", channels=(), ambient_velocity=WIND
        )
        # Without eddies the wind alone would be uniform, and its pressure nothing to solve for.
        groups.append(lk.Group("Wind", air, lk.TurbulenceForce(), lk.PressureMaterial()))
    if parts == "coupled":
        groups += [lk.CoupledDragForce(), lk.CoupledBuoyancyOperator()]
    box: dict[str, Any] = {}
    if case.get("box"):
        box = {"domain_lower": BOX[0], "domain_upper": BOX[1]}
    substeps = int(case.get("substeps", SUBSTEPS))
    setup = lk.SolverSetup(
        "hair",
        *groups,
        lk.GravityForce(),
        substeps=substeps,
        frames_per_second=1.0 / (substeps * STEP),
        **box,
    )
    return setup, inputs


def _voxels() -> list[int]:
    return [round((upper - lower) / VOXEL) for lower, upper in zip(*BOX, strict=True)]


def run_case(case: dict[str, Any]) -> dict[str, Any] | None:
    """Run a case in this process; rank 0 gets its figures."""
    from loki_core.parallel.comm import world

    setup, inputs = build(case)
    comm = world()
    solver = lk.Solver(setup, inputs, comm=comm)
    ends: list[float] = []
    solver.observe("SUBSTEP_END", lambda solver, step: ends.append(perf_counter()))
    seconds = []
    for _ in range(1 + int(case["frames"])):  # the first is not counted
        comm.barrier()
        ends[:] = [perf_counter()]
        solver.advance_frame()
        comm.barrier()
        ends[-1] = perf_counter()
        seconds.append(np.diff(ends))
    best = float(np.min(seconds[1:], axis=0).sum())
    vertices = int(solver.counts().get("Hair/Strands", 0))
    peak = peak_resident_bytes()
    scatter = scatter_seconds(solver) if case.get("scatter") else None
    if comm.rank != 0:
        return None
    return {
        "frame_seconds": best,
        "substep_seconds": best / setup.settings.substeps,
        "vertices": vertices,
        "peak_memory": peak,
        "scatter_seconds": scatter,
        "tasks": solver.statistics(),
    }


def scatter_seconds(solver: lk.Solver) -> float:
    """Best time that a substep takes to add forces and matrices to the joint system [s].

    Computes one more frame with a clock on the kernels that Constraints scatter with; what they
    scatter is evaluated elsewhere. The Tasks that assemble inertia count too.
    """
    modules = [
        importlib.import_module(f"loki_core.constraints.{name}")
        for name in ("constraint", "edge_length", "bending")
    ]
    kernels = {
        (module, name): one
        for module in modules
        for name, one in vars(module).items()
        if name.startswith("scatter_")
    }
    spent = 0.0
    totals: list[float] = []

    def timed(kernel: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            nonlocal spent
            start = perf_counter()
            kernel(*arguments)
            spent += perf_counter() - start

        return run

    def note(*_: Any) -> None:
        tasks = (one for one in solver.statistics() if one["stage"] == "ASSEMBLE_SOLIDS")
        totals.append(spent + sum(one["seconds"] for one in tasks))

    solver.observe("SUBSTEP_END", note)
    for (module, name), kernel in kernels.items():
        setattr(module, name, timed(kernel))
    try:
        solver.advance_frame()
    finally:
        for (module, name), kernel in kernels.items():
            setattr(module, name, kernel)
    return float(np.diff(totals).min())


if __name__ == "__main__":
    answer(run_case)
