"""A groom on a skin that moves: strands of six vertices, each attached by its root.

The streams are made anew for every frame, as those of files are; nothing else holds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import loki_core as lk

VERTICES = 6
QUADS = 64  # of the skin, along each side
DEEP = 2.0e-4  # where roots begin above the skin [m]


def groom(strands: int) -> tuple[lk.SolverSetup, dict[str, Any]]:
    """Return the Solver Setup of a groom of this many strands on a square metre, and its inputs."""
    hair = lk.Group(
        "Hair",
        lk.CurvesObject(input="hair", root="free"),
        lk.StretchingConstraint(),
        lk.BendingConstraint(),
        lk.AttachmentConstraint(
            source="Hair/CurvesObject",
            target="skin",
            range=1.0e-3,
            orientation_stiffness=(1.0e-4, 1.0e-4, 1.0e-4),
        ),
    )
    setup = lk.SolverSetup("groom", hair, lk.GravityForce(), substeps=1)
    return setup, {"hair": lambda frame: _hair(strands, frame), "skin": _skin}


def _hair(strands: int, frame: int) -> lk.Curves:
    rng = np.random.default_rng(0)
    root = np.zeros((strands, 1, 3))
    root[:, 0, ::2] = rng.random((strands, 2))
    root[:, 0, 1] = DEEP + _lift(frame)
    along = np.array([0.2, 1.0, 0.1]) + 0.2 * rng.standard_normal((strands, 1, 3))
    places = root + 0.01 * np.arange(VERTICES)[None, :, None] * along
    curves = lk.Curves(places.reshape(-1, 3), VERTICES * np.arange(strands + 1))
    attached = np.zeros((strands, VERTICES), np.uint8)
    attached[:, 0] = 1
    curves.set_channel("point", "attached", attached.reshape(-1))
    curves.set_channel("primitive", "clump", np.arange(strands, dtype=np.int32))
    return curves


def _skin(frame: int) -> lk.Surface:
    axis = np.linspace(-0.01, 1.01, QUADS + 1)
    x, z = np.meshgrid(axis, axis, indexing="ij")
    places = np.stack((x, np.full_like(x, _lift(frame)), z), axis=-1).reshape(-1, 3)
    first = (np.arange(QUADS)[:, None] * (QUADS + 1) + np.arange(QUADS)).reshape(-1)
    quads = np.stack((first, first + 1, first + QUADS + 2, first + QUADS + 1), axis=1)
    return lk.Surface.from_faces(places, quads.astype(np.int32))


def _lift(frame: int) -> float:
    """How high the skin is [m]."""
    return 0.0005 * (frame - 1)
