"""Hot smoke comes out of an object, rises, rolls and fades."""

from __future__ import annotations

from typing import Any

from loki_core.constraints.pressure import PressureMaterial
from loki_core.forces.buoyancy import BuoyancyForce
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.dissipation import DissipationOperator
from loki_core.operators.turbulence import TurbulenceForce
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.operators.vorticity_confinement import VorticityConfinementOperator
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import unit_sphere
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Smoke plume"

BALL = 0.3  # m across, of the source that is suggested
HEIGHT = 0.3  # m above the ground, of its middle


def build() -> Graph:
    """Return the graph."""
    smoke = Group(
        "Smoke",
        VolumeObject(name="Plume", voxel_size=0.025, padding=8, reflection=True),
        PressureMaterial(),
        BuoyancyForce(),
        VolumeEmission(
            name="Source",
            source="source",
            density=1.0,
            temperature=600.0,
            strength=0.8,
            inherit_velocity=1.0,
        ),
        VorticityConfinementOperator(strength=0.15),
        TurbulenceForce(acceleration=3.0, scale=0.3, time_scale=0.5, masked_by="density"),
        DissipationOperator(name="Fade", rate=0.6),
        DissipationOperator(name="Cooling", channels=("temperature",), rate=0.8),
    )
    setup = SolverSetup("smoke_plume", smoke, substeps=1)
    graph = Graph(
        "smoke_plume",
        nodes={
            "source": HostInput(type="surface"),
            "solver": SolverSetupNode(setup=setup),
            "smoke": Output(),
        },
        connections=[("source.out", "solver.source"), ("solver.Smoke/Plume", "smoke.in")],
    )
    for target, name, label, minimum, maximum in (
        ("solver/Smoke/Source.density", "smoke", "Smoke", 0.0, 100.0),
        ("solver/Smoke/Source.temperature", "heat", "Heat", 200.0, 3000.0),
        ("solver/Smoke/Plume.ambient_velocity", "wind", "Wind", -30.0, 30.0),
        ("solver/Smoke/TurbulenceForce.acceleration", "turbulence", "Turbulence", None, 100.0),
        ("solver/Smoke/TurbulenceForce.scale", "turbulence_size", "Turbulence size", 0.02, 5.0),
        ("solver/Smoke/VorticityConfinementOperator.strength", "curl", "Curl", 0.0, 2.0),
        ("solver/Smoke/Fade.rate", "fade", "Fade", None, 20.0),
        ("solver/Smoke/Cooling.rate", "cooling", "Cooling", None, 20.0),
        ("solver/Smoke/Plume.voxel_size", "resolution", "Resolution (voxel size)", 0.005, 1.0),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a ball just above the ground."""
    ball = unit_sphere(32, 16)
    ball.positions = BALL * ball.positions + (0.0, HEIGHT, 0.0)
    return {"source": ball}
