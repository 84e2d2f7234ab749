"""Grass grows on the ground and bows before gusts of wind."""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.constraints.bending import BendingConstraint
from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.stretching import StretchingConstraint
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.solids.curves import CurvesObject
from loki_core.operators.sag_free_start import SagFreeStart
from loki_core.operators.turbulence import TurbulenceForce
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.graph import Graph
from loki_graph.nodes.curves_from_mesh import CurvesFromMesh
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.shape_source import unit_grid
from loki_graph.nodes.solver_setup import SolverSetupNode
from loki_graph.templates.hair_in_wind import grown_to

LABEL = "Grass"

WIDTH = 2.0  # m, of the ground that is suggested


def build() -> Graph:
    """Return the graph."""
    grass = Group(
        "Grass",
        CurvesObject(
            name="Blades",
            input="grass",
            density=600.0,
            aspect=0.2,
            young_modulus=7.0e8,
            shear_modulus=2.5e8,
        ),
        StretchingConstraint(),
        BendingConstraint(damping_time=0.02),
        SagFreeStart(),
    )
    wind = Group(
        "Wind",
        VolumeObject(
            name="Air",
            voxel_size=0.12,
            around="Grass/Blades",
            padding=4,
            channels=(),
            ambient_velocity=(2.5, 0.0, 0.5),
        ),
        PressureMaterial(),
        TurbulenceForce(acceleration=10.0, scale=0.9, octaves=2, time_scale=0.8),
    )
    setup = SolverSetup(
        "grass",
        grass,
        wind,
        GravityForce(),
        CoupledDragForce(
            law="quadratic",
            normal_coefficient=grown_to(1.5),
            tangential_coefficient=grown_to(0.02),
        ),
        substeps=2,
    )
    graph = Graph(
        "grass",
        nodes={
            "ground": HostInput(type="surface"),
            "growth": CurvesFromMesh(
                count=5000,
                vertices=8,
                length=0.35,
                length_variation=0.55,
                root_radius=1.5e-3,
                tip_radius=2.0e-4,
                direction=(1.0, -0.5, 0.2),
                lean=0.05,
                bend=0.4,
                spread=0.3,
                clumping=0.1,
                clump_size=12,
            ),
            "solver": SolverSetupNode(setup=setup),
            "grass": Output(),
        },
        connections=[
            ("ground.out", "growth.in"),
            ("growth.out", "solver.grass"),
            ("solver.Grass/Blades", "grass.in"),
        ],
    )
    for target, name, label, minimum, maximum in (
        ("growth.count", "blade_count", "Blade count", 1, 1_000_000),
        ("growth.length", "height", "Height", 0.01, 3.0),
        ("growth.length_variation", "variation", "Variation", None, None),
        ("growth.bend", "bend", "Bend", None, None),
        ("solver/Grass/Blades.young_modulus", "stiffness", "Stiffness", 1.0e6, 1.0e11),
        ("solver/Grass/BendingConstraint.damping_time", "damping", "Damping", None, 0.2),
        ("solver/Wind/Air.ambient_velocity", "wind", "Wind", -30.0, 30.0),
        ("solver/Wind/TurbulenceForce.acceleration", "gusts", "Gusts", None, 200.0),
        ("solver/Wind/TurbulenceForce.scale", "gust_size", "Gust size", 0.05, 10.0),
        ("solver/Wind/Air.voxel_size", "wind_detail", "Wind resolution", 0.02, 1.0),
    ):
        graph = graph.expose(target, name=name, label=label, minimum=minimum, maximum=maximum)
    return graph


def suggested_inputs() -> dict[str, Any]:
    """Return two metres of gently hilly ground."""
    ground = unit_grid(40, 40)
    place = WIDTH * ground.positions
    x, z = place[:, 0], place[:, 2]
    place[:, 1] = 0.05 * np.sin(2.1 * x + 0.7) * np.cos(1.7 * z) + 0.015 * np.sin(4.3 * x - 3.1 * z)
    ground.positions = place
    return {"ground": ground}
