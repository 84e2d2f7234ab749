"""A coloured jet into a pool that a sink drains, with colours that mix; on any number of ranks.

liquid_flow.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np
import trimesh

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.ranks import balance_at_every_look

FRAMES = 4
FLOWS = ("start", "emitted", "drained", "left", "killed", "volume", "missing")


def box(lower, upper):
    """A closed box."""
    mesh = trimesh.creation.box(bounds=[lower, upper])
    return lk.Surface.from_faces(np.array(mesh.vertices), np.array(mesh.faces))


def coloured(mesh, colour):
    """The mesh, with a colour on its points."""
    mesh.set_channel("point", "Cd", np.tile(np.array(colour, float), (mesh.point_count, 1)))
    return mesh


def setup():
    """Water comes in at the left, as much as a flux lets, and goes at the right."""
    return lk.SolverSetup(
        "flow",
        lk.HybridObject(name="Water", voxel_size=1 / 16, input="pool"),
        lk.GravityForce(),
        lk.PressureMaterial(tolerance=1e-9),
        lk.LiquidSource(source="nozzle", velocity=(2.0, 0.0, 0.0), flux=0.15, capacity=8220),
        lk.LiquidSink(source="drain"),
        lk.LiquidSurface(name="Field", output="field"),
        lk.ChannelMixing(channels=("Cd",), diffusivity=0.03),
        lk.ParticleExpression(
            expression="if position[0] > 1.2 and position[1] > 0.2:\n    alive = False",
            stage="SUBSTEP_END",
        ),
        precision="double",
        substeps=3,
        balance_every=4,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 1.0, 0.5),
        boundary_lower=("wall",) * 3,
        boundary_upper=("open", "wall", "wall"),
    )


def inputs():
    """What goes in."""
    return {
        "pool": coloured(box((-1.0, -1.0, -1.0), (3.0, 0.26, 1.0)), (0.0, 0.0, 1.0)),
        "nozzle": coloured(box((0.0, 0.5, 0.1), (0.3, 0.75, 0.4)), (1.0, 0.0, 0.0)),
        "drain": box((1.4, -0.1, -0.1), (1.8, 0.1, 0.6)),
    }


def main():
    """Run, and save what rank 0 has gathered."""
    balance_at_every_look()
    solver = lk.Solver(setup(), inputs())
    position = solver.read("Water", "position")
    position[:60] = position[60]  # a crowd, that is to be shaken apart
    solver.write("Water", "position", position)
    solver.run(FRAMES)
    counts = np.concatenate(solver.comm.all_gather(np.array([solver.object("Water").count()])))
    found = {name: solver.read("Water", name) for name in ("id", "position", "velocity", "Cd")}
    account = solver.accounts()["Water"]
    field = solver.outputs()["Field"]
    density, flow = (field.channel(name).values for name in ("density", "velocity"))
    sums = np.array([density.sum(), *(density * flow).sum(axis=(0, 2, 3, 4))])
    sums = solver.comm.all_reduce(sums, "sum")
    if solver.comm.rank == 0:
        flows = np.array([account[name] for name in FLOWS])
        told = np.array([len(solver.warnings)])
        np.savez(sys.argv[1], counts=counts, flows=flows, told=told, sums=sums, **found)


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main()
