"""A drop with surface tension that was drawn out, beside another on the floor; on any ranks.

drop_scene.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.ranks import balance_at_every_look

H = 1 / 16


def places():
    """Two drops, of which one lies on the floor."""
    axis = 0.5 * H * (np.arange(64) + 0.5)
    x = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    long = np.linalg.norm((x - (0.51, 1.2, 1.02)) / (1.3, 0.8, 1.0), axis=1) < 4.5 * H
    round_ = np.linalg.norm(x - (1.4, 0.0, 0.9), axis=1) < 5.2 * H
    return x[long | round_]


def main():
    """Run, and save what rank 0 has gathered."""
    balance_at_every_look()
    setup = lk.SolverSetup(
        "drops",
        lk.HybridObject(name="Water", voxel_size=H, input="water"),
        lk.PressureMaterial(tolerance=1e-9),
        lk.SurfaceTensionForce(),
        precision="double",
        frames_per_second=1.0,
        substeps=2,
        balance_every=4,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )
    solver = lk.Solver(setup, {"water": lk.Points(places())})
    solver.run(4)
    counts = np.concatenate(solver.comm.all_gather(np.array([solver.object("Water").count()])))
    found = {name: solver.read("Water", name) for name in ("position", "velocity")}
    if solver.comm.rank == 0:
        np.savez(sys.argv[1], counts=counts, **found)


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main()
