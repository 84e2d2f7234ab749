"""Discrete elastic rods: strains, their gradients, and frames that count every turn."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.kernels.solids.edge_lengths import edge_strains
from loki_core.kernels.solids.rod_curvature import scatter_curvatures
from loki_core.kernels.solids.rod_frames import (
    material_frames,
    move_frames,
    reference_twist,
    start_frames,
)
from loki_core.kernels.solids.rod_strains import bending_strains, bending_strains_only
from loki_core.objects.solids.host_geometry import curve_edges

TURN = 2.0 * np.pi


def rotation(axis, angle):
    """Rodrigues' formula."""
    k = np.asarray(axis) / np.linalg.norm(axis)
    across = np.cross(np.eye(3), -k)
    return np.eye(3) + np.sin(angle) * across + (1.0 - np.cos(angle)) * across @ across


def ends_of_edges(rods):
    """Rows of the two vertices of every edge."""
    return curve_edges(rods.offsets, rods.closed.astype(bool))


def make_rods(shapes, closed):
    """Strands through the given points, with parallel references and no material angle."""
    counts = np.array([len(shape) for shape in shapes])
    closed = np.asarray(closed, np.uint8)
    edges = np.where(closed, counts, counts - 1)
    joints = np.where(closed, counts, np.maximum(counts - 2, 0))
    rods = SimpleNamespace(
        x=np.concatenate(shapes).astype(np.float64),
        closed=closed,
        offsets=np.r_[0, np.cumsum(counts)],
        edge_offsets=np.r_[0, np.cumsum(edges)],
        joint_offsets=np.r_[0, np.cumsum(joints)],
        tangent=np.full((edges.sum(), 3), np.nan),
        length=np.full(edges.sum(), np.nan),
        reference=np.full((edges.sum(), 3), np.nan),
        theta=np.zeros(edges.sum()),
        twist_of_reference=np.zeros(joints.sum()),
    )
    start_frames(
        rods.x,
        rods.offsets,
        rods.edge_offsets,
        rods.closed,
        rods.tangent,
        rods.length,
        rods.reference,
    )
    count_twist(rods)
    return rods


def count_twist(rods):
    reference_twist(
        rods.tangent,
        rods.reference,
        rods.edge_offsets,
        rods.joint_offsets,
        rods.closed,
        rods.twist_of_reference,
    )


def copied(rods):
    return SimpleNamespace(**{name: array.copy() for name, array in vars(rods).items()})


def move(rods, x):
    rods.x[:] = x
    move_frames(
        rods.x,
        rods.offsets,
        rods.edge_offsets,
        rods.closed,
        rods.tangent,
        rods.length,
        rods.reference,
    )
    count_twist(rods)


def strains_only(rods):
    strain = np.full((len(rods.twist_of_reference), 3), np.nan)
    bending_strains_only(
        rods.tangent,
        rods.reference,
        rods.theta,
        rods.twist_of_reference,
        rods.edge_offsets,
        rods.joint_offsets,
        rods.closed,
        strain,
    )
    return strain


def strains_and_gradient(rods):
    joints = len(rods.twist_of_reference)
    strain = np.full((joints, 3), np.nan)
    gradient = np.full((joints, 3, 11), np.nan)
    bending_strains(
        rods.tangent,
        rods.length,
        rods.reference,
        rods.theta,
        rods.twist_of_reference,
        rods.edge_offsets,
        rods.joint_offsets,
        rods.closed,
        strain,
        gradient,
    )
    return strain, gradient


def frames_of(rods):
    frames = np.full((len(rods.theta), 3, 3), np.nan)
    material_frames(rods.tangent, rods.reference, rods.theta, frames)
    return frames


def follow(rods, m1):
    """Turn the material angles so that each edge's first director is m1, by the shortest way."""
    frames = frames_of(rods)
    turn = np.arctan2((frames[:, 2] * m1).sum(1), (frames[:, 1] * m1).sum(1))
    rods.theta += turn


