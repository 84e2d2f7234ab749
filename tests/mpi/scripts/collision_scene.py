"""Strands fall on a ball that moves; where they are at the end.

collision_scene.py TARGET
"""

from __future__ import annotations

import sys

import numpy as np
import trimesh

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.ranks import balance_at_every_look

RADIUS = 0.1
PATH = "Hair/CurvesObject"


def ball(frame):
    """The ball at the end of a frame."""
    mesh = trimesh.creation.icosphere(subdivisions=4, radius=RADIUS)
    shift = np.array([0.005, 0.0, 0.002]) * (frame - 1)
    return lk.Surface.from_faces(np.array(mesh.vertices) + shift, np.array(mesh.faces))


def strands(count=12, points=13):
    """Strands across the ball, above it."""
    rows = []
    for number in range(count):
        row = np.zeros((points, 3))
        row[:, 0] = np.linspace(-0.12, 0.12, points)
        row[:, 1] = 0.115 + 0.004 * number
        row[:, 2] = 0.01 * (number - 0.5 * count)
        rows.append(row)
    return lk.Curves(np.concatenate(rows), points * np.arange(count + 1))


def make_solver(comm=None):
    setup = lk.SolverSetup(
        "collisions",
        lk.Group(
            "Hair",
            lk.CurvesObject(input="curves", radius=1e-3, root="free"),
            lk.StretchingConstraint(young_modulus=1e6),
            lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5, damping_time=0.01),
            lk.GravityForce(),
            lk.Collider(input="ball"),
            lk.CollisionConstraint(friction_coefficient=0.4),
        ),
        substeps=2,
        balance_every=3,
    )
    return lk.Solver(setup, {"curves": strands(), "ball": ball}, comm=comm)


def main(target):
    comm = world()
    balance_at_every_look()
    with one_fails_all_fail(comm):
        solver = make_solver(comm)
        solver.run(12)
        found = {
            name: solver.read(PATH, name) for name in ("position", "velocity", "edges.contact")
        }
        counts = comm.all_gather(np.array([solver.object(PATH).count()]))
        found["counts"] = np.concatenate(counts)
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
