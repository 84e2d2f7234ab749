"""Liquid against Blender's Mantaflow, against itself in larger boxes and on ranks, and in memory.

Both programs get the same dam break: a cube of 2 m, a column of 1 x 2 x 1 m in a corner, 8
particles a cell, 24 frames a second in 4 steps each. The steps of the last frame are compared, when
the flow has developed. Ours is APIC with cut-cell walls and a surface of second order, with
particles everywhere or with a narrow band, as the peer. What is compared with itself is a pool with
a current in it. Each case of ours runs in a process of its own:

    python -m loki_vfx.benchmarks.liquid '{"shape": "dam_break", "n": 64, "frames": 6}'
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from loki_core.operating_system import peak_resident_bytes
from loki_vfx.benchmarks._measure import figure
from loki_vfx.benchmarks._processes import answer, ranks2_speedup, run_apart
from loki_vfx.benchmarks.peers.mantaflow import PeerError, dam_break_step

EDGE = 2.0  # m
STEPS = 4  # of a frame
FRAMES = 6
POOL, QUICK_POOL = 50, 16  # cells along a pool's edge; a million particles, or few
SURFACE = "Surface"

Figures = dict[str, dict[str, Any]]


def run(quick: bool) -> Figures:
    """Measure everything; `quick` uses smaller sizes."""
    sizes = (16, 32) if quick else (64, 128)
    n = QUICK_POOL if quick else POOL
    return (
        mantaflow_figures(*sizes)
        | pool_figures(n)
        | memory_figures(n)
        | rank_figures(n)
        | vdb_figures(sizes[0])
    )


def mantaflow_figures(small: int, large: int) -> Figures:
    """Compare dam breaks with Mantaflow's: with all particles, and with its narrow band."""
    figures = {}
    for name, n, band, goal in (
        ("step_vs_mantaflow_64", small, None, 5.0),
        ("step_vs_mantaflow_128", large, 3, 10.0),
    ):
        ours = measure({"shape": "dam_break", "n": n, "frames": FRAMES, "band": band})
        mine = ours["step_seconds_mean"]
        try:
            peer = dam_break_step(n, frames=FRAMES, steps=STEPS, band=float(band or 0))
        except PeerError as error:
            figures[name] = figure(None, "x", goal, "higher", str(error))
            continue
        theirs = peer["step_seconds_mean"]
        how = (
            f"dam break {n}^3, mean step of frame {FRAMES}: {mine:.3g} s with "
            f"{ours['particles']} particles against {theirs:.3g} s with {peer['particles']}"
        )
        figures[name] = figure(theirs / mine, "x", goal, "higher", how)
    return figures


def pool_figures(n: int) -> Figures:
    """Measure a pool, the same in a box of 8 times the height, and one of twice the length."""
    cases = {
        "once": {"shape": "pool", "n": n, "long": 1, "tall": 2, "frames": FRAMES},
        "roomy": {"shape": "pool", "n": n, "long": 1, "tall": 16, "frames": FRAMES},
        "twice": {"shape": "pool", "n": n, "long": 2, "tall": 2, "frames": FRAMES},
    }
    found: dict[str, Any] = {}
    best = dict.fromkeys(cases, np.inf)
    for _ in range(2):  # they take turns
        for name, case in cases.items():
            found[name] = measure(case)
            best[name] = min(best[name], found[name]["step_seconds_mean"])
    once = found["once"]
    words = f"{once['particles']} particles in {once['cells']} cells, mean step of frame {FRAMES}"
    rate = once["particles"] / best["once"] / once["threads"]
    return {
        "particle_steps_per_s_core": figure(
            rate, "1/s", 1.5e6, "higher", f"{words}, {once['threads']} threads"
        ),
        "cost_box_times_8": figure(
            best["roomy"] / best["once"], "x", 1.05, "lower", f"{words}, in a box 8 times as tall"
        ),
        "growth_double_liquid": figure(
            best["twice"] / best["once"], "x", 2.3, "lower", f"{words}, and twice as many"
        ),
    }


def memory_figures(n: int) -> Figures:
    """Report the slope of peak memory over particles."""
    few, many = (
        measure({"shape": "tank", "n": n, "long": long, "tall": 2, "frames": 1}) for long in (1, 2)
    )
    slope = (many["peak_memory"] - few["peak_memory"]) / (many["particles"] - few["particles"])
    how = (
        f"peak of the process, {few['particles']} to {many['particles']} particles, 8 a cell; a "
        "mesh is filled, so no input has a size of its own, and the water runs against a wall"
    )
    return {"bytes_per_particle": figure(slope, "B", 200.0, "lower", how)}


def rank_figures(n: int) -> Figures:
    """Compare two ranks of one thread with one."""
    case = {"shape": "pool", "n": n, "long": 1, "tall": 2, "frames": FRAMES}
    how = f"a step of a pool of {n}^3 cells"
    return {"ranks2_speedup": ranks2_speedup(__name__, case, "step_seconds_mean", how, rounds=1)}


