"""The data types against the machine and its peers: sort, stencil, neighbours, memory, start-up."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.data.load_balance import cut_by_weight, maximum_over_mean
from loki_core.data.particle_system import ParticleSystem
from loki_core.kernels.basics.space_filling_curve import cell_keys
from loki_core.kernels.jit import parallel_kernel, prange, thread_count
from loki_core.kernels.particles.density_constraint import sum_density
from loki_core.objects.particles.neighbour_search import NeighbourSearch
from loki_vfx.benchmarks._measure import best_seconds, figure, triad_gbps
from loki_vfx.benchmarks._stencils import laplacian


def run(quick: bool) -> dict[str, dict[str, Any]]:
    """Measure everything; `quick` uses smaller sizes."""
    bandwidth = triad_gbps(quick=quick)
    figures = {
        "triad_gbps": figure(
            bandwidth, "GB/s", None, "higher", f"a = b + s c, {thread_count()} threads"
        )
    }
    figures |= rebucketize_figures(quick, bandwidth)
    figures |= laplacian_figures(quick, bandwidth)
    figures |= neighbour_figures(quick)
    figures |= memory_figures(quick)
    figures |= balance_figures()
    figures |= start_up_figures()
    return figures


# -- rebucketize -----------------------------------------------------------------------------


def particles_in_box(count: int, *, per_bucket: int = 512) -> ParticleSystem:
    """Particles with 12 float32 values each, at random in a box, about `per_bucket` a Bucket."""
    buckets_per_axis = max(1, round((count / per_bucket) ** (1 / 3)))
    domain = GridDomain(1.0 / buckets_per_axis)
    particles = ParticleSystem(domain, name="benchmark")
    particles.add_channel("velocity", np.float32, (3,))
    particles.add_channel("colour", np.float32, (3,))
    for name in ("mass", "radius", "age"):
        particles.add_channel(name, np.float32)
    position = np.random.default_rng(1).random((count, 3), dtype=np.float32)
    particles.append({"position": position}, ids=np.arange(count, dtype=np.int64))
    return particles


def rebucketize_figures(quick: bool, bandwidth: float) -> dict[str, dict[str, Any]]:
    """Compare `rebucketize` with numpy's stable argsort and a take of every channel."""
    count = 200_000 if quick else 1_000_000
    rng = np.random.default_rng(2)
    particles = particles_in_box(count)
    cell = particles.domain.bucket_size / 8.0
    scattered = rng.random((count, 3), dtype=np.float32)
    channels = [np.array(c.values[:count]) for c in particles.channels.values()]
    random_keys = rng.permutation(_keys(scattered, cell))

    def shuffle() -> None:
        particles.local("position")[:] = scattered

    def jiggle() -> None:
        shift = rng.uniform(-0.5 * cell, 0.5 * cell, (count, 3)).astype(np.float32)
        moved = particles.local("position")
        np.clip(moved + shift, 0.0, np.float32(0.999999), out=moved)

    def numpy_sort(keys: np.ndarray) -> None:
        order = np.argsort(keys, kind="stable")
        for channel in channels:
            np.take(channel, order, axis=0)

    shuffle()
    particles.rebucketize()
    jiggle()
    near_keys = _keys(particles.local("position"), cell)
    best = best_seconds(
        {
            "numpy": lambda: numpy_sort(random_keys),
            "ours": particles.rebucketize,
            "numpy_near": lambda: numpy_sort(near_keys),
            "ours_near": particles.rebucketize,
        },
        before={"ours": shuffle, "ours_near": jiggle},
        rounds=7,
    )
    moved = 2 * sum(c.bytes_per_particle for c in particles.channels.values()) * count
    of_triad = moved / best["ours_near"] / (bandwidth * 1e9)
    peak = _rebucketize_peak(particles, shuffle)
    text = f"{count} particles, 12 float32 and an id each, best of 7"
    return {
        "rebucketize_vs_argsort": figure(
            best["numpy"] / best["ours"], "x", 4.0, "higher", f"{text}; random positions"
        ),
        "rebucketize_coherent_vs_argsort": figure(
            best["numpy"] / best["ours_near"],
            "x",
            8.0,
            "higher",
            f"{text}; moved up to half a sort cell, against random keys",
        ),
        "rebucketize_coherent_vs_argsort_coherent": figure(
            best["numpy_near"] / best["ours_near"],
            "x",
            2.0,
            "higher",
            f"{text}; moved up to half a sort cell, against the same nearly sorted keys",
        ),
        "rebucketize_coherent_of_triad": figure(
            of_triad, "", None, "higher", "bytes of all channels, read and written once, over triad"
        ),
        "rebucketize_peak_bytes_per_particle": figure(
            peak,
            "B",
            12.0 + 16.0,
            "lower",
            "above what is held; the goal is the largest channel (12 B) and 16 B",
        ),
    }