def topology(rods):
    """(vertices [joints, 3], edges [joints, 2]) of every joint, written out strand by strand."""
    vertices, edges = [], []
    for strand, closed in enumerate(rods.closed):
        v0, e0 = rods.offsets[strand], rods.edge_offsets[strand]
        k = rods.offsets[strand + 1] - v0
        for i in range(k) if closed else range(1, k - 1):
            vertices.append((v0 + (i - 1) % k, v0 + i, v0 + (i + 1) % k))
            edges.append((e0 + (i - 1) % k, e0 + i))
    return np.array(vertices), np.array(edges)


def random_rods(seed, *, scale=1.0):
    """Open and closed strands of random shape, with angles and twists of several turns."""
    rng = np.random.default_rng(seed)
    shapes, closed = [], [0, 1, 0, 1, 0, 0]
    for k, loop in zip([9, 7, 3, 5, 2, 1], closed):
        if loop:
            around = TURN * np.arange(k) / k
            shape = 1.5 * np.stack([np.cos(around), np.sin(around), 0.0 * around], axis=1)
        else:
            shape = np.arange(k)[:, None] * [0.8, 0.3, -0.2]
        shapes.append(scale * (shape + 0.3 * rng.normal(size=(k, 3))))
    rods = make_rods(shapes, closed)
    for _ in range(3):  # references that are no longer parallel along the strand
        move(rods, rods.x + 0.1 * scale * rng.normal(size=rods.x.shape))
    rods.theta[:] = rng.uniform(-20.0, 20.0, len(rods.theta))
    rods.twist_of_reference += TURN * rng.integers(-4, 5, len(rods.twist_of_reference))
    count_twist(rods)
    return rods


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_bending_gradient_is_the_derivative_of_the_strain(seed, scale):
    rods = random_rods(seed, scale=scale)
    strain, gradient = strains_and_gradient(rods)
    np.testing.assert_allclose(strains_only(rods), strain, rtol=1e-13, atol=1e-13)

    vertices, edges = topology(rods)
    joints = np.arange(len(vertices))
    by_x = np.zeros((len(joints), 3, *rods.x.shape))
    by_theta = np.zeros((len(joints), 3, len(rods.theta)))
    for corner in range(3):
        columns = gradient[:, :, 4 * corner : 4 * corner + 3]
        np.add.at(by_x, (joints, slice(None), vertices[:, corner]), columns)
    for side in range(2):
        np.add.at(by_theta, (joints, slice(None), edges[:, side]), gradient[:, :, 3 + 4 * side])

    step = 1e-5 * scale
    numeric = np.zeros_like(by_x)
    for vertex, axis in np.ndindex(*rods.x.shape):
        values = []
        for sign in (1.0, -1.0):
            moved = copied(rods)
            x = rods.x.copy()
            x[vertex, axis] += sign * step
            move(moved, x)
            values.append(strains_only(moved))
        numeric[:, :, vertex, axis] = (values[0] - values[1]) / (2.0 * step)
    assert np.abs(numeric - by_x).max() < 1e-7 * np.abs(by_x).max()

    numeric_theta = np.zeros_like(by_theta)
    for edge in range(len(rods.theta)):
        values = []
        for sign in (1.0, -1.0):
            turned = copied(rods)
            turned.theta[edge] += sign * 1e-5
            values.append(strains_only(turned))
        numeric_theta[:, :, edge] = (values[0] - values[1]) / 2e-5
    assert np.abs(numeric_theta - by_theta).max() < 1e-7 * np.abs(by_theta).max()


