"""A thin jet fills a glass, with surface tension."""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.liquid_source import LiquidSource
from loki_core.operators.smoothed_particle_fluid import SmoothedParticleFluid
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import turned
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Wine"

#: Radius and height [m] of what is suggested: a tumbler, and the jet above it.
TUMBLER = (
    (0.0, 0.0),
    (0.034, 0.0),
    (0.040, 0.090),
    (0.036, 0.090),
    (0.0305, 0.012),
    (0.024, 0.006),
    (0.0, 0.006),
)
SPOUT = ((0.0, 0.12), (0.005, 0.12), (0.005, 0.13), (0.0, 0.13))
ASIDE = 0.012  # m, of the jet from the axis


def build() -> Graph:
    """Return the graph."""
    wine = Group(
        "Liquid",
        ParticleObject(name="Wine", radius=0.00125, density=990.0),
        SmoothedParticleFluid(
            name="Fluid", surface_tension=0.05, contact_angle=1.05, viscosity=1.5e-6
        ),
        LiquidSource(name="Bottle", source="spout", velocity=(0.0, -0.5, 0.0)),
        Collider(name="Glass", input="glass"),
    )
    setup = SolverSetup(
        "wine",
        wine,
        GravityForce(),
        adaptive_substeps=True,
        max_substeps=200,
        domain_lower=(-10.0, 0.0, -10.0),
        domain_upper=(10.0, 20.0, 10.0),
        boundary_lower=("open", "wall", "open"),
    )
    graph = Graph(
        "wine",
        nodes={
            "spout": HostInput(type="surface"),
            "glass": HostInput(type="surface"),
            "solver": SolverSetupNode(setup=setup),
            "wine": Output(),
        },
        connections=[
            ("spout.out", "solver.spout"),
            ("glass.out", "solver.glass"),
            ("solver.Liquid/Wine", "wine.in"),
        ],
    )
    for target, name, label, minimum, maximum in (
        ("solver/Liquid/Wine.radius", "resolution", "Resolution (particle radius)", 1.0e-4, 0.1),
        ("solver/Liquid/Bottle.velocity", "velocity", "Velocity of the jet", -10.0, 10.0),
        ("solver/Liquid/Bottle.capacity", "capacity", "Most particles", 0, 100_000_000),
        ("solver/Liquid/Fluid.surface_tension", "tension", "Surface tension", 0.0, 1.0),
        ("solver/Liquid/Fluid.contact_angle", "contact_angle", "Contact angle", 0.0, 3.14),
        ("solver/Liquid/Fluid.viscosity", "viscosity", "Viscosity", 0.0, 1.0),
        ("solver/GravityForce.acceleration", "gravity", "Gravity", -100.0, 100.0),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a tumbler, and where the jet begins above it."""
    spout = turned(list(SPOUT), 24)
    spout.positions = spout.positions + np.array((ASIDE, 0.0, 0.0))
    return {"spout": spout, "glass": turned(list(TUMBLER))}
