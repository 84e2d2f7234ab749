"""A braid swings from a support that is carried along an arc and then stops.

    C = |x_source - x_target| - L       between neighbouring strands, found once at the start

Attachments hold the strands of the plies together, and the thread of the tie to them, which is a
strand of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.constraints.attachment import AttachmentConstraint
from loki_core.constraints.bending import BendingConstraint
from loki_core.constraints.stretching import StretchingConstraint
from loki_core.data.curves import Curves
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.solids.curves import CurvesObject
from loki_core.operators.sag_free_start import SagFreeStart
from loki_core.solver_setup import Group, SolverSetup

from .braid import TIE_HEIGHT, TIE_RADIUS, TIE_THICKNESS, braid

FRAMES = 72

PIVOT = (0.0, 0.35, 0.0)  # m: the middle of the arc
REST, TRAVEL = 0.2, 1.0  # s before the support moves, and for how long it does
ANGLE = 40.0  # degrees of the arc
TIE_COLOR = (0.35, 0.02, 0.03)  # linear


def build(
    strands_per_ply: int = 40, vertices: int = 60, reach: float = 0.0015
) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        strands_per_ply: Strands of each of three plies.
        vertices: Points of a strand.
        reach: Distance [m] within which strands hold each other.
    """
    hair = Group(
        "Braid",
        CurvesObject(name="Strands", input="braid"),
        CurvesObject(name="Tie", input="tie", root="free", radius=0.0002, density=900.0),
        StretchingConstraint(),
        BendingConstraint(damping_time=0.01),
        AttachmentConstraint(
            name="Weave",
            source="Braid/Strands",
            target="Braid/Strands",
            emission="within_range",
            range=reach,
            flexibility=0.5,
            stiffness=0.02,
            damping_time=0.005,
        ),
        AttachmentConstraint(
            name="Knot",
            source="Braid/Tie",
            target="Braid/Strands",
            emission="within_range",
            range=2.5 * reach,
            stiffness=0.1,
            damping_time=0.005,
        ),
        SagFreeStart(),
    )
    setup = SolverSetup("braid_swing", hair, GravityForce(), FluidDragForce(), substeps=4)
    return setup, {"braid": carried(braid(strands_per_ply, vertices)), "tie": thread()}


def carried(start: Curves) -> Callable[[int], Curves]:
    """Return strands whose roots follow the support, as a function of the frame."""

    def at(frame: int) -> Curves:
        return start.transformed(support((frame - 1) / 24.0))

    return at


def support(time: float) -> np.ndarray:
    """Return the rigid transform [4, 4] of the support: it sets off and stops without a jerk."""
    x = float(np.clip((time - REST) / TRAVEL, 0.0, 1.0))
    angle = np.radians(ANGLE) * x**3 * (10.0 - 15.0 * x + 6.0 * x * x)
    cosine, sine = np.cos(angle), np.sin(angle)
    transform = np.eye(4)
    transform[:2, :2] = (cosine, -sine), (sine, cosine)
    transform[:3, 3] = np.array(PIVOT) - transform[:3, :3] @ np.array(PIVOT)
    return transform


def thread(turns: int = 6, vertices: int = 120) -> Curves:
    """Return the tie: an elastic thread that is wound around the end of the braid."""
    turn = np.linspace(0.0, 2.0 * np.pi * turns, vertices)
    height = np.linspace(-TIE_THICKNESS, TIE_THICKNESS, vertices) - TIE_HEIGHT
    points = np.stack((TIE_RADIUS * np.cos(turn), height, TIE_RADIUS * np.sin(turn)), axis=1)
    curves = Curves.from_strands([points])
    curves.set_channel("primitive", "Cd", np.array([TIE_COLOR]))
    return curves
