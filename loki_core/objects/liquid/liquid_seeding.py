"""The first particles of a liquid: given points, or a mesh that is filled.

A full voxel has `particles_per_axis` cubed particles on a regular lattice, moved at random by up to
`jitter` of half their distance. The random numbers belong to the places, so they do not depend on
the number of ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.body import Body
from loki_core.data.channels import check_values, motion_channels
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.errors import InputError
from loki_core.objects.basics.override_channels import InputPoints
from loki_core.objects.gas.volume_topology import around_box

if TYPE_CHECKING:
    from loki_core.objects.basics.capabilities import Liquid
    from loki_core.objects.liquid.hybrid import Hybrid

Array = NDArray[Any]

BUCKETS_AT_ONCE = 64
MOST_PARTICLES = 1.0e9  # on a rank, that a mesh is filled with; they take some 200 GB


def seed(liquid: Hybrid, stream: Any) -> None:
    """Add the particles of an input stream. Collective."""
    label = f'{liquid.path}: input "{liquid.behavior.input}"'
    if not isinstance(stream, Mesh):
        raise InputError(f"{label} is a {type(stream).__name__}; points or a mesh are expected")
    if isinstance(stream, (Surface, Body)):
        _fill(liquid, stream, label)
    else:
        _take_points(liquid, stream, label)


def _fill(liquid: Liquid, mesh: Any, label: str) -> None:
    """Fill a mesh but for Colliders; particles have what is painted on the nearest points."""
    from loki_core.objects.colliders.triangles import Triangles
    from loki_core.objects.particles.mesh_to_particles import Nearest, channels_of, make_room

    place, painted = fill_mesh(liquid, mesh, label), mesh.channels["point"]
    for collider in liquid.colliders:
        place = place[~collider.covers(place)]
    values: dict[str, Array] = {}
    if painted and mesh.primitive_count:
        names = [name for name in channels_of(mesh) if name in painted]
        make_room(liquid.particles, mesh, names, label=label)
        for name in names:
            _check(liquid, name, painted[name], label)
        relative = liquid.scope.domain.to_relative(mesh.positions)
        placed = Triangles.of(mesh, label=label).at(relative, label=label)
        values = Nearest(placed, place).channels(mesh, liquid.particles, label=label)
    add_particles(liquid, place, values)


def _take_points(liquid: Liquid, stream: Mesh, label: str) -> None:
    """Let points be particles, with all their channels."""
    comm, count = liquid.scope.domain.comm, stream.point_count
    rows = slice(count * comm.rank // comm.size, count * (comm.rank + 1) // comm.size)
    skipped = ("id", "position", *motion_channels(stream.channels["point"]))
    values = {}
    for name, array in stream.channels["point"].items():
        if name in skipped:
            continue
        if name not in liquid.particles.channels:
            dtype = liquid.particles.dtype if array.dtype.kind == "f" else array.dtype
            liquid.particles.add_channel(name, dtype, array.shape[1:])
        _check(liquid, name, array, label)
        values[name] = array[rows]
    position = liquid.scope.domain.to_relative(stream.positions[rows])
    inside = _inside_box(liquid, position, label)
    kept = np.concatenate(comm.all_gather(rows.start + np.flatnonzero(inside)))
    chosen = None if len(kept) == count else kept.astype(np.int64)
    liquid.input_points = InputPoints(
        stream, first=liquid.particles.next_id, rows=chosen, label=label
    )
    liquid.overrides.add(("id",), stream)
    add_particles(liquid, position[inside], {name: a[inside] for name, a in values.items()})


def _check(liquid: Liquid, name: str, array: Array, label: str) -> None:
    """Refuse values that particles cannot have."""
    shape = liquid.particles.channel(name).shape
    check_values(array, shape, label=f"{label}: {name}")
    if name == "velocity":
        fastest, speed = float(liquid.scope.settings.maximum_speed), np.linalg.norm(array, axis=1)
        if np.any(speed > fastest):
            row = int(np.argmax(speed))
            raise InputError(
                f"{label}: velocity[{row}] = {array[row].tolist()} m/s; at most maximum_speed = "
                f"{fastest:g} m/s is expected"
            )


def _inside_box(liquid: Liquid, position: Array, label: str) -> NDArray[np.bool_]:
    """Which points are in the domain box, or so near that its walls take them in. Collective."""
    domain, near = liquid.scope.domain, liquid.voxel_size
    lower, upper = domain.relative_lower - near, domain.relative_upper + near
    inside = (position >= lower) & (position <= upper) | np.array(domain.periodic)
    kept: NDArray[np.bool_] = inside.all(axis=1)
    left_out = domain.comm.total(int(np.count_nonzero(~kept)))
    if left_out:
        total = domain.comm.total(len(kept))
        liquid.tell_once(
            f"{label}: {left_out:,} of {total:,} points are outside of the domain box, from "
            f"{domain.lower.tolist()} to {domain.upper.tolist()} m, and are left out"
        )
    return kept


def add_particles(liquid: Liquid, position: Array, values: dict[str, Array]) -> None:
    """Add particles at places relative to the domain's origin [m]. Collective."""
    particles, comm = liquid.particles, liquid.scope.domain.comm
    counts = np.concatenate(comm.all_gather(np.array([len(position)], np.int64)))
    first = particles.reserve_ids(int(counts.sum())) + int(counts[: comm.rank].sum())
    ids = np.arange(first, first + len(position), dtype=np.int64)
    if "velocity" not in values:
        start = np.asarray(liquid.settings.velocity, np.float64)
        values = values | {"velocity": np.tile(start, (len(position), 1))}
    particles.append({"position": position.astype(particles.dtype), **values}, ids=ids)


