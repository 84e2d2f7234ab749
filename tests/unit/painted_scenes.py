"""Scenes in which every parameter that varies has an effect, each with a stream to paint on.

On points and primitives of strands and sheets, on particles, on voxels of a gas, and on a source
that emits.
"""

from __future__ import annotations

import numpy as np

import loki_core as lk

H = 0.1
HAIR, DUST, WATER = "Hair/CurvesObject", "Dust/ParticleObject", "Water"


# -- scenes in which every parameter that varies has an effect ------------------------------------


def groom():
    """Strands that lie on the floor, the first edge held."""
    x = 0.02 * np.arange(6)
    parts = [np.stack((x, 0.001 + 0.0 * x, 0.0 * x + 0.05 * k), axis=1) for k in range(3)]
    return lk.Curves(np.concatenate(parts), 6 * np.arange(4))


def forces():
    """All that vary: each law of drag uses a coefficient of its own."""
    return (
        lk.GravityForce(),
        lk.FluidDragForce(name="Linear", law="linear", velocity=(0.0, 0.0, 2.0), coefficient=1e-4),
        lk.FluidDragForce(name="Square", law="quadratic", velocity=(0.0, 0.0, 2.0)),
        lk.FluidDragForce(name="Sphere", velocity=(0.0, 0.0, 0.3), fluid_viscosity=1e-3),
        lk.ForceDensityField(value=(0.3, 0.0, 0.4), strength=1.5),
    )


#: Rayleigh damping and Dahl friction, of any Constraint.
DAMPED = {"damping_time": 0.01, "friction": 1e-6, "friction_stiffness": 1e-3}


def soft_setup():
    """Multipliers carry all of it."""
    soft = {"mode": "compliance", "compliance": 1e-3}
    hair = lk.Group(
        "Hair",
        lk.CurvesObject(input="hair", radius=1e-3, density=900.0),
        lk.StretchingConstraint(**soft),
        lk.BendingConstraint(**soft),
        lk.DistanceConstraint(rest_scale=0.95, **soft),
        lk.AttachmentConstraint(source="Hair/CurvesObject", target="pegs", range=0.03, **soft),
        lk.GravityForce(acceleration=(3.0, -9.0, 4.0)),
    )
    return lk.SolverSetup("soft", hair, substeps=2, frames_per_second=100.0)


def hair_setup():
    hair = lk.Group(
        "Hair",
        lk.CurvesObject(input="hair", radius=1e-3, aspect=1.2, density=900.0, twist=0.2),
        lk.StretchingConstraint(young_modulus=1e7, **DAMPED),
        lk.BendingConstraint(young_modulus=1e7, shear_modulus=4e6, natural_twist=3.0, **DAMPED),
        lk.DistanceConstraint(stiffness=50.0, rest_scale=0.95, **DAMPED),
        lk.AttachmentConstraint(
            source="Hair/CurvesObject",
            target="pegs",
            range=0.03,
            flexibility=0.4,
            rest_length=0.015,
            tangential_stiffness=60.0,
            orientation_stiffness=(1e-4, 1e-4, 1e-4),
            **DAMPED,
        ),
        *forces(),
    )
    return lk.SolverSetup("hair", hair, substeps=2, frames_per_second=100.0)


def lying_setup():
    hair = lk.Group(
        "Hair",
        lk.CurvesObject(input="hair", radius=1e-3, density=900.0),
        lk.StretchingConstraint(),
        lk.CollisionConstraint(friction_coefficient=0.2, stiffness=200.0, thickness=1e-4),
        lk.Collider(input="floor", mode="shell", thickness=0.01),
        lk.GravityForce(acceleration=(3.0, -9.0, 4.0)),
    )
    return lk.SolverSetup("lying", hair, substeps=2, frames_per_second=100.0)


def sheet_setup():
    cloth = lk.Group(
        "Hair",
        lk.GeometryObject(input="hair", radius=1e-3),
        lk.DistanceConstraint(stiffness=50.0, rest_scale=0.95),
        lk.MembraneConstraint(warp_modulus=2e6, shear_modulus=3e5, **DAMPED),
        lk.NeoHookeanConstraint(),
        lk.GravityForce(),
    )
    return lk.SolverSetup("sheet", cloth, substeps=2, frames_per_second=100.0)


