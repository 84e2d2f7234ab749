"""Small scenes that together run every Task of the core, each with all that it declares.

A Task that declares what it touches in none of them declares too much. Each scene is a function
that returns a Solver Setup, its inputs and how many frames to run.
"""

from __future__ import annotations

import numpy as np

import loki_core as lk
from loki_graph.nodes.shape_source import unit_sphere
from tests.skeleton.liquid_scene import box

WALLS = ("wall",) * 3
H = 1.0 / 16.0


def ball(center, radius):
    """A sphere that moves along x."""

    def at(frame):
        mesh = unit_sphere(16, 8)
        mesh.positions = 2.0 * radius * mesh.positions + np.asarray(center)
        mesh.positions = mesh.positions + np.array([0.002, 0.0, 0.0]) * (frame - 1)
        return mesh

    return at


def strands(count=6, points=8, corner=(0.0, 0.0, 0.0), length=0.1):
    """Strands that stand side by side, lean and curl."""
    along = np.linspace(0.0, length, points)[:, None] * np.array([0.6, 0.8, 0.0])
    along[:, 2] = 0.01 * np.sin(np.linspace(0.0, 6.0, points))
    roots = np.asarray(corner) + 0.02 * np.arange(count)[:, None] * np.array([0.0, 0.0, 1.0])
    return lk.Curves.from_strands(roots[:, None, :] + along)


