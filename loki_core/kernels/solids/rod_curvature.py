"""Second derivatives of the strains of rods: what a Newton step needs to be one.

At a joint with moments T = (T1, T2, T3) the strains of `rod_strains.py` have the work

    W = T1 kappa1 + T2 kappa2 + T3 twist = kb·p + T3 twist,    p = T1 m2 - T2 m1,  q = T1 m1 + T2 m2

with the gradients (the mean angle of the two edges turns p into -q and q into p)

    |e_a| dW/de_a = -kb·p t~ + t_b × p~ + T3 kb / 2,     dW / d mean angle = -kb·q
    |e_b| dW/de_b = -kb·p t~ - t_a × p~ + T3 kb / 2,     x~ = (x_a + x_b) / (1 + t_a·t_b)

`vary` is their differential. Axes follow tangents without twist, and the half of the twist that
they are turned by changes with the reference twist, d twist = kb/2·(dt_a + dt_b). Frames that are
carried along depend on the way, so the differential has a skew part: the moment along an edge times
an area. It is gone where the moments on edges are balanced, and the symmetric part is the second
derivative along every straight line of unknowns (Bergou et al. 2010).
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.basics.vec3 import add3, dot3, scale3, sub3
from loki_core.kernels.jit import device, inlined, parallel_kernel, prange
from loki_core.kernels.solids.rod_frames import cross3, edges_of_joints
from loki_core.kernels.solids.rod_strains import FOLDED, half_binormal, inverse_length, load_turned


@device
def across(axes, moment1, moment2):
    """(t, p, q) of an edge from its axes (t, m1, m2)."""
    t, m1, m2 = axes
    p = sub3(scale3(m2, moment1), scale3(m1, moment2))
    q = add3(scale3(m1, moment1), scale3(m2, moment2))
    return t, p, q


@device
def pull(a, b, moment3):
    """(|e_a| dW/de_a, |e_b| dW/de_b) of a joint whose edges have (t, p, q)."""
    t_a, p_a, _ = a
    t_b, p_b, _ = b
    half, inverse = half_binormal(t_a, t_b)
    sum_p = add3(p_a, p_b)
    mean_p = scale3(sum_p, inverse)
    along = scale3(add3(t_a, t_b), -dot3(half, sum_p) * inverse)
    common = add3(along, scale3(half, moment3))
    return add3(common, cross3(t_b, mean_p)), sub3(common, cross3(t_a, mean_p))


@device
def vary(a, b, moment3, dt_a, dt_b, turn):
    """Change of both `pull`s and of dW / d mean angle, by tangents and by the mean angle."""
    t_a, p_a, q_a = a
    t_b, p_b, q_b = b
    half, inverse = half_binormal(t_a, t_b)
    closing = dot3(t_b, dt_a) + dot3(t_a, dt_b)
    dhalf = add3(cross3(dt_a, t_b), cross3(t_a, dt_b))
    dhalf = scale3(sub3(dhalf, scale3(half, closing)), inverse)
    twisted = 0.5 * dot3(half, add3(dt_a, dt_b))
    turn_a, turn_b = turn + twisted, turn - twisted
    dp_a = sub3(scale3(t_a, -dot3(p_a, dt_a)), scale3(q_a, turn_a))
    dp_b = sub3(scale3(t_b, -dot3(p_b, dt_b)), scale3(q_b, turn_b))
    dq_a = sub3(scale3(p_a, turn_a), scale3(t_a, dot3(q_a, dt_a)))
    dq_b = sub3(scale3(p_b, turn_b), scale3(t_b, dot3(q_b, dt_b)))
    sum_p, sum_q = add3(p_a, p_b), add3(q_a, q_b)
    sum_dp, sum_dq = add3(dp_a, dp_b), add3(dq_a, dq_b)
    work, dwork = dot3(half, sum_p), dot3(dhalf, sum_p) + dot3(half, sum_dp)
    mean_p = scale3(sum_p, inverse)
    dmean_p = scale3(sub3(sum_dp, scale3(mean_p, closing)), inverse)
    mean_t = scale3(add3(t_a, t_b), inverse)
    dmean_t = scale3(sub3(add3(dt_a, dt_b), scale3(mean_t, closing)), inverse)
    common = sub3(scale3(dhalf, moment3), add3(scale3(mean_t, dwork), scale3(dmean_t, work)))
    by_a = add3(common, add3(cross3(dt_b, mean_p), cross3(t_b, dmean_p)))
    by_b = sub3(common, add3(cross3(dt_a, mean_p), cross3(t_a, dmean_p)))
    return by_a, by_b, -(dot3(dhalf, sum_q) + dot3(half, sum_dq))


@device
def tangent_change(t, inverse, axis):
    """(dt, d|e|) where an edge changes by one along an axis."""
    unit = (1.0 if axis == 0 else 0.0, 1.0 if axis == 1 else 0.0, 1.0 if axis == 2 else 0.0)
    along = dot3(t, unit)
    return scale3(sub3(unit, scale3(t, along)), inverse), along


@inlined
def joint_curvature(a, inverse_a, b, inverse_b, moment3, small):
    """Write d2W by (e_a, e_b, mean angle) to small [7, 7], its skew part too."""
    zero = (0.0, 0.0, 0.0)
    pull_a, pull_b = pull(a, b, moment3)
    for column in range(7):
        dt_a, dt_b, turn, longer_a, longer_b = zero, zero, 0.0, 0.0, 0.0
        if column < 3:
            dt_a, longer_a = tangent_change(a[0], inverse_a, column)
        elif column < 6:
            dt_b, longer_b = tangent_change(b[0], inverse_b, column - 3)
        else:
            turn = 1.0
        by_a, by_b, by_turn = vary(a, b, moment3, dt_a, dt_b, turn)
        by_a = scale3(sub3(by_a, scale3(pull_a, longer_a * inverse_a)), inverse_a)
        by_b = scale3(sub3(by_b, scale3(pull_b, longer_b * inverse_b)), inverse_b)
        for axis in range(3):
            small[axis, column] = by_a[axis]
            small[3 + axis, column] = by_b[axis]
        small[6, column] = by_turn


@device
def unknown_of(part, side):
    """Which of a joint's unknowns moves a part of (e_a, e_b, mean angle): the first, the second."""
    if part < 3:
        return part + 4 * side
    if part < 6:
        return part + 1 + 4 * side
    return 3 + 4 * side


