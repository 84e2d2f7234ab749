"""Units: parsing, conversion, kinds and messages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loki_core.errors import LokiError, SetupError
from loki_core.units import convert, dimension_name, format_number, parse_quantity, parse_unit


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("5 cm", "m", 0.05),
        ("5cm", "m", 0.05),
        ("12 in", "ft", 1.0),
        ("3.6 km/h", "m/s", 1.0),
        ("20 degC", "K", 293.15),
        ("20 °C", "K", 293.15),
        ("9.81 m/s^2", "m/s^2", 9.81),
        ("9.81 m s^-2", "m/s^2", 9.81),
        ("-1e3 g", "kg", -1.0),
        ("2 t", "kg", 2000.0),
        ("1 g/cm^3", "kg/m^3", 1000.0),
        ("4 GPa", "N/m^2", 4.0e9),
        ("2 N*s/m", "kg/s", 2.0),
        ("5 1/s", "Hz", 5.0),
        ("1.5 L", "m^3", 0.0015),
        ("180 deg", "rad", math.pi),
        ("1 rev/min", "rad/s", 2.0 * math.pi / 60.0),
        ("25 %", "", 0.25),
        ("7", "m", 7.0),
        ("1 J/(kg*K)", "m^2/(s^2*K)", 1.0),
        ("2 m²", "m^2", 2.0),
        ("90 min", "h", 1.5),
    ],
)
def test_quantity_is_converted(text: str, unit: str, expected: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(expected, rel=1e-14)


def test_unit_has_factor_offset_and_dimension() -> None:
    newton = parse_unit("kN")
    assert (newton.factor, newton.offset, newton.dimension) == (1000.0, 0.0, (1, 1, -2, 0, 0, 0, 0))
    assert parse_unit("degC").offset == 273.15
    assert parse_unit("(m/s)^2").dimension == parse_unit("J/kg").dimension


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("5 kg", "m/s^2", "is a mass, but m/s^2 (an acceleration) is expected"),
        ("5 deg", "", "is an angle, but a plain number is expected"),
        ("5 %", "rad", "is a plain number, but rad (an angle) is expected"),
        ("5 m^5", "m", "is a quantity in m^5, but m (a length) is expected"),
        ("5 kgg", "kg", '"kgg" is not a unit; did you mean "kg"?'),
        ("5 W/degC", "W/K", "degC has a zero point and stands alone; use K in products"),
        ("fast", "m/s", 'is not a number; write a number or a text such as "1 m/s"'),
        ("5 m/", "m", "it ends too early"),
        ("5 (m", "m", 'a "(" is not closed'),
        ("5 m)", "m", 'a ")" has no "("'),
        ("5 m$", "m", '"$" is not understood'),
        ("5 ((km^9)^9)^9", "m", "too large or too small"),
        ("5 m^99", "m", "a power above 12 is not supported"),
        ("1" * 500, "m", "is a text of 500 characters"),
    ],
)
def test_wrong_quantity_says_why(text: str, unit: str, message: str) -> None:
    with pytest.raises(SetupError) as error:
        parse_quantity(text, unit)
    assert message in str(error.value)


def test_dimension_names() -> None:
    assert dimension_name(parse_unit("N/m").dimension) == "a stiffness"
    assert dimension_name(parse_unit("Pa*s").dimension) == "a viscosity"


def test_no_unit_means_the_expected_one() -> None:
    assert convert(3.0, "", "m/s") == 3.0


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_formatted_number_reads_back(value: float) -> None:
    assert float(format_number(value)) == value


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="0159.eE+- kmsNPadegC%/*^()²°", max_size=40))
def test_any_text_is_a_number_or_a_loki_error(text: str) -> None:
    try:
        value = parse_quantity(text, "m/s^2")
    except LokiError:
        return
    assert isinstance(value, float)
