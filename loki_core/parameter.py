"""A parameter: one value of a Behavior, declared once.

    stiffness: float = parameter(1.0e4, unit="N/m", minimum=0.0, varies="primitive", doc="...")

Name, type, default, unit, range, choices, one line of documentation, and how far the value may
vary over an Object are said in that line; validation, JSON, its schema, user interfaces and the
reference pages all come from it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from loki_core.errors import SetupError, did_you_mean
from loki_core.keyframes import INTERPOLATIONS, TIME_UNITS, Keyframes
from loki_core.units import convert, format_number, parse_quantity, parse_unit, split_number
from loki_core.wording import counted, plural

Varies = Literal["no", "object", "primitive", "vertex"]
ParameterKind = Literal["stream", "object_reference", "stream_or_object", "expression", "channel"]

MAX_STRING = 4096  # characters of a plain string value
MAX_EXPRESSION = 65_536  # characters of a value of kind "expression"
MAX_ITEMS = 4096  # items of a tuple of any length
INTEGER_LIMIT = 2**63 - 1

_SNAKE = re.compile(r"[a-z][a-z0-9_]*")
_BASES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
SWITCHES = dict.fromkeys(("true", "on", "yes", "1"), True) | dict.fromkeys(
    ("false", "off", "no", "0"), False
)  # what a text may say for true and false
_BASE_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True)
class ValueType:
    """The type of a parameter: a base type, alone or in a tuple, perhaps optional."""

    base: type
    length: int | None = None  # None: a single value; 0: a tuple of any length
    optional: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether values are numbers or tuples of numbers."""
        return self.base in (int, float)

    @property
    def components(self) -> int:
        """Numbers in one value: 1, or the length of the tuple."""
        return 1 if self.length is None else self.length

    def __str__(self) -> str:
        text = self.base.__name__
        if self.length is not None:
            text = f"tuple[{', '.join([text] * self.length) if self.length else text + ', ...'}]"
        return text + (" | None" if self.optional else "")

    @property
    def words(self) -> str:
        """Say what a value must be, for messages."""
        if self.length is None:
            return _BASE_WORDS[self.base]
        one = {bool: "true/false", int: "whole number", float: "number", str: "text"}[self.base]
        return f"a list of {plural(one)}" if self.length == 0 else counted(self.length, one)


def read_type(annotation: Any) -> ValueType | None:
    """Return the ValueType that an annotation names, or None when it is not supported.

    The text is read against the supported forms, so nothing is evaluated and declarations may
    stand in modules whose annotations are strings.
    """
    text = annotation if isinstance(annotation, str) else _annotation_text(annotation)
    text = text.replace("typing.", "").replace(" ", "")
    optional = False
    if text.startswith("Optional[") and text.endswith("]"):
        text, optional = text[len("Optional[") : -1], True
    if text.endswith("|None"):
        text, optional = text[: -len("|None")], True
    if text in _BASES:
        return ValueType(_BASES[text], optional=optional)
    match = re.fullmatch(r"[tT]uple\[(\w+)((?:,\w+)*|,\.\.\.)\]", text)
    if match is None or match.group(1) not in _BASES:
        return None
    base, rest = match.group(1), match.group(2)
    if rest == ",...":
        return ValueType(_BASES[base], 0, optional)
    if any(other != base for other in rest.split(",")[1:]):
        return None
    return ValueType(_BASES[base], 1 + rest.count(","), optional)


def _annotation_text(annotation: Any) -> str:
    is_plain_class = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    return annotation.__name__ if is_plain_class else str(annotation)


