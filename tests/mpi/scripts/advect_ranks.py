"""Advect random fields on a sparse volume and save all voxels, in curve order.

advect_ranks.py TARGET SCHEME LIMITER SPEED
"""

from __future__ import annotations

import sys

import numpy as np

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.objects.gas.advection import advect
from loki_core.objects.gas.surroundings import Surroundings
from loki_core.parallel.comm import one_fails_all_fail, world

SIDES = ("periodic", "periodic", "wall", "wall", "open", "inflow")


def make_volume(comm):
    boundaries = [BoundaryCondition(side, (0.3, 0.1, -0.2)) for side in SIDES]
    domain = GridDomain(
        8.0, lower=(0, -20, -30), upper=(32, 14, 21), boundaries=boundaries, comm=comm
    )
    volume = DiscreteVolume(domain, name="Air", dtype=np.float32)
    volume.add_channel("velocity", components=3, location="face")
    volume.add_channel("density")
    volume.add_channel("temperature", background=300.0)
    volume.add_channel("kind", np.uint8)
    first, last = domain.bucket_range()
    lattice = np.argwhere(np.random.default_rng(1).random(last - first) < 0.85) + first
    lattice = lattice.astype(np.int32)
    keys = np.sort(domain.keys(lattice))
    mine = keys if comm.rank == 0 else keys[:0]
    domain.balance(mine, np.ones(len(mine)))
    if comm.size == 4:  # one rank has nothing
        domain.cuts[1] = 0
    volume.set_buckets(lattice if comm.rank == 0 else lattice[:0])
    return volume


def fill(volume, speed):
    """Values that depend on the place alone, whoever owns it."""
    for row, coords in enumerate(volume.buckets.local_coords):
        rng = np.random.default_rng([*(coords + 1000).tolist(), 7])
        volume.local("velocity")[row] = speed * (2.0 * rng.random((3, 8, 8, 8)) - 1.0)
        volume.local("density")[row] = rng.random((1, 8, 8, 8))
        volume.local("temperature")[row] = 300.0 + rng.random((1, 8, 8, 8))
        volume.local("kind")[row] = rng.random((1, 8, 8, 8)) < 0.95
    for name in volume.channels:
        volume.mark_written(name)


def main(target, scheme, limiter, speed):
    comm = world()
    with one_fails_all_fail(comm):
        volume = make_volume(comm)
        fill(volume, float(speed))
        around = Surroundings.of_domain(
            volume.domain, 8, no_slip=True, inflow={"density": 0.5}, ambient_velocity=(0.1, 0, 0)
        )
        for _ in range(2):
            options = {"dt": 1.0, "scheme": scheme, "limiter": limiter, "surroundings": around}
            advect(volume, ("density", "temperature"), velocity="velocity", kind="kind", **options)
            advect(volume, ("velocity",), velocity="velocity", **options)
        sent = comm.total(comm.bytes_sent)
        gathered = {
            name: np.concatenate(comm.all_gather(volume.local(name).reshape(-1)))
            for name in ("velocity", "density", "temperature")
        }
        if comm.rank == 0:
            np.savez(target, sent=sent, **gathered)


if __name__ == "__main__":
    main(*sys.argv[1:])