def moving_strands(frame):
    """The same, with roots that go up and turn."""
    curves, angle = strands(), 0.1 * (frame - 1)
    turn = [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
    curves.positions = curves.positions @ np.array(turn) + [0.0, 0.002 * (frame - 1), 0.0]
    return curves


def cloud(count=200, lower=(0.0, 0.0, 0.0), upper=(1.0, 1.0, 1.0), **channels):
    """Points anywhere in a box."""
    rng = np.random.default_rng(3)
    points = lk.Points(rng.uniform(lower, upper, (count, 3)))
    for name, values in channels.items():
        points.set_channel("point", name, values)
    return points


def particles():
    """Particles that are born, age, fall, are painted and die."""
    setup = lk.SolverSetup(
        "particles",
        lk.ParticleObject(name="Sparks", source="source", rate=400.0, lifetime=0.06),
        lk.ParticleObject(name="Dust", input="dust"),
        lk.GravityForce(),
        lk.FluidDragForce(velocity=(1.0, 0.0, 0.0)),
        lk.ForceDensityField(value=(500.0, 1.0, 0.0)),
        lk.ParticleExpression(
            expression="heat = heat + dt * age + 0.0 * id",
            new_channels=("heat",),
            stage="PRE_SOLVE",
        ),
        substeps=2,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=WALLS,
        boundary_upper=("open", "wall", "wall"),
    )
    painted = np.linspace(0.5, 2.0, 200)
    dust = cloud(force_density_field_strength_scale=painted)
    return setup, {"source": ball((0.5, 0.5, 0.5), 0.1), "dust": dust}, 3


def droplets():
    """A spray whose drops meet, and bounce off a ball."""
    rng = np.random.default_rng(4)
    points = lk.Points(0.01 * rng.random((400, 3)))
    points.set_channel("point", "velocity", rng.normal(0.0, 3.0, (400, 3)))
    points.set_channel("point", "radius", 1e-4 * np.exp(rng.normal(0.0, 0.5, 400)))
    setup = lk.SolverSetup(
        "spray",
        lk.ParticleObject(name="Spray", input="spray"),
        lk.BinaryDropletCollisions(),
        lk.Collider(input="ball"),
        lk.CollisionConstraint(restitution=0.5),
        frames_per_second=500,
        bucket_size=0.0025,
    )
    return setup, {"spray": points, "ball": ball((0.005, 0.005, 0.005), 0.002)}, 2


def smoke(*, newton=1, reflection=False):
    """Smoke with all that acts on a gas, around a ball in motion."""
    guide = lk.Voxels.from_dense(np.ones((16, 16, 16), np.float32), (0.0, 0.0, 0.0), H)
    setup = lk.SolverSetup(
        "smoke",
        lk.VolumeObject(name="Smoke", voxel_size=H, padding=4, reflection=reflection),
        lk.PressureMaterial(),
        lk.ViscosityMaterial(viscosity=1e-2),
        lk.BuoyancyForce(),
        lk.GravityForce(acceleration=(0.1, 0.0, 0.0)),
        lk.FluidDragForce(law="linear", velocity=(0.1, 0.0, 0.0)),
        lk.TurbulenceForce(masked_by="density"),
        lk.VorticityConfinementOperator(),
        lk.DissipationOperator(),
        lk.GuideOperator(field="guide", channel="density", guided="heat", strength=0.5),
        lk.VolumeEmission(
            source="burner", mode="flux", temperature=600.0, flux=0.5, velocity=(0.0, 1.0, 0.0)
        ),
        lk.DomainBoundary(sides=("x_lower",), condition="inflow", velocity=(0.5, 0.0, 0.0)),
        lk.VolumeExpression(expression="heat = heat + dt * density", new_channels=("heat",)),
        lk.Collider(input="ball"),
        substeps=2,
        newton_iterations=newton,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=("open", "wall", "open"),
        boundary_upper=("open",) * 3,
    )
    inputs = {
        "burner": ball((0.5, 0.2, 0.5), 0.15),
        "ball": ball((0.5, 0.6, 0.5), 0.15),
        "guide": guide,
    }
    return setup, inputs, 2


def smoke_with_newton():
    """The same by two Newton iterations, the velocity carried in two halves."""
    return smoke(newton=2, reflection=True)


def _hair(*, newton=1, mode="stiffness", more=(), **stretching):
    return lk.SolverSetup(
        "hair",
        lk.Group(
            "Hair",
            lk.CurvesObject(input="hair", radius=1e-3),
            lk.StretchingConstraint(
                young_modulus=1e6, mode=mode, friction=0.1, friction_stiffness=10.0, **stretching
            ),
            lk.BendingConstraint(
                young_modulus=1e6, shear_modulus=3e5, damping_time=0.01, natural_twist=1.0,
                friction=1e-6, friction_stiffness=1e-4,
            ),
            lk.DistanceConstraint(stiffness=10.0, damping_time=0.01),
        ),
        lk.ParticleObject(name="Beads", input="beads", radius=2e-3),
        lk.GravityForce(),
        lk.FluidDragForce(law="stokes", velocity=(1.0, 0.0, 0.0)),
        lk.AttachmentConstraint(
            name="Beaded", source="Beads", target="Hair", emission="closest", stiffness=10.0,
            damping_time=0.01, friction=0.01, friction_stiffness=5.0, mode=mode,
        ),
        lk.AttachmentConstraint(
            name="Held", source="Hair", target="skin", range=0.05, stiffness=5.0, every_step=True,
            orientation_stiffness=(1e-4, 1e-4, 0.0), flexibility=0.5,
        ),
        *more,
        substeps=2,
        newton_iterations=newton,
    )  # fmt: skip


def _hair_inputs():
    return {
        "hair": moving_strands,
        "beads": cloud(8, (0.02, 0.05, 0.0), (0.08, 0.1, 0.1)),
        "skin": ball((0.1, 0.1, 0.05), 0.05),
        "ball": ball((0.06, 0.04, 0.05), 0.03),
    }


CONTACTS = (lk.Collider(input="ball"), lk.CollisionConstraint())


def hair():
    """Strands and beads that hold on to each other and to a mesh, and fall on a ball."""
    return _hair(more=CONTACTS), _hair_inputs(), 2


def hair_with_newton():
    """The same with a line search."""
    return _hair(more=CONTACTS, newton=3), _hair_inputs(), 2


def hair_with_multipliers():
    """The same in compliance mode."""
    return _hair(mode="compliance", newton=2), _hair_inputs(), 2


def groom():
    """Strands that do not sag."""
    setup = lk.SolverSetup(
        "groom",
        lk.CurvesObject(name="Groom", input="hair", radius=1e-4),
        lk.StretchingConstraint(),
        lk.BendingConstraint(damping_time=0.01, young_modulus=1e7),
        lk.GravityForce(),
        lk.SagFreeStart(),
    )
    return setup, {"hair": strands()}, 1


def held_groom():
    """Strands of two Objects that do not sag, one held by the other and by a mesh."""
    parts = [
        lk.Group(
            name,
            lk.CurvesObject(input=name, radius=1e-4),
            lk.StretchingConstraint(),
            lk.BendingConstraint(damping_time=0.01, young_modulus=1e7),
        )
        for name in ("hair", "guides")
    ]
    setup = lk.SolverSetup(
        "held groom",
        *parts,
        lk.AttachmentConstraint(
            name="Between", source="hair", target="guides", range=0.02, stiffness=1e-6
        ),
        lk.AttachmentConstraint(
            name="Held", source="hair", target="skin", range=0.05, stiffness=1e-6
        ),
        lk.GravityForce(),
        lk.SagFreeStart(),
    )
    inputs = {
        "hair": strands(),
        "guides": strands(corner=(0.005, 0.0, 0.003)),
        "skin": ball((0.1, 0.1, 0.05), 0.05),
    }
    return setup, inputs, 1


def sheets(*, newton=1, mode="stiffness", contacts=CONTACTS):
    """Sheets and a net that hang on each other and on a moving mesh, and fall on a ball."""
    corners = [[0.0, 0.15, 0.06], [0.1, 0.15, 0.06], [0.1, 0.05, 0.08], [0.0, 0.05, 0.08]]
    held = lk.Surface.from_faces(np.array(corners), np.array([[0, 1, 2, 3]]))
    held.set_channel("point", "pinned", np.array([1.0, 1.0, 0.0, 0.0]))
    held.set_channel("primitive", "thickness", np.array([1e-3]))
    net = lk.Wireframe(np.array([[0.0, 0.12, 0.0], [0.05, 0.12, 0.0], [0.05, 0.12, 0.05]]),
                       np.array([[0, 1], [1, 2], [2, 0]]))  # fmt: skip

    def moved(frame):
        mesh = lk.Surface(held.positions + 0.002 * frame, held.face_offsets, held.face_vertices)
        for place in ("point", "primitive"):
            for name, values in held.channels[place].items():
                mesh.set_channel(place, name, values)
        return mesh

    setup = lk.SolverSetup(
        "sheets",
        lk.Group(
            "Sheets",
            lk.GeometryObject(name="Held", input="held"),
            lk.GeometryObject(name="Net", input="net", thickness=2e-3),
            lk.DistanceConstraint(
                stiffness=10.0, damping_time=0.01, friction=1e-3, friction_stiffness=1.0, mode=mode
            ),
            *contacts,
        ),
        lk.AttachmentConstraint(
            source="Sheets/Net", target="Sheets/Held", range=0.05, stiffness=5.0, flexibility=0.5
        ),
        lk.GravityForce(),
        lk.FluidDragForce(law="stokes", velocity=(1.0, 0.0, 0.0)),
        lk.SagFreeStart(),
        substeps=2,
        newton_iterations=newton,
    )
    return setup, {"held": moved, "net": net, "ball": ball((0.06, 0.04, 0.05), 0.03)}, 2


def sheets_with_newton():
    """The same with a line search."""
    return sheets(newton=3)


def sheets_with_multipliers():
    """The same in compliance mode."""
    return sheets(newton=2, mode="compliance", contacts=())


def target():
    """Strands that find the rest shape of which a target is the sag."""
    setup = lk.SolverSetup(
        "target",
        lk.CurvesObject(name="Groom", input="hair", radius=1e-4),
        lk.StretchingConstraint(),
        lk.BendingConstraint(damping_time=0.01),
        lk.GravityForce(),
        lk.MatchTarget(target="target"),
    )
    bent = strands()
    bent.positions = bent.positions - np.array([0.0, 5.0, 0.0]) * bent.positions[:, :1] ** 2
    return setup, {"hair": strands(), "target": bent}, 1


def wind():
    """Hair and balls that a wind moves, and that move the wind."""
    setup = lk.SolverSetup(
        "wind",
        lk.VolumeObject(
            name="Air", voxel_size=H, region="box", channels=(), ambient_velocity=(1.0, 0.0, 0.0)
        ),
        lk.PressureMaterial(),
        lk.Group(
            "Hair",
            lk.CurvesObject(input="hair", radius=1e-3),
            lk.StretchingConstraint(young_modulus=1e6),
            lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5),
        ),
        lk.ParticleObject(name="Balls", input="balls", radius=4e-3),
        lk.CoupledDragForce(),
        lk.CoupledBuoyancyOperator(),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
    )
    hair = strands(corner=(0.4, 0.4, 0.4))
    hair.set_channel("point", "radius", np.full(hair.point_count, 1e-3))
    return setup, {"hair": hair, "balls": cloud(20)}, 2