@device
def share_of(part, side):
    """By how much: e_a = x - x before, e_b = x after - x, and half of either angle."""
    if part == 6:
        return 0.5
    return 1.0 if side == 1 else -1.0


@inlined
def add_joint(joint, small, dofs, fixed, row, values):
    """Add the symmetric part of small [7, 7] by the joint's own unknowns."""
    for part in range(14):
        m = unknown_of(part // 2, part % 2)
        i = dofs[joint, m]
        if fixed[i] == 1:
            continue
        for other in range(14):
            n = unknown_of(other // 2, other % 2)
            j = dofs[joint, n]
            if n <= m and fixed[j] == 0:
                a, b = part // 2, other // 2
                share = 0.5 * share_of(a, part % 2) * share_of(b, other % 2)
                values[row[max(i, j)] + min(i, j)] += share * (small[a, b] + small[b, a])


@parallel_kernel
def scatter_curvatures(
    joint_offsets, dofs, tangent, length, reference, theta, twist_of_reference, edge_offsets,
    closed, tension, known, fixed, row, values,
):  # fmt: skip
    """Add the second derivative of every joint's work to a skyline matrix, strand by strand.

    Args: dofs int32 [joints, 11]; tension T [joints, 3]; known [joints, 2]: what is positive of it
        is on the diagonal of theta_a and theta_b already. Joints that are folded flat have none.
    """
    for strand in prange(edge_offsets.shape[0] - 1):
        if joint_offsets[strand + 1] > joint_offsets[strand]:
            small = np.empty((7, 7))
            before, after = edges_of_joints(strand, edge_offsets, closed)
            for joint in range(joint_offsets[strand], joint_offsets[strand + 1]):
                twist = theta[after] - theta[before] + twist_of_reference[joint]
                one = load_turned(tangent, reference, theta[before] + 0.5 * twist, before)
                two = load_turned(tangent, reference, theta[after] - 0.5 * twist, after)
                a = across(one, tension[joint, 0], tension[joint, 1])
                b = across(two, tension[joint, 0], tension[joint, 1])
                if 1.0 + dot3(a[0], b[0]) > FOLDED:
                    joint_curvature(
                        a, inverse_length(length, before), b, inverse_length(length, after),
                        tension[joint, 2], small,
                    )  # fmt: skip
                    add_joint(joint, small, dofs, fixed, row, values)
                    for side in range(2):
                        i = dofs[joint, 3 + 4 * side]
                        if fixed[i] == 0:
                            values[row[i] + i] -= max(known[joint, side], 0.0)
                before = after
                after += 1
