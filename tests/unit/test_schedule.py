"""The schedule: Stages in order, canonical Tasks, conflicts that name both sides."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from loki_core.behavior import isolated_registry
from loki_core.data.accessors import Declaration
from loki_core.data.grid_domain import GridDomain
from loki_core.data.particle_system import ParticleSystem
from loki_core.data.points import Points
from loki_core.errors import ScheduleError
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.force_density_field import ForceDensityField
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.pipeline.schedule import build_schedule
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import (
    NEWTON,
    SUBSTEP_AFTER_NEWTON,
    SUBSTEP_BEFORE_NEWTON,
    USER_STAGES,
    Stage,
)
from loki_core.pipeline.task import Task, TaskOwner, task
from loki_core.solver_setup import Group, SolverSetup

# -- Stages --------------------------------------------------------------------------------


def test_stages_are_distinct_ordered_and_explained():
    stages = list(Stage)
    assert [stage.order for stage in stages] == list(range(len(stages)))
    assert all(
        stage.doc and stage.loop in ("setup", "frame", "substep", "newton") for stage in stages
    )
    assert len({stage.doc for stage in stages}) == len(stages)


def test_user_facing_stages_are_those_of_the_design():
    assert USER_STAGES == (
        "INGEST",
        "FRAME_BEGIN",
        "SUBSTEP_BEGIN",
        "GROUP_ENTER",
        "PRE_SOLVE",
        "UPDATE_SOLIDS",
        "UPDATE_FLUIDS",
        "ADVECT",
        "GROUP_EXIT",
        "SUBSTEP_END",
        "FRAME_END",
    )
    assert not Stage.EVALUATE_FORCES.user_facing


def test_a_substep_is_made_of_all_its_stages_in_order():
    parts = [*SUBSTEP_BEFORE_NEWTON, *NEWTON, *SUBSTEP_AFTER_NEWTON]
    assert parts == [stage for stage in Stage if stage.loop in ("substep", "newton")]


# -- conflicts -----------------------------------------------------------------------------


class Owner(TaskOwner):
    """One Task at one Stage with a given declaration."""

    def __init__(self, path, particles, stage=Stage.MOVE_PARTICLES, **declared):
        self.path, self.particles, self.stage = path, particles, stage
        self.declared = Declaration(**declared)

    @property
    def data(self):
        return {"particles": self.particles}

    def tasks(self):
        yield Task("work", self.stage, self.declared, lambda access, step: None, "")


@pytest.fixture
def particles():
    return ParticleSystem(GridDomain(1.0), name="Dust")


X = ("particles.position",)


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        ({"reads": X}, {"reads": X}, False),
        ({"accumulates": X}, {"accumulates": X}, False),
        ({"writes": X}, {"reads": X}, True),
        ({"writes": X}, {"writes": X}, True),
        ({"writes": X}, {"accumulates": X}, True),
        ({"reads": X}, {"accumulates": X}, True),
        ({"reads": X, "accumulates": X}, {"accumulates": X}, True),
        ({"layout": ("particles",)}, {"reads": X}, True),
        ({"layout": ("particles",)}, {"layout": ("particles",)}, True),
        ({"writes": X}, {"reads": ("particles.id",)}, False),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_conflicts_of_one_stage(particles, one, other, conflict, swapped):
    if swapped:
        one, other = other, one
    owners = [Owner("Dust/Wind", particles, **one), Owner("Dust/Heat", particles, **other)]
    if not conflict:
        build_schedule([("Dust", [], owners)])
        return
    with pytest.raises(ScheduleError) as raised:
        build_schedule([("Dust", [], owners)])
    text = str(raised.value)
    assert "Dust/Wind.work" in text and "Dust/Heat.work" in text and "MOVE_PARTICLES" in text


def test_conflicts_are_found_over_groups_and_kinds(particles):
    writer, reader = Owner("A/One", particles, writes=X), Owner("B/Two", particles, reads=X)
    with pytest.raises(ScheduleError, match=r"A/One.work and B/Two.work"):
        build_schedule([("A", [writer], []), ("B", [], [reader])])


def test_other_data_and_other_stages_do_not_conflict(particles):
    other = ParticleSystem(GridDomain(1.0), name="Other")
    owners = [
        Owner("One", particles, writes=X),
        Owner("Two", other, writes=X),
        Owner("Three", particles, Stage.ADVECT_VOLUMES, writes=X),
    ]
    schedule = build_schedule([("", [], owners)])
    assert [s.label for s in schedule[Stage.MOVE_PARTICLES]] == ["One.work", "Two.work"]


def test_data_that_the_owner_does_not_have_are_refused(particles):
    with pytest.raises(ScheduleError, match=r'"cloth.position" names data that its owner does not'):
        build_schedule([("", [], [Owner("One", particles, reads=("cloth.position",))])])


def test_two_expressions_that_write_one_channel_are_told_to_move():
    setup = SolverSetup(
        "s",
        ParticleObject(input="p"),
        ParticleExpression(expression="heat = 1.0", new_channels=("heat",), name="warm"),
        ParticleExpression(expression="heat = 2.0", new_channels=("heat",), name="hot"),
    )
    with pytest.raises(ScheduleError, match=r"hot.run and warm.run.*another user-facing Stage"):
        Solver(setup, {"p": Points(np.zeros((1, 3)))})


# -- canonical order -----------------------------------------------------------------------


def test_owners_are_ordered_by_class_and_path(particles):
    class Zebra(Owner):
        pass

    class Ant(Owner):
        pass

    names = [Zebra("A", particles), Ant("B", particles), Ant("A", particles), Zebra("B", particles)]
    seen = set()
    for order in itertools.permutations(names):
        schedule = build_schedule([("", [], order)])
        seen.add(
            tuple((type(s.owner).__name__, s.owner.path) for s in schedule[Stage.MOVE_PARTICLES])
        )
    assert seen == {(("Ant", "A"), ("Ant", "B"), ("Zebra", "A"), ("Zebra", "B"))}


def test_objects_come_before_actions(particles):
    schedule = build_schedule([("", [Owner("Z", particles)], [Owner("A", particles)])])
    assert [s.owner.path for s in schedule[Stage.MOVE_PARTICLES]] == ["Z", "A"]
    assert [s.kind for s in schedule[Stage.MOVE_PARTICLES]] == ["object", "action"]


def siblings():
    """Forces whose sum depends on the order in single precision."""
    inner = (
        ParticleObject(input="other", name="more"),
        ForceDensityField(value=(3.3e6, 1.0, 0.0)),
        ForceDensityField(value=(-3.3e6, 0.7, 0.1)),
    )
    return [
        ParticleObject(input="p", name="dust"),
        GravityForce(),
        ForceDensityField(value=(1.0e7, 0.1, 0.3)),
        ForceDensityField(value=(-1.0e7, 0.2, 0.4)),
        ForceDensityField(value=(0.123, 0.3, 0.7), per="volume"),
        FluidDragForce(law="stokes", velocity=(1.0, 0.0, 0.0)),
        ParticleExpression(expression="heat = heat + dt * velocity[0]", new_channels=("heat",)),
    ], inner


def run_shuffled(rng):
    children, inner = siblings()
    if rng is not None:
        children = [children[i] for i in rng.permutation(len(children))]
        inner = [inner[i] for i in rng.permutation(len(inner))]
        children.insert(int(rng.integers(len(children))), Group("inner", *inner))
    else:
        children.append(Group("inner", *inner))
    points = np.random.default_rng(1).random((100, 3))
    solver = Solver(
        SolverSetup("s", *children, substeps=2, bucket_size=0.3),
        {"p": Points(points), "other": Points(points + 0.1)},
    )
    solver.run(3)
    tasks = [s.label for stage in Stage for s in solver.schedule[stage]]
    state = {path: solver.read(path, "position") for path in ("dust", "inner/more")}
    return tasks, state, solver.read("dust", "heat")


def test_reordered_siblings_change_nothing_bit_for_bit():
    tasks, state, heat = run_shuffled(None)
    assert np.all(heat != 0.0)
    for seed in range(3):
        other_tasks, other_state, other_heat = run_shuffled(np.random.default_rng(seed))
        assert other_tasks == tasks
        for path in state:
            np.testing.assert_array_equal(other_state[path], state[path], err_msg=path)
        np.testing.assert_array_equal(other_heat, heat)


def test_tasks_are_found_by_their_mark_and_say_what_they_do(particles):
    class Worker(TaskOwner):
        path = "W"

        @task(Stage.ADVECT, reads=X)
        def second(self, access, step):
            """Do the second thing."""

        @task(Stage.ADVECT, reads=X)
        def first(self, access, step):
            """Do the first thing.

            At length.
            """

    found = list(Worker().tasks())
    assert [one.name for one in found] == ["first", "second"]
    assert found[0].doc == "Do the first thing."


def test_a_behavior_of_ones_own_is_scheduled_next_to_the_built_in_ones():
    with isolated_registry():
        from loki_core.behavior import Behavior, parameter
        from loki_core.forces.force import Force

        class LiftForce(Behavior, kind="force"):
            strength: float = parameter(1.0, unit="N", doc="Upwards.")

        class LiftAction(Force, behavior=LiftForce):
            def evaluate(self, points, force, jacobian):
                force[:, 1] += self.settings.strength

        solver = Solver(
            SolverSetup("s", ParticleObject(input="p"), GravityForce(), LiftForce()),
            {"p": Points(np.zeros((1, 3)))},
        )
        labels = [s.label for s in solver.schedule[Stage.EVALUATE_FORCES]]
        assert labels == ["GravityForce.accumulate", "LiftForce.accumulate"]
