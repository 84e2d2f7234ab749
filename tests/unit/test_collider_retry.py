"""Colliders in substeps that are undone: any number of times, and with the same end."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.behavior import isolated_registry
from loki_core.errors import DivergenceError
from tests.mpi.scripts.collider_scene import define_air, make_solver

pytestmark = pytest.mark.compiles

PATHS = ("Room/air", "Room/ball", "Room/bowl")


@pytest.fixture
def air():
    with isolated_registry():
        yield define_air()


def assert_same(one, other):
    for path in PATHS:
        a, b = one.object(path).volume, other.object(path).volume
        np.testing.assert_array_equal(a.buckets.local_coords, b.buckets.local_coords)
        for name in a.channels:
            np.testing.assert_array_equal(a.local(name), b.local(name), err_msg=name)


def test_a_substep_that_fails_twice_is_halved_twice(air):
    solver = make_solver(air, wanders=False, substeps=2)
    failures = [1, 2]

    def fail(solver, step):
        if failures:
            raise DivergenceError(f"failure {failures.pop()}")

    solver.observe("PRE_SOLVE", fail)
    solver.run(1)
    assert solver.timeline.retried == 2
    # What is left is what so many short substeps do at once.
    short = make_solver(air, wanders=False, substeps=8)
    short.run(1)
    assert_same(solver, short)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_state_is_the_same_after_it_was_taken_back(air, times):
    solver, straight = make_solver(air), make_solver(air)
    for one in (solver, straight):
        one.run(1)
    for _ in range(times):
        solver.roll_back(solver.snapshot())
    before, after = (one.object("Room/ball").state() for one in (straight, solver))
    assert before.keys() == after.keys()
    for name in ("frame", "position", "previous", "built"):
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)
    assert len(after["built"]) == len(after["position"])
    for one in (solver, straight):
        one.run(1)
    assert_same(solver, straight)


def test_a_run_resumed_from_a_state_that_was_taken_back_is_the_same_to_the_bit(air):
    whole = make_solver(air)
    whole.run(2)
    whole.roll_back(whole.snapshot())
    state = whole.snapshot()
    whole.run(2)
    resumed = make_solver(air)
    resumed.restore(state)
    resumed.run(2)
    assert_same(whole, resumed)
