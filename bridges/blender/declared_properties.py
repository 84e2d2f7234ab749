"""Declared properties: every declared parameter as an ordinary Blender property.

A Behavior, a node of a Loki Graph or the settings of a solver is a Declaration; `values_class`
makes a PropertyGroup of it. What nobody has touched is not stored ("is not set"), so a default
stays a default; keyframes and drivers work as everywhere in Blender.

Numbers are those of the declaration, in SI units, whatever the unit scale of the scene; places and
directions are turned into Blender's axes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import bpy
import numpy as np

from loki_core.behavior import Declaration
from loki_core.errors import SetupError
from loki_core.parameter import Parameter
from loki_core.solver_settings import SolverSettings

from .axes import turn_to_host, turn_to_loki

LARGEST_INT = 2**31 - 1
LONGEST_VECTOR = 32
GIVEN = "__given"  # ends the name of the switch beside a value that may be none

#: Names that every PropertyGroup has already.
RESERVED = frozenset(name for name in dir(bpy.types.PropertyGroup) if not name.startswith("_"))

_listeners: list[Callable[[Any], None]] = []
_classes: dict[type[Declaration], type[Any]] = {}


def on_change(listener: Callable[[Any], None]) -> None:
    """Call `listener(group)` whenever a user or a script changes a value."""
    _listeners.append(listener)


def forget_listeners() -> None:
    """Tell nobody any more."""
    _listeners.clear()


def _tell(group: Any, context: Any) -> None:
    for listener in _listeners:
        listener(group)


def property_name(parameter: str) -> str:
    """Return what a parameter is called in its PropertyGroup."""
    return f"{parameter}_" if parameter in RESERVED else parameter


def label_of(parameter: Parameter) -> str:
    """Return what people read: the name in words, with its unit."""
    words = parameter.name.replace("_", " ").title()
    return f"{words} [{parameter.unit}]" if parameter.unit else words


def tooltip_of(parameter: Parameter) -> str:
    """Return what is said when the mouse rests on the value."""
    lines = [parameter.doc or label_of(parameter)]
    if parameter.varies != "no":
        places = {"object": "object", "primitive": "curve or face", "vertex": "point"}
        lines.append(f"May differ for each {places[parameter.varies]}")
    if parameter.type.length == 3 and parameter.type.base is float and not parameter.is_spatial:
        lines.append("Along Loki's axes, of which Y is up")
    return ". ".join(line.rstrip(".") for line in lines)


# -- making classes -------------------------------------------------------------------------------


def values_class(declaration: type[Declaration]) -> type[Any]:
    """Return the PropertyGroup class of a Declaration; whoever asks first registers it."""
    if declaration not in _classes:
        _classes[declaration] = _make_class(declaration)
    return _classes[declaration]


def forget_classes() -> None:
    """Make all classes anew next time."""
    _classes.clear()


def _make_class(declaration: type[Declaration]) -> type[Any]:
    annotations: dict[str, Any] = {}
    for name, parameter in declaration.parameters().items():
        own = property_name(name)
        if parameter.type.optional:
            annotations[own + GIVEN] = bpy.props.BoolProperty(
                name=f"Set {label_of(parameter)}",
                description=f"{tooltip_of(parameter)}. Without, it is chosen automatically",
                default=parameter.default is not None,
                update=_tell,
            )
        annotations[own] = _property(parameter, is_fixed=declaration is SolverSettings)
    name = f"LOKI_PG_{declaration.__name__}"
    content = {
        "__annotations__": annotations,
        "__doc__": declaration.__doc__,
        "__module__": __name__,
    }
    return type(name, (bpy.types.PropertyGroup,), content)


def _property(parameter: Parameter, *, is_fixed: bool = False) -> Any:
    """Return the property of a parameter; texts, and what is fixed in a run, take no keyframes."""
    value_type = parameter.type
    common: dict[str, Any] = {
        "name": label_of(parameter),
        "description": tooltip_of(parameter),
        "update": _tell,
    }
    if is_fixed or value_type.base is str:
        common["options"] = set()
    default = _stored(parameter, parameter.default)
    if is_text(parameter):
        return bpy.props.StringProperty(**common, default=default)
    if parameter.choices is not None:
        items = [
            (str(one), str(one).replace("_", " ").capitalize(), "") for one in parameter.choices
        ]
        return bpy.props.EnumProperty(**common, items=items, default=default)
    if value_type.base is bool:
        if value_type.length is None:
            return bpy.props.BoolProperty(**common, default=default)
        return bpy.props.BoolVectorProperty(**common, size=value_type.length, default=default)
    common |= _limits(parameter)
    if value_type.base is int:
        if value_type.length is None:
            return bpy.props.IntProperty(**common, default=default)
        return bpy.props.IntVectorProperty(**common, size=value_type.length, default=default)
    largest = float(np.max(np.abs(parameter.default or 0.0)))
    common |= {"precision": 4 if largest < 1.0e4 else 0, "step": 10}
    if value_type.length is None:
        return bpy.props.FloatProperty(**common, default=default)
    subtype = "XYZ" if parameter.is_spatial else "NONE"
    return bpy.props.FloatVectorProperty(
        **common, size=value_type.length, default=default, subtype=subtype
    )


def is_text(parameter: Parameter) -> bool:
    """Whether the value is edited as a text: texts, and lists of any length."""
    value_type = parameter.type
    if value_type.length == 0 or (value_type.length or 0) > LONGEST_VECTOR:
        return True
    return value_type.base is str and (parameter.choices is None or value_type.length is not None)


def _limits(parameter: Parameter) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    whole = parameter.type.base is int
    for word, key in (("minimum", "min"), ("maximum", "max")):
        limit = getattr(parameter, word)
        if limit is not None:
            limits[key] = _clipped(int(limit)) if whole else float(limit)
    return limits


# -- values ---------------------------------------------------------------------------------------


def _stored(parameter: Parameter, value: Any) -> Any:
    """Return a plain value as its property stores it."""
    value_type = parameter.type
    if value is None:
        value = _something(parameter)
    if is_text(parameter):
        return ", ".join(str(item) for item in value) if value_type.length is not None else value
    if parameter.choices is not None:
        return str(value)
    if parameter.is_spatial:
        return turn_to_host(value)
    if value_type.base is int:
        return tuple(map(_clipped, value)) if value_type.length else _clipped(value)
    return value


def _clipped(number: int) -> int:
    return max(-LARGEST_INT, min(LARGEST_INT, number))  # Blender's whole numbers have 32 bits


def _something(parameter: Parameter) -> Any:
    """Return what the property of a value that is none shows."""
    value_type = parameter.type
    if parameter.choices is not None:
        return parameter.choices[0]
    one: Any = "" if value_type.base is str else value_type.base(parameter.minimum or 0)
    return one if value_type.length is None else (one,) * value_type.length


def _plain(parameter: Parameter, stored: Any) -> Any:
    """Return the value that a property means, in the declaration's terms."""
    value_type = parameter.type
    if is_text(parameter):
        return _from_text(parameter, stored)
    if parameter.choices is not None:
        return next(one for one in parameter.choices if str(one) == stored)
    if value_type.base is float:
        stored = tuple(map(decimal, stored)) if value_type.length else decimal(stored)
        return turn_to_loki(stored) if parameter.is_spatial else stored
    return tuple(stored) if value_type.length else stored


