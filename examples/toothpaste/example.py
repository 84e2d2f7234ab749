"""From water to toothpaste: the same ball of fluid falls on the same object, four times.

Between lanes only `viscosity` of the Position-Based Fluid differs: XSPH in as many parts as are
stable, so no time step has to be shortened for paste (Alduan, Tena & Otaduy 2015, Figure 2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.data.mesh import merge
from loki_core.data.surface import Surface
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.position_based_fluid import PositionBasedFluid
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import turned, unit_sphere

FRAMES = 60
#: Names of the lanes, viscosities, and how rough solids are to the fluid: thick ones stick.
LANES = (
    ("Water", 0.01, 0.0),
    ("Oil", 2.0, 0.05),
    ("Cream", 20.0, 0.4),
    ("Toothpaste", 200.0, 1.5),
)
WIDTH = 1.3  # m, of a lane
BALL, HEIGHT = 0.26, 0.95  # m, radius of the ball of fluid, and where it begins
ASIDE = (0.025, 0.0, 0.04)  # m, of the ball from the middle of its lane
BULLET = 0.15  # m, radius of what it falls on
FLOOR = -0.1  # m
DISH = ((0.0, FLOOR), (0.46, FLOOR), (0.58, 0.02), (0.60, 0.15), (0.55, 0.15), (0.50, 0.0))


def build(spacing: float = 0.022, substeps: int = 6) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        spacing: Of the particles [m].
        substeps: Of a frame; viscosity acts once in each.
    """
    radius = spacing * float(np.cbrt(0.75 / np.pi))
    lanes = [
        Group(
            name,
            ParticleObject(name="Particles", input=name.lower(), radius=radius),
            PositionBasedFluid(viscosity=viscosity, surface_tension=0.3, friction=friction),
            Collider(name="Solids", input="solids", friction=friction),
        )
        for name, viscosity, friction in LANES
    ]
    setup = SolverSetup(
        "toothpaste",
        *lanes,
        GravityForce(),
        substeps=substeps,
        domain_lower=(-10.0, FLOOR, -10.0),
        domain_upper=(10.0, 10.0, 10.0),
        boundary_lower=("open", "wall", "open"),
    )
    middles = {name: WIDTH * (k - 0.5 * (len(LANES) - 1)) for k, (name, *_) in enumerate(LANES)}
    balls = {name.lower(): ball(x) for name, x in middles.items()}
    return setup, {**balls, "solids": merge([bullet(x) for x in middles.values()])}


def ball(x: float) -> Surface:
    """Return the fluid of a lane at the start."""
    surface = unit_sphere(32, 20)
    surface.positions = 2.0 * BALL * surface.positions + (x, HEIGHT, 0.0) + np.array(ASIDE)
    return surface


def bullet(x: float) -> Surface:
    """Return a bullet that stands in a dish."""
    angle = np.linspace(0.0, 0.5 * np.pi, 13)[:-1]
    tip = [(float(BULLET * np.cos(a)), float(0.26 + 0.30 * np.sin(a))) for a in angle]
    surface = turned([*DISH, (BULLET, 0.0), *tip, (0.0, 0.56)])
    surface.positions = surface.positions + np.array((x, 0.0, 0.0))
    return surface
