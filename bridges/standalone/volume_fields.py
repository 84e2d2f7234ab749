"""Volume fields: Voxels streams as the dense boxes that a picture is made of.

Blocks in which nothing is seen are left out. A box that is coarse for a picture is refined towards
a smooth B-spline, so that no voxel shows; one that is too large is made coarser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loki_core.data.voxels import Voxels
from loki_core.errors import InputError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

LARGEST = 1 << 26  # voxels of a dense box; larger ones are made coarser
REFINED = 4_000_000  # voxels; smaller boxes are refined, at most twice
CUT = 1e-3  # of the largest density: thinner smoke is not seen
GLOW_FROM = 800.0  # K, where matter begins to glow visibly (Draper)
#: Channels of linear colours that solids bring with them.
COLOR_CHANNELS = ("Cd", "color")
SMOKE_ALBEDO = (0.94, 0.945, 0.95)
#: Colours of the map "inferno" of matplotlib, evenly spaced, sRGB.
INFERNO = (
    (0.001, 0.000, 0.014),
    (0.122, 0.047, 0.283),
    (0.335, 0.060, 0.429),
    (0.533, 0.134, 0.415),
    (0.736, 0.216, 0.330),
    (0.894, 0.354, 0.192),
    (0.978, 0.558, 0.035),
    (0.965, 0.792, 0.196),
    (0.988, 0.998, 0.645),
)


@dataclass(slots=True)
class DenseField:
    """Values [nx, ny, nz] on a box: origin [m] of its lower corner, voxel size [m]."""

    values: Floats
    origin: Doubles
    voxel_size: float

    def lattice(self) -> Doubles:
        """Return origin and voxel size as kernels take them, shape [4]."""
        return np.array([*self.origin, self.voxel_size])


@dataclass(slots=True)
class Smoke:
    """What a picture's rays march through.

    Attributes:
        density: Not negative, 0 around the box.
        tint: What colours are looked up by, on the same lattice; of shape [0, 0, 0] for nothing.
        ramp: Albedo and emission, [n, 6].
        ramp_range: The values of tint at the ends of the ramp.
    """

    density: DenseField
    tint: Floats
    ramp: Doubles
    ramp_range: tuple[float, float]


def density_channel(stream: Voxels, color: str | None = None) -> str:
    """Return the channel whose values make a volume thick."""
    if "density" in stream.channels:
        return "density"
    return color if color is not None and color in stream.channels else next(iter(stream.channels))


def tint_channel(streams: Sequence[Voxels], color: str | None) -> str | None:
    """Return the channel that colours smoke, or None: smoke is white unless it glows."""
    if color is not None and any(color in stream.channels for stream in streams):
        return color
    for stream in streams:
        if "temperature" in stream.channels:
            values = stream.channel("temperature").values
            if float(np.nanmax(values, initial=0.0)) > GLOW_FROM:
                return "temperature"
    strange = (name for name in map(density_channel, streams) if name != "density")
    return next(strange, None)


def gather_smoke(streams: Sequence[Voxels], color: str | None) -> Smoke:
    """Return one field of all smoke, and what it is coloured by."""
    tint_name = tint_channel(streams, color)
    densities, tints, background = [], [], 0.0
    for stream in streams:
        name = density_channel(stream, color)
        tinted = tint_name is not None and tint_name in stream.channels
        seen = occupied_blocks(stream, name)
        if tinted and tint_name == "temperature":
            seen |= stream.channel("temperature").values.max(axis=(1, 2, 3, 4)) > GLOW_FROM
        if not seen.any():
            continue
        rest = stream.channel(name).background
        thick = dense_field(stream, name, seen, around=rest)
        densities.append(replace(thick, values=np.abs(thick.values - np.float32(rest))))
        if tinted:
            background = stream.channel(str(tint_name)).background
            tints.append(dense_field(stream, str(tint_name), seen, around=background))
    white = np.array([[*SMOKE_ALBEDO, 0.0, 0.0, 0.0]])
    if not densities:
        nothing = DenseField(np.zeros((2, 2, 2), np.float32), np.zeros(3), 1.0)
        return Smoke(nothing, np.zeros((0, 0, 0), np.float32), white, (0.0, 1.0))
    density = joined(densities, around=0.0)
    if not tints:
        return Smoke(refined(density), np.zeros((0, 0, 0), np.float32), white, (0.0, 1.0))
    tint = resampled(joined(tints, around=background), density, around=background)
    glows = tint_name == "temperature" and color is None
    ramp, span = _glow_ramp(tint) if glows else _color_ramp(tint.values, density.values)
    return Smoke(refined(density), refined(tint).values, ramp, span)


# -- blocks ------------------------------------------------------------------------------------


def occupied_blocks(stream: Voxels, name: str, *, cut: float = CUT) -> NDArray[np.bool_]:
    """Return in which blocks something is seen: smoke, or the inside of a level set."""
    channel = stream.channel(name)
    if name == "distance":
        return np.asarray(channel.values.min(axis=(1, 2, 3, 4)) < 0.0)
    strength = np.abs(np.nan_to_num(channel.values, posinf=0.0, neginf=0.0) - channel.background)
    strongest = strength.max(axis=(1, 2, 3, 4))
    return np.asarray(strongest > cut * float(strongest.max(initial=0.0)))


def occupied_corners(stream: Voxels, name: str) -> Doubles:
    """Return the corners [n, 3] of the blocks in which something is seen; of all if in none."""
    seen = occupied_blocks(stream, name, cut=0.02)
    coords = stream.coords[seen] if seen.any() else stream.coords
    corners = np.array(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij")).reshape(3, -1).T
    edge = stream.block_resolution * stream.voxel_size
    return np.asarray(stream.origin + (coords[:, None] + corners).reshape(-1, 3) * edge)


def dense_field(
    stream: Voxels,
    name: str,
    seen: NDArray[np.bool_],
    *,
    around: float,
    component: int | None = None,
) -> DenseField:
    """Return a channel over the box of the seen blocks, with three voxels of `around` about it.

    Vectors give a component, or their length.

    Raises:
        InputError: The blocks lie too far apart for a picture.
    """
    channel = stream.channel(name)
    values = channel.values[seen].astype(np.float32)
    if component is None and values.shape[1] > 1:
        values = np.linalg.norm(values, axis=1)
    else:
        values = values[:, component or 0]
    np.nan_to_num(values, copy=False, nan=around, posinf=around, neginf=around)
    coords = stream.coords[seen].astype(np.int64)
    first = coords.min(axis=0)
    size = coords.max(axis=0) - first + 1
    r, h = stream.block_resolution, stream.voxel_size
    while int(np.prod(size.astype(object))) * r**3 > LARGEST and r % 2 == 0:
        shape = (len(values), r // 2, 2, r // 2, 2, r // 2, 2)
        values = values.reshape(shape).mean(axis=(2, 4, 6))
        r, h = r // 2, 2.0 * h
    if int(np.prod(size.astype(object))) * r**3 > LARGEST:
        raise InputError(
            f'the blocks of channel "{name}" span {(size * stream.block_resolution).tolist()} '
            f"voxels, too many for a picture even when {stream.block_resolution // r} of them make "
            "one along each axis; blocks that hold nothing, or next to nothing, do not count"
        )
    split = np.full((*size.tolist(), r, r, r), around, np.float32)
    i, j, k = (coords - first).T
    split[i, j, k] = values
    dense = split.transpose(0, 3, 1, 4, 2, 5).reshape(size * r)
    dense = np.pad(dense, 3, constant_values=around)
    corner = stream.origin + first * (stream.block_resolution * stream.voxel_size)
    return DenseField(dense, corner - 3.0 * h, h)


def level_set(stream: Voxels) -> DenseField:
    """Return the signed distances [m] of a level set over the box of all its blocks."""
    every = np.ones(stream.block_count, bool)
    channel = stream.channel("distance")
    around = channel.background
    if around <= 0.0:  # a stream that names no background: all around is outside
        around = max(float(channel.values.max()), stream.voxel_size)
    return dense_field(stream, "distance", every, around=around)


def own_colors(stream: Voxels) -> str | None:
    """Return the channel that gives a level set its own linear colours, if it has one."""
    for name in COLOR_CHANNELS:
        channel = stream.channels.get(name)
        if channel is not None and channel.values.shape[1] == 3 and "distance" in stream.channels:
            return name
    return None


def level_set_colors(stream: Voxels, places: Doubles, *, plain: Sequence[float]) -> Doubles:
    """Return the linear colours of a level set at places [n, 3] m near its surface.

    Voxels have a colour where they know a primitive; where no voxel around a place does, or the
    level set has no colours, it is the plain one.
    """
    from scipy.ndimage import map_coordinates

    colors = np.tile(np.asarray(plain, np.float64), (len(places), 1))
    name = own_colors(stream)
    if name is None:
        return colors
    every = np.ones(stream.block_count, bool)
    known = Voxels(
        stream.coords, stream.voxel_size, origin=stream.origin,
        block_resolution=stream.block_resolution,
    )  # fmt: skip
    values = stream.channel(name).values.astype(np.float32)
    weight = np.ones_like(values[:, :1])
    if "primitive" in stream.channels:
        weight = (stream.channel("primitive").values >= 0).astype(np.float32)
    known.set_channel("both", np.concatenate((weight * values, weight), axis=1))
    parts = []
    for component in range(4):
        field = dense_field(known, "both", every, around=0.0, component=component)
        at = ((places - field.origin) / field.voxel_size - 0.5).T
        parts.append(map_coordinates(field.values, at, order=1, mode="nearest"))
    found = parts[3] > 1e-3
    mean = np.stack(parts[:3], axis=1)[found] / parts[3][found][:, None]
    colors[found] = np.clip(mean, 0.0, 1.0)
    return colors


# -- boxes -------------------------------------------------------------------------------------


def joined(fields: Sequence[DenseField], *, around: float) -> DenseField:
    """Return the sum of fields on one box that holds them all, in the smallest voxel of any."""
    if len(fields) == 1:
        return fields[0]
    low = np.min([f.origin for f in fields], axis=0)
    high = np.max([f.origin + np.array(f.values.shape) * f.voxel_size for f in fields], axis=0)
    h = min(f.voxel_size for f in fields)
    while float(np.prod(np.ceil((high - low) / h))) > LARGEST:
        h *= 2.0
    shape = np.ceil((high - low) / h - 1e-6).astype(np.int64)
    total = DenseField(np.full(shape, around, np.float32), low, h)
    for one in fields:
        total.values += resampled(one, total, around=around).values - np.float32(around)
    return total


def resampled(source: DenseField, onto: DenseField, *, around: float) -> DenseField:
    """Return a field on the lattice of another, by trilinear interpolation."""
    same = source.values.shape == onto.values.shape and source.voxel_size == onto.voxel_size
    if same and np.array_equal(source.origin, onto.origin):
        return source
    from scipy import ndimage

    scale = onto.voxel_size / source.voxel_size
    shift = (onto.origin - source.origin) / source.voxel_size + 0.5 * scale - 0.5
    values = ndimage.affine_transform(
        source.values,
        np.full(3, scale),
        offset=shift,
        output_shape=onto.values.shape,
        order=1,
        mode="constant",
        cval=around,
    )
    return DenseField(values, onto.origin, onto.voxel_size)


def refined(source: DenseField) -> DenseField:
    """Return a small field with half or a quarter of its voxel, by steps towards a B-spline.

    The spline is of degree 4. Fronts of smoke are often one voxel thick, and where a ray runs along
    a layer of voxels, a spline of degree 1 or 2 shows the layer as a straight step.
    """
    for _ in range(2):
        if source.values.size > REFINED:
            break
        source = _halved(source)
    return source


def _halved(source: DenseField) -> DenseField:
    """Return a field with half its voxel, by the subdivision of Lane and Riesenfeld (1980)."""
    values = source.values
    for axis in range(3):
        near = np.moveaxis(values, axis, 0)
        finer = np.empty((2 * len(near), *near.shape[1:]), np.float32)
        before = np.concatenate((near[:1], near[:-1]))
        after = np.concatenate((near[1:], near[-1:]))
        finer[0::2] = 0.625 * near + 0.3125 * before + 0.0625 * after
        finer[1::2] = 0.625 * near + 0.0625 * before + 0.3125 * after
        values = np.moveaxis(finer, 0, axis)
    return DenseField(np.ascontiguousarray(values), source.origin, 0.5 * source.voxel_size)


# -- colours -----------------------------------------------------------------------------------


def _color_ramp(tint: Floats, density: Floats) -> tuple[Doubles, tuple[float, float]]:
    """Return the colour map over the values that are seen, without the few outliers."""
    shown = tint[density > 0.05 * float(density.max(initial=0.0))]
    low, high = (float(v) for v in np.percentile(shown, (1.0, 99.0))) if shown.size else (0.0, 1.0)
    high = high if high > low else low + max(abs(low), 1.0) * 1e-3
    place = np.linspace(0.25, 1.0, 256)  # the darkest colours of the map hide the smoke
    knots = np.linspace(0.0, 1.0, len(INFERNO))
    albedo = [np.interp(place, knots, [c[i] for c in INFERNO]) ** 2.2 for i in range(3)]
    return np.column_stack([*albedo, *np.zeros((3, 256))]), (low, high)


def _glow_ramp(tint: DenseField) -> tuple[Doubles, tuple[float, float]]:
    """Return white smoke that glows as a black body does, the hottest part as bright as fire."""
    hottest = max(float(tint.values.max()), GLOW_FROM + 1.0)
    kelvin = np.linspace(GLOW_FROM, hottest, 256)
    meters = np.array([610e-9, 550e-9, 465e-9])  # red, green, blue
    planck = meters**-5.0 / np.expm1(0.014388 / (meters * kelvin[:, None]))
    planck /= planck[-1].max()
    faint = np.clip((hottest - GLOW_FROM) / 500.0, 0.0, 1.0)  # embers, not flames
    emission = 5.0 * faint * (planck - planck[0])
    return np.column_stack([np.tile(SMOKE_ALBEDO, (256, 1)), emission]), (GLOW_FROM, hottest)
