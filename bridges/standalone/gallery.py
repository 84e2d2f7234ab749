"""The gallery: scenes of the package `loki_vfx.examples`, each a folder with an `example.py`.

def build(**options) -> tuple[SolverSetup, dict[str, stream]]      FRAMES = 72 (optional)
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from loki_core.errors import InputError, did_you_mean
from loki_vfx.bridges.standalone.failures import UsageError

PACKAGE = "loki_vfx.examples"


def example_names() -> list[str]:
    """Return the names of all scenes."""
    package = importlib.import_module(PACKAGE)
    return sorted(one.name for one in pkgutil.iter_modules(package.__path__) if one.ispkg)


def find_example(name: str) -> ModuleType:
    """Return the module of a scene.

    Raises:
        InputError: There is none of that name.
    """
    known = example_names()
    if name not in known:
        raise InputError(f'there is no example "{name}"{did_you_mean(name, known)}')
    return importlib.import_module(f"{PACKAGE}.{name}.example")


def example_of_file(file: Path) -> str | None:
    """Return the scene whose Solver Setup a file is, if it is one of the gallery's own files."""
    folder = file.resolve().parent
    if file.name != f"{folder.name}.loki.json":
        return None
    package = importlib.import_module(PACKAGE)
    places = [Path(place).resolve() / folder.name for place in package.__path__]
    return folder.name if folder in places and folder.name in example_names() else None


def example_options(module: ModuleType) -> dict[str, Any]:
    """Return the options that a scene's `build` takes, with their defaults."""
    parameters = inspect.signature(module.build).parameters
    return {name: parameter.default for name, parameter in parameters.items()}


def read_options(module: ModuleType, given: Iterable[str]) -> dict[str, Any]:
    """Return the options that `name=value` texts give, each of its default's type."""
    known = example_options(module)
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f'--option "{text}" is not of the form NAME=VALUE')
        if name not in known:
            raise UsageError(f'the scene has no option "{name}"{did_you_mean(name, known)}')
        kind = type(known[name])
        try:
            options[name] = value if kind is str else kind(float(value))
        except (ValueError, OverflowError):
            wanted = "a whole number" if kind is int else "a number"
            raise UsageError(f'--option "{text}": expected {wanted}') from None
    return options
