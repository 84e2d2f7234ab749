"""Liquids where a scene is hard: nothing comes, all goes, bad numbers; volume is accounted for."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import DivergenceError, InputError, SetupError
from tests.unit.test_hybrid import H, ball, box, drops, jet, tank

PARTICLE = H**3 / 8  # m^3
NOTHING = lk.Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))
SHEET = lk.Surface.from_faces(
    np.array([[0.2, 0.5, 0.2], [0.2, 0.5, 0.8], [0.8, 0.5, 0.8], [0.8, 0.5, 0.2]]),
    np.array([[0, 1, 2, 3]]),
)


def account(solver):
    """Where the volume is; it closes, and the state is one that can go on."""
    found = solver.accounts()["Water"]
    assert found["missing"] == 0.0
    assert found["volume"] == pytest.approx(solver.object("Water").count() * PARTICLE)
    for name in ("position", "velocity"):
        assert np.isfinite(solver.read("Water", name)).all()
    return found


# -- nothing, or hardly anything -------------------------------------------------------------


@pytest.mark.parametrize(
    ("nozzle", "told"),
    [
        (NOTHING, None),
        (box((2, 2, 2), (3, 3, 3)), "not one place"),
        (box((0.5, 0.5, 0.5), (0.501, 0.501, 0.501)), "at least a voxel wide"),
        (SHEET, "has holes"),
    ],
    ids=["no faces", "outside of the box", "smaller than a voxel", "a sheet"],
)
def test_a_source_that_holds_no_place_gives_nothing_and_says_why(nozzle, told):
    solver = tank(None, jet(), inputs={"nozzle": nozzle})
    solver.run(2)
    assert account(solver)["emitted"] == 0.0
    assert (told is None and not solver.warnings) or told in solver.warnings[0]
    assert len(solver.warnings) <= 1


def test_a_source_in_a_solid_emits_nothing():
    inputs = {"nozzle": box((0.3, 0.3, 0.3), (0.5, 0.5, 0.5)), "rock": ball((0.4, 0.4, 0.4), 0.3)}
    solver = tank(None, jet(), lk.Collider(input="rock"), inputs=inputs)
    solver.run(2)
    assert account(solver)["emitted"] == 0.0


@pytest.mark.parametrize("size", [H, 2 * H])
def test_a_box_of_one_and_two_voxels(size):
    solver = tank(box((0, 0, 0), (1, 0.75 * size, 1)), jet(), size=(size,) * 3,
                  inputs={"nozzle": box((0, 0, 0), (1, 1, 1))})  # fmt: skip
    solver.run(3)
    full = round(size / H) ** 3 * 8
    assert solver.object("Water").count() == full
    assert account(solver)["emitted"] > 0.0


@pytest.mark.parametrize("walls", ["wall", "open"])
def test_particles_on_faces_and_walls(walls):
    axis = np.arange(0, 17) * H
    places = np.stack(np.meshgrid(axis, axis[:5], axis, indexing="ij"), axis=-1).reshape(-1, 3)
    solver = tank(drops(places), walls=walls)
    solver.run(3)
    found = account(solver)
    assert found["start"] == pytest.approx(len(places) * PARTICLE)
    if walls == "wall":
        assert found["left"] == 0.0
        position = solver.read("Water", "position")
        assert position.min() > 0.0 and position.max() < 1.0


def test_points_outside_of_the_box_are_left_out_and_told():
    places = [[0.5, 0.5, 0.5], [1.0 + 0.5 * H, 0.5, 0.5], [1.5, 0.5, 0.5], [0.5, -1e14, 0.5]]
    solver = tank(drops(places, tag=np.arange(4)))
    solver.run(1)
    assert solver.read("Water", "tag").tolist() == [0, 1]  # the second is on the wall
    assert "2 of 4 points" in solver.warnings[0]
    account(solver)


def test_all_particles_in_one_place():
    solver = tank(drops(np.full((500, 3), 0.5)))
    solver.run(4)
    assert account(solver)["volume"] == pytest.approx(500 * PARTICLE)


# -- sources ---------------------------------------------------------------------------------


def test_two_sources_that_overlap_do_not_fill_a_place_twice():
    inputs = {
        "nozzle": box((0.25, 0.25, 0.25), (0.5, 0.5, 0.5)),
        "other": box((0.25, 0.25, 0.25), (0.75, 0.5, 0.5)),
    }
    still = {"velocity": (0.0, 0.0, 0.0)}
    solver = tank(
        None,
        lk.LiquidSource(source="nozzle", name="One", **still),
        lk.LiquidSource(source="other", name="Two", **still),
        inputs=inputs,
        gravity=(0.0, 0.0, 0.0),
    )
    solver.run(2)
    assert account(solver)["volume"] == pytest.approx(0.5 * 0.25**2)


@pytest.mark.parametrize("flux", [0.0, 1e12])
def test_a_flux_of_any_size(flux):
    nozzle = box((0.25, 0.25, 0.25), (0.5, 0.5, 0.5))
    solver = tank(None, jet(flux=flux), inputs={"nozzle": nozzle})
    solver.run(2)
    assert (account(solver)["emitted"] > 0.0) == (flux > 0.0)
    assert account(solver)["emitted"] < 4 * 0.25**3


def test_a_fast_jet_has_short_steps_from_the_first():
    source = lk.LiquidSource(source="nozzle", velocity=(50.0, 0.0, 0.0))
    nozzle = box((0.0, 0.25, 0.25), (0.25, 0.5, 0.5))
    solver = tank(
        None, source, inputs={"nozzle": nozzle}, size=(4.0, 1.0, 1.0), gravity=(0.0, 0.0, 0.0),
        frames_per_second=240.0, substeps=1, adaptive_substeps=True, courant_number=1.0,
    )  # fmt: skip
    solver.run(1)
    assert solver.timeline.substep >= 3  # of at most a voxel
    expected = 0.25**3 + 50.0 * 0.25**2 / 240.0  # full, and what has flowed out
    assert account(solver)["emitted"] == pytest.approx(expected, rel=0.2)


def test_a_source_that_moves_and_vanishes():
    def nozzle(frame):
        return (
            box((0.05 * frame, 0.4, 0.4), (0.2 + 0.05 * frame, 0.6, 0.6)) if frame < 4 else NOTHING
        )

    solver = tank(None, jet(), inputs={"nozzle": nozzle})
    solver.run(3)
    given = account(solver)["emitted"]
    solver.run(2)
    assert account(solver)["emitted"] == given > 0.0


def test_a_capacity_stops_a_source_with_a_warning():
    nozzle = box((0.25, 0.25, 0.25), (0.5, 0.5, 0.5))
    solver = tank(None, jet(capacity=300), inputs={"nozzle": nozzle})
    solver.run(4)
    assert solver.object("Water").count() == 300
    assert sum("300 particles, its capacity" in text for text in solver.warnings) == 1
    account(solver)


def test_a_sheet_is_a_source_as_a_shell():
    source = lk.LiquidSource(source="nozzle", mode="shell", normal_velocity=1.0)
    solver = tank(None, source, inputs={"nozzle": SHEET}, gravity=(0.0, 0.0, 0.0))
    solver.run(1)
    assert account(solver)["emitted"] > 0.36 * H * 0.9
    assert abs(solver.read("Water", "velocity")[:, 1].mean()) == pytest.approx(1.0, rel=0.05)


def test_a_shell_may_get_thicker_than_a_bucket():
    """Its thickness is animated; a place that has a particle is not filled again."""
    source = lk.LiquidSource(
        source="nozzle", mode="shell", thickness=lk.Keyframes([(0.0, 0.1), (0.1, 1.2)])
    )
    solver = tank(
        None, source, inputs={"nozzle": SHEET}, gravity=(0.0, 0.0, 0.0), size=(1.0, 2.0, 1.0)
    )
    solver.run(1)
    few = account(solver)["emitted"]
    solver.run(3)
    full = account(solver)["emitted"]
    assert full > 4 * few
    solver.run(2)
    assert account(solver)["emitted"] == pytest.approx(full, rel=0.01)


# -- all of it goes --------------------------------------------------------------------------


def test_a_sink_larger_than_the_box_takes_all():
    solver = tank(
        box((0, 0, 0), (1, 0.25, 1)), lk.LiquidSink(source="drain"),
        inputs={"drain": box((-5, -5, -5), (5, 5, 5))},
    )  # fmt: skip
    solver.run(2)
    found = account(solver)
    assert found["volume"] == 0.0 and found["drained"] == found["start"] > 0.0


def test_a_sink_around_the_scene_ends_a_fall():
    setup = lk.SolverSetup(
        "abyss",
        lk.HybridObject(name="Water", voxel_size=H, input="water"),
        lk.GravityForce(),
        lk.PressureMaterial(),
        lk.LiquidSink(source="scene", side="outside"),
    )
    inputs = {"water": ball((0.5, 0.5, 0.5), 0.2), "scene": box((0, 0, 0), (1, 1, 1))}
    solver = lk.Solver(setup, inputs)
    solver.run(12)
    found = account(solver)
    assert found["volume"] == 0.0 and found["drained"] == found["start"] > 0.0


def test_what_goes_to_infinity_has_left():
    setup = lk.SolverSetup(
        "space",
        lk.HybridObject(name="Water", voxel_size=H, input="water"),
        lk.PressureMaterial(),
        substeps=1,
    )
    velocity = [[0.0, 0.0, 0.0], [9.0e4, 0.0, 0.0]]
    places = [[0.5, 0.5, 0.5], [1.25e5, 0.5, 0.5]]  # the origin is between them
    solver = lk.Solver(setup, {"water": drops(places, velocity=velocity)})
    solver.run(6)
    found = account(solver)
    assert found["left"] == found["volume"] == pytest.approx(PARTICLE)


def test_what_leaves_through_open_sides_is_counted():
    solver = tank(box((0.3, 0.1, 0.3), (0.7, 0.5, 0.7)), walls="open")
    solver.run(12)
    found = account(solver)
    assert found["left"] > 0.0 and found["left"] + found["volume"] == pytest.approx(found["start"])


def test_an_expression_kills_what_is_low_or_old():
    solver = tank(
        drops([[0.2, 0.8, 0.2], [0.8, 0.2, 0.8]], heat=[1.0, 2.0]),
        lk.ParticleExpression(
            expression="if position[1] < 0.1 or age > 0.2:\n    alive = False",
            stage="SUBSTEP_END",
        ),
    )
    solver.run(4)
    assert solver.read("Water", "heat").tolist() == [1.0]
    solver.run(2)
    assert account(solver)["killed"] == pytest.approx(2 * PARTICLE)


def test_a_lid_that_closes_the_box():
    """What is left of the box is less than the water; it cannot flow anywhere."""
    solver = tank(
        box((0, 0, 0), (1, 0.5, 1)), lk.Collider(input="lid"),
        inputs={"lid": lambda frame: box((-1, 1.2 - 0.3 * frame, -1), (2, 3, 2))}, substeps=4,
    )  # fmt: skip
    solver.run(4)
    found = account(solver)
    assert found["volume"] == found["start"] and found["left"] == 0.0


def test_a_solid_that_moves_over_all_of_it():
    def block(frame):
        return box((-1.2 + 0.4 * frame, -0.5, -0.5), (-0.1 + 0.4 * frame, 1.5, 1.5))

    solver = tank(
        box((0.3, 0.0, 0.3), (0.7, 0.4, 0.7)), lk.Collider(input="block"), inputs={"block": block}
    )
    solver.run(5)
    found = account(solver)
    assert found["volume"] == found["start"]


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_solid_of_a_hundred_metres_a_second(adaptive):
    def bullet(frame):
        return ball((-4.0 + 100.0 / 24.0 * (frame - 1), 0.2, 0.5), 0.15)

    solver = tank(
        box((0, 0, 0), (1, 0.25, 1)), lk.Collider(input="bullet"), inputs={"bullet": bullet},
        adaptive_substeps=adaptive, max_substeps=12,
    )  # fmt: skip
    solver.run(2)
    found = account(solver)
    assert found["volume"] == found["start"]
    assert np.abs(solver.read("Water", "velocity")).max() < 200.0


# -- what users write to particles -----------------------------------------------------------


def moved(stage, code="position = position + vec3(0.7, 0.0, 0.0)", **settings):
    expression = lk.ParticleExpression(expression=code, stage=stage)
    return tank(box((0.1, 0.1, 0.1), (0.4, 0.4, 0.4)), expression, **settings)


@pytest.mark.parametrize("stage", ["SUBSTEP_BEGIN", "SUBSTEP_END"])
@pytest.mark.parametrize("walls", ["wall", "open"])
def test_an_expression_moves_particles_anywhere(stage, walls):
    solver = moved(stage, walls=walls)
    solver.run(2)
    found = account(solver)
    assert found["left"] == (0.0 if walls == "wall" else found["start"])
    position = solver.read("Water", "position")
    assert np.all(position[:, 0] > 0.8) and position.max(initial=0.0) < 1.0


def test_particles_that_are_sorted_are_not_moved():
    with pytest.raises(SetupError, match=r"moves particles of Water at PRE_SOLVE.*SUBSTEP_END"):
        moved("PRE_SOLVE")


@pytest.mark.parametrize("stage", ["PRE_SOLVE", "SUBSTEP_END"])
def test_velocities_that_an_expression_spoils_are_told(stage):
    solver = moved(stage, "velocity = velocity / 0.0")
    with pytest.raises(DivergenceError, match=r"expression: velocity of particle id \d+ of Water"):
        solver.run(2)


# -- numbers that cannot be ------------------------------------------------------------------


def bad(name, row, value, width=3):
    values = np.zeros((5, width)) if width > 1 else np.zeros(5)
    values[row] = value
    return drops(np.full((5, 3), 0.5), **{name: values})


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (bad("velocity", 3, np.nan), r'Water: input "water": velocity\[3\] = \[nan.*finite'),
        (bad("velocity", 2, np.inf), r'Water: input "water": velocity\[2\] = \[inf.*finite'),
        (bad("velocity", 1, 1e20), r"velocity\[1\].*at most maximum_speed = 100000 m/s"),
        (bad("velocity", 1, 1.0, width=1), r"velocity has 1 numbers an element; expected 3"),
        (bad("heat", 4, np.nan, width=1), r"heat\[4\] = nan.*finite"),
        (drops([[0.5, 0.5, 0.5], [0.5, np.nan, 0.5]]), r'"water".positions\[1\].*nan.*finite'),
        (drops([[0.5, 0.5, 0.5], [np.inf, 0.5, 0.5]]), r'"water".positions\[1\].*inf.*finite'),
    ],
)
def test_bad_numbers_are_named(points, message):
    with pytest.raises(InputError, match=message):
        tank(points)


def test_points_are_no_source():
    solver = tank(None, jet(), inputs={"nozzle": drops([[0.5, 0.5, 0.5]])})
    with pytest.raises(InputError, match=r'source "nozzle" is a Points; a closed mesh'):
        solver.run(1)


def test_an_account_is_part_of_the_state():
    """A run that goes on from a state does what it would have done, flux and mixing included."""
    nozzle = box((0.25, 0.25, 0.25), (0.5, 0.5, 0.5))
    nozzle.set_channel("point", "Cd", nozzle.positions)
    whole, other = (
        tank(
            None, jet(channels=("Cd",), flux=0.1, capacity=600),
            lk.ChannelMixing(channels=("Cd",), diffusivity=0.01), inputs={"nozzle": nozzle},
        )
        for _ in range(2)
    )  # fmt: skip
    whole.run(2)
    other.restore(whole.state())
    assert other.accounts() == whole.accounts()
    whole.run(2)
    other.run(2)
    assert other.accounts() == whole.accounts()
    np.testing.assert_array_equal(other.read("Water", "Cd"), whole.read("Water", "Cd"))
    np.testing.assert_array_equal(other.read("Water", "position"), whole.read("Water", "position"))


def test_an_account_is_shown(tmp_path):
    from click.testing import CliRunner

    from loki_vfx.bridges.standalone.inspect_command import command
    from loki_vfx.serialization.frame_cache import FrameCacheWriter, Manifest

    solver = tank(box((0.3, 0.1, 0.3), (0.7, 0.5, 0.7)), walls="open")
    with FrameCacheWriter(
        tmp_path / "cache", Manifest(setup={}, setup_hash="", fps=24.0)
    ) as writer:
        solver.run(8)
        statistics = {"liquids": solver.accounts()}
        writer.write_frame(9, solver.outputs(), statistics=statistics)
    told = CliRunner().invoke(command, [str(tmp_path / "cache")]).output
    left = solver.accounts()["Water"]["left"]
    assert left > 0.0 and f"left{left:>32.6g} m^3" in told
