"""A model of time per step on many machines, from what `wtloki bench ranks` measures.

    wtloki bench ranks --json > ranks.json
    python -m loki_vfx.benchmarks._scaling_model ranks.json

Without a file it takes the numbers below, those of docs/scaling.md. A machine has so many ranks of
one thread, each as fast as a measured core. The domain is a box that the space-filling curve cuts
into compact parts, of machines and of ranks: of the faces of a part, 1 - parts^(-1/3) belong to
others.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields
from math import ceil, log, log2
from pathlib import Path

VOXELS_PER_BUCKET, PARTICLES_PER_BUCKET = 512, 50
MACHINES = (4, 16, 64, 256)
VOXELS, PARTICLES = 10**9, 10**8


@dataclass(frozen=True)
class Measured:
    """Costs of one rank of one thread in a substep; figures of the benchmark have these names."""

    voxel_seconds: float = 6.0e-7
    particle_seconds: float = 1.2e-7
    ghost_bytes_per_face: float = 37_100.0
    ghost_exchanges: float = 10.0
    iterations: float = 4.0
    halo_bytes_per_face: float = 10_600.0
    halo_exchanges: float = 99.0
    reductions: float = 32.0
    step_overhead: float = 1.5e-3
    bucket_seconds: float = 3.7e-8
    exchange_seconds: float = 1.5e-5
    reduction_seconds: float = 1.9e-5
    copy_bandwidth: float = 3.9e9
    voxels: float = 64.0**3


@dataclass(frozen=True)
class Cluster:
    """Machines and what joins them.

    Attributes:
        ranks: Of a machine, on cores that have as much memory bandwidth each as the measured ones.
        bandwidth: Of a machine's link, one way [B/s]: 25 Gb/s.
        latency: Of a message between machines [s].
        peer_seconds: What a rank spends on each other rank in an all-to-all [s].
        neighbours: Ranks that a rank exchanges ghosts with.
        imbalance: Heaviest rank over the mean.
    """

    ranks: int = 16
    bandwidth: float = 25.0e9 / 8.0
    latency: float = 2.0e-6
    peer_seconds: float = 2.0e-6
    neighbours: int = 14
    imbalance: float = 1.08


KEY_BYTES = 21  # of a Bucket, when all ranks tell each other theirs: key, coordinates, level
MOVED_BYTES = 100  # of a particle that changes its rank
REBUILD_EVERY = 3  # steps after which a sparse volume has other Buckets
BALANCE_EVERY, RUNS, SWEEPS = 20, 1 << 16, 20
COARSENING = 20.0  # unknowns of a level over those of the next
EXCHANGES_PER_LEVEL = 8  # of a cycle, on a coarse level (linear_solvers/hierarchy.py)
ALL_TO_ALLS = 11  # of a step of particles: one for each channel, and some for plans


def faces_of(buckets: float, parts: int) -> float:
    """Faces of one of so many compact parts, of so many Buckets, that belong to others."""
    return float(6.0 * buckets ** (2.0 / 3.0) * (1.0 - parts ** (-1.0 / 3.0)))


def smoke_step(machines: int, m: Measured, c: Cluster, voxels: float = VOXELS) -> dict[str, float]:
    """Seconds of a step of smoke on sparse Buckets, by what they go into."""
    ranks, buckets = machines * c.ranks, voxels / VOXELS_PER_BUCKET
    per_byte = _face_seconds(buckets, machines, m, c)
    per_exchange = m.exchange_seconds + c.neighbours * c.latency
    levels = max(0.0, log(voxels / m.voxels, COARSENING))  # more than were measured
    growth = 1.03**levels  # of iterations
    exchanges = m.halo_exchanges + m.iterations * EXCHANGES_PER_LEVEL * levels
    reduction = m.reduction_seconds + ceil(log2(ranks)) * c.latency + 8.0 * ranks / c.bandwidth
    return {
        "compute": c.imbalance * voxels / ranks * m.voxel_seconds,
        "ghosts": m.ghost_bytes_per_face * per_byte + m.ghost_exchanges * per_exchange,
        "halos": growth * (m.halo_bytes_per_face * per_byte + exchanges * per_exchange),
        "sums": growth * m.reductions * reduction,
        "tables": _tables(buckets, ranks, m, c) / REBUILD_EVERY,
        "balance": _balance(ranks, c),
        "overhead": m.step_overhead,
    }


def particle_step(
    machines: int, m: Measured, c: Cluster, particles: float = PARTICLES
) -> dict[str, float]:
    """Seconds of a step of particles that meet nobody, by what they go into."""
    ranks, buckets = machines * c.ranks, particles / PARTICLES_PER_BUCKET
    # A quarter of a Bucket in a step, half of them outward.
    leaving = 0.125 * PARTICLES_PER_BUCKET * MOVED_BYTES
    return {
        "compute": c.imbalance * particles / ranks * m.particle_seconds,
        "travel": leaving * _face_seconds(buckets, machines, m, c),
        "all-to-all": ALL_TO_ALLS * ranks * c.peer_seconds,
        "tables": _tables(buckets, ranks, m, c),
        "balance": _balance(ranks, c),
        "overhead": m.step_overhead,
    }


def _face_seconds(buckets: float, machines: int, m: Measured, c: Cluster) -> float:
    """Time for a byte of each face: over the machine's link, and in and out of the rank."""
    ranks = machines * c.ranks
    wire = faces_of(buckets / machines, machines) / c.bandwidth
    return wire + faces_of(buckets / ranks, ranks) / m.copy_bandwidth