@pytest.mark.parametrize("seed", range(3))
def test_second_derivative_is_that_of_the_work_of_moments_along_straight_lines(seed):
    """d' H d of T . C is the change of its slope as all unknowns move along d."""
    rods, rng = random_rods(seed), np.random.default_rng(seed)
    vertices, edges = topology(rods)
    moments = rng.normal(size=(len(vertices), 3))
    size = rods.x.size + len(rods.theta)
    dofs = np.empty((len(vertices), 11), np.int32)
    for corner in range(3):
        dofs[:, 4 * corner : 4 * corner + 3] = 3 * vertices[:, corner : corner + 1] + np.arange(3)
    dofs[:, 3], dofs[:, 7] = rods.x.size + edges[:, 0], rods.x.size + edges[:, 1]
    dense = np.zeros(size * size)
    known = np.zeros((len(vertices), 2))
    scatter_curvatures(
        rods.joint_offsets, dofs, rods.tangent, rods.length, rods.reference, rods.theta,
        rods.twist_of_reference, rods.edge_offsets, rods.closed, moments, known,
        np.zeros(size, np.uint8), size * np.arange(size), dense,
    )  # fmt: skip
    lower = dense.reshape(size, size)
    assert np.all(np.triu(lower, 1) == 0.0)
    whole = lower + np.tril(lower, -1).T

    def slope(direction, step):
        moved = copied(rods)
        moved.theta += step * direction[rods.x.size :]
        move(moved, rods.x + step * direction[: rods.x.size].reshape(-1, 3))
        gradient = strains_and_gradient(moved)[1]
        return np.einsum("nm,nma,na->", moments, gradient, direction[dofs])

    for _ in range(10):
        direction = rng.normal(size=size)
        numeric = (slope(direction, 1e-5) - slope(direction, -1e-5)) / 2e-5
        exact = direction @ whole @ direction
        assert abs(numeric - exact) < 1e-6 * np.abs(whole).max()


@pytest.mark.parametrize("seed", range(3))
def test_stretching_gradient_is_the_derivative_of_the_length(seed):
    rods = random_rods(seed)
    edges = len(rods.theta)

    def lengths(x):
        strain, gradient = np.full((edges, 1), np.nan), np.full((edges, 1, 6), np.nan)
        edge_strains(x, ends_of_edges(rods), strain[:, 0], gradient)
        return strain[:, 0], gradient

    length, gradient = lengths(rods.x)
    np.testing.assert_allclose(length, rods.length, rtol=1e-14)
    starts, ends = ends_of_edges(rods).T
    dense = np.zeros((edges, *rods.x.shape))
    dense[np.arange(edges), starts] += gradient[:, 0, :3]
    dense[np.arange(edges), ends] += gradient[:, 0, 3:]
    for vertex, axis in np.ndindex(*rods.x.shape):
        step = np.zeros_like(rods.x)
        step[vertex, axis] = 1e-5
        numeric = (lengths(rods.x + step)[0] - lengths(rods.x - step)[0]) / 2e-5
        np.testing.assert_allclose(numeric, dense[:, vertex, axis], atol=1e-9)


def test_frames_stay_orthonormal_and_right_handed():
    rods = random_rods(0)
    rng = np.random.default_rng(1)
    for _ in range(2000):
        move(rods, rods.x + 0.02 * rng.normal(size=rods.x.shape))
    frames = frames_of(rods)
    gram = frames @ frames.transpose(0, 2, 1)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(3), gram.shape), atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(frames), 1.0, rtol=1e-13)
    np.testing.assert_allclose(frames[:, 0], rods.tangent)


def test_references_start_parallel_along_the_strand():
    """No twist at any joint of an open strand; a closed one has all of it at its first joint."""
    rng = np.random.default_rng(3)
    rods = make_rods([rng.normal(size=(12, 3)), rng.normal(size=(8, 3))], [0, 1])
    np.testing.assert_allclose(rods.twist_of_reference[:10], 0.0, atol=1e-14)
    np.testing.assert_allclose(rods.twist_of_reference[11:], 0.0, atol=1e-14)
    assert abs(rods.twist_of_reference[10]) > 1e-3


def test_strains_do_not_change_in_rigid_motion():
    """The material turns with the body, through several turns about a slowly changing axis."""
    rods = random_rods(5)
    before = strains_only(rods)
    start, m1 = rods.x.copy(), frames_of(rods)[:, 1]
    turn = np.eye(3)
    for step in range(400):
        axis = [np.sin(0.01 * step), np.cos(0.013 * step), 0.5]
        turn = rotation(axis, 0.05) @ turn
        move(rods, start @ turn.T + 0.01 * step)
        follow(rods, m1 @ turn.T)
    np.testing.assert_allclose(strains_only(rods), before, atol=1e-11)


