"""Houdini's converter, on the stand-in, keeps the contract of hosts."""

from __future__ import annotations

import hou
import pytest

from bridges.houdini.loki_houdini.geometry_streams import move_points, read_stream, write_streams
from loki_core.errors import InputError
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