def _from_text(parameter: Parameter, text: str) -> Any:
    if parameter.type.length is None:
        return text
    items = [item for item in re.split(r"[,\s]+", text.strip()) if item]
    if parameter.type.base is str:
        return tuple(items)
    return tuple(parameter.type.base(item) for item in items)


def decimal(value: float) -> float:
    """Return the shortest number that Blender's 32 bits cannot tell from a value: 0.1 stays 0.1."""
    return float(str(np.float32(value)))


def get_value(group: Any, parameter: Parameter) -> Any:
    """Return a value as it is now, in the declaration's terms: SI units, Loki's axes.

    Raises:
        SetupError: A text is no list of what it should be.
    """
    own = property_name(parameter.name)
    if parameter.type.optional and not getattr(group, own + GIVEN):
        return None
    if not group.is_property_set(own) and parameter.default is not None:
        return parameter.default  # with all its digits
    return plain_value(parameter, getattr(group, own))


def plain_value(parameter: Parameter, stored: Any) -> Any:
    """Return what a stored value means, in the declaration's terms.

    Raises:
        SetupError: A text is no list of what it should be.
    """
    try:
        return _plain(parameter, stored)
    except ValueError:
        raise SetupError(
            f"{parameter.owner}.{parameter.name} = {stored!r} is not {parameter.type.words}"
        ) from None


def stored_value(parameter: Parameter, value: Any) -> Any:
    """Return how a property stores a value of the declaration."""
    return _stored(parameter, value)


def set_value(group: Any, parameter: Parameter, value: Any) -> None:
    """Set a value that is given in the declaration's terms."""
    own = property_name(parameter.name)
    if parameter.type.optional:
        setattr(group, own + GIVEN, value is not None)
        if value is None:
            return
    setattr(group, own, _stored(parameter, value))


def with_switch(group: Any, name: str) -> list[str]:
    """Return a property and, if its value may be none, the switch beside it."""
    return [one for one in (name, name + GIVEN) if one in group.bl_rna.properties]


def unset(group: Any, name: str) -> None:
    """Bring a property back to its default."""
    for one in with_switch(group, name):
        group.property_unset(one)
    _tell(group, None)


def is_set(group: Any, parameter: Parameter) -> bool:
    """Whether somebody has said something about a value."""
    own = property_name(parameter.name)
    if parameter.type.optional and group.is_property_set(own + GIVEN):
        return True
    return bool(group.is_property_set(own))


def changed_values(group: Any, declaration: type[Declaration]) -> dict[str, Any]:
    """Return every value that was set, in the declaration's terms."""
    return {
        name: get_value(group, parameter)
        for name, parameter in declaration.parameters().items()
        if is_set(group, parameter)
    }


def set_values(group: Any, declaration: type[Declaration], values: Mapping[str, Any]) -> None:
    """Set some values and bring the others back to their defaults."""
    for name, parameter in declaration.parameters().items():
        if name in values:
            set_value(group, parameter, values[name])
        elif is_set(group, parameter):
            unset(group, property_name(name))
