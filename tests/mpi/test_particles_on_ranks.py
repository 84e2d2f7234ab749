"""Particles on ranks: nothing lost, nothing doubled, ghosts as their owners, bits as on one rank.

The script checks every step on every rank; here its results are compared with those of one rank.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "wandering_particles.py"
COUNT, STEPS = 20_000, 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("wandering")


@pytest.fixture(scope="module")
def alone(folder):
    return results_on_ranks(SCRIPT, 1, folder, COUNT, STEPS)


def test_particles_on_one_rank_come_and_go(alone):
    assert len(alone["open.id"]) > 0.8 * COUNT
    assert alone["open.id"].max() > COUNT  # emitted ones are among them
    assert len(alone["open.id"]) < alone["open.id"].max()  # and some are gone
    assert np.all(
        (alone["periodic.position"][:, [0, 2]] >= 0) & (alone["periodic.position"][:, [0, 2]] < 1)
    )
    assert alone["vanish.id"].min() >= 2000  # of the first ones none is left


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_particles_on_ranks_equal_those_on_one_bit_for_bit(alone, folder, ranks):
    many = results_on_ranks(SCRIPT, ranks, folder, COUNT, STEPS)
    assert set(many) == set(alone)
    for name, values in alone.items():
        if name.endswith(".counts"):
            assert len(many[name]) == ranks and many[name].sum() == values.sum()
        else:
            np.testing.assert_array_equal(many[name], values, err_msg=name)
            assert many[name].dtype == values.dtype
    # The load is shared: no rank has much more than its part.
    assert many["open.counts"].max() <= 1.2 * many["open.counts"].mean()
