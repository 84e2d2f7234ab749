"""Advection on 2, 3 and 4 ranks equals that on one, bit for bit: local and foreign traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "advect_ranks.py"


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("scheme", "limiter", "speed"),
    [
        ("maccormack", "clamp", 1.5),
        pytest.param("bfecc", "revert", 6.0, marks=pytest.mark.slow),
        ("cubic", "clamp", 25.0),
    ],
)
def test_ranks_agree(tmp_path, scheme, limiter, speed):
    arguments = (scheme, limiter, speed)
    alone = results_on_ranks(SCRIPT, 1, tmp_path, *arguments)
    assert np.isfinite(alone["velocity"]).all()
    for ranks in (2, 3, 4):
        several = results_on_ranks(SCRIPT, ranks, tmp_path, *arguments)
        assert several["sent"] > 0
        for name in ("velocity", "density", "temperature"):
            np.testing.assert_array_equal(several[name], alone[name], err_msg=f"{name} {ranks}")
