"""Hair on a head that looks around, in gusts of wind that it slows down in turn (paper, Figure 4).

The hair is a Group of its own, and so is the wind; what spans the two are the Behaviors of the
root: gravity, the drag and the pressure by which they meet, and the head in their way. The wind
lives in a narrow band of Buckets around the hair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loki_core.constraints.bending import BendingConstraint
from loki_core.constraints.collision import CollisionConstraint
from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.stretching import StretchingConstraint
from loki_core.data.curves import Curves
from loki_core.data.surface import Surface
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.keyframes import Keyframes
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.solids.curves import CurvesObject
from loki_core.operators.coupled_buoyancy import CoupledBuoyancyOperator
from loki_core.operators.sag_free_start import SagFreeStart
from loki_core.solver_setup import Group, SolverSetup

from .groom import attached, groom, head_mesh, head_motion

FRAMES = 96

#: Gusts: time [s] and velocity of the air [m/s].
GUSTS = (
    (0.0, (0.0, 0.0, 0.0)),
    (0.8, (0.5, 0.0, -1.0)),
    (1.4, (3.0, 0.3, -4.0)),
    (2.0, (1.0, 0.0, -1.5)),
    (2.7, (4.5, 0.5, -3.0)),
    (3.4, (0.5, 0.0, -0.5)),
)


def build(
    strands: int = 3000, vertices: int = 20, voxel_size: float = 0.02, wind: float = 1.0
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        strands: Hairs on the head.
        vertices: Points of a hair.
        voxel_size: Edge of the wind's voxels [m].
        wind: Strength of the gusts; 1 has up to 5 m/s.
    """
    gusts = [(time, tuple(wind * component for component in speed)) for time, speed in GUSTS]
    hair = Group(
        "Hair",
        CurvesObject(name="Strands", input="hair"),
        StretchingConstraint(),
        BendingConstraint(damping_time=0.01),
        CollisionConstraint(friction_coefficient=0.3),
        SagFreeStart(),
    )
    air = Group(
        "Wind",
        VolumeObject(
            name="Air",
            voxel_size=voxel_size,
            around="Hair/Strands",
            padding=8,
            channels=(),
            ambient_velocity=Keyframes(gusts, interpolation="smooth"),
        ),
        PressureMaterial(),
    )
    setup = SolverSetup(
        "hair_in_wind",
        hair,
        air,
        GravityForce(),
        CoupledDragForce(),
        CoupledBuoyancyOperator(),
        Collider(name="Head", input="head", channels=("Cd?",)),
        substeps=4,
    )
    return setup, {"hair": moving_hair(strands, vertices), "head": moving_head()}


def moving_hair(strands: int, vertices: int) -> Callable[[int], Curves]:
    """Return hair whose roots follow the head, as a function of the frame."""
    start = groom(strands, vertices)

    def at(frame: int) -> Curves:
        return attached(start, head_motion(frame - 1))

    return at


def moving_head() -> Callable[[int], Surface]:
    """Return the head, as a function of the frame."""
    start = head_mesh()

    def at(frame: int) -> Surface:
        return attached(start, head_motion(frame - 1))  # type: ignore[arg-type, return-value]

    return at
