"""Houdini's converter, on the stand-in, keeps the contract of hosts."""

from __future__ import annotations

import hou
import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.errors import InputError
from loki_vfx.bridges.houdini.loki_houdini.geometry_streams import (
    move_points,
    read_stream,
    write_streams,
)
from tests.host_contract import SINGLE, TYPES, assert_same, check_there_and_back, dressed


def give(stream):
    geometry = hou.Geometry()
    assert write_streams(geometry, {"out": stream}, single=False) == []
    return geometry


def take(geometry):
    stream, remarks = read_stream(geometry, "any", "input")
    assert remarks == []
    return stream


@pytest.mark.parametrize("name", SINGLE)
def test_there_and_back(name):
    check_there_and_back(name, give, take)


@pytest.mark.parametrize("name", TYPES)
def test_doubles_are_kept_where_they_are_asked_for(name):
    assert_same(dressed(name), take(give(dressed(name))))


def test_points_of_a_geometry_are_moved():
    moved = dressed("surface")
    moved.positions = moved.positions + 1.0
    geometry = give(dressed("surface"))
    move_points(geometry, moved, single=False)
    assert_same(take(geometry), moved)
    with pytest.raises(InputError, match="12 points and the result 0"):
        move_points(geometry, dressed("no points"))


def particles(ids):
    made = Points(np.arange(12.0).reshape(4, 3))
    made.set_channel("point", "id", np.array(ids, np.int64))
    return made


def test_particles_are_moved_by_the_points_they_began_as():
    given = particles([70, 71, 72, 73])
    geometry = give(given)
    move_points(geometry, particles([2, 0, 3, 1]), single=False)
    moved = take(geometry)
    np.testing.assert_array_equal(moved.positions[:, 0], [3.0, 9.0, 0.0, 6.0])
    assert moved.channels["point"]["id"].tolist() == [70, 71, 72, 73]  # they keep their own
    move_points(geometry, given, single=False)  # carried through by a graph
    assert_same(take(geometry), given)
    with pytest.raises(InputError, match="came later, in the place of others"):
        move_points(geometry, particles([2, 0, 4, 1]))
