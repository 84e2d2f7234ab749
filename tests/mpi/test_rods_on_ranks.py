"""Solids on several ranks: the motion of one rank, alone and in wind, and after a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import run_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "rods_ranks.py"
TOLERANCE = {"strands": 1e-10, "wind": 1e-8, "leaves": 1e-9}  # of the largest value


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Whole runs on any number of ranks, each once, and the folders of their checkpoints."""
    known = {}

    def get(scene, ranks):
        if (scene, ranks) not in known:
            folder = tmp_path_factory.mktemp(f"{scene}_{ranks}")
            known[scene, ranks] = (
                results(folder, ranks, scene, "run", folder / "checkpoints"),
                folder / "checkpoints",
            )
        return known[scene, ranks]

    return get


def results(folder, ranks, *words):
    target = folder / f"found_{ranks}.npz"
    run_on_ranks(SCRIPT, ranks, target, *words)
    with np.load(target) as saved:
        return dict(saved)


def assert_same(found, expected, tolerance):
    assert set(found) == set(expected)
    for name, values in expected.items():
        if name == "counts":
            assert found[name].sum() == values.sum()
            continue
        assert found[name].shape == values.shape, name
        # Residuals are nothing but round-off of the momentum.
        of = name.replace("residual", "to_solids")
        bound = tolerance * abs(expected[of]).max()
        np.testing.assert_allclose(found[name], values, rtol=0, atol=bound, err_msg=name)


@pytest.mark.mpi
@pytest.mark.parametrize("scene", TOLERANCE)
@pytest.mark.parametrize("ranks", [2, 3])
def test_motion_does_not_depend_on_ranks(runs, scene, ranks):
    alone, many = runs(scene, 1)[0], runs(scene, ranks)[0]
    assert len(many["counts"]) == ranks and many["counts"].min() > 0
    assert_same(many, alone, TOLERANCE[scene])


@pytest.mark.mpi
@pytest.mark.parametrize("scene", TOLERANCE)
@pytest.mark.parametrize(
    ("written", "read"),
    [(2, 2), (1, 3), *(pytest.param(3, n, marks=pytest.mark.slow) for n in (1, 2))],
)
def test_a_checkpoint_is_continued_on_any_number_of_ranks(runs, tmp_path, scene, written, read):
    whole, checkpoints = runs(scene, written)
    resumed = results(tmp_path, read, scene, "resume", checkpoints)
    assert len(resumed["counts"]) == read and resumed["counts"].min() > 0
    assert_same(resumed, whole, 0.0 if written == read else TOLERANCE[scene])
