"""Load balance over time: the load is shared while it wanders, and what is computed stays.

The cloud of dust travels 1.5 times its length in 24 substeps, a look every fifth; with cuts that
stay all of it ends on one rank.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "balance_ranks.py"
LOOKS = ("substep", "of", "imbalance_before", "imbalance_after", "moved", "places", "bytes")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of a scene in a mode on a number of ranks, each once."""
    folder, known = tmp_path_factory.mktemp("balance"), {}

    def run(ranks, scene, mode="model"):
        if (ranks, scene, mode) not in known:
            known[ranks, scene, mode] = results_on_ranks(SCRIPT, ranks, folder, scene, mode)
        return known[ranks, scene, mode]

    return run


def imbalance(shares):
    """Particles of the fullest rank over the mean, in each substep."""
    return shares.max(axis=1) / shares.mean(axis=1)


def channels(run):
    return [name for name in run if "." in name and not name.startswith("look.")]


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_cloud_that_leaves_its_ranks_is_shared_anew(runs, ranks):
    run, left_alone = runs(ranks, "dust"), runs(ranks, "dust", "never")
    assert imbalance(left_alone["shares"])[-1] > 0.8 * ranks  # nearly all of it is on one
    moved = run["look.substep"][run["look.moved"]]
    assert len(moved) >= 3 and moved[-1] > 5
    # Right after a move no rank weighs 5 % more than its share; Buckets weigh too, not only dust.
    assert run["look.imbalance_after"].max() < 1.05
    assert np.all(imbalance(run["shares"])[moved] < 1.1)
    assert np.all(run["look.imbalance_before"][run["look.moved"]][1:] > 1.3)
    assert np.all(run["look.places"][run["look.moved"]] > 0)
    assert imbalance(run["shares"]).mean() < 0.85 * imbalance(left_alone["shares"]).mean()


@pytest.mark.mpi
def test_what_does_not_pay_leaves_the_cuts_untouched(runs):
    run = runs(2, "still")
    looks = run["look.moved"]
    assert len(looks) == 6 and not np.any(looks[1:])  # the first is the start itself
    np.testing.assert_array_equal(run["cuts"], run["start_cuts"])
    assert np.all(run["look.places"][1:] == 0)
    dust = runs(2, "dust")  # nor are small gains taken
    kept = ~dust["look.moved"]
    assert np.any(dust["look.imbalance_before"][kept] > dust["look.imbalance_after"][kept] + 0.05)


@pytest.mark.mpi
def test_a_volume_that_changes_its_buckets_is_looked_at_then(runs):
    run = runs(2, "smoke")
    between = run["look.substep"] % 5 != 0
    assert np.any(run["look.moved"][between])
    assert np.all(run["look.imbalance_after"] < 1.2)  # Buckets are few


@pytest.mark.mpi
@pytest.mark.parametrize("mode", ["model", "timings"])
@pytest.mark.parametrize(("ranks", "scene"), [(2, "dust"), (2, "hair"), (3, "hair"), (2, "smoke")])
def test_a_run_that_is_balanced_on_the_way_equals_that_of_one_rank(runs, ranks, scene, mode):
    alone, many = runs(1, scene), runs(ranks, scene, mode)
    assert len(alone["look.moved"]) == 0  # one rank has nothing to balance
    if mode == "model":
        assert np.any(many["look.moved"][1:])
    for name in channels(alone):
        if name.startswith("Load"):  # dust and smoke without a solve: not a bit may differ
            np.testing.assert_array_equal(many[name], alone[name], err_msg=name)
        else:  # strands are solved in groups of eight, which are others on other ranks
            scale = np.abs(alone[name]).max()
            np.testing.assert_allclose(many[name], alone[name], atol=1e-9 * scale, err_msg=name)


@pytest.mark.mpi
@pytest.mark.parametrize("scene", ["dust", "hair", "smoke"])
def test_a_restored_run_takes_the_same_decisions(runs, scene):
    whole, resumed = runs(2, scene), runs(2, scene, "resumed")
    for name in LOOKS:
        np.testing.assert_array_equal(resumed[f"look.{name}"], whole[f"look.{name}"], err_msg=name)
    for name in (*channels(whole), "cuts", "counts"):
        np.testing.assert_array_equal(resumed[name], whole[name], err_msg=name)
