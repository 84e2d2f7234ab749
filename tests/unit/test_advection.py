"""Advection: dense reference, exact translations, bounds, walls, long and broken traces."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.errors import SetupError
from loki_core.objects.gas.advection import advect
from loki_core.objects.gas.surroundings import INFLOW, NO_SLIP, OPEN, SLIP, Surroundings

pytestmark = pytest.mark.compiles

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
@pytest.mark.parametrize(
    ("order", "speed", "r"), [(1, 0.9, 8), (2, 1.1, 4), (3, 4.0, 8), (2, 60.0, 8)]
)
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


# -- what must be exact --------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_stays_bitwise(scheme, dtype):
    volume = make_volume((2, 2, 2), dtype=dtype, boundaries=[BoundaryCondition("wall")] * 6)
    random_fields(volume, 3.0)
    volume.local("temperature")[:] = 293.15
    advect(volume, ("temperature",), dt=1.0, scheme=scheme, limiter="none")
    assert np.all(volume.local("temperature") == dtype(293.15))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shift", [(1, -2, 3), (9, 0, -17)])
def test_translation_by_whole_voxels_is_exact(scheme, shift):
    volume = make_volume((2, 2, 3), boundaries=PERIODIC, h=0.5)
    random_fields(volume, 0.0)
    volume.local("velocity")[:] = np.array(shift)[:, None, None, None] * 0.5
    before = to_dense(volume, "density")
    advect(volume, ("density",), dt=1.0, scheme=scheme, limiter="clamp")
    expected = np.roll(before, shift, axis=(1, 2, 3))
    np.testing.assert_array_equal(to_dense(volume, "density"), expected)


@pytest.mark.parametrize("scheme", ["maccormack", "bfecc", "cubic"])
@pytest.mark.parametrize("limiter", ["clamp", "revert"])
@pytest.mark.parametrize("speed", [2.0, 30.0])
def test_bounds_are_kept_exactly(scheme, limiter, speed):
    volume = make_volume((3, 2, 2), boundaries=[BoundaryCondition("wall")] * 6)
    random_fields(volume, speed)
    volume.local("density")[:] = np.round(volume.local("density"))
    for _ in range(3):
        advect(volume, ("density",), dt=1.0, scheme=scheme, limiter=limiter)
    assert volume.local("density").min() == 0.0
    assert volume.local("density").max() == 1.0


def test_far_from_the_origin_and_other_voxel_size_change_nothing():
    results = []
    for corner, h in ((0.0, 1.0), (131072.0, 1.0), (0.0, 0.25)):
        volume = make_volume((2, 2, 2), h=h, corner=corner, dtype=np.float32)
        random_fields(volume, 2.0 * h)
        advect(volume, ("density", "velocity"), dt=1.0)
        results.append((to_dense(volume, "density"), to_dense(volume, "velocity") / h))
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_mirrored_fields_stay_mirrored_across_buckets():
    """The flow is symmetric about the middle of 4 Buckets; a Bucket pattern would not be."""
    volume = make_volume((4, 1, 4), boundaries=PERIODIC)
    x, y, z = np.indices((32, 8, 32)) + 0.0
    k = 2.0 * np.pi / 32.0
    u = 1.7 * np.sin(k * x) * np.cos(k * (z + 0.5))
    w = -1.7 * np.cos(k * (x + 0.5)) * np.sin(k * z)
    set_dense(volume, "velocity", np.stack((u, 0.0 * y, w)))
    set_dense(volume, "density", np.exp(-((x - 15.5) ** 2 + (z - 9.0) ** 2) / 20.0))
    for _ in range(20):
        advect(volume, ("density",), dt=0.9, scheme="maccormack", limiter="clamp")
    density = to_dense(volume, "density")[0]
    np.testing.assert_allclose(density, density[::-1], rtol=0, atol=1e-12)
    assert np.abs(density - np.roll(density, 1, axis=0)).max() > 0.01


@pytest.mark.parametrize(("order", "expected"), [(1, 1.0), (2, 2.0), (3, 3.0)])
def test_order_of_traces(order, expected):
    """Solid rotation is linear in space, so that only the traces' error in time remains."""
    errors = []
    for steps in (8, 16, 32):
        volume = make_volume((6, 6, 1), boundaries=[BoundaryCondition("open")] * 4 + PERIODIC[:2])
        x, y, _ = np.indices((48, 48, 8)) + 0.0
        turn = 1.0 / steps  # one radian in all, about the middle
        set_dense(volume, "velocity", np.stack((-(y + 0.5 - 24), x + 0.5 - 24, 0 * x)))
        set_dense(volume, "density", x + 0.5 - 24)  # linear too: interpolation is exact
        advect(volume, ("density",), dt=turn, scheme="semi_lagrangian", trace_order=order)
        inside = (slice(14, 34), slice(14, 34), slice(None))
        exact = np.cos(turn) * (x + 0.5 - 24) + np.sin(turn) * (y + 0.5 - 24)
        errors.append(np.abs(to_dense(volume, "density")[0] - exact)[inside].max())
    slopes = np.diff(np.log2(errors)) / -1.0
    assert np.all(np.abs(slopes - (expected + 1.0)) < 0.1)  # of one step: one order higher


