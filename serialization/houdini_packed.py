"""Packed primitives of Houdini, unpacked; and several geometries as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_vfx.serialization.houdini_geometry import (
    OWNERS,
    PACKED,
    Attribute,
    Geometry,
    PackedPrimitive,
)

Array = npt.NDArray[Any]


def unpacked(geometry: Geometry) -> Geometry:
    """Return a geometry in which packed primitives are what they hold, at its place.

    Attributes of a packed primitive, and of its point, become those of the primitives, and points,
    that it held, unless these have their own.
    """
    keep = geometry.kinds != PACKED
    used = np.zeros(geometry.point_count, bool)
    of_packed = np.repeat(~keep, np.diff(geometry.offsets))
    used[geometry.vertex_points[geometry.corners[of_packed]]] = True
    parts = [selected(geometry, keep, points=~used)]
    positions = geometry.positions().astype(np.float64)
    for number, packed in sorted(geometry.packed.items()):
        corner = int(geometry.corners[geometry.offsets[number]])
        point = int(geometry.vertex_points[corner])
        parts.append(_content(geometry, packed, number, point, positions[point]))
    whole = concatenated(parts)
    whole.attributes["detail"] = dict(geometry.attributes["detail"])
    geometry.remarks += [one for one in dict.fromkeys(whole.remarks) if one not in geometry.remarks]
    whole.remarks = geometry.remarks
    return whole


def _content(
    geometry: Geometry, packed: PackedPrimitive, number: int, point: int, place: Array
) -> Geometry:
    source = packed.source
    if (source.kinds == PACKED).any():
        source = unpacked(source)
    if packed.fragment is not None:
        name, text = packed.fragment
        attribute = source.attributes["primitive"].get(name)
        if attribute is None or attribute.texts is None:
            geometry.remarks.append(
                f'not carried: the fragment "{text}", whose attribute "{name}" is not there as text'
            )
            chosen = np.zeros(len(source.kinds), bool)
        else:
            number_of_text = attribute.texts.index(text) if text in attribute.texts else -2
            chosen = np.asarray(attribute.values == number_of_text, bool)
        source = selected(source, chosen)
    else:
        everything = np.ones(source.point_count, bool)
        source = selected(source, np.ones(len(source.kinds), bool), points=everything)
    moved = (source.positions() - packed.pivot) @ packed.transform + place
    _move(source, moved, packed.transform)
    for owner, row in (("point", point), ("primitive", number)):
        for name, flags in geometry.groups[owner].items():
            spread_flags = np.full(source.count(owner), bool(flags[row]))
            source.groups[owner].setdefault(name, spread_flags)
        for name, attribute in geometry.attributes[owner].items():
            if name not in source.attributes[owner]:
                rows = np.full(source.count(owner), row)
                spread = Attribute(attribute.values[rows], attribute.hint, attribute.texts)
                source.attributes[owner][name] = spread
    return source


def _move(geometry: Geometry, positions: Array, transform: Array) -> None:
    kind = geometry.positions().dtype
    geometry.attributes["point"]["P"] = Attribute(positions.astype(kind), "point")
    normal = np.linalg.inv(transform).T if abs(np.linalg.det(transform)) > 0.0 else transform
    matrices = {"vector": transform, "normal": normal}
    for owner in OWNERS[:3]:
        for name, attribute in geometry.attributes[owner].items():
            values = attribute.values
            if attribute.hint in matrices and values.ndim == 2 and values.shape[1] == 3:
                turned = (values @ matrices[attribute.hint]).astype(values.dtype)
                geometry.attributes[owner][name] = Attribute(turned, attribute.hint)
            elif attribute.hint == "quaternion" and values.ndim == 2 and values.shape[1] == 4:
                turned = _product(_rotation(transform), values).astype(values.dtype)
                geometry.attributes[owner][name] = Attribute(turned, attribute.hint)


def _rotation(transform: Array) -> Array:
    """The quaternion (x, y, z, w) of the rotation in a transform of row vectors, [3, 3].

    Of the polar decomposition of its transpose; a mirrored one counts without its mirror.
    """
    left, _, right = np.linalg.svd(transform.T)
    matrix = left @ right
    if np.linalg.det(matrix) < 0.0:
        matrix = -matrix
    # the eigenvector of the largest eigenvalue (Bar-Itzhack 2000), which no angle makes ill-posed
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = matrix
    symmetric = np.array(
        [
            [xx - yy - zz, xy + yx, xz + zx, zy - yz],
            [xy + yx, yy - xx - zz, yz + zy, xz - zx],
            [xz + zx, yz + zy, zz - xx - yy, yx - xy],
            [zy - yz, xz - zx, yx - xy, xx + yy + zz],
        ]
    )
    return np.asarray(np.linalg.eigh(symmetric)[1][:, -1])


def _product(first: Array, others: Array) -> Array:
    """Quaternions (x, y, z, w) [n, 4] after which the first one turns."""
    vector, scalar = first[:3], first[3]
    vectors, scalars = others[:, :3], others[:, 3:]
    turned = scalar * vectors + scalars * vector + np.cross(vector, vectors)
    return np.concatenate([turned, scalar * scalars - vectors @ vector[:, None]], axis=1)


def selected(geometry: Geometry, chosen: Array, points: Array | None = None) -> Geometry:
    """Return the primitives that are chosen, with the points they use.

    Args:
        chosen: Flags of primitives.
        points: Flags of points that are kept too.
    """
    primitives = np.flatnonzero(chosen)
    corners = geometry.corners[np.repeat(chosen, np.diff(geometry.offsets))]
    used = np.zeros(geometry.point_count, bool) if points is None else points.copy()
    used[geometry.vertex_points[corners]] = True
    rows = {"point": np.flatnonzero(used), "vertex": corners, "primitive": primitives}
    number = np.cumsum(used) - 1
    sizes = np.diff(geometry.offsets)[primitives]
    result = Geometry(
        point_count=len(rows["point"]),
        vertex_points=number[geometry.vertex_points[corners]],
        kinds=geometry.kinds[primitives],
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        corners=np.arange(len(corners), dtype=np.int64),
    )
    for owner, index in rows.items():
        for name, attribute in geometry.attributes[owner].items():
            values = attribute.values[index]
            result.attributes[owner][name] = Attribute(values, attribute.hint, attribute.texts)
        for name, flags in geometry.groups[owner].items():
            result.groups[owner][name] = flags[index]
    result.attributes["detail"] = dict(geometry.attributes["detail"])
    result.remarks = list(geometry.remarks)
    for new, old in enumerate(primitives.tolist()):
        if old in geometry.volumes:
            result.volumes[new] = geometry.volumes[old]
        if old in geometry.packed:
            result.packed[new] = geometry.packed[old]
        if old in geometry.vdbs:
            result.vdbs[new] = geometry.vdbs[old]
    return result


def concatenated(parts: Sequence[Geometry]) -> Geometry:
    """Return one geometry of all parts after one another; what one lacks is zero, or no text."""
    result = Geometry(point_count=sum(part.point_count for part in parts))
    starts = {owner: np.cumsum([0] + [p.count(owner) for p in parts]) for owner in OWNERS[:3]}
    firsts = np.cumsum([0] + [len(part.corners) for part in parts])
    if parts:
        result.vertex_points = np.concatenate(
            [p.vertex_points + starts["point"][n] for n, p in enumerate(parts)]
        )
        result.corners = np.concatenate(
            [p.corners + starts["vertex"][n] for n, p in enumerate(parts)]
        )
        result.kinds = np.concatenate([p.kinds for p in parts])
        ends = [p.offsets[1:] + firsts[n] for n, p in enumerate(parts)]
        result.offsets = np.concatenate([[0], *ends]).astype(np.int64)
    for owner in OWNERS[:3]:
        for name in dict.fromkeys(n for part in parts for n in part.attributes[owner]):
            result.attributes[owner][name] = _joined(parts, owner, name, result.remarks)
        for name in dict.fromkeys(n for part in parts for n in part.groups[owner]):
            flags = [p.groups[owner].get(name, np.zeros(p.count(owner), bool)) for p in parts]
            result.groups[owner][name] = np.concatenate(flags)
    for n, part in enumerate(parts):
        for name, attribute in part.attributes["detail"].items():
            result.attributes["detail"].setdefault(name, attribute)
        first = int(starts["primitive"][n])
        result.volumes |= {first + number: one for number, one in part.volumes.items()}
        result.packed |= {first + number: one for number, one in part.packed.items()}
        result.vdbs |= {first + number: one for number, one in part.vdbs.items()}
        result.remarks += part.remarks
    return result


def _joined(parts: Sequence[Geometry], owner: str, name: str, remarks: list[str]) -> Attribute:
    found = [part.attributes[owner].get(name) for part in parts]
    first = next(one for one in found if one is not None)
    shape = first.values.shape[1:]
    is_text = first.texts is not None
    texts: dict[str, int] = {}
    pieces = []
    for part, one in zip(parts, found, strict=True):
        fits = one is not None and one.values.shape[1:] == shape
        if one is not None and not (fits and (one.texts is not None) == is_text):
            remarks.append(f'{owner} attribute "{name}" differs among the parts')
            one = None
        if is_text:
            known = [texts.setdefault(text, len(texts)) for text in one.texts or ()] if one else []
            numbers = np.array([*known, -1], np.int32)
            blank = np.full(part.count(owner), -1, np.int32)
            pieces.append(numbers[one.values] if one else blank)
        else:
            empty = np.zeros((part.count(owner), *shape), first.values.dtype)
            pieces.append(one.values if one is not None else empty)
    return Attribute(np.concatenate(pieces), first.hint, list(texts) if is_text else None)
