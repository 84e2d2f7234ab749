"""A fountain of idols: water falls on a group of stone figures and runs off their plinth.

The water is a Position-Based Fluid in unbounded space. A Liquid Source keeps a nozzle above the
idols full, a Liquid Sink takes away what has run off, so after some seconds as many particles go as
come (Alduan, Tena & Otaduy 2015, Figure 10).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.liquid_sink import LiquidSink
from loki_core.operators.liquid_source import LiquidSource
from loki_core.operators.position_based_fluid import PositionBasedFluid
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import box_between, turned

from .statues import idols, plinth

FRAMES = 96
NOZZLE = ((0.16, 1.62), (0.16, 1.72))  # m, radius and height of its ends
DRAIN = ((-4.0, -1.0, -4.0), (4.0, -0.12, 4.0))


def build(
    spacing: float = 0.018, speed: float = 1.2, surface_tension: float = 0.3
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        spacing: Of the particles [m].
        speed: Of the water in the nozzle [m/s].
        surface_tension: How strongly the water holds together.
    """
    water = Group(
        "Water",
        ParticleObject(name="Particles", radius=spacing * float(np.cbrt(0.75 / np.pi))),
        PositionBasedFluid(surface_tension=surface_tension),
        LiquidSource(name="Nozzle", source="nozzle", velocity=(0.0, -speed, 0.0)),
        LiquidSink(name="Drain", source="drain"),
        Collider(name="Idols", input="idols", friction=0.05),
        Collider(name="Plinth", input="plinth", friction=0.05),
    )
    setup = SolverSetup("idols", water, GravityForce(), adaptive_substeps=True, max_substeps=16)
    (inside, lower), (_, upper) = NOZZLE
    return setup, {
        "nozzle": turned([(0.0, lower), (inside, lower), (inside, upper), (0.0, upper)]),
        "drain": box_between(*DRAIN),
        "idols": idols(),
        "plinth": plinth(),
    }
