"""Pictures of curves: strands cover what they cover, shade one another, and hide behind solids."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loki_core.data.curves import Curves
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_core.kernels.jit import set_thread_count, thread_count
from loki_vfx.bridges.standalone.curves_picture import (
    SAMPLES,
    color_channel,
    gather_strands,
    paint_curves,
)
from loki_vfx.bridges.standalone.kernels import strand_raster
from loki_vfx.bridges.standalone.volume_picture import Surfaces, View

pytestmark = pytest.mark.compiles

SIZE = (64, 48)
BOUNDS = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
FRONT = View(  # looks along -z at the middle of the unit cube
    position=np.array([0.5, 0.5, 4.0]),
    right=np.array([1.0, 0.0, 0.0]),
    upward=np.array([0.0, 1.0, 0.0]),
    forward=np.array([0.0, 0.0, -1.0]),
    slope=0.18,
    aspect=SIZE[0] / SIZE[1],
)
FLAT = View(FRONT.position, FRONT.right, FRONT.upward, FRONT.forward, wide=0.5, aspect=1.0)


def bundle(count: int = 400, *, z: float = 0.5, spread: float = 0.15) -> Curves:
    """Return upright strands that fill a column in the middle."""
    random = np.random.default_rng(3)
    x, depth = 0.5 + spread * (2.0 * random.random((2, count)) - 1.0)
    y = np.linspace(0.9, 0.1, 9)
    strands = np.empty((count, 9, 3))
    strands[..., 0], strands[..., 1] = x[:, None], y
    strands[..., 2] = depth[:, None] + z - 0.5
    curves = Curves.from_strands(strands)
    curves.set_channel("point", "radius", np.full(curves.point_count, 2.0e-3))
    return curves


def painted(curves: Curves, **options) -> np.ndarray:
    options.setdefault("bounds", BOUNDS)
    return paint_curves({"hair": curves}, FRONT, SIZE, **options).astype(int)


def draw(
    nodes: np.ndarray,
    radius: np.ndarray,
    *,
    rows: int = 64,
    depth: float = 1e30,
    colors: np.ndarray | None = None,
    thinnest: float = 0.5,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw one polyline as the parallel view FLAT sees it; return light, clear and front."""
    screen = np.empty((len(nodes), 4))
    strand_raster.project_nodes(FLAT.as_array(), rows, rows, nodes, radius, screen)
    first = np.arange(len(nodes) - 1)
    first = first[np.argsort(screen[first, 2] + screen[first + 1, 2], kind="stable")]
    starts = np.zeros(-(-rows // strand_raster.BAND) + 1, np.int64)
    strand_raster.count_bands(screen, first, thinnest, rows, starts[1:])
    np.cumsum(starts, out=starts)
    listed = np.empty(starts[-1], np.int64)
    strand_raster.fill_bands(screen, first, thinnest, rows, starts[:-1].copy(), listed)
    light = np.zeros((rows, rows, 3), np.float32)
    clear = np.ones((rows, rows), np.float32)
    front = np.full((rows, rows), 1e30, np.float32)
    strand_raster.draw_strands(
        FLAT.as_array(),
        screen,
        np.ones_like(nodes) if colors is None else colors,
        starts,
        listed,
        thinnest,
        np.full((rows, rows), depth, np.float32),
        light,
        clear,
        front,
    )
    return light, clear, front


def turned_line(degrees: float, pieces: int = 6) -> np.ndarray:
    angle = np.radians(degrees)
    t = np.linspace(-0.3, 0.3, pieces + 1)
    return np.stack(
        (0.5 + t * np.cos(angle), 0.5 + t * np.sin(angle), np.full_like(t, 0.25)), axis=1
    )


# -- coverage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [0.0, 17.0, 45.0, 71.0, 90.0])
@pytest.mark.parametrize("radius", [1.0e-4, 4.0e-3, 0.02, 0.06])
def test_a_strand_covers_its_length_times_its_width(degrees, radius):
    # the same area at any angle, however thin, cut into pieces or not
    nodes = turned_line(degrees)
    _, clear, _ = draw(nodes, np.full(len(nodes), radius))
    area = float(np.sum(1.0 - clear)) / 64.0**2  # m^2: the picture is 1 m wide
    # its ends are cut at pixels: one of 38 or, at 45 degrees, of 54 along it
    assert area == pytest.approx(0.6 * 2.0 * radius, rel=1.0 / 38.0)


def test_pieces_meet_without_beads():
    whole, pieces = turned_line(31.0, 1), turned_line(31.0, 13)
    _, one, _ = draw(whole, np.full(len(whole), 2.0e-3))
    _, many, _ = draw(pieces, np.full(len(pieces), 2.0e-3))
    np.testing.assert_allclose(many, one, atol=1e-5)


def test_the_first_strand_hides_the_second_and_thin_ones_add_up():
    across = np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.8], [0.8, 0.5, 0.2], [0.2, 0.5, 0.2]])
    colors = np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0], [0, 1.0, 0]])
    light, clear, front = draw(across, np.full(4, 0.05), colors=colors)
    np.testing.assert_allclose(light[32, 32], (1.0, 0.0, 0.0), atol=0.02)  # it is round
    assert clear[32, 32] < 0.01
    assert front[32, 32] == pytest.approx(4.0 - 0.8, rel=1e-6)  # red is nearer to the eye
    # a second strand covers as large a part of what the first one left
    light, clear, _ = draw(across, np.full(4, 0.25 / 64.0), colors=colors)
    row = np.argmin(clear[:, 32])
    a = 1.0 - np.sqrt(float(clear[row, 32]))
    np.testing.assert_allclose(light[row, 32], (a, a * (1.0 - a), 0.0), atol=1e-4)


