"""Water springs from an object, falls over rocks, and is torn by the wind."""

from __future__ import annotations

from typing import Any

from loki_core.constraints.pressure import PressureMaterial
from loki_core.data.mesh import merge
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.operators.liquid_sink import LiquidSink
from loki_core.operators.liquid_source import LiquidSource
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import box_between
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Waterfall"

#: Corners [m] of what is suggested: a ledge between two banks with a basin below it.
ROCKS = (
    ((-1.61, -0.21, -0.61), (-0.43, 1.23, 0.61)),
    ((-1.61, 1.13, -0.61), (-0.49, 1.57, -0.33)),
    ((-1.61, 1.13, 0.33), (-0.49, 1.57, 0.61)),
    ((-1.61, 1.13, -0.61), (-1.43, 1.57, 0.61)),
    ((-0.53, -0.21, -0.61), (0.87, 0.03, 0.61)),
    ((-0.53, -0.11, -0.61), (0.87, 0.23, -0.47)),
    ((-0.53, -0.11, 0.47), (0.87, 0.23, 0.61)),
    ((0.73, -0.11, -0.61), (0.87, 0.13, 0.61)),
)
SPRING = ((-1.43, 1.23, -0.33), (-1.13, 1.38, 0.33))
DRAIN = ((-2.2, -1.2, -1.2), (2.2, -0.5, 1.2))


def build() -> Graph:
    """Return the graph."""
    water = Group(
        "Liquid",
        HybridObject(
            name="Water",
            voxel_size=0.05,
            transfer="affine_flip",
            flip_part=0.95,
            drop_radius=0.001,
        ),
        PressureMaterial(),
        LiquidSource(name="Spring", source="spring", velocity=(1.0, 0.0, 0.0), flux=0.12),
        LiquidSink(name="Drain", source="drain"),
        LiquidSurface(name="Surface"),
    )
    wind = Group(
        "Wind",
        VolumeObject(
            name="Air",
            voxel_size=0.1,
            around="Liquid/Water",
            padding=4,
            channels=(),
            ambient_velocity=(0.0, 0.0, 2.0),
        ),
        PressureMaterial(),
    )
    setup = SolverSetup(
        "waterfall",
        water,
        wind,
        GravityForce(),
        CoupledDragForce(),
        Collider(name="Rocks", input="rocks"),
        adaptive_substeps=True,
        max_substeps=16,
    )
    graph = Graph(
        "waterfall",
        nodes={
            "spring": HostInput(type="surface"),
            "rocks": HostInput(type="surface"),
            "drain": HostInput(type="surface"),
            "solver": SolverSetupNode(setup=setup),
            "surface": Output(),
        },
        connections=[
            ("spring.out", "solver.spring"),
            ("rocks.out", "solver.rocks"),
            ("drain.out", "solver.drain"),
            ("solver.Liquid/Surface", "surface.in"),
        ],
    )
    for target, name, label, minimum, maximum in (
        ("solver/Liquid/Water.voxel_size", "resolution", "Resolution (voxel size)", 0.005, 1.0),
        ("solver/Liquid/Spring.velocity", "velocity", "Velocity of the spring", -30.0, 30.0),
        ("solver/Liquid/Spring.flux", "flux", "Flux", 0.0, 1000.0),
        ("solver/Liquid/Water.flip_part", "splash", "Splashiness", 0.0, 1.0),
        ("solver/Liquid/Water.drop_radius", "drop_radius", "Radius of spray", 1.0e-5, 0.1),
        ("solver/Wind/Air.ambient_velocity", "wind", "Wind", -50.0, 50.0),
        ("solver/Wind/Air.voxel_size", "wind_detail", "Wind resolution", 0.01, 2.0),
        ("solver/Liquid/Surface.smoothing", "smoothing", "Smoothness", 0, 10),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return a spring on a ledge, a basin below it, and where water goes that leaves both."""
    return {
        "spring": box_between(*SPRING),
        "rocks": merge([box_between(*corners) for corners in ROCKS]),
        "drain": box_between(*DRAIN),
    }
