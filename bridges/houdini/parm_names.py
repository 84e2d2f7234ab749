"""Parm names: what Loki's names and paths are called in Houdini, where few letters are allowed.

    hair_count                                   hair_count
    Hair/BendingConstraint.stiffness             Hair__sBendingConstraint__dstiffness

Letters, digits and single underscores stay as they are; everything else is written as two
underscores and what it was, so that the name can be read back.
"""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
GIVEN = "__given"  # ends the name of the switch beside a value that may be none

_CODES = {"/": "s", ".": "d", "_": "u", "-": "m", " ": "w"}
_MEANINGS = {code: letter for letter, code in _CODES.items()}
_ESCAPE = "__"
_DIGITS = 6  # of a letter that has no code of its own: __x0000e9


def parm_name(name: str) -> str:
    """Return what a name or a path is called in Houdini."""
    found = []
    for index, letter in enumerate(name):
        is_lone = letter == "_" and (index + 1 == len(name) or _is_plain(name[index + 1]))
        is_first_digit = index == 0 and letter.isdigit()
        if is_lone or (_is_plain(letter) and not is_first_digit):
            found.append(letter)
        elif letter in _CODES:
            found.append(_ESCAPE + _CODES[letter])
        else:
            found.append(f"{_ESCAPE}x{ord(letter):0{_DIGITS}x}")
    return "".join(found)


def loki_name(parm: str) -> str:
    """Return the name or path that a parm stands for.

    Raises:
        ValueError: It is not the name of one.
    """
    found, index = [], 0
    while index < len(parm):
        if not parm.startswith(_ESCAPE, index):
            found.append(parm[index])
            index += 1
            continue
        code = parm[index + 2 : index + 3]
        digits = parm[index + 3 : index + 3 + _DIGITS]
        if code in _MEANINGS:
            found.append(_MEANINGS[code])
            index += 3
        elif code == "x" and re.fullmatch(f"[0-9a-f]{{{_DIGITS}}}", digits):
            found.append(chr(int(digits, 16)))
            index += 3 + _DIGITS
        else:
            raise ValueError(f'"{parm}" is not the name of a parameter of Loki')
    name = "".join(found)
    if parm_name(name) != parm:
        raise ValueError(f'"{parm}" is not the name of a parameter of Loki')
    return name


def is_switch(parm: str) -> bool:
    """Whether a parm only says if another one has a value."""
    return parm.endswith(GIVEN)


def _is_plain(letter: str) -> bool:
    return letter.isascii() and letter.isalnum()
