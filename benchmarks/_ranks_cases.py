"""What the benchmark of ranks runs: scenes, each in processes of its own.

    python -m loki_vfx.benchmarks._ranks_cases '{"scene": "smoke_plume", "warm": 4, "frames": 2}'

A scene is an example of the gallery, or "box" and "wall", those of the gas and hair benchmarks, or
"dust", particles in a box, or "groom", strands that are attached. What is found is that of all
ranks: sums, or the largest of any.
"""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter
from typing import Any

import numpy as np

import loki_core as lk
from loki_core.operating_system import (
    forget_peak_resident_bytes,
    peak_resident_bytes,
    resident_bytes,
)
from loki_core.parallel.comm import Communicator, one_fails_all_fail, world
from loki_core.parallel.observed import ObservedCommunicator
from loki_vfx.benchmarks import gas, hair
from loki_vfx.benchmarks._ghosts import DIRECTIONS, GhostAudit, find_border
from loki_vfx.benchmarks._groom_case import groom
from loki_vfx.benchmarks._held_bytes import held_bytes
from loki_vfx.benchmarks._processes import answer

#: The scene by which kernels are loaded before memory is measured.
TINY = {"box": {"size": [16, 16, 16]}, "wall": {"strands": 16}, "groom": {"strands": 64}}


def build(case: dict[str, Any]) -> tuple[lk.SolverSetup, dict[str, Any]]:
    """Return the Solver Setup of a case and its inputs."""
    scene = case["scene"]
    if scene == "box":
        return gas.build({"shape": "box", **case})
    if scene == "wall":
        return hair.build({"vertices": 17, "substeps": 2, **case})
    if scene == "dust":
        return dust(int(case["count"]))
    if scene == "groom":
        return groom(int(case["strands"]))
    from loki_vfx.bridges.standalone.gallery import find_example

    built: tuple[lk.SolverSetup, dict[str, Any]] = find_example(scene).build(
        **case.get("options", {})
    )
    return built


def dust(count: int) -> tuple[lk.SolverSetup, dict[str, Any]]:
    """Particles that fly about in a closed box, fifty in a Bucket."""
    rng = np.random.default_rng(0)
    points = lk.Points(rng.random((count, 3)))
    points.set_channel("point", "velocity", rng.standard_normal((count, 3)))
    setup = lk.SolverSetup(
        "dust",
        lk.ParticleObject(name="Dust", input="dust"),
        lk.GravityForce(),
        bucket_size=1.0 / max(1, round((count / 50.0) ** (1.0 / 3.0))),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )
    return setup, {"dust": points}


def run_case(case: dict[str, Any]) -> dict[str, Any] | None:
    """Run a case in this process; rank 0 gets what was found."""
    comm = ObservedCommunicator(world())
    with one_fails_all_fail(comm):
        if case.get("memory"):
            found = measure_memory(comm, case)
        elif case["scene"] == "talk":
            found = measure_talk(comm.inner)
        else:
            found = measure_run(comm, case)
    return found if comm.rank == 0 else None


def measure_run(comm: ObservedCommunicator, case: dict[str, Any]) -> dict[str, Any]:
    """Time frames, and count what ranks say to each other.

    With "audit" in the case ghosts are counted twice, which takes time.
    """
    audit, seconds = GhostAudit(comm), []
    with audit.watch() if case.get("audit") else nullcontext():
        solver = lk.Solver(*build(case), comm=comm)
        solver.run(int(case["warm"]))
        before = _totals(comm, solver, audit)
        for _ in range(int(case["frames"])):
            comm.barrier()
            start = perf_counter()
            solver.advance_frame()
            comm.barrier()
            seconds.append(perf_counter() - start)
        after = _totals(comm, solver, audit)
    steps = after.pop("substeps") - before.pop("substeps")
    return {
        "frame_seconds": seconds,
        "substeps": steps,
        "counts": solver.counts(),
        "faces": comm.total(_faces(solver, comm)),
        "wrong_requests": comm.total(audit.wrong),
        "balances": solver.balances(),
        "per_step": {name: _sum(comm, after[name] - before[name]) / steps for name in after},
    }


def _totals(comm: ObservedCommunicator, solver: lk.Solver, audit: GhostAudit) -> dict[str, float]:
    """What has happened on this rank so far."""
    totals: dict[str, float] = {
        "substeps": solver.timeline.substep,
        "ghost_requests": audit.requests,
        "ghost_bytes_declared": audit.declared,
        "ghost_bytes_sent": audit.sent,
    }
    for name in ("post", "all_reduce", "all_gather", "all_to_all"):
        one = comm.traffic.get(name)
        totals[f"{name}_calls"] = one.calls if one else 0
        totals[f"{name}_bytes"] = one.bytes_sent if one else 0
    tasks = solver.statistics()
    totals["task_seconds"] = sum(one["seconds"] for one in tasks)
    totals["iterations"] = sum(one["iterations"] for one in tasks)
    return totals


def _faces(solver: lk.Solver, comm: Communicator) -> int:
    """Faces between Buckets of voxels of this rank and of others."""
    is_face = np.abs(DIRECTIONS).sum(axis=1) == 1
    total = 0
    for item in solver.objects.values():
        volume = item.data.get("volume")
        if volume is not None and comm.size > 1:
            foreign = find_border(volume.domain, volume.buckets.all_coords, comm.rank)[0]
            total += int(foreign[:, is_face].sum())
    return total


def measure_memory(comm: ObservedCommunicator, case: dict[str, Any]) -> dict[str, Any]:
    """Find by how much the memory of the fullest rank peaks above what it is without the scene."""
    lk.Solver(*build(case | TINY[case["scene"]]), comm=comm).run(1)  # loads all kernels
    forget_peak_resident_bytes()
    before = resident_bytes()
    solver = lk.Solver(*build(case), comm=comm)
    solver.run(int(case["frames"]))
    growth = peak_resident_bytes() - before
    held = {name: comm.maximum(float(size)) for name, size in held_bytes(solver).items()}
    return {"growth": comm.maximum(float(growth)), "counts": solver.counts(), "held": held}


def measure_talk(comm: Communicator) -> dict[str, Any]:
    """Time what two ranks take to exchange 8 bytes and 1 MB, and to add up a number [s]."""
    other, best = {1 - comm.rank}, {}
    for name, size, rounds in (("exchange", 1, 500), ("copy", 1 << 17, 100), ("sum", 1, 500)):
        given, taken = np.ones(size), np.empty(size)
        best[name] = np.inf
        for _ in range(5):
            comm.barrier()
            start = perf_counter()
            for _ in range(rounds):
                if name == "sum":
                    comm.all_reduce(given, "sum")
                else:
                    comm.post(dict.fromkeys(other, given), dict.fromkeys(other, taken)).wait()
            best[name] = min(best[name], (perf_counter() - start) / rounds)
    return best


def _sum(comm: Communicator, value: float) -> float:
    return float(comm.all_reduce(np.array([float(value)]), "sum")[0])


if __name__ == "__main__":
    answer(run_case)
