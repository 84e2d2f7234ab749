"""Smoke against Blender's Mantaflow, against itself on more voxels and ranks, and in memory.

Both programs get the same start: a cube of 2 m, smoke and heat that fill it or the 5 % of it that
the peer's "plume" fills, open sides, MacCormack advection of velocity and two channels, one step
of 1/24 s a frame. Each case of ours runs in a process of its own:

    python -m loki_vfx.benchmarks.gas '{"shape": "box", "size": [64, 64, 64], "steps": 6}'
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from loki_core.operating_system import peak_resident_bytes
from loki_vfx.benchmarks._measure import figure
from loki_vfx.benchmarks._processes import answer, ranks2_speedup, run_apart
from loki_vfx.benchmarks.peers.mantaflow import PeerError, smoke_step

EDGE = 2.0  # m
STEM_RADIUS, BALL_RADIUS, BALL_CENTER = 0.2, 0.43, 0.95  # m, as the peer's
WARM_UP = 2  # steps that are not counted
HEAT = 40.0  # K above the air around
PADDING = 4  # voxels; that of Blender's adaptive domain
TOLERANCE = 1e-4  # of the divergence before; Mantaflow has a measure of its own

Figures = dict[str, dict[str, Any]]


def run(quick: bool) -> Figures:
    """Measure everything; `quick` uses smaller sizes."""
    n = 64 if quick else 128
    steps = 3 if quick else 5
    return (
        box_figures(n, steps) | plume_figures(n, steps) | rank_figures(n, steps) | memory_figures(n)
    )


def box_figures(n: int, steps: int) -> Figures:
    """Compare a box full of smoke with Mantaflow's, and half a box with a whole one."""
    whole = measure({"shape": "box", "size": [n, n, n], "steps": steps})
    peer, why = peer_seconds("box", n, steps)
    half_case = {"shape": "box", "size": [n, n // 2, n], "steps": steps}
    half = min(measure(half_case)["step_seconds"] for _ in range(2))
    again = measure({"shape": "box", "size": [n, n, n], "steps": steps})
    best = min(whole["step_seconds"], again["step_seconds"])
    text = f"{n}^3 full of smoke, best of {2 * steps} steps"
    rate = n**3 / best / whole["threads"]
    return {
        "step_vs_mantaflow_128": figure(
            None if peer is None else peer / best,
            "x",
            3.0,
            "higher",
            why or f"{text}: {best:.3g} s against {peer:.3g} s",
        ),
        "voxel_steps_per_s_core": figure(
            rate, "1/s", 1.0e6, "higher", f"{text}, {whole['threads']} threads"
        ),
        "growth_double_voxels": figure(
            best / half,
            "x",
            2.3,
            "lower",
            f"{n} x {n} x {n} over {n} x {n // 2} x {n} voxels full of smoke",
        ),
    }


def plume_figures(n: int, steps: int) -> Figures:
    """Compare a plume that fills 5 % of its box with Mantaflow on the box, and adaptive.

    Means over the steps: some of ours make new Buckets and a new matrix, others do not.
    """
    steps *= 2
    ours = measure({"shape": "plume", "size": [n, n, n], "steps": steps})
    mean = ours["step_seconds_mean"]
    share = f"{ours['voxels']} voxels of ours, {100.0 * ours['voxels'] / n**3:.0f} % of {n}^3"
    figures = {}
    for name, adaptive, goal in (
        ("plume5_vs_mantaflow_box", False, 15.0),
        ("plume5_vs_mantaflow_adaptive", True, 3.0),
    ):
        peer, why = peer_seconds("plume", n, steps, adaptive=adaptive, key="step_seconds_mean")
        figures[name] = figure(
            None if peer is None else peer / mean,
            "x",
            goal,
            "higher",
            why
            or f"smoke in 5 % of the box; {share}; mean of {steps} steps: {mean:.3g} s against "
            f"{peer:.3g} s",
        )
    return figures


def rank_figures(n: int, steps: int) -> Figures:
    """Compare two ranks of one thread with one."""
    case = {"shape": "box", "size": [n, n, n], "steps": steps}
    how = f"{n}^3 full of smoke, a step"
    return {"ranks2_speedup": ranks2_speedup(__name__, case, "step_seconds", how, rounds=1)}


def memory_figures(n: int) -> Figures:
    """Report the slope of peak memory over active voxels."""
    few, many = (
        measure({"shape": "box", "size": [m, m, m], "steps": 1}) for m in (3 * n // 4 // 8 * 8, n)
    )
    slope = (many["peak_memory"] - few["peak_memory"]) / (many["voxels"] - few["voxels"])
    how = f"peak of the process, {few['voxels']} to {many['voxels']} voxels full of smoke"
    return {"bytes_per_voxel": figure(slope, "B", 250.0, "lower", how)}


# -- processes ---------------------------------------------------------------------------------


def peer_seconds(
    shape: str, n: int, steps: int, *, adaptive: bool = False, key: str = "step_seconds"
) -> tuple[float | None, str]:
    """Return Mantaflow's seconds a step, the best by default, and "", or None and why not."""
    try:
        return float(smoke_step(shape, n, adaptive=adaptive, steps=steps)[key]), ""
    except PeerError as error:
        return None, str(error)


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case of ours in a process of its own."""
    return run_apart(__name__, case)


def start_fields(shape: str, size: list[int]) -> Any:
    """Return the smoke that is there from the start, as a Voxels stream."""
    from loki_core.data.voxels import Voxels

    h = EDGE / max(size)
    x, y, z = np.meshgrid(*[(np.arange(n) + 0.5) * h for n in size], indexing="ij", sparse=True)
    smoke = np.ones(size, bool)
    if shape == "plume":
        around = (x - 0.5 * EDGE) ** 2 + (z - 0.5 * EDGE) ** 2
        stem = (around < STEM_RADIUS**2) & (y < BALL_CENTER)
        smoke = stem | (around + (y - BALL_CENTER) ** 2 < BALL_RADIUS**2)
    fields = {"density": smoke.astype(np.float32), "heat": HEAT * smoke.astype(np.float32)}
    voxels = Voxels.from_dense(fields, (0.0, 0.0, 0.0), h)
    ambient = 293.15
    heat = voxels.channels.pop("heat").values
    voxels.set_channel("temperature", heat + np.float32(ambient), background=ambient)
    return voxels


def build(case: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the Solver Setup of a case and its inputs."""
    from loki_core.constraints.pressure import PressureMaterial
    from loki_core.forces.buoyancy import BuoyancyForce
    from loki_core.objects.gas.volume import VolumeObject
    from loki_core.solver_setup import SolverSetup

    size = [int(n) for n in case["size"]]
    h = EDGE / max(size)
    setup = SolverSetup(
        "gas",
        VolumeObject(
            name="Smoke",
            voxel_size=h,
            input="smoke",
            region="box" if case["shape"] == "box" else "sparse",
            padding=PADDING,
            velocity_scheme="maccormack",
            channel_scheme="maccormack",
            channel_limiter="revert",
        ),
        BuoyancyForce(),
        PressureMaterial(tolerance=TOLERANCE),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=tuple(n * h for n in size),
    )
    return setup, {"smoke": start_fields(case["shape"], size)}


def run_case(case: dict[str, Any]) -> dict[str, Any] | None:
    """Run a case in this process; rank 0 gets its figures."""
    from loki_core.kernels.jit import thread_count
    from loki_core.parallel.comm import world
    from loki_core.pipeline.solver import Solver

    comm = world()
    solver = Solver(*build(case), comm=comm)
    seconds = []
    for _ in range(WARM_UP + int(case["steps"])):
        comm.barrier()
        start = perf_counter()
        solver.advance_frame()
        comm.barrier()
        seconds.append(perf_counter() - start)
    voxels = int(solver.counts()["Smoke"])
    counted = seconds[WARM_UP:]
    if comm.rank != 0:
        return None
    return {
        "step_seconds": float(np.min(counted)),
        "step_seconds_mean": float(np.mean(counted)),
        "voxels": voxels,
        "threads": thread_count(),
        "peak_memory": peak_resident_bytes(),
        "tasks": solver.statistics(),
    }


if __name__ == "__main__":
    answer(run_case)
