"""Overrides of an animated input follow it frame by frame, by id, whatever varies and where.

Each parameter that varies is shown in a scene in which it has an effect: on points and primitives
of strands, on particles, on voxels of a gas, and on a source that emits.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import loki_core as lk
from loki_core.behavior import registry
from loki_core.errors import InputError
from loki_core.sparse_parameters import channel_names

pytestmark = pytest.mark.compiles

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
    x, z = np.meshgrid(0.02 * np.arange(4), 0.02 * np.arange(3), indexing="ij")
    places = np.stack((x, 0.5 + 0.0 * x, z), axis=-1).reshape(-1, 3)
    corner = (3 * np.arange(3)[:, None] + np.arange(2)).reshape(-1)
    return lk.Surface.from_faces(
        places, np.concatenate([corner[:, None] + [0, 1, 4], corner[:, None] + [0, 4, 3]])
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
        precision="double",
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
        precision="double",
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
        precision="double",
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
        precision="double",
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
        precision="double",
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


#: Parameters without meaning for what a scene shows: strands do not bounce, nothing comes out of
#: what is there from the start, the larger one of two viscosities counts, and Constraints may have
#: moduli of their own.
EMISSION = (
    "velocity", "normal_speed", "velocity_spread", "inherit_velocity", "lifetime",
    "lifetime_variation",
)  # fmt: skip
MODULI = ("young_modulus", "shear_modulus")
FLUID = ("friction", "surface_tension", "contact_angle", "viscosity")
WITHOUT = {
    ("lying", "CollisionConstraint", "restitution"),
    *(("dust", "ParticleObject", name) for name in EMISSION),
    *(("hair", "CurvesObject", name) for name in MODULI),
    *(("foam", "SmoothedParticleFluid", name) for name in FLUID),
    ("honey", "SmoothedParticleFluid", "artificial_viscosity"),
    ("tap", "LiquidSource", "thickness"),
    ("shell", "LiquidSource", "flux"),
}


#: How exact values are where factors of one take another way: as parts of the largest, or by voxel.
ROUNDED = dict.fromkeys(("water", "puff", "positions", "honey", "foam", "gust", "droplets"), 1e-11)

#: What has no modes of stiffness and compliance.
ALWAYS = {kind for kinds in SHOWN.values() for kind in kinds if not kind.endswith("Constraint")}

NOT_SHOWN = {"restitution"}  # of contacts, which test_particle_contacts.py shows


def cases():
    for scene, kinds in SHOWN.items():
        for kind in kinds:
            for name, declared in registry()[kind].parameters().items():
                for place in PLACES[scene] if declared.varies == "vertex" else ("detail",):
                    has = (name == "compliance") == scene.startswith("soft") or kind in ALWAYS
                    if (scene, kind, name) in WITHOUT or not has:
                        continue
                    if declared.varies != "no":
                        yield pytest.param(
                            scene, kind, name, place, id=f"{scene}-{kind}.{name}-{place}"
                        )


def painted(stream, place, name, factor):
    if place == "voxel":
        stream.set_channel(name, np.full((1, 1, 8, 8, 8), factor), background=factor)
        return stream
    count = {"detail": 1, "point": stream.point_count, "primitive": stream.primitive_count}
    stream.set_channel(place, name, np.full(count[place], factor))
    return stream


def run(scene, frames=2, **inputs):
    make_setup, make_stream, _, others = SCENES[scene]
    given = {STREAMS[scene]: make_stream(), **others, **inputs}
    solver = lk.Solver(make_setup(), given)
    solver.run(frames)
    return solver


def seen(solver, scene):
    """All that a parameter could change, of the start's particles and of how many there are."""
    path = SCENES[scene][2]
    channels = {
        **dict.fromkeys(("water", "tap", "shell", "gust"), ("position", "velocity")),
        "puff": ("velocity", "density"),
        "sheet": ("position", "velocity", "mass", "radius"),
        "chimney": ("velocity", "density", "temperature"),
        "jet": ("position", "velocity", "mass", "lifetime"),
    }.get(scene, ("position", "velocity", "mass"))
    return [solver.read(path, name) for name in channels]


@pytest.fixture(scope="module")
def unpainted():
    """Each scene without any override, once."""
    known = {}

    def of(scene):
        if scene not in known:
            known[scene] = seen(run(scene), scene)
        return known[scene]

    return of


