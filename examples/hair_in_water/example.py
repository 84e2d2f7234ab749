"""Weed in a tank floats up, and a ball that swings through the water drags it along.

Weed and water are Groups of their own, as hair and wind are in `hair_in_wind`; the same Behaviors
of the root let them meet: the Coupled Drag Force, by which each slows the other down, and Coupled
Buoyancy, which lifts what is lighter than water. Above the surface neither acts: weed that comes
out of it falls back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.constraints.bending import BendingConstraint
from loki_core.constraints.collision import CollisionConstraint
from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.stretching import StretchingConstraint
from loki_core.data.curves import Curves
from loki_core.data.surface import Surface
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.objects.solids.curves import CurvesObject
from loki_core.operators.coupled_buoyancy import CoupledBuoyancyOperator
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import box_between, unit_sphere

FRAMES = 96
TANK = (1.28, 0.72, 0.64)  # m
LEVEL = 0.56  # of the water
RADIUS = 0.09  # of the ball [m]
REST = 0.75  # s in which the weed floats up before the ball moves
PERIOD = 2.2  # s in which it swings to and fro


def build(
    strands: int = 400, vertices: int = 24, voxel_size: float = 0.04, density: float = 500.0
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        strands: Stems of weed.
        vertices: Points of a stem.
        voxel_size: Edge of the water's voxels [m].
        density: Of the weed [kg/m^3]; below 1000 it floats.
    """
    weed = Group(
        "Weed",
        CurvesObject(name="Stems", input="weed", density=density),
        StretchingConstraint(young_modulus=2.0e7),
        BendingConstraint(young_modulus=2.0e6, shear_modulus=8.0e5, damping_time=0.02),
        CollisionConstraint(friction_coefficient=0.2),
    )
    water = Group(
        "Water",
        HybridObject(name="Particles", voxel_size=voxel_size, input="water"),
        PressureMaterial(),
        LiquidSurface(name="Surface"),
    )
    setup = SolverSetup(
        "hair_in_water",
        weed,
        water,
        GravityForce(),
        CoupledDragForce(),
        CoupledBuoyancyOperator(),
        Collider(name="Ball", input="ball"),
        substeps=2,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=TANK,
        boundary_lower=("wall", "wall", "wall"),
        boundary_upper=("wall", "open", "wall"),
    )
    inputs = {
        "weed": leaning_weed(strands, vertices),
        "ball": swinging_ball(),
        "water": box_between((0.0, 0.0, 0.0), (TANK[0], LEVEL, TANK[2])),
    }
    return setup, inputs


def leaning_weed(strands: int, vertices: int) -> Curves:
    """Return stems in tufts on the floor of the tank, that lie over to one side."""
    random = np.random.default_rng(8)
    tufts = random.uniform((0.15, 0.0, 0.1), (TANK[0] - 0.3, 0.0, TANK[2] - 0.1), (14, 3))
    tuft = random.integers(0, len(tufts), strands)
    roots = tufts[tuft] + 0.035 * random.standard_normal((strands, 3)) * (1.0, 0.0, 1.0)
    roots = np.clip(roots, (0.04, 0.0, 0.04), (TANK[0] - 0.2, 0.0, TANK[2] - 0.04))
    roots[:, 1] = 0.005
    length = random.uniform(0.28, 0.5, strands)
    aside = random.normal(0.0, 0.5, strands)
    along = np.linspace(0.0, 1.0, vertices)
    angle = 1.35 * along**0.5 * random.uniform(0.8, 1.0, strands)[:, None]  # from upright
    step = length[:, None] / (vertices - 1)
    across = np.stack((np.cos(aside), np.zeros(strands), np.sin(aside)), axis=1)
    way = np.sin(angle)[..., None] * across[:, None] + np.cos(angle)[..., None] * (0.0, 1.0, 0.0)
    places = (
        roots[:, None] + np.cumsum(step[..., None] * way, axis=1) - step[..., None] * way[:, :1]
    )
    lower, upper = np.full(3, 0.01), np.array(TANK) - 0.01
    curves = Curves.from_strands(np.clip(places, lower, upper))
    taper = 1.8e-3 * (1.0 - 0.75 * along**2)
    curves.set_channel("point", "radius", np.tile(taper, strands))
    curves.set_channel("primitive", "id", np.arange(strands, dtype=np.int64))
    return curves


def swinging_ball() -> Callable[[int], Surface]:
    """Return a ball that swings along the tank, as a function of the frame."""

    def at(frame: int) -> Surface:
        time = max((frame - 1) / 24.0 - REST, 0.0)
        begun = min(time / 0.5, 1.0) ** 2
        swing = np.cos(2.0 * np.pi * time / PERIOD) if time > 0.0 else 1.0
        ball = unit_sphere(32, 16)
        middle = 0.5 * TANK[0] + 0.42 * (begun * swing + (1.0 - begun)), 0.26, 0.5 * TANK[2]
        ball.positions = 2.0 * RADIUS * ball.positions + np.array(middle)
        return ball

    return at
