"""Attachments between strands of different ranks: the motion of one rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "attachment_ranks.py"
CHANNELS = ("position", "velocity", "edges.angle")


def assert_same_motion(many, alone, ranks):
    for name in (f"{group}.{channel}" for group in ("lower", "upper") for channel in CHANNELS):
        scale = np.abs(alone[name]).max()
        np.testing.assert_allclose(
            many[name], alone[name], rtol=0, atol=1e-8 * scale, err_msg=f"{name}, {ranks} ranks"
        )


LONG = [pytest.param(mode, marks=pytest.mark.slow) for mode in ("every_step", "balanced")]


@pytest.mark.mpi
@pytest.mark.parametrize("mode", ["once", "multipliers", *LONG])
def test_motion_does_not_depend_on_ranks(tmp_path, mode):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, mode)
    assert alone["owned"].min() > 10 and alone["ghosts"] == 0
    for ranks in (2, 3):
        many = results_on_ranks(SCRIPT, ranks, tmp_path, mode)
        assert many["bodies"].min() > 0 and many["ghosts"] > 0
        # Each pair is counted once, and some are evaluated on two ranks.
        np.testing.assert_array_equal(many["owned"], alone["owned"])
        assert many["evaluated"].sum() > many["owned"].sum()
        assert_same_motion(many, alone, ranks)


@pytest.mark.mpi
def test_pairs_follow_their_bodies_and_states(tmp_path):
    """Bodies change ranks and pairs come and go; a state goes on bit for bit, on others closely."""
    alone, many = (results_on_ranks(SCRIPT, ranks, tmp_path, "resumed") for ranks in (1, 2))
    assert_same_motion(many, alone, 2)
    for found in (alone, many):
        np.testing.assert_array_equal(found["same"], found["upper.position"])
        scale = np.abs(found["same"]).max()
        np.testing.assert_allclose(found["other"], found["same"], rtol=0, atol=1e-8 * scale)
    # Each rank has the pairs of its strands alone, and no stream whole.
    assert many["rows"].sum() == alone["rows"].sum() and many["rows"].min() > 0
    assert alone["streams"] == many["streams"] == 0


@pytest.mark.mpi
def test_a_sag_free_start_does_not_depend_on_ranks(tmp_path):
    """Strands of different ranks are balanced together with what joins them."""
    alone = results_on_ranks(SCRIPT, 1, tmp_path, "sag_free")
    many = results_on_ranks(SCRIPT, 2, tmp_path, "sag_free")
    assert many["bodies"].min() > 0 and many["ghosts"] > 0
    assert_same_motion(many, alone, 2)


@pytest.mark.mpi
@pytest.mark.parametrize("mode", ["few", "few_multipliers"])
def test_ranks_without_strands_take_part(tmp_path, mode):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, mode)
    many = results_on_ranks(SCRIPT, 5, tmp_path, mode)
    assert many["bodies"].min() == 0
    assert_same_motion(many, alone, 5)
