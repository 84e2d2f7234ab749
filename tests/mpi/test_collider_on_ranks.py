"""Colliders on ranks: fields, faces and samples are the same bits on any number of ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "collider_scene.py"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return results_on_ranks(SCRIPT, 1, tmp_path_factory.mktemp("alone"))


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_colliders_do_not_depend_on_the_ranks(alone, ranks, tmp_path):
    found = results_on_ranks(SCRIPT, ranks, tmp_path)
    assert len(found["counts"]) == ranks and found["counts"].min() > 0
    assert found["counts"].sum() == alone["counts"].sum() > 20
    assert set(found) == set(alone)
    for name in sorted(set(alone) - {"counts"}):
        np.testing.assert_array_equal(found[name], alone[name], err_msg=name)
    assert 0.0 < alone["air_open_fraction"].mean() < 1.0
    assert (alone["cloud_samples"][:, 0] < 0).any()  # a level set
    assert (alone["ball_samples"][:, 0] < 0).any() and (alone["bowl_samples"][:, 0] < 0).any()
