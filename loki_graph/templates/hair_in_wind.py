"""Hair grows on a head, moves with it, and blows in a wind that it slows down."""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.constraints.bending import BendingConstraint
from loki_core.constraints.collision import CollisionConstraint
from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.stretching import StretchingConstraint
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.keyframes import Keyframes
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.solids.curves import CurvesObject
from loki_core.operators.sag_free_start import SagFreeStart
from loki_core.operators.turbulence import TurbulenceForce
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.curves_from_mesh import CurvesFromMesh
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import unit_sphere
from loki_graph.nodes.solver_setup import SolverSetupNode

LABEL = "Hair in wind"

HEAD_RADIUS, HEAD_HEIGHT = 0.12, 1.5  # m
CALM = 0.5  # s in which the wind sets in: the hair is combed in still air
HAIRLINE = 0.0  # m above the middle of the head, at the ears


def build() -> Graph:
    """Return the graph."""
    hair = Group(
        "Hair",
        CurvesObject(name="Strands", input="hair"),
        StretchingConstraint(),
        BendingConstraint(young_modulus=5.0e8, shear_modulus=2.0e8, damping_time=0.01),
        CollisionConstraint(friction_coefficient=0.3, edge_samples=0, passes=2),
        SagFreeStart(),
    )
    wind = Group(
        "Wind",
        VolumeObject(
            name="Air",
            voxel_size=0.05,
            around="Hair/Strands",
            padding=4,
            channels=(),
            ambient_velocity=(0.6, 0.0, -2.2),
        ),
        PressureMaterial(),
        TurbulenceForce(acceleration=15.0, scale=0.3, time_scale=0.6),
    )
    setup = SolverSetup(
        "hair_in_wind",
        hair,
        wind,
        GravityForce(),
        CoupledDragForce(
            law="quadratic",
            normal_coefficient=grown_to(2.5),
            tangential_coefficient=grown_to(0.05),
        ),
        Collider(name="Head", input="head"),
        substeps=3,
    )
    graph = Graph(
        "hair_in_wind",
        nodes={
            "head": HostInput(type="surface"),
            "groom": CurvesFromMesh(
                count=4000,
                vertices=16,
                length=0.25,
                length_variation=0.25,
                lean=0.55,
                bend=1.0,
                spread=0.15,
                clumping=0.5,
                curl_radius=0.008,
                clearance=0.003,
                root_radius=2.5e-4,
                tip_radius=6.0e-5,
            ),
            "solver": SolverSetupNode(setup=setup),
            "hair": Output(),
        },
        connections=[
            ("head.out", "groom.in"),
            ("groom.out", "solver.hair"),
            ("head.out", "solver.head"),
            ("solver.Hair/Strands", "hair.in"),
        ],
    )
    for target, name, label, minimum, maximum in (
        ("groom.count", "hair_count", "Hair count", 1, 100_000),
        ("groom.length", "length", "Length", 0.01, 1.0),
        ("groom.lean", "lean", "Lie flat", None, None),
        ("groom.clumping", "clumping", "Clumping", None, None),
        ("groom.curl_radius", "curl", "Curl", None, 0.05),
        ("solver/Hair/BendingConstraint.young_modulus", "stiffness", "Stiffness", 1.0e7, 1.0e11),
        ("solver/Hair/BendingConstraint.damping_time", "damping", "Damping", None, 0.2),
        ("solver/Wind/Air.ambient_velocity", "wind", "Wind", -30.0, 30.0),
        ("solver/Wind/TurbulenceForce.acceleration", "gusts", "Gusts", None, 200.0),
        ("solver/Wind/Air.voxel_size", "wind_detail", "Wind resolution", 0.01, 0.2),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def grown_to(value: float) -> Any:
    """Return keyframes from nothing to a value while the wind sets in."""
    return Keyframes([(0.0, 0.0), (CALM, value)], interpolation="smooth")


def suggested_inputs() -> dict[str, Any]:
    """Return a ball for a head that looks along z, with hair above a line from brow to nape."""
    head = unit_sphere(48, 32)
    place = 2.0 * HEAD_RADIUS * head.positions
    above = place[:, 1] - 0.5 * place[:, 2] - HAIRLINE
    head.set_channel("point", "density", np.clip(above / 0.02, 0.0, 1.0).astype(np.float32))
    head.positions = place + np.array((0.0, HEAD_HEIGHT, 0.0))
    return {"head": head}
