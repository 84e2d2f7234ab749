"""The functions that an expression may call: what they take, what they give, what they mean.

The table is the only list. The checker reads the kinds from it, the generator reads the formulas,
and the reference pages read the one-line docs. A formula is the text of the generated code for one
component: `{0}`, `{1}` ... stand for the arguments, and each further formula finds the result of
the one before in `{0}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "int", "bool", "vector"]

KINDS: tuple[Kind, ...] = ("float", "int", "bool", "vector")

#  components  numbers, or vectors component by component (numbers and vectors may be mixed)
#  numbers     float or int only          vectors   vectors only
#  integers    int only                   scalars   float, int or bool
Takes = Literal["components", "numbers", "vectors", "integers", "scalars"]


@dataclass(frozen=True)
class Function:
    """One function of the language."""

    name: str
    arguments: tuple[str, ...]
    takes: Takes
    gives: Kind | Literal["same"]  # "same": int when every argument is, otherwise float
    doc: str
    formula: tuple[str, ...] = ()  # empty: the generator has a rule of its own
    repeats: bool = False  # more arguments of the same sort may follow

    @property
    def signature(self) -> str:
        """How the function is called, as text: `clamp(x, low, high)`."""
        dots = ", ..." if self.repeats else ""
        return f"{self.name}({', '.join(self.arguments)}{dots})"


def _number(name: str, formula: str, doc: str, arguments: tuple[str, ...] = ("x",)) -> Function:
    return Function(name, arguments, "components", "float", doc, (formula,))


_TABLE = (
    _number("sin", "np.sin({0})", "Sine of an angle in radians."),
    _number("cos", "np.cos({0})", "Cosine of an angle in radians."),
    _number("tan", "np.tan({0})", "Tangent of an angle in radians."),
    _number("asin", "np.arcsin({0})", "Angle in radians whose sine is x; NaN outside [-1, 1]."),
    _number("acos", "np.arccos({0})", "Angle in radians whose cosine is x; NaN outside [-1, 1]."),
    _number("atan", "np.arctan({0})", "Angle in radians whose tangent is x."),
    _number("atan2", "np.arctan2({0}, {1})", "Angle in radians of (x, y).", ("y", "x")),
    _number("sqrt", "np.sqrt({0})", "Square root; NaN below zero."),
    _number("exp", "np.exp({0})", "e to the power x."),
    _number("log", "np.log({0})", "Natural logarithm; -inf at zero, NaN below."),
    _number("pow", "({0} ** {1})", "x to the power y, always a float.", ("x", "y")),
    _number("floor", "np.floor({0})", "Largest whole number not above x, as a float."),
    _number("ceil", "np.ceil({0})", "Smallest whole number not below x, as a float."),
    _number("round", "np.rint({0})", "Nearest whole number as a float; halves go to the even one."),
    _number("lerp", "({0} + ({1} - {0}) * {2})", "a at t = 0, b at t = 1.", ("a", "b", "t")),
    Function(
        "smoothstep",
        ("low", "high", "x"),
        "components",
        "float",
        "Smooth step from 0 at low to 1 at high.",
        (
            "np.minimum(np.maximum(({2} - {0}) / ({1} - {0}), 0.0), 1.0)",
            "({0} * {0} * (3.0 - 2.0 * {0}))",
        ),
    ),
    Function("abs", ("x",), "components", "same", "Distance from zero.", ("abs({0})",)),
    Function("sign", ("x",), "components", "same", "-1, 0 or 1.", ("np.sign({0})",)),
    Function(
        "min",
        ("a", "b"),
        "components",
        "same",
        "Smallest of the arguments; NaN if one is NaN.",
        ("np.minimum({0}, {1})",),
        repeats=True,
    ),
    Function(
        "max",
        ("a", "b"),
        "components",
        "same",
        "Largest of the arguments; NaN if one is NaN.",
        ("np.maximum({0}, {1})",),
        repeats=True,
    ),
    Function(
        "clamp",
        ("x", "low", "high"),
        "components",
        "same",
        "x, but not below low and not above high.",
        ("np.minimum(np.maximum({0}, {1}), {2})",),
    ),
    Function("vec3", ("x", "y", "z"), "numbers", "vector", "Vector of three numbers."),
    Function("length", ("v",), "vectors", "float", "Euclidean length."),
    Function("normalize", ("v",), "vectors", "vector", "v at length one; zero stays zero."),
    Function("dot", ("a", "b"), "vectors", "float", "Scalar product."),
    Function("cross", ("a", "b"), "vectors", "vector", "Vector product, right-handed."),
    Function("float", ("x",), "scalars", "float", "The number as a float; True is 1.0."),
    Function("int", ("x",), "scalars", "int", "x without its fraction; within 9.2e18, NaN is 0."),
    Function("bool", ("x",), "scalars", "bool", "True unless x is zero."),
    Function(
        "rand",
        ("stream",),
        "integers",
        "float",
        "Uniform in [0, 1): one number per seed, id, frame, substep and stream.",
    ),
    Function("noise", ("v",), "vectors", "float", "Smooth noise in [-1, 1], one cell per unit."),
    Function("curlnoise", ("v",), "vectors", "vector", "Smooth noise without divergence."),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _TABLE}
