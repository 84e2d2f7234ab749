"""A liquid on several ranks: the flow of one rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "liquid_scene.py"
FLOW = SCRIPT.with_name("liquid_flow.py")
TUBE = SCRIPT.with_name("tube_scene.py")
DROPS = SCRIPT.with_name("drop_scene.py")
#: m and m/s after twelve steps, solved to 1e-9 of some m/s; a narrow band carries more of the
#: difference along, since its velocities are those of the grid.
TOLERANCE = {"apic": 1e-8, "affine_flip": 1e-8, "narrow_band": 1e-7}


@pytest.mark.mpi
@pytest.mark.parametrize(
    "word", ["apic", "narrow_band", pytest.param("affine_flip", marks=pytest.mark.slow)]
)
def test_a_dam_break_does_not_depend_on_ranks(word, tmp_path):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, word)
    for ranks in (2, 3):
        many = results_on_ranks(SCRIPT, ranks, tmp_path, word)
        assert len(many["counts"]) == ranks and many["counts"].min() > 0
        np.testing.assert_array_equal(many["id"], alone["id"])
        for name in ("position", "velocity"):
            np.testing.assert_allclose(many[name], alone[name], rtol=0, atol=TOLERANCE[word])


@pytest.mark.mpi
@pytest.mark.slow
def test_free_drops_do_not_depend_on_ranks(tmp_path):
    script = SCRIPT.with_name("free_drop_scene.py")
    alone = results_on_ranks(script, 1, tmp_path)
    assert alone["bodies"] == 2
    for ranks in (2, 3):
        many = results_on_ranks(script, ranks, tmp_path)
        assert many["bodies"] == 2
        for name in ("position", "velocity"):
            np.testing.assert_allclose(many[name], alone[name], rtol=0, atol=TOLERANCE["apic"])


@pytest.mark.mpi
def test_drops_with_surface_tension_do_not_depend_on_ranks(tmp_path):
    alone, two = (results_on_ranks(DROPS, ranks, tmp_path) for ranks in (1, 2))
    assert len(two["counts"]) == 2 and two["counts"].min() > 0
    assert np.abs(alone["velocity"]).max() > 1e-3  # they do move
    for name in ("position", "velocity"):
        np.testing.assert_allclose(two[name], alone[name], rtol=0, atol=TOLERANCE["apic"])


@pytest.mark.mpi
def test_trapped_air_and_a_body_do_not_depend_on_ranks(tmp_path):
    alone, two = (results_on_ranks(TUBE, ranks, tmp_path) for ranks in (1, 2))
    assert len(two["counts"]) == 2 and two["counts"].min() > 0
    assert np.abs(alone["body"]).max() > 1e-6  # it is pushed
    for name in ("position", "velocity", "body"):
        np.testing.assert_allclose(two[name], alone[name], rtol=0, atol=TOLERANCE["apic"])


@pytest.mark.mpi
def test_what_comes_goes_and_mixes_does_not_depend_on_ranks(tmp_path):
    alone = results_on_ranks(FLOW, 1, tmp_path)
    start, emitted, drained, left, killed, volume, missing = alone["flows"]
    assert min(emitted, drained, left, killed) > 0.0 and missing == 0.0
    assert alone["told"] == 1  # the capacity is reached
    assert volume == pytest.approx(start + emitted - drained - left - killed)
    assert alone["sums"][0] / 16**3 == pytest.approx(volume, rel=1e-6)
    many = results_on_ranks(FLOW, 3, tmp_path)
    np.testing.assert_allclose(many["sums"], alone["sums"], rtol=1e-6, atol=1e-6)
    assert len(many["counts"]) == 3 and many["counts"].min() > 0
    np.testing.assert_array_equal(many["flows"], alone["flows"])
    np.testing.assert_array_equal(many["id"], alone["id"])
    for name in ("position", "velocity", "Cd"):
        np.testing.assert_allclose(many[name], alone[name], rtol=0, atol=TOLERANCE["apic"])


@pytest.mark.mpi
def test_thick_liquid_does_not_depend_on_ranks(tmp_path):
    """Its viscosity varies, and the surface crosses the borders of ranks."""
    alone = results_on_ranks(SCRIPT, 1, tmp_path, "apic", "200")
    for ranks in (2, 3):
        many = results_on_ranks(SCRIPT, ranks, tmp_path, "apic", "200")
        for name in ("position", "velocity"):
            np.testing.assert_allclose(many[name], alone[name], rtol=0, atol=TOLERANCE["apic"])
