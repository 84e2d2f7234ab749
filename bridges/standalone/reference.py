"""The reference: Markdown pages of every Behavior, setting, Stage, function and node.

All of it comes from the declarations, so a new Behavior is in the reference as soon as it exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loki_core.behavior import KINDS, Behavior, registry
from loki_core.expressions import FUNCTIONS, READ_ONLY_NAMES
from loki_core.parameter import Parameter, show
from loki_core.pipeline.stages import Stage
from loki_core.solver_settings import SolverSettings
from loki_core.sparse_parameters import channel_names
from loki_core.units import format_number

_NOTE = "<!-- Written by `wtloki reference`; change the declaration, not this page. -->\n"


def reference_pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    pages = {
        "behaviors.md": _behaviors_page(),
        "settings.md": _settings_page(),
        "stages.md": _stages_page(),
        "expressions.md": _expressions_page(),
        "nodes.md": _nodes_page(),
    }
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in pages.items()}
    lines = [f"- [{title}]({name})" for name, title in titles.items()]
    index = f"# Reference\n\n{_NOTE}\n" + "\n".join(lines) + "\n"
    return {"index.md": index, **{name: _noted(text) for name, text in pages.items()}}


def _noted(text: str) -> str:
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{_NOTE}{rest}"


def _behaviors_page() -> str:
    parts = ["# Behaviors\n"]
    known = registry()
    for kind in KINDS:
        of_kind = [behavior for behavior in known.values() if behavior.kind == kind]
        if of_kind:
            parts.append(f"## {kind.capitalize()}s\n")
            parts += [_behavior_section(behavior) for behavior in of_kind]
    return "\n".join(parts)


def _behavior_section(behavior: type[Behavior]) -> str:
    doc = _clean_doc(behavior)
    if behavior.exclusive:
        doc += "\n\nExclusive: of several that reach an Object, the one in the nearest Group acts."
    rows = [_parameter_row(one, behavior) for one in behavior.parameters().values()]
    table = _table(
        ("parameter", "type", "unit", "range", "default", "varies", "channels", "meaning"), rows
    )
    return f"### {behavior.__name__}\n\n{doc}\n\n{table if rows else 'It has no parameters.'}\n"


def _clean_doc(declaration: Any) -> str:
    lines = (declaration.__doc__ or "").strip().splitlines()
    return "\n".join(line.strip() for line in lines)


def _parameter_row(one: Parameter, behavior: type[Behavior] | None = None) -> tuple[str, ...]:
    channels = ""
    if behavior is not None and one.varies != "no":
        channels = ", ".join(f"`{name}`" for name in channel_names(behavior, one.name))
    kind = f"{one.type}" + (f" ({one.kind.replace('_', ' ')})" if one.kind else "")
    row = [f"`{one.name}`", kind, one.unit, _range(one), show(one.default)]
    if behavior is not None:
        row += [one.varies, channels]
    return (*row, one.doc)


def _range(one: Parameter) -> str:
    if one.choices is not None:
        return ", ".join(str(choice) for choice in one.choices)
    parts = []
    if one.minimum is not None:
        parts.append(f"≥ {format_number(one.minimum)}")
    if one.maximum is not None:
        parts.append(f"≤ {format_number(one.maximum)}")
    return " ".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _settings_page() -> str:
    rows = [_parameter_row(one) for one in SolverSettings.parameters().values()]
    table = _table(("setting", "type", "unit", "range", "default", "meaning"), rows)
    return f"# Solver settings\n\n{_clean_doc(SolverSettings)}\n\n{table}\n"


def _stages_page() -> str:
    rows = [
        (
            f"**{stage.name}**" if stage.user_facing else stage.name,
            stage.loop,
            "user" if stage.user_facing else "developer",
            stage.doc,
        )
        for stage in Stage
    ]
    table = _table(("Stage", "loop", "facing", "what happens"), rows)
    text = "In execution order. Expressions may run at the user-facing ones, in bold."
    return f"# Stages\n\n{text}\n\n{table}\n"


def _expressions_page() -> str:
    rows = [(f"`{one.signature}`", one.takes, one.gives, one.doc) for one in FUNCTIONS.values()]
    table = _table(("function", "takes", "gives", "meaning"), rows)
    names = ", ".join(f"`{name}`" for name in READ_ONLY_NAMES)
    text = f"Besides channels and the user's own values, an expression may read {names}."
    return f"# Expression functions\n\n{text}\n\n{table}\n"


def _nodes_page() -> str:
    from loki_graph.node import node_registry

    parts = ["# Graph nodes\n"]
    for name, node in sorted(node_registry().items()):
        rows = [_parameter_row(one) for one in node.parameters().values()]
        table = _table(("parameter", "type", "unit", "range", "default", "meaning"), rows)
        parts.append(
            f"## {name}\n\n{_clean_doc(node)}\n\n{_sockets(node)}{table if rows else ''}\n"
        )
    return "\n".join(parts)


def _sockets(node: Any) -> str:
    rows = [
        (f"`{one.name}`", way, f"as `{one.like}`" if one.like else str(one.type), one.doc)
        for way, sockets in (("in", node.input_sockets), ("out", node.output_sockets))
        for one in sockets
    ]
    return _table(("socket", "way", "type", "meaning"), rows) + "\n\n" if rows else ""
