"""Lengths of edges that a long step turns: what is stretch, and what is only the step's own error.

A step that moves an edge e by d changes its length by t . d to first order; that is what the solve
balanced. The rest, |e + d| - t . (e + d), is of second order and has no bound: an edge that is
blown across by metres in one linear step would be metres long. A strand with much of it is rebuilt:
its edges keep their new directions and take the lengths of first order, from the prescribed point
on, or about the centre of mass. Between two prescribed points what is missing at the second is
shared out. The strand is then an iterate from which the next solve finds the forces.
"""

from __future__ import annotations

from loki_core.kernels.basics.vec3 import dot3, load3
from loki_core.kernels.jit import device, parallel_kernel, prange
from loki_core.kernels.solids.rod_frames import direction, edge_vector

SHORTEST = 0.5  # of its length before: a step that turns an edge does not crush it


@device
def note_edges(
    first, count, begin, end, tangent, length, rest_length, pinned, longest, position, work
):
    """Write the wanted length and the direction of a strand's edges; 1 if any is too long."""
    overshot = 0
    for edge in range(begin, end):
        vertex = first + edge - begin
        after = first + (edge - begin + 1) % count
        vector = edge_vector(position, first, vertex, count)
        wanted = max(dot3(load3(tangent, edge), vector), SHORTEST * length[edge])
        along, size = direction(vector, load3(tangent, edge))
        moves = pinned[vertex] == 0 or pinned[after] == 0
        if moves and size > longest * max(wanted, rest_length[edge]):
            overshot = 1
        work[edge, 0] = wanted
        work[edge, 1], work[edge, 2], work[edge, 3] = along[0], along[1], along[2]
    return overshot


@device
def rebuild(first, count, begin, is_closed, start, pinned, work, axis, position):
    """Put edges of the wanted lengths together along one axis, from the vertex `start` on."""
    last = start + count if is_closed else count - 1  # where the way from there ends
    if not is_closed:
        for local in range(start - 1, -1, -1):
            step = work[begin + local, 0] * work[begin + local, 1 + axis]
            position[first + local, axis] = position[first + local + 1, axis] - step
    run = start  # where the present run of free vertices begins
    for local in range(start, last):
        edge = begin + local % count
        here, after = first + local % count, first + (local + 1) % count
        reached = position[here, axis] + work[edge, 0] * work[edge, 1 + axis]
        if pinned[after] == 1 or local + 1 == start + count:
            missing = (position[after, axis] - reached) / (local + 1 - run)
            for between in range(run + 1, local + 1):
                position[first + between % count, axis] += missing * (between - run)
            run = local + 1
        else:
            position[after, axis] = reached


@parallel_kernel
def keep_lengths(
    offsets, edge_offsets, closed, tangent, length, rest_length, mass, pinned, longest, rate, work,
    position, velocity, overshot,
):  # fmt: skip
    """Take second-order stretch out of strands that have too much of it.

    Args: tangent [e, 3], length [e]: of edges before the step; longest: length over that of first
        order, beyond which a strand is rebuilt; rate: velocity over displacement [1/s]; work [e, 4]
        is scratch; overshot uint8 [strands]: which strands were rebuilt.
    """
    for strand in prange(offsets.shape[0] - 1):
        first, count = offsets[strand], offsets[strand + 1] - offsets[strand]
        begin, end = edge_offsets[strand], edge_offsets[strand + 1]
        overshot[strand] = note_edges(
            first, count, begin, end, tangent, length, rest_length, pinned, longest, position, work
        )
        if overshot[strand] == 0:
            continue
        start = 0  # the first prescribed vertex
        while start < count and pinned[first + start] == 0:
            start += 1
        is_free = start == count
        for axis in range(3):
            whole, before, now = 0.0, 0.0, 0.0
            for vertex in range(first, first + count):
                whole += mass[vertex]
                before += mass[vertex] * position[vertex, axis]
                velocity[vertex, axis] -= rate * position[vertex, axis]
            rebuild(
                first, count, begin, closed[strand] == 1, 0 if is_free else start, pinned, work,
                axis, position,
            )  # fmt: skip
            for vertex in range(first, first + count):
                now += mass[vertex] * position[vertex, axis]
            for vertex in range(first, first + count):
                if is_free:  # its momentum is its own
                    position[vertex, axis] += (before - now) / whole
                velocity[vertex, axis] += rate * position[vertex, axis]
