"""The Taylor-Green vortices in a periodic box, through a Solver Setup: a slab one Bucket thick.

u = sin x cos y e^(-2 nu t),     v = -cos x sin y e^(-2 nu t),     KE = KE0 e^(-4 nu t)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

LENGTH = 2.0 * np.pi


def start_velocity(n: int) -> NDArray[np.float64]:
    """Velocity on the faces of n x n x 8 voxels, shape [3, n, n, 8]."""
    h = LENGTH / n
    face, centre = np.arange(n) * h, (np.arange(n) + 0.5) * h
    velocity = np.zeros((3, n, n, 8))
    velocity[0] = (np.sin(face)[:, None] * np.cos(centre)[None])[..., None]
    velocity[1] = (-np.cos(centre)[:, None] * np.sin(face)[None])[..., None]
    return velocity


def run_vortices(
    n: int, *, courant: float, viscosity: float = 0.0, seconds: float = 5.0, **options: Any
) -> NDArray[np.float64]:
    """Velocity [3, n, n] after some time, by default settings of the Volume Object."""
    h = LENGTH / n
    steps = math.ceil(seconds / (courant * h))
    materials: list[loki.Behavior] = [loki.PressureMaterial()]
    if viscosity:
        materials.append(loki.ViscosityMaterial(viscosity=viscosity))
    sides = ("periodic",) * 3
    setup = loki.SolverSetup(
        "vortices",
        loki.VolumeObject(
            name="Gas",
            voxel_size=h,
            input="start",
            region="box",
            density=1.0,
            channels=(),
            **options,
        ),
        *materials,
        precision="double",
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(LENGTH, LENGTH, 8.0 * h),
        boundary_lower=sides,
        boundary_upper=sides,
        frames_per_second=1.0 / seconds,
        substeps=steps,
    )
    start = loki.Voxels.from_dense(
        {"velocity": start_velocity(n)}, (0.0, 0.0, 0.0), h, location="face"
    )
    solver = loki.Solver(setup, {"start": start})
    solver.run(1)
    written: NDArray[np.float64] = solver.outputs()["Gas"].to_dense("velocity")[..., 0]
    return written
