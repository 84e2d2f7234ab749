"""Colliders hold a fluid or let it slide, each for itself, by the faces that it closes."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.constraints.viscosity import ViscosityMaterial
from loki_core.objects.colliders.collider import Collider
from loki_core.pipeline.stages import Stage
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles

H = 1 / 16
DENSITY, VISCOSITY, PULL = 1.204, 1.0, 1.0
SIDES = ("periodic", "wall", "periodic")


def slab(lower: float, upper: float) -> lk.Surface:
    """Two planes, wider than the box: with their images they are a slab without ends."""
    corners = [(x, y, z) for y in (lower, upper) for x, z in ((0, 0), (1, 0), (1, 1), (0, 1))]
    faces = [(0, 1, 2), (0, 2, 3), (6, 5, 4), (7, 6, 4)]
    return lk.Surface.from_faces(1.4 * np.array(corners) * (1, 1 / 1.4, 1) - (0.45, 0, 0.45), faces)


def channel(floor: str, ceiling: str, shift: float, *behaviors, size=(1, 2, 1), **options):
    """Air between two slabs, ten voxels apart; the walls are `shift` voxels off the faces."""
    lower, upper = (3 + shift) * H, (13 + shift) * H
    scene = VolumeScene(
        Collider(name="floor", input="floor", slip=floor),
        Collider(name="ceiling", input="ceiling", slip=ceiling),
        *behaviors,
        size=size,
        h=H,
        boundary_lower=SIDES,
        boundary_upper=SIDES,
        inputs={"floor": slab(-1.0, lower), "ceiling": slab(upper, 2.0)},
        **options,
    )
    return scene, lower, upper


def steady(scene: VolumeScene) -> np.ndarray:
    """Velocity along the channel under a steady pull, [y]: in steps so long that it is steady."""
    dt = 1.0e4 * DENSITY * H * H / VISCOSITY
    is_open = scene.dense("open_fraction")[0] > 0.0
    for _ in range(3):
        velocity = scene.dense("velocity")
        velocity[0] += np.where(is_open, dt * PULL, 0.0)
        scene.fill("velocity", velocity)
        scene.run(Stage.SOLVE_VISCOSITY, dt=dt)
    velocity = scene.dense("velocity")[0]
    assert np.ptp(velocity, axis=(0, 2)).max() < 1e-8 * np.abs(velocity).max()
    return velocity[0, :, 0]


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize(
    ("floor", "ceiling"), [("no_slip", "slip"), ("slip", "auto"), ("auto", "no_slip")]
)
def test_a_channel_with_walls_of_two_kinds_has_its_profile(floor, ceiling, shift):
    """mu u'' = -rho g: u = rho g (L s - s^2 / 2) / mu, s from the wall that holds, u' = 0 at L.

    Between two walls that hold, u = rho g s (L - s) / (2 mu). Differences of second order, on ten
    voxels: the error is within (h / L)^2 of the largest velocity.
    """
    viscosity = ViscosityMaterial(viscosity=VISCOSITY, tolerance=1e-12, max_iterations=5000)
    scene, lower, upper = channel(floor, ceiling, shift, viscosity)
    u, y = steady(scene), (np.arange(16) + 0.5) * H
    inside = (y > lower) & (y < upper)
    s = (upper - y if floor == "slip" else y - lower)[inside]
    length, pull = upper - lower, DENSITY * PULL / VISCOSITY
    half = "slip" in (floor, ceiling)
    exact = pull * (length * s - 0.5 * s**2 if half else 0.5 * s * (length - s))
    assert np.abs(u[inside] - exact).max() < 1.1 * (H / length) ** 2 * exact.max()


def test_gas_without_viscosity_keeps_its_speed_along_the_wall_that_slips():
    """What the gas finds in a solid is its own velocity, or the solid's, as each solid says."""
    scene, _, _ = channel("no_slip", "slip", 0.0)
    scene.fill_velocity(lambda x: np.stack([np.ones_like(x[0]), 0 * x[0], 0 * x[0]]))
    scene.item.hold_known_faces()
    scene.item.extend_into_solids(["velocity"])
    u = scene.dense("velocity")[0][0, :, 0]
    np.testing.assert_allclose(u[3:16], 1.0)  # the gas, and three layers of the ceiling
    np.testing.assert_array_equal(u[:3], 0.0)  # the floor