def test_strains_do_not_depend_on_the_choice_of_references():
    rods = random_rods(6)
    strain, gradient = strains_and_gradient(rods)
    rng = np.random.default_rng(7)
    angle = rng.uniform(-3.0, 3.0, len(rods.theta))
    second = np.cross(rods.tangent, rods.reference)
    rods.reference[:] = np.cos(angle)[:, None] * rods.reference + np.sin(angle)[:, None] * second
    rods.theta -= angle
    _, edges = topology(rods)
    rods.twist_of_reference += angle[edges[:, 1]] - angle[edges[:, 0]]
    rods.twist_of_reference += rng.uniform(-3.0, 3.0, len(edges))  # only the branch is read from it
    count_twist(rods)
    changed, changed_gradient = strains_and_gradient(rods)
    np.testing.assert_allclose(changed, strain, atol=1e-12)
    np.testing.assert_allclose(changed_gradient, gradient, atol=1e-11)


@pytest.mark.parametrize("n", [5, 16, 200])
def test_circle(n):
    """Integrated curvature 2 tan(pi / N) at every joint, whichever way the material lies."""
    around = TURN * np.arange(n) / n
    circle = np.stack([np.cos(around), np.sin(around), 0.0 * around], axis=1)
    rods = make_rods([circle], [1])
    strain = strains_only(rods)
    np.testing.assert_allclose(np.hypot(strain[:, 0], strain[:, 1]), 2.0 * np.tan(np.pi / n))
    np.testing.assert_allclose(strain[:, 2], 0.0, atol=1e-12)

    follow(rods, np.cross([0.0, 0.0, 1.0], rods.tangent))  # m1 inward, m2 along the axis
    strain = strains_only(rods)
    np.testing.assert_allclose(strain[:, 0], 2.0 * np.tan(np.pi / n))
    np.testing.assert_allclose(strain[:, 1], 0.0, atol=1e-12)


def helix_strains(n, radius, rise):
    """(strain, angle per edge, tangent along the axis, edge length) with m1 towards the axis."""
    angle = 3.0 * TURN / n
    around = angle * np.arange(n + 1)
    helix = np.stack([radius * np.cos(around), radius * np.sin(around), rise * around], axis=1)
    rods = make_rods([helix], [0])
    middle = around[:-1] + 0.5 * angle
    follow(rods, -np.stack([np.cos(middle), np.sin(middle), 0.0 * middle], axis=1))
    turns = np.round(strains_only(rods)[:, 2] / TURN)  # follow() knows angles to full turns only
    rods.theta[1:] -= TURN * np.cumsum(turns)
    strain = strains_only(rods)
    return strain, angle, rods.tangent[0, 2], rods.length[0]


def test_helix():
    """One screw takes each frame to the next: of it, tan(m / 2) = tan(angle / 2) t_z is twist.

    Per length, curvature and twist go to R / (R² + p²) and p / (R² + p²), with the square of the
    edge length.
    """
    radius, rise = 0.7, 0.3
    errors = []
    for n in (60, 120, 240):
        strain, angle, along_axis, length = helix_strains(n, radius, rise)
        bend = np.arccos(np.cos(angle) + (1.0 - np.cos(angle)) * along_axis**2)
        twist = 2.0 * np.arctan(np.tan(0.5 * angle) * along_axis)
        np.testing.assert_allclose(strain[:, 2], twist, rtol=1e-11)
        np.testing.assert_allclose(strain[:, 1], 0.0, atol=1e-12)
        magnitude = 2.0 * np.tan(0.5 * bend)
        np.testing.assert_allclose(strain[:, 0], magnitude, rtol=1e-9)
        np.testing.assert_allclose(strain[:, 0], strain[0, 0], rtol=1e-11)
        square = radius**2 + rise**2
        errors.append(
            [
                abs(strain[0, 0] / length - radius / square),
                abs(strain[0, 2] / length - rise / square),
            ]
        )
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.05)


def test_five_turns_of_the_material_are_counted():
    straight = np.arange(12)[:, None] * [0.3, -0.5, 0.2]
    rods = make_rods([straight], [0])
    rods.theta[:] = np.linspace(0.0, 5.0 * TURN, 11)
    strain = strains_only(rods)
    np.testing.assert_allclose(strain[:, 2].sum(), 5.0 * TURN, rtol=1e-14)
    np.testing.assert_allclose(strain[:, :2], 0.0, atol=1e-13)


