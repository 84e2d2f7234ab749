"""Water fills an object, falls, and splashes in a tank."""

from __future__ import annotations

from typing import Any

from loki_core.constraints.pressure import PressureMaterial
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import box_between
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Dam break"

TANK = ((-1.0, 0.0, -0.5), (1.0, 1.2, 0.5))  # m, of the tank and the water that are suggested
WATER = ((-0.95, 0.05, -0.45), (-0.35, 0.8, 0.45))


def build() -> Graph:
    """Return the graph."""
    water = Group(
        "Liquid",
        HybridObject(
            name="Water", voxel_size=0.05, input="water", transfer="affine_flip", flip_part=0.95
        ),
        PressureMaterial(),
        GravityForce(),
        Collider(name="Tank", input="tank", mode="solid_outside"),
        LiquidSurface(name="Surface"),
    )
    setup = SolverSetup("dam_break", water, adaptive_substeps=True, max_substeps=16)
    graph = Graph(
        "dam_break",
        nodes={
            "water": HostInput(type="surface"),
            "tank": HostInput(type="surface"),
            "solver": SolverSetupNode(setup=setup),
            "surface": Output(),
        },
        connections=[
            ("water.out", "solver.water"),
            ("tank.out", "solver.tank"),
            ("solver.Liquid/Surface", "surface.in"),
        ],
    )
    for target, name, label, minimum, maximum in (
        ("solver/Liquid/Water.voxel_size", "resolution", "Resolution (voxel size)", 0.005, 1.0),
        ("solver/Liquid/Water.velocity", "velocity", "Start velocity", -30.0, 30.0),
        ("solver/Liquid/Water.flip_part", "splash", "Splashiness", 0.0, 1.0),
        ("solver/Liquid/GravityForce.acceleration", "gravity", "Gravity", -100.0, 100.0),
        ("solver/Liquid/Surface.smoothing", "smoothing", "Smoothness", 0, 10),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a column of water at one end of a tank."""
    return {"water": box_between(*WATER), "tank": box_between(*TANK)}
