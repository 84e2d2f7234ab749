"""A nozzle throws spray into the wind, which sorts its drops: the large fall near, mist drifts.

    m dv/dt = m g - phi(|v - u|) (v - u)

Drops of many sizes are born at the nozzle, and coalesce or break where they meet. They are dragged
by the wind u, a Volume Object, and drag it along: the jet makes a draught of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.constraints.pressure import PressureMaterial
from loki_core.data.points import Points
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.domain_boundary import DomainBoundary
from loki_core.operators.droplet_collisions import BinaryDropletCollisions
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.solver_setup import Group, SolverSetup

FRAMES = 96
VOXEL = 0.09  # m, of the air
BOX = ((-1.08, 0.0, -1.08), (4.68, 2.88, 1.08))  # m
DENSITY = 1000.0  # kg/m^3
#: What is new gets its size: the logarithms of radii are spread by b about that of a.
SIZES = """\
if size == 0.0:
    bell = sqrt(-2.0 * log(1.0 - rand(1))) * cos(2.0 * pi * rand(2))
    size = a * exp(b * clamp(bell, -2.5, 2.5))
    radius = size
    mass = 4.0 / 3.0 * pi * size ** 3 * c
"""


def build(
    rate: float = 50_000.0, radius: float = 0.0004, spread: float = 0.55, wind: float = 4.0
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        rate: Drops born in a second.
        radius: Of the drops in the middle [m].
        spread: Of the logarithm of radii; 0 has all alike.
        wind: Its speed [m/s].
    """
    spray = Group(
        "Spray",
        ParticleObject(
            name="Drops",
            source="nozzle",
            rate=rate,
            velocity_spread=0.8,
            radius=radius,
            density=DENSITY,
        ),
        ParticleExpression(
            name="Sizes",
            expression=SIZES,
            new_channels=("size",),
            stage="SUBSTEP_END",
            a=radius,
            b=spread,
            c=DENSITY,
        ),
        BinaryDropletCollisions(),
        GravityForce(),
    )
    air = Group(
        "Wind",
        VolumeObject(
            name="Air", voxel_size=VOXEL, region="box", channels=(), ambient_velocity=(wind, 0, 0)
        ),
        DomainBoundary(
            name="Inflow", sides=("x_lower",), condition="inflow", velocity=(wind, 0.0, 0.0)
        ),
        DomainBoundary(name="Ground", sides=("y_lower",), condition="slip"),
        PressureMaterial(),
    )
    setup = SolverSetup(
        "spray_in_wind",
        spray,
        air,
        CoupledDragForce(),
        substeps=4,
        domain_lower=BOX[0],
        domain_upper=BOX[1],
        boundary_lower=("open", "open", "open"),
        boundary_upper=("open", "open", "open"),
    )
    return setup, {"nozzle": nozzle()}


def nozzle(speed: float = 7.5, lean: float = -0.2) -> Points:
    """Return places on a small disc, with the velocity they throw at: up and against the wind."""
    random = np.random.default_rng(5)
    disc = random.normal(0.0, 0.012, (256, 3)) * (1.0, 0.0, 1.0)
    points = Points(disc + np.array((0.0, 0.25, 0.0)))
    throw = np.array([lean, 1.0, 0.0]) + random.normal(0.0, 0.09, (256, 3))
    throw /= np.linalg.norm(throw, axis=1)[:, None]
    pace = speed * (1.0 + 0.1 * random.standard_normal((256, 1)))
    points.set_channel("point", "velocity", pace * throw)
    return points
