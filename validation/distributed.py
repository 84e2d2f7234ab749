"""Smoke on 1, 2, 3 and 4 ranks: what the number of ranks changes, which should be nothing.

Two scenes at two sizes. Without a linear solve, advection along short and long traces, emission and
forces give the same bits. With pressure solved to 1e-13 in double precision the fields differ by at
most 1e-10 a step. Mass and momentum do not depend on the partition. The same run twice, with
one thread and with two, is the same bit for bit.
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

SIZES = (16, 32)  # voxels along the width of the source's room
RANKS = (2, 3, 4)
STEPS = 4
CHANNELS = ("velocity", "density", "temperature")
Fields = dict[str, NDArray[Any]]


def run(sizes: tuple[int, ...] = SIZES, ranks: tuple[int, ...] = RANKS) -> list[dict[str, Any]]:
    """Run both scenes on all numbers of ranks and compare with one rank."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            for scene in ("carried", "solved"):
                alone = _run_on(1, scene, size, Path(folder))
                for count in ranks:
                    several = _run_on(count, scene, size, Path(folder))
                    results += _compare(alone, several, f"{scene}, {size}^3, {count} ranks", scene)
                if size == sizes[0]:
                    again = _run_on(1, scene, size, Path(folder), threads=2)
                    results.append(_bitwise(alone, again, f"{scene}, {size}^3, 1 and 2 threads"))
    return results


def _compare(alone: Fields, several: Fields, label: str, scene: str) -> list[dict[str, Any]]:
    if scene == "carried":
        return [_bitwise(alone, several, label), _sums(alone, several, label, 0.0, 0.0)]
    worst = 0.0
    for step in range(STEPS):
        for name in CHANNELS:
            one, other = alone[f"{name}_{step}"], several[f"{name}_{step}"]
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


def _bitwise(alone: Fields, several: Fields, label: str) -> dict[str, Any]:
    differing = sum(
        int(not np.array_equal(alone[f"{name}_{step}"], several[f"{name}_{step}"]))
        for step in range(STEPS)
        for name in CHANNELS
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


def _run_on(ranks: int, scene: str, size: int, folder: Path, *, threads: int = 1) -> Fields:
    """Run a scene in child processes; returns what rank 0 saw."""
    target = folder / f"{scene}_{size}_{ranks}_{threads}.npz"
    module = __name__ if __name__ != "__main__" else "validation.distributed"
    words = [sys.executable, "-m", module, str(target), scene, str(size)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "HYD"))}
    environment["NUMBA_NUM_THREADS"] = str(threads)
    # The children import this module by the name that it has here.
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    if ranks > 1:
        words = [_mpiexec(), "-n", str(ranks), *words]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise loki.LokiError(f"{scene} on {ranks} ranks failed:\n{done.stdout}\n{done.stderr}")
    with np.load(target) as saved:
        return dict(saved)


def _mpiexec() -> str:
    from bridges.standalone.launch import find_mpiexec

    return find_mpiexec()


# -- what the children do ---------------------------------------------------------------------


def build(scene: str, size: int) -> tuple[loki.SolverSetup, dict[str, Any]]:
    """Return a plume over a burner of hot smoke, on sparse Buckets, with or without pressure."""
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
        balance_every=2,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        boundary_lower=("open", "wall", "open"),
    )
    return setup, {"burner": loki.Voxels.from_dense(density, (0.0, 0.0, 0.0), h)}


def _child(target: str, scene: str, size: str) -> None:
    comm = world()
    with one_fails_all_fail(comm):
        solver = loki.Solver(*build(scene, int(size)), comm=comm)
        fields: Fields = {}
        for step in range(STEPS):
            solver.run(1)
            for name in CHANNELS:
                fields[f"{name}_{step}"] = solver.read("Gas", name)
        fields["sums"] = _sums_of(solver.object("Gas"), comm)
        if comm.rank == 0:
            np.savez(target, **fields)  # type: ignore[arg-type]


def _sums_of(item: Any, comm: Communicator) -> NDArray[np.float64]:
    """Mass and momentum of the smoke, and the sums of their magnitudes, [4, 2]."""
    density = item.volume.local("density").reshape(-1)
    momentum = item.volume.local("density") * item.volume.local("velocity")
    columns = np.stack([density, *np.moveaxis(momentum, 1, 0).reshape(3, -1)], axis=1)
    return exact_sums(comm, np.concatenate((columns, np.abs(columns)), axis=1)).reshape(2, 4).T


if __name__ == "__main__":
    _child(*sys.argv[1:])
