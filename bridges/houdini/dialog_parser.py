"""Dialog parser: a dialog script read back into records, and held to the rules on the way.

Words of Houdini that Loki does not write (ramps, inherited parms, export flags) are known and left
out; a word that nobody knows is an error.
"""

from __future__ import annotations

import math

from loki_vfx.bridges.houdini.dialog_blocks import DialogError, Statement, read_blocks
from loki_vfx.bridges.houdini.dialog_script import (
    NUMBERS,
    SUFFIXES,
    TEXTS,
    Dialog,
    Expression,
    Folder,
    Parm,
    Range,
    repeated_names,
)
from loki_vfx.bridges.houdini.parm_names import NAME

TYPES = frozenset((*NUMBERS, *TEXTS)) | frozenset((
    "toggle", "ordinal", "button", "label", "separator", "color", "color4", "angle",
    "direction", "oplist", "ramp_flt", "ramp_rgb", "int_minmax", "float_minmax", "data",
    "geometrydata", "buttonstrip", "iconstrip",
))  # fmt: skip
FOLDERS = frozenset((
    "group", "groupsimple", "groupcollapsible", "groupradio", "multiparm", "multiscroll",
    "multiswitcher",
))  # fmt: skip
_PARM_WORDS = frozenset((
    "name", "label", "type", "size", "default", "help", "joinnext", "nolabel", "disablewhen",
    "hidewhen", "invisible", "menu", "range", "parmtag",
))  # fmt: skip
#: Words that are left out.
_OTHER_PARM_WORDS = frozenset((
    "baseparm", "export", "menureplace", "menutoggle", "menumini", "language",
    "unquoted",
))  # fmt: skip
_OTHER_FOLDER_WORDS = frozenset((
    "invisible", "invisibletab", "tabbreak", "disablewhentab", "hidewhentab", "nolabel",
    "help", "joinnext", "disablewhen", "hidewhen", "size", "range",
))  # fmt: skip
_OTHER_WORDS = frozenset((
    "script", "help", "bindhandle", "input", "inputflags", "output", "signature",
    "outputoverrides", "rendermask", "shadertype", "code", "parmtag",
))  # fmt: skip


def parse_dialog(text: str) -> Dialog:
    """Return the records of a dialog script.

    Raises:
        DialogError: It is not valid; the message says in which line, and what.
    """
    statements = read_blocks(text)
    found = {"name": "", "label": ""}
    labels: dict[str, dict[int, str]] = {"inputlabel": {}, "outputlabel": {}}
    items: list[Parm | Folder] = []
    for one in statements:
        if one.word == "parm" or one.word in FOLDERS:
            made = _item(one)
            if made is not None:
                items.append(made)
        elif one.word in found:
            found[one.word] = _text(one)
        elif one.word in labels:
            number, label = _texts(one, 2)
            if not number.isdigit() or int(number) < 1 or int(number) in labels[one.word]:
                raise DialogError(one.line, f"{one.word} {number} is no new number from 1 on")
            labels[one.word][int(number)] = label
        elif one.word not in _OTHER_WORDS:
            raise DialogError(one.line, f'"{one.word}" is not a word of dialog scripts')
    if not found["name"]:
        raise DialogError(1, "the interface has no name")
    dialog = Dialog(
        found["name"],
        found["label"],
        tuple(items),
        _in_order(labels["inputlabel"]),
        _in_order(labels["outputlabel"]),
    )
    repeated = repeated_names(dialog)
    if repeated:
        raise DialogError(1, f"two parms are called {', '.join(repeated)}")
    return dialog


def _in_order(labels: dict[int, str]) -> tuple[str, ...]:
    last = max(labels, default=0)
    return tuple(labels.get(number, "") for number in range(1, last + 1))


def _item(statement: Statement) -> Parm | Folder | None:
    return _parm(statement) if statement.word == "parm" else _folder(statement)


def _parm(statement: Statement) -> Parm | None:
    """Return a parm; None if it only changes one that the type inherits."""
    words = _words(statement, "parm")
    menu: tuple[tuple[str, str], ...] = ()
    tags: list[tuple[str, str]] = []
    value_range: Range | None = None
    default: tuple[str | Expression, ...] = ()
    for one in statement.block or ():
        if one.word == "menu":
            menu = _menu(one)
        elif one.word == "parmtag":
            tags.append(_tag(one))
        elif one.word == "range":
            value_range = _range(one)
        elif one.word == "default":
            default = _default(one)
        elif one.word not in _PARM_WORDS | _OTHER_PARM_WORDS:
            raise DialogError(one.line, f'"{one.word}" is not a word of a parm')
    if "baseparm" in words:
        return None
    name = _name(statement, words)
    made = Parm(
        name,
        _text(words["label"]) if "label" in words else "",
        _text(words["type"]) if "type" in words else "",
        default,
        value_range,
        menu,
        _text(words["help"]) if "help" in words else "",
        tuple(tags),
        _text(words["disablewhen"]) if "disablewhen" in words else "",
        _text(words["hidewhen"]) if "hidewhen" in words else "",
        "joinnext" in words,
        "nolabel" not in words,
        "invisible" in words,
    )
    _check_parm(made, words, statement.line)
    return made


