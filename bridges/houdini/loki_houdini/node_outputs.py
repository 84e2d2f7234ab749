"""Node outputs: which part of a geometry goes on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.errors import InputError, did_you_mean
from loki_vfx.serialization.houdini_channels import RECORD
from loki_vfx.serialization.houdini_geometry import OWNERS, Geometry
from loki_vfx.serialization.houdini_packed import selected
from loki_vfx.serialization.houdini_streams import OUTPUT

from . import patterns


def chosen(geometry: Geometry, pattern: str) -> Geometry:
    """Return the primitives, or points, of the groups that a pattern of names takes.

    Raises:
        InputError: No group has such a name.
    """
    if not pattern.strip():
        return geometry
    for owner in ("primitive", "point"):
        groups = geometry.groups[owner]
        taken = patterns.matching(pattern, groups)
        if not taken:
            continue
        flags = np.logical_or.reduce([groups[name] for name in taken])
        if owner == "primitive":
            return selected(geometry, flags)
        inside = flags[geometry.vertex_points[geometry.corners]]
        whole = np.ones(len(geometry.kinds), bool)
        of_corner = np.repeat(np.arange(len(geometry.kinds)), np.diff(geometry.offsets))
        whole[of_corner[~inside]] = False
        return selected(geometry, whole, points=flags)
    names = [name for groups in geometry.groups.values() for name in groups]
    raise InputError(f'there is no group "{pattern}"{did_you_mean(pattern, names)}')


def output_of(geometry: Geometry, name: str) -> Geometry:
    """Return the part of a geometry that is of one output; all of it without a name.

    Raises:
        InputError: There is none.
    """
    if not name:
        return geometry
    of_points = geometry.attributes["point"].get(OUTPUT)
    if of_points is None or of_points.texts is None:
        only = geometry.attributes["detail"].get(OUTPUT)
        if only is not None and only.texts is not None and only.as_texts() != [name]:
            raise InputError(f'there is no output "{name}"; there is {only.as_texts()[0]}')
        return geometry  # a graph with one output gives it as it is
    if name not in of_points.texts:
        hint = did_you_mean(name, of_points.texts)
        raise InputError(f'there is no output "{name}"{hint}')
    flags: dict[str, npt.NDArray[np.bool_]] = {}
    for owner in ("point", "primitive"):
        attribute = geometry.attributes[owner].get(OUTPUT)
        texts = [] if attribute is None else attribute.texts or []
        if attribute is None or name not in texts:
            flags[owner] = np.zeros(geometry.count(owner), bool)
        else:
            flags[owner] = np.asarray(attribute.values == texts.index(name), bool)
    return selected(geometry, flags["primitive"], points=flags["point"])


def keep_attributes(geometry: Geometry, pattern: str) -> None:
    """Remove attributes and groups that a pattern does not take; P stays."""
    for owner in OWNERS:
        attributes = geometry.attributes[owner]
        for name in set(attributes) - patterns.matching(pattern, attributes) - {"P", RECORD}:
            del attributes[name]
        groups = geometry.groups.get(owner, {})
        for name in set(groups) - patterns.matching(pattern, groups):
            del groups[name]
