"""Strains of discrete elastic rods: what a Constraint needs as C and its gradient.

A joint between edges a and b has three strains, free of units (integrated over its length):

    kappa1 =  1/2 kb·(m2_a + m2_b)
    kappa2 = -1/2 kb·(m1_a + m1_b)                  kb = 2 t_a × t_b / (1 + t_a·t_b)
    twist  = theta_b - theta_a + reference twist

where m_a and m_b are the material axes, turned half of the twist towards each other: the mean of
axes at an angle would be too short, and a twisted rod too soft by cos(twist / 2). With
t~ = (t_a + t_b) / (1 + t_a·t_b) and m~ = (m_a + m_b) / (1 + t_a·t_b) the gradients are

    |e_a| d kappa1 / d e_a = -kappa1 t~ + t_b × m2~  |e_b| d kappa1 / d e_b = -kappa1 t~ - t_a × m2~
    |e_a| d kappa2 / d e_a = -kappa2 t~ - t_b × m1~  |e_b| d kappa2 / d e_b = -kappa2 t~ + t_a × m1~
    |e| d twist / d e = 1/2 kb
    d kappa1 / d theta = -1/2 kb·m1    d kappa2 / d theta = -1/2 kb·m2

for frames that move with the edges without twist (`rod_frames.move_frames`). Derivatives are
ordered as the unknowns of a strand: x before, theta_a, x of the joint, theta_b, x after.

kb grows without bound as a joint folds; 1 + t_a·t_b is kept above a floor, and the gradient of the
curvatures stays that of the strain with the floor. An edge of no length has no gradient.

Bergou et al., "Discrete Viscous Threads" (2010); Jawed, Novelia and O'Reilly, "A Primer on the
Kinematics of Discrete Elastic Rods" (2018).
"""

from __future__ import annotations

import math

from loki_core.kernels.basics.vec3 import add3, dot3, load3, scale3, sub3
from loki_core.kernels.jit import device, inlined, parallel_kernel, prange
from loki_core.kernels.solids.rod_frames import (
    SHORTEST_SQUARED,
    cross3,
    edges_of_joints,
    material_directors,
)

FOLDED = 1e-4  # least 1 + t_a·t_b: a fold to within 0.8 degrees of flat, |kb| = 283
SHORTEST = math.sqrt(SHORTEST_SQUARED)


@inlined
def load_turned(tangent, reference, angle, edge):
    """(t, m1, m2) of an edge whose material frame is at this angle."""
    t = load3(tangent, edge)
    m1, m2 = material_directors(t, load3(reference, edge), angle)
    return t, m1, m2


@inlined
def inverse_length(length, edge):
    if length[edge] > SHORTEST:
        return 1.0 / length[edge]
    return 0.0


@device
def half_binormal(t_a, t_b):
    """(kb / 2, 1 / (1 + t_a·t_b)), with the floor."""
    inverse = 1.0 / max(1.0 + dot3(t_a, t_b), FOLDED)
    return scale3(cross3(t_a, t_b), inverse), inverse


@inlined
def store_gradient(gradient, joint, row, by_a, by_theta_a, by_b, by_theta_b):
    """One strain's derivatives, from those by e_a = x - x before and e_b = x after - x."""
    gradient[joint, row, 0] = -by_a[0]
    gradient[joint, row, 1] = -by_a[1]
    gradient[joint, row, 2] = -by_a[2]
    gradient[joint, row, 3] = by_theta_a
    gradient[joint, row, 4] = by_a[0] - by_b[0]
    gradient[joint, row, 5] = by_a[1] - by_b[1]
    gradient[joint, row, 6] = by_a[2] - by_b[2]
    gradient[joint, row, 7] = by_theta_b
    gradient[joint, row, 8] = by_b[0]
    gradient[joint, row, 9] = by_b[1]
    gradient[joint, row, 10] = by_b[2]