def vdb_figures(n: int) -> Figures:
    """Compare the export of a frame, level set and velocity, with its substeps."""
    found = measure({"shape": "dam_break", "n": n, "frames": FRAMES, "surface": True})
    steps = STEPS * found["step_seconds_mean"]
    how = (
        f"dam break {n}^3, frame {FRAMES}: level set and velocity of {found['vdb_voxels']} voxels "
        f"to a file of {found['vdb_bytes']} bytes in "
        f"{found['vdb_seconds']:.3g} s, its {STEPS} substeps in {steps:.3g} s; the level set was "
        f"made in {found['surface_seconds']:.3g} s"
    )
    return {"vdb_fraction": figure(found["vdb_seconds"] / steps, "", 0.05, "lower", how)}


# -- cases -------------------------------------------------------------------------------------


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case of ours in a process of its own."""
    return run_apart(__name__, case)


def build(case: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the Solver Setup of a case and its inputs."""
    from loki_core.constraints.pressure import PressureMaterial
    from loki_core.data.points import Points
    from loki_core.forces.gravity import GravityForce
    from loki_core.objects.liquid.hybrid import HybridObject
    from loki_core.objects.liquid.liquid_surface import LiquidSurface
    from loki_core.solver_setup import SolverSetup
    from loki_graph.nodes.shape_source import box_between

    n = int(case["n"])
    h = EDGE / n
    liquid, size = cells_of(case)
    water = box_between((0.0, 0.0, 0.0), tuple(h * m for m in liquid))
    if case["shape"] != "tank":
        place = 0.5 * h * (np.indices([2 * m for m in liquid]).reshape(3, -1).T + 0.5)
        water = Points(place)
    if case["shape"] == "pool":  # a current that has to turn at the walls
        current = np.zeros_like(place)
        current[:, 0] = np.sin(np.pi * place[:, 1] / (h * liquid[1]))
        water.set_channel("point", "velocity", current)
    walls = ("wall",) * 3
    shown = [LiquidSurface(name=SURFACE, output="level_set")] if case.get("surface") else []
    setup = SolverSetup(
        "liquid",
        HybridObject(
            name="Water",
            voxel_size=h,
            input="water",
            narrow_band=case.get("band"),
            velocity=(1.0, 0.0, 0.0) if case["shape"] == "tank" else (0.0, 0.0, 0.0),
        ),
        PressureMaterial(),
        GravityForce(),
        *shown,
        substeps=STEPS,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=tuple(m * h for m in size),
        boundary_lower=walls,
        boundary_upper=walls,
    )
    return setup, {"water": water}


def cells_of(case: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return the cells that the liquid and the box have along each axis."""
    n = int(case["n"])
    if case["shape"] == "dam_break":
        return [n // 2, n, n // 2], [n, n, n]
    length = int(case["long"]) * n
    return [n, n, length], [n, int(case["tall"]) * n, length]


def run_case(case: dict[str, Any]) -> dict[str, Any] | None:
    """Run a case in this process; rank 0 gets its figures."""
    from loki_core.kernels.jit import thread_count
    from loki_core.parallel.comm import world
    from loki_core.pipeline.solver import Solver

    comm = world()
    solver = Solver(*build(case), comm=comm)
    seconds = shown = np.inf
    for _ in range(int(case["frames"])):
        comm.barrier()
        before, start = surface_seconds(solver), perf_counter()
        solver.advance_frame()
        comm.barrier()
        shown = surface_seconds(solver) - before
        seconds = perf_counter() - start - shown
    particles = int(solver.counts()["Water"])
    if comm.rank != 0:
        return None
    exported = {"surface_seconds": shown, **export(solver)} if case.get("surface") else {}
    return {
        **exported,
        "step_seconds_mean": seconds / STEPS,
        "particles": particles,
        "cells": int(np.prod(cells_of(case)[0])),
        "threads": thread_count(),
        "peak_memory": peak_resident_bytes(),
        "tasks": solver.statistics(),
    }


def surface_seconds(solver: Any) -> float:
    """Return what making the surface took so far."""
    return sum(one["seconds"] for one in solver.statistics() if one["task"].startswith(SURFACE))


def export(solver: Any) -> dict[str, Any]:
    """Write the present surface as VDB, and return what that took; the best of three."""
    from loki_vfx.serialization.vdb_sequence import grids_of

    voxels, seconds = solver.outputs()[SURFACE], np.inf
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "surface.vdb"
        for _ in range(3):
            start = perf_counter()
            grids_of(voxels).write(path)
            seconds = min(seconds, perf_counter() - start)
        size = path.stat().st_size
    return {
        "vdb_seconds": seconds,
        "vdb_bytes": size,
        "vdb_voxels": int(voxels.voxel_count),
    }


if __name__ == "__main__":
    answer(run_case)
