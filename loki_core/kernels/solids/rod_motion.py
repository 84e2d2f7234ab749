"""Motion of rods: the start of a step, what prescribed points do, and a Newton correction."""

from __future__ import annotations

import math

from loki_core.kernels.jit import parallel_kernel, prange


@parallel_kernel
def begin_vertices(
    pinned, animated, before, after, part, dt, position, velocity, start_position, start_velocity
):
    """Keep positions and velocities at t; guess those at t + dt.

    Args: pinned uint8 [n]; before, after [n, 3]: prescribed places at the frame's two ends, or
        anything if not animated; part: how much of the frame is over at t + dt.
    """
    for n in prange(position.shape[0]):
        for axis in range(3):
            x = position[n, axis]
            v = velocity[n, axis]
            start_position[n, axis] = x
            start_velocity[n, axis] = v
            if pinned[n] == 1:
                goal = x
                if animated == 1:
                    goal = (1.0 - part) * before[n, axis] + part * after[n, axis]
                position[n, axis] = goal
                velocity[n, axis] = (goal - x) / dt
            else:
                position[n, axis] = x + dt * v


@parallel_kernel
def begin_edges(pinned, goal, dt, angle, angular_velocity, start_angle, start_angular_velocity):
    """Keep angles at t; prescribed edges turn to their goal [n], others on as they did."""
    for n in prange(angle.shape[0]):
        start_angle[n] = angle[n]
        start_angular_velocity[n] = angular_velocity[n]
        if pinned[n] == 1:
            angular_velocity[n] = (goal[n] - angle[n]) / dt
            angle[n] = goal[n]
        else:
            angle[n] += dt * angular_velocity[n]


@parallel_kernel
def displace_rods(
    change, fraction, rate, particle_dof, edge_dof, position, velocity, angle, angular_velocity
):
    """Add a part of the correction [size] to places, and its rate [1/s] to velocities."""
    for n in prange(particle_dof.shape[0]):
        first = particle_dof[n]
        for axis in range(3):
            position[n, axis] += fraction * change[first + axis]
            velocity[n, axis] += rate * change[first + axis]
    for n in prange(edge_dof.shape[0]):
        angle[n] += fraction * change[edge_dof[n]]
        angular_velocity[n] += rate * change[edge_dof[n]]


@parallel_kernel
def add_edges(
    edge_dof, offset, inertia, angular_velocity, start_angular_velocity, dt, fixed, row, rhs, values
):
    """Add the rotational inertia of edges to the joint system."""
    for n in prange(edge_dof.shape[0]):
        i = edge_dof[n] + offset
        if fixed[i] == 0:
            rhs[i] -= inertia[n] * (angular_velocity[n] - start_angular_velocity[n]) / dt
            values[row[i] + i] += inertia[n] / (dt * dt)


@parallel_kernel
def vertex_filaments(tangent, rest_length, offsets, edge_offsets, along, length):
    """Write the direction [n, 3] and length [n] of the filament that each vertex stands for."""
    for strand in prange(offsets.shape[0] - 1):
        first, count = offsets[strand], offsets[strand + 1] - offsets[strand]
        for edge in range(edge_offsets[strand], edge_offsets[strand + 1]):
            local = edge - edge_offsets[strand]
            for side in range(2):
                vertex = first + (local + side) % count
                length[vertex] += 0.5 * rest_length[edge]
                for axis in range(3):
                    along[vertex, axis] += tangent[edge, axis]
        for vertex in range(first, first + count):
            size = math.sqrt(along[vertex, 0] ** 2 + along[vertex, 1] ** 2 + along[vertex, 2] ** 2)
            for axis in range(3):
                along[vertex, axis] /= max(size, 1e-300)