def test_strands_behind_a_surface_are_not_seen():
    nodes = turned_line(20.0)  # 3.75 m from the eye
    radius = np.full(len(nodes), 0.02)
    assert np.all(draw(nodes, radius, depth=3.7)[1] == 1.0)
    assert draw(nodes, radius, depth=3.8)[1].min() < 0.01


def test_nodes_are_projected_where_rays_go():
    nodes = np.random.default_rng(5).uniform(0.0, 1.0, (50, 3))
    screen = np.empty((50, 4))
    strand_raster.project_nodes(FRONT.as_array(), 48, 64, nodes, np.full(50, 0.01), screen)
    x = (2.0 * screen[:, 0] + 1.0) / 64.0 - 1.0
    y = 1.0 - (2.0 * screen[:, 1] + 1.0) / 48.0
    depth = screen[:, 2:3]
    aside = FRONT.slope * (FRONT.aspect * x[:, None] * FRONT.right + y[:, None] * FRONT.upward)
    np.testing.assert_allclose(FRONT.position + depth * (FRONT.forward + aside), nodes, atol=1e-12)
    np.testing.assert_allclose(screen[:, 3], 24.0 * 0.01 / (FRONT.slope * screen[:, 2]), rtol=1e-12)


# -- light -------------------------------------------------------------------------------------


def test_the_medium_holds_the_area_of_all_strands():
    nodes = np.random.default_rng(6).uniform(0.2, 0.8, (40, 3))
    radius = np.linspace(1e-3, 2e-3, 40)
    first = np.arange(39)
    density = np.zeros((20, 20, 20), np.float32)
    lattice = np.array([0.0, 0.0, 0.0, 0.05])
    strand_raster.splat_strands(nodes, radius, first, lattice, density)
    lengths = np.linalg.norm(np.diff(nodes, axis=0), axis=1)
    area = np.sum(lengths * (radius[1:] + radius[:-1]))
    assert float(density.sum(dtype=np.float64)) * 0.05**3 == pytest.approx(area, rel=1e-5)


def lit(tangent: tuple[float, float, float], *, tau: float = 0.0, gloss: float = 0.0) -> float:
    direction = np.array([tangent]) / np.linalg.norm(tangent)
    depths = np.full((2, 2, 2), tau, np.float32)
    colors = np.empty((1, 3))
    strand_raster.light_strands(
        FLAT.as_array(),
        np.array([[0.5, 0.5, 0.5]]),
        direction,
        np.full((1, 3), 0.3),
        np.array([0.0, 0.0, 0.0, 0.5]),
        depths,
        depths,
        np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]),
        np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]),
        gloss,
        colors,
    )
    return float(colors[0, 0])


@pytest.mark.slow
def test_diffuse_light_goes_with_the_sine_between_strand_and_lamp():
    dark = lit((0.0, 1.0, 0.0))  # along the light: only what others scatter
    full = lit((1.0, 0.0, 0.0)) - dark
    for degrees in (20.0, 50.0, 70.0):
        angle = np.radians(degrees)
        part = lit((np.sin(angle), np.cos(angle), 0.0)) - dark
        assert part == pytest.approx(full * np.sin(angle), rel=1e-6)
    assert dark > 0.0 and full > 2.0 * dark


