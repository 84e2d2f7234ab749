"""Setup rows: the tree of a Solver Setup as a flat list with depths, which Blender can show.

A row is a Group or a Behavior. The values of a Behavior lie in a PropertyGroup of its class; a row
has a pointer for every class that is registered, and only the one in use takes memory. A Behavior
that this Loki does not know (from an extension that is not here) keeps what was stored for it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import bpy

from loki_core.behavior import Behavior, find_behavior, registry
from loki_core.errors import SetupError
from loki_core.keyframes import Keyframes
from loki_core.solver_settings import SolverSettings
from loki_core.solver_setup import Group, SolverSetup

from .animation import insert_keyframes, path_of
from .declared_properties import changed_values, set_values, values_class

VALUES = "p_"  # begins the name of a row's pointer to the values of a class

Animated = Mapping[str, Keyframes]
"""Keyframes by the data path of the value, from the node tree."""


def new_number() -> int:
    """Return a number by which a row or node is known whatever it is called later."""
    return random.SystemRandom().randrange(1, 2**31 - 1)


def make_row_class() -> type[Any]:
    """Return the class of rows, with a pointer for each Behavior that is known now."""
    annotations: dict[str, Any] = {
        "number": bpy.props.IntProperty(options={"HIDDEN"}),
        "is_group": bpy.props.BoolProperty(options={"HIDDEN"}),
        "behavior": bpy.props.StringProperty(options={"HIDDEN"}),
        "title": bpy.props.StringProperty(
            name="Name", description="Its name in paths; empty is that of its class"
        ),
        "enabled": bpy.props.BoolProperty(
            name="Enabled", description="Whether it takes part in the simulation", default=True
        ),
        "depth": bpy.props.IntProperty(options={"HIDDEN"}),
        "is_open": bpy.props.BoolProperty(name="Open", default=True),
    }
    for name, behavior in registry().items():
        annotations[VALUES + name] = bpy.props.PointerProperty(type=values_class(behavior))
    return type("LOKI_PG_row", (bpy.types.PropertyGroup,), {"__annotations__": annotations})


def behavior_of(row: Any) -> type[Behavior] | None:
    """Return the class of a row's Behavior; None for a Group and for what is not known here."""
    if row.is_group or not hasattr(row, VALUES + row.behavior):
        return None
    return find_behavior(row.behavior)


def values_of(row: Any) -> Any:
    """Return the PropertyGroup with the values of a row's Behavior."""
    return getattr(row, VALUES + row.behavior)


def name_of(row: Any) -> str:
    """Return what a row is called in paths."""
    return str(row.title or row.behavior)


def rows_below(rows: Sequence[Any], index: int) -> range:
    """Return the indices of all rows below a row, children of children included."""
    end = index + 1
    while end < len(rows) and rows[end].depth > rows[index].depth:
        end += 1
    return range(index + 1, end)


def parent_of(rows: Sequence[Any], index: int) -> int | None:
    """Return the index of the Group around a row; None at the root."""
    for other in range(index - 1, -1, -1):
        if rows[other].depth < rows[index].depth:
            return other
    return None


def path_of_row(rows: Sequence[Any], index: int) -> str:
    """Return the path of a row in the Solver Setup, `Hair/BendingConstraint`."""
    steps = [name_of(rows[index])]
    parent = parent_of(rows, index)
    while parent is not None:
        steps.append(name_of(rows[parent]))
        parent = parent_of(rows, parent)
    return "/".join(reversed(steps))


def siblings_of(rows: Sequence[Any], index: int) -> Iterator[int]:
    """Yield the other rows in the same Group."""
    parent = parent_of(rows, index)
    inside = range(len(rows)) if parent is None else rows_below(rows, parent)
    for other in inside:
        if other != index and rows[other].depth == rows[index].depth:
            yield other


def make_name_unique(rows: Sequence[Any], index: int) -> None:
    """Give a row a name of its own in its Group, since paths lead to rows by their names."""
    taken = {name_of(rows[other]) for other in siblings_of(rows, index)}
    base = name_of(rows[index])
    number = 2
    while name_of(rows[index]) in taken:
        rows[index].title = f"{base}_{number}"
        number += 1


# -- from and to a Solver Setup -------------------------------------------------------------------


def setup_of(
    rows: Sequence[Any], settings: Mapping[str, Any], name: str, animated: Animated
) -> SolverSetup:
    """Return the Solver Setup that rows describe.

    Args:
        settings: Of the solver, those that are not the default.
        animated: Keyframes of values that are animated.

    Raises:
        SetupError: A value or a name is not valid; the message says where.
    """
    children = _children(rows, range(len(rows)), 0, animated)
    return SolverSetup.from_values(
        name,
        tuple(children),
        enabled=True,
        place=name,
        settings=SolverSettings.from_values(settings, place=name),
    )


def _children(
    rows: Sequence[Any], inside: range, depth: int, animated: Animated
) -> Iterator[Group | Behavior]:
    for index in inside:
        row = rows[index]
        if row.depth != depth:
            continue
        place = path_of_row(rows, index)
        if row.is_group:
            below = tuple(_children(rows, rows_below(rows, index), depth + 1, animated))
            yield Group.from_values(row.title, below, enabled=row.enabled, place=place)
            continue
        behavior = behavior_of(row)
        if behavior is None:
            if not row.enabled:
                continue  # it is kept in the file, and nobody misses it
            raise SetupError(
                f"{place}: this Loki has no {row.behavior}; load the extension that declares it, "
                "or disable it"
            )
        values = row_values(row, behavior, animated)
        given = {"name": row.title or None, "enabled": row.enabled, **values}
        yield behavior.from_values(given, place=place)


def row_values(row: Any, behavior: type[Behavior], animated: Animated) -> dict[str, Any]:
    """Return the values of a row that are not the default, keyframes in place of animated ones."""
    group = values_of(row)
    values = changed_values(group, behavior)
    for name, parameter in behavior.parameters().items():
        keyframes = animated.get(path_of(group, parameter)) if animated else None
        if keyframes is not None:
            values[name] = keyframes
    return values


def fill_rows(rows: Any, setup: SolverSetup) -> None:
    """Make rows of a Solver Setup, in the order of writing; keyframes are not set yet."""
    rows.clear()
    _fill(rows, setup, 0)


def _fill(rows: Any, group: Group, depth: int) -> None:
    for name, child in zip(group.child_names, group.children, strict=True):
        row = rows.add()
        row.number = new_number()
        row.depth = depth
        row.enabled = child.enabled
        if isinstance(child, Group):
            row.is_group, row.title = True, child.name
            _fill(rows, child, depth + 1)
            continue
        row.behavior = type(child).__name__
        # Several of one class are called by their content; here they keep those names.
        row.title = child.name or ("" if name == row.behavior else name)
        plain = {k: v for k, v in child.changed_values().items() if not isinstance(v, Keyframes)}
        set_values(values_of(row), type(child), plain)


def insert_row_keyframes(
    rows: Any, setup: SolverSetup, *, frames_per_second: float, start: int
) -> None:
    """Animate the values of rows that have keyframes in the Solver Setup they were made of."""
    for row, child in zip(rows, _in_order(setup), strict=True):
        if isinstance(child, Group):
            continue
        for name, value in child.changed_values().items():
            if isinstance(value, Keyframes):
                insert_keyframes(
                    values_of(row),
                    child.parameters()[name],
                    value,
                    frames_per_second=frames_per_second,
                    start=start,
                )


def _in_order(group: Group) -> Iterator[Group | Behavior]:
    for child in group.children:
        yield child
        if isinstance(child, Group):
            yield from _in_order(child)
