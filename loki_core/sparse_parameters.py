"""Sparse Parameters: one value for most things, overridden where something narrower says more.

    default -> Behavior -> object (detail) channel -> primitive channel -> vertex or voxel channel

The narrowest wins. Particles of all kinds count as vertices; what varies by vertex varies by voxel
where it acts on a volume. The overriding channel is called `<behavior>_<parameter>`, such as
`bending_stiffness` for BendingConstraint.stiffness, or by the shared physical name that the
parameter declares, such as `radius`; `<channel>_scale` multiplies what is broader.

Kernels get one form, `(values, step)`, and read `values[i * step]`: a constant has step 0 and one
entry, a channel step 1 and an entry for each vertex, primitive or voxel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loki_core.behavior import Behavior
from loki_core.errors import InputError, SetupError, did_you_mean
from loki_core.keyframes import Keyframes
from loki_core.parameter import Parameter
from loki_core.units import format_number

Location = Literal["vertex", "primitive", "voxel"]

LOCATIONS = ("detail", "primitive", "vertex", "voxel")  # from broad to narrow
_ALLOWED = {"no": 0, "object": 1, "primitive": 2, "vertex": 4}  # how many of LOCATIONS
_KIND_SUFFIX = re.compile(r"(?<=.)(Object|Force|Constraint|Operator|Expression)$")
_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Resolved:
    """A parameter as kernels read it.

    Values have the shape [k], or [k, components] for vectors; k is 1 when step is 0. Origin says
    in words where they come from.
    """

    values: Array
    step: int
    origin: str

    def __iter__(self) -> Iterator[Any]:
        """Unpack as `values, step = resolved`."""
        yield self.values
        yield self.step


@dataclass(frozen=True)
class _Request:
    """What one call of resolve() asks for, and what messages call it."""

    label: str
    declared: Parameter
    counts: Mapping[str, int]
    target: Location
    primitive_of_vertex: Array | None
    vertices_of_primitive: Array | None


def snake_case(name: str) -> str:
    """Return a class name in snake case: `NeoHookean` is `neo_hookean`."""
    return _WORD_BORDER.sub("_", name).lower()


def channel_names(behavior_class: type[Behavior], parameter_name: str) -> tuple[str, ...]:
    """Return the channels that override a parameter, the more specific name first."""
    declared = behavior_class.parameters()[parameter_name]
    prefix = snake_case(_KIND_SUFFIX.sub("", behavior_class.__name__))
    own = f"{prefix}_{parameter_name}"
    shared = declared.channel
    return (own,) if shared is None or shared == own else (own, shared)


def resolve(
    behavior: Behavior,
    parameter_name: str,
    *,
    behavior_label: str = "",
    channels: Mapping[str, Mapping[str, Any]],
    counts: Mapping[str, int],
    time: float = 0.0,
    target: Location = "vertex",
    dtype: npt.DTypeLike = np.float64,
    primitive_of_vertex: Array | None = None,
    vertices_of_primitive: Array | None = None,
    frames_per_second: float = 24.0,
    start_frame: int = 1,
) -> Resolved:
    """Return a parameter's values for every vertex or primitive of one Object.

    Args:
        behavior: The Behavior; its keyframes are evaluated at `time` [s].
        parameter_name: One of its numeric parameters.
        behavior_label: What messages call the Behavior, such as its path in the tree.
        channels: For "detail", "primitive", "vertex" and "voxel", arrays by channel name.
        counts: Number of primitives, of vertices and of voxels.
        time: Time [s] at which keyframes are evaluated.
        target: What the kernel visits: "vertex", "primitive" or "voxel".
        dtype: Type of the values.
        primitive_of_vertex: Primitive of each vertex, shape [vertex_count]; needed when a
            primitive channel is read per vertex.
        vertices_of_primitive: Vertices of each primitive, shape [primitive_count, k]; needed
            when a vertex channel is read per primitive, which averages it.
        frames_per_second: For keyframes that are given in frames.
        start_frame: The frame at time zero, for the same.

    Raises:
        SetupError: The parameter does not exist, has no value, or may not vary so far.
        InputError: A channel has the wrong size, or a value that the parameter does not allow.
    """
    label = behavior_label or type(behavior).__name__
    declared = behavior.parameters().get(parameter_name)
    if declared is None:
        hint = did_you_mean(parameter_name, behavior.parameters())
        raise SetupError(f'{label} has no parameter "{parameter_name}"{hint}')
    if declared.type.base is str or declared.type.length == 0:
        raise SetupError(f"{label}.{parameter_name} is {declared.type.words}, not for kernels")
    request = _Request(
        f"{label}.{parameter_name}",
        declared,
        counts,
        target,
        primitive_of_vertex,
        vertices_of_primitive,
    )
    names = channel_names(type(behavior), parameter_name)
    _check_locations(request, names, channels)
    value, origin = _behavior_value(behavior, declared, time, frames_per_second, start_frame)
    values = None if value is None else np.asarray([value])
    if values is not None and declared.type.components == 1:
        values = values.reshape(1)
    step = 0
    for location in LOCATIONS[: _ALLOWED[declared.varies]]:
        present = channels.get(location, {})
        for name in names:
            if name in present:
                values = _read(request, present[name], name, location, is_scale=False)
                origin = f'{_place(location)} channel "{name}"'
                step = 0 if location == "detail" else 1
                break
        for name in (f"{name}_scale" for name in names):
            if name in present and values is not None:
                scale = _read(request, present[name], name, location, is_scale=True)
                values = _multiply(values, scale)
                origin += f' × {_place(location)} channel "{name}"'
                step = step if location == "detail" else 1
                _check_values(request, values, origin)
    if values is None:
        hint = f' or bring a channel "{names[-1]}"' if declared.varies != "no" else ""
        raise SetupError(f"{request.label} has no value; set it{hint}")
    return Resolved(_in_dtype(request, values, dtype, origin), step, origin)


def _behavior_value(
    behavior: Behavior,
    declared: Parameter,
    time: float,
    frames_per_second: float,
    start_frame: int,
) -> tuple[Any, str]:
    value = getattr(behavior, declared.name)
    if isinstance(value, Keyframes):
        now = value.at(time, frames_per_second=frames_per_second, start_frame=start_frame)
        return now, f"keyframe at {format_number(time)} s"
    return value, "default" if value == declared.default else "Behavior value"


def _place(location: str) -> str:
    return "object" if location == "detail" else location


def _check_locations(
    request: _Request, names: tuple[str, ...], channels: Mapping[str, Mapping[str, Any]]
) -> None:
    """Refuse channels where the parameter may not vary; ignoring them would surprise."""
    varies = request.declared.varies
    for location, present in channels.items():
        if location not in LOCATIONS:
            hint = did_you_mean(location, LOCATIONS)
            raise SetupError(f'{request.label}: channels on "{location}" are not known{hint}')
        if LOCATIONS.index(location) < _ALLOWED[varies]:
            continue
        for name in names:
            found = next((n for n in (name, f"{name}_scale") if n in present), None)
            if found is not None:
                limit = "does not vary" if varies == "no" else f"varies per {varies} at most"
                channel = f'{_place(location)} channel "{found}"'
                raise SetupError(
                    f"{request.label} {limit}, but the {channel} is there; remove or rename it"
                )


def _read(request: _Request, data: Any, name: str, location: str, *, is_scale: bool) -> Array:
    """Return a channel on the target location; [1] or [1, components] for the whole Object."""
    channel = f'{request.label}: {_place(location)} channel "{name}"'
    values = np.asarray(data)
    if values.dtype.kind not in "fiub":
        raise InputError(f"{channel} holds {values.dtype}, not numbers")
    components = request.declared.type.components
    count = 1 if location == "detail" else request.counts.get(location)
    if count is None:
        raise InputError(f"{channel}: the number of {location} elements is not given")
    allowed = [(count,), (count, 1)] if components == 1 or is_scale else []
    if components > 1:
        allowed.append((count, components))
    if location == "detail":
        values = values.reshape(1, *values.shape) if values.shape in ((), (components,)) else values
    if values.shape not in allowed:
        shown = " or ".join(str(list(shape)) for shape in allowed)
        raise InputError(f"{channel} has the shape {list(values.shape)}, but {shown} is expected")
    if components == 1:
        values = values.reshape(count)
    elif values.ndim == 1:  # a scale of vectors, one number for all components
        values = values.reshape(count, 1)
    _check_values(request, values, channel, is_scale=is_scale)
    return _onto_target(request, values, location, channel)


def _onto_target(request: _Request, values: Array, location: str, channel: str) -> Array:
    if location in ("detail", request.target):
        return values
    index, name = request.primitive_of_vertex, "primitive_of_vertex"
    if request.target == "primitive":
        index, name = request.vertices_of_primitive, "vertices_of_primitive"
    if index is None:
        raise InputError(f"{channel} is read per {request.target}, which needs {name}")
    count = request.counts.get(request.target, index.shape[0])
    if index.shape[0] != count or index.ndim != (1 if request.target == "vertex" else 2):
        raise InputError(f"{channel}: {name} has the shape {list(index.shape)} for {count} items")
    if index.size and (index.min() < 0 or index.max() >= values.shape[0]):
        raise InputError(
            f"{channel}: {name} points outside of 0..{values.shape[0] - 1} "
            f"({index.min()}..{index.max()})"
        )
    gathered: Array = values[index]
    if request.target == "vertex":
        return gathered
    return np.asarray(gathered.mean(axis=1, dtype=np.float64))


def _multiply(values: Array, scale: Array) -> Array:
    # in float64: two float32 channels must not round twice
    return np.multiply(values, scale, dtype=np.float64)


def _check_values(
    request: _Request, values: Array, channel: str, *, is_scale: bool = False
) -> None:
    """Check that channel values are finite and in range; two passes and no copy when they are."""
    if values.size == 0:
        return
    declared = request.declared
    lowest, highest = values.min(), values.max()
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        _refuse(request, values, ~np.isfinite(values), channel, "is not finite")
    if is_scale:
        return
    unit = f" {declared.unit}" if declared.unit else ""
    # a limit is rounded as the values are: 0.1 in float32 is not above 0.1
    kind = values.dtype.type if values.dtype.kind == "f" else float
    if declared.minimum is not None and lowest < kind(declared.minimum):
        limit = f"is below the minimum {format_number(declared.minimum)}{unit}"
        _refuse(request, values, values < kind(declared.minimum), channel, limit)
    if declared.maximum is not None and highest > kind(declared.maximum):
        limit = f"is above the maximum {format_number(declared.maximum)}{unit}"
        _refuse(request, values, values > kind(declared.maximum), channel, limit)
    if declared.type.base is int and values.dtype.kind == "f":
        wrong = values != np.rint(values)
        if wrong.any():
            _refuse(request, values, wrong, channel, "is not a whole number")
    if declared.type.base is bool and (lowest < 0 or highest > 1):
        _refuse(request, values, (values != 0) & (values != 1), channel, "is not 0 or 1")


def _refuse(request: _Request, values: Array, wrong: Array, channel: str, why: str) -> None:
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = ", ".join(str(i) for i in index)
    value = format_number(values[index].item())
    has_unit = bool(request.declared.unit) and bool(np.isfinite(values[index]))
    unit = f" {request.declared.unit}" if has_unit else ""
    start = "" if channel.startswith(request.label) else f"{request.label}: "
    raise InputError(f"{start}{channel}[{place}] = {value}{unit} {why}")


def _in_dtype(request: _Request, values: Array, dtype: npt.DTypeLike, origin: str) -> Array:
    """Return contiguous, writable values: one array type, so that kernels compile once.

    A channel that has the type already is handed on without a copy.
    """
    with np.errstate(over="ignore"):
        result = np.require(values, dtype=dtype, requirements=["C", "W"])
    if result.dtype.kind == "f" and result.dtype != values.dtype:
        lowest, highest = result.min(initial=0.0), result.max(initial=0.0)
        if not (np.isfinite(lowest) and np.isfinite(highest)):
            why = f"does not fit into {result.dtype}"
            _refuse(request, values, ~np.isfinite(result), origin, why)
    return result
