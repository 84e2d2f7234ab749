"""Units: turn text such as "5 cm", "3 km/h" or "20 degC" into SI numbers.

A unit is a product of powers, `N*s/m` or `kg/m^3`, and is known by three things:

    SI value = number * factor + offset,   dimension = powers of (m, kg, s, A, K, mol, cd)

Angles have no dimension in SI; a lone `deg` or `rad` is still told apart from a plain ratio.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from loki_core.errors import SetupError, did_you_mean

Dimension = tuple[int, int, int, int, int, int, int]

BASE_SYMBOLS = ("m", "kg", "s", "A", "K", "mol", "cd")
NONE: Dimension = (0, 0, 0, 0, 0, 0, 0)
MAX_TEXT = 128  # characters of one quantity; longer text is shown cut
MAX_POWER = 12


@dataclass(frozen=True)
class Unit:
    """One unit: SI value = number * factor + offset."""

    text: str
    factor: float
    offset: float
    dimension: Dimension
    is_angle: bool = False

    @property
    def kind(self) -> str:
        """Name the dimension with its article: `a mass`, `an acceleration`."""
        return "an angle" if self.is_angle else dimension_name(self.dimension)

    def same_kind(self, other: Unit) -> bool:
        """Return whether a number in the other unit can be given in this one."""
        if self.dimension != other.dimension:
            return False
        # an angle and a percentage are both plain numbers, and still not each other
        return self.dimension != NONE or self.is_angle == other.is_angle


def _powers(**powers: int) -> Dimension:
    m, kg, s, a, k, mol, cd = (powers.get(symbol, 0) for symbol in BASE_SYMBOLS)
    return (m, kg, s, a, k, mol, cd)


_LENGTH, _MASS, _TIME = _powers(m=1), _powers(kg=1), _powers(s=1)
_TEMPERATURE = _powers(K=1)
_FORCE, _PRESSURE = _powers(m=1, kg=1, s=-2), _powers(m=-1, kg=1, s=-2)
_ENERGY, _POWER = _powers(m=2, kg=1, s=-2), _powers(m=2, kg=1, s=-3)

# symbol: (factor, offset, dimension)
_SYMBOLS: dict[str, tuple[float, float, Dimension]] = {
    "1": (1.0, 0.0, NONE),
    "%": (0.01, 0.0, NONE),
    "rad": (1.0, 0.0, NONE),
    "deg": (math.pi / 180.0, 0.0, NONE),
    "rev": (2.0 * math.pi, 0.0, NONE),
    "m": (1.0, 0.0, _LENGTH),
    "cm": (0.01, 0.0, _LENGTH),
    "mm": (0.001, 0.0, _LENGTH),
    "um": (1.0e-6, 0.0, _LENGTH),
    "km": (1000.0, 0.0, _LENGTH),
    "in": (0.0254, 0.0, _LENGTH),
    "ft": (0.3048, 0.0, _LENGTH),
    "L": (0.001, 0.0, _powers(m=3)),
    "mL": (1.0e-6, 0.0, _powers(m=3)),
    "kg": (1.0, 0.0, _MASS),
    "g": (0.001, 0.0, _MASS),
    "mg": (1.0e-6, 0.0, _MASS),
    "t": (1000.0, 0.0, _MASS),
    "s": (1.0, 0.0, _TIME),
    "ms": (0.001, 0.0, _TIME),
    "us": (1.0e-6, 0.0, _TIME),
    "min": (60.0, 0.0, _TIME),
    "h": (3600.0, 0.0, _TIME),
    "Hz": (1.0, 0.0, _powers(s=-1)),
    "kHz": (1000.0, 0.0, _powers(s=-1)),
    "N": (1.0, 0.0, _FORCE),
    "mN": (0.001, 0.0, _FORCE),
    "kN": (1000.0, 0.0, _FORCE),
    "Pa": (1.0, 0.0, _PRESSURE),
    "hPa": (100.0, 0.0, _PRESSURE),
    "kPa": (1000.0, 0.0, _PRESSURE),
    "MPa": (1.0e6, 0.0, _PRESSURE),
    "GPa": (1.0e9, 0.0, _PRESSURE),
    "bar": (1.0e5, 0.0, _PRESSURE),
    "J": (1.0, 0.0, _ENERGY),
    "kJ": (1000.0, 0.0, _ENERGY),
    "MJ": (1.0e6, 0.0, _ENERGY),
    "W": (1.0, 0.0, _POWER),
    "kW": (1000.0, 0.0, _POWER),
    "K": (1.0, 0.0, _TEMPERATURE),
    "degC": (1.0, 273.15, _TEMPERATURE),
    "A": (1.0, 0.0, _powers(A=1)),
    "mol": (1.0, 0.0, _powers(mol=1)),
    "cd": (1.0, 0.0, _powers(cd=1)),
}
_ANGLES = {"rad", "deg", "rev"}

_NAMES: dict[Dimension, str] = {
    NONE: "a plain number",
    _LENGTH: "a length",
    _powers(m=2): "an area",
    _powers(m=3): "a volume",
    _powers(m=-1): "an inverse length",
    _MASS: "a mass",
    _TIME: "a time",
    _powers(s=-1): "a rate",
    _powers(s=-2): "a rate per time",
    _TEMPERATURE: "a temperature",
    _powers(A=1): "an electric current",
    _powers(mol=1): "an amount of substance",
    _powers(cd=1): "a luminous intensity",
    _powers(m=1, s=-1): "a speed",
    _powers(m=1, s=-2): "an acceleration",
    _powers(m=3, s=-1): "a volume flow",
    _powers(m=2, s=-1): "a diffusivity",
    _powers(kg=1, m=-1): "a mass per length",
    _powers(kg=1, m=-2): "a mass per area",
    _powers(kg=1, m=-3): "a density",
    _powers(kg=1, s=-1): "a damping or mass flow",
    _powers(kg=1, s=-2): "a stiffness",
    _powers(kg=1, m=1, s=-1): "a momentum",
    _FORCE: "a force",
    _powers(kg=1, m=-2, s=-2): "a force density",
    _PRESSURE: "a pressure",
    _powers(kg=1, m=-1, s=-1): "a viscosity",
    _ENERGY: "an energy or torque",
    _POWER: "a power",
    _powers(m=3, kg=1, s=-2): "a bending stiffness",
    _powers(m=2, s=-2, K=-1): "a specific heat",
    _powers(m=1, kg=1, s=-3, K=-1): "a thermal conductivity",
    _powers(K=-1): "a thermal expansion",
    _powers(m=2, s=-2): "a specific energy",
    _powers(K=1, s=-1): "a temperature rate",
}

_TOKEN = re.compile(r"\s*(?:([A-Za-z]+|%|1(?!\d))|(\*|/|\(|\))|(\^)\s*([+-]?\d{1,3}))")
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf)(?![a-z]))")
_SUPERSCRIPTS = str.maketrans({"²": "^2", "³": "^3", "·": "*", "°": "deg"})


def dimension_name(dimension: Dimension) -> str:
    """Return the name of a dimension with its article, or `a quantity in ...`."""
    if dimension in _NAMES:
        return _NAMES[dimension]
    pairs = zip(BASE_SYMBOLS, dimension, strict=True)
    parts = [symbol if power == 1 else f"{symbol}^{power}" for symbol, power in pairs if power]
    return "a quantity in " + "*".join(parts)


@lru_cache(maxsize=1024)
def parse_unit(text: str) -> Unit:
    """Return the Unit that a text such as `kg/m^3` names; empty text is a plain number.

    Raises:
        SetupError: A symbol is unknown, or the text is not a product of powers.
    """
    if len(text) > MAX_TEXT:
        raise SetupError(f'unit "{text[:24]}..." is {len(text)} characters long')
    plain = text.translate(_SUPERSCRIPTS).replace("**", "^").strip()
    if not plain:
        return Unit(text, 1.0, 0.0, NONE)
    if plain in _SYMBOLS:
        factor, offset, dimension = _SYMBOLS[plain]
        return Unit(text, factor, offset, dimension, is_angle=plain in _ANGLES)
    factor, dimension = _Product(text, plain).parse()
    return Unit(text, factor, 0.0, dimension)


class _Product:
    """A reader of `a*b/(c*d)^2`, one token at a time."""

    def __init__(self, text: str, plain: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, int]] = []  # (symbol or operator, power)
        position = 0
        while position < len(plain):
            match = _TOKEN.match(plain, position)
            if match is None:
                raise self.wrong(f'"{plain[position:].strip()}" is not understood')
            name, operator, power, exponent = match.groups()
            self.tokens.append(("^", int(exponent)) if power else (name or operator, 1))
            position = match.end()
        self.position = 0

    def wrong(self, reason: str) -> SetupError:
        return SetupError(f'unit "{self.text}" cannot be read: {reason}')

    def parse(self) -> tuple[float, Dimension]:
        """Return factor and dimension of the whole text."""
        factor, powers = self.product()
        if self.position < len(self.tokens):
            raise self.wrong('a ")" has no "("')
        if not (math.isfinite(factor) and factor > 0.0):
            raise self.wrong("it is too large or too small to be a number")
        if max(abs(power) for power in powers) > MAX_POWER:
            raise self.wrong(f"a power above {MAX_POWER} is not supported")
        m, kg, s, a, k, mol, cd = powers
        return factor, (m, kg, s, a, k, mol, cd)

    def product(self) -> tuple[float, Sequence[int]]:
        factor, powers = self.power()
        while self.position < len(self.tokens) and self.tokens[self.position][0] != ")":
            sign = 1
            if self.tokens[self.position][0] in "*/":  # a space between two symbols multiplies
                sign = -1 if self.tokens[self.position][0] == "/" else 1
                self.position += 1
            other, other_powers = self.power()
            factor *= other**sign
            powers = [p + sign * q for p, q in zip(powers, other_powers, strict=True)]
        return factor, powers

    def power(self) -> tuple[float, Sequence[int]]:
        factor, powers = self.atom()
        if self.position < len(self.tokens) and self.tokens[self.position][0] == "^":
            exponent = self.tokens[self.position][1]
            self.position += 1
            if abs(exponent) > MAX_POWER:
                raise self.wrong(f"a power above {MAX_POWER} is not supported")
            try:
                factor = factor**exponent
            except (OverflowError, ZeroDivisionError):
                raise self.wrong("it is too large or too small to be a number") from None
            powers = [p * exponent for p in powers]
        if not 1.0e-200 < factor < 1.0e200:
            raise self.wrong("it is too large or too small to be a number")
        return factor, powers

    def atom(self) -> tuple[float, Sequence[int]]:
        if self.position == len(self.tokens):
            raise self.wrong("it ends too early")
        symbol, _ = self.tokens[self.position]
        self.position += 1
        if symbol == "(":
            factor, powers = self.product()
            if self.position == len(self.tokens):
                raise self.wrong('a "(" is not closed')
            self.position += 1
            return factor, powers
        if symbol not in _SYMBOLS:
            if symbol in ("*", "/", ")", "^"):
                raise self.wrong(f'"{symbol}" stands where a symbol is expected')
            raise self.wrong(f'"{symbol}" is not a unit' + did_you_mean(symbol, _SYMBOLS))
        factor, offset, dimension = _SYMBOLS[symbol]
        if offset:
            raise self.wrong(f"{symbol} has a zero point and stands alone; use K in products")
        return factor, dimension


def split_number(text: str) -> tuple[float, str] | None:
    """Return (number, rest of the text), or None when the text starts with no number."""
    match = _NUMBER.match(text)
    if match is None:
        return None
    return float(match.group(1)), text[match.end() :].strip()


def convert(number: float, unit_text: str, expected: str) -> float:
    """Return a number given in one unit as SI, checked against the expected unit's kind.

    No unit at all means that the number is in the expected unit already.

    Raises:
        SetupError: `is a mass, but m/s^2 (an acceleration) is expected`.
    """
    if not unit_text:
        return number
    unit, wanted = parse_unit(unit_text), parse_unit(expected)
    if not wanted.same_kind(unit):
        what = f"{expected} ({wanted.kind})" if expected else wanted.kind
        raise SetupError(f"is {unit.kind}, but {what} is expected")
    return (number * unit.factor + unit.offset - wanted.offset) / wanted.factor


def parse_quantity(text: str, expected: str = "") -> float:
    """Return the number that a text such as `5 cm` means in the expected unit.

    Raises:
        SetupError: The text holds no number, an unknown unit, or a unit of another kind.
    """
    if len(text) > MAX_TEXT:
        raise SetupError(f"is a text of {len(text)} characters, not a number")
    split = split_number(text)
    if split is None:
        example = f'"1 {expected}"' if expected else '"1.5"'
        raise SetupError(f"is not a number; write a number or a text such as {example}")
    number, unit_text = split
    return convert(number, unit_text, expected)


def format_number(value: float) -> str:
    """Return a number as short text that reads back to the same number: `-3`, `0.05`."""
    text = repr(value) if isinstance(value, (bool, int)) else repr(float(value))
    return text.removesuffix(".0")
