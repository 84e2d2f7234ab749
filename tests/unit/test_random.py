"""Counter-based random numbers and lattice noise."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.kernels.basics.noise import curl_noise3, noise3, noise_with_gradient
from loki_core.kernels.basics.random import philox, random_key, uniform

COUNT = 20_000


def uniforms(key, ids, stream=0):
    return np.array([uniform(key, int(i), stream) for i in ids])


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # known answers published with Random123 for philox4x32-10
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, expected):
    words = philox(*(np.uint64(word) for word in (*counter, *key)))
    assert tuple(int(word) for word in words) == expected


def test_uniform_is_uniform():
    sample = uniforms(random_key(7, 1, 0), range(COUNT))
    assert sample.min() >= 0.0
    assert sample.max() < 1.0
    # Standard errors: sqrt(1/12/n) = 2.0e-3 of the mean, sqrt(1/180/n) = 5.3e-4 of the variance.
    assert abs(sample.mean() - 0.5) < 5 * 2.0e-3
    assert abs(sample.var() - 1.0 / 12.0) < 5 * 5.3e-4
    counts = np.histogram(sample, bins=64, range=(0.0, 1.0))[0]
    chi_square = ((counts - COUNT / 64) ** 2 / (COUNT / 64)).sum()
    assert chi_square < 63 + 5 * np.sqrt(2 * 63)


def test_neighbouring_ids_streams_and_steps_are_independent():
    ids = range(COUNT)
    base = uniforms(random_key(7, 1, 0), ids)
    others = {
        "next id": uniforms(random_key(7, 1, 0), range(1, COUNT + 1)),
        "next stream": uniforms(random_key(7, 1, 0), ids, stream=1),
        "next substep": uniforms(random_key(7, 1, 1), ids),
        "next frame": uniforms(random_key(7, 2, 0), ids),
        "next seed": uniforms(random_key(8, 1, 0), ids),
    }
    for name, other in others.items():
        correlation = np.corrcoef(base, other)[0, 1]
        assert abs(correlation) < 5 / np.sqrt(COUNT), name


def test_negative_and_large_identifiers_are_distinct():
    key = random_key(1)
    identifiers = [0, 1, -1, 2**32, 2**32 + 1, 2**62, -(2**63), 2**63 - 1]
    values = {uniform(key, i, s) for i in identifiers for s in (-1, 0, 2**40)}
    assert len(values) == 3 * len(identifiers)


def test_random_key_depends_on_order_and_takes_any_integer():
    keys = {random_key(*words) for words in ((1, 2), (2, 1), (0, 1), (1, 0), (1,), (-1, 2**70))}
    assert len(keys) == 6
    assert random_key(-1) == random_key(2**64 - 1)


def points(count, seed=3):
    return np.random.default_rng(seed).uniform(-50.0, 50.0, (count, 3))


def test_noise_stays_within_one_and_varies():
    values = np.array([noise3(*p) for p in points(COUNT)])
    assert np.abs(values).max() <= 1.0
    assert np.abs(values).max() > 0.6
    assert 0.15 < values.std() < 0.35
    assert abs(values.mean()) < 0.02


def test_noise_derivatives_match_central_differences():
    step = 1e-5  # truncation h^2 f''' / 6 < 1e-8, round-off eps / h = 2e-11
    for p in points(200):
        _, *gradient = noise_with_gradient(*p, np.uint64(2))
        for axis in range(3):
            offset = np.eye(3)[axis] * step
            high = noise_with_gradient(*(p + offset), np.uint64(2))[0]
            low = noise_with_gradient(*(p - offset), np.uint64(2))[0]
            assert abs((high - low) / (2 * step) - gradient[axis]) < 1e-7


def test_noise_is_continuous_across_cells():
    for p in points(200):
        border = np.floor(p)
        for axis in range(3):
            at = p.copy()
            at[axis] = border[axis]
            below = at.copy()
            below[axis] = np.nextafter(at[axis], -np.inf)
            assert abs(noise3(*at) - noise3(*below)) < 1e-12
            np.testing.assert_allclose(curl_noise3(*at), curl_noise3(*below), atol=1e-11)


def test_curl_noise_has_no_divergence():
    step = 1e-5
    curls, divergences = [], []
    for p in points(200):
        divergence = 0.0
        for axis in range(3):
            offset = np.eye(3)[axis] * step
            high, low = curl_noise3(*(p + offset)), curl_noise3(*(p - offset))
            divergence += (high[axis] - low[axis]) / (2 * step)
        divergences.append(divergence)
        curls.append(curl_noise3(*p))
    assert np.std(curls) > 0.3
    assert np.abs(divergences).max() < 1e-6  # truncation h^2 f''' of the difference


def test_noise_far_away_and_not_finite():
    for far in (2.0**40 + 0.25, -(2.0**40) + 0.25, 1e300, -1e300):
        assert abs(noise3(far, 0.3, 0.6)) <= 1.0
    for bad in (np.nan, np.inf, -np.inf):
        assert np.isnan(noise3(0.1, bad, 0.3))
        assert np.isnan(curl_noise3(bad, 0.1, 0.3)).all()
