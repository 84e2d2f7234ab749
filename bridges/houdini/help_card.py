"""Help cards: the page of a node type in Houdini's wiki markup, made from its interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loki_vfx.bridges.houdini.dialog_script import Dialog, Folder, Parm
from loki_vfx.bridges.houdini.parm_names import is_switch


def help_card(dialog: Dialog, *, context: str, summary: str, body: str) -> str:
    """Return the page of a node type.

    Args:
        dialog: Its interface.
        context: "sop", "dop", ...
        summary: One line.
        body: What is said between that line and the lists of inputs and parameters; its
            `@related` nodes come last.
    """
    said, related, nodes = body.strip().partition("@related")
    lines = [
        f"= {dialog.label} =",
        "",
        "#type: node",
        f"#context: {context}",
        f"#internal: {dialog.name}",
        "#tags: loki, simulation",
        "",
        f'"""{summary}"""',
        "",
        *said.strip().splitlines(),
    ]
    if dialog.input_labels:
        lines += ["", "@inputs"]
        lines += [line for label in dialog.input_labels for line in _input_lines(label)]
    if dialog.items:
        lines += ["", "@parameters", *_item_lines(dialog.items)]
    if related:
        lines += ["", related, "", *nodes.strip().splitlines()]
    return "\n".join(lines) + "\n"


def card_name(operator: str) -> str:
    """Return the file of a node type's page: `loki--solver-1.0.txt` of loki::solver::1.0."""
    namespace, name, version = operator.split("::")
    return f"{namespace}--{name}-{version}.txt"


def _input_lines(label: str) -> Iterator[str]:
    yield from ("", f"{label}:", f"    {_INPUT_WORDS.get(label, 'Geometry for the simulation.')}")


_INPUT_WORDS = {
    "Geometry": "What becomes a stream, with all its attributes.",
    "Loki Graph": "The streams of a Loki Graph node.",
}


def _item_lines(items: Sequence[Parm | Folder]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Folder):
            if item.kind != "multiparm":
                yield from ("", f"== {item.label} ==")
            yield from _item_lines(item.items)
        elif not item.is_hidden and not is_switch(item.name):
            yield from ("", f"{item.label}:", f"    #id: {item.name}", "", f"    {item.help}")
            for token, label in item.menu:
                if token and item.name != "loki_template":
                    yield from ("", f"    {label}:", f"        `{token}`")