def _check_parm(parm: Parm, words: dict[str, Statement], line: int) -> None:
    if parm.type not in TYPES:
        raise DialogError(line, f'parm {parm.name} has the type "{parm.type}", which is unknown')
    size = int(_number(_text(words["size"]), words["size"].line)) if "size" in words else 1
    if parm.default and len(parm.default) != size:
        raise DialogError(line, f"parm {parm.name} has {len(parm.default)} defaults for {size}")
    if parm.type in SUFFIXES and size != len(SUFFIXES[parm.type]):
        raise DialogError(line, f"parm {parm.name} of type {parm.type} has the size {size}")
    for condition in (parm.disable_when, parm.hide_when):
        if condition and not condition.strip().startswith("{"):
            raise DialogError(line, f'parm {parm.name}: "{condition}" is no condition in braces')


def _folder(statement: Statement) -> Folder:
    words = _words(statement, statement.word)
    items: list[Parm | Folder] = []
    tags: list[tuple[str, str]] = []
    for one in statement.block or ():
        if one.word == "parm" or one.word in FOLDERS:
            made = _item(one)
            if made is not None:
                items.append(made)
        elif one.word in ("grouptag", "parmtag"):
            tags.append(_tag(one))
        elif one.word not in ("name", "label", "default") and one.word not in _OTHER_FOLDER_WORDS:
            raise DialogError(one.line, f'"{one.word}" is not a word of a folder')
    label = _text(words["label"]) if "label" in words else ""
    name = _name(statement, words)
    return Folder(name, label, tuple(items), statement.word, tuple(tags))


def _words(statement: Statement, place: str) -> dict[str, Statement]:
    """Return the statements of a block by their words; of those that may come twice, the last."""
    if statement.block is None:
        raise DialogError(statement.line, f"{place} has no block")
    words: dict[str, Statement] = {}
    many = {"parmtag", "grouptag", "parm", "export", "language", *FOLDERS}
    for one in statement.block:
        if one.word in words and one.word not in many:
            raise DialogError(one.line, f'{place} says "{one.word}" twice')
        words[one.word] = one
    return words


def _name(statement: Statement, words: dict[str, Statement]) -> str:
    if "name" not in words:
        raise DialogError(statement.line, f"a {statement.word} has no name")
    name = _text(words["name"])
    if not NAME.fullmatch(name.replace("#", "0")):
        raise DialogError(words["name"].line, f'"{name}" is not the name of a parm')
    return name


def _texts(statement: Statement, count: int) -> list[str]:
    values = [value for value in statement.values[1:] if isinstance(value, str)]
    if len(values) != count or len(statement.values) != count + 1:
        raise DialogError(statement.line, f'"{statement.word}" takes {count} values')
    return values


def _text(statement: Statement) -> str:
    return _texts(statement, 1)[0]


def _tag(statement: Statement) -> tuple[str, str]:
    values = [value for value in statement.block_values() if isinstance(value, str)]
    if len(values) != 2:
        raise DialogError(statement.line, "a tag has a key and a value")
    return values[0], values[1]


def _menu(statement: Statement) -> tuple[tuple[str, str], ...]:
    values = statement.block_values()
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) != len(values):
        return ()  # made by a script
    if len(texts) % 2:
        raise DialogError(statement.line, "a menu has a token and a label for each entry")
    return tuple(zip(texts[::2], texts[1::2]))


def _default(statement: Statement) -> tuple[str | Expression, ...]:
    if statement.block is None:
        raise DialogError(statement.line, '"default" of a parm has a block')
    found: list[str | Expression] = []
    for value in statement.block_values():
        if isinstance(value, str):
            found.append(value)
        elif len(value) in (1, 2):
            found.append(Expression(*value))
        else:
            raise DialogError(statement.line, "an expression has a text and a language")
    return tuple(found)


def _range(statement: Statement) -> Range:
    values = [value for value in statement.block_values() if isinstance(value, str)]
    if len(values) != 2:
        raise DialogError(statement.line, "a range has two ends")
    low, high = (_number(value.removesuffix("!"), statement.line) for value in values)
    if low > high:
        raise DialogError(statement.line, f"the range begins at {low} and ends at {high}")
    return Range(low, high, values[0].endswith("!"), values[1].endswith("!"))


def _number(text: str, line: int) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DialogError(line, f'"{text}" is not a number')
    return number
