"""Rayleigh-Taylor growth: heavy gas above light gas, one wave of the interface.

Linear theory for a small wave of number k that starts from rest: a(t) = a0 cosh(sigma t) with
sigma = sqrt(At g k). The heavier gas is marked by the density channel, whose unit adds 2 At of the
gas's own density. The amplitude is the cosine coefficient of the columns' content; sigma is the
slope of arcosh(a / a0) against t while k a < 0.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result

RESOLUTIONS = (64, 128)
ATWOOD, GRAVITY, AMPLITUDE = 0.1, 9.81, 0.002
WAVE_NUMBER = 2.0 * np.pi
FRAME = 0.05  # seconds
SUBSTEPS = 4


def run(resolutions: tuple[int, ...] = RESOLUTIONS) -> list[dict[str, Any]]:
    """Fit the growth rate at each resolution."""
    exact = float(np.sqrt(ATWOOD * GRAVITY * WAVE_NUMBER))
    results = []
    for n in resolutions:
        times, amplitudes = growing_wave(n)
        rate = growth_rate(times, amplitudes)
        one = result(
            "rayleigh_taylor", f"growth rate [1/s], n = {n}", rate, exact,
            error=abs(rate / exact - 1.0), production=0.15, best=0.05,
        )  # fmt: skip
        one["curves"] = {"n": n, "times": times, "amplitudes": amplitudes, "rate": exact}
        results.append(one)
    return results


def growing_wave(n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times [s] and amplitudes [m] of the wave with n voxels across it, while it is small."""
    h = 1.0 / n
    setup = loki.SolverSetup(
        "rayleigh_taylor",
        loki.VolumeObject(
            name="Gas", voxel_size=h, input="start", region="box", density=1.0,
            channels=("density",),
        ),
        loki.PressureMaterial(),
        loki.BuoyancyForce(smoke_density=2.0 * ATWOOD, acceleration=(0.0, -GRAVITY, 0.0)),
        domain_lower=(0.0, -1.0, 0.0),
        domain_upper=(1.0, 1.0, 8.0 * h),
        boundary_lower=("periodic", "wall", "periodic"),
        boundary_upper=("periodic", "wall", "periodic"),
        frames_per_second=1.0 / FRAME,
        substeps=SUBSTEPS,
    )  # fmt: skip
    solver = loki.Solver(setup, {"start": _start(n)})
    times, amplitudes = [0.0], [_amplitude(_columns(n))]
    while WAVE_NUMBER * amplitudes[-1] < 0.2 and len(times) < 200:
        solver.run(1)
        written = solver.outputs()["Gas"].to_dense("density")[0, :, :, 0].astype(np.float64)
        times.append(solver.time)
        amplitudes.append(_amplitude(written))
    return np.array(times), np.array(amplitudes)


def growth_rate(times: NDArray[np.float64], amplitudes: NDArray[np.float64]) -> float:
    """Growth rate of the wave [1/s]: the slope of arcosh(a / a0) where it is steady."""
    growth = np.arccosh(np.maximum(1.0, amplitudes / amplitudes[0]))
    kept = (amplitudes * WAVE_NUMBER < 0.2) & (growth > 0.5)
    slope, _ = np.polyfit(times[kept], growth[kept], 1)
    return float(slope)


def _columns(n: int) -> NDArray[np.float64]:
    """Heavy gas above the wave: coverage of n x 2n voxels."""
    x = (np.arange(n) + 0.5) / n
    surface = AMPLITUDE * np.cos(WAVE_NUMBER * x)
    lower = np.arange(2 * n) / n - 1.0
    covered: NDArray[np.float64] = np.clip((lower[None] + 1.0 / n - surface[:, None]) * n, 0.0, 1.0)
    return covered


def _start(n: int) -> loki.Voxels:
    density = np.repeat(_columns(n)[..., None], 8, axis=2)
    return loki.Voxels.from_dense(density, (0.0, -1.0, 0.0), 1.0 / n)


def _amplitude(density: NDArray[np.float64]) -> float:
    """Amplitude of the interface [m], from the content of the columns."""
    n = density.shape[0]
    x = (np.arange(n) + 0.5) / n
    content = -density.sum(axis=1) / n  # a higher interface leaves less heavy gas above it
    return float(2.0 / n * np.sum(content * np.cos(WAVE_NUMBER * x)))
