"""Liquids of particles on a grid: rest, fall, volume, momentum, walls, solids, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

import loki_core as lk
from loki_core.errors import InputError, SetupError
from loki_core.kernels.jit import set_thread_count, thread_count

H = 1 / 16


def box(lower, upper):
    mesh = trimesh.creation.box(bounds=[lower, upper])
    return lk.Surface.from_faces(np.array(mesh.vertices), np.array(mesh.faces))


def ball(centre, radius):
    mesh = trimesh.creation.icosphere(subdivisions=3, radius=radius)
    return lk.Surface.from_faces(np.array(mesh.vertices) + centre, np.array(mesh.faces))


def tank(water, *others, walls="wall", size=(1.0, 1.0, 1.0), inputs=None, liquid=None, **settings):
    """Water in a box, or a box without any."""
    given = {} if water is None else {"water": water}
    setup = lk.SolverSetup(
        "tank",
        lk.HybridObject(
            name="Water", voxel_size=H, input=None if water is None else "water", **(liquid or {})
        ),
        lk.GravityForce(acceleration=settings.pop("gravity", (0.0, -9.81, 0.0))),
        *settings.pop("pressure", [lk.PressureMaterial()]),
        *others,
        **{
            "substeps": 2,
            "domain_lower": (0.0, 0.0, 0.0),
            "domain_upper": size,
            "boundary_lower": (walls,) * 3,
            "boundary_upper": (walls,) * 3,
            **settings,
        },
    )
    return lk.Solver(setup, {**given, **(inputs or {})})


def drops(places, **channels):
    points = lk.Points(np.asarray(places, float))
    for name, values in channels.items():
        points.set_channel("point", name, np.asarray(values))
    return points


@pytest.mark.parametrize("transfer", ["apic", "flip", "pic", "affine_flip"])
def test_a_pool_stays_at_rest(transfer):
    solver = tank(box((-1, -1, -1), (2, 0.47, 2)), liquid={"transfer": transfer})
    start = solver.read("Water", "position")
    assert len(start) == 32 * 15 * 32  # to the last layer of the lattice below the surface
    solver.run(12)
    assert np.abs(solver.read("Water", "velocity")).max() < 1e-4
    assert np.abs(solver.read("Water", "position") - start).max() < 1e-4 * H


def test_the_floor_carries_the_weight():
    solver = tank(box((-1, -1, -1), (2, 0.5, 2)), precision="double")
    solver.run(2)
    liquid = solver.object("Water")
    pressure, kind = liquid.volume.local("pressure"), liquid.volume.local("kind")
    rows = liquid.volume.buckets.local_coords[:, 1]
    lowest = (rows == rows.min())[:, None, None] & (kind[:, 0, :, 0, :] == 1)
    measured = pressure[:, 0, :, 0, :][lowest].mean() + 1000.0 * 9.81 * 0.5 * H
    assert measured == pytest.approx(1000.0 * 9.81 * 0.5, rel=1e-3)


@pytest.mark.parametrize("transfer", ["apic", "flip", "pic", "affine_flip"])
def test_a_free_block_falls(transfer):
    solver = tank(
        box((0.3, 0.5, 0.3), (0.7, 0.8, 0.7)), liquid={"transfer": transfer}, precision="double"
    )
    height = solver.read("Water", "position")[:, 1].mean()
    steps, dt = 6, 1 / 48
    solver.run(3)
    fallen = 9.81 * dt * dt * steps * (steps + 1) / 2  # of symplectic steps
    assert height - solver.read("Water", "position")[:, 1].mean() == pytest.approx(fallen, rel=1e-6)
    velocity = solver.read("Water", "velocity").mean(axis=0)
    np.testing.assert_allclose(velocity, [0.0, -9.81 * dt * steps, 0.0], atol=1e-6)


def test_single_drops_fly_on_parabolas():
    places = [[0.2, 0.8, 0.2], [0.8, 0.6, 0.8]]
    solver = tank(drops(places, velocity=[[1.0, 0.5, 0.0], [-1.0, 0.0, 0.3]]), precision="double")
    solver.run(3)
    t, dt, n = 1 / 8, 1 / 48, 6
    fall = 9.81 * dt * dt * n * (n + 1) / 2
    expected = np.array(places) + t * np.array([[1.0, 0.5, 0.0], [-1.0, 0.0, 0.3]])
    expected[:, 1] -= fall
    np.testing.assert_allclose(solver.read("Water", "position"), expected, atol=1e-9)


def test_a_splash_keeps_its_volume():
    solver = tank(box((0, 0, 0), (0.5, 0.75, 1.0)), substeps=4)
    liquid = solver.object("Water")
    count, cells = liquid.count(), 8 * 12 * 16
    solver.run(30)
    assert liquid.count() == count
    kind, filled = liquid.volume.local("kind"), liquid.volume.local("filled")
    assert abs(np.count_nonzero(kind == 1) / cells - 1.0) < 0.06  # in the middle of the splash
    assert np.mean(filled[kind == 1] > 1.3) < 0.02
    position = solver.read("Water", "position")
    assert position.min() > 0.0 and position.max() < 1.0


def test_solids_hold_the_liquid():
    centre, radius = np.array([0.6, 0.2, 0.5]), 0.2
    solver = tank(
        box((0, 0, 0), (0.4, 0.8, 1.0)),
        lk.Collider(input="ball"),
        inputs={"ball": ball(centre, radius)},
        substeps=4,
    )
    solver.run(16)
    distance = np.linalg.norm(solver.read("Water", "position") - centre, axis=1)
    assert distance.min() > radius - 0.1 * H


@pytest.mark.parametrize("angle", [0.0, 0.5])
def test_a_sheet_without_thickness_holds_the_liquid(angle):
    corners = np.array([[-1, 0, -1], [3, 0, -1], [3, 0, 3], [-1, 0, 3]], float)
    corners[:, 1] = 0.4 + np.tan(angle) * (corners[:, 0] - 0.5)
    sheet = lk.Surface.from_faces(corners, np.array([[0, 1, 2, 3]]))
    solver = tank(
        ball((0.6, 0.8, 0.5), 0.15), lk.Collider(input="sheet", mode="shell"),
        inputs={"sheet": sheet}, substeps=4,
    )  # fmt: skip
    solver.run(16)
    x = solver.read("Water", "position")
    above = x[:, 1] - (0.4 + np.tan(angle) * (x[:, 0] - 0.5))
    assert above.min() > 0.0


def test_a_fast_solid_drives_the_liquid_and_lets_nothing_in():
    def bullet(frame):
        return ball((-0.3 + 0.7 * (frame - 1), 0.3, 0.5), 0.15)  # 17 m/s

    solver = tank(
        box((0, 0, 0), (1.0, 0.6, 1.0)), lk.Collider(input="bullet"),
        inputs={"bullet": bullet}, adaptive_substeps=True, max_substeps=40,
    )  # fmt: skip
    solver.run(2)
    x = solver.read("Water", "position")
    assert np.linalg.norm(x - [1.1, 0.3, 0.5], axis=1).min() > 0.14
    assert np.isfinite(x).all() and solver.read("Water", "velocity")[:, 0].max() > 1.0


def test_a_solid_that_swallows_the_liquid_is_survived():
    solver = tank(
        ball((0.5, 0.5, 0.5), 0.1), lk.Collider(input="rock"),
        inputs={"rock": box((0.2, 0.2, 0.2), (0.8, 0.8, 0.8))},
    )  # fmt: skip
    count = solver.object("Water").count()
    solver.run(4)
    assert solver.object("Water").count() == count
    assert np.isfinite(solver.read("Water", "position")).all()


def test_open_sides_let_go():
    solver = tank(box((0.3, 0.1, 0.3), (0.7, 0.5, 0.7)), walls="open")
    count = solver.object("Water").count()
    solver.run(12)
    assert 0 <= solver.object("Water").count() < count


def test_a_liquid_may_fall_for_ever():
    setup = lk.SolverSetup(
        "abyss",
        lk.HybridObject(name="Water", voxel_size=H, input="water"),
        lk.GravityForce(),
        lk.PressureMaterial(),
        substeps=4,
    )
    solver = lk.Solver(setup, {"water": ball((0.5, 0.5, 0.5), 0.2)})
    count = solver.object("Water").count()
    solver.run(24)
    assert solver.object("Water").count() == count
    assert solver.read("Water", "position")[:, 1].max() < -3.0


@pytest.mark.parametrize("count", [0, 1])
def test_few_particles(count):
    solver = tank(drops(np.full((count, 3), 0.5)))
    solver.run(12)
    assert solver.object("Water").count() == count
    if count:
        assert solver.read("Water", "position")[0, 1] < 0.5 * H


def test_an_empty_mesh_is_no_liquid():
    solver = tank(lk.Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32)))
    solver.run(1)
    assert solver.object("Water").count() == 0


def test_two_cells_of_water():
    solver = tank(box((0, 0, 0), (1, 1, 1)), size=(2 * H, 2 * H, 2 * H))
    solver.run(3)
    assert solver.object("Water").count() == 64
    assert np.abs(solver.read("Water", "velocity")).max() < 1e-3


def test_channels_travel_with_particles():
    x = np.random.default_rng(2).uniform(0.1, 0.4, (500, 3))
    solver = tank(drops(x, heat=x[:, 0], tag=np.arange(500)))
    solver.run(4)
    out = solver.outputs()["Water"].channels["point"]
    order = np.argsort(out["id"])
    np.testing.assert_array_equal(out["tag"][order], np.arange(500))
    np.testing.assert_allclose(out["heat"][order], x[:, 0], rtol=1e-6)
    assert out["radius"][0] == pytest.approx(0.25 * H)


def test_bad_velocities_are_named():
    bad = np.zeros((5, 3))
    bad[3, 1] = np.nan
    with pytest.raises(InputError, match=r"velocity\[3\]"):
        tank(drops(np.full((5, 3), 0.5), velocity=bad))


def test_voxels_must_fit_the_buckets():
    with pytest.raises(SetupError, match="does not divide"):
        tank(drops([[0.5, 0.5, 0.5]]), bucket_size=0.7)


def test_a_resumed_run_goes_on_bit_for_bit():
    def start():
        return tank(
            box((0, 0, 0), (0.4, 0.8, 1.0)), lk.Collider(input="ball"),
            inputs={"ball": ball((0.6, 0.2, 0.5), 0.2)},
        )  # fmt: skip

    whole, other = start(), start()
    whole.run(3)
    state = whole.state()
    whole.run(3)
    other.restore(state)
    other.run(3)
    for name in ("position", "velocity"):
        np.testing.assert_array_equal(other.read("Water", name), whole.read("Water", name))


def test_results_do_not_depend_on_threads():
    before, found = thread_count(), []
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            solver = tank(box((0, 0, 0), (0.4, 0.8, 1.0)), substeps=3)
            solver.run(4)
            found.append(solver.read("Water", "position"))
    finally:
        set_thread_count(before)
    np.testing.assert_array_equal(*found)


def jet(**source):
    return lk.LiquidSource(source="nozzle", velocity=(2.0, 0.0, 0.0), **source)


def test_a_source_gives_its_cross_section_times_its_velocity():
    nozzle = box((0.0, 0.5, 0.25), (0.25, 0.75, 0.5))
    solver = tank(
        None, jet(), inputs={"nozzle": nozzle}, substeps=4, size=(4.0, 1.0, 1.0),
        gravity=(0.0, 0.0, 0.0),
    )  # fmt: skip
    solver.run(4)
    before = solver.object("Water").count()
    solver.run(4)
    given = (solver.object("Water").count() - before) * H**3 / 8
    assert given == pytest.approx(2.0 * 0.25**2 * 4 / 24, rel=0.1)
    assert solver.read("Water", "velocity")[:, 0].mean() == pytest.approx(2.0, rel=0.1)


def test_a_flux_holds_a_source_back():
    nozzle = box((0.0, 0.5, 0.25), (0.25, 0.75, 0.5))
    solver = tank(None, jet(flux=0.05), inputs={"nozzle": nozzle}, substeps=4, size=(4.0, 1.0, 1.0))
    solver.run(6)
    given = solver.object("Water").count() * H**3 / 8
    assert given == pytest.approx(0.05 * 6 / 24, rel=0.01)


def test_a_source_in_a_solid_stays_dry():
    inputs = {
        "nozzle": box((0.3, 0.3, 0.3), (0.5, 0.5, 0.5)),
        "rock": box((0.2, 0.2, 0.2), (0.6, 0.6, 0.6)),
    }
    solver = tank(None, jet(), lk.Collider(input="rock"), inputs=inputs)
    solver.run(2)
    assert solver.object("Water").count() == 0


def test_an_empty_source_gives_nothing():
    empty = lk.Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))
    solver = tank(None, jet(), inputs={"nozzle": empty})
    solver.run(2)
    assert solver.object("Water").count() == 0


def test_a_sink_drains():
    solver = tank(
        box((0, 0, 0), (1.0, 0.25, 1.0)), lk.LiquidSink(source="drain"),
        inputs={"drain": box((0.4, -0.1, 0.4), (0.6, 0.1, 0.6))}, substeps=4,
    )  # fmt: skip
    before = solver.object("Water").count()
    solver.run(12)
    x = solver.read("Water", "position")
    assert len(x) < 0.9 * before
    inside = np.all((x > [0.4, -0.1, 0.4]) & (x < [0.6, 0.1, 0.6]), axis=1)
    assert np.mean(inside) < 0.02  # what has come in during the last substep


def test_walls_let_go():
    """A block under the ceiling and at a wall falls as if nothing touched it."""
    solver = tank(box((-1, 0.6, -1), (0.5, 2, 2)), precision="double", substeps=4)
    height = solver.read("Water", "position")[:, 1].mean()
    solver.run(4)
    steps, dt = 16, 1 / 96
    fallen = height - solver.read("Water", "position")[:, 1].mean()
    assert fallen == pytest.approx(9.81 * dt * dt * steps * (steps + 1) / 2, rel=1e-6)


def test_walls_may_hold():
    setup = [lk.PressureMaterial(walls="hold")]
    solver = tank(box((-1, 0.6, -1), (2, 2, 2)), precision="double", substeps=4, pressure=setup)
    height = solver.read("Water", "position")[:, 1].mean()
    solver.run(2)
    assert height - solver.read("Water", "position")[:, 1].mean() < 1e-3


def test_a_viscous_block_falls_as_fast():
    """Nothing outside of a liquid holds it, however stiff it is."""
    solver = tank(
        box((0.3, 0.5, 0.3), (0.7, 0.8, 0.7)), lk.ViscosityMaterial(viscosity=1.0e4),
        precision="double",
    )  # fmt: skip
    solver.run(3)
    velocity = solver.read("Water", "velocity").mean(axis=0)
    np.testing.assert_allclose(velocity, [0.0, -9.81 / 8, 0.0], atol=1e-5)


def test_a_viscous_pool_stays_at_rest():
    solver = tank(box((-1, -1, -1), (2, 0.47, 2)), lk.ViscosityMaterial(viscosity=100.0))
    solver.run(18)  # at first its pressure is not known
    assert np.abs(solver.read("Water", "velocity")).max() < 1e-2


def test_small_scales_get_short_steps():
    """A pool of a centimetre rests at 24 frames a second, by steps that see its waves."""
    global H
    before, H = H, 1 / 1600
    try:
        solver = tank(
            box((-1, -1, -1), (2, 0.005, 2)), size=(0.01, 0.01, 0.01),
            substeps=1, adaptive_substeps=True,
        )  # fmt: skip
        solver.run(3)
    finally:
        H = before
    assert np.abs(solver.read("Water", "velocity")).max() < 1e-4


def test_a_step_that_is_too_long_is_told():
    solver = tank(box((-1, -1, -1), (2, 0.5, 2)), substeps=1, frames_per_second=5.0)
    solver.run(1)
    assert any("falls through" in text for text in solver.warnings)


@pytest.mark.parametrize("height", [0.75, 1.0])
def test_an_open_side_holds_nothing_back(height):
    """A jet leaves through an open top, on a border of Buckets or not, as fast as it came."""
    rock = box((0.1, 0.0, 0.1), (0.2, 0.1, 0.2))
    solver = tank(
        box((0.4, 0.3, 0.4), (0.6, 0.5, 0.6)), lk.Collider(input="rock"), inputs={"rock": rock},
        liquid={"velocity": (0.0, 4.0, 0.0)}, size=(1.0, height, 1.0), substeps=4,
        gravity=(0.0, 0.0, 0.0), boundary_upper=("wall", "open", "wall"),
    )  # fmt: skip
    while solver.object("Water").count() and solver.frame < 8:
        assert solver.read("Water", "velocity")[:, 1].min() > 3.9
        solver.run(1)
    assert solver.object("Water").count() == 0


def test_gravity_may_be_animated():
    """v = the integral of g, which grows from 0 to 10 m/s^2 in the frame."""
    pull = lk.Keyframes([(0.0, (0.0, 0.0, 0.0)), (1 / 24, (0.0, -10.0, 0.0))])
    solver = tank(drops([(0.5, 0.5, 0.5)]), gravity=pull, substeps=10)
    solver.run(1)
    fallen = solver.read("Water", "velocity")[0, 1]
    assert fallen == pytest.approx(-0.5 * 10.0 / 24, rel=0.11)  # each substep has its start's


@pytest.mark.parametrize("centre", [(0.5, 0.3, 0.5), (0.47, 0.31, 0.53), (0.47, 0.55, 0.53)])
def test_a_pool_rests_around_a_ball(centre):
    """Few particles are in the cells that it cuts: gaps are no air, and the surface is level."""
    solver = tank(
        box((-1, -1, -1), (2, 0.6, 2)), lk.Collider(input="ball"),
        inputs={"ball": ball(np.array(centre), 0.2)},
    )  # fmt: skip
    x = solver.read("Water", "position")
    assert np.linalg.norm(x - centre, axis=1).min() > 0.19  # the start is cut out, too
    for _ in range(12):
        solver.run(1)
        assert np.abs(solver.read("Water", "velocity")).max() < 0.05  # 2 % of sqrt(g H)


def test_a_source_inside_a_solid_gives_nothing_and_says_so():
    """Wherever Buckets begin, and though no field is measured where no liquid is."""
    for centre in ((0.5, 0.5, 0.5), (0.43, 0.52, 0.37)):
        inputs = {"nozzle": ball(np.array(centre), 0.15), "solid": ball(np.array(centre), 0.2)}
        solver = tank(
            None, lk.LiquidSource(source="nozzle"), lk.Collider(input="solid"), inputs=inputs
        )
        solver.run(1)
        assert solver.object("Water").count() == 0
        assert "all of the source is inside of Colliders" in solver.warnings[0]
