"""Water falls from a nozzle over statues, and is taken away where it has run off."""

from __future__ import annotations

from typing import Any

from loki_core.data.mesh import merge
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.liquid_sink import LiquidSink
from loki_core.operators.liquid_source import LiquidSource
from loki_core.operators.position_based_fluid import PositionBasedFluid
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import box_between, turned
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Idols"

#: Radius and height [m] of what is suggested: a figure, and what it stands on.
FIGURE = (
    (0.0, 0.19),
    (0.20, 0.19),
    (0.20, 0.25),
    (0.15, 0.28),
    (0.19, 0.45),
    (0.15, 0.60),
    (0.10, 0.66),
    (0.15, 0.74),
    (0.16, 0.85),
    (0.11, 0.96),
    (0.0, 1.0),
)
PLINTH = ((0.0, -0.1), (0.7, -0.1), (0.7, 0.0), (0.6, 0.05), (0.6, 0.2), (0.0, 0.2))
NOZZLE = ((0.0, 1.3), (0.10, 1.3), (0.10, 1.4), (0.0, 1.4))
DRAIN = ((-3.0, -1.0, -3.0), (3.0, -0.15, 3.0))


def build() -> Graph:
    """Return the graph."""
    water = Group(
        "Liquid",
        ParticleObject(name="Water", radius=0.0125),
        PositionBasedFluid(name="Fluid", surface_tension=0.3, viscosity=0.01),
        LiquidSource(name="Nozzle", source="nozzle", velocity=(0.0, -1.2, 0.0)),
        LiquidSink(name="Drain", source="drain"),
        Collider(name="Statues", input="statues", friction=0.05),
    )
    setup = SolverSetup("idols", water, GravityForce(), adaptive_substeps=True, max_substeps=16)
    graph = Graph(
        "idols",
        nodes={
            "nozzle": HostInput(type="surface"),
            "statues": HostInput(type="surface"),
            "drain": HostInput(type="surface"),
            "solver": SolverSetupNode(setup=setup),
            "water": Output(),
        },
        connections=[
            ("nozzle.out", "solver.nozzle"),
            ("statues.out", "solver.statues"),
            ("drain.out", "solver.drain"),
            ("solver.Liquid/Water", "water.in"),
        ],
    )
    for target, name, label, minimum, maximum in (
        ("solver/Liquid/Water.radius", "resolution", "Resolution (particle radius)", 1.0e-4, 1.0),
        ("solver/Liquid/Nozzle.velocity", "velocity", "Velocity of the nozzle", -30.0, 30.0),
        ("solver/Liquid/Nozzle.capacity", "capacity", "Most particles", 0, 100_000_000),
        ("solver/Liquid/Fluid.surface_tension", "tension", "Surface tension", 0.0, 10.0),
        ("solver/Liquid/Fluid.viscosity", "viscosity", "Viscosity", 0.0, 1000.0),
        ("solver/Liquid/Fluid.vorticity", "vorticity", "Vorticity", 0.0, 100.0),
        ("solver/Liquid/Statues.friction", "friction", "Friction of the statues", 0.0, 10.0),
        ("solver/GravityForce.acceleration", "gravity", "Gravity", -100.0, 100.0),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a figure on a plinth, a nozzle above it, and where water goes that has run off."""
    return {
        "nozzle": turned(list(NOZZLE)),
        "statues": merge([turned(list(FIGURE)), turned(list(PLINTH))]),
        "drain": box_between(*DRAIN),
    }
