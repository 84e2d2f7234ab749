"""Drops of water leave a nozzle, fly in the wind and fall."""

from __future__ import annotations

from typing import Any

from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import unit_disc
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Fountain"

DISC = 0.12  # m across, of the nozzle that is suggested


def build() -> Graph:
    """Return the graph."""
    water = Group(
        "Water",
        ParticleObject(
            name="Drops",
            source="nozzle",
            rate=20_000.0,
            normal_speed=6.0,
            velocity_spread=0.7,
            lifetime=1.25,
            lifetime_variation=0.15,
            radius=0.003,
        ),
        FluidDragForce(),
    )
    setup = SolverSetup("fountain", water, GravityForce(), substeps=2)
    graph = Graph(
        "fountain",
        nodes={
            "nozzle": HostInput(type="mesh"),
            "solver": SolverSetupNode(setup=setup),
            "drops": Output(),
        },
        connections=[("nozzle.out", "solver.nozzle"), ("solver.Water/Drops", "drops.in")],
    )
    for target, name, label, minimum, maximum in (
        ("solver/Water/Drops.rate", "rate", "Rate", None, 1.0e6),
        ("solver/Water/Drops.normal_speed", "speed", "Speed", -100.0, 100.0),
        ("solver/Water/Drops.velocity", "throw", "Throw", -100.0, 100.0),
        ("solver/Water/Drops.velocity_spread", "spread", "Spread", None, 50.0),
        ("solver/Water/Drops.lifetime", "lifetime", "Lifetime", None, 60.0),
        ("solver/Water/Drops.radius", "drop_radius", "Drop size", 1.0e-4, 0.1),
        ("solver/Water/FluidDragForce.velocity", "wind", "Wind", -30.0, 30.0),
        ("solver/GravityForce.acceleration", "gravity", "Gravity", -100.0, 100.0),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a disc that faces up."""
    disc = unit_disc(32)
    disc.positions = DISC * disc.positions
    return {"nozzle": disc}
