"""Force Density Field: per mass and per volume, constant and from voxels, with masks."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.forces.force_density_field import ForceDensityField
from loki_core.objects.particles.particles import ParticleObject
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup

RNG = np.random.default_rng(1)
POSITION = RNG.random((60, 3)) * 2.0
RADIUS = RNG.uniform(0.01, 0.1, 60)
DENSITY = RNG.uniform(100.0, 2000.0, 60)
H = 0.1


def accelerations(*behaviors, inputs=None, offset=0.0, precision="double", **channels):
    """Change of velocity over one substep from rest, divided by its length."""
    points = Points(POSITION + offset)
    for name, values in {"radius": RADIUS, "density": DENSITY, **channels}.items():
        points.set_channel("point", name, np.asarray(values))
    setup = SolverSetup(
        "field", ParticleObject(input="p"), *behaviors, precision=precision, frames_per_second=1 / H
    )
    solver = Solver(setup, {"p": points, **(inputs or {})})
    solver.run(1)
    return solver.read("ParticleObject", "velocity") / H


def linear_field(name, components, offset=0.0):
    """A voxel field that is linear in space, over [-1, 3]^3."""
    grid = (np.stack(np.meshgrid(*[np.arange(40)] * 3, indexing="ij")) + 0.5) * 0.1 - 1.0
    values = np.stack(
        [1.0 + (c + 1) * grid[0] - 0.5 * grid[1] + 0.25 * c * grid[2] for c in range(3)]
    )
    voxels = Voxels.from_dense({name: values[:components]}, np.full(3, -1.0 + offset), 0.1)
    x, y, z = POSITION.T
    exact = np.stack([1.0 + (c + 1) * x - 0.5 * y + 0.25 * c * z for c in range(3)], axis=1)
    return voxels, exact[:, :components]


# f = m a gives a itself; f = V b gives b V / m = b / density. Round-off only: 1e-13.
def test_per_mass_is_an_acceleration():
    found = accelerations(ForceDensityField(value=(1.0, -2.0, 3.0)))
    np.testing.assert_allclose(found, np.broadcast_to([1.0, -2.0, 3.0], (60, 3)), rtol=1e-13)


def test_per_volume_is_divided_by_the_density():
    found = accelerations(ForceDensityField(value=(1.0, -2.0, 3.0), per="volume"))
    np.testing.assert_allclose(found, np.array([1.0, -2.0, 3.0]) / DENSITY[:, None], rtol=1e-12)


@pytest.mark.parametrize("per", ["mass", "volume"])
def test_a_voxel_field_is_added_to_the_constant_part(per):
    voxels, exact = linear_field("force", 3)
    found = accelerations(
        ForceDensityField(value=(0.5, 0.0, 0.0), field="f", per=per), inputs={"f": voxels}
    )
    expected = np.add(exact, [0.5, 0.0, 0.0]) / (DENSITY[:, None] if per == "volume" else 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_another_channel_may_hold_the_field():
    voxels, exact = linear_field("push", 3)
    found = accelerations(ForceDensityField(field="f", channel="push"), inputs={"f": voxels})
    np.testing.assert_allclose(found, exact, rtol=1e-11)


def test_masks_multiply():
    voxels, exact = linear_field("mask", 1)
    strength = np.linspace(-1.0, 2.0, 60)
    centre, radius = np.array([1.0, 0.8, 1.2]), 1.1
    field = ForceDensityField(
        value=(2.0, 0.0, 0.0), mask="m", mask_center=tuple(centre), mask_radius=radius
    )
    found = accelerations(field, inputs={"m": voxels}, force_density_field_strength=strength)
    distance = np.linalg.norm(POSITION - centre, axis=1)
    s = np.clip(2.0 * (1.0 - distance / radius), 0.0, 1.0)
    ball = s * s * (3.0 - 2.0 * s)
    assert np.any(ball == 0.0) and np.any(ball == 1.0) and np.any((ball > 0.0) & (ball < 1.0))
    np.testing.assert_allclose(found[:, 0], 2.0 * strength * exact[:, 0] * ball, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(found[:, 1:], 0.0)


def test_a_ball_without_radius_lets_nothing_through():
    field = ForceDensityField(value=(1.0, 0.0, 0.0), mask_radius=0.0)
    np.testing.assert_array_equal(accelerations(field), 0.0)


def test_painted_values_override_and_scale():
    painted = RNG.standard_normal((60, 3))
    found = accelerations(ForceDensityField(), force_density_field_value=painted)
    np.testing.assert_allclose(found, painted, rtol=1e-13)
    found = accelerations(
        ForceDensityField(value=(1.0, 2.0, 3.0)), force_density_field_value_scale=painted[:, 0]
    )
    np.testing.assert_allclose(found, painted[:, :1] * [1.0, 2.0, 3.0], rtol=1e-13)


def test_several_fields_add_up():
    fields = [ForceDensityField(value=(float(n), 1.0, 0.0), name=f"field_{n}") for n in range(3)]
    np.testing.assert_allclose(accelerations(*fields), np.broadcast_to([3.0, 3.0, 0.0], (60, 3)))


def test_far_away_fields_and_masks_are_where_they_should_be():
    # Single precision about the domain's origin: 2 m have a spacing of 2.4e-7 m, times slope 3.
    offset = 1.0e6
    voxels, exact = linear_field("force", 3, offset)
    centre = np.array([1.0, 0.8, 1.2])
    field = ForceDensityField(field="f", mask_center=tuple(centre + offset), mask_radius=1.1)
    found = accelerations(field, inputs={"f": voxels}, offset=offset, precision="single")
    s = np.clip(2.0 * (1.0 - np.linalg.norm(POSITION - centre, axis=1) / 1.1), 0.0, 1.0)
    expected = exact * (s * s * (3.0 - 2.0 * s))[:, None]
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_outside_of_its_voxels_a_field_is_its_background():
    voxels = Voxels.from_dense({"force": np.ones((3, 8, 8, 8))}, (50.0, 50.0, 50.0), 0.1)
    np.testing.assert_array_equal(
        accelerations(ForceDensityField(field="f"), inputs={"f": voxels}), 0.0
    )
