"""The standalone runner's files keep the contract of hosts."""

from __future__ import annotations

import pytest

from loki_vfx.bridges.standalone.input_files import read_input
from loki_vfx.serialization.atomic_file import write_packed
from loki_vfx.serialization.houdini_files import write_geometry
from loki_vfx.serialization.houdini_streams import geometry_of
from tests.host_contract import SINGLE, TYPES, assert_same, check_there_and_back, dressed


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("suffix", [".loki", ".bgeo.sc"])
def test_there_and_back(name, suffix, tmp_path):
    path = tmp_path / f"stream{suffix}"

    def give(stream):
        if suffix == ".loki":
            write_packed(path, stream)
        else:
            write_geometry(path, geometry_of(stream))
        return str(path)

    check_there_and_back(name, give, read_input)


@pytest.mark.parametrize("name", TYPES)
def test_doubles_are_kept(name, tmp_path):
    write_packed(tmp_path / "stream.loki", dressed(name))
    assert_same(dressed(name), read_input(str(tmp_path / "stream.loki")))