def _joined(*meshes):
    """Several meshes of quads as one."""
    starts = np.cumsum([0, *(mesh.point_count for mesh in meshes)])
    faces = [mesh.face_vertices.reshape(-1, 4) + n for mesh, n in zip(meshes, starts, strict=False)]
    positions = np.concatenate([mesh.positions for mesh in meshes])
    return lk.Surface.from_faces(positions, np.concatenate(faces))


def _liquid(*more, newton=1, **settings):
    return lk.SolverSetup(
        "liquid",
        lk.Group(
            "Water",
            lk.HybridObject(name="Water", voxel_size=H, input="water", **settings),
            lk.PressureMaterial(),
            lk.LiquidSurface(name="Surface"),
            lk.Collider(input="ball"),
            lk.GravityForce(),
            *more,
        ),
        lk.Group(
            "Wind",
            lk.VolumeObject(name="Air", voxel_size=H, region="box", channels=()),
            lk.PressureMaterial(),
        ),
        lk.ParticleObject(name="Balls", input="balls", radius=4e-3),
        lk.CoupledDragForce(),
        lk.CoupledBuoyancyOperator(),
        substeps=2,
        newton_iterations=newton,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=WALLS,
        boundary_upper=WALLS,
    )


def _liquid_inputs(water):
    return {
        "water": water,
        "source": ball((0.5, 0.8, 0.5), 0.1),
        "sink": box((0.0, 0.0, 0.0), (0.1, 0.1, 0.1)),
        "ball": ball((0.5, 0.25, 0.5), 0.1),
        "balls": cloud(20),
    }