def test_turns_of_the_references_are_counted():
    """An edge led around a cone five times is twisted by the solid angle it has enclosed.

    The tangent's path is a polygon of great arcs; the area of the triangle it spans with the axis
    in one step is van Oosterom and Strackee's.
    """
    steps, slope = 90, 1.2
    z = np.array([0.0, 0.0, 1.0])

    def shape(step):
        angle = TURN * step / steps
        b = [np.sin(slope) * np.cos(angle), np.sin(slope) * np.sin(angle), np.cos(slope)]
        return np.array([-z, 0.0 * z, b])

    rods = make_rods([shape(0)], [0])
    for step in range(1, 5 * steps + 1):
        move(rods, shape(step))
    a, b = shape(0)[2], shape(1)[2]
    enclosed = 2.0 * np.arctan2(z @ np.cross(a, b), 1.0 + z @ a + z @ b + a @ b)
    assert 5 * steps * enclosed > 3.0 * TURN
    np.testing.assert_allclose(rods.twist_of_reference[0], 5 * steps * enclosed, rtol=1e-11)


def test_reversed_folded_and_lost_edges_stay_finite():
    """Edges that turn round at once, fold flat, or have no length give numbers, not NaN."""
    rng = np.random.default_rng(8)
    rods = make_rods([rng.normal(size=(6, 3)), rng.normal(size=(4, 3))], [0, 1])
    move(rods, -rods.x)
    frames = frames_of(rods)
    gram = frames @ frames.transpose(0, 2, 1)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(3), gram.shape), atol=1e-14)

    x = rods.x.copy()
    x[1] = x[0]  # no length
    x[4] = x[2]  # folded flat
    move(rods, x)
    strain, gradient = strains_and_gradient(rods)
    assert np.isfinite(strain).all() and np.isfinite(gradient).all()
    assert rods.length[0] == 0.0 and np.linalg.norm(rods.tangent[0]) == pytest.approx(1.0)
    lengths, by_ends = np.empty((9, 1)), np.empty((9, 1, 6))
    edge_strains(x, ends_of_edges(rods), lengths[:, 0], by_ends)
    assert lengths[0, 0] == 0.0 and not by_ends[0].any()
    assert np.isfinite(by_ends).all()
    point = make_rods([np.zeros((4, 3))], [0])
    assert all(np.isfinite(values).all() for values in strains_and_gradient(point))


def test_curvature_stops_growing_at_a_flat_fold():
    """The strain has a ceiling, and the gradient of the curvatures is that of what is computed."""
    angle = np.pi - 0.004  # past the floor
    ends = np.array([[-1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [np.cos(angle), np.sin(angle), 0.0]])
    rods = make_rods([ends], [0])
    rods.theta[:] = [0.4, 0.7]
    strain, gradient = strains_and_gradient(rods)
    assert np.abs(strain).max() < 300.0
    for vertex, axis in np.ndindex(3, 3):
        values = []
        for sign in (1.0, -1.0):
            moved = copied(rods)
            x = rods.x.copy()
            x[vertex, axis] += sign * 1e-6
            move(moved, x)
            values.append(strains_only(moved))
        numeric = (values[0] - values[1]) / 2e-6
        np.testing.assert_allclose(
            numeric[0, :2], gradient[0, :2, 4 * vertex + axis], atol=1e-6 * np.abs(gradient).max()
        )


def test_threads_do_not_change_a_bit():
    rng = np.random.default_rng(9)
    counts = rng.integers(3, 30, 300)
    shapes = [rng.normal(size=(k, 3)) for k in counts]
    closed = rng.integers(0, 2, 300)
    step = 0.2 * rng.normal(size=(counts.sum(), 3))
    results = []
    before = thread_count()
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            rods = make_rods(shapes, closed)
            rods.theta[:] = np.linspace(-30.0, 30.0, len(rods.theta))
            move(rods, rods.x + step)
            strain, gradient = strains_and_gradient(rods)
            length = np.empty((len(rods.theta), 1))
            by_ends = np.empty((len(rods.theta), 1, 6))
            edge_strains(rods.x, ends_of_edges(rods), length[:, 0], by_ends)
            arrays = [strain, gradient, strains_only(rods), frames_of(rods), length, by_ends]
            results.append([*arrays, rods.twist_of_reference, rods.reference, rods.length])
    finally:
        set_thread_count(before)
    for one, two in zip(*results):
        np.testing.assert_array_equal(one, two)
