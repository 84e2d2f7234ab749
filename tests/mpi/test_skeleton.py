"""The walking skeleton: the riskiest abstractions, each on N ranks against its run on one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCENE = Path(__file__).parent.parent / "skeleton" / "run_scene.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("skeleton")


@pytest.fixture(scope="module")
def alone(folder):
    """Results of one rank, each scene run once."""
    known = {}

    def run(*scene):
        if scene not in known:
            known[scene] = results_on_ranks(SCENE, 1, folder, *scene)
        return known[scene]

    return run


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_chain_of_distances_through_embedded_particles(alone, folder, ranks):
    one = alone("chain", "")
    many = results_on_ranks(SCENE, ranks, folder, "chain", "")
    assert np.all(one["residuals"] <= 1e-12)
    # Contributions reach their owners in another order, so the last bits of sums differ.
    np.testing.assert_allclose(many["position"], one["position"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(many["velocity"], one["velocity"], rtol=0, atol=1e-10)


def test_chain_keeps_momentum_but_for_gravity(alone):
    velocity = alone("chain", "")["velocity"]
    count = len(velocity)
    t = np.arange(count) / count
    start = np.stack((np.cos(11.0 * t), np.sin(13.0 * t), 0.0 * t), axis=1).mean(axis=0)
    # Five frames of 1/24 s under g; the constraints' forces cancel in the sum.
    expected = start + np.array([0.0, -9.81, 0.0]) * 5 / 24
    np.testing.assert_allclose(velocity.mean(axis=0), expected, rtol=0, atol=1e-11)


def test_chain_does_not_depend_on_the_order_of_siblings(alone):
    for name, values in alone("chain", "").items():
        np.testing.assert_array_equal(alone("chain", "reordered")[name], values)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("variant", ["open", "periodic"])
def test_particles_to_grid_and_back(alone, folder, ranks, variant):
    one = alone("grid_particles", variant)
    many = results_on_ranks(SCENE, ranks, folder, "grid_particles", variant)
    for name, values in one.items():  # gathers in canonical order: bit for bit
        np.testing.assert_array_equal(many[name], values, err_msg=name)


def test_particles_to_grid_conserves_mass_and_momentum(alone):
    found = alone("grid_particles", "periodic")
    # No particle leaves a periodic box along x, and y and z reach far beyond them.
    assert len(found["mass"]) == 4000
    mass = found["mass"].astype(np.float64).sum()
    np.testing.assert_allclose(found["sums"][:, 0], mass, rtol=1e-12)
    rng = np.random.default_rng(7)
    rng.random((4000, 3))
    velocity = rng.standard_normal((4000, 3)).astype(np.float32).astype(np.float64)
    start = (found["mass"].astype(np.float64)[:, None] * velocity).sum(axis=0)
    # P2G itself is exact; velocities are stored in single precision on the way back.
    np.testing.assert_allclose(found["sums"][0, 1:], start, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["sums"][-1, 1:], start, rtol=0, atol=2e-5 * mass)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("variant", ["walls", "periodic"])
def test_poisson_solve(alone, folder, ranks, variant):
    one = alone("poisson", variant)
    many = results_on_ranks(SCENE, ranks, folder, "poisson", variant)
    # The solution is a discrete eigenvector, so only the tolerance of CG is left: 1e-12 of |p| = 1.
    assert one["error"] < 1e-11
    # Exact dot products make every iterate the same, so the answer is too: bit for bit.
    np.testing.assert_array_equal(many["pressure"], one["pressure"])
    assert many["iterations"] == one["iterations"]
