"""Volume picture: smoke, and surfaces in and around it, lit by one lamp and the sky.

A Voxels stream with a "density" is smoke; one with a "distance" and no density is a level set, of
which the surface is drawn. Smoke that holds a temperature beyond 800 K glows. Other channels give
smoke its colour. The work is done by loki_vfx.bridges.standalone.kernels.ray_march.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.voxels import Voxels
from loki_vfx.bridges.standalone.volume_fields import (
    CUT,
    DenseField,
    Doubles,
    Floats,
    gather_smoke,
    level_set,
    level_set_colors,
    own_colors,
)

LIGHT_VOXELS = 700_000  # of the light volume
SHADOW_SIZE = 1024  # pixels of the picture that the lamp sees
OPAQUE = 10.0  # optical depth of the thickest part of a cloud
SOLID_COLOR = (0.42, 0.36, 0.31)
KEY_COLOR = (0.98, 0.92, 0.83)
SKY_COLOR = (0.085, 0.105, 0.135)
BACKDROP = ((0.115, 0.122, 0.132), (0.030, 0.034, 0.040))  # linear, lower and upper edge


@dataclass(slots=True)
class View:
    """Where a picture is seen from: orthonormal axes, and what half its height is.

    Attributes:
        position: The eye [m].
        right: To the right in the picture.
        upward: To its upper edge.
        forward: Into it.
        slope: Half the height over the depth, of a perspective view; 0 for a parallel one.
        wide: Half the height [m] of a parallel view; 0 for a perspective one.
        aspect: Width over height.
    """

    position: Doubles
    right: Doubles
    upward: Doubles
    forward: Doubles
    slope: float = 0.0
    wide: float = 0.0
    aspect: float = 1.0

    def as_array(self) -> Doubles:
        """Return the view as kernels take it, shape [5, 3]."""
        last = (self.wide, self.slope, self.aspect)
        return np.array([self.position, self.right, self.upward, self.forward, last])


@dataclass(slots=True)
class Surfaces:
    """The nearest surface behind every place of a picture.

    Attributes:
        depths: Length along the ray [m], [h, w]; 1e30 where there is none.
        normals: Unit vectors [h, w, 3]; 0 where a surface glows by itself.
        colors: Linear colours [h, w, 3].
    """

    depths: Floats
    normals: Floats
    colors: Floats

    @classmethod
    def empty(cls, height: int, width: int) -> Surfaces:
        """Return buffers in which nothing is seen."""
        return cls(
            np.full((height, width), 1e30, np.float32),
            np.zeros((height, width, 3), np.float32),
            np.zeros((height, width, 3), np.float32),
        )


@dataclass(slots=True)
class Volumes:
    """The Voxels streams of a picture, by how they are drawn."""

    smoke: dict[str, Voxels] = field(default_factory=dict)
    level_sets: dict[str, Voxels] = field(default_factory=dict)


def sort_volumes(streams: Mapping[str, Any]) -> Volumes:
    """Return which Voxels streams are smoke, and which are level sets of solids."""
    found = Volumes()
    for path, stream in streams.items():
        if isinstance(stream, Voxels) and stream.block_count and stream.channels:
            solid = "distance" in stream.channels and "density" not in stream.channels
            (found.level_sets if solid else found.smoke)[path] = stream
    return found


def paint_volumes(
    volumes: Volumes,
    view: View,
    size: tuple[int, int],
    *,
    bounds: Doubles,
    color: str | None = None,
    floor: float | None = None,
    extinction: float | None = None,
    surfaces: Surfaces | None = None,
    lamp_surfaces: Surfaces | None = None,
) -> NDArray[np.uint8]:
    """Return the picture [height, width, 3] of volumes, and of surfaces that others have found.

    Args:
        volumes: What is drawn.
        view: From where.
        size: Width and height in pixels.
        bounds: Corners of everything that is drawn [m], [2, 3].
        color: The channel that colours the smoke; by default only what glows has a colour.
        floor: Height of the floor [m]; None for no floor.
        extinction: Of smoke of density 1 [1/m]; by default so that the cloud is just opaque.
        surfaces: Surfaces seen by `view`, twice as many pixels along each edge as the picture has.
        lamp_surfaces: The same surfaces as `lamp_view` sees them, SHADOW_SIZE pixels along an edge.
    """
    from loki_vfx.bridges.standalone.kernels import ray_march, ray_surfaces

    width, height = size
    smoke = gather_smoke(list(volumes.smoke.values()), color)
    density = smoke.density
    occupied = _occupied(density.values)
    sigma = extinction if extinction is not None else _just_opaque(density)
    lamp = lamp_view(view, bounds)
    towards = np.stack([-lamp.forward, _unit(np.array([0.1, 1.0, 0.05]))])
    strength = np.array([KEY_COLOR, SKY_COLOR])
    solid = bool(volumes.level_sets) or surfaces is not None
    lit = lamp_surfaces or Surfaces.empty(*((SHADOW_SIZE, SHADOW_SIZE) if solid else (0, 0)))
    scale = 2 if solid else 1  # edges of solids are softened; those of smoke are soft
    seen = surfaces or Surfaces.empty(scale * height, scale * width)
    for stream in volumes.level_sets.values():
        before = seen.depths.copy()
        _find_level_set(level_set(stream), ((view, seen), (lamp, lit)))
        if own_colors(stream) is not None:
            _color_level_set(stream, view, seen, seen.depths < before)
    extent = float(np.max(bounds[1] - bounds[0]))
    medium = (density.values, occupied, density.lattice(), sigma)
    lamps = (towards, strength, lamp.as_array(), lit.depths)
    ratio, tau_key, tau_sky = _light_volumes(medium, lamps, 0.01 * extent)
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
    ground = -np.inf if floor is None else floor
    behind = np.empty((height, width, 3))
    ray_surfaces.light_backdrop(
        view.as_array(),
        *medium,
        *lamps,
        0.001 * extent,
        ground,
        0.5 * (bounds[0] + bounds[1]),
        extent,
        np.array(BACKDROP),
        behind,
    )
    linear = np.empty((height, width, 3))
    ray_march.march_picture(
        view.as_array(),
        density.values,
        smoke.tint,
        occupied,
        density.lattice(),
        tau_key,
        tau_sky,
        ratio,
        towards,
        strength,
        sigma,
        smoke.ramp,
        np.array(smoke.ramp_range),
        8.0 / extent,
        seen.depths,
        seen.colors,
        ground,
        behind,
        linear,
    )
    return to_display(linear)


def lamp_view(view: View, bounds: Doubles) -> View:
    """Return the parallel view of the key lamp, which stands above, to the left of the eye."""
    side = _unit(view.right * (1.0, 0.0, 1.0))
    away = np.cross((0.0, 1.0, 0.0), side)
    towards = _unit(np.array([0.0, 0.75, 0.0]) - 0.75 * side - 0.1 * away)
    middle = 0.5 * (bounds[0] + bounds[1])
    radius = 0.55 * float(np.linalg.norm(bounds[1] - bounds[0]))
    right = _unit(np.cross(-towards, (0.0, 1.0, 0.0)))
    return View(
        position=middle + 3.0 * radius * towards,
        right=right,
        upward=np.cross(right, -towards),
        forward=-towards,
        wide=radius,
    )


def to_display(linear: Doubles) -> NDArray[np.uint8]:
    """Return linear colours as 8 bits of sRGB, their highlights rolled off."""
    x = np.maximum(linear, 0.0)
    # the curve of Narkowicz, "ACES Filmic Tone Mapping Curve" (2016)
    x = np.clip(x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14), 0.0, 1.0)
    x = np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1.0 / 2.4) - 0.055)
    rows, columns = np.mgrid[: x.shape[0], : x.shape[1]]
    # less than a step of noise keeps a soft gradient from showing bands
    grain = (52.9829189 * ((0.06711056 * columns + 0.00583715 * rows) % 1.0)) % 1.0
    return np.asarray(np.clip(np.floor(255.0 * x + grain[..., None]), 0, 255), dtype=np.uint8)


# -- light -------------------------------------------------------------------------------------


def _occupied(density: Floats) -> NDArray[np.bool_]:
    """Return which cells of 8 x 8 x 8 voxels rays must look into."""
    from loki_vfx.bridges.standalone.kernels import ray_march

    occupied = np.empty([-(-n // ray_march.CELL) for n in density.shape], np.bool_)
    ray_march.mark_occupied(density, CUT * float(density.max(initial=0.0)), occupied)
    return occupied


def _just_opaque(density: DenseField) -> float:
    """Return the extinction [1/m] of density 1 that makes the thickest part of a cloud opaque."""
    depths: list[float] = []
    for axis in range(3):
        columns: Floats = np.sum(density.values, axis=axis) * density.voxel_size
        crossed = columns[columns > 0.05 * columns.max(initial=0.0)]
        depths.append(float(np.percentile(crossed, 95.0)) if crossed.size else 0.0)
    depth = sorted(depths)[1]
    return OPAQUE / depth if depth > 0.0 else 0.0


def _light_volumes(
    medium: tuple[Any, ...], lamps: tuple[Any, ...], bias: float
) -> tuple[float, Floats, Floats]:
    """Return how many voxels a coarse one spans, and optical depths towards lamp and sky."""
    from loki_vfx.bridges.standalone.kernels import ray_march

    density: Floats = medium[0]
    towards, _, lamp, lamp_depths = lamps
    ratio = max(1.0, (density.size / LIGHT_VOXELS) ** (1.0 / 3.0))
    shape = [max(2, int(np.ceil(n / ratio))) for n in density.shape]
    key, sky = np.empty(shape, np.float32), np.empty(shape, np.float32)
    ray_march.fill_light_volume(*medium, ratio, towards[0], lamp, lamp_depths, bias, key)
    # solids hide little of the sky
    nothing = np.empty((0, 0), np.float32)
    ray_march.fill_light_volume(*medium, ratio, towards[1], lamp, nothing, bias, sky)
    return ratio, key, sky


def _find_level_set(distance: DenseField, views: tuple[tuple[View, Surfaces], ...]) -> None:
    """Put a level set into the buffers of surfaces that eye and lamp see."""
    from loki_vfx.bridges.standalone.kernels import ray_surfaces

    for view, target in views:
        ray_surfaces.trace_level_set(
            view.as_array(),
            distance.values,
            distance.lattice(),
            np.array(SOLID_COLOR),
            target.depths,
            target.normals,
            target.colors,
        )


def _color_level_set(stream: Voxels, view: View, seen: Surfaces, chosen: NDArray[np.bool_]) -> None:
    """Give the places of a perspective view where a level set is seen its own colours."""
    rows, columns = np.nonzero(chosen)
    height, width = chosen.shape
    x = view.aspect * view.slope * ((2.0 * columns + 1.0) / width - 1.0)
    y = view.slope * (1.0 - (2.0 * rows + 1.0) / height)
    rays = view.forward + x[:, None] * view.right + y[:, None] * view.upward
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    places = view.position + seen.depths[chosen][:, None] * rays
    seen.colors[chosen] = level_set_colors(stream, places, plain=SOLID_COLOR)


def _unit(vector: Doubles) -> Doubles:
    return np.asarray(vector / np.linalg.norm(vector))
