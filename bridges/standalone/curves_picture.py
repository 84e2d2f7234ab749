"""Curves picture: hair, grass and threads, lit as fibres that throw shadows on one another.

For the eye strands are lines with a width; for light they are a medium. Few strands stand for many:
where strands are too thin to be seen, they are drawn wider, until they cover what they grow over.
The work is done by loki_vfx.bridges.standalone.kernels.strand_raster, and that of light by
ray_march.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.curves import Curves
from loki_vfx.bridges.standalone.volume_fields import COLOR_CHANNELS, INFERNO, Doubles, Floats
from loki_vfx.bridges.standalone.volume_picture import (
    BACKDROP,
    KEY_COLOR,
    SHADOW_SIZE,
    SKY_COLOR,
    Surfaces,
    View,
    lamp_view,
    to_display,
)

STRAND_COLOR = (0.23, 0.12, 0.058)  # linear: chestnut
SAMPLES = 2  # along each edge of a pixel
PIECE = 4.0  # pixels that a straight piece of a strand is long
MOST_PIECES = 12  # of one edge
MOST_NODES = 6_000_000
THINNEST = 0.35  # pixels of half width; what is thinner is drawn fainter
WIDEST_GROWN = 0.5  # pixels of half width up to which thin strands are drawn wider
COVER = 4.0  # layers of strands that hide what is behind
OPACITY = 0.5  # part of the light that a strand's area takes; the rest goes on forwards
LIGHT_VOXELS = 1_500_000
GLOSS = 0.22


@dataclass(slots=True)
class Strands:
    """Nodes along smoothed curves; segment i runs from node first[i] to the next one.

    Attributes:
        nodes: Places [m], [n, 3].
        tangents: Unit vectors from root to tip [n, 3].
        radius: As drawn [m], [n].
        albedo: Linear colours [n, 3].
        first: First node of each segment [m].
    """

    nodes: Doubles
    tangents: Doubles
    radius: Doubles
    albedo: Doubles
    first: NDArray[np.int64]


@dataclass(slots=True)
class Drawn:
    """Strands as they are seen, SAMPLES x SAMPLES places to a pixel.

    Attributes:
        light: What they send, [h, w, 3].
        clear: What they leave of what stands behind, [h, w].
        front: Depth of the first one along the ray [m], [h, w]; 1e30 where there is none.
    """

    light: Floats
    clear: Floats
    front: Floats


def paint_curves(
    curves: Mapping[str, Curves],
    view: View,
    size: tuple[int, int],
    *,
    bounds: Doubles,
    values: Mapping[str, Doubles] | None = None,
    floor: float | None = None,
    surfaces: Surfaces | None = None,
    lamp_surfaces: Surfaces | None = None,
) -> NDArray[np.uint8]:
    """Return the picture [height, width, 3] of curves, and of surfaces that others have found.

    Args:
        curves: What is drawn, by name.
        view: From where.
        size: Width and height in pixels.
        bounds: Corners of everything that is drawn [m], [2, 3].
        values: Numbers of points, by the name of their curves, that a colour map shows.
        floor: Height of the floor [m]; None for no floor.
        surfaces: Surfaces seen by `view`, twice as many pixels along each edge as the picture has.
        lamp_surfaces: The same surfaces as `lamp_view` sees them, SHADOW_SIZE pixels along an edge.
    """
    from loki_vfx.bridges.standalone.kernels import ray_surfaces, strand_raster

    width, height = size
    solid = surfaces is not None
    seen = surfaces or Surfaces.empty(SAMPLES * height, SAMPLES * width)
    lit = lamp_surfaces or Surfaces.empty(*((SHADOW_SIZE, SHADOW_SIZE) if solid else (0, 0)))
    strands = gather_strands(curves, view, size, values=values)
    stage = _light(strands, view, bounds, lit)
    medium, lamps = stage.medium, stage.lamps
    extent = float(np.max(bounds[1] - bounds[0]))
    if solid:
        ray_surfaces.light_surfaces(
            view.as_array(),
            *medium,
            *lamps,
            0.006 * extent,
            seen.depths,
            seen.normals,
            seen.colors,
        )
    behind = np.empty((height, width, 3))
    ray_surfaces.light_backdrop(
        view.as_array(),
        *medium,
        *lamps,
        0.001 * extent,
        -np.inf if floor is None else floor,
        0.5 * (bounds[0] + bounds[1]),
        extent,
        np.array(BACKDROP),
        behind,
    )
    drawn = _draw(strands, stage, view, seen)
    linear = np.empty((height, width, 3))
    strand_raster.put_behind(seen.depths, seen.colors, behind, drawn.light, drawn.clear, linear)
    return to_display(linear)


def put_strands(
    curves: Mapping[str, Curves],
    view: View,
    size: tuple[int, int],
    *,
    bounds: Doubles,
    surfaces: Surfaces,
    lamp_surfaces: Surfaces,
    values: Mapping[str, Doubles] | None = None,
) -> None:
    """Put lit strands into the buffers of surfaces that smoke is drawn around.

    A place shows a strand or none: of places that strands half cover, every second one does.
    """
    strands = gather_strands(curves, view, size, values=values)
    drawn = _draw(strands, _light(strands, view, bounds, lamp_surfaces), view, surfaces)
    cover = 1.0 - drawn.clear
    rows, columns = np.mgrid[: cover.shape[0], : cover.shape[1]]
    threshold = (52.9829189 * ((0.06711056 * columns + 0.00583715 * rows) % 1.0)) % 1.0
    chosen = (cover > np.maximum(threshold, 0.02)) & (drawn.front < 1e29)
    surfaces.depths[chosen] = drawn.front[chosen]
    surfaces.normals[chosen] = 0.0  # they are lit already
    surfaces.colors[chosen] = drawn.light[chosen] / cover[chosen][:, None]


# -- strands -----------------------------------------------------------------------------------


def gather_strands(
    curves: Mapping[str, Curves],
    view: View,
    size: tuple[int, int],
    *,
    values: Mapping[str, Doubles] | None = None,
) -> Strands:
    """Return all curves as short pieces of smooth strands, wide enough to be seen."""
    parts = [
        _smooth(stream, _albedo(stream, (values or {}).get(name)), view, size)
        for name, stream in curves.items()
    ]
    nodes = np.concatenate([part.nodes for part in parts])
    starts = np.cumsum([0, *(len(part.nodes) for part in parts)])
    strands = Strands(
        nodes=nodes,
        tangents=np.concatenate([part.tangents for part in parts]),
        radius=np.concatenate([part.radius for part in parts]),
        albedo=np.concatenate([part.albedo for part in parts]),
        first=np.concatenate([p.first + start for p, start in zip(parts, starts, strict=False)]),
    )
    strands.radius *= _growths(strands, view, size)
    return strands


def _smooth(stream: Curves, albedo: Doubles, view: View, size: tuple[int, int]) -> Strands:
    """Return cubic pieces through the points of curves (Catmull-Rom over lengths of edges)."""
    x = np.asarray(stream.positions, dtype=np.float64)
    edges = np.asarray(stream.edges(), dtype=np.int64)
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(x).all(axis=1))
    edges = edges[finite[edges].all(axis=1)]
    span = x[edges[:, 1]] - x[edges[:, 0]]
    lengths = np.linalg.norm(span, axis=1)
    edges, span, lengths = edges[lengths > 0.0], span[lengths > 0.0], lengths[lengths > 0.0]
    slopes = np.zeros_like(x)  # dx/ds, unit vectors
    for end in (0, 1):
        np.add.at(slopes, edges[:, end], span / lengths[:, None])
    slopes /= np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), 1e-12)
    pixels = _projected(x, view, size)[:, :2]
    crossed = np.linalg.norm(pixels[edges[:, 1]] - pixels[edges[:, 0]], axis=1)
    typical = float(np.percentile(crossed, 99.0)) if len(crossed) else 1.0
    pieces = int(np.clip(np.ceil(typical / PIECE), 1, MOST_PIECES))
    pieces = max(1, min(pieces, MOST_NODES // max(len(edges), 1) - 1))
    t = np.linspace(0.0, 1.0, pieces + 1)[None, :, None]
    a, b = (x[edges[:, end]][:, None] for end in (0, 1))
    slope_a, slope_b = (lengths[:, None, None] * slopes[edges[:, end]][:, None] for end in (0, 1))
    nodes = (
        a * (2 * t**3 - 3 * t**2 + 1)
        + slope_a * (t**3 - 2 * t**2 + t)
        + b * (3 * t**2 - 2 * t**3)
        + slope_b * (t**3 - t**2)
    )
    tangents = (
        (b - a) * (6 * t - 6 * t**2)
        + slope_a * (3 * t**2 - 4 * t + 1)
        + slope_b * (3 * t**2 - 2 * t)
    )
    tangents /= np.maximum(np.linalg.norm(tangents, axis=2, keepdims=True), 1e-12)
    mix = t[..., 0]
    radius = _radius(stream)
    radii = radius[edges[:, 0]][:, None] * (1.0 - mix) + radius[edges[:, 1]][:, None] * mix
    colors = albedo[edges[:, 0]][:, None] * (1.0 - t) + albedo[edges[:, 1]][:, None] * t
    first = np.arange(len(edges))[:, None] * (pieces + 1) + np.arange(pieces)
    return Strands(
        nodes.reshape(-1, 3),
        tangents.reshape(-1, 3),
        radii.reshape(-1),
        colors.reshape(-1, 3),
        first.reshape(-1),
    )


def _radius(stream: Curves) -> Doubles:
    """Return the radius of points [m]; where there is none, one that grows to what can be seen."""
    radius = stream.channels["point"].get("radius")
    if radius is None or radius.ndim != 1 or not np.any(radius > 0.0):
        return np.full(stream.point_count, 1e-9)
    return np.maximum(np.nan_to_num(np.asarray(radius, dtype=np.float64), posinf=0.0), 0.0)


def _albedo(stream: Curves, values: Doubles | None) -> Doubles:
    """Return colours of points: of a colour map, of a channel, or of hair; strands differ a bit."""
    if values is not None:
        return _mapped(values)
    # numbers that depend on the strand alone: fractions of multiples of irrational numbers
    index = np.arange(stream.primitive_count) + 1.0
    bright = 0.78 + 0.44 * (index * 0.754877666 % 1.0)
    warm = 0.06 * (2.0 * (index * 0.569840291 % 1.0) - 1.0)
    tint = np.column_stack((1.0 + warm, np.ones_like(warm), 1.0 - 1.5 * warm)) * bright[:, None]
    # roots lie in the shade of strands that the medium is too coarse to show
    fade = 0.55 + 0.45 * np.clip(_along(stream) / 0.35, 0.0, 1.0)
    return np.asarray(_own_colors(stream) * tint[stream.curve_of_point()] * fade[:, None])


def color_channel(stream: Curves) -> tuple[str, str] | None:
    """Return location and name of the channel that gives curves their own colours, if any."""
    for name in COLOR_CHANNELS:
        for location in ("point", "primitive"):
            found = stream.channels[location].get(name)
            if found is not None and found.ndim == 2 and found.shape[1] == 3:
                return location, name
    return None


def _own_colors(stream: Curves) -> Doubles:
    place = color_channel(stream)
    if place is None:
        return np.tile(STRAND_COLOR, (stream.point_count, 1))
    location, name = place
    found = stream.channels[location][name]
    whole = np.iinfo(found.dtype).max if found.dtype.kind in "iu" else 1.0
    colors = np.clip(np.nan_to_num(np.asarray(found, dtype=np.float64) / whole), 0.0, 1.0)
    return colors if location == "point" else colors[stream.curve_of_point()]


def _along(stream: Curves) -> Doubles:
    """Return where points stand on their curve: 0 at the root, 1 at the tip."""
    counts = np.diff(stream.offsets)
    place = np.arange(stream.point_count) - np.repeat(stream.offsets[:-1], counts)
    return np.asarray(place / np.repeat(np.maximum(counts - 1, 1), counts))


def _mapped(values: Doubles) -> Doubles:
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, (1.0, 99.0)) if finite.size else (0.0, 1.0)
    place = (np.nan_to_num(values) - low) / max(high - low, 1e-30)
    place = 0.2 + 0.8 * np.clip(place, 0.0, 1.0)  # the darkest colours of the map are hard to see
    knots = np.linspace(0.0, 1.0, len(INFERNO))
    return np.column_stack(
        [np.interp(place, knots, [c[i] for c in INFERNO]) ** 2.2 for i in range(3)]
    )


def _growths(strands: Strands, view: View, size: tuple[int, int]) -> Doubles:
    """Return by how much nodes are drawn wider: thin ones, not what is wide enough by itself."""
    screen = _projected(strands.nodes, view, size, strands.radius)
    radii = screen[:, 3]
    first = strands.first[radii[strands.first] < WIDEST_GROWN]
    lengths = np.linalg.norm(screen[first + 1, :2] - screen[first, :2], axis=1)
    covered = float(np.sum(lengths * (radii[first] + radii[first + 1])))
    if covered <= 0.0:
        return np.ones(len(radii))
    cell = max(4, size[1] // 60)
    ends = np.concatenate((screen[first, :2], screen[first + 1, :2]))
    places = np.clip(ends // cell, -1, 1 + max(size) // cell).astype(np.int64)
    grown_over = cell**2 * len(np.unique(places, axis=0))
    most = WIDEST_GROWN / max(float(np.median(radii[first])), 1e-30)
    growth = max(1.0, min(COVER * grown_over / covered, most))
    alone = np.maximum(WIDEST_GROWN / np.maximum(radii, 1e-30), 1.0)
    return np.asarray(np.minimum(growth, alone))


def _projected(
    nodes: Doubles, view: View, size: tuple[int, int], radius: Doubles | None = None
) -> Doubles:
    """Return column, row, depth [m] and radius in pixels of places, [n, 4]."""
    from loki_vfx.bridges.standalone.kernels import strand_raster

    screen = np.empty((len(nodes), 4))
    radii = np.zeros(len(nodes)) if radius is None else radius
    strand_raster.project_nodes(view.as_array(), size[1], size[0], nodes, radii, screen)
    return screen


# -- light -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stage:
    medium: tuple[Any, ...]  # density, occupied, lattice, extinction: as ray_surfaces takes them
    lamps: tuple[Any, ...]  # towards, strength, the lamp's camera, depths of surfaces it sees
    light_lattice: Doubles
    tau_key: Floats
    tau_sky: Floats


def _light(strands: Strands, view: View, bounds: Doubles, lit: Surfaces) -> _Stage:
    """Return the strands as a medium, and how much of it lies towards lamp and sky."""
    from loki_vfx.bridges.standalone.kernels import ray_march, strand_raster

    lattice, density = _lattice(strands)
    strand_raster.splat_strands(strands.nodes, strands.radius, strands.first, lattice, density)
    occupied = np.empty([-(-n // ray_march.CELL) for n in density.shape], np.bool_)
    ray_march.mark_occupied(density, 0.0, occupied)
    lamp = lamp_view(view, bounds)
    sky = np.array([0.1, 1.0, 0.05])
    towards = np.stack([-lamp.forward, sky / np.linalg.norm(sky)])
    medium = (density, occupied, lattice, OPACITY)
    lamps = (towards, np.array([KEY_COLOR, SKY_COLOR]), lamp.as_array(), lit.depths)
    bias = 0.006 * float(np.max(bounds[1] - bounds[0]))
    tau_key, tau_sky = np.empty_like(density), np.empty_like(density)
    camera, nothing = lamp.as_array(), np.empty((0, 0), np.float32)
    ray_march.fill_light_volume(*medium, 1.0, towards[0], camera, lit.depths, bias, tau_key)
    # solids hide little of the sky
    ray_march.fill_light_volume(*medium, 1.0, towards[1], camera, nothing, bias, tau_sky)
    return _Stage(medium, lamps, lattice, tau_key, tau_sky)


def _lattice(strands: Strands) -> tuple[Doubles, Floats]:
    """Return origin and voxel size of a box around strands, and empty voxels in it."""
    if len(strands.nodes) == 0:
        return np.array([0.0, 0.0, 0.0, 1.0]), np.zeros((2, 2, 2), np.float32)
    low, high = strands.nodes.min(axis=0), strands.nodes.max(axis=0)
    h = max(float(np.max(high - low)), 1e-6) / 240.0
    shape = np.ceil((high - low) / h).astype(np.int64) + 4
    while np.prod(shape) > LIGHT_VOXELS:
        h *= 1.05
        shape = np.ceil((high - low) / h).astype(np.int64) + 4
    origin = 0.5 * (low + high) - 0.5 * h * shape
    return np.array([*origin, h]), np.zeros(shape, np.float32)


def _draw(strands: Strands, stage: _Stage, view: View, seen: Surfaces) -> Drawn:
    from loki_vfx.bridges.standalone.kernels import strand_raster

    height, width = seen.depths.shape
    camera = view.as_array()
    colors = np.empty_like(strands.nodes)
    strand_raster.light_strands(
        camera,
        strands.nodes,
        strands.tangents,
        strands.albedo,
        stage.light_lattice,
        stage.tau_key,
        stage.tau_sky,
        stage.lamps[0],
        stage.lamps[1],
        GLOSS,
        colors,
    )
    screen = _projected(strands.nodes, view, (width, height), strands.radius)
    depth = screen[strands.first, 2] + screen[strands.first + 1, 2]
    first = strands.first[np.argsort(depth, kind="stable")]
    thinnest = SAMPLES * THINNEST
    starts = np.zeros(-(-height // strand_raster.BAND) + 1, np.int64)
    strand_raster.count_bands(screen, first, thinnest, height, starts[1:])
    np.cumsum(starts, out=starts)
    nodes = np.empty(starts[-1], np.int64)
    strand_raster.fill_bands(screen, first, thinnest, height, starts[:-1].copy(), nodes)
    drawn = Drawn(
        np.zeros((height, width, 3), np.float32),
        np.ones((height, width), np.float32),
        np.full((height, width), 1e30, np.float32),
    )
    strand_raster.draw_strands(
        camera,
        screen,
        colors,
        starts,
        nodes,
        thinnest,
        seen.depths,
        drawn.light,
        drawn.clear,
        drawn.front,
    )
    return drawn
