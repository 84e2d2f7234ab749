"""Dialog rules: what Loki's own dialog scripts keep to, beyond what Houdini would take."""

from __future__ import annotations

from collections.abc import Iterator

from loki_vfx.bridges.houdini.dialog_script import NUMBERS, Dialog, Parm, dialog_text


def rule_problems(dialog: Dialog, text: str) -> list[str]:
    """Return what is wrong with an interface that was read from a text, a line each."""
    problems = [] if dialog_text(dialog) == text else ["is not as Loki writes dialog scripts"]
    if not dialog.label:
        problems.append("has no label")
    for parm in dialog.parms():
        problems += [f"parm {parm.name} {problem}" for problem in _parm_problems(parm)]
    return problems


def _parm_problems(parm: Parm) -> Iterator[str]:
    if not parm.label:
        yield "has no label"
    if not parm.help and parm.type not in ("button", "separator", "label"):
        yield "has no help"
    if parm.type == "toggle" and parm.default not in (("0",), ("1",)):
        yield "is neither on nor off by default"
    if parm.type in NUMBERS:
        yield from _number_problems(parm)
    tokens = [token for token, _ in parm.menu]
    if len(set(tokens)) != len(tokens):
        yield "has two entries of one token in its menu"
    if parm.menu and parm.default[:1] not in [(token,) for token in tokens]:
        yield "has a default that is not in its menu"


def _number_problems(parm: Parm) -> Iterator[str]:
    if not parm.default:
        yield "has no default"
    if parm.range is None:
        yield "has no range"
        return
    for text in parm.default:
        if not isinstance(text, str):
            continue
        try:
            value = float(text)
        except ValueError:
            yield f'has the default "{text}", which is not a number'
            continue
        if parm.type.startswith("int") and not value.is_integer():
            yield f"has the default {text}, which is not whole"
        is_below = parm.range.is_low_strict and value < parm.range.low
        if is_below or (parm.range.is_high_strict and value > parm.range.high):
            yield f"has the default {text}, which is outside of its range"
