"""Advection: against a dense reference, exact translations, bounds, walls, long and broken traces."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.errors import SetupError
from loki_core.objects.advection import advect
from loki_core.objects.surroundings import INFLOW, NO_SLIP, OPEN, SLIP, Surroundings

SCHEMES = ("semi_lagrangian", "maccormack", "bfecc", "cubic")
PERIODIC = [BoundaryCondition("periodic")] * 6


def make_volume(
    counts=(3, 3, 3), *, r=8, dtype=np.float64, boundaries=None, upper=None, h=1.0, corner=0.0
):
    """A volume of whole Buckets from `corner`, with velocity, density and temperature."""
    edge = r * h
    lower = np.full(3, corner)
    upper = np.array(counts) * edge if upper is None else np.array(upper)
    domain = GridDomain(
        edge, lower=lower, upper=lower + upper, boundaries=boundaries, near=lower + 0.5 * edge
    )
    volume = DiscreteVolume(domain, name="Air", dtype=dtype)
    volume.add_channel("velocity", components=3, location="face", resolution=r)
    volume.add_channel("density", resolution=r)
    volume.add_channel("temperature", resolution=r, background=300.0)
    first, last = domain.bucket_range()
    lattice = np.argwhere(np.ones(last - first, bool)) + first
    volume.set_buckets(lattice.astype(np.int32))
    return volume


def to_dense(volume, name):
    """Dense array [c, nx, ny, nz] of all Buckets."""
    values, coords = volume.local(name), volume.buckets.local_coords
    lower = coords.min(axis=0)
    c, r = values.shape[1:3]
    size = (coords.max(axis=0) + 1 - lower) * r
    dense = np.zeros((c, *size), values.dtype)
    for row, (i, j, k) in enumerate((coords - lower) * r):
        dense[:, i : i + r, j : j + r, k : k + r] = values[row]
    return dense


def set_dense(volume, name, dense):
    values, coords = volume.local(name), volume.buckets.local_coords
    r = values.shape[2]
    dense = dense[None] if dense.ndim == 3 else dense
    for row, (i, j, k) in enumerate((coords - coords.min(axis=0)) * r):
        values[row] = dense[:, i : i + r, j : j + r, k : k + r]
    volume.mark_written(name)


# -- the dense reference: periodic, float64 ------------------------------------------------


def corners(field, x):
    """(lower index, fraction, the eight values) around places x [3, ...] in samples."""
    lower = np.floor(x).astype(int)
    around = np.empty((2, 2, 2, *x.shape[1:]))
    for a, b, c in np.ndindex(2, 2, 2):
        index = [(lower[axis] + (a, b, c)[axis]) % field.shape[axis] for axis in range(3)]
        around[a, b, c] = field[tuple(index)]
    return around, x - lower


def linear(field, x):
    around, f = corners(field, x)
    around = around[0] + f[0] * (around[1] - around[0])
    around = around[0] + f[1] * (around[1] - around[0])
    return around[0] + f[2] * (around[1] - around[0])


def cubic(field, x):
    lower = np.floor(x).astype(int)
    t = x - lower
    weights = [
        (-t + 2 * t**2 - t**3) / 2, (2 - 5 * t**2 + 3 * t**3) / 2,
        (t + 4 * t**2 - 3 * t**3) / 2, (-(t**2) + t**3) / 2,
    ]  # fmt: skip
    total = 0.0
    for a, b, c in np.ndindex(4, 4, 4):
        index = [(lower[axis] + (a, b, c)[axis] - 1) % field.shape[axis] for axis in range(3)]
        weight = weights[a][0] * weights[b][1] * weights[c][2]
        total = total + weight * field[tuple(index)]
    return total


def shift_of(location):
    shift = np.full((3, 1, 1, 1), 0.5)
    if location < 3:
        shift[location] = 0.0
    return shift


def velocity_at(velocity, x):
    return np.stack([linear(velocity[a], x - shift_of(a)) for a in range(3)])


def trace(velocity, location, factor, order):
    x = np.indices(velocity.shape[1:]).astype(float) + shift_of(location)
    first = velocity_at(velocity, x)
    if order == 1:
        return x + factor * first
    second = velocity_at(velocity, x + 0.5 * factor * first)
    if order == 2:
        return x + factor * second
    third = velocity_at(velocity, x + 0.75 * factor * second)
    return x + factor * (2 * first + 3 * second + 4 * third) / 9


def reference(field, velocity, location, factor, scheme, limiter, order):
    """One step of any scheme on a dense periodic box."""
    shift = shift_of(location)
    back = trace(velocity, location, -factor, order) - shift
    hat = linear(field, back)
    if scheme == "semi_lagrangian":
        return hat
    if scheme == "cubic":
        result = cubic(field, back)
    else:
        there = linear(hat, trace(velocity, location, factor, order) - shift)
        if scheme == "maccormack":
            result = hat + 0.5 * (field - there)
        else:
            result = linear(field + 0.5 * (field - there), back)
    if limiter == "none":
        return result
    around, _ = corners(field, back)
    low, high = around.min(axis=(0, 1, 2)), around.max(axis=(0, 1, 2))
    if limiter == "revert":
        result = np.where((result >= low) & (result <= high), result, hat)
    return np.clip(result, low, high)


def random_fields(volume, speed, seed=3):
    rng = np.random.default_rng(seed)
    dense = to_dense(volume, "velocity")
    for name in ("velocity", "density", "temperature"):
        field = rng.random((3 if name == "velocity" else 1, *dense.shape[1:]))
        set_dense(volume, name, speed * (2 * field - 1) if name == "velocity" else field)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("limiter", ["none", "clamp", "revert"])
@pytest.mark.parametrize(("order", "speed", "r"), [(1, 0.9, 8), (2, 1.1, 4), (3, 4.0, 8), (2, 60.0, 8)])
def test_equals_dense_reference(scheme, limiter, order, speed, r):
    volume = make_volume((2, 3, 2), r=r, boundaries=PERIODIC)
    random_fields(volume, speed)
    velocity = to_dense(volume, "velocity").astype(float)
    expected = {}
    for name in ("density", "temperature", "velocity"):
        field = to_dense(volume, name)
        expected[name] = np.stack(
            [
                reference(
                    field[c], velocity, c if name == "velocity" else 3, 0.7, scheme, limiter, order
                )
                for c in range(len(field))
            ]
        )
    # All by the old velocity, although it is advected too.
    advect(
        volume, ("velocity", "density", "temperature"), velocity="velocity", dt=0.7, scheme=scheme,
        limiter=limiter, trace_order=order,
    )  # fmt: skip
    for name, dense in expected.items():
        # Round-off of traces of up to 42 voxels through a rough field.
        wrong = np.abs(to_dense(volume, name) - dense) > 1e-9 * max(1.0, speed)
        assert wrong.mean() < (2e-3 if limiter == "revert" else 1e-5), name
