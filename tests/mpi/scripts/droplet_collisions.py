"""Sprays that collide, cut by the borders of ranks; saves what is left of each.

droplet_collisions.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np

import loki_core as lk
from loki_core.operators.droplet_collisions import BinaryDropletCollisions
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.ranks import balance_at_every_look

WIDTH = 0.02  # m
PERIODIC = {
    "domain_lower": (0.0, 0.0, 0.0),
    "domain_upper": (WIDTH, WIDTH, WIDTH),
    "boundary_lower": ("periodic", "open", "periodic"),
    "boundary_upper": ("periodic", "open", "periodic"),
}
#: Droplets, their drift [m/s], and settings. In "far" they cross many Buckets in a substep.
SCENES = {
    "spray": (1500, 0.0, {"substeps": 2}),
    "far": (1500, 40.0, {}),
    "periodic": (1500, 2.0, {"substeps": 2, **PERIODIC}),
    "few": (2, 0.0, {}),
}
CHANNELS = ("id", "position", "velocity", "mass", "radius", "age", "Cd", "tag")


def spray(count, drift):
    """Droplets of all sizes in a box, that move in all directions."""
    rng = np.random.default_rng(4)
    points = lk.Points(rng.random((count, 3)) * WIDTH)
    velocity = rng.normal(0.0, 3.0, (count, 3)) + np.array([1.0, 0.0, 0.5]) * drift
    points.set_channel("point", "velocity", velocity)
    points.set_channel("point", "radius", 1e-4 * np.exp(rng.normal(0.0, 0.5, count)))
    points.set_channel("point", "Cd", rng.random((count, 3)))
    points.set_channel("point", "tag", np.arange(count, dtype=np.int32))
    return points


def run(comm, count, drift, settings):
    """What is left of a spray after some frames, and what has happened to it."""
    setup = lk.SolverSetup(
        "spray",
        lk.ParticleObject(name="Spray", input="spray"),
        BinaryDropletCollisions(),
        lk.GravityForce(),
        frames_per_second=500,
        bucket_size=WIDTH / 4,
        balance_every=2,
        **settings,
    )
    solver = lk.Solver(setup, {"spray": spray(count, drift)})
    counts = []
    for _ in range(4):
        solver.run(1)
        counts.append(comm.all_gather(np.array([solver.object("Spray").count()])))
    found = {name: solver.read("Spray", name) for name in CHANNELS}
    (action,) = solver.actions["BinaryDropletCollisions"]
    found |= {f"account.{name}": np.array(value) for name, value in action.account.items()}
    return found | {"counts": np.array(counts)[..., 0]}


def main(target):
    """Run all scenes, and save what rank 0 has gathered."""
    comm = world()
    balance_at_every_look()
    with one_fails_all_fail(comm):
        found = {
            f"{scene}/{name}": values
            for scene, (count, drift, settings) in SCENES.items()
            for name, values in run(comm, count, drift, settings).items()
        }
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
