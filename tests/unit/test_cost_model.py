"""Cost model: Buckets weigh what Objects and Actions declare, and nothing measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

import loki_core as lk
from loki_core.data.cost_model import BUCKET_COST, bucket_costs
from loki_core.errors import SetupError
from loki_core.forces.gravity import GravityAction
from loki_core.objects.particles.particles import Particles
from loki_core.objects.solids.curves import Rods
from loki_core.parallel.comm import SerialCommunicator
from loki_core.parallel.observed import ObservedCommunicator


def dust(*behaviors, **settings):
    points = lk.Points(np.random.default_rng(1).random((500, 3)))
    behaviors = [lk.ParticleObject(name="Dust", input="dust"), *behaviors]
    setup = lk.SolverSetup("dust", *behaviors, bucket_size=0.25, **settings)
    return lk.Solver(setup, {"dust": points}, threads=1)


def test_buckets_weigh_their_particles_times_the_cost_of_one():
    item = dust().object("Dust")
    keys, weights = item.weights()
    counts = np.diff(item.particles.offsets)[: len(keys)]
    assert counts.sum() == 500 and np.all(np.diff(keys.astype(np.int64)) > 0)
    np.testing.assert_allclose(weights, Particles.cost * counts + BUCKET_COST)


def test_voxels_weigh_alike_in_all_buckets():
    domain = lk.GridDomain(1.0)
    volume = lk.DiscreteVolume(domain, name="air")
    volume.add_channel("density", resolution=8)
    volume.set_buckets(np.array([[0, 0, 0], [1, 0, 0]], np.int32))
    np.testing.assert_allclose(bucket_costs(volume, 2.0), 2.0 * 512 + BUCKET_COST)


def test_what_acts_on_an_object_adds_its_cost(monkeypatch):
    monkeypatch.setattr(GravityAction, "cost", 3.0)
    acted_on = dust(lk.GravityForce(), lk.FluidDragForce()).object("Dust")
    assert acted_on.element_cost == math.fsum((Particles.cost, 3.0, 0.05))
    alone = dust().object("Dust")
    assert alone.element_cost == Particles.cost
    ratio = acted_on.weights()[1].sum() / alone.weights()[1].sum()
    assert ratio > 5.0


def test_bodies_weigh_where_they_begin():
    strands = np.zeros((3, 4, 3))
    strands[:, :, 0] = 0.4 * np.arange(4)
    strands[2, :, 1] = 5.0
    curves = lk.Curves.from_strands(strands)
    setup = lk.SolverSetup(
        "hair", lk.CurvesObject(name="Hair", input="hair"), bucket_size=0.5, balance_every=0
    )
    item = lk.Solver(setup, {"hair": curves}, threads=1).object("Hair")
    keys, weights = item.weights()
    assert keys[0] == keys[1] != keys[2]
    np.testing.assert_allclose(weights, 4 * Rods.cost)


def test_points_in_a_fluid_weigh_in_its_buckets():
    strands = np.zeros((3, 4, 3))
    strands[:, :, 0] = 0.05 * np.arange(4) + 0.1
    strands[2, :, 1] = 0.6  # in another Bucket
    setup = lk.SolverSetup(
        "hair",
        lk.CurvesObject(name="Hair", input="hair"),
        lk.VolumeObject(name="Air", voxel_size=0.0625, region="box", channels=()),
        lk.CoupledDragForce(),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 0.5, 0.5),
    )
    solver = lk.Solver(setup, {"hair": lk.Curves.from_strands(strands)}, threads=1)
    (drag,) = solver.actions["CoupledDragForce"]
    keys, weights = drag.weights()
    assert len(keys) == 1 and keys[0] in solver.object("Air").weights()[0]
    np.testing.assert_allclose(weights, 8 * 1.3)  # the third strand is where there is no air
    assert solver.object("Hair").element_cost == Rods.cost


def test_an_object_that_declares_nothing_costs_as_a_voxel_of_smoke():
    assert lk.Object.cost == 1.0


def test_one_rank_alone_looks_at_no_balance():
    solver = dust(balance_every=1)
    solver.run(3)
    assert solver.balances() == []


def test_weights_are_the_model_or_timings():
    with pytest.raises(SetupError, match=r"balance_weights.*model.*timings"):
        dust(balance_weights="guesses")


def test_timings_count_what_tasks_of_an_object_and_of_its_actions_took():
    solver = dust(lk.GravityForce(), balance_weights="timings")
    assert isinstance(solver.comm, ObservedCommunicator)
    solver.run(1)
    assert solver.balancer._seconds == {"Dust": 0.0}  # the first substep compiles
    solver.run(2)
    measured = solver.balancer._seconds["Dust"]
    assert 0.0 < measured <= sum(one["seconds"] for one in solver.statistics())


def test_an_observed_communicator_counts_and_changes_nothing():
    comm = ObservedCommunicator(SerialCommunicator())
    array = np.arange(3.0)
    assert comm.all_gather(array)[0] is array and comm.total(7) == 7
    target = np.empty(3)
    comm.post({0: array}, {0: target}).wait()
    np.testing.assert_array_equal(target, array)
    assert {name: one.calls for name, one in comm.traffic.items()} == {
        "all_gather": 1,
        "all_reduce": 1,
        "post": 1,
    }
    assert comm.traffic["post"].messages == 1 and comm.seconds > 0.0