# -- sides, solids and broken input --------------------------------------------------------


def still_volume(**options):
    volume = make_volume((2, 2, 2), **options)
    set_dense(volume, "density", np.indices((16, 16, 16))[0] + 1.0)
    return volume


def test_walls_keep_traces_inside_and_mirror():
    volume = still_volume(boundaries=[BoundaryCondition("wall")] * 6, upper=(13.0, 16.0, 16.0))
    volume.local("velocity")[:, 0] = -5.0  # everything comes from the upper wall
    advect(volume, ("density",), dt=1.0, scheme="semi_lagrangian", limiter="none")
    density = to_dense(volume, "density")[0, :, 3, 3]
    # Traces end on the wall at most, where the mirrored density is that of the last voxel.
    np.testing.assert_allclose(density[:8], np.arange(8) + 6.0)
    # On the wall itself the velocity is the wall's: midpoints that end there go nowhere.
    np.testing.assert_allclose(density[8:13], [13, 13, 11, 12, 13])


def test_inflow_and_open_sides():
    volume = still_volume()
    kinds = (INFLOW, OPEN, SLIP, SLIP, NO_SLIP, NO_SLIP)
    velocity = np.zeros((6, 3))
    velocity[0] = (2.0, 0.0, 0.0)
    around = Surroundings(np.zeros(3), np.full(3, 16.0), kinds, velocity, {"density": 7.0})
    volume.local("velocity")[:, 0] = 2.0
    advect(
        volume, ("density",), dt=1.0, scheme="semi_lagrangian", surroundings=around, limiter="none"
    )
    density = to_dense(volume, "density")[0, :, 8, 8]
    np.testing.assert_allclose(density[:2], 7.0)
    np.testing.assert_allclose(density[2:], np.arange(14) + 1.0)
    volume.local("velocity")[:, 0] = -3.0
    advect(
        volume, ("density",), dt=1.0, scheme="semi_lagrangian", surroundings=around, limiter="none"
    )
    np.testing.assert_allclose(to_dense(volume, "density")[0, -3:, 8, 8], 0.0)


def test_no_slip_wall_slows_the_neighbouring_velocity():
    volume = make_volume((2, 2, 2))
    velocity = np.zeros((6, 3))
    around = Surroundings(
        np.zeros(3), np.full(3, 16.0), (OPEN, OPEN, NO_SLIP, SLIP, OPEN, OPEN), velocity
    )
    volume.local("velocity")[:, 0] = 1.0
    volume.local("velocity")[:, 1] = 0.5
    advect(
        volume, ("velocity",), dt=1.0, scheme="semi_lagrangian", surroundings=around, limiter="none"
    )
    u = to_dense(volume, "velocity")[0, 8, :, 8]
    # v is 0.25 at y = 0.5, 0.1875 at the midpoint; at y = 0.3125 u = 2 y: it is 0 on the wall.
    np.testing.assert_allclose(u[0], 0.625)
    np.testing.assert_allclose(u[3:], 1.0)


def test_voxels_of_kind_zero_are_left():
    volume = make_volume((2, 1, 1), boundaries=PERIODIC)
    volume.add_channel("kind", np.uint8)
    random_fields(volume, 1.0)
    kind = np.random.default_rng(4).integers(0, 3, volume.local("kind").shape)
    volume.local("kind")[:] = kind
    before = volume.local("density").copy()
    advect(volume, ("density",), dt=1.0, kind="kind")
    same = volume.local("density") == before
    assert np.all(same[kind == 0])
    assert same[kind != 0].mean() < 0.1


