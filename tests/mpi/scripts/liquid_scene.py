"""A dam that breaks against a ball, with colour; on any number of ranks.

liquid_scene.py TARGET.npz [TRANSFER | narrow_band [VISCOSITY]]

With a viscosity [Pa s] it is that of the liquid at one end, and of each particle its own.
"""

from __future__ import annotations

import sys

import numpy as np
import trimesh

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.ranks import balance_at_every_look

FRAMES = 4


def box(lower, upper):
    """A closed box."""
    mesh = trimesh.creation.box(bounds=[lower, upper])
    return lk.Surface.from_faces(np.array(mesh.vertices), np.array(mesh.faces))


def ball():
    """What stands in the way."""
    mesh = trimesh.creation.icosphere(subdivisions=2, radius=0.2)
    places = np.array(mesh.vertices) + np.array([1.2, 0.2, 0.5])
    return lk.Surface.from_faces(places, np.array(mesh.faces))


def setup(word="apic", viscosity=None, **settings):
    """Water in a closed tank, or something thicker."""
    liquid = {"narrow_band": 3} if word == "narrow_band" else {"transfer": word}
    thick = []
    if viscosity is not None:
        thick = [
            lk.ViscosityMaterial(tolerance=1e-10),
            lk.ParticleExpression(
                expression="viscosity = a * (1.0 + position[0])", a=float(viscosity),
                new_channels=("viscosity",),
            ),
        ]  # fmt: skip
    return lk.SolverSetup(
        "dam",
        lk.HybridObject(name="Water", voxel_size=1 / 16, input="water", **liquid),
        lk.GravityForce(),
        lk.PressureMaterial(tolerance=1e-9),
        lk.Collider(input="ball"),
        *thick,
        precision="double",
        substeps=3,
        balance_every=4,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 1.0, 1.0),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
        **settings,
    )


def inputs():
    """What goes in."""
    return {"water": box((0.0, 0.0, 0.0), (0.75, 0.8, 1.0)), "ball": ball()}


def main():
    """Run, and save what rank 0 has gathered."""
    balance_at_every_look()
    solver = lk.Solver(setup(*sys.argv[2:4]), inputs())
    solver.run(FRAMES)
    counts = np.concatenate(solver.comm.all_gather(np.array([solver.object("Water").count()])))
    found = {name: solver.read("Water", name) for name in ("id", "position", "velocity")}
    if solver.comm.rank == 0:
        np.savez(sys.argv[1], counts=counts, **found)


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main()
