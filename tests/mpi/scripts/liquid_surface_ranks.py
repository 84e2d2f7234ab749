"""The surface of a shaken block of liquid with drops around it: vertices of all ranks, and edges.

liquid_surface_ranks.py TARGET
"""

from __future__ import annotations

import sys

import numpy as np

from loki_core.data.points import Points
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.skeleton.liquid_scene import liquid_solver


def particles():
    """A block that touches a wall, and drops."""
    rng = np.random.default_rng(5)
    block = rng.uniform((0.0, 0.1, 0.1), (0.7, 0.6, 0.8), (8000, 3))
    points = Points(np.concatenate((block, rng.uniform(0.05, 0.95, (60, 3)))))
    points.set_channel("point", "velocity", points.positions[:, ::-1].copy())
    return points


def main(comm, target):
    solver = liquid_solver(particles(), comm=comm)
    mesh = solver.object("Surface").output()
    corners = np.asarray(mesh.positions, np.float64)[mesh.triangles()]
    whole = {"triangles": corners, "velocity": mesh.channels["point"]["velocity"][mesh.triangles()]}
    parts = np.array([mesh.primitive_count])
    for name, values in whole.items():
        flat = np.concatenate(comm.all_gather(np.ascontiguousarray(values).reshape(-1)))
        whole[name] = flat.reshape(-1, 3, 3)
    shares = np.concatenate(comm.all_gather(parts))
    if comm.rank == 0:
        np.savez(target, shares=shares, **whole)


if __name__ == "__main__":
    ranks = world()
    with one_fails_all_fail(ranks):
        main(ranks, sys.argv[1])
