"""Outputs come in the order of the input, and nodes after the solver see whole Objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loki_vfx.serialization.frame_cache import FrameCacheReader
from tests.mpi.scripts.ordered_outputs import LAST, dust, groom
from tests.ranks import run_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "ordered_outputs.py"
NUMBERS = {"hair": ("primitive", "strand"), "dust": ("point", "id")}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of the runs on one rank and on two."""
    found = {}
    for ranks in (1, 2):
        found[ranks] = tmp_path_factory.mktemp(f"ranks_{ranks}")
        run_on_ranks(SCRIPT, ranks, found[ranks])
    return found


def assert_same_streams(found, expected):
    np.testing.assert_allclose(found.positions, expected.positions, rtol=0, atol=1e-12)
    assert found.channel_names() == expected.channel_names()
    for place in ("point", "primitive"):
        for name, values in expected.channels[place].items():
            np.testing.assert_allclose(
                found.channels[place][name], values, rtol=0, atol=1e-9, err_msg=name
            )


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["direct", "nodes"])
def test_outputs_do_not_depend_on_ranks(folders, name):
    one, two = (FrameCacheReader(folders[ranks] / name) for ranks in (1, 2))
    assert two.verify() == []
    for frame in (1, LAST):
        for output in ("hair", "dust"):
            assert_same_streams(two.read(frame, output), one.read(frame, output))
    parts = two.index(LAST)["objects"]["hair"]
    assert len(parts) == (2 if name == "direct" else 1)
    if name == "direct":  # both ranks had some, or this tests nothing
        assert min(part["counts"]["primitive"] for part in parts) > 0


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_element_i_of_the_result_is_element_i_of_the_input(folders, ranks):
    reader = FrameCacheReader(folders[ranks] / "direct")
    for output, given in (("hair", groom()), ("dust", dust())):
        found = reader.read(LAST, output)
        place, number = NUMBERS[output]
        numbers = found.channels[place][number]
        np.testing.assert_array_equal(numbers, np.arange(len(numbers)))
        np.testing.assert_array_equal(
            found.channels["point"]["number"], given.channels["point"]["number"]
        )
    found = reader.read(LAST, "hair")
    np.testing.assert_array_equal(found.offsets, groom().offsets)
    np.testing.assert_allclose(
        found.positions[found.offsets[:-1]], groom().positions[groom().offsets[:-1]], atol=1e-12
    )


@pytest.mark.mpi
def test_a_graph_gives_the_same_whole_outputs_on_every_rank(folders):
    with np.load(folders[1] / "graph.0.npz") as alone:
        for rank in (0, 1):
            with np.load(folders[2] / f"graph.{rank}.npz") as found:
                for name, expected in alone.items():
                    np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-12)