def _keys(position: np.ndarray, cell: float) -> np.ndarray:
    return cell_keys(np.floor(position / cell).astype(np.int32), "hilbert")


def _rebucketize_peak(particles: ParticleSystem, shuffle: Callable[[], None]) -> float:
    """Bytes a particle above what is held, at the worst moment."""
    tracemalloc.start()
    shuffle()
    particles.rebucketize()  # from here on all storage is known to the tracer
    shuffle()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    particles.rebucketize()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (peak - before) / particles.count


# -- Laplacian -------------------------------------------------------------------------------


def laplacian_figures(quick: bool, bandwidth: float) -> dict[str, dict[str, Any]]:
    """Compare the sparse 7-point Laplacian with a dense one, and a sparse box with a full one."""
    size = 128 if quick else 256
    buckets = size // 8
    lattice = np.stack(np.meshgrid(*[np.arange(buckets)] * 3, indexing="ij"), axis=-1)
    full = _volume(lattice.reshape(-1, 3))
    chosen = np.random.default_rng(3).random(buckets**3) < 0.05
    sparse = _volume(lattice.reshape(-1, 3)[chosen])
    dense = np.random.default_rng(4).random((size + 2, size + 2, size + 2), dtype=np.float32)
    dense_out = np.zeros_like(dense)
    best = best_seconds(
        {
            "dense": lambda: dense_laplacian(dense, np.float32(1.0), dense_out),
            "full": lambda: _laplacian(full),
            "sparse": lambda: _laplacian(sparse),
        },
        rounds=9,
    )
    voxels = full.buckets.local_count * 512
    per_bucket = best["full"] / full.buckets.local_count
    per_sparse = best["sparse"] / sparse.buckets.local_count
    of_triad = 8.0 * voxels / best["full"] / (bandwidth * 1e9)
    return {
        "sparse_laplacian_vs_dense": figure(
            best["dense"] / best["full"],
            "x",
            0.5,
            "higher",
            f"{size}^3 float32, all Buckets occupied, against a dense numba kernel; aim 0.7",
        ),
        "sparse_laplacian_of_triad": figure(
            of_triad, "", None, "higher", "8 bytes a voxel, read and written once, over triad"
        ),
        "sparse_5pct_cost_ratio": figure(
            per_sparse / per_bucket,
            "x",
            1.25,
            "lower",
            f"time a Bucket at 5 % occupation of a {size}^3 box over time a Bucket when full",
        ),
    }


def _volume(coords: np.ndarray) -> DiscreteVolume:
    volume = DiscreteVolume(GridDomain(8.0), name="benchmark")
    volume.add_channel("density")
    volume.add_channel("laplacian")
    volume.set_buckets(coords.astype(np.int32))
    values = volume.local("density")
    values[:] = np.random.default_rng(5).random(values.shape, dtype=np.float32)
    return volume


def _laplacian(volume: DiscreteVolume) -> None:
    buckets = volume.buckets
    laplacian(
        volume.local("density")[:, 0],
        buckets.local,
        buckets.neighbours,
        boundary_scale=np.ones(8, np.float32),
        boundary_value=np.zeros(8, np.float32),
        inverse_h2=1.0,
        out=volume.local("laplacian")[:, 0],
    )


@parallel_kernel
def dense_laplacian(u, inverse_h2, out):
    """7-point Laplacian of the inside of a dense array with one layer around it."""
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            for k in range(1, u.shape[2] - 1):
                out[i, j, k] = inverse_h2 * (
                    u[i - 1, j, k]
                    + u[i + 1, j, k]
                    + u[i, j - 1, k]
                    + u[i, j + 1, k]
                    + u[i, j, k - 1]
                    + u[i, j, k + 1]
                    - np.float32(6.0) * u[i, j, k]
                )


# -- neighbours ------------------------------------------------------------------------------


