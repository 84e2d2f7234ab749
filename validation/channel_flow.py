"""Liquid that fills a channel between two plates: Poiseuille and Couette flow, from rest.

    u = g y (H - y) / (2 nu)        u = U y / H        slowest mode of the start-up: pi^2 nu / H^2

Plates hold the liquid while a Viscosity Material acts; a body force along the channel, or the upper
plate, drives it. Profiles are compared at the particles, which are in the middle of nowhere as seen
from the grid. The steady flow is found with two step lengths, since it must not depend on them. The
rate r of the start-up is that of backward Euler, in which viscosity is: log(1 + r dt) / dt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._liquids import DENSITY, lattice, slab, written
from ._report import result

Array = NDArray[np.float64]

RESOLUTIONS = (16, 32)
WIDTH, VISCOSITY, SPEED = 1.0, 0.1, 0.5  # m, m^2/s, m/s
RATE = np.pi**2 * VISCOSITY / WIDTH**2
STEADY_SECONDS = 12.0
STEADY_STEPS = (24, 48)  # a second
START_STEPS = 100  # a second
FLOWS = ("poiseuille", "couette")


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS,
    steady_steps: tuple[int, ...] = STEADY_STEPS,
    start_steps: int = START_STEPS,
) -> list[dict[str, Any]]:
    """Run both flows at each resolution."""
    results = []
    limits = {"production": 0.01, "best": 0.001}
    for flow in FLOWS:
        for n in resolutions:
            for steps in steady_steps:
                solver = channel(flow, n, steps)
                solver.run(round(STEADY_SECONDS * steps))
                places, velocity = written(solver)
                off = velocity[:, 0] - exact(flow, places[:, 1])
                metric = f"{flow}, largest error of the velocity, n = {n}, {steps} steps a second"
                error = float(np.abs(off).max()) / SPEED
                results.append(result("channel_flow", metric, error, 0.0, **limits))
            value = start_up_rate(flow, n, start_steps)
            metric = f"{flow}, rate of the start-up [1/s], n = {n}, {start_steps} steps a second"
            reference = start_steps * float(np.log1p(RATE / start_steps))
            error = abs(value / reference - 1.0)
            results.append(result("channel_flow", metric, value, reference, error=error, **limits))
    return results


def channel(flow: str, n: int, steps: int) -> loki.Solver:
    """Return the liquid at rest, and what sets it in motion."""
    h = WIDTH / n
    upper = (8.0 * h, WIDTH)
    drive: loki.Behavior
    if flow == "poiseuille":
        drive = loki.GravityForce(acceleration=(8.0 * VISCOSITY * SPEED / WIDTH**2, 0.0, 0.0))
    else:
        drive = loki.DomainBoundary(name="Plate", sides=("y_upper",), velocity=(SPEED, 0.0, 0.0))
    return slab(
        lattice((0.0, 0.0), upper, h), drive,
        loki.ViscosityMaterial(viscosity=VISCOSITY * DENSITY),
        voxel_size=h, lower=(0.0, 0.0), upper=upper, sides="channel",
        frames_per_second=float(steps),
    )  # fmt: skip


def exact(flow: str, y: Array) -> Array:
    """Steady velocity along the channel [m/s]."""
    part = y / WIDTH
    return SPEED * (4.0 * part * (1.0 - part) if flow == "poiseuille" else part)


def start_up_rate(flow: str, n: int, steps: int) -> float:
    """Rate [1/s] at which the flow's slowest mode, sin(pi y / H), comes to rest.

    From three moments a time constant apart, so that the steady flow need not be known.
    """
    solver = channel(flow, n, steps)
    frames, modes = round(steps / RATE), []
    for _ in range(3):
        solver.run(frames)
        places, velocity = written(solver)
        modes.append(float(np.mean(velocity[:, 0] * np.sin(np.pi * places[:, 1] / WIDTH))))
    return float(np.log((modes[1] - modes[0]) / (modes[2] - modes[1]))) * steps / frames
