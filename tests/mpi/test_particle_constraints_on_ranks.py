"""Particles that collide and are attached move alike on any number of ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "particle_constraints.py"


def assert_same_motion(many, alone, ranks):
    np.testing.assert_array_equal(many["dust.id"], alone["dust.id"])
    scale = np.abs(alone["impulse"]).max()
    np.testing.assert_allclose(many["impulse"], alone["impulse"], rtol=0, atol=1e-7 * scale)
    for name in alone:
        if name.startswith(("dust.", "rods.")):
            scale = np.abs(alone[name]).max()
            np.testing.assert_allclose(
                many[name], alone[name], rtol=0, atol=1e-7 * scale, err_msg=f"{name}, {ranks} ranks"
            )


LONG = [pytest.param(mode, marks=pytest.mark.slow) for mode in ("once", "balanced")]


@pytest.mark.mpi
@pytest.mark.parametrize("mode", ["contacts", "every_step", *LONG])
def test_motion_does_not_depend_on_ranks(tmp_path, mode):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, mode)
    above = alone["dust.position"][:, 1] - alone["dust.radius"]
    assert above.min() > -1e-6 and (above < 1e-3).sum() > 20
    assert len(np.setdiff1d(np.arange(150), alone["dust.id"])) > 20  # some died
    assert alone["dust.id"].max() > 170  # some were born
    assert mode == "contacts" or alone["owned"].min() > 2
    for ranks in (2, 3):
        many = results_on_ranks(SCRIPT, ranks, tmp_path, mode)
        assert many["counts"].min() > 0
        if mode == "contacts":  # nothing is solved for: no order of sums to differ
            np.testing.assert_array_equal(many["dust.position"], alone["dust.position"])
        np.testing.assert_array_equal(many["owned"], alone["owned"])
        assert mode == "contacts" or many["evaluated"].sum() > many["owned"].sum()
        assert_same_motion(many, alone, ranks)


@pytest.mark.mpi
def test_ranks_without_particles_take_part(tmp_path):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, "few")
    many = results_on_ranks(SCRIPT, 5, tmp_path, "few")
    assert many["counts"].min() == 0
    assert_same_motion(many, alone, 5)
