"""Smoke on 1 to 4 ranks: bit for bit without solves, to the solver's tolerance with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.mpi.scripts.smoke_ranks import SMOKE
from tests.ranks import results_on_ranks, run_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "smoke_ranks.py"
STEPS = 3
pytestmark = pytest.mark.mpi


@pytest.mark.timeout(600)
def test_without_solves_ranks_agree_bit_for_bit(tmp_path):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, "free", STEPS)
    assert alone[f"density_{STEPS - 1}"].max() > 0.5
    for ranks in (2, 3, 4):
        several = results_on_ranks(SCRIPT, ranks, tmp_path, "free", STEPS)
        assert several["sent"] > 0
        assert several.keys() == alone.keys()
        for name in alone.keys() - {"sent"}:
            np.testing.assert_array_equal(several[name], alone[name], err_msg=f"{name}, {ranks}")


# "ball" needs ranks that agree on the type in which a matrix is stored.
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("case", "ranks"),
    [("plume", (2, 3, 4)), ("ball", (2, 4)), ("viscous", (3,))],
)
def test_with_solves_ranks_agree_to_the_tolerance(tmp_path, case, ranks):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, case, STEPS)
    for count in ranks:
        several = results_on_ranks(SCRIPT, count, tmp_path, case, STEPS)
        for step in range(STEPS):
            label = f"{case}, {count} ranks, step {step}"
            np.testing.assert_array_equal(
                several[f"coords_{step}"], alone[f"coords_{step}"], err_msg=label
            )
            for name in SMOKE:
                one, other = alone[f"{name}_{step}"], several[f"{name}_{step}"]
                difference = np.linalg.norm(other - one) / np.linalg.norm(one)
                assert difference <= 1e-10 * (step + 1), (label, name, difference)
            mass = alone[f"mass_{step}"]
            np.testing.assert_allclose(several[f"mass_{step}"], mass, rtol=1e-13, err_msg=label)


@pytest.mark.timeout(600)
def test_a_bad_stream_is_the_same_error_on_every_rank(tmp_path):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, "failing", STEPS)
    several = results_on_ranks(SCRIPT, 2, tmp_path, "failing", STEPS)
    assert "finite" in str(alone["error"])
    assert str(several["error"]) == str(alone["error"])


@pytest.mark.timeout(600)
def test_two_runs_on_the_same_ranks_are_the_same(tmp_path):
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    for target in (first, second):
        run_on_ranks(SCRIPT, 2, target, "plume", 2)
    with np.load(first) as one, np.load(second) as other:
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
