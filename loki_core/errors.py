"""The errors that Loki raises, and the exit code that each one means to a shell.

Every message names the thing, the value, the place and the way out:

    hair_in_wind/Hair/DistanceConstraint.stiffness = -3 N/m is below the minimum 0 N/m
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path


class LokiError(Exception):
    """Anything that Loki refuses or cannot finish; the base of all errors below.

    Attributes:
        together: Whether every rank raised the error at the same place.
    """

    exit_code = 1
    together = False


class SetupError(LokiError):
    """A Solver Setup, Behavior or parameter that cannot be right."""

    exit_code = 3


class GraphError(LokiError):
    """A Loki Graph that cannot be evaluated: unknown node, wrong socket, cycle."""

    exit_code = 3


class ExpressionError(SetupError):
    """A user's expression that is not in the language."""


class UnknownNameError(ExpressionError):
    """A name in an expression that nothing has where it runs."""


class InputError(LokiError):
    """Data from outside that cannot be simulated: NaN positions, missing channels."""

    exit_code = 4


class FormatError(LokiError):
    """A file or message that is truncated, damaged, too new or too large."""

    exit_code = 5


class MissingFileError(InputError, FormatError):
    """A file that is not there, or a folder in its place."""


class ScheduleError(SetupError):
    """Two Tasks of one Stage that cannot be ordered."""

    exit_code = 6


class AccessError(LokiError):
    """A Task that touches what it did not declare."""

    exit_code = 6


class DivergenceError(LokiError):
    """A substep that stays bad after every retry."""

    exit_code = 7


class DiskFullError(LokiError):
    """No room for the next frame or checkpoint; what was written is whole."""

    exit_code = 8


class RankFailure(LokiError):
    """One rank failed where the others may be waiting for it: the whole job has to end."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Cancelled(LokiError):
    """The user asked the run to stop; whole frames and a checkpoint are left."""

    exit_code = 130


def require_file(path: Path) -> None:
    """Refuse a path that leads to no file.

    Raises:
        MissingFileError: There is nothing, or a folder.
    """
    if os.path.isdir(path):
        raise MissingFileError(f"{path} is a folder; a file is expected")
    if not os.path.isfile(path):
        raise MissingFileError(f"{path} is not there")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "..."?` for the nearest known name, or the list of them.

    An empty string is returned when nothing is known.
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not near:  # the same letters in another case are near, whatever difflib thinks
        near = [k for k in known if k.lower() == name.lower()]
    if near:
        return f'; did you mean "{near[0]}"?'
    if not known:
        return ""
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"; known: {shown}"
