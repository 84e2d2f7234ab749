"""Volume Emission: what is stamped, added and blown out, and sources that give nothing."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.constraints.pressure import PressureMaterial
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError, LokiError, SetupError
from loki_core.keyframes import Keyframes
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.solver_setup import SolverSetup
from tests.skeleton.volume_scene import VolumeScene
from tests.unit.test_pressure import ball, block
from tests.unit.test_volume import H, cube

pytestmark = pytest.mark.compiles


def box(emission, source, *, air=None, **options):
    """16^3 voxels of still air with one source."""
    return VolumeScene(emission, inputs={"source": source}, air=air, sides="wall", **options)


def emission(**options):
    return VolumeEmission(name="burner", source="source", **options)


def test_a_stamp_sets_exactly_what_it_says_inside_the_source():
    scene = box(
        emission(density=0.6, temperature=400.0, velocity=(0.0, 2.0, 0.0)),
        cube((4, 5, 6), (9, 10, 11)),
    )
    for _ in range(3):
        scene.run(Stage.EMIT)
        density, temperature = scene.dense("density")[0], scene.dense("temperature")[0]
        u = scene.dense("velocity")
        # The stream's own density, 1, wins over the parameter.
        np.testing.assert_allclose(density[5:8, 6:9, 7:10], 1.0, rtol=1e-12)
        np.testing.assert_allclose(temperature[5:8, 6:9, 7:10], 400.0, rtol=1e-12)
        np.testing.assert_allclose(u[1][5:8, 6:9, 7:10], 2.0, rtol=1e-12)
        assert not np.any(density[:3]) and not np.any(density[10:])
        np.testing.assert_array_equal(temperature[12:], 293.15)
        assert not np.any(u[0]) and not np.any(u[2])


def test_parameters_stand_in_for_channels_that_a_mesh_lacks():
    scene = box(emission(density=0.6), block((0.5, 0.5, 0.5), (1.0, 1.25, 1.5)))
    scene.run(Stage.EMIT)
    density = scene.dense("density")[0]
    np.testing.assert_allclose(density[5:7, 5:9, 5:11], 0.6, rtol=1e-9)
    # The coverage falls from one to zero across a voxel: the volume is that of the mesh.
    np.testing.assert_allclose(density.sum() * H**3, 0.6 * 0.5 * 0.75 * 1.0, rtol=0.02)
    assert density.min() >= 0.0 and density.max() <= 0.6 + 1e-12


def test_none_leaves_a_material_alone():
    scene = box(emission(density=None, temperature=350.0), block((0.5,) * 3, (1.5,) * 3))
    scene.fill("density", np.full((1, 16, 16, 16), 0.25))
    scene.run(Stage.EMIT)
    np.testing.assert_array_equal(scene.dense("density"), 0.25)
    np.testing.assert_allclose(scene.dense("temperature")[0][6:10, 6:10, 6:10], 350.0)


def test_adding_is_a_rate():
    for steps in (1, 5):
        scene = box(
            emission(mode="add", density=3.0, temperature=100.0), block((0.5,) * 3, (1.5,) * 3)
        )
        for _ in range(steps):
            scene.run(Stage.EMIT, dt=0.2 / steps)
        inside = (slice(6, 10),) * 3
        np.testing.assert_allclose(scene.dense("density")[0][inside], 0.6, rtol=1e-9)
        np.testing.assert_allclose(scene.dense("temperature")[0][inside], 313.15, rtol=1e-9)


@pytest.mark.parametrize("source", ["mesh", "voxels"])
def test_a_flux_leaves_an_open_box_whole(source):
    """Gauss: what the source gives, Q, passes the surface of any box around it."""
    stream = ball((1.0, 1.0, 1.0), 0.3) if source == "mesh" else cube((6, 6, 6), (10, 10, 10))
    scene = VolumeScene(
        PressureMaterial(tolerance=1e-9),
        emission(mode="flux", flux=0.5),
        inputs={"source": stream},
        sides="open",
    )
    scene.run(Stage.EMIT)
    scene.run(Stage.SOLVE_PRESSURE)
    u = scene.dense("velocity")
    flux = 0.0
    for axis in range(3):
        sections = np.moveaxis(u[axis], axis, 0)
        inside = sections[:, 2:14, 2:14]
        flux += (inside[14].sum() - inside[2].sum()) * H * H
    np.testing.assert_allclose(flux, 0.5, rtol=1e-6)


def test_a_flux_fills_the_space_around_it_with_its_smoke():
    setup = SolverSetup(
        "flux",
        VolumeObject(name="air", voxel_size=H, padding=8),
        PressureMaterial(),
        emission(mode="flux", flux=0.6, temperature=400.0),
        precision="double",
        substeps=2,
    )
    solver = Solver(setup, {"source": ball((1.0, 1.0, 1.0), 0.25)})
    solver.run(12)  # 0.3 m^3 of smoke
    density = solver.read("air", "density")
    np.testing.assert_allclose(density.sum() * H**3, 0.6 * 0.5, rtol=0.2)
    assert density.max() <= 1.0 + 1e-9 and density.min() >= -1e-9


def test_a_flux_that_sucks_takes_gas_away():
    scene = VolumeScene(
        PressureMaterial(tolerance=1e-9),
        emission(mode="flux", flux=-0.5),
        inputs={"source": cube((6, 6, 6), (10, 10, 10))},
        sides="open",
    )
    scene.fill("density", np.full((1, 16, 16, 16), 0.25))
    scene.run(Stage.EMIT)
    scene.run(Stage.SOLVE_PRESSURE)
    u = scene.dense("velocity")
    assert u[0][3, 8, 8] > 0.0 and u[0][13, 8, 8] < 0.0
    np.testing.assert_allclose(scene.dense("density"), 0.25)  # sucking brings no smoke


def test_a_flux_in_a_closed_box_does_not_blow_up():
    scene = VolumeScene(
        PressureMaterial(tolerance=1e-9),
        emission(mode="flux", flux=0.5),
        inputs={"source": cube((6, 6, 6), (10, 10, 10))},
        sides="wall",
    )
    for _ in range(3):
        scene.run(Stage.UPDATE_BOUNDARIES)
        scene.run(Stage.EMIT)
        scene.run(Stage.SOLVE_PRESSURE)
    u = scene.dense("velocity")
    assert np.isfinite(u).all() and np.abs(u).max() < 10.0


def test_the_motion_of_a_source_is_handed_on():
    def at(frame):
        return ball((0.8 + 0.02 * frame, 1.0, 1.0), 0.3)

    setup = SolverSetup(
        "moving",
        VolumeObject(name="air", voxel_size=H, region="box", velocity_scheme="none"),
        emission(inherit_velocity=0.5),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        precision="double",
    )
    solver = Solver(setup, {"source": at})
    solver.run(2)
    u = solver.outputs()["air"].to_dense("velocity")
    # 0.02 m a frame at 24 frames a second is 0.48 m/s, of which half is handed on.
    np.testing.assert_allclose(u[0][6:9, 7:9, 7:9], 0.24, rtol=1e-6)
    assert np.abs(u[1:]).max() < 1e-9


def test_a_moving_source_leaves_a_trail_and_takes_buckets_along():
    def at(frame):
        return ball((0.5 + 0.5 * frame, 1.0, 1.0), 0.3)

    setup = SolverSetup(
        "trail",
        VolumeObject(name="air", voxel_size=H, padding=8, velocity_scheme="none"),
        emission(),
    )
    solver = Solver(setup, {"source": at})
    solver.run(6)
    smoke = solver.outputs()["air"]
    density = smoke.to_dense("density")[0]
    corner = smoke.origin + smoke.first_voxel() * H
    for x in np.arange(1.0, 4.0, 0.5) + 0.5:
        i, j, k = np.floor((np.array([x, 1.0, 1.0]) - corner) / H).astype(int)
        np.testing.assert_allclose(density[i, j, k], 1.0, rtol=1e-5)


def test_a_source_across_a_periodic_side_emits_on_both_ends():
    setup = SolverSetup(
        "round",
        VolumeObject(name="air", voxel_size=H, region="box"),
        emission(),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        boundary_lower=("periodic",) * 3,
        boundary_upper=("periodic",) * 3,
        precision="double",
    )
    solver = Solver(setup, {"source": block((-0.25, 0.5, 0.5), (0.25, 1.5, 1.5))})
    solver.run(1)
    density = solver.outputs()["air"].to_dense("density")[0]
    np.testing.assert_allclose(density[0, 6:10, 6:10], 1.0)
    np.testing.assert_allclose(density[15, 6:10, 6:10], 1.0)
    np.testing.assert_allclose(density.sum() * H**3, 0.5, rtol=0.02)


def test_what_a_source_stamps_on_faces_does_not_depend_on_how_buckets_are_grouped(monkeypatch):
    # A source that ends where a Bucket does: its last faces belong to the next Bucket, whose cells
    # it does not cover. On other ranks Buckets come in other groups.
    from loki_core.objects.gas import volume_input

    ends = []
    for group in (1, 256):
        monkeypatch.setattr(volume_input, "BUCKETS_AT_ONCE", group)
        scene = box(emission(velocity=(1.0, 2.0, 3.0)), cube((0, 0, 0), (8, 8, 8)))
        scene.run(Stage.EMIT)
        ends.append(scene.dense("velocity"))
    np.testing.assert_array_equal(*ends)


def test_strength_follows_its_keyframes():
    setup = SolverSetup(
        "fading",
        VolumeObject(name="air", voxel_size=H, region="box", velocity_scheme="none"),
        emission(strength=Keyframes([(1, 1.0), (3, 0.0)], time_unit="frame"), mode="add"),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        precision="double",
    )
    solver = Solver(setup, {"source": block((0.5,) * 3, (1.5,) * 3)})
    sums = []
    for _ in range(4):
        solver.run(1)
        sums.append(float(solver.read("air", "density").sum()))
    gains = np.diff([0.0, *sums])
    assert gains[0] > gains[1] > 0.0
    np.testing.assert_allclose(gains[2:], 0.0, atol=1e-12)


# -- nothing ----------------------------------------------------------------------------------


def empty_mesh():
    return Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), int))


def empty_voxels():
    voxels = Voxels(np.empty((0, 3), int), H)
    voxels.set_channel("density", np.empty((0, 8, 8, 8)))
    return voxels


NOTHING = {
    "empty mesh": (empty_mesh(), {}),
    "empty voxels": (empty_voxels(), {}),
    "no strength": (ball((1.0, 1.0, 1.0), 0.3), {"strength": 0.0}),
    "outside": (ball((40.0, 1.0, 1.0), 0.3), {}),
    "outside flux": (ball((-40.0, 1.0, 1.0), 0.3), {"mode": "flux", "flux": 1.0}),
}


@pytest.mark.parametrize("region", ["box", "sparse"])
@pytest.mark.parametrize("case", NOTHING)
def test_sources_of_nothing_do_nothing(case, region):
    source, options = NOTHING[case]
    setup = SolverSetup(
        "nothing",
        VolumeObject(name="air", voxel_size=H, region=region),
        PressureMaterial(),
        emission(**options),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
    )
    solver = Solver(setup, {"source": source})
    solver.run(2)
    assert not np.any(solver.read("air", "density"))
    assert not np.any(solver.read("air", "velocity"))
    assert len(solver.read("air", "density")) == (8 if region == "box" else 0)


def test_a_missing_source_makes_the_behavior_inactive():
    setup = SolverSetup("idle", VolumeObject(name="air", voxel_size=H), emission())
    solver = Solver(setup)
    assert [one.path for one in solver.inactive] == ["burner"]
    solver.run(1)


def test_a_source_that_is_not_named_is_inactive_or_refused():
    setup = SolverSetup("idle", VolumeObject(name="air", voxel_size=H), VolumeEmission(name="e"))
    try:
        solver = Solver(setup)
    except LokiError as error:
        assert "source" in str(error)
    else:
        solver.run(1)
        assert not len(solver.read("air", "density"))


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channel", ["density", "velocity"])
def test_streams_that_are_not_finite_are_refused_by_name(value, channel):
    density = np.zeros((8, 8, 8))
    density[3, 4, 5] = 1.0
    source = Voxels.from_dense(density, (0.0, 0.0, 0.0), H)
    if channel == "velocity":
        source.set_channel("velocity", np.zeros((1, 3, 8, 8, 8)))
    source.channel(channel).values[0, 0, 3, 4, 5] = value
    setup = SolverSetup("bad", VolumeObject(name="air", voxel_size=H), emission())
    with pytest.raises(InputError, match=f'input "source" channel "{channel}".*finite'):
        Solver(setup, {"source": source})


def test_a_stream_that_turns_bad_later_is_refused_then():
    def at(frame):
        source = cube((1, 1, 1), (4, 4, 4))
        if frame == 3:
            source.channel("density").values[0, 0, 2, 2, 2] = np.nan
        return source

    setup = SolverSetup("bad", VolumeObject(name="air", voxel_size=H), emission())
    solver = Solver(setup, {"source": at})
    solver.run(1)
    with pytest.raises(InputError, match="nan"):
        solver.run(1)


def test_a_mesh_that_is_not_finite_is_refused():
    mesh = ball((1.0, 1.0, 1.0), 0.3)
    mesh.positions[3, 1] = np.nan
    setup = SolverSetup("bad", VolumeObject(name="air", voxel_size=H), emission())
    with pytest.raises(InputError, match="source"):
        Solver(setup, {"source": mesh})


@pytest.mark.parametrize(
    "options",
    [
        {"density": np.nan},
        {"temperature": np.inf},
        {"velocity": (0.0, np.nan, 0.0)},
        {"flux": np.inf, "mode": "flux"},
        {"strength": 1.5},
        {"strength": -0.1},
        {"mode": "spray"},
    ],
)
def test_impossible_parameters_are_refused(options):
    with pytest.raises(SetupError, match=next(iter(options))):
        emission(**options)


def test_voxels_that_do_not_say_where_are_refused():
    source = Voxels([[0, 0, 0]], H)
    source.set_channel("soot", np.ones((1, 8, 8, 8)))
    setup = SolverSetup("bad", VolumeObject(name="air", voxel_size=H), emission())
    solver = Solver(setup, {"source": source})
    with pytest.raises(InputError, match='neither a "mask" nor a "density"'):
        solver.run(1)


def test_points_are_no_source():
    setup = SolverSetup("bad", VolumeObject(name="air", voxel_size=H), emission())
    with pytest.raises(LokiError, match=r"(?i)source|points"):
        Solver(setup, {"source": Points(np.ones((5, 3)))}).run(1)


def test_values_that_overflow_single_precision_are_an_error_or_finite():
    setup = SolverSetup(
        "huge",
        VolumeObject(name="air", voxel_size=H),
        emission(density=1e39),
    )
    solver = Solver(setup, {"source": ball((1.0, 1.0, 1.0), 0.3)})
    with pytest.raises(LokiError, match=r"material|density"):
        solver.run(1)


def test_a_negative_temperature_is_refused_or_bounded():
    # Heat that is taken away for ever must not make the buoyancy divide by nothing.
    from loki_core.forces.buoyancy import BuoyancyForce

    setup = SolverSetup(
        "cold",
        VolumeObject(name="air", voxel_size=H),
        PressureMaterial(),
        BuoyancyForce(),
        emission(mode="add", temperature=-4000.0),
    )
    solver = Solver(setup, {"source": ball((1.0, 1.0, 1.0), 0.3)})
    try:
        solver.run(6)
    except LokiError as error:
        assert "air" in str(error)
    else:
        assert np.isfinite(solver.read("air", "velocity")).all()
        assert np.abs(solver.read("air", "velocity")).max() < 1e4
