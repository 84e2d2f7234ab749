"""Gusts of wind run over a meadow, whose blades bow before them and slow the air down.

The blades are flat rods. A gust is a wall of faster air that crosses the meadow; the air between
the blades is simulated, so a gust breaks up over the hills and dies down near the ground.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.constraints.bending import BendingConstraint
from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.stretching import StretchingConstraint
from loki_core.data.surface import Surface
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.solids.curves import CurvesObject
from loki_core.operators.sag_free_start import SagFreeStart
from loki_core.operators.turbulence import TurbulenceForce
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import BOX_FACES, unit_box_corners

from .meadow import WIDTH, meadow

FRAMES = 72

YOUNG_MODULUS = 7.0e8  # Pa, of fresh grass
FLATNESS = 0.2  # thickness of a blade over its breadth
BREEZE = (0.8, 0.0, 0.2)  # m/s, between the gusts
GUST_SPEED = 2.5  # m/s at which a gust crosses the meadow
GUST_DEPTH = 0.6  # m
GUST_EVERY = 1.25  # s
EARTH = 0.12  # m: thickness of the ground


def build(
    blades: int = 3000, vertices: int = 8, voxel_size: float = 0.08, wind: float = 1.0
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        blades: Blades of grass on four square metres.
        vertices: Points of a blade.
        voxel_size: Edge of the wind's voxels [m].
        wind: Strength of the wind; 1 has gusts of 6 m/s.
    """
    grass = Group(
        "Grass",
        CurvesObject(
            name="Blades",
            input="grass",
            density=600.0,
            aspect=FLATNESS,
            young_modulus=YOUNG_MODULUS,
            shear_modulus=0.35 * YOUNG_MODULUS,
        ),
        StretchingConstraint(),
        BendingConstraint(damping_time=0.02),
        SagFreeStart(),
    )
    breeze = (wind * BREEZE[0], wind * BREEZE[1], wind * BREEZE[2])
    air = Group(
        "Wind",
        VolumeObject(
            name="Air",
            voxel_size=voxel_size,
            around="Grass/Blades",
            padding=8,
            channels=(),
            ambient_velocity=breeze,
        ),
        PressureMaterial(),
        TurbulenceForce(acceleration=4.0 * wind, scale=0.4, time_scale=0.5),
        VolumeEmission(
            name="Gust",
            source="gust",
            density=None,
            velocity=(6.0 * wind, -0.8 * wind, 1.2 * wind),
            strength=0.6,
        ),
        Collider(name="Ground", input="ground", mode="shell", thickness=EARTH, channels=("Cd?",)),
    )
    setup = SolverSetup("grass", grass, air, GravityForce(), CoupledDragForce(), substeps=4)
    ground, curves = meadow(blades, vertices)
    ground.positions = ground.positions - (0.0, 0.5 * EARTH, 0.0)  # a shell has faces in its middle
    return setup, {"grass": curves, "ground": ground, "gust": running_gust()}


def running_gust() -> Callable[[int], Surface]:
    """Return the air of a gust, a wall that crosses the meadow along x, by the frame."""

    def at(frame: int) -> Surface:
        start = -0.5 * WIDTH - GUST_DEPTH
        run = GUST_SPEED * (((frame - 1) / 24.0) % GUST_EVERY)
        wall = Surface.from_faces(unit_box_corners(), np.array(BOX_FACES))
        size = np.array((GUST_DEPTH, 0.7, 1.2 * WIDTH))
        wall.positions = (start + run, 0.3, 0.0) + size * wall.positions
        return wall

    return at