def test_sparse_buckets_have_background_around_them():
    domain = GridDomain(8.0)
    volume = DiscreteVolume(domain, name="Air", dtype=np.float64)
    volume.add_channel("velocity", components=3, location="face")
    volume.add_channel("temperature", background=300.0)
    volume.set_buckets(np.array([[0, 0, 0], [5, 0, 0]], np.int32))
    volume.local("temperature")[:] = 400.0
    volume.local("velocity")[:, 0] = 2.0
    advect(volume, ("temperature", "velocity"), dt=1.0, limiter="clamp")
    temperature = volume.local("temperature")[:, 0]
    assert np.all(temperature[:, :2] == 300.0)
    assert np.all(temperature[:, 3:] == 400.0)
    assert np.all(volume.local("velocity")[:, 0] == 2.0)  # it goes on as it is


@pytest.mark.parametrize("scheme", SCHEMES)
def test_broken_velocity_gives_nan_there_and_nowhere_else(scheme):
    volume = make_volume((2, 2, 2), dtype=np.float32)
    random_fields(volume, 1.0)
    volume.local("velocity")[0, 0, 4, 4, 4] = np.nan
    volume.local("velocity")[3, 1, 4, 4, 4] = np.inf
    advect(volume, ("density",), dt=1.0, scheme=scheme, limiter="clamp")
    bad = ~np.isfinite(volume.local("density"))
    assert bad[0].any()
    assert bad[3].any()
    assert bad.mean() < 0.1


def test_no_buckets_and_no_names():
    domain = GridDomain(8.0)
    volume = DiscreteVolume(domain, name="Air")
    volume.add_channel("velocity", components=3, location="face")
    volume.add_channel("density")
    advect(volume, ("density", "velocity"), dt=1.0)
    advect(volume, (), dt=1.0)
    assert list(volume.channels) == ["velocity", "density"]


def test_refusals_name_the_way_out():
    volume = make_volume((1, 1, 1))
    with pytest.raises(SetupError, match="maccormack"):
        advect(volume, ("density",), dt=1.0, scheme="maccormac")
    with pytest.raises(SetupError, match="trace_order = 4"):
        advect(volume, ("density",), dt=1.0, trace_order=4)
    with pytest.raises(SetupError, match="sequence of channel names"):
        advect(volume, "density", dt=1.0)
    with pytest.raises(SetupError, match="no face channel"):
        advect(volume, ("density",), dt=1.0, velocity="temperature")
    with pytest.raises(SetupError, match="periodic"):
        Surroundings(kinds=(4, 0, 0, 0, 0, 0))


# -- Zalesak's disk ------------------------------------------------------------------------


def slotted_disk(n):
    """Indicator of the disk, averaged over 8 x 8 samples a voxel, shape [n, n]."""
    x, y = (np.indices((8 * n, 8 * n)) + 0.5) / (8 * n)
    disk = (x - 0.5) ** 2 + (y - 0.75) ** 2 < 0.15**2
    disk &= ~((np.abs(x - 0.5) < 0.025) & (y < 0.85))
    return disk.reshape(n, 8, n, 8).mean(axis=(1, 3))


@pytest.mark.parametrize(
    ("scheme", "limiter", "expected"),
    [
        ("semi_lagrangian", "none", 0.6998),
        ("cubic", "none", 0.2241),
        ("cubic", "clamp", 0.2331),
        ("maccormack", "none", 0.5869),
        ("maccormack", "revert", 0.5548),
        ("bfecc", "none", 0.2381),
        ("bfecc", "revert", 0.2639),
    ],
)
def test_zalesak_disk(scheme, limiter, expected):
    """One turn in 126 steps at n = 100, where the box ends inside a Bucket.

    Expected: sum |q - q0| / sum q0 of an independent code with exact traces, to 10 %.
    """
    n, steps = 100, 126
    sides = [BoundaryCondition("open")] * 4 + PERIODIC[:2]
    volume = make_volume(h=1.0 / n, upper=(1.0, 1.0, 8.0 / n), boundaries=sides)
    before = np.zeros((104, 104, 8))
    before[:n, :n] = slotted_disk(n)[:, :, None]
    x, y = (np.indices(before.shape)[:2] + 0.5) / n - 0.5
    set_dense(volume, "density", before)
    set_dense(volume, "velocity", 2.0 * np.pi * np.stack((-y, x, 0.0 * x)))
    for _ in range(steps):
        advect(volume, ("density",), dt=1.0 / steps, scheme=scheme, limiter=limiter)
    after = to_dense(volume, "density")[0]
    error = np.abs(after - before)[:n, :n].sum() / before.sum()
    assert abs(error / expected - 1.0) < 0.1
    assert abs(after[:n, :n].sum() / before.sum() - 1.0) < 0.03
    np.testing.assert_allclose(after, after[:, :, :1] + 0.0 * after, atol=1e-12)
    if limiter != "none":
        assert after.min() >= 0.0
        assert after.max() <= 1.0


