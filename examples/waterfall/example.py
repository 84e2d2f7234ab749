"""A river falls over a ledge into a pool, and gusts of wind tear at it (paper, Figure 3).

The water is a Hybrid Object, the wind a Volume Object about it; what spans the two is the Coupled
Drag Force. Where water is thin the wind carries its drops away, and the fall drags the air down
with it.
"""

from __future__ import annotations

from typing import Any

from loki_core.constraints.pressure import PressureMaterial
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.keyframes import Keyframes
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.operators.domain_boundary import DomainBoundary
from loki_core.operators.liquid_source import LiquidSource
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import box_between

from .rocks import FLUX, RIVER, SOURCE, cliff, pool_and_river, stones

FRAMES = 96
BOX = ((0.0, 0.0, 0.0), (6.4, 4.8, 4.8))  # m

#: Gusts across the fall: time [s] and speed of the air [m/s].
GUSTS = ((0.0, 0.0), (0.8, 1.0), (1.6, 5.0), (2.3, 2.0), (3.0, 7.0), (4.0, 2.0))


def build(
    voxel_size: float = 0.1, drop_radius: float = 0.001, wind: float = 1.0
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        voxel_size: Edge of the water's voxels [m]; those of the wind are twice as large.
        drop_radius: Of the spray [m]: the finer, the more of it the wind carries away.
        wind: Strength of the gusts; 1 has up to 7 m/s.
    """
    gusts = [(time, (0.0, 0.0, wind * speed)) for time, speed in GUSTS]
    water = Group(
        "Water",
        HybridObject(
            name="Particles",
            voxel_size=voxel_size,
            input="water",
            transfer="affine_flip",
            flip_part=0.95,
            drop_radius=drop_radius,
        ),
        PressureMaterial(),
        Collider(name="Stones", input="stones"),
        LiquidSource(source="spring", velocity=RIVER, flux=FLUX),
        LiquidSurface(name="Surface"),
    )
    air = Group(
        "Wind",
        VolumeObject(name="Air", voxel_size=2.0 * voxel_size, region="box", channels=()),
        DomainBoundary(
            name="Gusts",
            sides=("z_lower",),
            condition="inflow",
            velocity=Keyframes(gusts, interpolation="smooth"),
        ),
        DomainBoundary(name="Sides", sides=("x_upper", "y_upper"), condition="slip"),
        PressureMaterial(),
    )
    setup = SolverSetup(
        "waterfall",
        water,
        air,
        GravityForce(),
        CoupledDragForce(),
        Collider(name="Cliff", input="cliff"),
        adaptive_substeps=True,
        max_substeps=16,
        domain_lower=BOX[0],
        domain_upper=BOX[1],
        boundary_lower=("wall", "wall", "open"),
        boundary_upper=("open", "open", "open"),
    )
    return setup, {
        "water": pool_and_river(),
        "spring": box_between(*SOURCE),
        "cliff": cliff(),
        "stones": stones(),
    }
