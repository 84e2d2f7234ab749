"""What the rod cases share: straight strands, coming to rest, and free vibration."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

Float = NDArray[np.float64]


def straight(length: float, segments: int) -> Float:
    """Points of a strand along x whose first edge is the clamp: the rod begins at x = 0, [n, 3]."""
    points = np.zeros((segments + 2, 3))
    points[:, 0] = (np.arange(segments + 2) - 1) * (length / segments)
    return points


def settle(solver: loki.Solver, path: str, loads: Float, *, tolerance: float, most: int) -> Float:
    """Run until strands of equal size are at rest; returns the unbalanced force over the load.

    Backward Euler without other damping: what is not balanced accelerates, f = m dv / h. A strand
    that creeps counts as unbalanced too, by the force that would stop it within a step.
    """
    mass = solver.read(path, "mass")
    step = solver.settings.frame_duration / solver.settings.substeps
    before = solver.read(path, "velocity")
    left = np.full(len(loads), np.inf)
    for _ in range(most):
        solver.advance_frame()
        velocity = solver.read(path, "velocity")
        lost = np.maximum(abs(velocity - before), abs(velocity)).max(axis=1)
        left = (mass * lost / step).reshape(len(loads), -1).sum(axis=1) / loads
        before = velocity
        if np.all(left < tolerance):
            break
    return left


def modulus_and_angle(samples: Float) -> tuple[float, float]:
    """|z| and arg z [rad] of a decaying vibration: samples of a z^n + conjugate, at equal steps."""
    system = np.stack((samples[1:-1], samples[:-2]), axis=1)
    (sum_of_roots, minus_product), *_ = np.linalg.lstsq(system, samples[2:], rcond=None)
    modulus = float(np.sqrt(-minus_product))
    return modulus, float(np.arccos(0.5 * sum_of_roots / modulus))


def backward_euler(omega_h: float, tau_omega: float = 0.0) -> tuple[float, float]:
    """|z| and arg z of one step of a damped oscillator, tau_omega = tau omega = 2 zeta.

    (1 + tau k h / m + k h^2 / m) z^2 - (2 + tau k h / m) z + 1 = 0
    """
    damping = tau_omega * omega_h
    root = np.roots([1.0 + damping + omega_h**2, -(2.0 + damping), 1.0])[0]
    return float(abs(root)), float(abs(np.angle(root)))


def orders(errors: Any) -> list[float]:
    """log2 of successive ratios: the order of convergence when the resolution doubles."""
    return [float(np.log2(a / b)) for a, b in pairwise(errors)]


def critical(grows: Callable[[Float], NDArray[np.bool_]], low: float, high: float) -> float:
    """Load at which disturbances begin to grow, to 1/100 of the range.

    Loads that cut the range in ten are tried side by side, so two rounds do what bisection does in
    seven.
    """
    for _ in range(2):
        loads = np.linspace(low, high, 11)
        unstable = grows(loads)
        if unstable[0] or not unstable[-1]:
            raise ValueError(f"disturbances do not begin to grow between {low:g} and {high:g}")
        at = int(np.argmax(unstable))
        low, high = float(loads[at - 1]), float(loads[at])
    return 0.5 * (low + high)


def grows(
    solver: loki.Solver,
    path: str,
    disturbance: Callable[[Float], Float],
    *,
    frames: int,
    most: float,
) -> NDArray[np.bool_]:
    """Whether the disturbances of strands of equal size, side by side, grow instead of dying.

    Those that pass `most` have grown; of the others, those that are larger in the last quarter of
    the time than in the second.
    """
    beyond, sizes = watch(solver, path, disturbance, frames=frames, most=most)
    quarter = frames // 4
    early, late = sizes[quarter : 2 * quarter].max(axis=0), sizes[3 * quarter :].max(axis=0)
    grown: NDArray[np.bool_] = beyond | (late > early)
    return grown


def watch(
    solver: loki.Solver,
    path: str,
    disturbance: Callable[[Float], Float],
    *,
    frames: int,
    most: float,
) -> tuple[NDArray[np.bool_], Float]:
    """Which strands of equal size, side by side, are ever disturbed by more than `most`.

    Such a one starts anew: what happens after buckling does not matter.

    Args: disturbance: from places [vertices, 3] to one number for each strand.

    Returns: Which have passed it, and all disturbances [frames, strands].
    """
    names = ("position", "velocity", "edges.angle", "edges.angular_velocity")
    start = {name: solver.read(path, name) for name in names}
    history: list[Float] = []
    beyond = np.zeros(len(disturbance(start["position"])), np.bool_)
    for _ in range(frames):
        solver.advance_frame()
        size = disturbance(solver.read(path, "position"))
        history.append(size)
        if np.any(size > most):
            beyond |= size > most
            for name in names:
                now = solver.read(path, name)
                rows = np.repeat(size > most, len(now) // len(size))
                now[rows] = start[name][rows]
                solver.write(path, name, now)
    return beyond, np.array(history)
