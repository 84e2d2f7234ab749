"""Collisions on ranks: a body meets the same collider on whichever rank it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "collision_scene.py"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return results_on_ranks(SCRIPT, 1, tmp_path_factory.mktemp("alone"))


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_collisions_do_not_depend_on_the_ranks(alone, ranks, tmp_path):
    found = results_on_ranks(SCRIPT, ranks, tmp_path)
    assert len(found["counts"]) == ranks and found["counts"].min() > 0
    assert (alone["edges.contact"][:, 0, 0] > 0.0).sum() > 20  # strands lie on the ball
    for name in ("position", "velocity", "edges.contact"):
        scale = np.abs(alone[name]).max()
        np.testing.assert_allclose(
            found[name], alone[name], rtol=0, atol=1e-9 * scale, err_msg=name
        )
