"""Turbulence Force: no divergence, the promised strength, and a pattern of place and time alone."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.errors import SetupError
from loki_core.kernels.basics.noise import GRADIENT_SCALE, noise_with_gradient
from loki_core.kernels.basics.random import random_key
from loki_core.kernels.gas.curl_noise import CURL_RMS, WORD
from loki_core.operators.turbulence import TurbulenceForce
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles


def acceleration(one, **step):
    return one.forces(**step) / one.item.face_mass


def divergence(a, h):
    """Of all voxels whose upper faces are stored: noise does not repeat at periodic sides."""
    return (
        a[0, 1:, :-1, :-1] - a[0, :-1, :-1, :-1]
        + a[1, :-1, 1:, :-1] - a[1, :-1, :-1, :-1]
        + a[2, :-1, :-1, 1:] - a[2, :-1, :-1, :-1]
    ) / h  # fmt: skip


@pytest.mark.parametrize("lower", [(0.0, 0.0, 0.0), (1.0e5, -1.0e5, 3.0e4)])
def test_the_fluxes_of_every_voxel_cancel(lower):
    one = VolumeScene(TurbulenceForce(scale=0.6, octaves=3), size=(3, 2, 2), lower=lower)
    a = acceleration(one, time=0.4)
    assert np.abs(a).max() > 0.5
    # far from the origin a place has 1e5 * 2^-53 / 0.125 of a cell less in its fraction
    bound = 1e-11 if lower[0] == 0.0 else 1e-8
    assert np.abs(divergence(a, one.h)).max() < bound * np.abs(a).max() / one.h


@pytest.mark.parametrize("time", [0.0, 0.5])
def test_root_mean_square_is_the_parameter(time):
    one = VolumeScene(TurbulenceForce(acceleration=3.0, scale=0.75, octaves=1), size=(5, 5, 5))
    a = acceleration(one, time=time)
    # 6.7^3 cells of 3 potentials: a few per cent of noise; 6 voxels a cell: 2 % from differences
    assert np.sqrt((a * a).sum(axis=0).mean()) == pytest.approx(3.0, rel=0.08)


def test_faces_hold_the_differences_of_the_noise_at_the_edges():
    one = VolumeScene(TurbulenceForce(scale=0.7, octaves=1, seed=9))
    tau = 1.0
    a = acceleration(one, time=-0.005, dt=0.01)  # the middle of the substep is time 0
    layers = [np.uint64(random_key(0, 9, 0, c, 0)) & WORD for c in range(3)]
    scale = 0.7 / CURL_RMS / GRADIENT_SCALE / tau

    def psi(c, i, j, k):
        place = np.array([i, j, k]) * one.h
        place[c] += 0.5 * one.h
        return scale * noise_with_gradient(*(place / 0.7 + 0.5), layers[c])[0]

    for i, j, k in ((0, 0, 0), (7, 8, 3), (8, 7, 15), (12, 2, 9)):
        x = psi(2, i, j + 1, k) - psi(2, i, j, k) - psi(1, i, j, k + 1) + psi(1, i, j, k)
        y = psi(0, i, j, k + 1) - psi(0, i, j, k) - psi(2, i + 1, j, k) + psi(2, i, j, k)
        z = psi(1, i + 1, j, k) - psi(1, i, j, k) - psi(0, i, j + 1, k) + psi(0, i, j, k)
        expected = np.array([x, y, z]) / one.h
        np.testing.assert_allclose(a[:, i, j, k], expected, rtol=1e-9, atol=1e-11)


def test_the_pattern_changes_smoothly_and_becomes_another():
    one = VolumeScene(TurbulenceForce(scale=0.5, octaves=2, time_scale=1.0), size=(3, 3, 3))
    start, soon = acceleration(one, time=0.999), acceleration(one, time=1.001)
    late = acceleration(one, time=4.0)

    def correlation(a, b):
        return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))

    assert correlation(start, soon) > 0.9999
    assert abs(correlation(start, late)) < 0.2
    np.testing.assert_array_equal(acceleration(one, time=4.0), late)  # no state


def test_seeds_give_other_patterns():
    fields = [
        acceleration(VolumeScene(TurbulenceForce(seed=seed)), seed=setup)
        for seed, setup in ((0, 0), (1, 0), (0, 1), (0, 0))
    ]
    np.testing.assert_array_equal(fields[0], fields[3])
    assert np.abs(fields[0] - fields[1]).max() > 0.1
    assert np.abs(fields[0] - fields[2]).max() > 0.1


def test_octaves_below_two_voxels_are_left_out_and_the_others_stay():
    coarse = acceleration(VolumeScene(TurbulenceForce(scale=0.5, octaves=2)))
    more = acceleration(VolumeScene(TurbulenceForce(scale=0.5, octaves=4)))
    kept = np.sqrt((1.0 + 0.25) / (1.0 + 0.25 + 0.0625 + 0.015625))
    np.testing.assert_allclose(more, coarse * kept, rtol=1e-10, atol=1e-12)
    assert not np.any(acceleration(VolumeScene(TurbulenceForce(scale=0.2))))


def test_smoke_masks_the_force():
    one = VolumeScene(TurbulenceForce(masked_by="density"))
    smoke = np.zeros(one.dense("density").shape)
    smoke[:, :8] = 3.0  # more than 1 counts as 1
    one.fill("density", smoke)
    found, plain = acceleration(one), acceleration(VolumeScene(TurbulenceForce()))
    assert not np.any(found[:, 9:])
    np.testing.assert_allclose(found[1:, :8], plain[1:, :8], rtol=1e-12)
    np.testing.assert_allclose(found[0, 1:8], plain[0, 1:8], rtol=1e-12)


def test_a_channel_that_is_not_there_is_refused():
    with pytest.raises(SetupError, match=r'masked_by.*"densty".*did you mean "density"'):
        VolumeScene(TurbulenceForce(masked_by="densty"))
