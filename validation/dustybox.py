"""Dusty box: particles and gas in a periodic box drag each other along (case 8.1).

Linear drag K between particles of mass m_p, one for each voxel, and a gas whose faces weigh m_f:

    w = v - u falls as exp(-K (1/m_p + 1/m_f) t),     v m_p + u m_f stays

Backward Euler of both together multiplies w by 1 / (1 + K (1/m_p + 1/m_f) h) in a step of length h.
Particles at random places have no common factor, but their momentum and the gas's is kept too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result

Float = NDArray[np.float64]

CASE = "dustybox"
FACTOR = (1.0e-6, 1.0e-9)  # thresholds: production, best in class
MOMENTUM = (1.0e-10, 1.0e-13)
CELLS, DENSITY = 16, 1.0
SPACING = 1.0 / CELLS  # m
FACE_MASS = DENSITY * SPACING**3  # kg
MASS_RATIO = 0.5  # of a particle and a face
STEP, STEPS = 0.01, 8  # s; steps of this length
START = np.array([1.0, 0.3, -0.2])  # m/s


def run() -> list[dict[str, Any]]:
    """Both strengths of drag, each with steps h and h / 2, and particles at random places."""
    results = []
    for strength in (0.1, 1.0):
        for substeps in (1, 2):
            slips, momenta = decay(strength, substeps)
            factors = slips[1:] / slips[:-1]
            exact = 1.0 / (1.0 + strength / substeps)
            error = float(np.max(np.abs(factors / exact - 1.0)))
            label = f"K h = {strength:g}, dt = h / {substeps}"
            worst = float(factors.reshape(-1)[np.argmax(np.abs(factors - exact))])
            name = f"factor of a step, {label}"
            results.append(_judged(name, worst, exact, error, FACTOR))
            results.append(_drift(momenta, label))
            # How far steps of this length are from the exponential, for information.
            decayed, limit = slips[-1, 0] / slips[0, 0], math.exp(-strength * STEPS)
            results.append(
                result(CASE, f"slip after {STEPS} h, {label}", decayed, limit, error=None)
            )
        _, momenta = decay(strength, 1, scattered=True)
        results.append(_drift(momenta, f"K h = {strength:g}, random places"))
    return results


def _drift(momenta: Float, label: str) -> dict[str, Any]:
    size = float(np.max(np.abs(momenta[0])))
    drift = float(np.max(np.abs(np.diff(momenta, axis=0)))) / size
    return _judged(f"drift of momentum a step, {label}", drift, 0.0, drift, MOMENTUM)


def _judged(
    name: str, value: float, reference: float, error: float, bounds: tuple[float, float]
) -> dict[str, Any]:
    return result(CASE, name, value, reference, error=error, production=bounds[0], best=bounds[1])


def decay(strength: float, substeps: int, *, scattered: bool = False) -> tuple[Float, Float]:
    """Slip [steps + 1, 3] m/s and momentum [steps + 1, 3] kg m/s of dust in gas at rest.

    Args:
        strength: K h (1/m_p + 1/m_f).
        substeps: Parts of a step h.
        scattered: Whether particles are at random places, with random velocities.
    """
    mass = MASS_RATIO * FACE_MASS
    drag = strength / (STEP * (1.0 / mass + 1.0 / FACE_MASS))
    setup = loki.SolverSetup(
        CASE,
        loki.Group("Dust", loki.ParticleObject(input="dust")),
        loki.Group(
            "Gas",
            loki.VolumeObject(
                voxel_size=SPACING,
                region="box",
                channels=(),
                density=DENSITY,
                velocity_scheme="none" if scattered else "maccormack",
            ),
            loki.PressureMaterial(tolerance=1e-12),
        ),
        loki.CoupledDragForce(law="linear", coefficient=drag),
        precision="double",
        frames_per_second=substeps / STEP,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=("periodic",) * 3,
        boundary_upper=("periodic",) * 3,
    )
    solver = loki.Solver(setup, {"dust": _dust(mass, scattered=scattered)})
    slips, momenta = [], []
    for step in range(STEPS * substeps + 1):
        if step:
            solver.run(1)
        velocity = solver.read("Dust/ParticleObject", "velocity")
        flow = np.moveaxis(solver.read("Gas/VolumeObject", "velocity"), 1, -1).reshape(-1, 3)
        slips.append(_sum(velocity) / len(velocity) - _sum(flow) / len(flow))
        momenta.append(mass * _sum(velocity) + FACE_MASS * _sum(flow))
    return np.array(slips), np.array(momenta)


def _dust(mass: float, *, scattered: bool) -> loki.Points:
    """One particle for each voxel: at the same place in each, or anywhere."""
    rng = np.random.default_rng(1)
    axis = (np.arange(CELLS) + 0.5) * SPACING
    places = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    places += SPACING * np.array([0.06, 0.15, 0.21])
    velocity = np.tile(START, (len(places), 1))
    if scattered:
        places = rng.random(places.shape)
        velocity += 0.2 * rng.standard_normal(velocity.shape)
    dust = loki.Points(places)
    dust.set_channel("point", "velocity", velocity)
    dust.set_channel("point", "mass", np.full(len(places), mass))
    return dust


def _sum(values: Float) -> Float:
    """Sum of rows [n, 3], exactly rounded: drift is not to be that of the summation."""
    return np.array([math.fsum(column) for column in values.T])
