"""Pockets: gas that solids cut off from the rest, and what the solver knows of it."""

from __future__ import annotations

import numpy as np

from loki_core.data.mesh import merge
from loki_core.linear_solvers.unheld_parts import LARGEST_PARTS, constant_of, hold_unheld_parts
from loki_core.objects.colliders.collider import Collider
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.stages import Stage
from tests.skeleton.floating_body import announce
from tests.unit.test_pressure import TOLERANCE, H, air, block, divergence, left_over, stir


def chains(sizes, *, held=()):
    """Path graphs with Neumann ends as one system, rows beginning with their diagonal."""
    starts, columns, data = [0], [], []
    first = 0
    for part, size in enumerate(sizes):
        for i in range(size):
            others = [j for j in (i - 1, i + 1) if 0 <= j < size]
            diagonal = len(others) + (1.0 if part in held and i == 0 else 0.0)
            columns += [first + i, *(first + j for j in others)]
            data += [diagonal, *([-1.0] * len(others))]
            starts.append(len(columns))
        first += size
    return np.array(starts, np.int32), np.array(columns, np.int32), np.array(data)


def dense(starts, columns, data):
    matrix = np.zeros((len(starts) - 1,) * 2)
    for row in range(len(starts) - 1):
        for n in range(starts[row], starts[row + 1]):
            matrix[row, columns[n]] += data[n]
    return matrix


def test_the_largest_unheld_parts_are_the_null_space_and_others_are_held():
    sizes = [3, 9, 2, 7, 5, 4, 6]
    system = chains(sizes, held=(3,))
    vectors = hold_unheld_parts(*system, SERIAL, None)
    assert len(vectors) == LARGEST_PARTS
    assert [int(np.count_nonzero(v)) for v in vectors] == [9, 6, 5, 4]  # 7 has a held end
    basis = np.array(vectors)
    np.testing.assert_allclose(basis @ basis.T, np.eye(len(vectors)), atol=1e-14)
    matrix = dense(*system)
    np.testing.assert_allclose(matrix @ basis.T, 0.0, atol=1e-14)
    # Nothing else is left that the system does not see.
    values = np.linalg.eigvalsh(matrix)
    assert np.count_nonzero(values < 1e-10) == len(vectors)


def test_one_opening_holds_a_part_of_any_size():
    # A room with a keyhole: gas leaves through it, however large the room is.
    count = 600_000
    row = np.arange(count)
    columns = np.stack((row, row - 1, row + 1), axis=1)
    data = np.broadcast_to([2.0, -1.0, -1.0], columns.shape).copy()
    data[-1, 0] = 1.0
    there = (columns >= 0) & (columns < count)  # the first row keeps its 2: it is held
    starts = np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int32)
    columns, data = columns[there].astype(np.int32), data[there]
    before = data.copy()
    assert hold_unheld_parts(starts, columns, data, SERIAL, None) == []
    np.testing.assert_array_equal(data, before)


def test_many_small_pockets_are_found_at_once():
    # Crevices of a rough solid: thousands of single cells beside one large room.
    starts, columns, data = chains([2] * 3000 + [500])
    vectors = hold_unheld_parts(starts, columns, data, SERIAL, None)
    assert len(vectors) == LARGEST_PARTS
    assert np.count_nonzero(vectors[0]) == 500
    first = data[starts[:-1]][:6000].reshape(-1, 2)
    assert np.count_nonzero(first[:, 0] > 1.0) == 3000 - LARGEST_PARTS + 1


def test_a_constant_is_normed_and_a_system_of_nothing_has_none():
    used = np.array([True, False, True, True, True])
    (vector,) = constant_of(used, SERIAL)
    np.testing.assert_allclose(vector @ vector, 1.0)
    assert vector[1] == 0.0
    assert constant_of(np.zeros(3, bool), SERIAL) == []


def shelves(count):
    """Plates across the box that leave `count + 1` closed rooms, one after the other along x."""
    plates = []
    for n in range(count):
        x = 2.0 * (n + 1) / (count + 1)
        plates.append(block((x - 1.1 * H, -1.0, -1.0), (x + 1.1 * H, 3.0, 3.0)))
    return merge(plates)


def test_rooms_between_plates_each_keep_their_gas():
    scene = air(Collider(name="plates", input="plates"), inputs={"plates": shelves(3)})
    assert left_over(scene) <= 2.0 * TOLERANCE
    assert scene.solver.actions["PressureMaterial"][0].report.converged


def test_more_pockets_than_vectors():
    # Seven rooms in 32 voxels: three of them are held by one unknown.
    scene = air(
        Collider(name="plates", input="plates"),
        inputs={"plates": shelves(6)},
        size=(4, 1, 1),
        h=H / 2.0,
        domain_upper=(2.0, 0.5, 0.5),
    )
    stir(scene)
    before = divergence(scene)
    scene.run(Stage.SOLVE_PRESSURE)
    after = divergence(scene)
    assert np.sqrt(np.nansum(after**2) / np.nansum(before**2)) <= 1e-8


def test_a_pocket_that_is_squeezed_does_not_disturb_the_others():
    # A source in one closed room asks for what cannot be: the other room must not notice.
    scene = air(Collider(name="plates", input="plates"), inputs={"plates": shelves(1)})
    scene.item.need_divergence()
    announce(scene.solver)
    scene.run(Stage.UPDATE_COLLIDERS)
    scene.run(Stage.UPDATE_BOUNDARIES)
    source = np.zeros((1, 16, 16, 16))
    source[0, :3] = 1.0
    scene.fill("divergence", source)
    scene.run(Stage.SOLVE_PRESSURE)
    u = scene.dense("velocity")
    assert np.isfinite(u).all()
    assert np.abs(u[:, 10:]).max() < 1e-9
    assert np.abs(u[:, :6]).max() < 1.0
