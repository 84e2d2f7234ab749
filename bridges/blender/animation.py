"""Animation: F-curves and drivers of declared values become Keyframes, and the other way round.

A curve whose keys Loki knows as well (linear, constant, or smooth with flat handles) keeps its
keys; any other curve, and every driver, is sampled once a frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import bpy

from loki_core.keyframes import Keyframes
from loki_core.parameter import Parameter

from .compat import curve_collections
from .declared_properties import (
    decimal,
    plain_value,
    property_name,
    stored_value,
    unset,
    with_switch,
)

_INTERPOLATIONS = {"LINEAR": "linear", "CONSTANT": "step", "BEZIER": "smooth"}
_MOST_ERROR = 1.0e-4  # of a key's handles, in frames or of the curve's range

Curves = Mapping[str, Sequence[Any]]
"""F-curves and drivers by data path, one for each component that is animated."""


def animated_paths(owner: bpy.types.ID) -> dict[str, list[Any]]:
    """Return the F-curves and drivers of a datablock by data path."""
    found: dict[str, list[Any]] = {}
    drivers = [] if owner.animation_data is None else owner.animation_data.drivers
    for curves in (*curve_collections(owner), drivers):
        for curve in curves:
            found.setdefault(curve.data_path, []).append(curve)
    return found


def path_of(group: Any, parameter: Parameter) -> str:
    """Return the data path of a value from its datablock."""
    return str(group.path_from_id(property_name(parameter.name)))


def driven_paths(curves: Curves) -> list[str]:
    """Return the data paths that a driver has a say in; their values need the whole scene."""
    return [path for path, some in curves.items() if any(is_driver(one) for one in some)]


def is_driver(curve: Any) -> bool:
    """Whether a curve belongs to a driver, which cannot be evaluated by itself."""
    return curve.driver is not None


def keyframes_of(
    group: Any, parameter: Parameter, curves: Sequence[Any], frames: tuple[int, int]
) -> Keyframes:
    """Return the Keyframes that the F-curves of one value mean, over a range of frames."""
    own = property_name(parameter.name)
    now = getattr(group, own)
    size = parameter.type.components if parameter.type.length else 1
    base = list(now) if parameter.type.length else [now]
    kept = _common_keys(curves, size)
    times, interpolation = kept or (
        [float(frame) for frame in range(frames[0], frames[1] + 1)],
        "linear" if parameter.type.base is float else "step",
    )
    keys = []
    for time in times:
        row = list(base)
        for curve in curves:
            row[curve.array_index] = curve.evaluate(time)
        keys.append((decimal(time), _typed(parameter, row)))
    return Keyframes(keys, interpolation=interpolation, time_unit="frame")


def sampled_keyframes(parameter: Parameter, samples: Mapping[int, Any]) -> Keyframes:
    """Return Keyframes of stored values by frame."""
    keys = [(float(frame), plain_value(parameter, value)) for frame, value in samples.items()]
    interpolation = "linear" if parameter.type.base is float else "step"
    return Keyframes(keys, interpolation=interpolation, time_unit="frame")


def _typed(parameter: Parameter, row: list[float]) -> Any:
    kind = parameter.type.base
    if parameter.choices is not None:  # Blender keeps the place in the list
        return parameter.choices[min(len(parameter.choices) - 1, max(0, round(row[0])))]
    stored: Any = [kind(round(one)) if kind in (int, bool) else one for one in row]
    return plain_value(parameter, stored if parameter.type.length else stored[0])


def _common_keys(curves: Sequence[Any], size: int) -> tuple[list[float], str] | None:
    """Return times and interpolation if all components share keys that Loki knows as well."""
    if len(curves) != size or any(len(curve.modifiers) for curve in curves):
        return None
    times = [point.co[0] for point in curves[0].keyframe_points]
    kinds = {point.interpolation for curve in curves for point in curve.keyframe_points}
    if not times or len(kinds) != 1 or not kinds <= set(_INTERPOLATIONS):
        return None
    for curve in curves:
        if [point.co[0] for point in curve.keyframe_points] != times:
            return None
        if curve.extrapolation != "CONSTANT":
            return None
    kind = kinds.pop()
    if kind == "BEZIER" and not all(_is_smooth(curve) for curve in curves):
        return None
    return times, _INTERPOLATIONS[kind]


def _is_smooth(curve: Any) -> bool:
    """Whether every handle is flat and a third of the way long: then a curve is u² (3 - 2u)."""
    points = list(curve.keyframe_points)
    values = [point.co[1] for point in points]
    near = _MOST_ERROR * max(1.0e-6, max(values) - min(values))
    for left, right in pairwise(points):
        third = (right.co[0] - left.co[0]) / 3.0
        sides = ((left.handle_right, left.co, third), (right.handle_left, right.co, -third))
        for handle, place, step in sides:
            if abs(handle[0] - place[0] - step) > _MOST_ERROR or abs(handle[1] - place[1]) > near:
                return False
    return True


def insert_keyframes(
    group: Any, parameter: Parameter, keyframes: Keyframes, *, frames_per_second: float, start: int
) -> None:
    """Animate a value in Blender as Keyframes say."""
    own = property_name(parameter.name)
    for time, value in zip(keyframes.times, keyframes.values, strict=True):
        frame = time if keyframes.time_unit == "frame" else start + time * frames_per_second
        setattr(group, own, stored_value(parameter, value))
        group.keyframe_insert(data_path=own, frame=frame)
    for curve in animated_paths(group.id_data)[path_of(group, parameter)]:
        _interpolate(curve, keyframes.interpolation)


def _interpolate(curve: Any, interpolation: str) -> None:
    kind = next(name for name, ours in _INTERPOLATIONS.items() if ours == interpolation)
    points = list(curve.keyframe_points)
    for index, point in enumerate(points):
        point.interpolation = kind
        if kind != "BEZIER":
            continue
        point.handle_left_type = point.handle_right_type = "FREE"
        before = points[index - 1].co[0] if index else point.co[0] - 3.0
        after = points[index + 1].co[0] if index + 1 < len(points) else point.co[0] + 3.0
        time, value = point.co
        point.handle_left = (time - (time - before) / 3.0, value)
        point.handle_right = (time + (after - time) / 3.0, value)


def remove_animation(owner: bpy.types.ID, prefix: str) -> None:
    """Remove all F-curves and drivers whose data path begins with a prefix."""
    for path in animated_paths(owner):
        if path.startswith(prefix):
            _remove_curves(owner, path)


def _remove_curves(owner: bpy.types.ID, path: str) -> None:
    data = owner.animation_data
    for curves in (*curve_collections(owner), data.drivers if data is not None else ()):
        for curve in [one for one in curves if one.data_path == path]:
            curves.remove(curve)


def reset(group: Any, name: str) -> None:
    """Bring a property back to its default, without keyframes and drivers."""
    for one in with_switch(group, name):
        _remove_curves(group.id_data, group.path_from_id(one))
    unset(group, name)


def move_animation(owner: bpy.types.ID, renamed: Mapping[str, str]) -> None:
    """Let F-curves and drivers follow values whose data paths changed.

    Args:
        renamed: New beginnings of data paths by the old ones, with their closing bracket.
    """
    for path, curves in animated_paths(owner).items():
        for old, new in renamed.items():
            if path.startswith(old):
                for curve in curves:
                    curve.data_path = new + path[len(old) :]
                break
