"""Sparse topology: Buckets appear where something is, follow it, and go when it is gone."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.constraints.pressure import PressureMaterial
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.data.points import Points
from loki_core.errors import InputError, LokiError, SetupError
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.gas.volume_topology import (
    Regions,
    around_box,
    lattice_of,
    same_buckets,
    whole_box,
)
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.dissipation import DissipationOperator
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from tests.unit.test_pressure import ball, block
from tests.unit.test_volume import H, cube

BUCKET = 8 * H


def as_set(coords):
    return {tuple(row) for row in np.asarray(coords).tolist()}


def world_buckets(solver):
    """Lattice places of all Buckets, counted from the world's origin."""
    domain = solver.domain
    shift = np.round(domain.origin / domain.bucket_size).astype(int)
    return as_set(solver.object("air").volume.buckets.all_coords + shift)


# -- the lists --------------------------------------------------------------------------------


def padded(domain, coords, layers):
    """Buckets within layers, as thick as a Bucket, of whole ones."""
    return Regions.whole(np.array(coords, np.int32), 8).padded(domain, 8 * layers, 8)


def test_padding_is_counted_from_voxels():
    ranges = np.array([[[2, 0, 7], [5, 0, 7]]])
    one = Regions(np.array([[0, 0, 0]], np.int32), ranges)
    assert as_set(one.padded(GridDomain(1.0), 2, 8)) == {(0, j, k) for j in (-1, 0) for k in (0, 1)}
    assert as_set(one.padded(GridDomain(1.0), 3, 8)) == {
        (i, j, k) for i in (-1, 0, 1) for j in (-1, 0) for k in (0, 1)
    }


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_padding_is_a_cube_of_layers(layers):
    domain = GridDomain(1.0)
    got = as_set(padded(domain, [[5, 5, 5]], layers))
    steps = range(-layers, layers + 1)
    assert got == {(5 + i, 5 + j, 5 + k) for i in steps for j in steps for k in steps}


def test_padding_stops_at_the_box_and_wraps_along_periodic_axes():
    kinds = ("periodic", "periodic", "wall", "wall", "open", "open")
    domain = GridDomain(
        1.0,
        lower=(0, 0, 0),
        upper=(6, 3, 3),
        boundaries=[BoundaryCondition(kind) for kind in kinds],
    )
    origin = np.round(domain.origin).astype(int)
    start = (np.array([[0, 0, 2]]) - origin).astype(np.int32)
    got = as_set(padded(domain, start, 1) + origin)
    expected = {(i, j, k) for i in (5, 0, 1) for j in (0, 1) for k in (1, 2)}
    assert got == expected


def test_padding_of_nothing_is_nothing():
    assert len(padded(GridDomain(1.0), np.empty((0, 3)), 2)) == 0


