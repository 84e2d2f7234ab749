"""Honey runs out of a pipe onto a plate: a stream that coils, and a heap that flows apart.

The pipe holds the honey, so that its own weight draws the stream. Where that meets what lies there
already it buckles, with coils of about the radius (nu Q / g)^(1/4) (Ribe 2004): a centimetre here.
Four voxels or more across the stream show it.
"""

from __future__ import annotations

from typing import Any

from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.viscosity import ViscosityMaterial
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.operators.liquid_source import LiquidSource
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import turned

FRAMES = 72
DENSITY = 1400.0  # kg/m^3
INSIDE, OUTSIDE = 0.0065, 0.009  # m, radii of the pipe
LOWER, UPPER = 0.06, 0.07  # m, its ends
BOX = ((-0.05, 0.0, -0.05), (0.05, 0.075, 0.05))


def build(
    voxel_size: float = 0.00125, viscosity: float = 10.0
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        voxel_size: Edge of a voxel [m].
        viscosity: Dynamic viscosity [Pa s]: 10 is honey on a cool day.
    """
    honey = Group(
        "Honey",
        HybridObject(
            name="Particles", voxel_size=voxel_size, density=DENSITY, input="filling", jitter=0.1
        ),
        LiquidSource(name="Filling", source="filling"),
        ViscosityMaterial(viscosity=viscosity, tolerance=1.0e-4),
        PressureMaterial(),
        GravityForce(),
        Collider(name="Pipe", input="pipe"),
        LiquidSurface(name="Surface", smoothing=8),
    )
    setup = SolverSetup(
        "honey",
        honey,
        adaptive_substeps=True,
        max_substeps=16,
        courant_number=3.0,
        domain_lower=BOX[0],
        domain_upper=BOX[1],
        boundary_lower=("open", "wall", "open"),
        boundary_upper=("open", "open", "open"),
    )
    middle = 0.5 * (LOWER + UPPER)
    filling = turned([(0.0, middle), (INSIDE, middle), (INSIDE, UPPER), (0.0, UPPER)])
    pipe = turned([(INSIDE, LOWER), (OUTSIDE, LOWER), (OUTSIDE, UPPER), (INSIDE, UPPER)])
    return setup, {"filling": filling, "pipe": pipe}
