"""The surface of a liquid on several ranks: the triangles of one, and no crack between parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "liquid_surface_ranks.py"


def ordered(run):
    """Triangles in an order that does not depend on ranks."""
    middle = np.round(run["triangles"].mean(axis=1), 5)
    return np.lexsort(middle.T)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return results_on_ranks(SCRIPT, 1, tmp_path_factory.mktemp("surface"))


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def run(request, tmp_path_factory):
    return results_on_ranks(SCRIPT, request.param, tmp_path_factory.mktemp("surfaces"))


@pytest.mark.mpi
def test_ranks_make_the_surface_of_one(alone, run):
    assert len(run["shares"]) > 1 and run["shares"].min() > 100
    assert run["triangles"].shape == alone["triangles"].shape
    ours, theirs = ordered(run), ordered(alone)
    # Sums of particles' parts have another order where ranks meet: float32 round-off.
    np.testing.assert_allclose(
        run["triangles"][ours].mean(axis=1), alone["triangles"][theirs].mean(axis=1), atol=1e-5
    )
    np.testing.assert_allclose(
        run["velocity"][ours].mean(axis=1), alone["velocity"][theirs].mean(axis=1), atol=1e-3
    )


@pytest.mark.mpi
def test_parts_of_ranks_match_to_the_last_bit(run):
    points, corners = np.unique(run["triangles"].reshape(-1, 3), axis=0, return_inverse=True)
    corners = corners.reshape(-1, 3)
    pairs = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    forward = pairs[:, 0] * len(points) + pairs[:, 1]
    backward = pairs[:, 1] * len(points) + pairs[:, 0]
    assert np.array_equal(np.sort(forward), np.sort(backward))