def soft_sheet_setup():
    soft = {"mode": "compliance", "compliance": 1e-3}
    cloth = lk.Group(
        "Hair",
        lk.GeometryObject(input="hair", radius=1e-3),
        lk.DistanceConstraint(stiffness=50.0, rest_scale=0.95),
        lk.MembraneConstraint(**soft),
        lk.GravityForce(),
    )
    return lk.SolverSetup("soft_sheet", cloth, substeps=2, frames_per_second=100.0)


def sheet():
    """Two small sheets, one above the other."""
    x, z = np.meshgrid(0.02 * np.arange(4), 0.02 * np.arange(3), indexing="ij")
    places = np.stack((x, 0.5 + 0.0 * x, z), axis=-1).reshape(-1, 3)
    corner = (3 * np.arange(3)[:, None] + np.arange(2)).reshape(-1)
    faces = np.concatenate([corner[:, None] + [0, 1, 4], corner[:, None] + [0, 4, 3]])
    return lk.Surface.from_faces(
        np.concatenate((places, places + np.array([0.0, 0.1, 0.05]))),
        np.concatenate((faces, faces + len(places))),
    )


def floor():
    corners = np.array([[-1.0, -0.0055, -1], [-1, -0.0055, 1], [1, -0.0055, 1], [1, -0.0055, -1]])
    return lk.Surface.from_faces(corners, np.array([[0, 1, 2], [0, 2, 3]]))


def dust():
    axis = 0.05 * np.arange(3)
    places = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    return lk.Points(places)


def dust_setup():
    group = lk.Group(
        "Dust", lk.ParticleObject(input="dust", source="nozzle", rate=400.0), *forces()
    )
    return lk.SolverSetup("dust", group, precision="double", frames_per_second=100.0)


def jet_setup():
    emitter = lk.ParticleObject(
        source="nozzle", rate=1000.0, velocity=(0.3, 0.0, 0.1), normal_speed=1.0,
        velocity_spread=0.2, lifetime=1.0, lifetime_variation=0.5,
    )  # fmt: skip
    return lk.SolverSetup(
        "jet", lk.Group("Dust", emitter), precision="double", frames_per_second=100.0
    )


def nozzle():
    corners = [[0.0, 1.0, 0.0], [0.1, 1.0, 0.0], [0.1, 1.0, 0.1], [0.0, 1.0, 0.1]]
    mesh = lk.Surface.from_faces(np.array(corners), np.array([[0, 1, 2], [0, 2, 3]]))
    mesh.set_channel("point", "velocity", np.full((4, 3), 0.2))
    return mesh


def liquid():
    """A block of particles that slides along the floor and turns."""
    axis = 0.02 * np.arange(5) + 0.0105
    places = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    places += 1e-3 * np.sin(50.0 * places[:, [1, 2, 0]])
    places[:, 1] += 0.02  # it meets the floor in the last frame
    points = lk.Points(places)
    turn = 3.0 * places[:, [2, 1, 0]] * [1.0, 0.0, -1.0]
    points.set_channel("point", "velocity", turn + np.array([1.0, -1.5, 0.0]))
    return points


def liquid_setup(fluid):
    group = lk.Group(
        "Dust", lk.ParticleObject(input="dust", radius=0.02 * 0.62), fluid, lk.GravityForce()
    )
    return lk.SolverSetup(
        "liquid",
        group,
        precision="double",
        frames_per_second=100.0,
        domain_lower=(-1.0, 0.0, -1.0),
        domain_upper=(1.0, 2.0, 1.0),
        boundary_lower=("open", "wall", "open"),
    )


def positions_setup():
    return liquid_setup(
        lk.PositionBasedFluid(surface_tension=0.5, viscosity=0.3, vorticity=2.0, friction=0.3)
    )


