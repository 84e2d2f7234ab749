"""Unknowns: numbers of blocks, body by body."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.objects.solids.unknowns import Block, Unknowns


def offsets(*sizes):
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def test_elements_of_blocks_alternate_along_each_body():
    # Three vertices and two edges, and a ring of three of either.
    unknowns = Unknowns.interleaved(
        [Block("position", 3, offsets(3, 3)), Block("twist", 1, offsets(2, 3))]
    )
    assert unknowns.size == 11 + 12 and unknowns.bodies == 2
    np.testing.assert_array_equal(unknowns.body_start, [0, 11, 23])
    np.testing.assert_array_equal(unknowns.starts("position"), [0, 4, 8, 11, 15, 19])
    np.testing.assert_array_equal(unknowns.starts("twist"), [3, 7, 14, 18, 22])
    np.testing.assert_array_equal(unknowns.body_of("twist"), [0, 0, 1, 1, 1])
    numbers = np.concatenate([unknowns.rows(name).reshape(-1) for name in ("position", "twist")])
    np.testing.assert_array_equal(np.sort(numbers), np.arange(23))


@pytest.mark.parametrize("widths", [(6,), (3, 3), (2, 1, 4)])
def test_any_widths_have_one_number_each(widths):
    sizes = [(4, 0, 1), (3, 0, 1), (3, 0, 0)][: len(widths)]
    blocks = [Block(str(k), w, offsets(*sizes[k])) for k, w in enumerate(widths)]
    unknowns = Unknowns.interleaved(blocks)
    numbers = np.concatenate([unknowns.rows(block.name).reshape(-1) for block in blocks])
    np.testing.assert_array_equal(np.sort(numbers), np.arange(unknowns.size))
    for block in blocks:  # bodies are whole
        rows, body = unknowns.rows(block.name), unknowns.body_of(block.name)
        assert np.all(rows >= unknowns.body_start[body][:, None])
        assert np.all(rows < unknowns.body_start[body + 1][:, None])


def test_points_keep_their_numbers_when_rows_change_places():
    unknowns = Unknowns.of_points(np.array([2, 0, 1]))
    np.testing.assert_array_equal(unknowns.starts("position"), [3, 6, 0])
    unknowns.reorder(np.array([0, 1, 2]))
    np.testing.assert_array_equal(unknowns.starts("position"), [0, 3, 6])
    np.testing.assert_array_equal(unknowns.body_of("position"), [0, 1, 2])


def test_vectors_are_gathered_and_scattered():
    unknowns = Unknowns.interleaved([Block("position", 3, offsets(2, 1))])
    unknowns.first = 5
    vector = np.zeros(unknowns.size)
    unknowns.scatter(vector, "position", [1.0, 2.0, 3.0], np.array([2, 0]))
    np.testing.assert_array_equal(vector, [1, 2, 3, 0, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(unknowns.gather(vector, "position")[1], np.zeros(3))
    np.testing.assert_array_equal(unknowns.joint("position", np.array([1])), [[8, 9, 10]])
    assert unknowns.range == slice(5, 14) and unknowns.range_of(1) == (11, 14)
