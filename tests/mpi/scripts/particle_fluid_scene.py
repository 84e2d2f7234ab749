"""A dam of fluid particles that breaks over a ball; on any number of ranks.

particle_fluid_scene.py TARGET.npz pbf|sph [walls | periodic | sizes | densities | jet]

"periodic" has no walls along x and z, and no ball: the fluid runs around the box. "sizes" has
particles of three sizes, "densities" oil behind the water. "jet" is a source above a thin plate,
which particles would pass in one step.
"""

from __future__ import annotations

import sys

import numpy as np
import trimesh

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.particle_fluids import block, radius_of
from tests.ranks import balance_at_every_look

FRAMES, SUBSTEPS = 4, 3
SPACING = 0.05
CHANNELS = ("id", "position", "velocity", "density_ratio", "pressure")


def ball():
    """What stands in the way."""
    mesh = trimesh.creation.icosphere(subdivisions=2, radius=0.12)
    places = np.array(mesh.vertices) + np.array([0.78, 0.1, 0.25])
    return lk.Surface.from_faces(places, np.array(mesh.faces))


def water(case):
    """A column that moves to the right, not quite on a lattice."""
    random = np.random.default_rng(7)
    places = block(12, 16, 10, spacing=SPACING)
    radius = np.full(len(places), radius_of(SPACING))
    if case == "sizes":  # large ones behind, small ones on top
        large = block(3, 6, 5, spacing=2.0 * SPACING)
        middle = block(6, 12, 10, spacing=SPACING, corner=(0.3, 0.0, 0.0))
        small = block(24, 3, 20, spacing=0.5 * SPACING, corner=(0.0, 0.6, 0.0))
        places = np.concatenate((large, middle, small))
        spacing = np.repeat((2.0, 1.0, 0.5), (len(large), len(middle), len(small))) * SPACING
        radius = radius_of(1.0) * spacing
    if case == "periodic":
        places[:, 0] += 1.4  # runs through the side at once
    places += 0.1 * radius[:, None] * random.uniform(-1.0, 1.0, places.shape)
    points = lk.Points(places)
    points.set_channel("point", "radius", radius)
    velocity = np.zeros_like(places)
    velocity[:, 0], velocity[:, 2] = 2.5, 0.5 - places[:, 1]
    points.set_channel("point", "velocity", velocity)
    if case == "densities":
        points.set_channel("point", "density", np.where(places[:, 0] < 0.4, 700.0, 1000.0))
    return points


def box(lower, upper):
    """A closed box."""
    mesh = trimesh.creation.box(bounds=(lower, upper))
    return lk.Surface.from_faces(np.array(mesh.vertices), np.array(mesh.faces))


def jet(fluid):
    """A source of two sizes of particles over a plate of a fifth of a spacing."""
    kind = {"pbf": lk.PositionBasedFluid, "sph": lk.SmoothedParticleFluid}[fluid]
    fine = box((0.3, 0.3, -0.1), (0.5, 0.5, 0.1))
    fine.set_channel("detail", "radius", [radius_of(0.7 * SPACING)])
    inputs = {
        "coarse": box((-0.2, 0.3, -0.2), (0.2, 0.6, 0.2)),
        "fine": fine,
        "plate": box((-1.0, -0.01, -1.0), (1.0, 0.0, 1.0)),
    }
    down = (0.4, -6.0, 0.0)
    setup = lk.SolverSetup(
        "jet",
        lk.ParticleObject(name="Water", radius=radius_of(SPACING)),
        kind(),
        lk.GravityForce(),
        lk.Collider(input="plate", friction=0.3),
        lk.LiquidSource(name="Coarse", source="coarse", velocity=down),
        lk.LiquidSource(name="Fine", source="fine", velocity=down),
        precision="double",
        frames_per_second=40.0,
        substeps=SUBSTEPS,
        balance_every=4,
        bucket_size=0.25,
    )
    return setup, inputs


def setup(fluid, case):
    """A tank with a ball on its floor, or one without ends."""
    kind = {"pbf": lk.PositionBasedFluid, "sph": lk.SmoothedParticleFluid}[fluid]
    ends = "periodic" if case == "periodic" else "wall"
    solids = [] if case == "periodic" else [lk.Collider(input="ball", friction=0.3)]
    return lk.SolverSetup(
        "dam",
        lk.ParticleObject(name="Water", input="water"),
        kind(friction=0.2),
        lk.GravityForce(),
        *solids,
        precision="double",
        frames_per_second=40.0,
        substeps=SUBSTEPS,
        balance_every=4,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 1.5, 0.5),
        boundary_lower=(ends, "wall", ends),
        boundary_upper=(ends, "wall", ends),
    )


def main():
    """Run, and save what rank 0 has gathered."""
    balance_at_every_look()
    case = sys.argv[3] if len(sys.argv) > 3 else "walls"
    if case == "jet":
        solver = lk.Solver(*jet(sys.argv[2]))
    else:
        inputs = {"water": water(case)}
        if case != "periodic":
            inputs["ball"] = ball()
        solver = lk.Solver(setup(sys.argv[2], case), inputs)
    counts = []
    for _ in range(3 if case == "jet" else FRAMES):  # an impact makes round-off grow
        solver.run(1)
        here = np.array([solver.object("Water").count()])
        counts.append(np.concatenate(solver.comm.all_gather(here)))
    found = {name: solver.read("Water", name) for name in CHANNELS}
    if solver.comm.rank == 0:
        np.savez(sys.argv[1], counts=np.array(counts), **found)


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main()
