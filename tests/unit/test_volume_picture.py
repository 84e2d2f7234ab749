"""Pictures of volumes: light follows its law, smoke looks like smoke, and nothing odd breaks it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_core.kernels.jit import set_thread_count, thread_count
from loki_vfx.bridges.standalone import volume_fields
from loki_vfx.bridges.standalone.kernels import ray_march, ray_surfaces
from loki_vfx.bridges.standalone.volume_fields import DenseField, gather_smoke, joined, refined
from loki_vfx.bridges.standalone.volume_picture import Surfaces, View, paint_volumes, sort_volumes

pytestmark = pytest.mark.compiles

SIZE = (48, 40)
BOUNDS = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
FRONT = View(  # looks along -z at the middle of the unit cube
    position=np.array([0.5, 0.5, 4.0]),
    right=np.array([1.0, 0.0, 0.0]),
    upward=np.array([0.0, 1.0, 0.0]),
    forward=np.array([0.0, 0.0, -1.0]),
    slope=0.18,
    aspect=SIZE[0] / SIZE[1],
)


def cell_centers(n: int = 24) -> list[np.ndarray]:
    x = (np.arange(n) + 0.5) / n
    return np.meshgrid(x, x, x, indexing="ij")


def ball(radius: float = 0.35, n: int = 24, **channels: np.ndarray) -> Voxels:
    x, y, z = cell_centers(n)
    distance = np.sqrt((x - 0.5) ** 2 + (y - 0.5) ** 2 + (z - 0.5) ** 2)
    density = np.clip(8.0 * (radius - distance), 0.0, 1.0).astype(np.float32)
    return Voxels.from_dense({"density": density, **channels}, (0.0, 0.0, 0.0), 1.0 / n)


def solid_ball(radius: float = 0.3, n: int = 32) -> Voxels:
    x, y, z = cell_centers(n)
    distance = np.sqrt((x - 0.5) ** 2 + (y - 0.5) ** 2 + (z - 0.5) ** 2) - radius
    band = 3.0 / n
    return Voxels.from_dense(
        np.clip(distance, -band, band).astype(np.float32),
        (0.0, 0.0, 0.0),
        1.0 / n,
        name="distance",
        background=float(np.float32(band)),
    )


def painted(streams: dict[str, Voxels], **options) -> np.ndarray:
    options.setdefault("bounds", BOUNDS)
    return paint_volumes(sort_volumes(streams), FRONT, SIZE, **options).astype(int)


def march(density: np.ndarray, sigma: float, *, depth: float = 1e30) -> np.ndarray:
    """March through a unit cube in front of a white wall, with all lamps off."""
    rows, columns = 8, 8
    tau = np.zeros((2, 2, 2), np.float32)
    picture = np.empty((rows, columns, 3))
    surfaces = Surfaces.empty(rows, columns)
    surfaces.depths[:] = depth
    surfaces.colors[:] = 1.0
    ray_march.march_picture(
        View(
            FRONT.position, FRONT.right, FRONT.upward, FRONT.forward, wide=0.2, aspect=1.0
        ).as_array(),
        density,
        np.zeros((0, 0, 0), np.float32),
        np.ones([-(-n // ray_march.CELL) for n in density.shape], np.bool_),
        np.array([0.0, 0.0, 0.0, 1.0 / len(density)]),
        tau,
        tau,
        float(len(density)) / 2.0,
        np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]),
        np.zeros((2, 3)),
        sigma,
        np.ones((1, 6)),
        np.array([0.0, 1.0]),
        1.0,
        surfaces.depths,
        surfaces.colors,
        -np.inf,
        np.ones((rows, columns, 3)),
        picture,
    )
    return picture


# -- the law of light --------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.0])
def test_light_fades_as_beer_and_lambert_say(sigma):
    density = np.full((40, 40, 40), 0.7, np.float32)
    picture = march(density, sigma)
    # T = exp(-s L), L = 1 m; a ray sees whole steps of 0.7 / 40 m, hence +- half a step of length
    step = 0.7 / 40.0
    assert np.all(picture >= np.exp(-0.7 * sigma * (1.0 + step)) - 1e-6)
    assert np.all(picture <= np.exp(-0.7 * sigma * (1.0 - step)) + 1e-6)
    # the steps of neighbouring pixels begin at different places, so that their mean is nearer
    assert picture.mean() == pytest.approx(np.exp(-0.7 * sigma), rel=0.3 * sigma * step)


def test_smoke_behind_a_surface_is_not_seen():
    density = np.full((40, 40, 40), 1.0, np.float32)
    in_front = march(density, 2.0, depth=2.9)  # the cube begins at 3 m
    np.testing.assert_array_equal(in_front, 1.0)
    half_way = march(density, 2.0, depth=3.5)
    assert half_way.mean() == pytest.approx(np.exp(-1.0), rel=0.03)


def test_empty_space_is_skipped_without_changing_the_picture():
    rng = np.random.default_rng(1)
    density = np.zeros((40, 40, 40), np.float32)
    density[:, :, 14:22] = rng.random((40, 40, 8), dtype=np.float32)
    occupied = np.empty((5, 5, 5), np.bool_)
    ray_march.mark_occupied(density, 0.0, occupied)
    # cells of voxels 8-15 and 16-23 hold something; so do their neighbours' edges
    np.testing.assert_array_equal(occupied[2, 2], [False, True, True, False, False])
    direct = np.empty((1, 1, 1), np.float32)
    skipping = np.empty((1, 1, 1), np.float32)
    for mask, tau in ((np.ones_like(occupied), direct), (occupied, skipping)):
        ray_march.fill_light_volume(
            density,
            mask,
            np.array([0.0, 0.0, 0.0, 1.0]),
            1.0,
            20.0,
            np.array([0.0, 0.0, 1.0]),
            FRONT.as_array(),
            np.empty((0, 0), np.float32),
            0.0,
            tau,
        )
    assert direct[0, 0, 0] > 1.0
    np.testing.assert_allclose(skipping, direct, rtol=1e-5)


def test_light_volume_holds_the_optical_depth_to_the_border():
    density = np.full((32, 32, 32), 0.5, np.float32)
    tau = np.empty((8, 8, 8), np.float32)
    ray_march.fill_light_volume(
        density,
        np.ones((4, 4, 4), np.bool_),
        np.array([0.0, 0.0, 0.0, 0.25]),
        2.0,
        4.0,
        np.array([0.0, 1.0, 0.0]),
        FRONT.as_array(),
        np.empty((0, 0), np.float32),
        0.0,
        tau,
    )
    above = 8.0 - (np.arange(8) + 0.5)  # m: coarse voxels are 1 m wide
    expected = np.broadcast_to(above[None, :, None], (8, 8, 8))
    np.testing.assert_allclose(tau, expected, rtol=0, atol=0.5 * 3.0 * 0.25)  # half a step of 3


def test_interpolation_is_exact_for_linear_fields():
    i, j, k = np.meshgrid(*[np.arange(6.0)] * 3, indexing="ij")
    field = (1.0 + 2.0 * i - 3.0 * j + 0.5 * k).astype(np.float32)
    for x, y, z in np.random.default_rng(2).uniform(0.0, 5.0, (20, 3)):
        expected = 1.0 + 2.0 * x - 3.0 * y + 0.5 * z
        assert ray_march.sample_dense(field, x, y, z) == pytest.approx(expected, abs=2e-4)
    assert ray_march.sample_dense(field, -9.0, 0.0, 99.0) == pytest.approx(3.5, abs=1e-4)


# -- surfaces ----------------------------------------------------------------------------------


def test_a_level_set_is_found_where_it_is():
    field = volume_fields.level_set(solid_ball(0.3))
    seen = Surfaces.empty(41, 41)
    ray_surfaces.trace_level_set(
        View(FRONT.position, FRONT.right, FRONT.upward, FRONT.forward, wide=0.5).as_array(),
        field.values,
        field.lattice(),
        np.array([0.1, 0.2, 0.3]),
        seen.depths,
        seen.normals,
        seen.colors,
    )
    y, x = 0.5 - (np.mgrid[:41, :41] + 0.5) / 41.0
    squared = x * x + y * y
    inside, outside = squared < 0.28**2, squared > 0.32**2
    expected = 4.0 - (0.5 + np.sqrt(np.maximum(0.09 - squared, 0.0)))
    assert np.all(seen.depths[outside] > 1e29)
    # trilinear distances of a ball in voxels of 1/32 m: h^2 / (8 R) = 4e-4 m, times the slant
    np.testing.assert_allclose(seen.depths[inside], expected[inside], rtol=0, atol=4e-3)
    np.testing.assert_allclose(seen.normals[20, 20], (0.0, 0.0, 1.0), atol=0.02)
    np.testing.assert_allclose(seen.colors[20, 20], (0.1, 0.2, 0.3), rtol=1e-6)


def test_a_level_set_has_the_colours_that_it_carries():
    plain, solid = solid_ball(), solid_ball()
    shape = solid.channel("distance").values.shape
    for name, color in (("Cd", (0.8, 0.05, 0.05)), ("primitive", None)):
        values = np.zeros((shape[0], 1, *shape[2:]), np.int32)  # all voxels know a face
        if color is not None:
            values = np.tile(
                np.array(color, np.float32)[:, None, None, None], (shape[0], 1, *shape[2:])
            )
        solid.set_channel(name, values)
    picture, before = painted({"solid": solid}), painted({"solid": plain})
    middle = (SIZE[1] // 2, SIZE[0] // 2)
    red, green, blue = picture[middle]
    assert red > 2 * max(green, blue)
    assert np.ptp(before[middle]) < 40  # without colours it is grey
    # Where no voxel knows a face there is no colour to take.
    solid.set_channel("primitive", np.full((shape[0], 1, *shape[2:]), -1, np.int32))
    np.testing.assert_array_equal(painted({"solid": solid}), before)


def test_a_solid_hides_the_smoke_behind_it_and_throws_a_shadow():
    smoke_alone = painted({"smoke": ball(0.2)})
    both = painted({"smoke": ball(0.2), "solid": solid_ball(0.3)}, floor=0.0)
    solid_alone = painted({"solid": solid_ball(0.3)}, floor=0.0)
    middle = (SIZE[1] // 2, SIZE[0] // 2)
    np.testing.assert_allclose(both[middle], solid_alone[middle], atol=1)
    assert np.abs(smoke_alone[middle] - both[middle]).max() > 20
    bare = painted({"nothing": ball(0.0)}, floor=0.0)
    lower = slice(3 * SIZE[1] // 4, None)
    assert (bare[lower].sum(axis=2) - solid_alone[lower].sum(axis=2)).max() > 20


# -- whole pictures ----------------------------------------------------------------------------


def test_smoke_is_bright_before_a_backdrop_and_darker_away_from_the_lamp():
    picture = painted({"smoke": ball()}).sum(axis=2)
    backdrop = painted({"nothing": ball(0.0)}).sum(axis=2)
    rows, columns = picture.shape
    np.testing.assert_allclose(picture[:, :3], backdrop[:, :3], atol=3)
    assert picture[rows // 2, columns // 2] > backdrop[rows // 2, columns // 2] + 100
    towards = picture[rows // 2 - 6 : rows // 2, columns // 2 - 8 : columns // 2].mean()
    away = picture[rows // 2 : rows // 2 + 6, columns // 2 : columns // 2 + 8].mean()
    assert towards > 1.1 * away


def test_a_front_of_one_voxel_shows_no_steps():
    # a shallow dome of voxels that are full, empty, or cut by it, seen along their layers
    n, rows = 32, 120
    x = np.arange(n) + 0.5
    height = 20.3 - 6.0 * ((x[:, None] - 16.0) ** 2 + (x - 16.0) ** 2) / 256.0
    density = np.clip(height[:, None, :] - np.arange(n)[:, None], 0.0, 1.0).astype(np.float32)
    view = View(FRONT.position, FRONT.right, FRONT.upward, FRONT.forward, wide=0.3, aspect=4 / 3)
    smoke = sort_volumes({"smoke": Voxels.from_dense({"density": density}, (0, 0, 0), 1.0 / n)})
    picture = paint_volumes(smoke, view, (160, rows), bounds=BOUNDS, extinction=20.0)
    bright = picture.mean(axis=2)[:, 20:-20]
    # a layer that begins suddenly bends the brightness from one row to the next: 118 levels of 255
    # in a spline of degree 2
    assert np.abs(np.diff(bright, n=2, axis=0)).max() < 30.0
    middle = 0.5 * (bright[0] + bright[rows // 2])
    row, column = np.argmax(bright > middle, axis=0), np.arange(bright.shape[1])
    above, below = bright[row - 1, column], bright[row, column]
    edge = row - (below - middle) / (below - above)
    # the dome is nowhere steeper than 0.59 in what is seen
    assert np.abs(np.diff(edge)).max() < 0.75


def test_the_sky_throws_no_shadow_with_an_edge():
    # only the sky shines; a floor is seen from above, below a thick cube of smoke
    density = np.zeros((24, 24, 24), np.float32)
    density[8:16, 8:16, 8:16] = 1.0
    axes = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, -1.0, 0.0]])
    view = View(np.array([12.0, 1.0, 12.0]), *axes, wide=12.0)
    behind = np.empty((48, 48, 3))
    ray_surfaces.light_backdrop(
        view.as_array(),
        density,
        np.ones((3, 3, 3), np.bool_),
        np.array([0.0, 0.0, 0.0, 1.0]),
        10.0,
        np.array([[0.6, 0.8, 0.0], [0.0, 1.0, 0.0]]),
        np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]),
        view.as_array(),
        np.empty((0, 0), np.float32),
        0.0,
        0.0,
        np.array([12.0, 0.0, 12.0]),
        1e6,  # so that the pool of light of the lamp is as wide
        np.ones((2, 3)),
        behind,
    )
    light = behind[..., 0] / behind.max()
    assert light.min() < 0.85  # a shadow falls
    # half of a floor's light from the sky comes past smoke; one direction would end it at once
    assert max(np.abs(np.diff(light, axis=axis)).max() for axis in (0, 1)) < 0.15


def test_pictures_do_not_depend_on_threads():
    streams = {"smoke": ball(), "solid": solid_ball(0.15)}
    threads = thread_count()
    many = painted(streams, floor=0.0)
    try:
        set_thread_count(1)
        one = painted(streams, floor=0.0)
    finally:
        set_thread_count(threads)
    np.testing.assert_array_equal(many, one)


def test_where_a_scene_is_does_not_change_its_picture():
    here = painted({"smoke": ball()}, floor=0.0)
    shift = np.array([1.0e5, 0.0, -2.0e5])
    far = ball()
    far.origin += shift
    view = View(
        FRONT.position + shift,
        FRONT.right,
        FRONT.upward,
        FRONT.forward,
        slope=FRONT.slope,
        aspect=FRONT.aspect,
    )
    there = paint_volumes(
        sort_volumes({"smoke": far}), view, SIZE, bounds=BOUNDS + shift, floor=0.0
    )
    assert np.abs(there.astype(int) - here).max() <= 2


def test_hot_smoke_glows_red_and_cold_smoke_does_not():
    heat = np.full((24, 24, 24), 290.0, np.float32)
    plain = painted({"smoke": ball()})
    cold = painted({"smoke": ball(temperature=heat)})
    np.testing.assert_array_equal(cold, plain)
    hot = painted({"smoke": ball(temperature=heat + 1200.0)})
    excess = (hot - plain)[SIZE[1] // 2, SIZE[0] // 2]
    assert excess[0] > 10 and excess[0] > excess[2]


def test_a_channel_colours_smoke():
    ramp = np.broadcast_to(np.linspace(0.0, 1.0, 24)[:, None, None], (24, 24, 24))
    picture = painted({"smoke": ball(age=ramp.astype(np.float32))}, color="age")
    row = SIZE[1] // 2
    left, right = picture[row, SIZE[0] // 2 - 6], picture[row, SIZE[0] // 2 + 6]
    assert right[1] - right[2] > 20 and left[1] < right[1]  # from violet to yellow


def test_smoke_that_is_empty_or_not_finite_leaves_the_backdrop():
    broken = ball()
    broken.channels["density"].values[:] = np.nan
    backdrop = painted({"nothing": ball(0.0)})
    assert backdrop.min() > 0  # a soft gradient, not black
    np.testing.assert_array_equal(painted({"broken": broken}), backdrop)
    holed = ball()
    holed.channels["density"].values[0, 0, 0, 0, 0] = np.inf
    assert np.abs(painted({"holed": holed}) - painted({"smoke": ball()})).max() <= 8


# -- fields ------------------------------------------------------------------------------------


def test_refinement_keeps_mass_and_linear_fields():
    rng = np.random.default_rng(3)
    values = np.pad(rng.random((6, 7, 8), dtype=np.float32), 3)
    coarse = DenseField(values, np.zeros(3), 0.5)
    fine = refined(coarse)
    assert fine.values.shape == (48, 52, 56) and fine.voxel_size == 0.125
    mass = [float(f.values.sum(dtype=np.float64)) * f.voxel_size**3 for f in (coarse, fine)]
    assert mass[1] == pytest.approx(mass[0], rel=1e-6)
    i = np.indices((12, 8, 8))[0].astype(np.float32)
    finer = refined(DenseField(i, np.zeros(3), 1.0)).values
    expected = 0.25 * np.arange(48) - 0.375  # value at the new centres, (n + 0.5) / 4 - 0.5
    np.testing.assert_allclose(finer[8:-8, 3, 3], expected[8:-8], rtol=1e-6)


def test_streams_of_different_voxels_are_added_up():
    coarse, fine = ball(n=24), ball(n=48)
    fine.origin = fine.origin + np.array([0.3, 0.0, 0.0])
    one, other = gather_smoke([coarse], None).density, gather_smoke([fine], None).density
    both = gather_smoke([coarse, fine], None).density
    mass = [float(f.values.sum(dtype=np.float64)) * f.voxel_size**3 for f in (one, other, both)]
    assert mass[2] == pytest.approx(mass[0] + mass[1], rel=0.01)
    assert joined([one], around=0.0) is one


def test_huge_volumes_become_coarser_and_impossible_ones_are_named(monkeypatch):
    smoke = ball(n=48)
    whole = gather_smoke([smoke], None).density
    monkeypatch.setattr(volume_fields, "LARGEST", 20_000)
    monkeypatch.setattr(volume_fields, "REFINED", 0)
    coarser = gather_smoke([smoke], None).density
    assert coarser.voxel_size == 2.0 / 48 and coarser.values.shape == (30, 30, 30)
    mass = [float(f.values.sum(dtype=np.float64)) * f.voxel_size**3 for f in (whole, coarser)]
    assert mass[1] == pytest.approx(mass[0], rel=1e-4)
    far = Voxels(np.array([[0, 0, 0], [100, 100, 100]]), 0.1)
    far.set_channel("density", np.ones((2, 8, 8, 8), np.float32))
    with pytest.raises(InputError, match=r'"density" span \[808, 808, 808\] voxels'):
        gather_smoke([far], None)


def test_preview_of_a_cache_of_voxels(tmp_path: Path) -> None:
    pytest.importorskip("pyvista")
    from click.testing import CliRunner
    from PIL import Image

    from loki_vfx.bridges.standalone.preview_command import command
    from loki_vfx.serialization.frame_cache import FrameCacheWriter, Manifest

    about = Manifest(setup_hash="a" * 64, setup={}, units={"length": "m"}, fps=24.0)
    with FrameCacheWriter(tmp_path / "run", about) as writer:
        writer.write_frame(1, {"scene/Smoke": ball(), "scene/Ball": solid_ball(0.2)}, statistics={})
    target = tmp_path / "picture.png"
    words = [str(tmp_path / "run"), "--size", "64x48", "--output", str(target), "--json"]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    told = json.loads(done.output)
    assert {one["object"]: one["color"] for one in told["objects"]} == {
        "scene/Ball": None,
        "scene/Smoke": "density",
    }
    pixels = np.asarray(Image.open(target)).astype(int)
    assert pixels.shape == (48, 64, 3)
    assert pixels[20:28, 28:36].mean() > pixels[:4, :4].mean() + 60
    wrong = CliRunner().invoke(command, [str(tmp_path / "run"), "--color", "densty"])
    assert isinstance(wrong.exception, InputError)
    assert 'did you mean "density"' in str(wrong.exception)
