"""One Solver Setup for many scenes: hair, wind, smoke and sparks, whichever there is (paper, 7.3).

Each phenomenon is a Group; what couples them stands outside, at the root. A scene gives input
streams and nothing else: Behaviors whose stream is missing are inactive, and so is what would have
coupled them. The gas fills no Buckets until something blows or burns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.constraints.bending import BendingConstraint
from loki_core.constraints.collision import CollisionConstraint
from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.stretching import StretchingConstraint
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.errors import InputError, did_you_mean
from loki_core.forces.buoyancy import BuoyancyForce
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.particles.particles import ParticleObject
from loki_core.objects.solids.curves import CurvesObject
from loki_core.operators.coupled_buoyancy import CoupledBuoyancyOperator
from loki_core.operators.sag_free_start import SagFreeStart
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.operators.vorticity_confinement import VorticityConfinementOperator
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import BOX_FACES, unit_box_corners, unit_sphere
from loki_vfx.examples.hair_in_wind.example import moving_hair, moving_head

FRAMES = 48

#: The streams of each scene.
SCENES = {
    "hair": ("hair", "head"),
    "wind": ("hair", "head", "wind"),
    "smoke": ("smoke",),
    "sparks": ("sparks",),
    "fire": ("smoke", "sparks", "wind"),
    "all": ("hair", "head", "wind", "smoke", "sparks"),
}
FIRE = (0.1, -0.42, 0.12)  # m: where smoke and sparks come from


def build(
    scene: str = "all", strands: int = 800, vertices: int = 16, voxel_size: float = 0.04
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup, which is the same for every scene, and the scene's inputs.

    Args:
        scene: hair, wind (with hair), smoke, sparks, fire or all.
        strands: Hairs on the head.
        vertices: Points of a hair.
        voxel_size: Edge of the gas's voxels [m].
    """
    if scene not in SCENES:
        raise InputError(f'there is no scene "{scene}"{did_you_mean(scene, SCENES)}')
    makers = {
        "hair": lambda: moving_hair(strands, vertices),
        "head": moving_head,
        "wind": fan,
        "smoke": embers,
        "sparks": glowing_points,
    }
    return solver_setup(voxel_size), {name: makers[name]() for name in SCENES[scene]}


def solver_setup(voxel_size: float) -> SolverSetup:
    """Return the Solver Setup."""
    hair = Group(
        "Hair",
        CurvesObject(name="Strands", input="hair"),
        StretchingConstraint(),
        BendingConstraint(damping_time=0.01),
        CollisionConstraint(friction_coefficient=0.3),
        SagFreeStart(),
    )
    sparks = Group(
        "Sparks",
        ParticleObject(
            name="Embers",
            source="sparks",
            rate=800.0,
            velocity=(0.0, 1.2, 0.0),
            velocity_spread=0.5,
            lifetime=1.6,
            lifetime_variation=0.6,
            radius=0.0004,
            density=40.0,
        ),
    )
    air = Group(
        "Air",
        VolumeObject(name="Gas", voxel_size=voxel_size, padding=8, reflection=True),
        PressureMaterial(),
        BuoyancyForce(),
        VorticityConfinementOperator(strength=0.1),
        VolumeEmission(
            name="Fan", source="wind", density=None, velocity=(0.3, 0.2, -2.5), strength=0.7
        ),
        VolumeEmission(name="Fire", source="smoke", density=0.6, temperature=600.0),
    )
    return SolverSetup(
        "super_setup",
        hair,
        sparks,
        air,
        GravityForce(),
        CoupledDragForce(),
        CoupledBuoyancyOperator(),
        Collider(name="Head", input="head"),
        substeps=4,
        domain_lower=(-1.0, -0.8, -1.6),
        domain_upper=(1.0, 1.6, 1.0),
    )


def fan() -> Surface:
    """Return the air that a fan in front of the face drives."""
    box = Surface.from_faces(unit_box_corners(), np.array(BOX_FACES))
    box.positions = (-0.05, -0.1, 0.7) + np.array((0.6, 0.6, 0.16)) * box.positions
    return box


def embers() -> Surface:
    """Return the ball that smoke comes from."""
    ball = unit_sphere(32, 16)
    ball.positions = np.array(FIRE) + 0.11 * ball.positions
    return ball


def glowing_points() -> Points:
    """Return the points that sparks come from."""
    random = np.random.default_rng(3)
    return Points(np.array(FIRE) + random.normal(0.0, 0.02, (64, 3)))