def test_a_wall_that_slips_stops_no_gas_and_one_that_holds_does():
    """In a flow that carries itself along; a wind over the floor and under the ceiling."""
    speed = {}
    for floor in ("no_slip", "slip"):
        pressure = lk.PressureMaterial(tolerance=1e-8)
        scene, _, _ = channel(floor, "slip", 0.3, pressure, frames_per_second=50.0)
        scene.fill_velocity(
            lambda x: np.stack([np.ones_like(x[0]), 0 * x[0], 0.2 * np.sin(50 * x[1])])
        )
        scene.solver.run(2)
        speed[floor] = scene.dense("velocity")[0][0, :, 0]
    assert speed["slip"][3:13].min() > 0.99
    np.testing.assert_allclose(speed["no_slip"][8:13], speed["slip"][8:13], atol=0.02)
    assert speed["no_slip"][3:13].max() > 0.95


@pytest.mark.parametrize("order", [1, -1])
def test_every_face_has_what_the_nearest_solid_does(order):
    from loki_core.kernels.gas.extension import HOLDS, SLIPS

    balls = {"left": (0.3, 0.5, 0.25), "right": (0.7, 0.5, 0.25)}
    kinds = {"left": "slip", "right": "no_slip"}
    names = list(balls)[::order]
    import trimesh

    ball = trimesh.creation.icosphere(radius=0.15, subdivisions=2)
    meshes = {
        name: lk.Surface.from_faces(ball.vertices + balls[name], ball.faces.astype(np.int32))
        for name in names
    }
    scene = VolumeScene(
        *(Collider(name=name, input=name, slip=kinds[name]) for name in names),
        size=(2, 2, 1), h=H, sides="open", inputs=meshes,
    )  # fmt: skip
    grip, closed = scene.dense("solid_grip"), scene.dense("open_fraction") == 0.0
    edge = scene.dense("solid_grip")[:, :1]
    assert not edge.any()  # the sides of the box are no solid's
    closed[:, :1] = closed[:, -1:] = closed[:, :, :1] = closed[:, :, -1:] = False
    closed[..., :1] = closed[..., -1:] = False
    for axis in range(3):
        x = scene.centres(axis)[0]
        assert np.all(grip[axis][closed[axis] & (x < 0.48)] == SLIPS)
        assert np.all(grip[axis][closed[axis] & (x > 0.52)] == HOLDS)
    assert closed.sum() > 100


def test_a_channel_that_is_turned_against_the_grid_has_the_same_profile():
    """At 26.6 degrees, eight voxels across: within 6 % of the largest velocity, everywhere.

    Walls are steps of the grid here, so that the drag at them is of first order.
    """
    along, across = np.array([2.0, 1.0, 0.0]) / 5**0.5, np.array([-1.0, 2.0, 0.0]) / 5**0.5
    period, thick = 2.0 / 5**0.5, 6 * H  # from wall to wall, and how much of it is solid

    def half(lower: float, upper: float) -> lk.Surface:
        corners = [
            level * across + a * along + (0.0, 0.0, z)
            for level in (lower, upper)
            for a, z in ((-1.25, -1.0), (1.25, -1.0), (1.25, 2.0), (-1.25, 2.0))
        ]
        faces = [(0, 1, 2), (0, 2, 3), (6, 5, 4), (7, 6, 4)]
        return lk.Surface.from_faces(np.array(corners), faces)

    sides = ("periodic", "periodic", "wall")
    shift = 0.013  # so that walls lie anywhere between the voxels
    scene = VolumeScene(
        ViscosityMaterial(viscosity=VISCOSITY, tolerance=1e-8),
        lk.PressureMaterial(tolerance=1e-8),
        lk.DomainBoundary(sides=("z_lower", "z_upper"), condition="slip"),
        Collider(name="floor", input="floor", slip="no_slip"),
        Collider(name="ceiling", input="ceiling", slip="slip"),
        size=(4, 2, 1), h=H, boundary_lower=sides, boundary_upper=sides,
        inputs={
            "floor": half(shift, shift + 0.5 * thick),
            "ceiling": half(shift - 0.5 * thick, shift),
        },
    )  # fmt: skip
    dt, is_open = 4.0 * DENSITY * H * H / VISCOSITY, scene.dense("open_fraction")
    for _ in range(30):  # the slowest mode falls by 1.14 in each
        velocity = scene.dense("velocity")
        velocity += dt * PULL * along[:, None, None, None] * (is_open > 0.0)
        scene.fill("velocity", velocity)
        scene.run(Stage.SOLVE_VISCOSITY, dt=dt)
        scene.run(Stage.SOLVE_PRESSURE, dt=dt)
    width, velocity = period - thick, scene.dense("velocity")
    largest = 0.5 * DENSITY * PULL / VISCOSITY * width**2
    for axis in range(2):
        height = np.einsum("a,axyz->xyz", across, scene.centres(axis))
        s = (height - shift - 0.5 * thick) % period
        exact = DENSITY * PULL / VISCOSITY * (width * s - 0.5 * s**2) * along[axis]
        inside = (is_open[axis] > 0.99) & (s < width)
        assert np.abs(velocity[axis] - exact)[inside].max() < 0.06 * largest