def neighbour_figures(quick: bool) -> dict[str, dict[str, Any]]:
    """Compare sort, cell list and density sum with scipy's tree and list of pairs."""
    from scipy.spatial import cKDTree

    count = 100_000 if quick else 1_000_000
    neighbours = 30.0
    radius = ((neighbours + 1.0) / count / (4.0 / 3.0 * np.pi)) ** (1 / 3)
    position = np.random.default_rng(6).random((count, 3), dtype=np.float32)
    particles = ParticleSystem(GridDomain(4.0 * radius), name="benchmark")
    particles.add_channel("mass", np.float32, default=1.0 / count)
    particles.add_channel("density", np.float32)
    particles.append({"position": position}, ids=np.arange(count, dtype=np.int64))
    shuffled = np.random.default_rng(7).permutation(position)
    search, supports = NeighbourSearch(particles), np.full(count, radius)

    def ours() -> None:
        particles.rebucketize()
        search.build(supports, particles.local("mass"), skin=0.0)
        density = np.empty(search.places, np.float32)
        sum_density(
            search.clusters, search.first, search.last, search.entries, search.packed.reshape(-1),
            search.support, search.is_uniform, 1.0, density,
        )  # fmt: skip
        search.scatter(density, particles.local("density"))

    def scipys() -> None:
        cKDTree(position).query_pairs(radius, output_type="ndarray")

    def shuffle() -> None:
        particles.local("position")[:] = shuffled

    ours()
    best = best_seconds({"ours": ours}, before={"ours": shuffle}, rounds=4)
    best |= best_seconds({"scipy": scipys}, rounds=1 if not quick else 2)
    best["ours"] = min(
        best["ours"], best_seconds({"ours": ours}, before={"ours": shuffle}, rounds=4)["ours"]
    )
    return {
        "neighbour_pairs_vs_ckdtree": figure(
            best["scipy"] / best["ours"],
            "x",
            15.0,
            "higher",
            f"{count} particles, about 30 neighbours; sort, cell list and density sum against "
            "cKDTree build and query_pairs",
        )
    }


# -- memory, balance, start-up ---------------------------------------------------------------


def memory_figures(quick: bool) -> dict[str, dict[str, Any]]:
    """Report bytes held beside the raw channels."""
    particles = particles_in_box(200_000 if quick else 1_000_000)
    particles.rebucketize()
    held = particles.memory()
    rng = np.random.default_rng(8)
    coords = np.unique(rng.integers(0, 20, (9000, 3)), axis=0)[:4000].astype(np.int32)
    volume = DiscreteVolume(GridDomain(1.0), name="benchmark")
    volume.add_channel("velocity", components=3, location="face")
    volume.add_channel("density")
    volume.add_channel("temperature")
    volume.set_buckets(coords)
    volumes = volume.memory()
    return {
        "particle_memory_overhead": figure(
            held["tables"] / held["channels"],
            "",
            0.05,
            "lower",
            f"tables over channels, {particles.count} particles; capacity slack apart: "
            f"{held['slack'] / held['channels']:.3f}",
        ),
        "volume_memory_overhead": figure(
            volumes["tables"] / volumes["channels"],
            "",
            0.05,
            "lower",
            f"tables over channels, {len(coords)} Buckets of 8^3, velocity and two scalars",
        ),
    }


def balance_figures() -> dict[str, dict[str, Any]]:
    """Cut 10,000 unevenly weighted Buckets into 16 parts."""
    weights = np.random.default_rng(9).lognormal(0.0, 0.8, 10_000)
    weights = np.minimum(weights, 0.02 * weights.sum() / 16)
    ratio = maximum_over_mean(weights, cut_by_weight(weights, 16))
    return {
        "balance_max_over_mean": figure(
            ratio, "", 1.05, "lower", "heaviest of 16 parts over the mean, 10,000 Buckets"
        )
    }


def start_up_figures() -> dict[str, dict[str, Any]]:
    """Measure the imports of `wtloki --help`, as Python itself reports them."""
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-c",
        "from loki_vfx.bridges.standalone.command_line import main; main(['--help'])",
    ]
    best = np.inf
    for _ in range(5):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        own = [line.split("|")[0] for line in done.stderr.splitlines() if "import time:" in line]
        times = [float(text.split(":")[1]) for text in own if text.split(":")[1].strip().isdigit()]
        best = min(best, 1e-6 * sum(times))
    return {
        "help_import_seconds": figure(
            best, "s", 0.5, "lower", "sum of all imports of `wtloki --help`, best of 5"
        )
    }
