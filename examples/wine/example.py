"""Wine is poured into a glass: a thin jet, a splash, and a calm surface that rises.

At this scale surface tension matters, so the wine is a Smoothed Particle Fluid with that of water
and alcohol, which wets the glass (Alduan, Tena & Otaduy 2015, Figure 4).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.liquid_source import LiquidSource
from loki_core.operators.smoothed_particle_fluid import SmoothedParticleFluid
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import turned

from .glass import glass

FRAMES = 72
DENSITY = 990.0  # kg/m^3
JET = 0.004  # m, its radius
SPOUT = (0.166, 0.176)  # m, heights
AWAY = -0.012  # m, of the jet from the axis


def build(
    spacing: float = 0.002, speed: float = 1.0, surface_tension: float = 0.05
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        spacing: Of the particles [m].
        speed: Of the jet where it begins [m/s].
        surface_tension: Of the wine [N/m].
    """
    wine = Group(
        "Wine",
        ParticleObject(
            name="Particles", radius=spacing * float(np.cbrt(0.75 / np.pi)), density=DENSITY
        ),
        SmoothedParticleFluid(
            surface_tension=surface_tension,
            contact_angle=math.radians(60.0),
            viscosity=1.5e-6,
        ),
        LiquidSource(name="Bottle", source="spout", velocity=(0.0, -speed, 0.0)),
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
    lower, upper = SPOUT
    spout = turned([(0.0, lower), (JET, lower), (JET, upper), (0.0, upper)], 32)
    spout.positions = spout.positions + np.array((AWAY, 0.0, 0.0))
    return setup, {"spout": spout, "glass": glass()}
