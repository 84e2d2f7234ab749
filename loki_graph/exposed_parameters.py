"""Exposed parameters: values inside a graph that a host shows under public names.

node.parameter                       a parameter of a node
solver/Group/Behavior.parameter      a parameter inside the Solver Setup of a node
solver/substeps                      a setting of that Solver Setup
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from loki_core.behavior import Behavior, check_name
from loki_core.errors import GraphError, LokiError, did_you_mean
from loki_core.parameter import Parameter, is_clean_text, show
from loki_core.solver_settings import SolverSettings
from loki_core.solver_setup import SolverSetup
from loki_graph.node import Node

MAX_LABEL = 256


@dataclass(frozen=True)
class Exposed:
    """One exposed parameter: where it is and how a host shows it.

    A limit of None adds nothing to the range that the parameter itself declares.
    """

    name: str
    target: str
    label: str = ""
    minimum: float | None = None
    maximum: float | None = None
    default: Any = None

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form, without what is empty."""
        document: dict[str, Any] = {"name": self.name, "target": self.target}
        if self.label:
            document["label"] = self.label
        for key in ("minimum", "maximum"):
            if getattr(self, key) is not None:
                document[key] = getattr(self, key)
        if hasattr(self.default, "to_document"):
            document["default"] = self.default.to_document()
        elif self.default is not None:
            tuple_given = isinstance(self.default, tuple)
            document["default"] = list(self.default) if tuple_given else self.default
        return document


@dataclass(frozen=True)
class ExposedParameter:
    """An exposed parameter with all that a user interface needs.

    Attributes:
        name: The public name.
        label: What people read.
        target: The parameter's place in the graph.
        type: Such as `float` or `tuple[float, float, float]`.
        unit: SI unit of the value; empty if it has none.
        minimum: Smallest allowed value, of the exposed and the declared range together.
        maximum: Largest allowed value, likewise.
        choices: The allowed values, when they are few.
        default: What a host resets it to.
        value: What it is now.
        doc: One line for people.
    """

    name: str
    label: str
    target: str
    type: str
    unit: str
    minimum: float | None
    maximum: float | None
    choices: tuple[Any, ...] | None
    default: Any
    value: Any
    doc: str


def find_parameter(
    target: str, nodes: Mapping[str, Node], *, place: str
) -> tuple[str, str, Parameter, Any]:
    """Return a target's node, the rest of its path, its declaration and its value.

    Raises:
        GraphError: The target leads nowhere; the message names the nearest thing.
    """
    if not isinstance(target, str):
        raise GraphError(f"{place}: the target is {show(target)}, not a text")
    slash, dot = target.find("/"), target.find(".")
    inside = slash >= 0 and (dot < 0 or slash < dot)
    name, _, rest = target.partition("/" if inside else ".")
    if name not in nodes:
        raise GraphError(f'{place}: there is no node "{name[:80]}"{did_you_mean(name[:80], nodes)}')
    node = nodes[name]
    if not inside:
        known = node.parameters()
        if rest not in known:
            hint = did_you_mean(rest[:80], known)
            raise GraphError(f'{place}: node {name} has no parameter "{rest[:80]}"{hint}')
        return name, rest, known[rest], getattr(node, rest)
    setup = getattr(node, "loaded_setup", None)
    if not isinstance(setup, SolverSetup):
        reason = (
            "its Solver Setup file was not read; give base_folder"
            if node.is_open()
            else "it holds no Solver Setup"
        )
        raise GraphError(f"{place} = {show(target)}: node {name} has no paths inside: {reason}")
    try:
        declared, value = _inside_setup(setup, rest)
    except LokiError as error:
        raise GraphError(f"{place} = {show(target)}: {error}") from None
    return name, "/" + rest, declared, value


def _inside_setup(setup: SolverSetup, target: str) -> tuple[Parameter, Any]:
    path, _, name = target.rpartition(".")
    placed = setup.find(path)
    owner: Any = setup.settings if isinstance(placed.node, SolverSetup) else placed.node
    if name == "enabled":
        switch = Parameter(default=True, doc="Whether it takes part in the simulation.")
        return switch.declared("enabled", "bool", owner=placed.path), placed.node.enabled
    known = owner.parameters() if isinstance(owner, (Behavior, SolverSettings)) else {}
    if name not in known:
        hint = did_you_mean(name[:80], [*known, "enabled"])
        raise GraphError(f'{setup.place(placed.path)} has no parameter "{name[:80]}"{hint}')
    return known[name], getattr(owner, name)


def narrowed(exposed: Exposed, declared: Parameter, *, place: str) -> Parameter:
    """Return the declaration with the exposed range inside its own.

    Raises:
        GraphError: The range is not one of numbers, or leaves nothing.
    """
    for word in ("minimum", "maximum"):
        limit = getattr(exposed, word)
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit != limit:
            raise GraphError(f"{place}.{word} = {show(limit)} is not a number")
        if not declared.type.is_numeric:
            raise GraphError(f"{place}: {exposed.target} is {declared.type.words}, without a range")
    lows = [x for x in (exposed.minimum, declared.minimum) if x is not None]
    highs = [x for x in (exposed.maximum, declared.maximum) if x is not None]
    low, high = max(lows, default=None), min(highs, default=None)
    if low is not None and high is not None and low > high:
        raise GraphError(
            f"{place}: the range {show(low)} to {show(high)} of {exposed.target} holds no value"
        )
    return replace(declared, minimum=low, maximum=high)


def check_exposed(exposed: Exposed, nodes: Mapping[str, Node], *, place: str) -> Exposed:
    """Return an exposed parameter with its default in stored form, everything checked.

    Raises:
        GraphError: The name, target, label, range or default is not valid.
    """
    try:
        check_name(exposed.name, f"{place}: the name of an exposed parameter")
        here = f"{place}/exposed {exposed.name}"
        _, _, declared, value = find_parameter(exposed.target, nodes, place=here)
        if not isinstance(exposed.label, str) or len(exposed.label) > MAX_LABEL:
            raise GraphError(f"{here}.label is not a text of at most {MAX_LABEL} letters")
        if not is_clean_text(exposed.label):
            raise GraphError(f"{here}.label holds characters that are not text")
        narrow = narrowed(exposed, declared, place=here)
        default = value if exposed.default is None else exposed.default
        if default is not None:
            default = narrow.check(default, f"{here}.default")
    except GraphError:
        raise
    except LokiError as error:
        raise GraphError(str(error)) from None
    return replace(exposed, default=default)


def describe_exposed(
    exposed: Exposed, nodes: Mapping[str, Node], *, place: str
) -> ExposedParameter:
    """Return all that a user interface needs to show an exposed parameter."""
    _, _, declared, value = find_parameter(exposed.target, nodes, place=place)
    narrow = narrowed(exposed, declared, place=place)
    return ExposedParameter(
        name=exposed.name,
        label=exposed.label or exposed.name.replace("_", " ").capitalize(),
        target=exposed.target,
        type=str(declared.type),
        unit=declared.unit,
        minimum=narrow.minimum,
        maximum=narrow.maximum,
        choices=declared.choices,
        default=exposed.default,
        value=value,
        doc=declared.doc,
    )
