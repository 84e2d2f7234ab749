"""Honey runs out of a pipe, coils where it lands, and flows apart."""

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
from loki_graph.graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import turned
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Honey"

INSIDE, OUTSIDE = 0.0065, 0.009  # m, radii of the pipe that is suggested
LOWER, MIDDLE, UPPER = 0.06, 0.065, 0.07  # m, its ends, and where it is kept full from


def build() -> Graph:
    """Return the graph."""
    honey = Group(
        "Liquid",
        HybridObject(name="Honey", voxel_size=0.00125, density=1400.0, input="filling", jitter=0.1),
        LiquidSource(name="Source", source="filling"),
        ViscosityMaterial(name="Viscosity", viscosity=10.0, tolerance=1.0e-4),
        PressureMaterial(),
        GravityForce(),
        Collider(name="Solids", input="solids"),
        LiquidSurface(name="Surface", smoothing=8),
    )
    setup = SolverSetup(
        "honey",
        honey,
        adaptive_substeps=True,
        max_substeps=16,
        courant_number=3.0,
        domain_lower=(-10.0, 0.0, -10.0),
        domain_upper=(10.0, 20.0, 10.0),
        boundary_lower=("open", "wall", "open"),
    )
    graph = Graph(
        "honey",
        nodes={
            "filling": HostInput(type="surface"),
            "solids": HostInput(type="surface"),
            "solver": SolverSetupNode(setup=setup),
            "surface": Output(),
        },
        connections=[
            ("filling.out", "solver.filling"),
            ("solids.out", "solver.solids"),
            ("solver.Liquid/Surface", "surface.in"),
        ],
    )
    for target, name, label, minimum, maximum in (
        ("solver/Liquid/Honey.voxel_size", "resolution", "Resolution (voxel size)", 2.0e-4, 0.1),
        ("solver/Liquid/Viscosity.viscosity", "viscosity", "Viscosity", 0.0, 1.0e6),
        ("solver/Liquid/Source.velocity", "velocity", "Velocity", -10.0, 10.0),
        ("solver/Liquid/GravityForce.acceleration", "gravity", "Gravity", -100.0, 100.0),
        ("solver/Liquid/Surface.smoothing", "smoothing", "Smoothness", 0, 10),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a pipe above the floor, and the part of its inside that is kept full."""
    filling = turned([(0.0, MIDDLE), (INSIDE, MIDDLE), (INSIDE, UPPER), (0.0, UPPER)])
    solids = turned([(INSIDE, LOWER), (OUTSIDE, LOWER), (OUTSIDE, UPPER), (INSIDE, UPPER)])
    return {"filling": filling, "solids": solids}
