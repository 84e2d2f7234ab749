"""Dialog scripts: the parameter interface of a Houdini node type as records, and as text.

    parm {
        name    "height"
        label   "Height"
        type    float
        default { "0.35" }
        range   { 0.01! 3! }
    }

`dialog_text` writes what `dialog_parser` reads back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

#: What Houdini puts behind the name of a parm to name its components.
SUFFIXES = {
    "vector": "xyz",
    "vector2": "xy",
    "vector4": "xyzw",
    "intvector": "xyz",
    "intvector2": "xy",
    "intvector4": "xyzw",
}
NUMBERS = ("float", "log", "integer", "intlog", *SUFFIXES)
TEXTS = ("string", "file", "directory", "geometry", "image", "oppath")


class Range(NamedTuple):
    """Ends of a slider; an end that is strict cannot be left by typing either."""

    low: float
    high: float
    is_low_strict: bool = False
    is_high_strict: bool = False


class Expression(NamedTuple):
    """A default that Houdini computes, such as $FSTART."""

    text: str
    language: str = "hscript-expr"


@dataclass(frozen=True)
class Parm:
    """One parm, or a tuple of components.

    Attributes:
        type: As Houdini names it: float, integer, vector, toggle, string, file, button, ...
        menu: Token and label of each choice; a text parm keeps the token.
        tags: What has no word of its own, such as the script of a button.
        disable_when: Condition in Houdini's form, `{ use_it == 0 }`.
    """

    name: str
    label: str
    type: str
    default: tuple[str | Expression, ...] = ()
    range: Range | None = None
    menu: tuple[tuple[str, str], ...] = ()
    help: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    disable_when: str = ""
    hide_when: str = ""
    joins_next: bool = False
    has_label: bool = True
    is_hidden: bool = False

    @property
    def size(self) -> int:
        """Number of components."""
        return max(1, len(self.default))

    def component_names(self) -> list[str]:
        """Return what Houdini calls the components."""
        if self.type not in NUMBERS or (self.size == 1 and self.type not in SUFFIXES):
            return [self.name]
        ends: Sequence[str] = SUFFIXES.get(self.type, [str(i + 1) for i in range(self.size)])
        return [self.name + end for end in ends[: self.size]]


@dataclass(frozen=True)
class Folder:
    """Parms that belong together.

    Attributes:
        kind: "group" is a tab, "groupcollapsible" folds, "groupsimple" is a box, and "multiparm"
            repeats what is in it, with a # in the names, as often as its value says.
    """

    name: str
    label: str
    items: tuple[Parm | Folder, ...]
    kind: str = "group"
    tags: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Dialog:
    """The whole interface of a node type."""

    name: str
    label: str
    items: tuple[Parm | Folder, ...] = ()
    input_labels: tuple[str, ...] = ()
    output_labels: tuple[str, ...] = ()

    def parms(self) -> Iterator[Parm]:
        """Yield every parm, in order, wherever it lies."""
        return _parms(self.items)

    def folders(self) -> Iterator[Folder]:
        """Yield every folder, the outer ones first."""
        return _folders(self.items)


def _parms(items: Sequence[Parm | Folder]) -> Iterator[Parm]:
    for item in items:
        if isinstance(item, Parm):
            yield item
        else:
            yield from _parms(item.items)


def _folders(items: Sequence[Parm | Folder]) -> Iterator[Folder]:
    for item in items:
        if isinstance(item, Folder):
            yield item
            yield from _folders(item.items)


def repeated_names(dialog: Dialog) -> list[str]:
    """Return names that two things in the interface have; Houdini would rename one of them."""
    names = [name for parm in dialog.parms() for name in {parm.name, *parm.component_names()}]
    names += [folder.name for folder in dialog.folders()]
    return sorted({name for name in names if names.count(name) > 1})


# -- writing --------------------------------------------------------------------------------------


def dialog_text(dialog: Dialog) -> str:
    """Return the dialog script.

    Raises:
        ValueError: Two parms have one name.
    """
    repeated = repeated_names(dialog)
    if repeated:
        raise ValueError(f"{dialog.name}: two parms are called {', '.join(repeated)}")
    lines = [
        f"# Dialog script for {dialog.name} automatically generated",
        "",
        "{",
        f"    name\t{dialog.name}",
        f"    script\t{dialog.name}",
        f"    label\t{quoted(dialog.label)}",
        "",
        "    help {",
        '\t""',
        "    }",
        "",
    ]
    for word, labels in (("input", dialog.input_labels), ("output", dialog.output_labels)):
        lines += [f"    {word}label\t{i}\t{quoted(text)}" for i, text in enumerate(labels, 1)]
    if dialog.input_labels or dialog.output_labels:
        lines.append("")
    lines += _item_lines(dialog.items, "    ")
    return "\n".join([*lines, "}"]) + "\n"


def quoted(text: str) -> str:
    """Return a text as dialog scripts quote it, on one line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def number_text(value: float) -> str:
    """Return a number with the digits that it needs: 0.35, 20000, 1e-05."""
    text = repr(value)
    return text.removesuffix(".0")


def _item_lines(items: Sequence[Parm | Folder], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, Parm):
            yield from _parm_lines(item, indent)
        else:
            yield from _folder_lines(item, indent)


def _parm_lines(parm: Parm, indent: str) -> Iterator[str]:
    inner = indent + "    "
    yield indent + "parm {"
    yield f"{inner}name    {quoted(parm.name)}"
    yield f"{inner}label   {quoted(parm.label)}"
    yield f"{inner}type    {parm.type}"
    if parm.is_hidden:
        yield f"{inner}invisible"
    if not parm.has_label:
        yield f"{inner}nolabel"
    if parm.joins_next:
        yield f"{inner}joinnext"
    if parm.size > 1:
        yield f"{inner}size    {parm.size}"
    if parm.default:
        yield f"{inner}default {{ {' '.join(_default_text(one) for one in parm.default)} }}"
    if parm.help:
        yield f"{inner}help    {quoted(parm.help)}"
    if parm.disable_when:
        yield f"{inner}disablewhen {quoted(parm.disable_when)}"
    if parm.hide_when:
        yield f"{inner}hidewhen {quoted(parm.hide_when)}"
    if parm.menu:
        yield inner + "menu {"
        for token, label in parm.menu:
            yield f"{inner}    {quoted(token)} {quoted(label)}"
        yield inner + "}"
    if parm.range is not None:
        low, high, is_low_strict, is_high_strict = parm.range
        ends = number_text(low) + "!" * is_low_strict, number_text(high) + "!" * is_high_strict
        yield f"{inner}range   {{ {ends[0]} {ends[1]} }}"
    for key, value in parm.tags:
        yield f"{inner}parmtag {{ {quoted(key)} {quoted(value)} }}"
    yield indent + "}"


def _folder_lines(folder: Folder, indent: str) -> Iterator[str]:
    inner = indent + "    "
    is_repeating = folder.kind == "multiparm"
    yield f"{indent}{folder.kind} {{"
    yield f"{inner}name    {quoted(folder.name)}"
    yield f"{inner}label   {quoted(folder.label)}"
    if is_repeating:
        yield f"{inner}default 0"
    for key, value in folder.tags:
        word = "parmtag" if is_repeating else "grouptag"
        yield f"{inner}{word} {{ {quoted(key)} {quoted(value)} }}"
    yield ""
    yield from _item_lines(folder.items, inner)
    yield indent + "}"


def _default_text(value: str | Expression) -> str:
    if isinstance(value, Expression):
        return f"[ {quoted(value.text)} {value.language} ]"
    return quoted(value)
