"""Particles that collide, hold on to each other and to strands; saves where they are at the end.

particle_constraints.py TARGET.npz MODE
"""

from __future__ import annotations

import sys

import numpy as np
import trimesh

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.ranks import balance_at_every_look

DUST, RODS = "Dust/ParticleObject", "Rods/CurvesObject"
MODES = {
    "contacts": {"attached": False, "restitution": 0.6, "droplets": True},
    "once": {},
    "every_step": {"every_step": True, "newton_iterations": 3},
    "balanced": {"every_step": True, "balance_every": 2, "friction": 1e-4},
    "few": {"count": 2},
}


def belt(frame):
    """A plank that moves, at the end of a frame."""
    mesh = trimesh.creation.box((2.0, 0.2, 2.0))
    shift = np.array([0.004, 0.0, 0.002]) * (frame - 1) - np.array([0.0, 0.1, 0.0])
    return lk.Surface.from_faces(np.array(mesh.vertices) + shift, np.array(mesh.faces))


def dust(count):
    """Particles above the plank, some of which die."""
    rng = np.random.default_rng(11)
    points = lk.Points(rng.random((count, 3)) * [0.4, 0.1, 0.4] + [0.0, 0.006, 0.0])
    points.set_channel("point", "velocity", 0.3 * rng.standard_normal((count, 3)))
    lifetime = np.where(np.arange(count) % 5, np.inf, 0.06 + 0.1 * rng.random(count))
    points.set_channel("point", "lifetime", lifetime)
    return points


def strands(count=6, points=5):
    """Strands over the plank, held at one end."""
    rows = []
    for number in range(count):
        row = np.zeros((points, 3))
        row[:, 0] = 0.05 + 0.03 * np.arange(points)
        row[:, 1], row[:, 2] = 0.05, 0.06 * number
        rows.append(row)
    return lk.Curves(np.concatenate(rows), points * np.arange(count + 1))


def attachments(every_step, friction):
    common = {"every_step": every_step, "friction": friction, "friction_stiffness": 1.0}
    return (
        lk.AttachmentConstraint(
            name="Among", source="Dust", target="Dust", emission="within_range", range=0.02,
            stiffness=1.0, flexibility=1.0, **common,
        ),
        lk.AttachmentConstraint(
            name="To", source="Dust", target="Rods", emission="closest", range=0.03,
            stiffness=2.0, damping_time=0.01, **common,
        ),
        lk.AttachmentConstraint(
            name="From", source="Rods", target="Dust", emission="closest", range=0.03,
            stiffness=0.5, flexibility=0.5, orientation_stiffness=(1e-5, 0.0, 0.0), **common,
        ),
        lk.AttachmentConstraint(
            name="Host", source="Dust", target="belt", range=0.01, stiffness=0.5, **common,
        ),
    )  # fmt: skip


def main(target, mode):
    comm = world()
    balance_at_every_look()
    chosen = {"attached": True, "every_step": False, "friction": 0.0, "count": 150, **MODES[mode]}
    restitution, droplets = chosen.pop("restitution", 0.0), chosen.pop("droplets", False)
    attached, count = chosen.pop("attached"), chosen.pop("count")
    every_step, friction = chosen.pop("every_step"), chosen.pop("friction")
    setup = lk.SolverSetup(
        "particles",
        lk.Group(
            "Dust",
            lk.ParticleObject(
                input="dust", source="tap", rate=200.0, velocity=(0.5, 0.0, 0.5), lifetime=0.1
            ),
            lk.Collider(input="belt"),
            lk.CollisionConstraint(friction_coefficient=0.4, restitution=restitution),
            *((lk.BinaryDropletCollisions(),) if droplets else ()),
        ),
        lk.Group(
            "Rods",
            lk.CurvesObject(input="rods", radius=1e-3, root="pinned"),
            lk.StretchingConstraint(young_modulus=1e6),
            lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5, damping_time=0.01),
        ),
        lk.GravityForce(),
        *(attachments(every_step, friction) if attached else ()),
        frames_per_second=50,
        substeps=2,
        bucket_size=0.05,
        **chosen,
    )
    inputs = {"dust": dust(count), "tap": dust(6), "rods": strands(), "belt": belt}
    with one_fails_all_fail(comm):
        solver = lk.Solver(setup, inputs)
        solver.run(8)
        names = ("id", "position", "velocity", "radius")
        found = {f"dust.{name}": solver.read(DUST, name) for name in names}
        walls = [a for some in solver.actions.values() for a in some if hasattr(a, "impulse")]
        found["impulse"] = walls[0].impulse
        found |= {f"rods.{name}": solver.read(RODS, name) for name in ("position", "velocity")}
        actions = [a for some in solver.actions.values() for a in some if hasattr(a, "numbers")]
        found["owned"] = np.array([comm.total(int(a.is_owner.sum())) for a in actions])
        found["evaluated"] = np.array([comm.total(len(a.numbers)) for a in actions])
        found["counts"] = np.concatenate(comm.all_gather(np.array([solver.object(DUST).count()])))
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
