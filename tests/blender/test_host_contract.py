"""Blender's converter keeps the contract of hosts."""

from __future__ import annotations

import pytest

from loki_vfx.bridges.blender.axes import Axes
from loki_vfx.bridges.blender.loki_to_host import show
from tests.blender.conversion_scenes import read
from tests.host_contract import SINGLE, check_there_and_back


@pytest.mark.parametrize("name", SINGLE)
def test_there_and_back(name):
    check_there_and_back(name, give, read)


def give(stream):
    return show(stream, "contract", Axes())
