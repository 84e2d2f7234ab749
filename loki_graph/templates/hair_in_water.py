"""Weed grows on the bed of a tank, floats up in its water, and is stirred by what moves there."""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.constraints.bending import BendingConstraint
from loki_core.constraints.collision import CollisionConstraint
from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.stretching import StretchingConstraint
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.objects.solids.curves import CurvesObject
from loki_core.operators.coupled_buoyancy import CoupledBuoyancyOperator
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.curves_from_mesh import CurvesFromMesh
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import box_between, unit_grid, unit_sphere
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Hair in water"

TANK = ((-0.64, 0.0, -0.32), (0.64, 0.8, 0.32))  # m, of what is suggested
LEVEL = 0.56


def build() -> Graph:
    """Return the graph."""
    weed = Group(
        "Weed",
        CurvesObject(name="Stems", input="weed", density=500.0),
        StretchingConstraint(young_modulus=2.0e7),
        BendingConstraint(young_modulus=2.0e6, shear_modulus=8.0e5, damping_time=0.02),
        CollisionConstraint(friction_coefficient=0.2),
        Collider(name="Body", input="body"),
    )
    water = Group(
        "Liquid",
        HybridObject(name="Water", voxel_size=0.04, input="water"),
        PressureMaterial(),
        Collider(name="Tank", input="tank", mode="solid_outside"),
        Collider(name="Stirrer", input="body"),
        LiquidSurface(name="Surface"),
    )
    setup = SolverSetup(
        "hair_in_water",
        weed,
        water,
        GravityForce(),
        CoupledDragForce(),
        CoupledBuoyancyOperator(),
        substeps=2,
    )
    graph = Graph(
        "hair_in_water",
        nodes={
            "bed": HostInput(type="surface"),
            "tank": HostInput(type="surface"),
            "water": HostInput(type="surface"),
            "body": HostInput(type="surface"),
            "growth": CurvesFromMesh(
                count=300,
                vertices=20,
                length=0.42,
                length_variation=0.4,
                root_radius=1.8e-3,
                tip_radius=5.0e-4,
                direction=(1.0, 0.0, 0.3),
                lean=0.5,
                bend=0.6,
                spread=0.4,
                clumping=0.3,
                clump_size=12,
            ),
            "solver": SolverSetupNode(setup=setup),
            "weed": Output(),
            "surface": Output(),
        },
        connections=[
            ("bed.out", "growth.in"),
            ("growth.out", "solver.weed"),
            ("tank.out", "solver.tank"),
            ("water.out", "solver.water"),
            ("body.out", "solver.body"),
            ("solver.Weed/Stems", "weed.in"),
            ("solver.Liquid/Surface", "surface.in"),
        ],
    )
    for target, name, label, minimum, maximum in (
        ("growth.count", "stem_count", "Stem count", 1, 100_000),
        ("growth.length", "length", "Length", 0.01, 5.0),
        ("growth.clumping", "clumping", "Clumping", None, None),
        ("solver/Weed/Stems.density", "density", "Density", 10.0, 20_000.0),
        ("solver/Weed/BendingConstraint.young_modulus", "stiffness", "Stiffness", 1.0e4, 1.0e11),
        ("solver/Weed/BendingConstraint.damping_time", "damping", "Damping", None, 0.2),
        ("solver/Liquid/Water.voxel_size", "resolution", "Resolution (voxel size)", 0.005, 1.0),
        ("solver/Liquid/Surface.smoothing", "smoothing", "Smoothness", 0, 10),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a bed in a tank that is full of water, and a ball to move."""
    bed = unit_grid(12, 6)
    bed.positions = bed.positions * np.array((0.9, 1.0, 0.5)) + np.array((-0.1, 0.01, 0.0))
    lower, (right, _, front) = TANK
    water = box_between(lower, (right, LEVEL, front))
    ball = unit_sphere(32, 16)
    ball.positions = 0.16 * ball.positions + np.array((0.45, 0.25, 0.0))
    return {"bed": bed, "tank": box_between(*TANK), "water": water, "body": ball}