def test_every_parameter_that_varies_is_shown_in_a_scene():
    varying = {
        kind
        for kind, cls in registry().items()
        if cls.__module__.startswith("loki_core")
        and any(one.varies != "no" for one in cls.parameters().values())
    }
    assert varying == {kind for kinds in SHOWN.values() for kind in kinds}
    shown = {(kind, name) for _, kind, name, _ in (case.values for case in cases())}
    for kind in varying:
        names = {n for n, one in registry()[kind].parameters().items() if one.varies != "no"}
        assert names <= {name for one, name in shown if one == kind} | NOT_SHOWN


@pytest.mark.parametrize(("scene", "kind", "parameter", "place"), list(cases()))
def test_overrides_follow_an_animated_input(scene, kind, parameter, place, unpainted):
    """A factor of 1 in the first frames changes no bit; another one in the last frame does."""
    make_stream, name = SCENES[scene][1], f"{channel_names(registry()[kind], parameter)[0]}_scale"

    def stream(frame, last=1.3):
        return painted(make_stream(), place, name, last if frame == 3 else 1.0)

    found = seen(run(scene, **{STREAMS[scene]: stream}), scene)
    same = [
        one.shape == two.shape
        and np.allclose(one, two, rtol=0.0, atol=ROUNDED.get(scene, 0.0) * np.abs(two).max())
        for one, two in zip(found, unpainted(scene), strict=True)
    ]
    assert not all(same), f"{kind}.{parameter} does not follow the {place} channel"


@pytest.mark.parametrize("scene", SCENES)
def test_what_does_not_change_costs_nothing_and_changes_nothing(scene, unpainted, monkeypatch):
    from loki_core.objects.basics.object import Object

    taken = []
    for cls in (Object, *_subclasses(Object)):
        if "take_overrides" in vars(cls):
            monkeypatch.setattr(cls, "take_overrides", lambda *args: taken.append(args))
    make_stream = SCENES[scene][1]

    place = PLACES[scene][-1]

    def stream(frame):
        return painted(make_stream(), place, "gravity_acceleration_scale", 1.0)

    found = seen(run(scene, **{STREAMS[scene]: stream}), scene)
    assert not taken
    for one, two in zip(found, unpainted(scene), strict=True):
        atol = ROUNDED.get(scene, 0.0) * np.abs(two).max()
        np.testing.assert_allclose(one, two, rtol=0, atol=atol)


def _subclasses(cls):
    return [one for sub in cls.__subclasses__() for one in (sub, *_subclasses(sub))]


def test_stiffness_is_found_anew_only_where_its_overrides_change(monkeypatch):
    from loki_core.constraints.bending import BendingAction

    found = []
    inner = BendingAction.stiffness
    monkeypatch.setattr(BendingAction, "stiffness", lambda self: found.append(1) or inner(self))

    def stream(frame):
        curves = painted(groom(), "primitive", "bending_stiffness_scale", 2.0 if frame > 4 else 1.0)
        return painted(curves, "point", "wetness", float(frame))

    run("hair", frames=5, hair=stream)
    assert len(found) == 2


@pytest.mark.parametrize(("scene", "is_held"), [("hair", False), ("dust", False), ("water", True)])
def test_a_stream_is_let_go_where_nobody_needs_it_whole(scene, is_held):
    """What is given as it is stays: it is the caller's."""
    make_stream, name = SCENES[scene][1], STREAMS[scene]
    animated = run(scene, frames=1, **{name: lambda frame: make_stream()})
    assert isinstance(animated.inputs[name], lk.Curves | lk.Points) == is_held
    still = make_stream()
    assert run(scene, frames=1, **{name: still}).inputs[name] is still


# -- what follows from an override -----------------------------------------------------------------


def test_a_thicker_strand_is_heavier_and_its_scale_is_applied_once():
    def stream(frame):
        curves = painted(groom(), "point", "radius", 1e-3 * frame)
        return painted(curves, "point", "curves_radius_scale", 0.5)

    solver = run("hair", frames=0, hair=stream)
    start = solver.read(HAIR, "mass")
    for frame in (2, 3):
        solver.run(1)
        np.testing.assert_allclose(solver.read(HAIR, "radius"), 0.5e-3 * frame, rtol=1e-15)
        np.testing.assert_allclose(solver.read(HAIR, "mass"), start * frame**2, rtol=1e-12)


