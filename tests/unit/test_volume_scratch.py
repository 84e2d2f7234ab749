"""Channels that live for a block only: whatever materials are called, and whatever fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loki_core.constraints.pressure import PressureMaterial
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.errors import DivergenceError
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.force_density_field import ForceDensityField
from loki_core.keyframes import Keyframes
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.volume_expression import VolumeExpression
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from tests.unit.test_pressure import ball

pytestmark = pytest.mark.compiles

H = 0.125
#: What Tasks call the channels that they need for a while.
BUSY_NAMES = ("q", "mobility", "advecting", "extended", "velocity_change", "advected", "back")


def wind(*behaviors, inputs=None, **air):
    """A periodic box of gas that a Force drives."""
    setup = SolverSetup(
        "wind",
        VolumeObject(name="air", voxel_size=H, region="box", **air),
        PressureMaterial(),
        ForceDensityField(value=(0.0, 0.0, 1.0)),
        *behaviors,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=("periodic",) * 3,
        boundary_upper=("periodic",) * 3,
    )
    return Solver(setup, inputs)


@pytest.mark.parametrize("reflection", [False, True])
def test_materials_may_have_any_name_that_a_setup_allows(reflection):
    ends = []
    for names in (BUSY_NAMES, ("m0", "m1", "m2", "m3", "m4", "m5", "m6")):
        solver = wind(
            Collider(name="ball", input="ball"),
            FluidDragForce(law="linear", velocity=(1.0, 0.0, 0.0)),
            VolumeExpression(expression=f"velocity[0] += dt\n{names[0]} = position[1]"),
            inputs={"ball": ball((0.5, 0.5, 0.5), 0.2)},
            channels=tuple(f"{name}:{n}" for n, name in enumerate(names)),
            reflection=reflection,
        )
        before = set(solver.object("air").volume.channels)
        solver.run(2)
        assert set(solver.object("air").volume.channels) == before
        ends.append([solver.read("air", name) for name in ("velocity", *names)])
    assert np.any(ends[0][0])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_projection_that_fails_between_the_halves_is_tried_again(monkeypatch):
    solver = wind(reflection=True)
    solver.run(1)
    item = solver.object("air")
    names, project, calls = set(item.volume.channels), item.projector.project, []

    def fail_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise DivergenceError("no luck")
        return project(*arguments)

    monkeypatch.setattr(item.projector, "project", fail_once)
    solver.run(1)
    assert solver.frame == 3 and solver.timeline.retried == 1
    assert set(item.volume.channels) == names


def test_the_warning_of_the_projection_between_the_halves_is_shown(monkeypatch):
    solver = wind(reflection=True)
    projector = solver.object("air").projector
    project, calls = projector.project, []

    def fall_back_at_first(*arguments):
        q = project(*arguments)
        calls.append(arguments)
        if len(calls) == 1:
            projector.report = replace(projector.report, fell_back_from="direct (no luck)")
        return q

    monkeypatch.setattr(projector, "project", fall_back_at_first)
    solver.run(1)
    assert len(calls) > 1
    shown = [text for text in solver.warnings if "took over from direct (no luck)" in text]
    assert len(shown) == 1 and "advect_momentum" in shown[0]


def test_scratch_channels_are_no_part_of_the_state_and_go_whatever_happens():
    volume = DiscreteVolume(GridDomain(0.8), name="Smoke")
    volume.add_channel("q")
    volume.set_buckets(np.array([[0, 0, 0], [1, 0, 0]], np.int32))
    with pytest.raises(DivergenceError), volume.scratch("q", np.uint8, resolution=4) as scratch:
        assert scratch.values.shape == (2, 1, 4, 4, 4) and scratch.values.dtype == np.uint8
        assert "/" in scratch.name and volume.channel(scratch.name) is scratch
        assert list(volume.state()["channels"]) == ["q"]
        with volume.scratch("other", components=3, location="face") as face:
            assert face.values.shape == (2, 3, 8, 8, 8) and face.values.dtype == volume.dtype
        raise DivergenceError("no luck")
    assert list(volume.channels) == ["q"]


# -- keyframes ----------------------------------------------------------------------------------


def test_the_air_around_may_be_animated():
    solver = wind(
        ambient_velocity=Keyframes([(0.0, (1.0, 2.0, 3.0)), (1.0, (5.0, 5.0, 5.0))]),
        ambient_temperature=Keyframes([(0.0, 300.0), (1.0, 400.0)]),
        channels=("temperature", "density"),
        velocity_scheme="none",
    )
    volume = solver.object("air").volume
    assert volume.channel("velocity").background == (1.0, 2.0, 3.0)
    assert volume.channel("temperature").background == (300.0,)
    solver.run(1)
    np.testing.assert_allclose(solver.read("air", "temperature"), 300.0, rtol=1e-6)
