"""What all mesh types share: positions, channels, documents, merging and the checks of input.

Mesh types carry data in and out of the solver, in world space [m]. Topology differs from type to
type and lives in the subclass; everything here works on `positions` and the declared topology.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from loki_core.data.channels import LOCATIONS, Array, ChannelTable, motion_channels
from loki_core.errors import FormatError, InputError, did_you_mean
from loki_core.wording import counted

Finding = tuple[str, str]
"""A severity, "error" or "warning", and a message."""

LARGEST_POSITION = 1.0e15  # metres; single precision and squares of lengths go that far
SMALLEST_EXTENT, LARGEST_EXTENT = 1.0e-4, 1.0e4  # metres; outside, the unit is probably wrong

STREAM_TYPES = {
    "points": "loki_core.data.points:Points",
    "curves": "loki_core.data.curves:Curves",
    "wireframe": "loki_core.data.wireframe:Wireframe",
    "surface": "loki_core.data.surface:Surface",
    "body": "loki_core.data.body:Body",
    "voxels": "loki_core.data.voxels:Voxels",
}
"""Every type of stream that goes in or out, by the name that documents use."""


class Stream(Protocol):
    """What a mesh and a voxel stream both offer."""

    type_name: ClassVar[str]

    def to_document(self) -> dict[str, Any]: ...
    def counts(self) -> dict[str, int]: ...
    def channel_names(self) -> dict[str, list[str]]: ...
    def bounds(self) -> npt.NDArray[np.float64]: ...
    def validate(self, label: str) -> None: ...
    def check(self, label: str) -> list[Finding]: ...


class Mesh:
    """Points in world space with channels; the base of every mesh type."""

    type_name: ClassVar[str] = ""
    topology_names: ClassVar[tuple[str, ...]] = ()  # constructor arguments, in order

    __slots__ = ("channels", "positions")

    def __init__(self, positions: npt.ArrayLike) -> None:
        """Take positions [m], shape [point_count, 3]; float arrays are kept, not copied."""
        self.positions = _as_positions(positions, self.type_name)
        self.channels = ChannelTable()

    @property
    def point_count(self) -> int:
        """Return the number of points."""
        return int(self.positions.shape[0])

    @property
    def vertex_count(self) -> int:
        """Return the number of uses of points by primitives (polygon corners and so on)."""
        return 0

    @property
    def primitive_count(self) -> int:
        """Return the number of curves, edges, faces or tetrahedra."""
        return 0

    def count(self, location: str) -> int:
        """Return the number of elements that a channel at `location` has."""
        counts = (self.point_count, self.vertex_count, self.primitive_count, 1)
        if location not in LOCATIONS:
            hint = did_you_mean(location, LOCATIONS)
            raise InputError(f'unknown channel location "{location}"{hint}')
        return counts[LOCATIONS.index(location)]

    def counts(self) -> dict[str, int]:
        """Return the number of elements at each location but detail."""
        return {location: self.count(location) for location in LOCATIONS[:3]}

    def channel_names(self) -> dict[str, list[str]]:
        """Return the names of the channels at each location that has any."""
        return {location: sorted(c) for location, c in self.channels.items() if c}

    def set_channel(
        self, location: str, name: str, values: npt.ArrayLike, *, transform: str | None = None
    ) -> None:
        """Store a channel of shape [n], [n, k] or [n, 3, 3]; n is the count at `location`."""
        count = self.count(location)
        array = np.asarray(values)
        if location != "detail" and (array.ndim == 0 or array.shape[0] != count):
            raise InputError(
                f'{self.type_name} {location} channel "{name}" has shape {list(array.shape)}; '
                f"expected {count} elements, one for each {location}"
            )
        self.channels[location].set(name, array, transform=transform)

    def edges(self) -> npt.NDArray[np.int32]:
        """Return every edge once as two point indices, shape [edge_count, 2]."""
        return np.empty((0, 2), np.int32)

    def bounds(self) -> npt.NDArray[np.float64]:
        """Return lower and upper corner [m], shape [2, 3]; (inf, -inf) when there is no point."""
        if self.point_count == 0:
            return np.array([[np.inf] * 3, [-np.inf] * 3])
        corners = [self.positions.min(axis=0), self.positions.max(axis=0)]
        return np.array(corners, dtype=np.float64)

    def transformed(self, matrix: npt.ArrayLike) -> Self:
        """Return a copy moved by a 4x4 matrix for column vectors, p' = M p.

        Channels follow their transform kind: vectors by the linear part, normals by its inverse
        transpose at the length they had. A mirroring matrix also reverses the order of vertices,
        so that faces and tetrahedra are not turned inside out.
        """
        affine = np.asarray(matrix, dtype=np.float64)
        if affine.shape != (4, 4) or not np.isfinite(affine).all():
            raise InputError(f"a transform is a finite 4x4 matrix; found {affine.tolist()}")
        linear, offset = affine[:3, :3], affine[:3, 3]
        determinant = float(np.linalg.det(linear))
        if determinant == 0.0 or not np.array_equal(affine[3], [0.0, 0.0, 0.0, 1.0]):
            raise InputError(f"the matrix {affine.tolist()} is singular or not affine")
        order = self._mirrored_vertex_order() if determinant < 0.0 else None
        topology = {n: getattr(self, n) for n in self.topology_names}
        result = type(self)(
            (self.positions @ linear.T + offset).astype(self.positions.dtype),
            **(topology if order is None else self._reordered_topology(order)),
        )
        inverse_transpose = np.linalg.inv(linear).T
        for location, channels in self.channels.items():
            for name, values in channels.items():
                kind = channels.transform_of(name)
                moved = values
                if kind == "normal":
                    moved = _keep_length(values @ inverse_transpose.T, values)
                elif kind != "none":
                    moved = values @ linear.T + (offset if kind == "point" else 0.0)
                moved = moved.astype(values.dtype, copy=False)
                if location == "vertex" and order is not None:
                    moved = moved[order]
                result.channels[location].set(name, moved, transform=kind)
        return result

    def to_document(self) -> dict[str, Any]:
        """Return plain dicts, texts and arrays; the arrays are shared."""
        return {
            "type": self.type_name,
            "positions": self.positions,
            "topology": {name: getattr(self, name) for name in self.topology_names},
            "channels": self.channels.to_document(),
        }

    @classmethod
    def from_document(cls, document: object, *, label: str = "stream") -> Self:
        """Read what `to_document` wrote; raise FormatError on anything else.

        Shapes, lengths and index ranges are checked; values are not, since NaN is valid data.
        """
        fields = {"type", "positions", "topology", "channels"}
        if not isinstance(document, dict) or set(document) != fields:
            raise FormatError(f"{label}: a {cls.type_name} document has {sorted(fields)}")
        topology = document["topology"]
        if not isinstance(topology, dict) or set(topology) != set(cls.topology_names):
            raise FormatError(
                f"{label}: the topology of {cls.type_name} has {sorted(cls.topology_names)}"
            )
        for name, array in {"positions": document["positions"], **topology}.items():
            if not isinstance(array, np.ndarray):
                raise FormatError(f"{label}.{name} is a {type(array).__name__}, no array")
        try:
            mesh = cls(document["positions"], **topology)
            mesh.channels = ChannelTable.from_document(document["channels"], label=label)
            mesh.check_structure(label)
        except InputError as error:
            raise FormatError(str(error)) from error
        return mesh

    def check_structure(self, label: str) -> None:
        """Raise InputError where indices, offsets or channel lengths cannot be right."""
        self._check_topology(label)
        for location, channels in self.channels.items():
            count = self.count(location)
            for name, values in channels.items():
                if values.shape[0] != count:
                    raise InputError(
                        f'{label}: {location} channel "{name}" has {values.shape[0]} elements; '
                        f"expected {count}, one for each {location}"
                    )

    def validate(self, label: str) -> None:
        """Raise InputError that names stream, attribute, index, what was found and expected."""
        self.check_structure(label)
        bad = ~(np.abs(self.positions) <= LARGEST_POSITION).all(axis=1)
        if bad.any():
            i = int(np.argmax(bad))
            raise InputError(
                f"{label}.positions[{i}] = {self.positions[i].tolist()} m "
                f"({int(bad.sum())} of {self.point_count} points); expected finite numbers up to "
                f"{LARGEST_POSITION:g} m: remove or repair these points before they reach the "
                "solver"
            )
        self._check_primitives(label)

    def check(self, label: str) -> list[Finding]:
        """Return what would go wrong in a simulation, as (severity, message)."""
        try:
            self.validate(label)
        except InputError as error:
            return [("error", str(error))]  # the findings below need sound data
        if self.point_count == 0:
            return [("warning", f"{label} is empty: it has no points")]
        return check_points(self.positions, label) + self._check_shape(label)

    # What a mesh type says about its own topology.

    def _check_topology(self, label: str) -> None:
        """Raise InputError on indices out of range and offsets that do not add up."""

    def _check_primitives(self, label: str) -> None:
        """Raise InputError on primitives that have too few vertices."""

    def _check_shape(self, label: str) -> list[Finding]:
        """Return findings on edges, faces and tetrahedra."""
        return []

    def _mirrored_vertex_order(self) -> npt.NDArray[np.int64] | None:
        """Return the order of vertices that undoes a reflection, or None for no orientation."""
        return None

    def _reordered_topology(self, order: npt.NDArray[np.int64]) -> dict[str, Array]:
        raise InputError(
            f"{type(self).__name__} has an orientation and must define _reordered_topology(...)"
        )

    @classmethod
    def _merged_topology(cls, meshes: Sequence[Self], starts: Sequence[int]) -> dict[str, Array]:
        """Return the topology of all meshes after one another; points begin at `starts`."""
        return {}


AnyMesh = TypeVar("AnyMesh", bound=Mesh)


def merge(meshes: Sequence[AnyMesh]) -> AnyMesh:
    """Return one mesh of all `meshes`, which are of one type, in their order.

    Every channel of any of them is carried. Where a mesh lacks a channel, its elements get zeros
    (False for bool). Samples of a motion are carried if all have as many. A detail channel is taken
    from the first mesh that has it. Numbers of two dtypes are widened to the dtype that holds both.
    """
    if not meshes:
        raise InputError("merge needs at least one mesh; found none")
    first = meshes[0]
    for mesh in meshes:
        if type(mesh) is not type(first):
            raise InputError(
                f"cannot merge {mesh.type_name} into {first.type_name}; convert one of them"
            )
    starts = np.cumsum([0] + [mesh.point_count for mesh in meshes]).tolist()
    if starts[-1] > np.iinfo(np.int32).max:
        raise InputError(f"{starts[-1]} points are too many for one mesh; indices are int32")
    positions = np.concatenate([mesh.positions for mesh in meshes])
    merged = type(first)(positions, **type(first)._merged_topology(meshes, starts))
    for location in LOCATIONS:
        names = dict.fromkeys(name for mesh in meshes for name in mesh.channels[location])
        sampled = motion_channels(names) if location == "point" else []
        if all(motion_channels(mesh.channels["point"]) == sampled for mesh in meshes):
            sampled = []
        for name in names:
            if name not in sampled:
                _merge_channel(meshes, merged, location, name)
    return merged


def merge_streams(streams: Sequence[Any]) -> Any:
    """Return one stream of all parts, meshes or voxels alike."""
    if streams and not isinstance(streams[0], Mesh):
        return type(streams[0]).merge(streams)
    return merge(streams)


def stream_type(name: object) -> Any:
    """Return the class of the stream type called `name`, or raise FormatError."""
    if not isinstance(name, str) or name not in STREAM_TYPES:
        hint = did_you_mean(str(name)[:80], STREAM_TYPES)
        raise FormatError(f"unknown stream type {str(name)[:80]!r}{hint}")
    module, _, attribute = STREAM_TYPES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def stream_from_document(document: object, *, label: str = "stream") -> Any:
    """Return the mesh or voxels that a document describes; raise FormatError otherwise."""
    if not isinstance(document, dict):
        raise FormatError(f"{label}: a stream document is a map, not {type(document).__name__}")
    return stream_type(document.get("type")).from_document(document, label=label)


def as_indices(values: npt.ArrayLike, columns: int | None, name: str) -> npt.NDArray[np.int32]:
    """Return `values` as contiguous int32 of shape [n] or [n, columns]."""
    array = np.asarray(values)
    if array.size == 0 and array.ndim < 2:
        array = np.empty((0,) if columns is None else (0, columns), np.int32)
    expected = "[n]" if columns is None else f"[n, {columns}]"
    if array.ndim != (1 if columns is None else 2) or (columns and array.shape[1] != columns):
        raise InputError(f"{name} has shape {list(array.shape)}; expected {expected}")
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} is of dtype {array.dtype}; expected whole numbers")
    if array.dtype != np.int32 and array.size:
        limits = np.iinfo(np.int32)
        if array.max() > limits.max or array.min() < limits.min:
            raise InputError(f"{name} holds {array.max()}; indices are int32, up to {limits.max}")
    return np.ascontiguousarray(array, dtype=np.int32)


def check_indices(indices: Array, count: int, label: str) -> None:
    """Raise InputError that names the first index outside 0 to count - 1."""
    if indices.size == 0 or (indices.min() >= 0 and indices.max() < count):
        return
    bad = (indices < 0) | (indices >= count)
    where = np.unravel_index(int(np.argmax(bad)), indices.shape)
    place = ", ".join(str(int(i)) for i in where)
    raise InputError(
        f"{label}[{place}] = {int(indices[where])} is no point; expected 0 to {count - 1} "
        f"({count} points)"
    )


def check_offsets(offsets: Array, total: int, label: str) -> None:
    """Raise InputError unless offsets run from 0 to `total` and never step back."""
    if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != total:
        ends = [] if offsets.size == 0 else [int(offsets[0]), int(offsets[-1])]
        raise InputError(f"{label} begins and ends with {ends}; expected [0, {total}]")
    backward = np.diff(offsets) < 0
    if backward.any():
        i = int(np.argmax(backward))
        raise InputError(
            f"{label}[{i + 1}] = {int(offsets[i + 1])} is below {label}[{i}] = {int(offsets[i])}; "
            "offsets never step back"
        )


def check_points(positions: Array, label: str) -> list[Finding]:
    """Return findings on scale and duplicate points of finite `positions`, [n, 3] with n > 0."""
    findings: list[Finding] = []
    extent = float((positions.max(axis=0) - positions.min(axis=0)).max())
    if len(positions) > 1 and not SMALLEST_EXTENT <= extent <= LARGEST_EXTENT:
        findings.append(
            (
                "warning",
                f"{label} is {extent:.6g} m across; expected {SMALLEST_EXTENT:g} m to "
                f"{LARGEST_EXTENT:g} m: are its units metres?",
            )
        )
    duplicates = duplicate_points(positions)
    if duplicates.size:
        findings.append(
            (
                "warning",
                f"{label} has {counted(duplicates.size, 'point')} at the place of another one, "
                "the first is "
                f"positions[{int(duplicates.min())}]: fuse or remove them",
            )
        )
    return findings


def duplicate_points(positions: Array) -> npt.NDArray[np.int64]:
    """Return the indices of points that coincide exactly with an earlier one in hash order."""
    # One sort of 64-bit hashes is many times quicker than a lexicographic sort of three columns.
    bits = (positions.astype(np.float64) + 0.0).view(np.uint64)  # + 0.0: -0.0 equals 0.0
    factors = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
    mixed = bits * factors
    mixed ^= mixed >> np.uint64(29)
    keys = mixed[:, 0] ^ (mixed[:, 1] * factors[2]) ^ (mixed[:, 2] * factors[0])
    order = np.argsort(keys, kind="stable")
    ordered = positions[order]
    same = (ordered[1:] == ordered[:-1]).all(axis=1)
    return np.asarray(order[1:][same], dtype=np.int64)


def check_edges(positions: Array, edges: Array, label: str) -> list[Finding]:
    """Return a finding when edges have no length."""
    lengths = np.linalg.norm(positions[edges[:, 1]] - positions[edges[:, 0]], axis=1)
    zero = np.flatnonzero(lengths == 0.0)
    if zero.size == 0:
        return []
    pair = edges[zero[0]].tolist()
    return [
        (
            "error",
            f"{label} has {counted(zero.size, 'edge')} of zero length, the first joins points "
            f"{pair[0]} and "
            f"{pair[1]}: fuse these points",
        )
    ]


def unique_edges(
    pairs: Array, point_count: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return undirected edges, each once with the lower point first, and how often each occurs."""
    lower, upper = pairs.min(axis=1).astype(np.int64), pairs.max(axis=1).astype(np.int64)
    keys, counts = np.unique(lower * max(point_count, 1) + upper, return_counts=True)
    edges = np.stack(np.divmod(keys, max(point_count, 1)), axis=1).astype(np.int32)
    return edges, counts.astype(np.int64)