def honey_setup():
    """Thicker than the least that keeps particles quiet."""
    return liquid_setup(
        lk.SmoothedParticleFluid(
            viscosity=0.05, surface_tension=0.5, friction=0.3, contact_angle=1.0
        )
    )


def foam_setup():
    """Thinner than that."""
    return liquid_setup(lk.SmoothedParticleFluid(viscosity=0.0, artificial_viscosity=0.5))


def droplets():
    """Pairs that meet, slow and fast, in the middle and aside."""
    k = np.arange(24)
    speed = 0.2 * 1.35**k
    place = np.stack((0.0 * k, 0.02 * k, 0.0 * k), axis=1)
    side = np.stack((1e-3 + 1.5 * speed * 0.015, 0.9e-3 * (k % 6) / 5.0, 0.0 * k), axis=1)
    points = lk.Points(np.concatenate((place, place + side)))  # which meet in the last frame
    velocity = np.zeros((48, 3))
    velocity[:24, 0], velocity[24:, 0] = speed, -0.5 * speed
    points.set_channel("point", "velocity", velocity)
    return points


def droplets_setup():
    group = lk.Group(
        "Dust",
        lk.ParticleObject(input="dust", radius=5e-4),
        lk.BinaryDropletCollisions(bounce=True, restitution=0.7),
    )
    return lk.SolverSetup("droplets", group, precision="double", frames_per_second=100.0)


def cube(lower, upper):
    """A closed mesh around a box."""
    x, y, z = zip(lower, upper, strict=True)
    corners = [(a, b, c) for a in x for b in y for c in z]
    faces = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    return lk.Surface.from_faces(
        np.array(corners),
        np.array([half for a, b, c, d in faces for half in ([a, b, c], [a, c, d])]),
    )


def chimney():
    mesh = cube((0.3, -0.3, -0.2), (0.8, 0.1, 0.2))
    mesh.set_channel("point", "velocity", np.full((8, 3), 0.4))
    return mesh


def chimney_setup():
    gas = lk.Group(
        "Air",
        lk.VolumeObject(voxel_size=0.125, region="box"),
        lk.VolumeEmission(
            name="Stamp", source="chimney", density=0.7, temperature=400.0, strength=0.5,
            velocity=(1.0, 0.0, 0.5), inherit_velocity=0.5,
        ),
        lk.VolumeEmission(name="Flux", source="chimney", mode="flux", flux=0.1, density=0.7,
            strength=0.6),
    )  # fmt: skip
    return lk.SolverSetup(
        "chimney",
        gas,
        bucket_size=0.5,
        frames_per_second=100.0,
        domain_lower=(0.0, -0.5, -0.5),
        domain_upper=(1.0, 0.5, 0.5),
    )


def tap():
    return cube((0.05, 0.05, 0.05), (0.45, 0.35, 0.35))


def tap_setup(**options):
    source = lk.LiquidSource(source="tap", velocity=(1.0, 0.0, 0.5), normal_velocity=0.5, **options)
    return lk.SolverSetup(
        "tap",
        lk.HybridObject(name="Water", voxel_size=H, density_correction=0.0),
        source,
        substeps=1,
        bucket_size=0.8,
    )


def full_tap_setup():
    return tap_setup(flux=0.3)


def shell_setup():
    return tap_setup(mode="shell", thickness=0.15)


def gust_setup():
    return lk.SolverSetup(
        "gust",
        lk.HybridObject(
            name="Water", voxel_size=H, input="water", transfer="flip", flip_part=0.5,
            drop_radius=0.004, density_correction=0.0,
        ),
        lk.Group("Wind", lk.VolumeObject(
            voxel_size=H, region="box", input="wind", channels=(), velocity_scheme="none",
        )),
        lk.CoupledDragForce(),
        substeps=1,
        bucket_size=0.8,
        frames_per_second=100.0,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(0.8, 0.8, 0.8),
    )  # fmt: skip


def gale():
    voxels = lk.Voxels([[0, 0, 0]], H)
    voxels.set_channel("velocity", np.full((1, 3, 8, 8, 8), 5.0))
    return voxels