@inlined
def store_joint(a, inverse_a, b, inverse_b, joint, strain, gradient):
    """Curvatures of a joint, and the gradients of all three strains; a and b are (t, m1, m2)."""
    t_a, m1_a, m2_a = a
    t_b, m1_b, m2_b = b
    half, inverse = half_binormal(t_a, t_b)
    along_m1_a, along_m1_b = dot3(half, m1_a), dot3(half, m1_b)
    along_m2_a, along_m2_b = dot3(half, m2_a), dot3(half, m2_b)
    kappa1 = along_m2_a + along_m2_b
    kappa2 = -(along_m1_a + along_m1_b)
    strain[joint, 0] = kappa1
    strain[joint, 1] = kappa2

    mean1 = scale3(add3(m1_a, m1_b), inverse)
    mean2 = scale3(add3(m2_a, m2_b), inverse)
    tilde_a = tilde_b = scale3(add3(t_a, t_b), inverse)
    if 1.0 + dot3(t_a, t_b) < FOLDED:  # at the floor the denominator does not change
        tilde_a, tilde_b = t_a, t_b
    by_a = scale3(sub3(cross3(t_b, mean2), scale3(tilde_a, kappa1)), inverse_a)
    by_b = scale3(add3(cross3(t_a, mean2), scale3(tilde_b, kappa1)), -inverse_b)
    store_gradient(gradient, joint, 0, by_a, -along_m1_a, by_b, -along_m1_b)
    by_a = scale3(add3(cross3(t_b, mean1), scale3(tilde_a, kappa2)), -inverse_a)
    by_b = scale3(sub3(cross3(t_a, mean1), scale3(tilde_b, kappa2)), inverse_b)
    store_gradient(gradient, joint, 1, by_a, -along_m2_a, by_b, -along_m2_b)
    by_a, by_b = scale3(half, inverse_a), scale3(half, inverse_b)
    store_gradient(gradient, joint, 2, by_a, -1.0, by_b, 1.0)


@parallel_kernel
def bending_strains(
    tangent,
    length,
    reference,
    theta,
    twist_of_reference,
    edge_offsets,
    joint_offsets,
    closed,
    strain,
    gradient,
):
    """Strains [joints, 3]: kappa1, kappa2, twist; and their gradient [joints, 3, 11]."""
    for strand in prange(edge_offsets.shape[0] - 1):
        if joint_offsets[strand + 1] > joint_offsets[strand]:
            before, after = edges_of_joints(strand, edge_offsets, closed)
            inverse_a = inverse_length(length, before)
            for joint in range(joint_offsets[strand], joint_offsets[strand + 1]):
                twist = theta[after] - theta[before] + twist_of_reference[joint]
                a = load_turned(tangent, reference, theta[before] + 0.5 * twist, before)
                b = load_turned(tangent, reference, theta[after] - 0.5 * twist, after)
                inverse_b = inverse_length(length, after)
                store_joint(a, inverse_a, b, inverse_b, joint, strain, gradient)
                strain[joint, 2] = twist
                inverse_a, before = inverse_b, after
                after += 1


@parallel_kernel
def bending_strains_only(
    tangent, reference, theta, twist_of_reference, edge_offsets, joint_offsets, closed, strain
):
    """Strains [joints, 3] without the gradient, for energies."""
    for strand in prange(edge_offsets.shape[0] - 1):
        if joint_offsets[strand + 1] > joint_offsets[strand]:
            before, after = edges_of_joints(strand, edge_offsets, closed)
            for joint in range(joint_offsets[strand], joint_offsets[strand + 1]):
                twist = theta[after] - theta[before] + twist_of_reference[joint]
                t_a, m1_a, m2_a = load_turned(
                    tangent, reference, theta[before] + 0.5 * twist, before
                )
                t_b, m1_b, m2_b = load_turned(tangent, reference, theta[after] - 0.5 * twist, after)
                half, _inverse = half_binormal(t_a, t_b)
                strain[joint, 0] = dot3(half, add3(m2_a, m2_b))
                strain[joint, 1] = -dot3(half, add3(m1_a, m1_b))
                strain[joint, 2] = twist
                before = after
                after += 1
