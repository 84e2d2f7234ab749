"""A blob of anything from water to toothpaste falls on an object, by one viscosity."""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.position_based_fluid import PositionBasedFluid
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import turned, unit_sphere
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Toothpaste"

#: Radius and height [m] of what is suggested: a bullet in a dish.
BULLET = (
    (0.0, -0.10),
    (0.46, -0.10),
    (0.58, 0.02),
    (0.60, 0.15),
    (0.55, 0.15),
    (0.50, 0.0),
    (0.15, 0.0),
    (0.15, 0.26),
    (0.13, 0.41),
    (0.075, 0.52),
    (0.0, 0.56),
)
BLOB = (0.025, 0.95, 0.04)  # m, the middle of the blob
WIDTH = 0.52  # m


def build() -> Graph:
    """Return the graph."""
    paste = Group(
        "Liquid",
        ParticleObject(name="Paste", input="blob", radius=0.0155),
        PositionBasedFluid(name="Fluid", viscosity=200.0, surface_tension=0.3),
        Collider(name="Solids", input="solids", friction=1.5),
    )
    setup = SolverSetup(
        "toothpaste",
        paste,
        GravityForce(),
        substeps=6,
        domain_lower=(-100.0, -0.1, -100.0),
        domain_upper=(100.0, 100.0, 100.0),
        boundary_lower=("open", "wall", "open"),
    )
    graph = Graph(
        "toothpaste",
        nodes={
            "blob": HostInput(type="surface"),
            "solids": HostInput(type="surface"),
            "solver": SolverSetupNode(setup=setup),
            "paste": Output(),
        },
        connections=[
            ("blob.out", "solver.blob"),
            ("solids.out", "solver.solids"),
            ("solver.Liquid/Paste", "paste.in"),
        ],
    )
    for target, name, label, minimum, maximum in (
        ("solver/Liquid/Paste.radius", "resolution", "Resolution (particle radius)", 1.0e-4, 1.0),
        ("solver/Liquid/Fluid.viscosity", "viscosity", "Viscosity", 0.0, 1000.0),
        ("solver/Liquid/Fluid.surface_tension", "tension", "Surface tension", 0.0, 10.0),
        ("solver/Liquid/Fluid.iterations", "iterations", "Stiffness (iterations)", 1, 200),
        ("solver/Liquid/Solids.friction", "friction", "Friction of the solids", 0.0, 10.0),
        ("solver/GravityForce.acceleration", "gravity", "Gravity", -100.0, 100.0),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a blob above a bullet in a dish."""
    blob = unit_sphere(32, 20)
    blob.positions = WIDTH * blob.positions + np.array(BLOB)
    return {"blob": blob, "solids": turned(list(BULLET))}
