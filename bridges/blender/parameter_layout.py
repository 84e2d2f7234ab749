"""Parameter layout: how declared values are drawn, wherever they are shown.

Each value says where it comes from: an empty dot is the default, a filled one was set here and
goes back by a click, a brush means that objects bring values of their own (painted or set on them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loki_core.behavior import Declaration
from loki_core.parameter import Parameter

from .declared_properties import GIVEN, is_set, label_of, property_name

Painted = Mapping[str, str]
"""Who overrides a parameter, in words, by its name."""


def draw_values(
    layout: Any,
    group: Any,
    declaration: type[Declaration],
    *,
    search: str = "",
    only_set: bool = False,
    painted: Painted | None = None,
    limit: int | None = None,
    left_out: Sequence[str] = (),
    expose: tuple[int, int] | None = None,
) -> None:
    """Draw the values of a declaration.

    Args:
        search: Only parameters whose name or line of documentation has this in it.
        only_set: Only parameters that are not the default.
        painted: Who overrides which parameter.
        limit: At most so many; the sidebar has the rest.
        left_out: Parameters that are not shown.
        expose: Node and row number; then each value can be exposed by a click.
    """
    shown = 0
    column = layout.column(align=True)
    for name, parameter in declaration.parameters().items():
        if name in left_out:
            continue
        if not matches(parameter, search) or (only_set and not is_set(group, parameter)):
            continue
        if limit is not None and shown == limit:
            column.label(text="… more in the sidebar (N)")
            return
        shown += 1
        row = column.row(align=True)
        draw_value(row, group, parameter)
        _draw_origin(row, group, parameter, (painted or {}).get(name, ""))
        if expose is not None:
            operator = row.operator("loki.expose", text="", icon="LINKED", emboss=False)
            operator.node, operator.row, operator.parameter = expose[0], expose[1], name
    if not shown:
        column.label(text="No parameters" if not search else f'Nothing has "{search}" in it')


def matches(parameter: Parameter, search: str) -> bool:
    """Whether a search finds a parameter."""
    text = f"{parameter.name.replace('_', ' ')} {parameter.name} {parameter.doc}".lower()
    return all(word in text for word in search.lower().split())


def draw_value(layout: Any, group: Any, parameter: Parameter, text: str | None = None) -> None:
    """Draw one value; a switch in front of it if it may be none."""
    own = property_name(parameter.name)
    text = label_of(parameter) if text is None else text
    if parameter.type.length is not None:
        layout = layout.column(align=True)  # components below one another: a row is too narrow
    if not parameter.type.optional:
        layout.prop(group, own, text=text)
        return
    row = layout.row(align=True)
    row.prop(group, own + GIVEN, text="")
    value = row.row(align=True)
    value.active = getattr(group, own + GIVEN)
    value.prop(group, own, text=text)


def _draw_origin(row: Any, group: Any, parameter: Parameter, painted: str) -> None:
    if painted:
        row.label(text="", icon="BRUSH_DATA")
    if not is_set(group, parameter):
        row.label(text="", icon="RADIOBUT_OFF")
        return
    operator = row.operator("loki.reset_value", text="", icon="RADIOBUT_ON", emboss=False)
    operator.path = group.path_from_id(property_name(parameter.name))
    operator.owner = group.id_data.name
