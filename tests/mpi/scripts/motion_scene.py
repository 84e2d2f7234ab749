"""Hair on a ball that turns by a quarter in every frame, with samples of the way in between.

motion_scene.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np
import trimesh

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.ranks import balance_at_every_look

SAMPLES = 7
QUARTER = 0.5 * np.pi
RADIUS = 0.1
HAIR = "Hair/CurvesObject"
CHANNELS = ("position", "velocity", "edges.angle", "edges.angular_velocity")


def turned(places, angle):
    """Places turned about z."""
    c, s = np.cos(angle), np.sin(angle)
    return places @ np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])


def sampled(stream, frame, *, samples=SAMPLES, turn=QUARTER):
    """The stream turned to where it is at the end of a frame, with samples of its way."""
    result = type(stream)(
        turned(stream.positions, turn * (frame - 1)),
        **{name: getattr(stream, name) for name in stream.topology_names},
    )
    result.channels.copy_from(stream.channels)
    for number in range(1, samples + 1):
        part = frame - 2 + number / (samples + 1)
        places = turned(stream.positions, turn * part)
        result.set_channel("point", f"motion_{number}", places)
    return result


def ball():
    mesh = trimesh.creation.icosphere(subdivisions=2, radius=RADIUS)
    return lk.Surface.from_faces(np.array(mesh.vertices), np.array(mesh.faces))


def hair(strands=24, points=6):
    """Strands that stand on the ball and curl, each with something painted."""
    rng = np.random.default_rng(3)
    out = rng.normal(size=(strands, 3))
    out /= np.linalg.norm(out, axis=1, keepdims=True)
    along = RADIUS + 0.012 * np.arange(points)
    places = out[:, None] * along[:, None]
    places[..., 1] += 0.004 * np.sin(2.0 * np.arange(points))
    curves = lk.Curves(places.reshape(-1, 3), np.arange(strands + 1) * points)
    curves.set_channel("point", "paint", rng.random(curves.point_count))
    return curves


def make_solver(comm=None, *, samples=SAMPLES, substeps=4):
    """The Solver; hair collides with the ball and is tied to points that turn too."""
    strands = hair()
    tips = lk.Points(strands.positions[5::24].copy())
    setup = lk.SolverSetup(
        "head",
        lk.Group(
            "Hair",
            lk.CurvesObject(input="hair", radius=1e-3),
            lk.StretchingConstraint(young_modulus=1e7),
            lk.BendingConstraint(young_modulus=1e7, shear_modulus=3e6, damping_time=0.01),
            lk.CollisionConstraint(),
        ),
        lk.AttachmentConstraint(source="Hair", target="tips", stiffness=1.0, damping_time=0.01),
        lk.Collider(input="ball"),
        lk.GravityForce(),
        substeps=substeps,
        bucket_size=0.05,
        balance_every=2,
    )
    inputs = {
        "hair": lambda frame: sampled(strands, frame, samples=samples),
        "ball": lambda frame: sampled(ball(), frame, samples=samples),
        "tips": lambda frame: sampled(tips, frame, samples=samples),
    }
    return lk.Solver(setup, inputs, comm=comm)


def main(target):
    comm = world()
    balance_at_every_look()
    with one_fails_all_fail(comm):
        solver = make_solver(comm)
        solver.run(3)
        found = {name: solver.read(HAIR, name) for name in CHANNELS}
        count = solver.object(HAIR).particles.count
        found["counts"] = np.concatenate(comm.all_gather(np.array([count])))
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
