"""Declared parms: every declared parameter of Loki as native parms of Houdini.

A value that may be none has a switch in front of it. Numbers are those of the declaration, in SI
units; Houdini's axes and its metre are Loki's. Texts, lists of any length, and tuples that are
longer than Houdini's vectors are edited as texts, with commas.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from loki_core.behavior import Declaration
from loki_core.keyframes import Keyframes
from loki_core.parameter import Parameter
from loki_vfx.bridges.houdini.dialog_script import Parm, Range, number_text
from loki_vfx.bridges.houdini.parm_names import GIVEN, parm_name

LARGEST_INT = 2**31 - 1
LONGEST_VECTOR = 4
LOG_RATIO = 1.0e4  # between the ends of a range, from which on the slider is logarithmic

_VECTORS = {
    (float, 2): "vector2",
    (float, 3): "vector",
    (float, 4): "vector4",
    (int, 2): "intvector2",
    (int, 3): "intvector",
    (int, 4): "intvector4",
}
_FILES = {"path": "file", "file": "file", "folder": "directory", "cache": "directory"}
_PLACES = {"object": "object", "primitive": "primitive", "vertex": "point"}


def parms_of(declaration: type[Declaration]) -> list[Parm]:
    """Return the parms of all parameters that a Behavior, a node or settings declare."""
    return [parm for one in declaration.parameters().values() for parm in declared_parms(one)]


def declared_parms(parameter: Parameter, *, name: str = "", label: str = "") -> list[Parm]:
    """Return the parm of a parameter, after its switch if it has one.

    Args:
        parameter: Its declaration; the range and the default are those of the parm.
        name: Loki's name or path of it; that of the declaration if empty.
        label: What people read; the name in words if empty.
    """
    own = parm_name(name or parameter.name)
    text = label or parameter.name.replace("_", " ").title()
    value = replace(_value_parm(parameter), name=own, label=text, help=help_of(parameter))
    if not parameter.type.optional:
        return [value]
    switch = own + GIVEN
    words = "Without, Loki chooses it" if parameter.type.is_numeric else "Without, there is none"
    given = Parm(
        switch,
        f"Set {text}",
        "toggle",
        ("0" if parameter.default is None else "1",),
        help=f"{value.help} {words}.",
    )
    return [given, replace(value, disable_when=f"{{ {switch} == 0 }}")]


def is_text(parameter: Parameter) -> bool:
    """Whether the value is edited as a text."""
    length = parameter.type.length
    if length is not None and (length == 0 or length > LONGEST_VECTOR):
        return True
    return parameter.type.base is str or parameter.choices is not None


def help_of(parameter: Parameter) -> str:
    """Return what is said when the mouse rests on the parm."""
    sentences = [parameter.doc or parameter.name.replace("_", " ").capitalize()]
    if parameter.unit:
        sentences.append(f"In {parameter.unit}")
    if parameter.choices is not None and parameter.type.length is not None:
        sentences.append("Of " + ", ".join(str(one) for one in parameter.choices))
    if is_text(parameter) and parameter.type.length is not None:
        sentences.append("Separated by commas")
    if parameter.varies != "no":
        sentences.append(f"Attributes may give each {_PLACES[parameter.varies]} its own")
    return " ".join(one.rstrip(".") + "." for one in sentences)


def _value_parm(parameter: Parameter) -> Parm:
    """Return the parm of a value, without its name and words."""
    base, length = parameter.type.base, parameter.type.length
    default = _default(parameter)
    if is_text(parameter):
        return _text_parm(parameter, default)
    if base is bool and length is None:
        return Parm("", "", "toggle", (str(int(default)),))
    values = default if length is not None else (default,)
    if base is float:
        parm_type = _VECTORS.get((float, length or 1), "log" if _is_wide(parameter) else "float")
        return Parm("", "", parm_type, tuple(map(number_text, values)), float_range(parameter))
    texts = tuple(str(_clipped(int(one))) for one in values)
    whole = Range(0, 1, True, True) if base is bool else int_range(parameter)
    return Parm("", "", _VECTORS.get((int, length or 1), "integer"), texts, whole)


def _text_parm(parameter: Parameter, default: Any) -> Parm:
    value_type = parameter.type
    if value_type.length is not None:
        items = [number_text(one) if value_type.is_numeric else str(one) for one in default]
        return Parm("", "", "string", (", ".join(items),))
    if parameter.choices is not None:
        menu = tuple((str(one), _choice_label(one)) for one in parameter.choices)
        return Parm("", "", "string", (str(default),), menu=menu)
    if parameter.kind == "expression":
        tags = (("editor", "1"), ("editorlines", "6-20"))
        return Parm("", "", "string", (default,), tags=tags)
    kind = _FILES.get(parameter.name, "string") if parameter.kind is None else "string"
    return Parm("", "", kind, (default,))


def _choice_label(choice: Any) -> str:
    return str(choice).replace("_", " ").capitalize()


def _default(parameter: Parameter) -> Any:
    """Return what the parm shows at first; something if the default is none."""
    value = parameter.default
    if isinstance(value, Keyframes):
        value = value.at(0.0)
    if value is not None:
        return value
    if parameter.choices is not None and parameter.type.length is None:
        return parameter.choices[0]
    base, length = parameter.type.base, parameter.type.length
    one: Any = "" if base is str else base(parameter.minimum or 0)
    return one if length is None else (one,) * length


def _is_wide(parameter: Parameter) -> bool:
    low, high = parameter.minimum, parameter.maximum
    return low is not None and high is not None and low > 0.0 and high / low >= LOG_RATIO


def float_range(parameter: Parameter) -> Range:
    """Return the ends of the slider: those that are declared, and round ones around the default."""
    values = _default(parameter)
    values = values if parameter.type.length is not None else (values,)
    reach = _round_up(2.0 * max(map(abs, values)))
    low, high = parameter.minimum, parameter.maximum
    is_signed = parameter.type.length is not None or min(values) < 0.0
    low_end = low if low is not None else (-reach if is_signed else 0.0)
    high_end = high if high is not None else max(reach, low_end + reach)
    low_end = min(low_end, high_end - reach) if low is None else low_end
    return Range(float(low_end), float(high_end), low is not None, high is not None)


def int_range(parameter: Parameter) -> Range:
    """Return the ends of the slider; Houdini's sliders have 32 bits."""
    found = float_range(parameter)
    low, high = _clipped(int(found.low)), _clipped(int(found.high))
    is_low_strict = found.is_low_strict and low == found.low
    return Range(low, high, is_low_strict, found.is_high_strict and high == found.high)


def _clipped(number: int) -> int:
    return max(-LARGEST_INT, min(LARGEST_INT, number))


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, ... and their tenths; 1 for nothing."""
    if value <= 0.0:
        return 1.0
    power = math.floor(math.log10(value))
    candidates = (float(f"{digit}e{power + up}") for up in (0, 1) for digit in (1, 2, 5))
    return next(one for one in candidates if one >= value)
