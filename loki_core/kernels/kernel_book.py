"""Kernel Book: which kernels the Behaviors of Loki need, so that they can be compiled beforehand.

A kernel compiles when it is first called, one after the other. The book says before that what will
be called: for each module of Behaviors the kernels and their signatures, as scenes of the gallery
used them (`wtloki warm --record`). A kernel that is missing in it compiles as ever, at its first
call; one too many costs the time to compile it once.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from loki_core.kernels.jit import FLAGS, LazyKernel
from loki_core.kernels.kernel_cache import is_kept

BOOK = Path(__file__).with_name("kernel_book.json")
#: With any of these numba keeps its kernels elsewhere, or makes none.
OTHER_PLACES = ("NUMBA_CACHE_DIR", "NUMBA_CACHE_LOCATOR_CLASSES", "NUMBA_DISABLE_JIT")


class Entry(NamedTuple):
    """A kernel and the arguments that it takes: its module and name, and types as text."""

    kernel: str
    signature: tuple[str, ...]

    def find(self) -> LazyKernel | None:
        """Return the kernel; None if the code has no such one any more."""
        module, _, name = self.kernel.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError:
            return None
        return found if isinstance(found, LazyKernel) else None


@functools.cache
def read_book() -> dict[str, list[Entry]]:
    """Return what each module of Behaviors needs."""
    document = json.loads(BOOK.read_text(encoding="utf-8"))
    signatures = [tuple(one) for one in document["signatures"]]
    return {
        module: [Entry(kernel, signatures[number]) for kernel, number in entries]
        for module, entries in document["modules"].items()
    }


def write_book(needed: dict[str, set[Entry]]) -> None:
    """Write the book: each signature once, in an order that does not depend on the run."""
    signatures = sorted({one.signature for entries in needed.values() for one in entries})
    numbers = {signature: number for number, signature in enumerate(signatures)}
    lines = ["{", '"signatures": [']
    lines.append(",\n".join(json.dumps(one) for one in signatures))
    lines.append('],\n"modules": {')
    modules = []
    for module, entries in sorted(needed.items()):
        pairs = [[one.kernel, numbers[one.signature]] for one in sorted(entries)]
        rows = ",\n".join(json.dumps(pair) for pair in pairs)
        modules.append(f"{json.dumps(module)}: [\n{rows}\n]")
    lines.append(",\n".join(modules))
    lines.append("}\n}\n")
    BOOK.write_text("\n".join(lines), encoding="utf-8")


def entries_for(modules: Iterable[str]) -> list[Entry]:
    """Return what the Behaviors of some modules need, each once."""
    book = read_book()
    return sorted({entry for module in modules for entry in book.get(module, ())})


def missing(entries: Iterable[Entry]) -> list[Entry]:
    """Return those of which nothing is kept on this machine; none where nothing would be kept."""
    found: list[Entry] = []
    if not FLAGS["cache"] or any(os.environ.get(name) for name in OTHER_PLACES):
        return found
    for entry in entries:
        kernel = entry.find()
        if kernel is not None and not is_kept(kernel.function):
            found.append(entry)
    return found
