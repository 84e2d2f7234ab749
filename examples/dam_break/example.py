"""A dam breaks: a column of water falls, runs through a tank and climbs over a pillar.

The water is a Hybrid Object: particles on a sparse grid. Its surface is an Object of its own, a
mesh with velocities for motion blur.
"""

from __future__ import annotations

from typing import Any

from loki_core.constraints.pressure import PressureMaterial
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import box_between

FRAMES = 72
TANK = (3.0, 1.5, 1.0)  # m
COLUMN = (1.0, 1.0, 1.0)
PILLAR = ((1.9, 0.0, 0.38), (2.1, 0.6, 0.62))


def build(voxel_size: float = 0.05, transfer: str = "apic") -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        voxel_size: Edge of a voxel [m].
        transfer: How velocities pass between particles and grid: apic, flip, pic, affine_flip.
    """
    water = Group(
        "Water",
        HybridObject(name="Particles", voxel_size=voxel_size, input="column", transfer=transfer),
        PressureMaterial(),
        GravityForce(),
        Collider(name="Pillar", input="pillar"),
        LiquidSurface(name="Surface"),
    )
    setup = SolverSetup(
        "dam_break",
        water,
        adaptive_substeps=True,
        max_substeps=16,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=TANK,
        boundary_lower=("wall", "wall", "wall"),
        boundary_upper=("wall", "open", "wall"),
    )
    return setup, {"column": box_between((0.0, 0.0, 0.0), COLUMN), "pillar": box_between(*PILLAR)}
