"""Ranks: what they gain on the examples, what they say to each other, what each of them holds.

Speed is one rank of one thread against two of one thread, in turns; a frame counts with its best
time. Ghosts are counted twice (`_ghosts.py`). Memory is the peak of the fullest rank above what
Python and the kernels take. The rest is what the model of many machines is fed with
(`_scaling_model.py`, docs/scaling.md) and what the cost model of the load balance was taken from.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from loki_vfx.benchmarks import _ranks_cases
from loki_vfx.benchmarks._measure import figure
from loki_vfx.benchmarks._processes import ranks2_speedup, run_apart

CASES = _ranks_cases.__name__
Figures = dict[str, dict[str, Any]]


def run(quick: bool) -> Figures:
    """Measure everything; `quick` uses smaller sizes."""
    # The plume's frames are those between two looks at the load, one look among them.
    plume = {"scene": "smoke_plume", "warm": 15, "frames": 10}
    hair = {"scene": "hair_in_wind", "warm": 2, "frames": 4}
    if quick:
        plume |= {"options": {"voxel_size": 0.08}}
        hair |= {"options": {"strands": 500}, "frames": 2}
    size = "smaller, " if quick else ""
    return (
        speed_figures({"plume": plume, "hair": hair}, size)
        | ghost_figures([plume | {"warm": 2, "frames": 2}, hair | {"warm": 1, "frames": 1}], size)
        | memory_figures(64 if quick else 128, 2000 if quick else 8000)
        | groom_figures(4000 if quick else 200_000)
        | correctness_figures()
        | cost_figures(32 if quick else 64)
        | model_figures(32 if quick else 64)
    )


def speed_figures(cases: dict[str, dict[str, Any]], size: str) -> Figures:
    """Compare two ranks of one thread with one on the examples."""
    return {
        f"{name}_ranks2_speedup": ranks2_speedup(
            CASES,
            case,
            "frame_seconds",
            f"example {case['scene']}, {size}{case['frames']} frames after {case['warm']}",
        )
        for name, case in cases.items()
    }


def ghost_figures(cases: list[dict[str, Any]], size: str) -> Figures:
    """Compare the bytes that Accessors declare with those that are sent for them."""
    found = [run_apart(CASES, case | {"audit": True}, ranks=2) for case in cases]
    declared, sent = (
        sum(one["per_step"][f"ghost_bytes_{word}"] * one["substeps"] for one in found)
        for word in ("declared", "sent")
    )
    wrong = sum(one["wrong_requests"] for one in found)
    scenes = " and ".join(case["scene"] for case in cases)
    plume = found[0]["per_step"]
    return {
        "ghost_bytes_declared_over_sent": figure(
            declared / sent,
            "",
            1.0,
            "higher",  # more than 1 would be ghosts that are declared and never come
            f"{scenes}, {size}2 ranks: {sent:.0f} bytes; requests whose counts differ: {wrong}",
        ),
        "ghost_bytes_per_step": figure(
            plume["ghost_bytes_sent"],
            "B",
            None,
            "lower",
            f"{cases[0]['scene']}, {size}both of 2 ranks, a substep; {found[0]['faces'] // 2} "
            f"faces of Buckets between them, {plume['ghost_requests'] / 2:.0f} exchanges",
        ),
    }


def memory_figures(n: int, strands: int) -> Figures:
    """Compare the memory that a rank needs with that of one rank alone."""
    cases = {
        "": ({"scene": "box", "size": [n] * 3}, f"{n}^3 voxels full of smoke"),
        "hair_": ({"scene": "wall", "strands": strands}, f"{strands} strands of 17 vertices"),
    }
    figures = {}
    for prefix, (case, what) in cases.items():
        case |= {"memory": True, "frames": 2}
        growth = {
            ranks: run_apart(CASES, case, ranks=ranks)["growth"] for ranks in (1, 2, 4)
        }  # growth of the fullest rank
        told = ", ".join(f"{1e-6 * growth[ranks]:.0f} MB" for ranks in growth)
        for ranks in (2, 4):
            figures[f"{prefix}memory_per_rank_{ranks}_over_1"] = figure(
                growth[ranks] / growth[1],
                "",
                1.0,
                "lower",
                f"{what}; fullest of 1, 2 and 4 ranks: {told} above Python and kernels",
            )
    return figures


def groom_figures(strands: int) -> Figures:
    """Find what a rank keeps of a groom that is attached to a skin in motion."""
    case = {"scene": "groom", "strands": strands, "memory": True, "frames": 1}
    found = {ranks: run_apart(CASES, case, ranks=ranks) for ranks in (1, 2, 4)}
    figures = {}
    for ranks, one in found.items():
        held = one["held"]
        figures[f"groom_bytes_per_rank_{ranks}"] = figure(
            held["all"],
            "B",
            None if ranks == 1 else 1.1 * found[1]["held"]["all"] / ranks,
            "lower",
            f"{strands:,} strands of 6 vertices, each attached: arrays of the fullest of {ranks} "
            f"ranks after a frame, {1e-6 * held['joining']:.0f} MB of them of Attachments and "
            f"{1e-6 * held['inputs']:.1f} MB of input streams; its peak is "
            f"{1e-6 * one['growth']:.0f} MB above Python and kernels",
        )
    return figures


def correctness_figures() -> Figures:
    """Compare four ranks with one, by the validation case of distributed runs."""
    from loki_vfx.validation import distributed

    results = distributed.run(sizes=(16,), ranks=(4,))
    four = [one for one in results if "4 ranks" in one["metric"]]
    worst = max(
        one["error"] / one["threshold_production"] if one["threshold_production"] else one["error"]
        for one in four
    )
    return {
        "ranks4_difference_over_tolerance": figure(
            float(worst),
            "",
            1.0,
            "lower",
            f"largest of {len(four)} differences between 4 ranks and 1 over what is allowed "
            "(wtloki validate distributed): smoke bit for bit, or to 1e-10 with a solve, and hair",
        )
    }


def cost_figures(n: int) -> Figures:
    """Measure what elements cost beside a voxel of smoke; the load balance has stored numbers."""
    seconds = {}
    for scene, more in (
        ("box", {"size": [n] * 3}),
        ("dust", {"count": n**3}),
        ("wall", {"strands": n**3 // 64}),
    ):
        case = {"scene": scene, "warm": 2, "frames": 4, **more}
        found = min(
            (run_apart(CASES, case, ranks=1) for _ in range(2)),
            key=lambda one: float(one["per_step"]["task_seconds"]),
        )
        (count,) = found["counts"].values()
        seconds[scene] = found["per_step"]["task_seconds"] / count
    stored = {"dust": 0.17 + 0.4 / 50, "wall": 0.75 + 0.42 + 0.09}
    figures = {
        f"{name}_over_voxel": figure(
            seconds[scene] / seconds["box"],
            "",
            None,
            "lower",
            f"seconds of Tasks an element and substep, one thread, over a voxel of smoke; the "
            f"load balance counts {stored[scene]:.3g}",
        )
        for name, scene in (("particle", "dust"), ("vertex", "wall"))
    }
    figures["voxel_seconds"] = figure(
        seconds["box"], "s", None, "lower", f"Tasks of a substep, {n}^3 full of smoke, one thread"
    )
    figures["particle_seconds"] = figure(
        seconds["dust"], "s", None, "lower", f"the same, {n**3} particles"
    )
    return figures


def model_figures(n: int) -> Figures:
    """Measure what the model of many machines asks for beyond that."""
    found = run_apart(
        CASES, {"scene": "box", "size": [n] * 3, "warm": 2, "frames": 3, "audit": True}, ranks=2
    )
    tiny = run_apart(CASES, {"scene": "box", "size": [8] * 3, "warm": 3, "frames": 10}, ranks=1)
    step, faces = found["per_step"], found["faces"]
    halo = step["post_bytes"] - step["ghost_bytes_sent"]
    exchanges = (step["post_calls"] - step["ghost_requests"]) / 2
    how = f"{n}^3 full of smoke, 2 ranks, a substep"
    values = {
        "ghost_bytes_per_face": (step["ghost_bytes_sent"] / faces, "B", "sent by Accessors"),
        "ghost_exchanges": (step["ghost_requests"] / 2, "", "of Accessors"),
        "iterations": (step["iterations"] / 2, "", "of the pressure solve"),
        "halo_bytes_per_face": (halo / faces, "B", "sent by the pressure solve"),
        "halo_exchanges": (exchanges, "", "of the pressure solve"),
        "reductions": (step["all_reduce_calls"] / 2, "", "over all ranks"),
    }
    figures = {
        f"model_{name}": figure(value, unit, None, "lower", f"{how}: {what}")
        for name, (value, unit, what) in values.items()
    }
    talk = run_apart(CASES, {"scene": "talk"}, ranks=2)
    for name, value, what in (
        ("exchange_seconds", talk["exchange"], "8 bytes to and from another rank"),
        ("reduction_seconds", talk["sum"], "a sum over two ranks"),
    ):
        figures[f"model_{name}"] = figure(value, "s", None, "lower", f"{what}, best mean of many")
    figures["model_copy_bandwidth"] = figure(
        2.0**20 / talk["copy"], "B/s", None, "higher", "1 MB to and from another rank, each way"
    )
    figures["model_step_overhead"] = figure(
        min(tiny["frame_seconds"]), "s", None, "lower", "a step of one Bucket: what does not scale"
    )
    figures["model_bucket_seconds"] = figure(
        foreign_bucket_seconds(n), "s", None, "lower",
        "a Bucket of another rank, in the tables of all Buckets that every rank makes anew",
    )  # fmt: skip
    return figures


def foreign_bucket_seconds(n: int) -> float:
    """Time that a rank spends on each Bucket of others when the set of Buckets changes [s]."""
    from loki_core.data.bucket_set import BucketSet
    from loki_core.data.grid_domain import GridDomain
    from loki_core.parallel.comm import SerialCommunicator

    lattice = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), axis=-1)
    coords = lattice.reshape(-1, 3).astype(np.int32)
    keys = GridDomain(1.0).keys(coords)
    order = np.argsort(keys)
    coords, keys = coords[order], keys[order]
    own = len(coords) // 64

    class First(SerialCommunicator):
        """Rank 0 of 64; the others have the rest."""

        size = 64

        def all_gather(self, array: Any) -> list[Any]:
            rest: dict[str, Any] = {
                "uint64": keys[own:],
                "int32": coords[own:].reshape(-1),
                "uint8": np.zeros(len(keys) - own, np.uint8),
            }
            return [array, rest[array.dtype.name]]

    domain = GridDomain(1.0, comm=First())
    domain.cuts[1:-1] = keys[own * np.arange(1, 64)]
    best = np.inf
    for _ in range(4):
        start = perf_counter()
        _ = BucketSet(domain, coords[:own]).table
        best = min(best, perf_counter() - start)
    return best / len(coords)
