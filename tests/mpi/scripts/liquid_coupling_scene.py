"""Strands and drops in a tank of water under a wind; on any number of ranks.

liquid_coupling_scene.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.ranks import balance_at_every_look
from tests.skeleton.liquid_scene import box

FRAMES = 3
CLOSED = ("wall",) * 3


def setup():
    """Everything drags everything."""
    return lk.SolverSetup(
        "meeting",
        lk.Group(
            "Water",
            lk.HybridObject(name="Water", voxel_size=1 / 16, input="water", drop_radius=0.003),
            lk.PressureMaterial(tolerance=1e-10),
        ),
        lk.Group(
            "Wind",
            lk.VolumeObject(name="Air", voxel_size=1 / 16, region="box", channels=()),
            lk.PressureMaterial(tolerance=1e-10),
        ),
        lk.Group(
            "Hair",
            lk.CurvesObject(name="Hair", input="hair", radius=2e-3, density=700.0),
            lk.StretchingConstraint(young_modulus=1e6),
            lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5),
        ),
        lk.ParticleObject(name="Balls", input="balls", radius=4e-3, density=1500.0),
        lk.GravityForce(),
        lk.CoupledDragForce(),
        lk.CoupledBuoyancyOperator(),
        precision="double",
        substeps=2,
        balance_every=4,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 1.0, 1.0),
        boundary_lower=CLOSED,
        boundary_upper=CLOSED,
    )


def inputs():
    """Water on one side, strands across its surface, balls anywhere."""
    rng = np.random.default_rng(4)
    roots = rng.uniform((0.1, 0.1, 0.1), (1.9, 0.4, 0.9), (24, 1, 3))
    strands = roots + np.linspace(0.0, 1.0, 8)[:, None] * np.array([0.05, 0.3, 0.02])
    return {
        "water": box((0.0, 0.0, 0.0), (0.9, 0.6, 1.0)),
        "hair": lk.Curves.from_strands(strands),
        "balls": lk.Points(rng.uniform((0.1, 0.1, 0.1), (1.9, 0.9, 0.9), (40, 3))),
    }


def main():
    """Run, and save what rank 0 has gathered."""
    balance_at_every_look()
    solver = lk.Solver(setup(), inputs())
    solver.run(FRAMES)
    water = solver.object("Water/Water")
    found = {"counts": np.concatenate(solver.comm.all_gather(np.array([water.count()])))}
    for path in ("Water/Water", "Hair/Hair", "Balls"):
        for name in ("position", "velocity"):
            found[f"{path.rpartition('/')[2]}_{name}"] = solver.read(path, name)
    found["Air_velocity"] = solver.read("Wind/Air", "velocity")
    documents = [a.exchange.to_document() for a in solver.actions["CoupledDragForce"]]
    found["given"] = np.array([one["momentum_to_solids"] for one in documents])
    found["residual"] = np.array([one["momentum_residual"] for one in documents])
    if solver.comm.rank == 0:
        np.savez(sys.argv[1], **found)


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main()
