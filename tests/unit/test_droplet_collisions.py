"""Binary Droplet Collisions: who meets whom and when, what becomes of it, and what is kept."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import DivergenceError
from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.kernels.particles.droplet_collisions import (
    BOUNCE,
    COALESCENCE,
    REFLEXION,
    STRETCHING,
    breakup_radius,
    regime,
    resolve_contacts,
    weber_bounce,
    weber_reflexion,
    weber_stretching,
)
from loki_core.kernels.particles.droplet_search import (
    LANES,
    RADIUS,
    ContactSearch,
    build_tree,
    contact_time,
)
from loki_core.operators.droplet_collisions import BinaryDropletCollisions

TENSION, DENSITY, R = 0.0728, 1000.0, 5e-4
WATER = (TENSION, 1e-5, 8.0, 0.0, 1.0)  # settings of the kernel
# Ashgriz and Poo, equal drops: X, We_stretch, We_reflex.
TABLE = """
0.05 2765.5 23.259
0.10 687.17 30.514
0.20 167.78 73.467
0.25 105.49 209.13
0.30 71.643 inf
0.40 37.921 inf
0.50 22.170 inf
0.70 7.9279 inf
0.90 1.4743 inf
0.95 0.52801 inf
"""


pytestmark = pytest.mark.compiles


def spray(count, seed=1, *, width=0.02, speed=3.0, spread=0.5, drift=0.0):
    """Droplets of all sizes that move in all directions."""
    rng = np.random.default_rng(seed)
    points = lk.Points(rng.random((count, 3)) * width)
    points.set_channel("point", "velocity", rng.normal(0.0, speed, (count, 3)) + drift)
    points.set_channel("point", "radius", 1e-4 * np.exp(rng.normal(0.0, spread, count)))
    points.set_channel("point", "Cd", rng.random((count, 3)))
    points.set_channel("point", "tag", np.arange(count, dtype=np.int32))
    return points


def drops(positions, velocities, radii=R, **channels):
    """A few droplets."""
    points = lk.Points(np.asarray(positions, np.float64))
    points.set_channel("point", "velocity", np.asarray(velocities, np.float64))
    points.set_channel("point", "radius", np.broadcast_to(radii, len(positions)).astype(np.float64))
    for name, values in channels.items():
        points.set_channel("point", name, np.asarray(values))
    return points


def pair(weber, offset, *, ratio=1.0, gap=1e-3, **channels):
    """Two drops that will meet with this Weber number and offset; the larger one comes first."""
    speed = np.sqrt(weber * TENSION / (DENSITY * 2.0 * ratio * R))
    reach = (1.0 + ratio) * R
    place = [-gap - reach * np.sqrt(1.0 - offset**2), offset * reach, 0.0]
    return drops([place, [0.0, 0.0, 0.0]], [[speed, 0, 0], [0, 0, 0]], [R, ratio * R], **channels)


def solve(points, *, rate=500.0, substeps=1, frames=0, others=(), settings=None, **parameters):
    """A Solver for colliding droplets, after some frames."""
    setup = lk.SolverSetup(
        "spray",
        lk.ParticleObject(name="Spray", input="spray", density=DENSITY),
        BinaryDropletCollisions(surface_tension=TENSION, **parameters),
        *others,
        frames_per_second=rate,
        substeps=substeps,
        **(settings or {}),
    )
    solver = lk.Solver(setup, {"spray": points})
    solver.run(frames)
    return solver


def account(solver):
    return solver.actions["BinaryDropletCollisions"][0].account


def totals(solver):
    """Mass, momentum, energy, mass times colour, volume."""
    read = {n: solver.read("Spray", n) for n in ("mass", "velocity", "radius", "position")}
    mass, velocity, radius = read["mass"], read["velocity"], read["radius"]
    energy = 0.5 * mass @ np.sum(velocity**2, axis=1) + 4.0 * np.pi * TENSION * radius @ radius
    return mass.sum(), mass @ velocity, energy, np.sum(radius**3), mass @ read["position"]


# -- the regimes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_boundaries_of_equal_drops_are_those_of_the_paper(line):
    offset, stretch, reflex = map(float, line.split())
    assert weber_stretching(offset, 1.0) == pytest.approx(stretch, rel=5e-5)
    assert weber_reflexion(offset, 1.0) == pytest.approx(reflex, rel=5e-5)


def test_limits_of_the_boundaries():
    assert weber_reflexion(0.0, 1.0) == pytest.approx(18.671, rel=5e-5)
    assert weber_stretching(0.0, 1.0) == np.inf  # nothing is left that could go on
    assert weber_reflexion(0.9, 0.3) == np.inf
    assert weber_bounce(0.0, 1.0) == pytest.approx(2.808)  # Estrade: 2 (4 * 3.351 - 12)
    # A much smaller drop is not torn out of a large one, nor thrown back by it.
    assert weber_stretching(0.5, 0.01) > 1e4 and weber_reflexion(0.0, 0.01) > 1e4


@pytest.mark.parametrize("ratio", [1.0, 0.7, 0.4])
def test_regimes_lie_on_their_sides_of_the_boundaries(ratio):
    for offset in (0.0, 0.1, 0.3, 0.6, 0.9):
        stretch, reflex = weber_stretching(offset, ratio), weber_reflexion(offset, ratio)
        low = min(stretch, reflex)
        assert regime(0.99 * low, offset, ratio, False) == COALESCENCE
        if np.isfinite(stretch):
            assert regime(1.01 * stretch, offset, ratio, False) == STRETCHING
        if reflex < stretch:
            assert regime(1.01 * reflex, offset, ratio, False) == REFLEXION
        assert regime(0.99 * weber_bounce(offset, ratio), offset, ratio, True) == BOUNCE


@pytest.mark.parametrize(
    ("weber", "offset", "ratio", "name", "left"),
    [
        (17.0, 0.0, 1.0, "coalescences", 1),
        (20.0, 0.0, 1.0, "reflexions", 2),
        (100.0, 0.0, 1.0, "reflexions", 3),
        (21.0, 0.5, 1.0, "coalescences", 1),
        (23.0, 0.5, 1.0, "stretchings", 2),
        (60.0, 0.0, 0.6, "reflexions", 2),
        (60.0, 0.7, 0.6, "stretchings", None),
    ],
)
def test_drops_become_what_the_regime_says(weber, offset, ratio, name, left):
    solver = solve(pair(weber, offset, ratio=ratio), frames=2)
    assert account(solver)[name] == 1
    found = solver.read("Spray", "id")
    assert left is None or len(found) == left
    assert list(found[:2]) == ([0] if name == "coalescences" else [0, 1])


def test_weber_number_is_that_of_the_smaller_drop_s_diameter():
    """We from the radius, or from the larger drop, would be on the other side here."""
    for ratio in (1.0, 0.5):
        boundary = weber_stretching(0.8, ratio)
        assert account(solve(pair(1.02 * boundary, 0.8, ratio=ratio), frames=2))["stretchings"] == 1
        assert (
            account(solve(pair(0.98 * boundary, 0.8, ratio=ratio), frames=2))["coalescences"] == 1
        )


# -- detection -----------------------------------------------------------------------------------


def rows_of(points, dt):
    """The kernels' rows of droplets that have moved for dt."""
    position, channels = points.positions, points.channels["point"]
    row = np.arange(len(position))
    motion = np.zeros((-(-len(row) // LANES), 8, LANES))
    motion[:, RADIUS] = -1.0
    numbers = (position + dt * channels["velocity"], channels["velocity"])
    motion[row // LANES, :6, row % LANES] = np.concatenate(numbers, axis=1)
    motion[row // LANES, RADIUS, row % LANES] = channels["radius"]
    return motion


def contacts_by_brute_force(points, dt):
    x, v = points.positions, np.asarray(points.channels["point"]["velocity"])
    r = np.asarray(points.channels["point"]["radius"])
    i, j = np.triu_indices(len(x), 1)
    p, u, reach = x[i] - x[j], v[i] - v[j], r[i] + r[j]
    a, b, c = np.sum(u * u, 1), np.sum(p * u, 1), np.sum(p * p, 1) - reach**2
    root = b * b - a * c
    with np.errstate(invalid="ignore", divide="ignore"):
        time = np.where(c <= 0.0, 0.0, (-b - np.sqrt(root)) / a)
    hit = (b < 0.0) & ((c <= 0.0) | ((root >= 0.0) & (time <= dt)))
    return dict(zip(zip(i[hit].tolist(), j[hit].tolist(), strict=True), time[hit], strict=True))


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (1, {}),
        (2, {"width": 2e-4}),
        (17, {"width": 1e-3}),
        (900, {}),
        (900, {"spread": 2.0}),  # radii that differ by a factor of several hundred
        (900, {"drift": 500.0}),  # a common speed
        (600, {"width": 2e-4}),  # one heap
    ],
)
def test_search_finds_every_contact(count, settings):
    points, dt = spray(count, **settings), 1e-3
    expected = contacts_by_brute_force(points, dt)
    motion = rows_of(points, dt)
    tree = build_tree(motion, dt, first_leaf=0, leaf_count=len(motion))
    search = ContactSearch()
    found = search.among(tree, motion, dt)
    pairs = [tuple(sorted(one)) for one in zip(found.first.tolist(), found.second.tolist())]
    assert sorted(pairs) == sorted(expected) and (count < 100 or len(expected) > 20)
    wanted = [expected[one] for one in pairs]
    np.testing.assert_allclose(found.time, wanted, rtol=1e-9, atol=1e-12 * dt)
    # The same contacts, each once, when every droplet asks for itself.
    flags = {"owned": np.ones(motion.size, np.uint8), "changed": np.ones(motion.size, np.uint8)}
    ids = np.random.default_rng(0).permutation(LANES * len(motion))
    asked = search.of(np.arange(count), [tree], motion, dt, ids=ids, **flags)
    again = [tuple(sorted(one)) for one in zip(asked.first.tolist(), asked.second.tolist())]
    assert sorted(again) == sorted(pairs)


def test_contact_is_the_same_for_both():
    points, dt = spray(200, width=2e-3), 1e-3
    motion = rows_of(points, dt)
    times = np.array(
        [[contact_time(motion, i, j, dt) for j in range(200)] for i in range(200)], np.float64
    )
    assert np.isfinite(times).sum() > 100
    np.testing.assert_array_equal(times, times.T)


@pytest.mark.parametrize("substeps", [1, 7])
def test_fast_droplets_do_not_pass_through_each_other(substeps):
    """Paths of 20 m cross in a frame, where droplets of a millimetre are at the same time."""
    start = [[-10.0, 0.0, 0.0], [0.0, -10.0, 0.0]]
    meets = drops(start, [[1e4, 0, 0], [0, 1e4, 0]])
    late = drops([start[0], [0.0, -10.003, 0.0]], [[1e4, 0, 0], [0, 1e4, 0]])
    beside = drops([start[0], [0.0, -10.0, 1.001e-3]], [[1e4, 0, 0], [0, 1e4, 0]])
    settings = {"maximum_speed": 1e5}
    for points, expected in ((meets, 1), (late, 0), (beside, 0)):
        solver = solve(points, substeps=substeps, frames=1, settings=settings)
        found = account(solver)
        assert found["reflexions"] + found["stretchings"] + found["coalescences"] == expected


def test_droplets_that_overlap_collide_only_if_they_approach():
    places = [[0.0, 0.0, 0.0], [0.5 * R, 0.0, 0.0]]
    approach = solve(drops(places, [[0.01, 0, 0], [-0.01, 0, 0]]), frames=1)
    part = solve(drops(places, [[-0.01, 0, 0], [0.01, 0, 0]]), frames=1)
    still = solve(drops(places, np.ones((2, 3))), frames=3)
    assert [one.counts()["Spray"] for one in (approach, part, still)] == [1, 2, 2]


@pytest.mark.parametrize(
    ("weber", "offset", "bounce"), [(100.0, 0.5, False), (400.0, 0.05, False), (1.0, 0.3, True)]
)
def test_what_has_separated_stays_separate(weber, offset, bounce):
    """Pieces touch when they part, but none of them approaches another."""
    solver = solve(pair(weber, offset, gap=1e-4), rate=2e4, frames=60, bounce=bounce)
    found = account(solver)
    assert found["stretchings"] + found["reflexions"] + found["bounces"] == 1
    assert found["coalescences"] == 0
    place, radius = solver.read("Spray", "position"), solver.read("Spray", "radius")
    distance = np.linalg.norm(place[:, None] - place, axis=2) - radius[:, None] - radius
    assert distance[np.triu_indices(len(place), 1)].min() > 0.0


@pytest.mark.parametrize("seed", range(4))
def test_outcomes_do_not_depend_on_the_step(seed):
    """Pairs far from each other: the same pieces at the same places, however long steps are."""
    rng, pairs = np.random.default_rng(seed), []
    for number in range(40):
        one = pair(np.exp(rng.uniform(0, 6)), 0.99 * rng.random(), gap=2e-3 * rng.random())
        one.positions[:] += 0.05 * np.array(np.unravel_index(number, (4, 4, 4)))
        pairs.append(one)
    points = drops(
        np.concatenate([one.positions for one in pairs]),
        np.concatenate([one.channels["point"]["velocity"] for one in pairs]),
    )
    runs = [solve(points, substeps=substeps, frames=3) for substeps in (1, 2, 5)]
    assert account(runs[0])["satellites"] > 5
    for other in runs[1:]:
        for name in ("coalescences", "reflexions", "stretchings", "satellites"):
            assert account(other)[name] == account(runs[0])[name]
        for name in ("position", "velocity", "radius"):
            # ids of satellites are given step by step, so pieces are compared by where they are
            order = [
                np.lexsort(run.read("Spray", "position").round(6).T) for run in (runs[0], other)
            ]
            one, two = (r.read("Spray", name)[o] for r, o in zip((runs[0], other), order))
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-9 * np.abs(one).max())


# -- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"bounce": True}, {"max_satellites": 64}])
def test_a_spray_keeps_mass_and_momentum_and_gains_no_energy(parameters):
    points = spray(1500)
    solver = solve(points, substeps=2, settings={"precision": "single"}, **parameters)
    before = totals(solver)
    moving = solver.read("Spray", "mass") @ np.abs(solver.read("Spray", "velocity"))
    colour = solver.read("Spray", "mass") @ solver.read("Spray", "Cd")
    for _ in range(5):
        energy, lost = totals(solver)[2], account(solver)["energy"]
        solver.run(1)
        after = totals(solver)
        assert after[0] == pytest.approx(before[0], rel=1e-12)
        np.testing.assert_allclose(after[1], before[1], rtol=0, atol=1e-12 * moving.max())
        assert after[3] == pytest.approx(before[3], rel=1e-12)  # volume
        assert after[2] <= energy * (1.0 + 1e-12)
        assert energy - after[2] == pytest.approx(account(solver)["energy"] - lost, rel=1e-9)
        mixed = solver.read("Spray", "mass") @ solver.read("Spray", "Cd")
        np.testing.assert_allclose(mixed, colour, rtol=1e-12)
    assert solver.read("Spray", "mass").dtype == np.float64
    found = account(solver)
    assert found["coalescences"] > 20 and found["stretchings"] > 20 and found["satellites"] > 20
    assert (found["bounces"] > 5) == parameters.get("bounce", False)
    assert solver.read("Spray", "Cd").min() >= 0.0 and solver.read("Spray", "Cd").max() <= 1.0
    # Nothing but the drift moves the centre of mass: pieces are put around it.
    drift = before[4] + before[1] * 5 / 500
    np.testing.assert_allclose(after[4], drift, rtol=0, atol=1e-12 * before[0])


def random_pairs(count, seed):
    """Rows of pairs that touch, and what `resolve_contacts` fills."""
    rng = np.random.default_rng(seed)
    normal, velocity = rng.normal(size=(2, count, 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    velocity *= np.exp(rng.uniform(-3, 5, count))[:, None]
    straight = rng.random(count) < 0.3  # head-on
    velocity[straight] = np.linalg.norm(velocity[straight], axis=1)[:, None] * normal[straight]
    velocity *= -np.sign(np.einsum("na,na->n", normal, velocity))[:, None]
    small = np.exp(rng.uniform(-10, -5, count))
    large = small * np.exp(rng.uniform(0, 3, count) * (rng.random(count) > 0.3))
    reach = (large + small) * np.where(rng.random(count) < 0.2, rng.random(count), 1.0)
    motion = np.zeros((-(-2 * count // LANES), 8, LANES))
    drift = rng.normal(size=(count, 3))
    state = np.zeros((2 * count, 8))
    state[0::2, :3], state[0::2, 3:6], state[0::2, 6] = reach[:, None] * normal, velocity, large
    state[1::2, 6] = small
    state[:, 3:6] += np.repeat(drift, 2, axis=0)
    row = np.arange(2 * count)
    motion[row // LANES, :, row % LANES] = state
    density = rng.uniform(500, 2000, 2 * count)
    mass = density * 4 / 3 * np.pi * state[:, 6] ** 3
    luggage = rng.random((2 * count, 2))
    return state, motion, mass, luggage


@pytest.mark.parametrize("bounce", [0.0, 1.0])
@pytest.mark.parametrize("most", [0.0, 3.0, 64.0])
def test_every_single_collision_keeps_what_it_should(bounce, most):
    """Weber numbers from 1e-6 to 1e6, size ratios to 20, drops that overlap, other densities."""
    count = 4000
    state, motion, mass, luggage = random_pairs(count, seed=int(most))
    before, carried = mass.copy(), luggage.copy()
    row = np.arange(2 * count)
    outcome, satellites = np.empty(count, np.int64), np.empty(count, np.int64)
    sat_motion, sat_mass = np.zeros((count, int(most), 8)), np.zeros(count)
    sat_luggage, lost = np.zeros((count, 2)), np.zeros((count, 4))
    settings = (TENSION, 1e-6, most, bounce, 0.8)
    resolve_contacts(
        np.zeros(count), row[0::2].astype(np.int32), row[1::2].astype(np.int32), 0.0, settings,
        motion, mass, luggage, outcome, satellites, sat_motion, sat_mass, sat_luggage, lost,
    )  # fmt: skip
    kinds = np.bincount(outcome, minlength=4)
    assert kinds[:3].min() > 50 and (kinds[BOUNCE] > 50) == bool(bounce)
    assert satellites.max() == most
    after = motion[row // LANES, :, row % LANES]
    alive = after[:, 6] > 0.0
    there = np.arange(int(most)) < satellites[:, None]
    one = np.where(there, sat_mass[:, None], 0.0)

    def per_pair(parents, children):
        parents = parents.reshape(count, 2, *parents.shape[1:])
        return parents.sum(axis=1) + children.sum(axis=1)

    scale = before.reshape(count, 2).sum(axis=1)
    np.testing.assert_allclose(per_pair(mass * alive, one), scale, rtol=1e-13)
    momentum = np.sum((before[:, None] * state[:, 3:6]).reshape(count, 2, 3), axis=1)
    speed = np.abs(state[:, 3:6]).reshape(count, -1).max(axis=1)
    new = per_pair((mass * alive)[:, None] * after[:, 3:6], one[..., None] * sat_motion[..., 3:6])
    assert np.max(np.abs(new - momentum) / (scale * speed)[:, None]) < 1e-13
    volume = np.sum(state[:, 6].reshape(count, 2) ** 3, axis=1)
    radii = np.where(there, sat_motion[..., 6], 0.0)
    kept = per_pair(np.where(alive, after[:, 6], 0.0) ** 3, radii**3)
    np.testing.assert_allclose(kept, volume, rtol=1e-12)

    def energy(m, v, r):
        return 0.5 * m * np.sum(v**2, axis=-1) + 4 * np.pi * TENSION * r**2

    old = per_pair(energy(before, state[:, 3:6], state[:, 6]), 0.0 * one)
    parents = energy(mass, after[:, 3:6], after[:, 6]) * alive
    now = per_pair(parents, energy(one, sat_motion[..., 3:6], radii))
    assert np.max(now / old - 1.0) < 1e-12  # never grows
    np.testing.assert_allclose(old - now, lost[:, 3], rtol=0, atol=1e-12 * old.max())
    assert lost[:, 3].min() > -1e-12 * old.max()
    mixed = per_pair((mass * alive)[:, None] * luggage, one[..., None] * sat_luggage[:, None])
    first = np.sum((before[:, None] * carried).reshape(count, 2, 2), axis=1)
    np.testing.assert_allclose(mixed, first, rtol=1e-12)
    assert radii[there].min(initial=1.0) >= 0.999e-6


def angular_momentum(solver):
    mass = solver.read("Spray", "mass")[:, None]
    cross = np.cross(solver.read("Spray", "position"), solver.read("Spray", "velocity"))
    return np.sum(mass * cross, axis=0)


@pytest.mark.parametrize(
    ("weber", "offset", "bounce", "kept"),
    [
        (10.0, 0.4, False, False),
        (60.0, 0.6, False, False),
        (400.0, 0.1, False, False),
        (30.0, 0.05, False, True),  # reflexion without satellites
        (1.0, 0.5, True, True),
    ],
)
def test_lost_angular_momentum_is_told(weber, offset, bounce, kept):
    solver = solve(pair(weber, offset, ratio=0.9), bounce=bounce)
    before = angular_momentum(solver)
    solver.run(2)
    lost = before - angular_momentum(solver)
    assert sum(account(solver)[n] for n in ("coalescences", "reflexions", "stretchings", "bounces"))
    size = np.linalg.norm(before)
    np.testing.assert_allclose(lost, account(solver)["angular_momentum"], rtol=0, atol=1e-10 * size)
    assert (np.linalg.norm(lost) < 1e-10 * size) == kept


def test_a_bounce_gives_the_energy_back():
    for restitution, kept in ((1.0, True), (0.5, False)):
        solver = solve(pair(2.0, 0.0), bounce=True, restitution=restitution)
        before = solver.read("Spray", "velocity")
        energy = totals(solver)[2]
        solver.run(2)
        after = solver.read("Spray", "velocity")
        assert account(solver)["bounces"] == 1
        apart = (after[1] - after[0])[0] / (before[0] - before[1])[0]
        assert apart == pytest.approx(restitution, rel=1e-12)
        assert (totals(solver)[2] == pytest.approx(energy, rel=1e-12)) == kept


# -- satellites and channels ---------------------------------------------------------------------


@pytest.mark.parametrize("weber", [0.0, 1e-3, 1.0, 50.0, 1e4, 1e12])
def test_radius_at_breakup_is_the_root(weber):
    radius, beta = breakup_radius(weber), 3.0 / (4.0 * np.sqrt(2.0)) * 11.5 * 0.45
    assert 0.0 < radius <= 1.0
    assert beta * np.sqrt(weber) * radius**3.5 + radius**2 == pytest.approx(1.0, rel=1e-12)


def test_satellites_are_limited():
    many = solve(pair(2e3, 0.4), frames=2, max_satellites=64)
    few = solve(pair(2e3, 0.4), frames=2, max_satellites=2)
    none = solve(pair(2e3, 0.4), frames=2, max_satellites=0)
    large = solve(pair(2e3, 0.4), frames=2, max_satellites=64, minimum_radius=0.5 * R)
    assert account(many)["satellites"] > 4 and account(few)["satellites"] == 2
    assert account(none)["satellites"] == 0 and none.counts()["Spray"] == 2
    assert 0 < account(large)["satellites"] < account(many)["satellites"]
    assert large.read("Spray", "radius").min() >= 0.499999 * R
    # Fewer satellites hold the same ligament.
    volume = [np.sum(one.read("Spray", "radius")[2:] ** 3) for one in (many, few)]
    assert volume[1] == pytest.approx(volume[0], rel=0.25) and volume[1] >= volume[0]


def test_channels_mix_by_mass_and_labels_are_the_larger_drop_s():
    channels = {"heat": [300.0, 360.0], "tag": np.array([7, 9]), "age": [0.5, 0.25]}
    merged = solve(pair(5.0, 0.2, ratio=0.5, **channels), frames=2)
    assert account(merged)["coalescences"] == 1
    assert merged.read("Spray", "heat")[0] == pytest.approx((300.0 * 8 + 360.0) / 9, rel=1e-12)
    assert merged.read("Spray", "tag")[0] == 7 and merged.read("Spray", "id")[0] == 0
    assert merged.read("Spray", "age")[0] == pytest.approx(0.5 + 2 / 500)
    parted = solve(pair(300.0, 0.4, ratio=0.8, **channels), frames=2)
    heat, tag = parted.read("Spray", "heat"), parted.read("Spray", "tag")
    assert account(parted)["satellites"] > 1
    np.testing.assert_allclose(heat[:2], [300.0, 360.0])  # the drops are as they were
    assert np.all((heat[2:] > 300.0) & (heat[2:] < 360.0)) and np.ptp(heat[2:]) == 0.0
    assert np.all(tag[2:] == 7)
    np.testing.assert_allclose(parted.read("Spray", "age")[2:], 0.5 + 2 / 500)
    # All of what reflects has been one drop.
    through = solve(pair(300.0, 0.0, **channels), frames=2)
    assert account(through)["satellites"] > 0
    np.testing.assert_allclose(through.read("Spray", "heat"), 330.0)


def test_satellites_die_with_their_drop():
    points = pair(300.0, 0.4, lifetime=np.array([0.02, np.inf]))
    solver = solve(points, frames=2)
    born = account(solver)["satellites"]
    assert born > 0 and solver.counts()["Spray"] == born + 2
    solver.run(20)
    np.testing.assert_array_equal(solver.read("Spray", "id"), [1])


def test_the_dead_do_not_collide():
    kill = lk.ParticleExpression(expression="if id == 0:\n    alive = False", stage="PRE_SOLVE")
    solver = solve(pair(5.0, 0.0), others=(kill,), frames=2)
    np.testing.assert_array_equal(solver.read("Spray", "id"), [1])
    assert account(solver)["coalescences"] == 0


# -- the same by another road --------------------------------------------------------------------


def test_results_do_not_depend_on_threads():
    before = thread_count()
    found = []
    for threads in (1, before):
        set_thread_count(threads)
        solver = solve(spray(1200), frames=3)
        found.append({n: solver.read("Spray", n) for n in ("id", "position", "velocity", "Cd")})
    set_thread_count(before)
    for name, values in found[0].items():
        np.testing.assert_array_equal(values, found[1][name])


def test_results_do_not_depend_on_the_order_of_the_input():
    points = spray(1200)
    order = np.random.default_rng(5).permutation(1200)
    shuffled = lk.Points(points.positions[order])
    for name, values in points.channels["point"].items():
        if name != "position":
            shuffled.set_channel("point", name, np.asarray(values)[order])
    runs = [solve(one, frames=3) for one in (points, shuffled)]
    assert account(runs[0])["satellites"] > 20
    rows = [np.lexsort(run.read("Spray", "position").T) for run in runs]
    for name in ("position", "velocity", "mass", "Cd", "tag"):
        one, two = (run.read("Spray", name)[row] for run, row in zip(runs, rows, strict=True))
        np.testing.assert_array_equal(one, two, err_msg=name)


def test_results_do_not_depend_on_the_buckets():
    """In large Buckets droplets are stored in no useful order, and are sorted for the search."""
    runs = [solve(spray(3000), frames=2, settings={"bucket_size": b}) for b in (0.005, 1.0)]
    assert account(runs[0])["satellites"] > 20
    for name in ("id", "position", "velocity", "mass", "Cd"):
        one, two = (run.read("Spray", name) for run in runs)
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-9 * np.abs(one).max())


def test_pairs_meet_across_a_periodic_border():
    box = {
        "domain_lower": (0.0, 0.0, 0.0),
        "domain_upper": (0.1, 0.1, 0.1),
        "boundary_lower": ("periodic",) * 3,
        "boundary_upper": ("periodic",) * 3,
    }
    far = drops([[0.001, 0.05, 0.05], [0.099, 0.05, 0.05]], [[-1, 0, 0], [1, 0, 0]], Cd=[0.0, 1.0])
    solver = solve(far, frames=2, settings=box)
    assert account(solver)["reflexions"] + account(solver)["coalescences"] == 1
    assert np.all(
        (solver.read("Spray", "position") >= 0) & (solver.read("Spray", "position") < 0.1)
    )
    with pytest.raises(DivergenceError, match=r"periodic axis x, which is 0\.1 m long"):
        fast = drops([[0.05, 0.05, 0.05], [0.02, 0.02, 0.02]], [[100.0, 0, 0], [0, 0, 0]])
        solve(fast, frames=1, settings={**box, "retries": 0})


def test_what_parts_beside_a_wall_stays_in_the_box():
    box = {"domain_lower": (-1.0, -1.0, 0.0), "domain_upper": (1.0, 1.0, 1.0)}
    box |= {"boundary_lower": ("wall",) * 3, "boundary_upper": ("wall",) * 3}
    points = pair(300.0, 0.5)
    points.positions[:] = points.positions[:, [0, 2, 1]] + [0.0, 0.0, 1e-6]
    solver = solve(points, frames=2, settings=box)
    assert account(solver)["stretchings"] == 1
    assert solver.read("Spray", "position")[:, 2].min() >= 0.0


def test_a_step_that_is_undone_is_not_counted():
    points = pair(5.0, 0.0)
    solver = solve(points)
    state = solver.state()
    solver.run(2)
    assert account(solver)["coalescences"] == 1
    solver.restore(state)
    assert account(solver)["coalescences"] == 0 and solver.counts()["Spray"] == 2
    solver.run(2)
    assert account(solver)["coalescences"] == 1


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1])
def test_few_droplets_are_no_problem(count):
    solver = solve(drops(np.zeros((count, 3)), np.ones((count, 3))), frames=2)
    assert solver.counts()["Spray"] == count


def test_all_droplets_in_one_point():
    """Nobody approaches anybody: they go apart; and what stays together stays."""
    rng = np.random.default_rng(2)
    apart = solve(drops(np.zeros((300, 3)), rng.normal(size=(300, 3)), 1e-5), frames=2)
    assert apart.counts()["Spray"] == 300
    together = solve(drops(np.zeros((300, 3)), np.ones((300, 3))), frames=2)
    assert together.counts()["Spray"] == 300


def test_a_heap_becomes_one_drop():
    rng = np.random.default_rng(3)
    place = rng.normal(size=(400, 3)) * R / 4
    points = drops(place, -place)  # all towards the middle, slowly
    solver = solve(points, frames=1)
    assert solver.counts()["Spray"] < 20
    assert np.sum(solver.read("Spray", "radius") ** 3) == pytest.approx(400 * R**3, rel=1e-12)


def test_a_large_drop_collects_small_ones_on_its_way():
    """As many as are in the cylinder that it sweeps."""
    rng = np.random.default_rng(7)
    count, width = 4000, 0.02
    place = np.concatenate(([[-0.016, 0.0, 0.0]], rng.uniform(-0.5, 0.5, (count, 3)) * width))
    velocity = np.zeros((count + 1, 3))
    velocity[0, 0] = 4.0
    radii = np.append(5e-3, np.full(count, 5e-5))
    solver = solve(drops(place, velocity, radii), rate=100, frames=1)
    found = account(solver)
    swept = np.pi * (5.05e-3) ** 2 * width / width**3 * count  # the path crosses the whole cloud
    assert 0.9 * swept < found["coalescences"] + found["stretchings"] < 1.1 * swept
    limited = solve(drops(place, velocity, radii), rate=100, frames=1, max_rounds=10)
    assert account(limited)["coalescences"] <= 10
    assert "contacts are left after max_rounds = 10" in limited.warnings[-1]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("if id == 1:\n    radius = 0.0", "droplet id 1 has .*radius 0.0, .*a positive radius"),
        ("if id == 0:\n    mass = -1.0", "droplet id 0 has .*mass -1.0; .*a positive radius"),
        ("if id == 1:\n    radius = 0.0 / (age - age)", "droplet id 1 has .*radius nan"),
    ],
)
def test_impossible_droplets_are_named(expression, message):
    broken = lk.ParticleExpression(expression=expression, stage="ADVECT")
    with pytest.raises(DivergenceError, match=message):
        solve(pair(5.0, 0.0), others=(broken,), frames=1, settings={"retries": 0})


def test_velocities_that_are_no_numbers_are_named():
    solver = solve(pair(5.0, 0.0), settings={"retries": 0})
    particles = solver.object("Spray").particles
    particles.local("velocity")[particles.local("id") == 1] = np.nan
    with pytest.raises(DivergenceError, match=r"droplet id 1 has position.*nan.*finite numbers"):
        solver.run(1)


def test_too_many_contacts_are_an_error_that_says_where():
    rng = np.random.default_rng(3)
    place = rng.normal(size=(2000, 3)) * R / 4
    solver = solve(drops(place, -place), settings={"retries": 0})
    solver.actions["BinaryDropletCollisions"][0]._search = ContactSearch(most=1 << 16)
    with pytest.raises(DivergenceError, match=r"droplets touch by the million, such as id \d+ of"):
        solver.run(1)


def test_only_particle_objects_have_droplets():
    setup = lk.SolverSetup(
        "liquid", lk.HybridObject(name="Water", voxel_size=0.1, input="water"),
        BinaryDropletCollisions(),
    )  # fmt: skip
    solver = lk.Solver(setup, {"water": lk.Points(np.random.default_rng(0).random((20, 3)))})
    assert [one.path for one in solver.inactive] == ["BinaryDropletCollisions"]
