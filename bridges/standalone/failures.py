"""Failures: what an exception means to the person or the script that called `wtloki`."""

from __future__ import annotations

import errno
from typing import NamedTuple

from loki_core.errors import LokiError


class Failure(NamedTuple):
    """The kind of an error, one clear message, and the exit code."""

    kind: str
    message: str
    exit_code: int


def describe_failure(error: BaseException) -> Failure:
    """Return what to tell about an exception, whatever it is."""
    kind = type(error).__name__
    if isinstance(error, RanksFailed):
        return error.failure
    if isinstance(error, LokiError):
        return Failure(kind, str(error), error.exit_code)
    if isinstance(error, MemoryError):
        text = "there is not enough memory; run on more ranks, or with fewer particles or voxels"
        return Failure(kind, f"{text} ({error})" if str(error) else text, 1)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = f" ({error.filename})" if error.filename else ""
        return Failure("DiskFullError", f"no room on the disk{place}; make room, and resume", 8)
    if isinstance(error, (FileExistsError, NotADirectoryError)) and error.filename:
        return Failure(kind, f"{error.filename} is a file, or lies in one; choose a folder", 1)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return Failure(kind, f"{place}{error.strerror or error}", 1)
    if isinstance(error, ImportError):
        return Failure(kind, str(error), 1)
    text = f"{kind}: {error} (this is a mistake in Loki or in an extension; --debug shows where)"
    return Failure(kind, text, 1)


class UsageError(LokiError):
    """An option whose text is not of the form that it needs."""

    exit_code = 2


class RanksFailed(LokiError):
    """An error of the ranks of an MPI job, told by them already in words and with a code."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.exit_code = failure.exit_code
