"""The manybodies solver on 2 and 3 ranks: the solutions of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "manybodies.py"
NAMES = ("coupled", "coupled_empty", "direct", "plain", "few", "loose")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return results_on_ranks(SCRIPT, 1, tmp_path_factory.mktemp("one"))


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_solutions_do_not_depend_on_ranks(alone, tmp_path, ranks):
    many = results_on_ranks(SCRIPT, ranks, tmp_path)
    for name in NAMES:
        scale = np.abs(alone[name]).max()
        np.testing.assert_allclose(
            many[name], alone[name], rtol=0, atol=1e-10 * scale, err_msg=name
        )
        assert abs(many[f"{name}_iterations"] - alone[f"{name}_iterations"]) <= 1, name
        # Bodies are whole on a rank and their sums are added exactly.
        assert many[f"{name}_dot"] == alone[f"{name}_dot"], name


def test_one_rank_agrees_with_the_direct_solve(alone):
    scale = np.abs(alone["direct"]).max()
    for name in ("coupled", "plain"):
        np.testing.assert_allclose(alone[name], alone["direct"], rtol=0, atol=1e-10 * scale)
    assert alone["loose_iterations"] == 1
