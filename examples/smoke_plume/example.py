"""Hot smoke rises from a ball and rolls.

    dw/dt = g (T - T0) / T,      div u = 0

Only the Buckets around the smoke are simulated; the air is otherwise open, above a floor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.constraints.pressure import PressureMaterial
from loki_core.data.surface import Surface
from loki_core.forces.buoyancy import BuoyancyForce
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.turbulence import TurbulenceForce
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.operators.vorticity_confinement import VorticityConfinementOperator
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import unit_sphere

FRAMES = 72


def build(voxel_size: float = 0.04, heat: float = 320.0) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        voxel_size: Edge of a voxel [m].
        heat: How much hotter than the air the smoke is [K].
    """
    smoke = Group(
        "Smoke",
        VolumeObject(name="Plume", voxel_size=voxel_size, reflection=True),
        PressureMaterial(),
        BuoyancyForce(),
        VolumeEmission(
            name="Burner", source="ball", density=1.0, temperature=293.15 + heat, strength=0.8
        ),
        VorticityConfinementOperator(strength=0.15),
        TurbulenceForce(),
    )
    setup = SolverSetup(
        "smoke_plume",
        smoke,
        substeps=2,
        domain_lower=(-2.0, 0.0, -2.0),
        domain_upper=(2.0, 4.8, 2.0),
        boundary_lower=("open", "wall", "open"),
    )
    return setup, {"ball": ball((0.0, 0.4, 0.0), 0.22)}


def ball(center: tuple[float, float, float], radius: float) -> Surface:
    """Return a ball about a point [m]."""
    surface = unit_sphere(48, 24)
    surface.positions = np.asarray(center) + 2.0 * radius * surface.positions
    return surface
