"""A nozzle throws drops of many sizes into a wind, which sorts them and is dragged along."""

from __future__ import annotations

from typing import Any

from loki_core.constraints.pressure import PressureMaterial
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.droplet_collisions import BinaryDropletCollisions
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import unit_disc
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Spray in wind"

DISC = 0.05  # m across, of the nozzle that is suggested
#: What is new gets its size: the logarithms of radii [m] are spread by b about that of a.
SIZES = """\
if size == 0.0:
    bell = sqrt(-2.0 * log(1.0 - rand(1))) * cos(2.0 * pi * rand(2))
    size = a * exp(b * clamp(bell, -2.5, 2.5))
    radius = size
    mass = 4.0 / 3.0 * pi * size ** 3 * c
"""


def build() -> Graph:
    """Return the graph."""
    spray = Group(
        "Spray",
        ParticleObject(
            name="Drops",
            source="nozzle",
            rate=20_000.0,
            normal_speed=8.0,
            velocity_spread=1.5,
            lifetime=3.0,
            radius=0.0006,
        ),
        ParticleExpression(
            name="Sizes",
            expression=SIZES,
            new_channels=("size",),
            stage="SUBSTEP_END",
            a=0.0006,
            b=0.6,
            c=1000.0,
        ),
        BinaryDropletCollisions(),
        GravityForce(),
    )
    wind = Group(
        "Wind",
        VolumeObject(
            name="Air",
            voxel_size=0.15,
            around="Spray/Drops",
            padding=4,
            channels=(),
            ambient_velocity=(4.0, 0.0, 0.0),
        ),
        PressureMaterial(),
    )
    setup = SolverSetup("spray_in_wind", spray, wind, CoupledDragForce(), substeps=4)
    graph = Graph(
        "spray_in_wind",
        nodes={
            "nozzle": HostInput(type="mesh"),
            "solver": SolverSetupNode(setup=setup),
            "drops": Output(),
        },
        connections=[("nozzle.out", "solver.nozzle"), ("solver.Spray/Drops", "drops.in")],
    )
    for target, name, label, minimum, maximum in (
        ("solver/Spray/Drops.rate", "rate", "Rate", None, 1.0e6),
        ("solver/Spray/Drops.normal_speed", "speed", "Speed", -100.0, 100.0),
        ("solver/Spray/Drops.velocity", "throw", "Throw", -100.0, 100.0),
        ("solver/Spray/Drops.velocity_spread", "spread", "Spread", None, 50.0),
        ("solver/Spray/Drops.lifetime", "lifetime", "Lifetime", None, 60.0),
        ("solver/Spray/Sizes.a", "drop_radius", "Drop radius (m)", 1.0e-5, 0.1),
        ("solver/Spray/Sizes.b", "variety", "Variety of sizes", 0.0, 2.0),
        ("solver/Wind/Air.ambient_velocity", "wind", "Wind", -50.0, 50.0),
        ("solver/Wind/Air.voxel_size", "wind_detail", "Wind resolution", 0.01, 2.0),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a disc that faces up."""
    disc = unit_disc(32)
    disc.positions = DISC * disc.positions
    return {"nozzle": disc}