@dataclass(frozen=True)
class Parameter:
    """One declared parameter, with everything that its line says.

    Attributes:
        follows_class: Whether the line leaves it to the class how far the value may vary.
    """

    default: Any
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    varies: Varies = "no"
    follows_class: bool = False
    choices: tuple[Any, ...] | None = None
    channel: str | None = None
    doc: str = ""
    kind: ParameterKind | None = None
    is_spatial: bool = False
    name: str = ""
    owner: str = ""
    type: ValueType = field(default=ValueType(float))

    def declared(
        self, name: str, annotation: Any, *, owner: str, varies: Varies = "no"
    ) -> Parameter:
        """Return this parameter with its name, type and owner, the declaration checked.

        Args:
            name: What the class calls it.
            annotation: Its type.
            owner: Name of the class.
            varies: How far the class lets its numbers vary where their lines do not say.
        """
        place = f"{owner}.{name}"
        value_type = read_type(annotation)
        if value_type is None:
            raise SetupError(
                f'{place} is annotated "{annotation}"; a parameter is bool, int, float, str, a '
                "tuple of one of these such as tuple[float, float, float], or one of these | None"
            )
        known = replace(self, name=name, owner=owner, type=value_type)
        if known.follows_class and known.is_quantity:
            known = replace(known, varies=varies)
        known._check_declaration(place)
        return replace(known, default=known.check(self.default, place))

    @property
    def is_quantity(self) -> bool:
        """Whether it is a number or a vector that may take any value: no count and no choice."""
        return self.type.base is float and self.type.length != 0 and self.choices is None

    def _check_declaration(self, place: str) -> None:
        if "\n" in self.doc:
            raise SetupError(f"{place}: the doc of a parameter is one line")
        if self.varies not in get_args(Varies):
            hint = did_you_mean(str(self.varies), get_args(Varies))
            raise SetupError(f"{place}: varies={self.varies!r} is not known{hint}")
        if self.kind is not None and self.kind not in get_args(ParameterKind):
            hint = did_you_mean(str(self.kind), get_args(ParameterKind))
            raise SetupError(f"{place}: kind={self.kind!r} is not known{hint}")
        if self.kind is not None and self.type.base is not str:
            raise SetupError(f"{place}: kind={self.kind!r} needs the type str, not {self.type}")
        if self.is_spatial and (self.type.base, self.type.length) != (float, 3):
            raise SetupError(f"{place}: a place or direction is of 3 numbers, not {self.type}")
        if self.varies != "no" and (self.type.base is str or self.type.length == 0):
            raise SetupError(f"{place}: a parameter of type {self.type} cannot vary")
        if self.channel is not None and not _SNAKE.fullmatch(self.channel):
            raise SetupError(f'{place}: channel "{self.channel}" is not in snake_case')
        if self.unit and self.type.base is not float:
            raise SetupError(f"{place}: only a float has a unit, not {self.type}")
        unit = parse_unit(self.unit)
        if (unit.factor, unit.offset) != (1.0, 0.0):
            raise SetupError(f'{place}: unit "{self.unit}" is not an SI unit')
        limits = [limit for limit in (self.minimum, self.maximum) if limit is not None]
        if limits and not self.type.is_numeric:
            raise SetupError(f"{place}: only numbers have a minimum or a maximum")
        if len(limits) == 2 and limits[0] > limits[1]:
            raise SetupError(f"{place}: minimum {limits[0]} is above maximum {limits[1]}")

    # -- values ---------------------------------------------------------------------------------

    def check(self, value: Any, place: str) -> Any:
        """Return a value in its stored form: SI numbers, tuples, Keyframes.

        Args:
            value: A plain value, a text with a unit, Keyframes, or the JSON form of these.
            place: What messages call it, such as `hair/GravityForce.acceleration`.

        Raises:
            SetupError: The value is of a wrong type, unit, range or choice.
        """
        if value is None:
            if self.type.optional:
                return None
            raise SetupError(f"{place} = none is not {self.type.words}")
        if isinstance(value, (Keyframes, dict)):
            return self._check_keyframes(value, place)
        return self._check_plain(value, place)

    def _check_keyframes(self, value: Any, place: str) -> Keyframes:
        if self.type.base is str or self.type.length == 0:
            raise SetupError(f"{place} is {self.type.words} and cannot have keyframes")
        try:
            keyframes = value if isinstance(value, Keyframes) else Keyframes.from_document(value)
        except SetupError as error:
            raise SetupError(f"{place} {error}") from None
        if self.type.base is not float and keyframes.interpolation != "step":
            raise SetupError(
                f'{place} is {self.type.words}; its keyframes need interpolation="step", '
                f'not "{keyframes.interpolation}"'
            )
        return keyframes.map_values(
            lambda index, key: self._check_plain(key, f"{place} (keyframe {index})")
        )

    def _check_plain(self, value: Any, place: str) -> Any:
        if self.type.length is None:
            return self._check_one(value, place)
        if isinstance(value, str) and self.type.is_numeric:
            value = self._split_text(value, place)
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist()
        if not isinstance(value, (list, tuple)):
            raise SetupError(f"{place} = {show(value)} is not {self.type.words}")
        if self.type.length and len(value) != self.type.length:
            wanted = self.type.words
            raise SetupError(
                f"{place} = {show(value)} has {counted(len(value), 'item')}, but {wanted} are "
                "expected"
            )
        if len(value) > MAX_ITEMS:
            raise SetupError(f"{place} has {len(value)} items; at most {MAX_ITEMS} are allowed")
        return tuple(self._check_one(item, f"{place}[{i}]") for i, item in enumerate(value))

    def _check_one(self, value: Any, place: str) -> Any:
        base = self.type.base
        if isinstance(value, np.generic):
            value = value.item()
        if base is float:
            value = self._read_float(value, place)
        elif base is int:
            if not isinstance(value, int) or isinstance(value, bool):
                raise SetupError(f"{place} = {show(value)} is not a whole number")
            if abs(value) > INTEGER_LIMIT:
                raise SetupError(f"{place} = {show(value)} does not fit into 64 bits")
        elif not isinstance(value, base):
            raise SetupError(f"{place} = {show(value)} is not {_BASE_WORDS[base]}")
        if base is str:
            self._check_text(value, place)
        self._check_range(value, place)
        return value

    def _read_float(self, value: Any, place: str) -> float:
        shown = show(value)
        if isinstance(value, str):
            try:
                value = parse_quantity(value, self.unit)
            except SetupError as error:
                raise SetupError(f"{place} = {shown} {error}") from None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SetupError(f"{place} = {shown} is not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise SetupError(f"{place} = {shown} is not finite")
        return number

    def _check_text(self, value: str, place: str) -> None:
        limit = MAX_EXPRESSION if self.kind == "expression" else MAX_STRING
        if len(value) > limit:
            raise SetupError(
                f"{place} is a text of {len(value)} characters; at most {limit} are allowed"
            )
        if not is_clean_text(value):
            raise SetupError(f"{place} = {show(value)} holds characters that are not text")

    def _check_range(self, value: Any, place: str) -> None:
        unit = f" {self.unit}" if self.unit else ""
        for word, limit, wrong in (
            ("below the minimum", self.minimum, self.minimum is not None and value < self.minimum),
            ("above the maximum", self.maximum, self.maximum is not None and value > self.maximum),
        ):
            if wrong and limit is not None:
                raise SetupError(
                    f"{place} = {format_number(value)}{unit} is {word} {format_number(limit)}{unit}"
                )
        if self.choices is not None and value not in self.choices:
            known = ", ".join(show(choice) for choice in self.choices)
            near = did_you_mean(str(value)[:40], [str(choice) for choice in self.choices])
            hint = near if "did you mean" in near else f"; known: {known}"
            raise SetupError(f"{place} = {show(value)} is not one of the choices{hint}")

    def _split_text(self, text: str, place: str) -> list[Any]:
        """Read `0 -9.81 0 m/s^2`, `(0, -9.81, 0)` or `[0, -9.81, 0] m/s^2` into its items."""
        items: list[Any] = []
        inner, bracket, unit = text[:1024].strip(), "", ""
        if inner[:1] in ("(", "["):
            bracket = {"(": ")", "[": "]"}[inner[0]]
            inner, found, unit = inner[1:].rpartition(bracket)
            if not found:
                raise SetupError(f'{place} = {show(text)} has no closing "{bracket}"')
        inner = inner.strip()
        while inner:
            split = split_number(inner)
            if split is None:
                break
            number, inner = split
            items.append(int(number) if self.type.base is int and number.is_integer() else number)
            inner = inner.removeprefix(",").strip()
        unit = unit.strip() if bracket else inner
        if (bracket and inner) or (inner and not items):
            raise SetupError(f'{place} = {show(text)}: "{inner[:40]}" is not a number')
        if not unit:
            return items
        try:
            return [convert(float(item), unit, self.unit) for item in items]
        except SetupError as error:
            raise SetupError(f"{place} = {show(text)} {error}") from None

    def from_text(self, text: str, place: str) -> Any:
        """Return the value that a text on a command line means.

        Raises:
            SetupError: The text does not give a valid value.
        """
        plain = text.strip()
        if self.type.optional and plain.lower() in ("none", "null"):
            return None
        if plain.startswith("{") or (plain.startswith("[") and self.type.base is not float):
            try:
                return self.check(json.loads(plain), place)
            except (ValueError, RecursionError):
                raise SetupError(f"{place} = {show(text)} is not valid JSON") from None
        if self.type.base is str:
            if self.type.length is None:
                return self.check(text, place)
            return self.check([item.strip() for item in plain.split(",") if item.strip()], place)
        if self.type.base is bool:
            items = [SWITCHES.get(item.lower(), item) for item in re.split(r"[\s,]+", plain)]
            return self.check(items[0] if self.type.length is None else items, place)
        if (
            self.type.base is int
            and self.type.length is None
            and re.fullmatch(r"[+-]?\d{1,20}", plain)
        ):
            return self.check(int(plain), place)
        return self.check(plain, place)

    def to_document(self, value: Any) -> Any:
        """Return a stored value in its JSON form."""
        if isinstance(value, Keyframes):
            return value.to_document()
        return list(value) if isinstance(value, tuple) else value

    # -- documentation --------------------------------------------------------------------------

    def describe(self) -> str:
        """Return one line: name, type, unit, range, default, and the doc."""
        parts = [f"{self.name}: {self.type}"]
        if self.unit:
            parts.append(f"[{self.unit}]")
        if self.choices:
            parts.append("one of " + ", ".join(show(choice) for choice in self.choices))
        if self.minimum is not None:
            parts.append(f">= {format_number(self.minimum)}")
        if self.maximum is not None:
            parts.append(f"<= {format_number(self.maximum)}")
        parts.append(f"default {show(self.default)}")
        if self.varies != "no":
            parts.append(f"varies per {self.varies}")
        return " ".join(parts) + (f"; {self.doc}" if self.doc else "")

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the value in a Solver Setup document."""
        names = {bool: "boolean", int: "integer", float: "number", str: "string"}
        one: dict[str, Any] = {"type": names[self.type.base]}
        if self.minimum is not None:
            one["minimum"] = self.minimum
        if self.maximum is not None:
            one["maximum"] = self.maximum
        if self.choices is not None:
            one["enum"] = list(self.choices)
        if self.type.base is float:
            one = {"anyOf": [one, {"type": "string", "description": "a number with its unit"}]}
        plain = one
        if self.type.length is not None:
            plain = {"type": "array", "items": one}
            if self.type.length:
                plain |= {"minItems": self.type.length, "maxItems": self.type.length}
        forms = [plain]
        if self.type.base is not str and self.type.length != 0:
            forms.append(_keyframes_schema(plain))
        if self.type.optional:
            forms.append({"type": "null"})
        schema: dict[str, Any] = forms[0] if len(forms) == 1 else {"anyOf": forms}
        schema = {**schema, "default": self.to_document(self.default)}
        if self.doc or self.unit:
            schema["description"] = self.doc + (f" [{self.unit}]" if self.unit else "")
        return schema


def parameter(
    default: Any,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    varies: Varies | None = None,
    choices: Sequence[Any] | None = None,
    channel: str | None = None,
    doc: str = "",
    kind: ParameterKind | None = None,
    is_spatial: bool = False,
) -> Any:
    """Declare a parameter as a class attribute of a Behavior.

    Args:
        default: The value when nothing else is said; in SI units.
        unit: SI unit of the value; a text with another unit of that kind is converted.
        minimum: Smallest allowed value, of every component.
        maximum: Largest allowed value, of every component.
        varies: The narrowest place whose channels may override the value: "no", "object",
            "primitive" or "vertex", which is a voxel of a volume and a particle of a liquid. None
            is what the class says by its keyword `varies`, for float parameters that are no choice,
            and "no" for all others: counts and seeds are written `varies="vertex"` to vary.
        choices: The allowed values, when they are few.
        channel: A shared physical channel that overrides the value, such as `radius`.
        doc: One line for people.
        kind: What a text refers to: an input stream, an Object, an expression, a channel.
        is_spatial: Whether it is a place or a direction, which a host with other axes turns.
    """
    return Parameter(
        default=default,
        unit=unit,
        minimum=minimum,
        maximum=maximum,
        varies="no" if varies is None else varies,
        follows_class=varies is None,
        choices=None if choices is None else tuple(choices),
        channel=channel,
        doc=doc,
        kind=kind,
        is_spatial=is_spatial,
    )


def show(value: Any) -> str:
    """Return a value as short text for a message: `"5 kg"`, `(0, -9.81, 0)`, `none`."""
    if value is None:
        return "none"
    if isinstance(value, str):
        cut = value if len(value) <= 60 else value[:57] + "..."
        if not cut.isprintable():  # a message stays on its line, and can always be printed
            cut = cut.encode("unicode_escape").decode("ascii")
        return f'"{cut}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) <= INTEGER_LIMIT else "a huge whole number"
    if isinstance(value, float):
        return format_number(value)
    if isinstance(value, (list, tuple)):
        shown = ", ".join(show(item) for item in value[:6])
        return f"({shown}{', ...' if len(value) > 6 else ''})"
    if isinstance(value, Keyframes):
        return f"{len(value.times)} keyframes"
    return f"a {type(value).__name__}"


def is_clean_text(text: str) -> bool:
    """Return whether a text can be written as UTF-8 and holds no NUL character."""
    if "\0" in text:
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, as damaged JSON can hold
        return False
    return True


def _keyframes_schema(value: dict[str, Any]) -> dict[str, Any]:
    key = {
        "type": "array",
        "prefixItems": [{"type": ["number", "string"]}, value],
        "minItems": 2,
        "maxItems": 2,
    }
    return {
        "type": "object",
        "properties": {
            "keyframes": {"type": "array", "items": key, "minItems": 1},
            "interpolation": {"enum": list(INTERPOLATIONS)},
            "time_unit": {"enum": list(TIME_UNITS)},
        },
        "required": ["keyframes"],
        "additionalProperties": False,
    }