def test_the_highlight_is_shifted_from_where_a_mirror_would_show_it():
    # lamp above, eye in front: a mirror would be brightest where the strand leans by 45 degrees
    angles = np.radians(np.arange(-89.0, 90.0))
    gloss = np.array(
        [
            lit((0.0, np.sin(a), np.cos(a)), gloss=1.0) - lit((0.0, np.sin(a), np.cos(a)))
            for a in angles
        ]
    )
    brightest = np.degrees(angles[np.argmax(gloss)])
    assert -60.0 < brightest < -46.0 or -44.0 < brightest < -30.0
    assert gloss.min() >= 0.0


@pytest.mark.slow
def test_strands_shade_what_is_behind_them():
    assert lit((1.0, 0.0, 0.0)) > lit((1.0, 0.0, 0.0), tau=1.0) > lit((1.0, 0.0, 0.0), tau=4.0)
    picture = painted(bundle()).sum(axis=2)
    row = picture[SIZE[1] // 2]
    near, far = row[25:31].mean(), row[33:39].mean()  # the lamp stands to the left
    assert near > 1.1 * far


# -- whole pictures ----------------------------------------------------------------------------


def test_few_strands_are_drawn_wide_enough_to_be_seen():
    thin = bundle(3)
    thin.channels["point"]["radius"][:] = 1.0e-6
    empty = painted(Curves.from_strands(np.full((1, 2, 3), 0.5)))
    assert np.abs(painted(thin) - empty).max() > 25
    radius = gather_strands({"hair": thin}, FRONT, SIZE).radius
    wide = bundle(3)
    wide.channels["point"]["radius"][:] = 0.05
    np.testing.assert_allclose(gather_strands({"hair": wide}, FRONT, SIZE).radius, 0.05)
    assert 1.0e-3 < radius.max() < 0.03


def test_thick_strands_beside_thin_ones_keep_their_width():
    thin, thick = bundle(40), bundle(2)
    thin.channels["point"]["radius"][:] = 1.0e-5
    thick.channels["point"]["radius"][:] = 0.02
    together = gather_strands({"thin": thin, "thick": thick}, FRONT, SIZE)
    alone = gather_strands({"thin": thin}, FRONT, SIZE).radius
    np.testing.assert_allclose(together.radius[len(alone) :], 0.02)
    assert together.radius[: len(alone)].min() > 1.0e-3  # which are drawn wider


@pytest.mark.parametrize("count", [1, 60, 100_000])
def test_points_are_drawn_as_large_as_they_are(count):
    from loki_core.data.points import Points
    from loki_vfx.bridges.standalone.mesh_picture import drawn_radius

    sparks = Points(np.random.default_rng(1).random((count, 3)))
    assert drawn_radius(sparks, BOUNDS) <= 0.02  # nobody knows how large they are
    for own, largest in ((1.0e-5, 0.003), (1.0e-3, 0.003), (0.01, 0.01), (1.0, 0.05)):
        sparks.set_channel("point", "radius", np.full(count, own))
        assert max(min(own, 0.05), 0.0012) <= drawn_radius(sparks, BOUNDS) <= largest


def test_smooth_strands_go_through_their_points():
    t = np.linspace(0.0, 2.0, 12)
    helix = np.stack((0.5 + 0.2 * np.cos(3 * t), 0.2 + 0.3 * t, 0.5 + 0.2 * np.sin(3 * t)), axis=1)
    strands = gather_strands({"hair": Curves.from_strands(helix[None])}, FRONT, (1280, 960))
    apart = np.linalg.norm(helix[:, None] - strands.nodes[None], axis=2).min(axis=1)
    assert apart.max() < 1e-12
    np.testing.assert_allclose(np.linalg.norm(strands.tangents, axis=1), 1.0, atol=1e-9)
    inner = strands.nodes[np.abs(strands.nodes[:, 1] - 0.5) < 0.2]
    off = np.hypot(inner[:, 0] - 0.5, inner[:, 2] - 0.5)
    assert np.abs(off - 0.2).max() < 0.0008  # the chords of the polyline leave it by 0.007


def test_pictures_do_not_depend_on_threads():
    threads = thread_count()
    many = painted(bundle(), floor=0.0)
    try:
        set_thread_count(1)
        one = painted(bundle(), floor=0.0)
    finally:
        set_thread_count(threads)
    np.testing.assert_array_equal(many, one)


def test_a_surface_hides_strands_and_they_throw_shadows():
    height, width = SAMPLES * SIZE[1], SAMPLES * SIZE[0]
    wall = Surfaces.empty(height, width)
    wall.depths[:], wall.normals[..., 2], wall.colors[:] = 3.2, 1.0, 0.5
    before = painted(bundle(z=0.5), surfaces=wall)
    assert np.ptp(before[SIZE[1] // 2].sum(axis=1)) < 60  # an even wall, but for shadows
    floor = painted(bundle(), floor=0.05).sum(axis=2)
    bare = painted(bundle(1, z=-50.0), floor=0.05).sum(axis=2)
    assert (bare - floor)[-14:, SIZE[0] // 2 :].max() > 20


def test_strands_take_their_colours_from_channels():
    plain, red = bundle(), bundle()
    red.set_channel("primitive", "Cd", np.tile((0.5, 0.0, 0.0), (red.primitive_count, 1)))
    assert color_channel(plain) is None and color_channel(red) == ("primitive", "Cd")
    middle = (slice(20, 28), slice(28, 36))
    here = painted(red)[middle].mean(axis=(0, 1))
    assert here[0] > 2.0 * here[1]
    ramp = {"hair": plain.positions[:, 0].astype(np.float64)}
    picture = painted(plain, values=ramp)
    left, right = picture[24, 25:29].mean(axis=0), picture[24, 35:39].mean(axis=0)
    assert right[1] > 1.3 * left[1]  # from violet to yellow


def test_odd_curves_do_not_break_a_picture():
    broken = bundle(20)
    broken.positions[7] = np.nan
    broken.positions[30] = broken.positions[31]
    assert painted(broken).shape == (SIZE[1], SIZE[0], 3)
    closed = Curves(np.random.default_rng(1).random((9, 3)), [0, 4, 4, 9], [True, False, True])
    assert painted(closed).shape == (SIZE[1], SIZE[0], 3)
    behind = bundle(5)
    behind.positions[:, 2] += 10.0  # at the back of the eye
    np.testing.assert_array_equal(painted(behind), painted(Curves.from_strands(behind_eye())))


def behind_eye() -> np.ndarray:
    return np.array([[[0.5, 0.5, 14.0], [0.5, 0.6, 14.0]]])


@pytest.mark.slow
def test_preview_of_a_cache_of_curves(tmp_path: Path) -> None:
    pytest.importorskip("pyvista")
    from click.testing import CliRunner
    from PIL import Image

    from loki_vfx.bridges.standalone.preview_command import command
    from loki_vfx.serialization.frame_cache import FrameCacheWriter, Manifest

    hair = bundle()
    hair.set_channel("point", "velocity", np.ones((hair.point_count, 3)))
    quad = np.array([[0.0, 0.05, 0.0], [0.0, 0.05, 1.0], [1.0, 0.05, 1.0], [1.0, 0.05, 0.0]])
    plate = Surface.from_faces(quad, [[0, 1, 2, 3]])
    plate.set_channel("point", "Cd", np.tile((0.0, 0.6, 0.0), (4, 1)))
    smoke = np.full((8, 8, 8), 0.3, np.float32)
    streams = {"scene/Hair": hair, "scene/Plate": plate}
    about = Manifest(setup_hash="a" * 64, setup={}, units={"length": "m"}, fps=24.0)
    with FrameCacheWriter(tmp_path / "run", about) as writer:
        writer.write_frame(1, streams, statistics={})
        cloud = Voxels.from_dense({"density": smoke}, (0.0, 0.0, 0.0), 0.125)
        writer.write_frame(2, {**streams, "scene/Smoke": cloud}, statistics={})

    def preview(*words: str) -> tuple[dict[str, str | None], np.ndarray]:
        target = tmp_path / "picture.png"
        options = [str(tmp_path / "run"), "--size", "96x72", "--output", str(target), "--json"]
        done = CliRunner().invoke(command, [*options, *words], catch_exceptions=False)
        told = {one["object"]: one["color"] for one in json.loads(done.output)["objects"]}
        return told, np.asarray(Image.open(target)).astype(int)

    told, picture = preview("--frame", "1")
    assert told == {"scene/Hair": None, "scene/Plate": "Cd"}
    assert picture.shape == (72, 96, 3)
    red, green, blue = picture.reshape(-1, 3).T
    assert np.sum(green > 1.5 * np.maximum(red, blue)) > 100  # the plate
    assert np.sum(red > 1.4 * blue) > 100  # hair is brown
    told, _ = preview("--frame", "1", "--color", "speed")
    assert told["scene/Hair"] == "speed"
    told, with_smoke = preview("--frame", "2")
    assert told == {"scene/Hair": None, "scene/Plate": "Cd", "scene/Smoke": "density"}
    assert np.abs(with_smoke - picture).max() > 30
    with pytest.raises(InputError, match="did you mean"):
        CliRunner().invoke(
            command, [str(tmp_path / "run"), "--color", "sped"], catch_exceptions=False
        )
