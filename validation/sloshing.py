"""First standing wave in a tank 1 m long and 0.5 m deep: its frequency and what is left of it.

    omega^2 = g k tanh(k H),  k = pi / L,     omega (1 - (k a)^2 / 8) at amplitude a

The particles of the flat pool start displaced as in the linear wave, at rest, amplitude 0.01 L. The
amplitude is found from the particles' mean x: a wave eta = a cos kx moves it by -2 a / (k^2 L H).
Adaptive substeps at CFL 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._liquids import GRAVITY, lattice, slab, written
from ._report import result

Array = NDArray[np.float64]

RESOLUTIONS = (32, 64)
LENGTH, DEPTH, AMPLITUDE = 1.0, 0.5, 0.01  # m
WAVE = np.pi / LENGTH
OMEGA = float(np.sqrt(GRAVITY * WAVE * np.tanh(WAVE * DEPTH)) * (1 - (WAVE * AMPLITUDE) ** 2 / 8))
PERIODS = 5
FRAMES_PER_SECOND = 48.0


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS,
    transfers: tuple[str, ...] = ("apic", "flip", "pic"),
    periods: int = PERIODS,
) -> list[dict[str, Any]]:
    """Run at each resolution; only the default transfer, apic, is judged."""
    results = []
    for transfer in transfers:
        for n in resolutions:
            times, amplitudes = wave(n, transfer, periods)
            frequency = zero_crossing_frequency(times, amplitudes)
            kept = left_after(periods, times, amplitudes)
            judged = transfer == "apic"
            limits = {"production": 0.02, "best": 0.005} if judged else {}
            exact = OMEGA / (2.0 * np.pi)
            metric = f"frequency [Hz], n = {n}, {transfer}"
            results.append(
                result("sloshing", metric, frequency, exact, error=abs(frequency / exact - 1.0),
                       **limits)
            )  # fmt: skip
            limits = {"production": 0.70, "best": 0.95} if judged else {}
            metric = f"amplitude left after {periods} periods, n = {n}, {transfer}"
            results.append(result("sloshing", metric, kept, 1.0, lower_is_better=False, **limits))
            results[-1]["curves"] = {
                "n": n,
                "transfer": transfer,
                "times": times,
                "amplitudes": amplitudes,
                "omega": OMEGA,
            }
    return results


def wave(n: int, transfer: str, periods: int) -> tuple[Array, Array]:
    """Times [s] and amplitudes [m], for half a period more than asked."""
    h = LENGTH / n
    lower, upper = (0.0, 0.0), (LENGTH, LENGTH)
    solver = slab(
        displaced(lattice(lower, (LENGTH, DEPTH), h)), loki.GravityForce(),
        voxel_size=h, lower=lower, upper=upper, transfer=transfer,
        frames_per_second=FRAMES_PER_SECOND, adaptive_substeps=True,
    )  # fmt: skip
    times, amplitudes = [], []
    for _ in range(int((periods + 0.5) * 2.0 * np.pi / OMEGA * FRAMES_PER_SECOND) + 2):
        places, _ = written(solver)
        times.append(solver.time)
        amplitudes.append((0.5 * LENGTH - places[:, 0].mean()) * LENGTH * DEPTH * WAVE**2 / 2.0)
        solver.run(1)
    return np.array(times), np.array(amplitudes)


def displaced(places: Array) -> Array:
    """Move the particles of a flat pool to where the linear wave has them at its turning point."""
    x, y, z = places.T
    across = AMPLITUDE * np.cosh(WAVE * y) / np.sinh(WAVE * DEPTH) * np.sin(WAVE * x)
    up = AMPLITUDE * np.sinh(WAVE * y) / np.sinh(WAVE * DEPTH) * np.cos(WAVE * x)
    return np.stack((x - across, y + up, z), axis=-1)


def zero_crossing_frequency(times: Array, values: Array) -> float:
    """Frequency of a wave [Hz] from the first to the last time that it is zero."""
    at = np.flatnonzero(values[:-1] * values[1:] < 0.0)
    part = values[at] / (values[at] - values[at + 1])
    zeros = times[at] + part * (times[at + 1] - times[at])
    return float(0.5 * (len(zeros) - 1) / (zeros[-1] - zeros[0]))


def left_after(periods: int, times: Array, values: Array) -> float:
    """Amplitude over that at the start: of the sine that fits the period around its last peak."""
    frequency = 2.0 * np.pi * zero_crossing_frequency(times, values)
    near = np.abs(frequency * times / (2.0 * np.pi) - periods) < 0.5
    angle = frequency * times[near]
    waves = np.stack((np.cos(angle), np.sin(angle)), axis=-1)
    fitted = np.linalg.lstsq(waves, values[near], rcond=None)[0]
    return float(np.hypot(*fitted) / abs(values[0]))
