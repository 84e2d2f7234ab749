"""A ball swings through rising smoke and drags it along.

The ball is an animated mesh: a narrow band of signed distances around it closes the faces of voxels
that it covers, and its velocity pushes the gas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.constraints.pressure import PressureMaterial
from loki_core.data.surface import Surface
from loki_core.forces.buoyancy import BuoyancyForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.operators.vorticity_confinement import VorticityConfinementOperator
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import unit_sphere

FRAMES = 72


def build(voxel_size: float = 0.04, reach: float = 0.7) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        voxel_size: Edge of a voxel [m].
        reach: How far the ball swings to either side [m].
    """
    smoke = Group(
        "Smoke",
        VolumeObject(name="Plume", voxel_size=voxel_size, reflection=True),
        PressureMaterial(),
        BuoyancyForce(),
        VolumeEmission(name="Burner", source="burner", density=1.0, temperature=560.0),
        VorticityConfinementOperator(strength=0.1),
        Collider(name="Ball", input="ball"),
    )
    setup = SolverSetup(
        "smoke_around_sphere",
        smoke,
        substeps=2,
        domain_lower=(-2.0, 0.0, -2.0),
        domain_upper=(2.0, 4.0, 2.0),
        boundary_lower=("open", "wall", "open"),
    )
    return setup, {"burner": ball((0.0, 0.35, 0.0), 0.25), "ball": swinging_ball(reach)}


def swinging_ball(reach: float, radius: float = 0.3) -> Callable[[int], Surface]:
    """Return a ball above the burner that swings along x, as a function of the frame."""

    def at(frame: int) -> Surface:
        phase = 2.0 * np.pi * (frame - 1) / 48.0
        return ball((reach * np.sin(phase), 1.5, 0.0), radius)

    return at


def ball(center: tuple[float, float, float], radius: float) -> Surface:
    """Return a ball about a point [m]."""
    surface = unit_sphere(48, 24)
    surface.positions = np.asarray(center) + 2.0 * radius * surface.positions
    return surface