def _tables(buckets: float, ranks: int, m: Measured, c: Cluster) -> float:
    """Every rank learns of every Bucket, passed on from rank to rank, and looks at each."""
    return buckets * (m.bucket_seconds + KEY_BYTES / c.bandwidth) + 3 * ranks * c.latency


def _balance(ranks: int, c: Cluster) -> float:
    """A look at the load: runs of Buckets from all ranks, and some sweeps over all cuts."""
    told = max(RUNS, 64 * ranks) * 16.0 / c.bandwidth + 2 * ranks * c.latency
    return (told + SWEEPS * ranks * c.peer_seconds) / BALANCE_EVERY


def efficiency(step: dict[str, float]) -> float:
    """Share of a step in which elements are worked on."""
    return step["compute"] / sum(step.values())


def table(model: str, m: Measured, c: Cluster) -> list[str]:
    """The rows of a table in Markdown, in milliseconds."""
    steps = {
        machines: (smoke_step if model == "smoke" else particle_step)(machines, m, c)
        for machines in MACHINES
    }
    parts = list(steps[MACHINES[0]])
    rows = [
        f"| machines | {' | '.join(parts)} | **step** | at work |",
        "|---:|" + "---:|" * (len(parts) + 2),
    ]
    for machines, step in steps.items():
        cells = [*(step[name] for name in parts), sum(step.values())]
        told = " | ".join(f"{1e3 * value:.1f}" for value in cells[:-1])
        rows.append(f"| {machines} | {told} | **{1e3 * cells[-1]:.0f}** | {efficiency(step):.0%} |")
    return rows


def read_measured(file: Path) -> Measured:
    """Take what a run of `wtloki bench ranks --json` measured."""
    figures = json.loads(file.read_text())["figures"]
    found = {}
    for one in fields(Measured):
        for name in (one.name, f"model_{one.name}"):
            if name in figures and figures[name]["value"] is not None:
                found[one.name] = float(figures[name]["value"])
    return Measured(**found)


if __name__ == "__main__":
    given = read_measured(Path(sys.argv[1])) if len(sys.argv) > 1 else Measured()
    print(given, Cluster(), sep="\n")
    for kind in ("smoke", "particles"):
        print(f"\n{kind}, milliseconds a step\n")
        print("\n".join(table(kind, given, Cluster())))