def test_emitted_particles_have_the_rate_and_size_of_the_present_frame():
    def stream(frame):
        points = painted(dust(), "detail", "particle_rate", 100.0 * (frame == 2))
        return painted(points, "detail", "radius", 0.001 * frame)

    solver = run("dust", dust=stream)
    radius = solver.read(DUST, "radius")
    assert len(radius) == 27 + 1
    np.testing.assert_allclose(radius[:27], 0.003)
    np.testing.assert_allclose(radius[27:], 0.002)


@pytest.mark.parametrize(("scene", "make", "path"), [("dust", dust, DUST), ("water", water, WATER)])
def test_points_are_followed_by_their_ids(scene, make, path):
    """Later frames have other orders and fewer points; what is missing keeps what it had."""
    rng = np.random.default_rng(3)
    kind, parameter = {
        "dust": ("FluidDragForce", "coefficient"),
        "water": ("ViscosityMaterial", "viscosity"),
    }[scene]
    name = channel_names(registry()[kind], parameter)[0]

    def stream(frame):
        whole = make()
        count = whole.point_count
        order = np.arange(count) if frame == 1 else rng.permutation(count)[: count - 2]
        points = lk.Points(whole.positions[order])
        points.set_channel("point", "id", 1000 - order)
        points.set_channel("point", name, order + 0.5 * frame)
        left.append(np.setdiff1d(np.arange(count), order))
        return points

    left = []
    make_setup, _, _, others = SCENES[scene]
    solver = lk.Solver(make_setup(), {scene: stream, **others})
    solver.run(2)
    found = solver.read(path, name)[: make().point_count]
    expected = np.arange(len(found)) + 1.5
    for frame, missing in ((2, left[-1]), (1, np.intersect1d(left[-2], left[-1]))):
        expected[missing] = missing + 0.5 * frame
    np.testing.assert_array_equal(found, expected)


def test_points_without_ids_may_not_change_their_number():
    def stream(frame):
        whole = dust()
        points = lk.Points(whole.positions[: 27 - frame])
        points.set_channel("point", "fluid_drag_coefficient", np.full(27 - frame, 0.1))
        return points

    with pytest.raises(InputError, match=r'has 25 points now, and 26 .* point channel "id"'):
        run("dust", dust=stream)


def test_a_painted_override_may_not_come_or_go():
    def stream(frame):
        return painted(groom(), "point", "bending_stiffness" if frame < 3 else "other", 1e-6)

    with pytest.raises(InputError, match='has the point channel "bending_stiffness" no more'):
        run("hair", hair=stream)


def test_what_an_expression_wrote_lasts_until_the_input_changes(tmp_path):
    """Also where the run goes on from a state that was kept in between."""
    name = "fluid_drag_coefficient"

    def stream(frame):
        return painted(dust(), "point", name, 2e-4 if frame >= 4 else 1e-4)

    def solver():
        group = lk.Group(
            "Dust",
            lk.ParticleObject(input="dust"),
            lk.ParticleExpression(expression=f"{name} = {name} + 1e-5", stage="SUBSTEP_END"),
            *forces(),
        )
        setup = lk.SolverSetup("dust", group, precision="double", substeps=1)
        return lk.Solver(setup, {"dust": stream})

    whole = solver()
    values = []
    for _ in range(4):
        whole.run(1)
        values.append(whole.read(DUST, name)[0])
    np.testing.assert_allclose(values, [1.1e-4, 1.2e-4, 2.1e-4, 2.2e-4], rtol=1e-6)
    first, second = solver(), solver()
    first.run(1)
    second.restore(first.state())
    second.run(3)
    for channel in ("position", "velocity", name):
        np.testing.assert_array_equal(whole.read(DUST, channel), second.read(DUST, channel))


def test_a_resumed_groom_goes_on_bit_for_bit():
    """The frame after the restart looks as the first one did, but not as the one before."""
    values = {1: 1.0, 2: 3.0, 3: 1.0, 4: 2.0}

    def stream(frame):
        curves = painted(groom(), "point", "radius_scale", values[frame])
        return painted(curves, "point", "bending_stiffness_scale", 1.0 / values[frame])

    states = []
    for stop in (3, 1):
        solver = run("hair", frames=stop, hair=stream)
        again = run("hair", frames=0, hair=stream)
        again.restore(solver.state())
        again.run(3 - stop)
        states.append(again)
    for channel in ("position", "velocity", "mass", "radius"):
        one, two = (solver.read(HAIR, channel) for solver in states)
        np.testing.assert_array_equal(one, two)
    assert all(a != b for a, b in pairwise(values.values()))