def puff():
    """A warm and dense ball of gas that turns."""
    x = (np.arange(8) + 0.5) / 8.0
    x, y, z = np.meshgrid(x, x, x, indexing="ij")
    ball = np.exp(-20.0 * ((x - 0.5) ** 2 + (y - 0.4) ** 2 + (z - 0.5) ** 2))
    voxels = lk.Voxels([[0, 0, 0]], 0.125, origin=(0.0, -0.5, -0.5))
    voxels.set_channel("density", ball[None, None])
    voxels.set_channel("temperature", 293.15 + 50.0 * ball[None, None], background=293.15)
    turn = np.stack([(0.5 - y) * ball, (x - 0.5) * ball, 0.1 * ball])
    voxels.set_channel("velocity", 5.0 * turn[None])
    return voxels


def puff_setup():
    gas = lk.Group(
        "Air",
        lk.VolumeObject(
            voxel_size=0.125, region="box", input="puff", density=1.0, ambient_density=0.5
        ),
        lk.BuoyancyForce(smoke_density=0.1, temperature_law="boussinesq", expansion=0.004),
        lk.TurbulenceForce(scale=0.6),
        lk.VorticityConfinementOperator(strength=2.0),
        lk.GuideOperator(field="wind", strength=0.5),
        lk.DissipationOperator(rate=5.0),
        *forces(),
    )
    return lk.SolverSetup(
        "puff",
        gas,
        bucket_size=0.5,
        frames_per_second=100.0,
        domain_lower=(0.0, -0.5, -0.5),
        domain_upper=(1.0, 0.5, 0.5),
    )


def wind():
    voxels = lk.Voxels([[0, 0, 0]], 0.125, origin=(0.0, -0.5, -0.5))
    voxels.set_channel("velocity", np.full((1, 3, 8, 8, 8), 0.3))
    return voxels


def water():
    axis = (np.arange(6) + 0.5) * H / 2
    places = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    points = lk.Points(places)
    points.set_channel("point", "velocity", places[:, [1, 2, 0]] * [1.0, 0.0, -1.0])
    return points


def water_setup():
    return lk.SolverSetup(
        "water",
        lk.HybridObject(name="Water", voxel_size=H, input="water", density_correction=0.0),
        lk.ViscosityMaterial(viscosity=20.0),
        lk.SurfaceTensionForce(coefficient=0.5),
        lk.TurbulenceForce(scale=0.5),
        lk.VorticityConfinementOperator(strength=2.0),
        *forces(),
        substeps=1,
    )


def windy_setup():
    periodic = ("periodic",) * 3
    return lk.SolverSetup(
        "windy",
        lk.Group(
            "Hair",
            lk.CurvesObject(
                input="hair",
                radius=1e-3,
                aspect=1.2,
                twist=0.2,
                young_modulus=1e7,
                shear_modulus=4e6,
                root="clamped",
            ),
            lk.StretchingConstraint(),
            lk.BendingConstraint(natural_twist=3.0),
            lk.GravityForce(acceleration=(3.0, 0.0, 4.0)),
        ),
        lk.Group("Wind", lk.VolumeObject(voxel_size=0.125, region="box", channels=(), density=1.0)),
        lk.CoupledDragForce(name="Linear", law="linear", coefficient=1e-4),
        lk.CoupledDragForce(name="Square", law="quadratic"),
        precision="double",
        bucket_size=0.5,
        frames_per_second=100.0,
        domain_lower=(0.0, -0.5, -0.5),
        domain_upper=(1.0, 0.5, 0.5),
        boundary_lower=periodic,
        boundary_upper=periodic,
    )