def fill_mesh(liquid: Liquid, mesh: Any, label: str, *, shell: float | None = None) -> Array:
    """Places inside a mesh, in Buckets of this rank, relative to the origin [m]. Collective.

    They come in the order of the curve, so that ids do not depend on the number of ranks.

    Args:
        shell: Thickness of the layer on its faces that is meant instead of the inside [m].
    """
    from loki_core.objects.colliders.triangles import Triangles

    domain = liquid.scope.domain
    placed = Triangles.of(mesh, label=label).at(domain.to_relative(mesh.positions), label=label)
    if placed.is_empty:
        return np.empty((0, 3))
    lower, upper = mesh.bounds()
    if shell is not None:
        lower, upper = lower - 0.5 * shell, upper + 0.5 * shell
    _refuse_large(liquid, lower, upper, label)
    # Along a periodic axis a long mesh comes to a Bucket more than once.
    coords = np.unique(around_box(domain, lower, upper, liquid.path), axis=0)
    coords = coords[np.argsort(domain.keys(coords), kind="stable")]
    found = [np.empty((0, 3))]
    for start in range(0, len(coords), BUCKETS_AT_ONCE):
        found.append(_inside(liquid, placed, coords[start : start + BUCKETS_AT_ONCE], shell))
    place = np.concatenate(found)
    if domain.comm.total(len(place)) == 0:
        _warn_of_nothing(liquid, placed, label, shell)
    return place


def _refuse_large(liquid: Liquid, lower: Array, upper: Array, label: str) -> None:
    """Say that a mesh would hold more particles than any run could, before they are made."""
    domain = liquid.scope.domain
    size = np.minimum(upper, domain.upper) - np.maximum(lower, domain.lower)
    count = float(np.prod(np.maximum(size, 0.0) / liquid.voxel_size)) / liquid.particle_share
    most = MOST_PARTICLES * domain.comm.size
    if count > most:
        raise InputError(
            f"{label}: its box has room for {count:.2g} particles with voxel_size = "
            f"{liquid.voxel_size:g} m, more than {most:.2g}; enlarge voxel_size, or use more ranks"
        )


def _warn_of_nothing(liquid: Liquid, placed: Any, label: str, shell: float | None) -> None:
    """Say why a mesh holds no liquid, so far as that can be seen."""
    expected = "the mesh is to be closed, at least a voxel wide and inside the domain box"
    if shell is not None:
        expected = "the mesh is to be inside the domain box"
    is_open = "" if placed.triangles.is_closed else ", it has holes"
    liquid.tell_once(
        f"{label} has {placed.triangles.count:,} triangles{is_open}, and not one place for a "
        f"particle; {expected}"
    )


def _inside(
    liquid: Liquid, placed: Any, coords: NDArray[np.int32], shell: float | None = None
) -> Array:
    """Places of Buckets that lie inside a mesh, or in a shell on it, and in the domain box."""
    domain = liquid.scope.domain
    regular, place = lattice(liquid, coords)
    inside = np.all((regular > domain.relative_lower) & (regular < domain.relative_upper), axis=1)
    if shell is not None:
        from loki_core.objects.particles.mesh_to_particles import Nearest

        near = placed.are_near(coords, size=domain.bucket_size, reach=shell)
        inside &= np.repeat(near, len(regular) // len(coords))
        inside[inside] = Nearest(placed, regular[inside]).distance <= 0.5 * shell
        layer: Array = place[inside]
        return layer
    # Where no triangle is near, all of a Bucket is inside or nothing.
    whole = ~placed.are_near(coords, size=domain.bucket_size, reach=liquid.voxel_size)
    full = placed.winding((coords + 0.5) * domain.bucket_size) > 0.5
    each = np.repeat(~whole, len(regular) // len(coords))
    inside &= np.repeat(full | ~whole, len(regular) // len(coords))
    asked = inside & each
    inside[asked] = placed.winding(regular[asked]) > 0.5
    chosen: Array = place[inside]
    return chosen


def lattice(liquid: Liquid, coords: NDArray[np.int32]) -> tuple[Array, Array]:
    """Places of particles that would fill Buckets, relative to the origin [m], shape [n, 3].

    Returns:
        Those of the regular lattice, which say what is inside, and those moved at random.
    """
    per_axis = liquid.particles_per_axis * liquid.resolution
    spacing = liquid.scope.domain.bucket_size / per_axis
    steps = np.arange(per_axis)
    inside = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    whole = (coords[:, None, :].astype(np.int64) * per_axis + inside).reshape(-1, 3)
    moved = liquid.jitter * (_uniforms(whole, liquid) - 0.5)
    return (whole + 0.5) * spacing, (whole + 0.5 + moved) * spacing


def _uniforms(whole: NDArray[np.int64], liquid: Liquid) -> Array:
    """Three numbers from 0 to 1 for each place of the lattice, shape [n, 3]."""
    from loki_core.kernels.basics.emission import fill_uniforms
    from loki_core.kernels.basics.random import random_key

    shifted = (whole + (1 << 20)).astype(np.int64)
    place = (shifted[:, 0] << 42) ^ (shifted[:, 1] << 21) ^ shifted[:, 2]
    uniforms = np.empty((len(whole), 3))
    fill_uniforms(random_key(liquid.scope.settings.random_seed, 7), place, uniforms)
    return uniforms
