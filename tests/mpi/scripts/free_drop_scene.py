"""Two drops in free flight, cut by the borders of ranks.

free_drop_scene.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.ranks import balance_at_every_look
from tests.unit.test_free_bodies import drop

FRAMES = 3


def main():
    """Run, and save what rank 0 has gathered."""
    balance_at_every_look()
    parts = [drop((0.5, 0.52, 0.49)), drop((4.6, 0.11, -1.9), radius=0.15, seed=5)]
    points = lk.Points(np.concatenate([places for places, _ in parts]))
    points.set_channel("point", "velocity", np.concatenate([moving for _, moving in parts]))
    setup = lk.SolverSetup(
        "drops",
        lk.HybridObject(name="Water", voxel_size=1 / 16, input="water"),
        lk.PressureMaterial(tolerance=1e-9),
        lk.GravityForce(),
        precision="double",
        substeps=2,
        balance_every=2,
    )
    solver = lk.Solver(setup, {"water": points})
    solver.run(FRAMES)
    bodies = np.array([solver.object("Water").free_bodies._count])
    counts = np.concatenate(solver.comm.all_gather(np.array([solver.object("Water").count()])))
    found = {name: solver.read("Water", name) for name in ("position", "velocity")}
    if solver.comm.rank == 0:
        np.savez(sys.argv[1], counts=counts, bodies=bodies, **found)


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main()
