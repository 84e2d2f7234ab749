"""The function of the Attachment Constraint (paper, 6.3), its gradient, and the points it is for.

With d = x_source - x_target, frames of axes F, and f_i the target's axes turned by the attachment's
own constant rotation, the first of which pointed along d at the start:

    a_0 = u / |u|,  u = (1 - xi) f_0 + xi d / |d|,   a_1, a_2: f_1, f_2 carried from f_0 to a_0
    C^0 = (a_i . d) - (L, 0, 0),   C^k_i = a_i . F_source,k - rest_k,i            (12 numbers)

A turn of the target frame by dphi and a change dd of d turn the attachment frame by

    dpsi = a_0 x da_0 + a_0 (f_0 . dphi - h . (df_0 + da_0)),   h = f_0 x a_0 / (1 + f_0 . a_0)

(the last term is the holonomy of transport; Bergou et al. 2008), so that the gradient is exact:

    d(a_i . v) = dpsi . (a_i x v) + a_i . dv
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.basics.vec3 import add3, dot3, load3, norm3, scale3, sub3
from loki_core.kernels.colliders.triangle_tree import STACK, nearest_triangle
from loki_core.kernels.jit import device, inlined, parallel_kernel, prange
from loki_core.kernels.solids.rod_frames import cross3, material_directors, store3, transport

SHORTEST = 1e-100  # of d: below, it has no direction
OPPOSITE = 1e-9  # least |u| and 1 + f_0 . a_0: beyond, the frame does not follow


@inlined
def load_axes(frames, n):
    """Three axes of a frame, the rows of frames[n]."""
    return (
        (frames[n, 0, 0], frames[n, 0, 1], frames[n, 0, 2]),
        (frames[n, 1, 0], frames[n, 1, 1], frames[n, 1, 2]),
        (frames[n, 2, 0], frames[n, 2, 1], frames[n, 2, 2]),
    )


@device
def combine(weights, axes):
    """Sum of axes by three weights."""
    ab = add3(scale3(axes[0], weights[0]), scale3(axes[1], weights[1]))
    return add3(ab, scale3(axes[2], weights[2]))


@device
def leading_axis(f0, d, flexibility):
    """(a_0, |u|, d / |d|, 1 / |d|); where there is no direction the frame stays as it is."""
    distance = norm3(d)
    if not distance > SHORTEST:
        return f0, 0.0, f0, 0.0
    away = scale3(d, 1.0 / distance)
    u = add3(scale3(f0, 1.0 - flexibility), scale3(away, flexibility))
    size = norm3(u)
    if not size > OPPOSITE:
        return f0, 0.0, away, 1.0 / distance
    return scale3(u, 1.0 / size), size, away, 1.0 / distance


@device
def pull_back(q, a0, f0, size, away, inverse, flexibility):
    """(by dd, by dphi) of q . dpsi."""
    s = dot3(q, a0)
    p = cross3(q, a0)
    by_turn = scale3(f0, s)
    beside = 1.0 + dot3(f0, a0)
    if beside > OPPOSITE:
        h = scale3(cross3(f0, a0), 1.0 / beside)
        p = sub3(p, scale3(h, s))
        by_turn = sub3(by_turn, scale3(cross3(f0, h), s))
    if size > 0.0:
        p = scale3(sub3(p, scale3(a0, dot3(a0, p))), 1.0 / size)
        by_turn = add3(by_turn, scale3(cross3(f0, p), 1.0 - flexibility))
        across = sub3(p, scale3(away, dot3(away, p)))
        return scale3(across, flexibility * inverse), by_turn
    return (0.0, 0.0, 0.0), add3(by_turn, cross3(f0, p))  # a_0 stays with f_0


@inlined
def store_row(array, n, m, a):
    array[n, m, 0] = a[0]
    array[n, m, 1] = a[1]
    array[n, m, 2] = a[2]


@parallel_kernel
def evaluate_attachments(
    source, source_frame, target, target_frame, turn, length, rest, flexibility, value
):
    """Write C [n, 12].

    Args: source, target places [n, 3] and frames [n, 3, 3], whose rows are axes; turn [n, 3, 3]:
        the attachment's axes in the target's frame; length L [n]; rest [n, 3, 3]: of C^k;
        flexibility xi [n].
    """
    for n in prange(value.shape[0]):
        d = sub3(load3(source, n), load3(target, n))
        axes = load_axes(target_frame, n)
        turned = load_axes(turn, n)
        f0 = combine(turned[0], axes)
        a0, _, _, _ = leading_axis(f0, d, flexibility[n])
        a1 = transport(combine(turned[1], axes), f0, a0)
        a2 = transport(combine(turned[2], axes), f0, a0)
        value[n, 0] = dot3(a0, d) - length[n]
        value[n, 1] = dot3(a1, d)
        value[n, 2] = dot3(a2, d)
        for k in range(3):
            v = (source_frame[n, k, 0], source_frame[n, k, 1], source_frame[n, k, 2])
            value[n, 3 + 3 * k] = dot3(a0, v) - rest[n, k, 0]
            value[n, 4 + 3 * k] = dot3(a1, v) - rest[n, k, 1]
            value[n, 5 + 3 * k] = dot3(a2, v) - rest[n, k, 2]


@parallel_kernel
def attachment_gradients(
    source, source_frame, target, target_frame, turn, flexibility, by_place, by_source, by_target
):
    """Write dC by d, by turns of the source frame and by turns of the target frame, [n, 12, 3]."""
    for n in prange(by_place.shape[0]):
        d = sub3(load3(source, n), load3(target, n))
        axes = load_axes(target_frame, n)
        turned = load_axes(turn, n)
        f0 = combine(turned[0], axes)
        a0, size, away, inverse = leading_axis(f0, d, flexibility[n])
        a1 = transport(combine(turned[1], axes), f0, a0)
        a2 = transport(combine(turned[2], axes), f0, a0)
        xi = flexibility[n]
        for i in range(3):
            a = a0
            if i == 1:
                a = a1
            elif i == 2:
                a = a2
            by_d, by_turn = pull_back(cross3(a, d), a0, f0, size, away, inverse, xi)
            store_row(by_place, n, i, add3(a, by_d))
            store_row(by_source, n, i, (0.0, 0.0, 0.0))
            store_row(by_target, n, i, by_turn)
            for k in range(3):
                v = (source_frame[n, k, 0], source_frame[n, k, 1], source_frame[n, k, 2])
                row = 3 + 3 * k + i
                by_d, by_turn = pull_back(cross3(a, v), a0, f0, size, away, inverse, xi)
                store_row(by_place, n, row, by_d)
                store_row(by_source, n, row, cross3(v, a))
                store_row(by_target, n, row, by_turn)


@parallel_kernel
def chain_to_edges(by_place, by_turn, sign, weight, tangent, inverse_length, gradient, first):
    """Write dC/dq to seven columns of gradient [n, m, d]: x_a, theta, x_b of points on edges.

    dx = (1 - w) dx_a + w dx_b;  dphi = t x (dx_b - dx_a) / l + t dtheta. Args: sign of the place.
    """
    for n in prange(by_place.shape[0]):
        t = load3(tangent, n)
        before, after = sign * (1.0 - weight[n]), sign * weight[n]
        for m in range(by_place.shape[1]):
            place = (by_place[n, m, 0], by_place[n, m, 1], by_place[n, m, 2])
            turn = (by_turn[n, m, 0], by_turn[n, m, 1], by_turn[n, m, 2])
            bent = scale3(cross3(turn, t), inverse_length[n])
            for axis in range(3):
                gradient[n, m, first + axis] = before * place[axis] - bent[axis]
                gradient[n, m, first + 4 + axis] = after * place[axis] + bent[axis]
            gradient[n, m, first + 3] = dot3(turn, t)


@parallel_kernel
def transverse_rows(source, target, rows, inverse):
    """Write I - d d^T / |d|^2 to rows [n, 3, 3] and 1 / |d| to inverse [n]; 0 without length."""
    for n in prange(rows.shape[0]):
        d = sub3(load3(source, n), load3(target, n))
        distance = norm3(d)
        inverse[n] = 1.0 / distance if distance > SHORTEST else 0.0
        away = scale3(d, inverse[n])
        for a in range(3):
            for b in range(3):
                rows[n, a, b] = (1.0 if a == b else 0.0) - away[a] * away[b]


@parallel_kernel
def edge_axes(tangent, reference, angle, frames):
    """Write the axes t, m1, m2 of edges [n]."""
    for n in prange(angle.shape[0]):
        t = load3(tangent, n)
        m1, m2 = material_directors(t, load3(reference, n), angle[n])
        store3(frames[n], 0, t)
        store3(frames[n], 1, m1)
        store3(frames[n], 2, m2)


@parallel_kernel
def carry_directors(before, after, directors):
    """Turn directors [n, 3] with unit vectors before -> after [n, 3], without twist."""
    for n in prange(directors.shape[0]):
        store3(directors, n, transport(load3(directors, n), load3(before, n), load3(after, n)))


@parallel_kernel
def nearest_triangles(corners, box, position, bound2, found, distance2, v, w):
    """Fill the row of the nearest triangle [n] within squared bounds or -1, and where on it."""
    for n in prange(position.shape[0]):
        nodes, distances = np.empty(STACK, np.int64), np.empty(STACK)
        found[n], distance2[n], v[n], w[n] = nearest_triangle(
            corners, box, position[n, 0], position[n, 1], position[n, 2], bound2[n], -1, nodes,
            distances,
        )  # fmt: skip