def test_a_box_of_any_size_touches_the_right_buckets():
    domain = GridDomain(0.5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        lower = rng.uniform(-5.0, 5.0, 3)
        upper = lower + rng.uniform(0.01, 2.0, 3)
        got = as_set(around_box(domain, lower, upper, "test"))
        first, last = np.floor(lower / 0.5).astype(int), np.floor(upper / 0.5).astype(int)
        axes = [range(a, b + 1) for a, b in zip(first, last, strict=True)]
        assert got == {(i, j, k) for i in axes[0] for j in axes[1] for k in axes[2]}


def test_boxes_that_are_not_there():
    domain = GridDomain(1.0, lower=(0, 0, 0), upper=(4, 4, 4))
    nothing = np.full(3, np.inf), np.full(3, -np.inf)
    assert len(around_box(domain, *nothing, "test")) == 0
    assert len(around_box(domain, np.full(3, 9.0), np.full(3, 10.0), "test")) == 0
    assert len(around_box(domain, np.full(3, np.nan), np.full(3, 1.0), "test")) == 0


def test_too_many_buckets_are_refused_before_memory_is():
    with pytest.raises(InputError, match="enlarge the voxels"):
        lattice_of(np.zeros(3, np.int32), np.full(3, 100_000, np.int32), "test")
    with pytest.raises(InputError, match="domain box"):
        whole_box(GridDomain(1.0), "test")


def test_the_order_of_buckets_does_not_matter():
    some = np.array([[1, 2, 3], [0, 0, 0], [-4, 5, 6]], np.int32)
    assert same_buckets(some, some[::-1].copy())
    assert not same_buckets(some, some[:2])
    assert not same_buckets(some, some + 1)


# -- in a Solver ------------------------------------------------------------------------------


def wind(*behaviors, velocity=(0.0, 0.0, 0.0), inputs=None, **options):
    """Gas that a given wind carries, unbounded."""
    values = {"padding": 8, "velocity_scheme": "none", "ambient_velocity": velocity, **options}
    setup = SolverSetup("wind", VolumeObject(name="air", voxel_size=H, **values), *behaviors)
    return Solver(setup, inputs)


def test_buckets_appear_around_a_source():
    solver = wind(VolumeEmission(source="source"), inputs={"source": block((1.1,) * 3, (1.9,) * 3)})
    solver.run(1)
    steps = (0, 1, 2)
    assert world_buckets(solver) == {(i, j, k) for i in steps for j in steps for k in steps}


def test_buckets_follow_the_smoke_and_are_dropped_behind_it():
    solver = wind(
        velocity=(6.0, 0.0, 0.0), input="start", inputs={"start": cube((2,) * 3, (6,) * 3)}
    )
    first = world_buckets(solver)
    assert (0, 0, 0) in first
    masses = []
    for _ in range(24):
        solver.run(1)
        masses.append(float(solver.read("air", "density").sum()))
    # Six metres on: the six Buckets behind are gone, and there are no more than at the start.
    last = world_buckets(solver)
    assert min(i for i, _, _ in last) >= 4
    assert (6, 0, 0) in last
    assert len(last) <= 2 * len(first)
    np.testing.assert_allclose(masses, masses[0], rtol=0.02)


def test_buckets_disappear_with_the_smoke():
    solver = wind(
        DissipationOperator(rate=60.0), input="start", inputs={"start": cube((2,) * 3, (6,) * 3)}
    )
    counts = []
    for _ in range(8):
        solver.run(1)
        counts.append(len(world_buckets(solver)))
    assert counts[0] == 27
    assert counts[-1] == 0
    solver.run(2)  # and nothing at all runs on
    assert solver.read("air", "density").shape[0] == 0


def test_buckets_that_hold_nothing_come_back_with_a_source():
    def at(frame):
        return ball((0.5, 0.5, 0.5) if frame > 4 else (0.5, 500.0, 0.5), 0.2)

    setup = SolverSetup(
        "late",
        VolumeObject(name="air", voxel_size=H),
        PressureMaterial(),
        VolumeEmission(source="source"),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
    )
    solver = Solver(setup, {"source": at})
    solver.run(2)
    assert len(world_buckets(solver)) == 0
    solver.run(3)
    assert len(world_buckets(solver)) > 0
    assert solver.read("air", "density").max() > 0.9


def test_small_remains_are_kept_or_dropped_as_activity_says():
    counts = {}
    for activity in (1e-4, 0.5):
        start = cube((2,) * 3, (6,) * 3, density=0.3)
        solver = wind(input="start", activity=activity, inputs={"start": start})
        solver.run(2)
        counts[activity] = len(world_buckets(solver))
    assert counts == {1e-4: 27, 0.5: 0}


def test_buckets_are_kept_around_a_stream():
    solver = wind(around="hair", inputs={"hair": Points(np.array([[0.1] * 3, [2.5, 0.5, 0.5]]))})
    solver.run(2)
    assert {(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 1, 1), (-1, -1, -1)} <= world_buckets(solver)
    assert len(world_buckets(solver)) == 5 * 3 * 3


def test_buckets_are_kept_around_particles_that_move():
    setup = SolverSetup(
        "sparks",
        VolumeObject(name="air", voxel_size=H, padding=8, around="sparks"),
        PressureMaterial(),
        ParticleObject(name="sparks", input="seeds"),
    )
    seeds = Points(np.array([[0.5, 0.5, 0.5]]))
    seeds.channels["point"]["velocity"] = np.array([[24.0, 0.0, 0.0]])
    solver = Solver(setup, {"seeds": seeds})
    for frame in range(1, 4):
        solver.run(1)
        found = world_buckets(solver)
        # The volume adapts at the start of a step, the particle is a Bucket further at its end.
        assert (frame - 1, 0, 0) in found or (frame, 0, 0) in found
        assert len(found) == 27


def test_around_something_that_is_not_there_is_refused():
    with pytest.raises(SetupError, match="hairs"):
        wind(around="hairs").run(1)


def test_smoke_leaves_an_open_box_and_its_buckets_with_it():
    setup = SolverSetup(
        "leaves",
        VolumeObject(
            name="air",
            voxel_size=H,
            padding=8,
            input="start",
            velocity_scheme="none",
            ambient_velocity=(12.0, 0.0, 0.0),
        ),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(3.3, 1.7, 1.0),
    )
    solver = Solver(setup, {"start": cube((2,) * 3, (6,) * 3)})
    solver.run(12)
    assert solver.read("air", "density").sum() < 1e-3
    solver.run(4)
    assert len(world_buckets(solver)) == 0


def test_a_periodic_box_brings_the_smoke_round():
    setup = SolverSetup(
        "round",
        VolumeObject(
            name="air",
            voxel_size=H,
            padding=8,
            input="start",
            velocity_scheme="none",
            ambient_velocity=(0.0, 0.0, 4.0),
        ),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(3.0, 3.0, 4.0),
        boundary_lower=("open", "open", "periodic"),
        boundary_upper=("open", "open", "periodic"),
        frames_per_second=32.0,
    )
    solver = Solver(setup, {"start": cube((2,) * 3, (6,) * 3)})
    start = solver.outputs()["air"].to_dense("density").sum()
    solver.run(32)  # 32 steps of exactly one voxel: once round, and nothing was interpolated
    smoke = solver.outputs()["air"]
    density = smoke.to_dense("density")[0]
    corner = np.round((smoke.origin + smoke.first_voxel() * H) / H).astype(int)
    i, j, k = (2 - corner) % 32
    np.testing.assert_allclose(density[i : i + 4, j : j + 4, k : k + 4], 1.0, atol=1e-5)
    np.testing.assert_allclose(density.sum(), start, rtol=1e-5)


def test_sparse_and_whole_box_agree_where_the_smoke_is():
    ends = {}
    for region in ("sparse", "box"):
        setup = SolverSetup(
            "same",
            VolumeObject(
                name="air",
                voxel_size=H,
                region=region,
                padding=8,
                input="start",
                velocity_scheme="none",
                ambient_velocity=(1.0, 0.5, -0.3),
            ),
            precision="double",
            domain_lower=(-3.0, -3.0, -3.0),
            domain_upper=(4.0, 4.0, 4.0),
        )
        solver = Solver(setup, {"start": cube((2,) * 3, (6,) * 3)})
        solver.run(6)
        smoke = solver.outputs()["air"]
        ends[region] = {
            tuple(place): values
            for place, values in zip(
                smoke.coords.tolist(), smoke.channel("density").values, strict=True
            )
        }
    for place, values in ends["sparse"].items():
        np.testing.assert_allclose(values, ends["box"][place], atol=2e-4)  # activity is 1e-4


def test_a_source_far_outside_the_key_range_is_refused_or_ignored():
    try:
        solver = wind(
            VolumeEmission(source="far"),
            inputs={"far": ball((1e9, 0.0, 0.0), 0.3), "near": ball((0.0, 0.0, 0.0), 0.3)},
        )
        solver.run(1)
    except LokiError as error:
        assert str(error)
    else:
        assert np.isfinite(solver.read("air", "density")).all()


def test_smoke_that_is_as_fast_as_a_shot_asks_for_no_more_than_the_box():
    domain = GridDomain(1.0, lower=(0, 0, 0), upper=(16, 16, 16))
    first, last = domain.bucket_range()
    all_of_it = np.stack(np.meshgrid(*[np.arange(a, b) for a, b in zip(first, last, strict=True)]))
    coords = all_of_it.reshape(3, -1).T.astype(np.int32)
    ranges = np.zeros((len(coords), 2, 3), np.int64)
    ranges[:, 0], ranges[:, 1] = -128, 135
    assert len(Regions(coords, ranges).padded(domain, 16, 8)) == 16**3


def test_fast_smoke_does_not_outrun_its_buckets():
    # Forty voxels a step: the Buckets at the end of the trace are there before it is followed.
    solver = wind(
        velocity=(40.0 * H * 24.0, 0.0, 0.0), input="start",
        inputs={"start": cube((2,) * 3, (6,) * 3)},
    )  # fmt: skip
    start = float(solver.read("air", "density").sum())
    solver.run(4)
    np.testing.assert_allclose(float(solver.read("air", "density").sum()), start, rtol=1e-5)