def liquid():
    """A liquid that comes and goes, and falls off a ceiling; air drags its spray."""
    setup = _liquid(
        lk.SurfaceTensionForce(),
        lk.LiquidSource(source="source", velocity=(0.0, -1.0, 0.0)),
        lk.LiquidSink(source="sink"),
        lk.ChannelMixing(channels=("heat",), diffusivity=0.1),
        lk.ParticleExpression(expression="alive = position[0] < 0.9", stage="ADVECT"),
        newton=2,
        drop_radius=0.003,
    )
    water = _joined(
        box((0.0, 0.0, 0.0), (1.0, 0.3, 1.0)), box((0.25, 0.75, 0.25), (0.75, 1.0, 0.75))
    )
    water.set_channel("point", "heat", np.linspace(0.0, 1.0, water.point_count))
    return setup, _liquid_inputs(water), 2


def deep_liquid():
    """A thick liquid with particles near its surface alone."""
    source = lk.LiquidSource(source="source", velocity=(0.0, -1.0, 0.0))
    setup = _liquid(lk.ViscosityMaterial(viscosity=10.0), source, narrow_band=3)
    return setup, _liquid_inputs(box((0.0, 0.0, 0.0), (1.0, 0.6, 1.0))), 2


def drop():
    """A drop that nothing touches, and particles that leave it."""
    setup = lk.SolverSetup(
        "drop",
        lk.HybridObject(name="Water", voxel_size=H, input="water"),
        lk.PressureMaterial(air="trapped"),
        lk.GravityForce(),
        lk.ParticleExpression(expression="if id < 5:\n    position[0] = 3.0", stage="SUBSTEP_END"),
        substeps=2,
        domain_lower=(-1.0, -1.0, -1.0),
        domain_upper=(1.0, 1.0, 1.0),
    )
    return setup, {"water": box((0.0, 0.0, 0.0), (0.3, 0.3, 0.3))}, 1


def thick_liquid():
    """A liquid of painted viscosity, with tension at its surface."""
    setup = _liquid(lk.ViscosityMaterial(), lk.SurfaceTensionForce())
    water = box((0.0, 0.0, 0.0), (1.0, 0.3, 1.0))
    water.set_channel("point", "viscosity", np.linspace(1.0, 10.0, water.point_count))
    return setup, _liquid_inputs(water), 2


def _fluid(kind, **settings):
    setup = lk.SolverSetup(
        "fluid",
        lk.ParticleObject(
            name="P", input="p", source="tap", rate=300.0, radius=0.031, velocity=(0.0, -1.0, 0.0)
        ),
        kind(**settings),
        lk.GravityForce(),
        lk.Collider(input="solid", friction=0.2),
        frames_per_second=100,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=WALLS,
        boundary_upper=WALLS,
    )
    grid = np.stack(np.meshgrid(*[np.arange(8.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    fast = lk.Points(0.05 * (grid + 0.5))  # so that it has to be sorted before the solve
    fast.set_channel("point", "velocity", np.tile([20.0, 0.0, 0.0], (len(grid), 1)))
    inputs = {
        "p": fast,
        "tap": box((0.5, 0.8, 0.5), (0.6, 0.85, 0.6)),
        "solid": ball((0.3, 0.1, 0.3), 0.1),
    }
    return setup, inputs, 2


def smoothed_particles():
    """A block of smoothed particles falls on a ball."""
    return _fluid(lk.SmoothedParticleFluid, surface_tension=0.07)


def position_based():
    """The same, position based."""
    return _fluid(lk.PositionBasedFluid, vorticity=0.1)


SCENES = (
    particles, droplets, smoke, smoke_with_newton, hair, hair_with_newton, hair_with_multipliers,
    groom, held_groom, sheets, sheets_with_newton, sheets_with_multipliers, target, wind, liquid,
    deep_liquid, thick_liquid, drop, smoothed_particles, position_based,
)  # fmt: skip
