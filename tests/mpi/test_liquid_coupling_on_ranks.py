"""A liquid, a wind, strands and balls that drag each other: on two ranks what they do on one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "liquid_coupling_scene.py"
TOLERANCE = 1e-7  # m and m/s after six steps, solved to 1e-10


@pytest.mark.mpi
@pytest.mark.slow  # compiles nearly everything in double precision
def test_what_meets_a_liquid_does_not_depend_on_ranks(tmp_path):
    alone = results_on_ranks(SCRIPT, 1, tmp_path)
    many = results_on_ranks(SCRIPT, 2, tmp_path)
    assert len(many["counts"]) == 2 and many["counts"].min() > 0
    for name in (n for n in alone if n.endswith(("position", "velocity"))):
        np.testing.assert_allclose(many[name], alone[name], rtol=0, atol=TOLERANCE, err_msg=name)
    assert alone["given"].shape == (5, 3) and np.abs(alone["given"]).max(axis=1).min() > 0.0
    for found in (alone, many):
        size = np.abs(found["given"]).max(axis=1, keepdims=True)
        assert np.abs(found["residual"] / size).max() < 1e-12
