"""Particle fluids on several ranks: the flow of one rank, to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "particle_fluid_scene.py"


@pytest.mark.mpi
@pytest.mark.parametrize("fluid", ["pbf", "sph"])
@pytest.mark.parametrize(
    "case",
    [
        "walls",
        pytest.param("periodic", marks=pytest.mark.slow),
        pytest.param("sizes", marks=pytest.mark.slow),
        pytest.param("densities", marks=pytest.mark.slow),
        pytest.param("jet", marks=pytest.mark.slow),
    ],
)
def test_a_dam_break_does_not_depend_on_ranks(fluid, case, tmp_path):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, fluid, case)
    assert np.abs(alone["velocity"]).max() > 3.0  # it was 2.5 m/s: it does collide
    for ranks in (2, 3):
        many = results_on_ranks(SCRIPT, ranks, tmp_path, fluid, case)
        assert many["counts"].shape[1] == ranks and many["counts"][-1].min() > 0
        assert case != "jet" or many["position"][:, 1].min() > 0.0  # nothing is below the plate
        assert np.ptp(many["counts"], axis=0).max() > 0  # particles move between ranks
        for name in ("id", "position", "velocity", "density_ratio", "pressure"):
            np.testing.assert_array_equal(many[name], alone[name])
