"""Linear solvers on 1 to 4 ranks: the same solutions, hardly more iterations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "linear_solvers.py"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return results_on_ranks(SCRIPT, 1, tmp_path_factory.mktemp("one"))


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_solutions_do_not_depend_on_ranks(alone, tmp_path, ranks):
    many = results_on_ranks(SCRIPT, ranks, tmp_path)
    for name in ("box", "box_empty", "holes", "closed", "direct", "pgs", "pgs_empty", "lcp"):
        # Residuals of 1e-10 (1e-9 for the bounds) on matrices with conditions of some hundred.
        scale = np.abs(alone[name]).max()
        np.testing.assert_allclose(many[name], alone[name], rtol=0, atol=1e-7 * scale, err_msg=name)
    for name in ("box", "box_empty", "holes", "closed"):
        assert many[f"{name}_iterations"] <= 1.5 * alone[f"{name}_iterations"], name


def test_direct_and_multigrid_agree(alone):
    scale = np.abs(alone["direct"]).max()
    np.testing.assert_allclose(alone["closed"], alone["direct"], rtol=0, atol=1e-8 * scale)
