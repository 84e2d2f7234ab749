"""A sheet of springs in the whole solver, and elements that change, for `wtloki bench bodies`.

A cloth of n x n vertices hangs from two corners: springs along the edges of its triangles, gravity,
steps of 1/48 s with one Newton iteration. The first steps are not counted. A step that made new
factors and one that kept them are told apart by the solver itself. Each case runs in a process of
its own:

    python -m loki_vfx.benchmarks._sheet_cases '{"n": 60, "sheets": 1, "frames": 12}'
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

import loki_core as lk
from loki_vfx.benchmarks._measure import best_seconds, figure
from loki_vfx.benchmarks._processes import answer, ranks2_speedup, run_apart
from loki_vfx.benchmarks.peers.mantaflow import PeerError

SPRINGS, THICKNESS, DENSITY, RATE = 1000.0, 4.0e-4, 500.0, 48.0  # N/m, m, kg/m^3, 1/s
ELEMENTS, WIDTH = 25_000, 12

Figures = dict[str, dict[str, Any]]


def sheet_figures(quick: bool) -> Figures:
    """Time of a step by vertex, with new and with kept factors; threads and ranks."""
    n, frames = (60, 24) if quick else (200, 24)
    case = {"n": n, "sheets": 1, "frames": frames}
    try:
        both = run_apart(__name__, case | {"threads": 2})
        one = run_apart(__name__, case | {"threads": 1})
    except PeerError as error:
        return {"us_per_vertex_converged": figure(None, "us", 12.0, "lower", str(error))}
    vertices = both["vertices"]
    where = f"{n} x {n} vertices of springs, two threads, a whole step of one Newton iteration"
    eight = {"n": n // 3, "sheets": 8, "frames": frames}
    fresh, kept = both["fresh"], both["kept"]
    return {
        "us_per_vertex_converged": figure(
            1e6 * fresh / vertices if fresh else None, "us", 12.0, "lower",
            f"{where}, with new factors; residual {both['residual']:.1e}",
        ),
        "us_per_vertex_kept_factors": figure(
            1e6 * kept / vertices if kept else None, "us", 5.0, "lower",
            f"{where}, with those of before, {both['iterations']:.1f} iterations; factors were "
            f"kept in {both['kept_steps']} of {both['steps']} steps",
        ),
        "threads2_speedup": figure(
            one["mean"] / both["mean"], "x", 1.6, "higher",
            f"{where}: {one['mean']:.3g} s on one, {both['mean']:.3g} s on two, mean of the steps",
        ),
        "ranks2_speedup": ranks2_speedup(
            __name__, eight, "mean", f"eight sheets of {n // 3} x {n // 3} vertices, a step"
        ),
    }  # fmt: skip


def remainder_figures(quick: bool) -> Figures:
    """How long elements of a changing set take to enter the system."""
    from loki_core.kernels.algebra.skyline import envelope_of
    from loki_core.objects.solids.couplings import Couplings

    bodies, size = 2000, 60
    count = ELEMENTS // 5 if quick else ELEMENTS
    body_start = np.arange(bodies + 1, dtype=np.int64) * size
    total = bodies * size
    first = np.maximum(np.arange(total) - 10, np.repeat(body_start[:-1], size))
    row, values = envelope_of(body_start, first)
    rng = np.random.default_rng(0)
    vertex = rng.integers(0, total // 3, (count, WIDTH // 3))
    dofs = (3 * vertex[:, :, None] + np.arange(3)).reshape(count, WIDTH)
    matrices, forces = rng.standard_normal((count, WIDTH, WIDTH)), rng.standard_normal(dofs.shape)
    entries, rhs, fixed = np.zeros(values), np.zeros(total), np.zeros(total, np.uint8)
    couplings = Couplings(body_start, 0, [], np.zeros(total, bool))

    def enter() -> None:
        couplings.renew([dofs], row, first)
        couplings.remainders[0].add(forces, matrices, fixed, rhs, entries, couplings.data)

    def pattern() -> None:
        fresh = Couplings(body_start, 0, [dofs], np.zeros(total, bool))
        fresh.place(row)
        fresh.elements[0].add(forces, matrices, fixed, rhs, entries, fresh.data)

    enter()
    ours = best_seconds({"enter": enter}, rounds=7)["enter"]
    before = best_seconds({"pattern": pattern}, rounds=2)["pattern"]
    return {
        "remainder_ms": figure(
            1e3 * ours, "ms", 20.0, "lower",
            f"{count} elements of {WIDTH} unknowns over {bodies} bodies, places and sums; "
            f"{1e3 * before:.0f} ms with a sorted pattern",
        )
    }  # fmt: skip


def build(case: dict[str, Any]) -> tuple[lk.SolverSetup, dict[str, Any]]:
    """Return the Solver Setup of a case and its inputs."""
    n, sheets = int(case["n"]), int(case["sheets"])
    points, faces, pinned = [], [], []
    axis = np.linspace(0.0, 1.0, n)
    x, z = np.meshgrid(axis, axis, indexing="ij")
    row = np.arange(n * n).reshape(n, n)
    quads = np.stack((row[:-1, :-1], row[:-1, 1:], row[1:, 1:], row[1:, :-1]), -1).reshape(-1, 4)
    held = np.zeros((n, n))
    held[0, 0] = held[0, -1] = 1.0
    for number in range(sheets):
        points.append(np.stack((x, 0.0 * x + 2.0 * (number // 3), z + 2.0 * (number % 3)), -1))
        faces.append(quads + number * n * n)
        pinned.append(held)
    mesh = lk.Surface.from_faces(
        np.concatenate([one.reshape(-1, 3) for one in points]), np.concatenate(faces)
    )
    mesh.set_channel("point", "pinned", np.concatenate([one.reshape(-1) for one in pinned]))
    setup = lk.SolverSetup(
        "sheet",
        lk.GeometryObject(name="Sheet", input="mesh", thickness=THICKNESS, density=DENSITY),
        lk.DistanceConstraint(stiffness=SPRINGS, damping_time=0.005),
        lk.GravityForce(),
        frames_per_second=RATE,
    )
    return setup, {"mesh": mesh}


def run_case(case: dict[str, Any]) -> dict[str, Any] | None:
    """Run a case in this process; rank 0 gets its figures."""
    from loki_core.kernels.jit import set_thread_count
    from loki_core.parallel.comm import world

    if "threads" in case:
        set_thread_count(int(case["threads"]))
    setup, inputs = build(case)
    comm = world()
    solver = lk.Solver(setup, inputs, comm=comm)
    steps: list[tuple[float, bool, int]] = []
    residual = 0.0
    for frame in range(int(case["frames"])):
        comm.barrier()
        start = perf_counter()
        solver.advance_frame()
        comm.barrier()
        system = solver.solids
        assert system is not None and system.report is not None
        sparse = system.linear.sparse
        if frame >= 4:  # kernels, first factors
            is_fresh = sparse is None or sparse.is_fresh
            steps.append((perf_counter() - start, is_fresh, system.report.iterations))
            residual = max(residual, system.report.residual)
    if comm.rank != 0:
        return None
    fresh = [seconds for seconds, is_fresh, _ in steps if is_fresh]
    kept = [seconds for seconds, is_fresh, _ in steps if not is_fresh]
    counts = [count for _, is_fresh, count in steps if not is_fresh]
    return {
        "vertices": int(case["n"]) ** 2 * int(case["sheets"]),
        "fresh": min(fresh, default=0.0),
        "kept": min(kept, default=0.0),
        "iterations": float(np.mean(counts)) if counts else 0.0,
        "kept_steps": len(kept),
        "steps": len(steps),
        "mean": float(np.mean([seconds for seconds, _, _ in steps])),
        "residual": residual,
        "tasks": solver.statistics(),
    }


if __name__ == "__main__":
    answer(run_case)