PEGS = lk.Points(np.array([[0.1, 0.02, 0.0], [0.1, 0.02, 0.05], [0.1, 0.02, 0.1]]))
SCENES = {
    "hair": (hair_setup, groom, HAIR, {"pegs": PEGS}),
    "lying": (lying_setup, groom, HAIR, {"floor": floor()}),
    "sheet": (sheet_setup, sheet, "Hair/GeometryObject", {}),
    "soft_sheet": (soft_sheet_setup, sheet, "Hair/GeometryObject", {}),
    "soft": (soft_setup, groom, HAIR, {"pegs": PEGS}),
    "dust": (dust_setup, dust, DUST, {"nozzle": lk.Points(np.array([[0.0, 1.0, 0.0]]))}),
    "water": (water_setup, water, WATER, {}),
    "windy": (windy_setup, groom, HAIR, {}),
    "jet": (jet_setup, nozzle, DUST, {}),
    "positions": (positions_setup, liquid, DUST, {}),
    "honey": (honey_setup, liquid, DUST, {}),
    "foam": (foam_setup, liquid, DUST, {}),
    "puff": (puff_setup, puff, "Air/VolumeObject", {"wind": wind()}),
    "droplets": (droplets_setup, droplets, DUST, {}),
    "chimney": (chimney_setup, chimney, "Air/VolumeObject", {}),
    "tap": (full_tap_setup, tap, WATER, {}),
    "shell": (shell_setup, tap, WATER, {}),
    "gust": (gust_setup, water, WATER, {"wind": gale()}),
}
STREAMS = {
    "hair": "hair",
    "soft": "hair",
    "lying": "hair",
    "sheet": "hair",
    "soft_sheet": "hair",
    "dust": "dust",
    "water": "water",
    "windy": "hair",
    "jet": "nozzle",
    "positions": "dust",
    "honey": "dust",
    "foam": "dust",
    "puff": "puff",
    "droplets": "dust",
    "chimney": "chimney",
    "tap": "tap",
    "shell": "tap",
    "gust": "water",
}
#: Which of what acts in a scene varies there; on what no particle has, the whole Object alone.
SHOWN = {
    "hair": (
        "CurvesObject",
        "StretchingConstraint",
        "BendingConstraint",
        "DistanceConstraint",
        "AttachmentConstraint",
        "GravityForce",
        "FluidDragForce",
        "ForceDensityField",
    ),
    "lying": ("CollisionConstraint",),
    "sheet": ("GeometryObject", "MembraneConstraint", "NeoHookeanConstraint"),
    "soft_sheet": ("MembraneConstraint",),
    "soft": (
        "StretchingConstraint",
        "BendingConstraint",
        "DistanceConstraint",
        "AttachmentConstraint",
    ),
    "dust": ("ParticleObject", "GravityForce", "FluidDragForce", "ForceDensityField"),
    "water": (
        "ViscosityMaterial",
        "SurfaceTensionForce",
        "TurbulenceForce",
        "VorticityConfinementOperator",
        "GravityForce",
        "FluidDragForce",
        "ForceDensityField",
    ),
    "windy": ("CurvesObject", "CoupledDragForce"),
    "jet": ("ParticleObject",),
    "positions": ("PositionBasedFluid",),
    "honey": ("SmoothedParticleFluid",),
    "foam": ("SmoothedParticleFluid",),
    "droplets": ("BinaryDropletCollisions",),
    "chimney": ("VolumeEmission",),
    "tap": ("LiquidSource",),
    "shell": ("LiquidSource",),
    "gust": ("HybridObject",),
    "puff": (
        "BuoyancyForce",
        "TurbulenceForce",
        "VorticityConfinementOperator",
        "GuideOperator",
        "DissipationOperator",
        "GravityForce",
        "FluidDragForce",
        "ForceDensityField",
    ),
}
PLACES = {
    "hair": ("detail", "primitive", "point"),
    "lying": ("detail", "primitive", "point"),
    "sheet": ("detail", "primitive", "point"),
    "soft_sheet": ("detail", "primitive", "point"),
    "soft": ("detail", "primitive", "point"),
    "windy": ("detail", "primitive", "point"),
    "dust": ("detail", "point"),
    "water": ("detail", "point"),
    "jet": ("detail", "primitive", "point"),
    "positions": ("detail", "point"),
    "honey": ("detail", "point"),
    "foam": ("detail", "point"),
    "puff": ("voxel",),
    "droplets": ("detail", "point"),
    "chimney": ("detail", "primitive", "point"),
    "tap": ("detail", "primitive", "point"),
    "shell": ("detail", "primitive", "point"),
    "gust": ("detail", "point"),
}