@pytest.mark.parametrize("courant", [2.3, 9.6, 20.3])
def test_conserve_keeps_the_content_on_traces_of_any_length(courant):
    volume = make_volume((4, 4, 4), boundaries=PERIODIC)
    # A sharp cube: limiters cut much, and there is room around for what they cut off.
    density = np.zeros((32, 32, 32))
    density[5:14, 8:20, 3:12] = 1.0
    set_dense(volume, "density", density)
    velocity = np.zeros((3, 32, 32, 32))
    velocity[:] = np.array([1.0, 0.3, -0.6]).reshape(3, 1, 1, 1) * courant
    set_dense(volume, "velocity", velocity)
    for _ in range(3):
        advect(volume, ("density",), dt=1.0, scheme="cubic", limiter="conserve")
    found = to_dense(volume, "density")
    np.testing.assert_allclose(found.sum(), density.sum(), rtol=1e-3)
    assert found.min() >= -1e-12 and found.max() <= density.max() + 1e-12


def some_buckets(coords):
    """A volume of some Buckets with smooth fields, given by their places; mirrored about x = 0."""
    domain = GridDomain(8.0)
    volume = DiscreteVolume(domain, name="Air", dtype=np.float64)
    volume.add_channel("velocity", components=3, location="face")
    volume.add_channel("density")
    volume.set_buckets(np.array(coords, np.int32))
    return volume


def fill(volume, mirrored):
    """Fields of world places; of those at -x for the mirrored ones."""
    sign = -1.0 if mirrored else 1.0
    i, j, k = np.indices((8, 8, 8)).astype(float)
    for row, corner in enumerate(volume.buckets.local_coords * 8.0):
        place = np.stack((i, j, k)) + corner.reshape(3, 1, 1, 1) + 0.5
        for axis in range(3):
            x, y, z = place - 0.5 * (np.arange(3) == axis).reshape(3, 1, 1, 1)
            value = np.sin(0.3 * sign * x + axis) + 0.5 * np.cos(0.4 * y) * np.sin(0.2 * z + axis)
            volume.local("velocity")[row, axis] = value * (sign if axis == 0 else 1.0)
        x, y, z = place
        volume.local("density")[row, 0] = np.sin(0.5 * sign * x) + np.cos(0.3 * y + 0.2 * z)


@pytest.mark.parametrize(
    "shape",
    [
        [(0, 0, 0)],
        [(0, 0, 0), (1, 0, 0), (0, 1, 0)],
        [(0, 0, 0), (1, 1, 0), (0, 1, 0)],
        [(0, 0, 0), (0, 1, 0), (1, 1, 1), (0, 1, 1)],
    ],
)
def test_both_ends_of_the_stored_space_are_alike(shape):
    here = some_buckets(shape)
    there = some_buckets([(-1 - i, j, k) for i, j, k in shape])
    fill(here, False)
    fill(there, True)
    for volume in (here, there):
        advect(volume, ("density",), dt=0.8, scheme="maccormack", limiter="clamp")
    order = {tuple(c): row for row, c in enumerate(there.buckets.local_coords.tolist())}
    for row, (i, j, k) in enumerate(here.buckets.local_coords.tolist()):
        mirror = there.local("density")[order[-1 - i, j, k], 0, ::-1]
        np.testing.assert_allclose(here.local("density")[row, 0], mirror, atol=1e-12)
