"""Frames along strands: edge tangents, reference directors, their twist, material frames.

Discrete elastic rods give every edge a reference director d1, a unit vector across the edge's
tangent t (d2 = t × d1), and an angle theta that turns it into the material frame:

    m1 = cos(theta) d1 + sin(theta) d2,   m2 = -sin(theta) d1 + cos(theta) d2

References start parallel along the strand and are carried in time by the turn without twist from
the old tangent to the new one. What they then turn against each other is the reference twist of a
joint: the angle from the reference of the edge before, carried over the joint without twist, to
that of the edge after. The turn without twist that takes a to b acts on d across a as a reflection:

    d' = d - 2 (d·s) / (s·s) s,   s = a + b

Strands lie one after another. An open strand of k vertices has k - 1 edges, and joints at its k - 2
inner vertices; a closed one has k edges, the last from vertex k - 1 to vertex 0, and k joints, the
first between its last edge and its first. `offsets`, `edge_offsets` and `joint_offsets` hold the
first vertex, edge and joint of each strand, and one number more.

Bergou et al., "Discrete Elastic Rods" (2008) and "Discrete Viscous Threads" (2010).
"""

from __future__ import annotations

import math

from loki_core.kernels.basics.vec3 import add3, dot3, load3, norm3, scale3, sub3
from loki_core.kernels.jit import device, inlined, parallel_kernel, prange

SHORTEST_SQUARED = 1e-200  # an edge below this squared length has no direction of its own
REVERSED = 1e-24  # |a + b|² below which b is -a as far as numbers tell


@device
def cross3(a, b):
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@inlined
def store3(array, row, a):
    array[row, 0] = a[0]
    array[row, 1] = a[1]
    array[row, 2] = a[2]


@inlined
def edge_vector(x, first, vertex, vertex_count):
    """From a vertex to the next one of its strand; the last vertex goes back to the first."""
    after = vertex + 1
    if after == first + vertex_count:
        after = first
    return sub3(load3(x, after), load3(x, vertex))


@device
def direction(edge, otherwise):
    """(unit vector along an edge, its length); an edge of no length keeps another direction."""
    squared = dot3(edge, edge)
    if squared > SHORTEST_SQUARED:
        length = math.sqrt(squared)
        return scale3(edge, 1.0 / length), length
    return otherwise, 0.0


@device
def transport(d, a, b):
    """A director across a, turned with a to b without twist; about itself if b is -a."""
    s = add3(a, b)
    squared = dot3(s, s)
    if squared > REVERSED:
        return sub3(d, scale3(s, 2.0 * dot3(d, s) / squared))
    return d


@device
def straighten(d, t):
    """The director made a unit vector across t: rounding must not pile up over steps."""
    across = sub3(d, scale3(t, dot3(d, t)))
    return scale3(across, 1.0 / norm3(across))


@device
def perpendicular(t):
    """A unit vector across t: the axis that t is farthest from, made straight."""
    x, y, z = abs(t[0]), abs(t[1]), abs(t[2])
    if x <= y and x <= z:
        axis = (1.0, 0.0, 0.0)
    elif y <= z:
        axis = (0.0, 1.0, 0.0)
    else:
        axis = (0.0, 0.0, 1.0)
    return straighten(axis, t)


@device
def turn_between(t_before, d_before, t_after, d_after):
    """Angle in (-pi, pi] from one reference, carried over the joint, to the next one's."""
    carried = transport(d_before, t_before, t_after)
    return math.atan2(-dot3(carried, cross3(t_after, d_after)), dot3(carried, d_after))


@device
def material_directors(t, d, theta):
    """(m1, m2) of an edge."""
    cosine, sine = math.cos(theta), math.sin(theta)
    d2 = cross3(t, d)
    m1 = add3(scale3(d, cosine), scale3(d2, sine))
    m2 = sub3(scale3(d2, cosine), scale3(d, sine))
    return m1, m2


@inlined
def edges_of_joints(strand, edge_offsets, closed):
    """(edge before, edge after) of a strand's first joint; the others follow edge by edge."""
    first = edge_offsets[strand]
    if closed[strand]:
        return edge_offsets[strand + 1] - 1, first
    return first, first + 1


@parallel_kernel
def start_frames(x, offsets, edge_offsets, closed, tangent, length, reference):
    """Tangents, lengths and references that are parallel along each strand.

    An edge of no length takes the direction of the edge before it.
    """
    for strand in prange(offsets.shape[0] - 1):
        first = offsets[strand]
        vertex_count = offsets[strand + 1] - first
        edge_first = edge_offsets[strand]
        t = (1.0, 0.0, 0.0)
        d = (0.0, 1.0, 0.0)
        for local in range(edge_offsets[strand + 1] - edge_first):
            old = t
            t, size = direction(edge_vector(x, first, first + local, vertex_count), old)
            if local == 0:
                d = perpendicular(t)
            else:
                d = straighten(transport(d, old, t), t)
            edge = edge_first + local
            length[edge] = size
            store3(tangent, edge, t)
            store3(reference, edge, d)


@parallel_kernel
def move_frames(x, offsets, edge_offsets, closed, tangent, length, reference):
    """Tangents and lengths of the strands as they now lie, and the references carried along.

    `tangent` and `reference` come in as they were; an edge of no length keeps them.
    """
    for strand in prange(offsets.shape[0] - 1):
        first = offsets[strand]
        vertex_count = offsets[strand + 1] - first
        edge_first = edge_offsets[strand]
        for local in range(edge_offsets[strand + 1] - edge_first):
            edge = edge_first + local
            old = load3(tangent, edge)
            t, size = direction(edge_vector(x, first, first + local, vertex_count), old)
            d = straighten(transport(load3(reference, edge), old, t), t)
            length[edge] = size
            store3(tangent, edge, t)
            store3(reference, edge, d)


@parallel_kernel
def reference_twist(tangent, reference, edge_offsets, joint_offsets, closed, twist_of_reference):
    """Twist of the references at each joint: of its many values the one nearest to the stored.

    So full turns are counted, as long as a joint turns by less than half a turn between two calls.
    """
    for strand in prange(edge_offsets.shape[0] - 1):
        if joint_offsets[strand + 1] > joint_offsets[strand]:
            before, after = edges_of_joints(strand, edge_offsets, closed)
            t_before, d_before = load3(tangent, before), load3(reference, before)
            for joint in range(joint_offsets[strand], joint_offsets[strand + 1]):
                t_after, d_after = load3(tangent, after), load3(reference, after)
                angle = turn_between(t_before, d_before, t_after, d_after)
                turns = math.floor((twist_of_reference[joint] - angle) / (2.0 * math.pi) + 0.5)
                twist_of_reference[joint] = angle + 2.0 * math.pi * turns
                t_before, d_before = t_after, d_after
                after += 1


@parallel_kernel
def material_frames(tangent, reference, theta, frames):
    """Material frame of each edge: the rows of frames[edge] are t, m1 and m2."""
    for edge in prange(theta.shape[0]):
        t = load3(tangent, edge)
        m1, m2 = material_directors(t, load3(reference, edge), theta[edge])
        store3(frames[edge], 0, t)
        store3(frames[edge], 1, m1)
        store3(frames[edge], 2, m2)
