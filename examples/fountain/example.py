"""A ring of jets throws glowing drops upward; a vortex of wind twists them into a spiral.

    m dv/dt = m g - phi(|v - u|) (v - u),     u(x) a vortex about the y axis

Drops are emitted, dragged along by a voxel field, age and die; an expression lets them cool.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.solver_setup import Group, SolverSetup

FRAMES = 72
JETS = 7
COOLING = """\
fade = age / a
heat = clamp(exp(-fade) * (0.75 + 0.25 * length(velocity) / b), 0.0, 1.0)
"""


def build(rate: float = 26000.0, swirl: float = 8.0) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        rate: Drops emitted in a second.
        swirl: Largest speed of the vortex [m/s].
    """
    fountain = Group(
        "Fountain",
        ParticleObject(
            name="Drops",
            source="nozzles",
            rate=rate,
            velocity_spread=0.3,
            lifetime=1.75,
            lifetime_variation=0.35,
            radius=0.003,
            density=55.0,
        ),
        FluidDragForce(field="wind"),
        ParticleExpression(
            name="Cooling",
            expression=COOLING,
            new_channels=("heat",),
            stage="SUBSTEP_END",
            a=1.1,
            b=10.0,
        ),
    )
    setup = SolverSetup(
        "fountain",
        fountain,
        GravityForce(),
        substeps=2,
        domain_lower=(-6.0, 0.0, -6.0),
        domain_upper=(6.0, 6.0, 6.0),
        boundary_lower=("open", "wall", "open"),
    )
    return setup, {"nozzles": nozzles(), "wind": vortex(swirl)}


def nozzles(radius: float = 0.3, speed: float = 13.0, lean: float = 0.2) -> Points:
    """Return the jets: points on small discs around a ring, with the velocity they throw at."""
    random = np.random.default_rng(7)
    angle = 2.0 * np.pi * np.repeat(np.arange(JETS), 64) / JETS
    outward = np.stack((np.cos(angle), np.zeros_like(angle), np.sin(angle)), axis=1)
    disc = random.normal(0.0, 0.012, (len(angle), 3)) * (1.0, 0.0, 1.0)
    points = Points(radius * outward + disc + (0.0, 0.05, 0.0))
    throw = outward * lean + (0.0, 1.0, 0.0)
    points.set_channel("point", "velocity", speed * throw / np.linalg.norm(throw, axis=1)[:, None])
    return points


def vortex(swirl: float, voxel_size: float = 0.125) -> Voxels:
    """Return the wind: a swirl about the y axis that grows with height, inflow and an updraught."""
    shape = (56, 48, 56)
    x, y, z = np.meshgrid(
        *((np.arange(n) + 0.5) * voxel_size for n in shape), indexing="ij", sparse=True
    )
    half = 0.5 * shape[0] * voxel_size
    x, z = x - half, z - half
    distance = np.sqrt(x * x + z * z)
    core = 0.7  # radius of the fastest wind [m]
    profile = 2.0 * distance / core / (1.0 + (distance / core) ** 2)
    grown = profile * np.clip(y / 1.5, 0.0, 1.0)
    tangential, inward = swirl * grown, 0.45 * swirl * grown
    over = np.where(distance > 0.0, 1.0 / np.maximum(distance, 1e-9), 0.0)
    velocity = np.stack(
        np.broadcast_arrays(
            (-tangential * z - inward * x) * over,
            0.35 * swirl * np.exp(-((distance / 1.2) ** 2)),
            (tangential * x - inward * z) * over,
        )
    )
    return Voxels.from_dense(
        {"velocity": velocity.astype(np.float32)}, (-half, 0.0, -half), voxel_size
    )
