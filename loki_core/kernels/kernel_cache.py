"""Where compiled kernels are kept on disk: under a digest of what they are made of.

A kernel's folder is named after the content of its source file and of all that this file imports
from `kernels/`: numba itself does not notice when an imported function changes. Nothing of it is a
path. Two checkouts, a wheel in another environment and the parts of a test run share what any of
them compiled.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

# What a source file takes from a folder of kernels: a module, or names of modules in a package.
_IMPORT = re.compile(
    r"^\s*from ((?:loki_core|loki_vfx)(?:\.\w+)*\.kernels(?:\.\w+)*) import (\([^)]*\)|.*)",
    re.MULTILINE,
)


class ContentLocator:
    """Tells numba where the kernels of one source file are kept (its cache locator protocol)."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._digest = sources_digest(file)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> ContentLocator | None:
        """A locator for a function, or None where its folder cannot be written to."""
        if not os.path.exists(file):
            return None
        locator = cls(function, file)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator

    def ensure_cache_path(self) -> None:
        """Make the folder, and find out whether files can be made in it."""
        folder = self.get_cache_path()
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass

    def get_cache_path(self) -> str:
        return str(cache_directory() / self._digest)

    def get_source_stamp(self) -> str:
        """What a kept kernel must have been compiled from to be used."""
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)


@contextlib.contextmanager
def kept_by_content(config: Any) -> Iterator[None]:
    """Let kernels that are declared meanwhile be kept by content; `config` is numba's.

    A user's own NUMBA_CACHE_DIR or NUMBA_CACHE_LOCATOR_CLASSES is left to rule.
    """
    if config.CACHE_DIR or config.CACHE_LOCATOR_CLASSES:
        yield
        return
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{ContentLocator.__name__}"
    try:
        yield
    finally:
        config.CACHE_LOCATOR_CLASSES = ""


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether anything that was compiled of a function is kept on this machine."""
    code = function.__code__
    start = f"{Path(code.co_filename).stem}.{function.__qualname__}-{code.co_firstlineno}."
    return any(name.startswith(start) for name in _kept_files(sources_digest(code.co_filename)))


@cache
def _kept_files(digest: str) -> frozenset[str]:
    """Return the files of a folder as they are when it is first asked for."""
    try:
        return frozenset(os.listdir(cache_directory() / digest))
    except FileNotFoundError:
        return frozenset()


def cache_directory() -> Path:
    """Folder of compiled kernels."""
    root = os.environ.get("LOKI_CACHE_DIR") or Path.home() / ".cache" / "loki"
    return Path(root) / "kernels"


@cache
def sources_digest(file: str) -> str:
    """Name for the content of a source file and of all that it imports from folders of kernels.

    Code with checked bounds is other code of the same sources, and has a name of its own.
    """
    digest = hashlib.sha256(os.environ.get("LOKI_BOUNDS_CHECK", "0").encode())
    for source in sorted(_imported_sources(Path(file), set()), key=lambda source: source.name):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _imported_sources(file: Path, found: set[Path]) -> set[Path]:
    """Add a file and the kernels' files that it imports, directly or not, to those found."""
    if file in found or not file.is_file():
        return found
    found.add(file)
    root = Path(__file__).parents[2]
    for module, names in _IMPORT.findall(file.read_text(encoding="utf-8")):
        place = root.joinpath(*module.split("."))
        if place.is_dir():  # a package: what is imported are modules
            for name in re.findall(r"\w+", names):
                _imported_sources(place / f"{name}.py", found)
        else:
            _imported_sources(place.with_suffix(".py"), found)
    return found
