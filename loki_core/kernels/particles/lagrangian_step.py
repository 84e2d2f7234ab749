"""Backward Euler for particles that only Forces act on: a 3x3 system each.

    G(v) = m (v - v0) - dt f(x0 + dt v, v) = 0,     dG/dv = m I - dt^2 df/dx

with df/dx the total derivative in end-of-step positions (velocity dependence included, divided by
dt).
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import parallel_kernel, prange, strict_kernel


@parallel_kernel
def begin_step(velocity, dt, start_velocity, position):
    """Keep the velocity at t and move positions to the first guess x0 + dt v0."""
    for i in prange(velocity.shape[0]):
        for axis in range(3):
            start_velocity[i, axis] = velocity[i, axis]
            position[i, axis] += dt * velocity[i, axis]


@parallel_kernel
def solve_explicit(mass, force, start_velocity, dt, velocity, change):
    """Correct velocities by forces without Jacobians; change [n, 3] is the correction."""
    for i in prange(velocity.shape[0]):
        for axis in range(3):
            residual = dt * force[i, axis] - mass[i] * (velocity[i, axis] - start_velocity[i, axis])
            correction = residual / mass[i]
            change[i, axis] = correction
            velocity[i, axis] += correction


@parallel_kernel
def solve_implicit(mass, force, jacobian, start_velocity, dt, velocity, change):
    """Correct velocities by one Newton step of each particle's 3x3 system (Cramer's rule)."""
    for i in prange(velocity.shape[0]):
        m = np.float64(mass[i])
        h2 = dt * dt
        a00 = m - h2 * jacobian[i, 0, 0]
        a01 = -h2 * jacobian[i, 0, 1]
        a02 = -h2 * jacobian[i, 0, 2]
        a10 = -h2 * jacobian[i, 1, 0]
        a11 = m - h2 * jacobian[i, 1, 1]
        a12 = -h2 * jacobian[i, 1, 2]
        a20 = -h2 * jacobian[i, 2, 0]
        a21 = -h2 * jacobian[i, 2, 1]
        a22 = m - h2 * jacobian[i, 2, 2]
        b0 = dt * force[i, 0] - m * (velocity[i, 0] - start_velocity[i, 0])
        b1 = dt * force[i, 1] - m * (velocity[i, 1] - start_velocity[i, 1])
        b2 = dt * force[i, 2] - m * (velocity[i, 2] - start_velocity[i, 2])
        c00 = a11 * a22 - a12 * a21
        c01 = a12 * a20 - a10 * a22
        c02 = a10 * a21 - a11 * a20
        inverse = 1.0 / (a00 * c00 + a01 * c01 + a02 * c02)
        x0 = (b0 * c00 + b1 * (a02 * a21 - a01 * a22) + b2 * (a01 * a12 - a02 * a11)) * inverse
        x1 = (b0 * c01 + b1 * (a00 * a22 - a02 * a20) + b2 * (a02 * a10 - a00 * a12)) * inverse
        x2 = (b0 * c02 + b1 * (a01 * a20 - a00 * a21) + b2 * (a00 * a11 - a01 * a10)) * inverse
        change[i, 0] = x0
        change[i, 1] = x1
        change[i, 2] = x2
        velocity[i, 0] += x0
        velocity[i, 1] += x1
        velocity[i, 2] += x2


@parallel_kernel
def move_iterate(change, dt, position):
    """Positions follow the corrected velocities."""
    for i in prange(position.shape[0]):
        for axis in range(3):
            position[i, axis] += dt * change[i, axis]


@parallel_kernel
def keep_in_box(position, velocity, lower, upper, highest, wall_lower, wall_upper, alive):
    """Stop particles at walls; those beyond an open side die.

    Args: position, velocity [n, 3]; lower, upper [3] m, may be infinite; highest [3], the last
    numbers below `upper`, where a wall stops particles so that they stay in a Bucket of the box;
    wall_lower, wall_upper uint8 [3], 1 for a wall, 2 for a periodic side, else open; alive [n].
    """
    for i in prange(position.shape[0]):
        for axis in range(3):
            x = position[i, axis]
            if x < lower[axis] and wall_lower[axis] != 2:
                if wall_lower[axis] == 1:
                    position[i, axis] = lower[axis]
                    velocity[i, axis] = max(velocity[i, axis], 0.0)
                else:
                    alive[i] = False
            elif (x > highest[axis] and wall_upper[axis] == 1) or x > upper[axis]:
                if wall_upper[axis] == 2:
                    continue
                if wall_upper[axis] == 1:
                    position[i, axis] = highest[axis]
                    velocity[i, axis] = min(velocity[i, axis], 0.0)
                else:
                    alive[i] = False


@strict_kernel
def largest_speed(velocity):
    """Largest |v| [m/s]; NaN if any is not finite."""
    largest = 0.0
    for i in range(velocity.shape[0]):
        square = (
            np.float64(velocity[i, 0]) ** 2
            + np.float64(velocity[i, 1]) ** 2
            + np.float64(velocity[i, 2]) ** 2
        )
        if not math.isfinite(square):
            return math.nan
        largest = max(largest, square)
    return math.sqrt(largest)


@strict_kernel
def first_bad_row(position, velocity, maximum_speed, reach):
    """First row that is not finite, faster than allowed, or farther than reach [m]; or -1."""
    limit = maximum_speed * maximum_speed
    for i in range(position.shape[0]):
        square = 0.0
        for axis in range(3):
            square += np.float64(velocity[i, axis]) ** 2
            if not abs(position[i, axis]) < reach:  # NaN compares false
                return i
        if not (square <= limit):
            return i
    return -1
