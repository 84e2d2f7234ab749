"""Inputs with samples of their motion on several ranks: the motion of one rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "motion_scene.py"
TOLERANCE = 1e-10  # of the largest value


@pytest.mark.mpi
def test_sampled_motion_does_not_depend_on_ranks(tmp_path):
    alone, many = (results_on_ranks(SCRIPT, ranks, tmp_path) for ranks in (1, 2))
    assert len(many["counts"]) == 2 and many["counts"].min() > 0
    for name in sorted(set(alone) - {"counts"}):
        bound = TOLERANCE * abs(alone[name]).max()
        np.testing.assert_allclose(many[name], alone[name], rtol=0, atol=bound, err_msg=name)
    roots = np.arange(0, len(alone["position"]), 6)
    np.testing.assert_array_equal(many["position"][roots], alone["position"][roots])