def concatenated_offsets(parts: Sequence[Array]) -> npt.NDArray[np.int32]:
    """Return the offsets of all parts after one another."""
    sizes = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def _as_positions(values: npt.ArrayLike, type_name: str) -> Array:
    array = np.asarray(values)
    if array.size == 0 and array.ndim < 2:
        array = np.empty((0, 3), np.float64)
    if array.ndim != 2 or array.shape[1] != 3:
        raise InputError(
            f"{type_name}.positions has shape {list(array.shape)}; expected [point_count, 3]"
        )
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.name not in ("float32", "float64"):
        raise InputError(
            f"{type_name}.positions is of dtype {array.dtype}; expected float32 or float64"
        )
    if array.shape[0] > np.iinfo(np.int32).max:
        raise InputError(f"{type_name} has {array.shape[0]} points; indices are int32")
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def _keep_length(moved: Array, original: Array) -> Array:
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    wanted = np.linalg.norm(original, axis=1, keepdims=True)
    result = np.zeros_like(moved)
    np.divide(moved * wanted, length, out=result, where=length > 0.0)
    return result


def _merge_channel(meshes: Sequence[Mesh], merged: Mesh, location: str, name: str) -> None:
    holders = [mesh for mesh in meshes if name in mesh.channels[location]]
    first = holders[0].channels[location]
    if location == "detail":
        merged.channels[location].set(name, first[name], transform=first.transform_of(name))
        return
    arrays = [mesh.channels[location][name] for mesh in holders]
    shapes = {array.shape[1:] for array in arrays}
    kinds = {mesh.channels[location].transform_of(name) for mesh in holders}
    if len(shapes) > 1 or len(kinds) > 1:
        found = " and ".join(sorted(f"{a.dtype}{['n', *a.shape[1:]]}" for a in arrays[:2]))
        raise InputError(
            f'cannot merge {location} channel "{name}": it is {found}, transforming as '
            f"{' and '.join(sorted(kinds))}; rename or convert one of them"
        )
    dtype = np.result_type(*arrays)
    parts = [
        mesh.channels[location][name]
        if name in mesh.channels[location]
        else np.zeros((mesh.count(location), *arrays[0].shape[1:]), dtype)
        for mesh in meshes
    ]
    values = np.concatenate(parts).astype(dtype, copy=False)
    merged.channels[location].set(name, values, transform=first.transform_of(name))
