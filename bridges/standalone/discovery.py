"""Discovery of benchmarks and validation cases: the modules of a package, by name."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from loki_core.errors import InputError, did_you_mean


def named_modules(package_name: str) -> dict[str, str]:
    """Return names and modules of a package; a module's NAME, or its file name, is its name.

    Modules whose name begins with `_`, and those without a `run`, are helpers of others.
    """
    package = importlib.import_module(package_name)
    found = {}
    for one in pkgutil.iter_modules(package.__path__):
        if not one.name.startswith("_"):
            module = importlib.import_module(f"{package_name}.{one.name}")
            if hasattr(module, "run"):
                found[str(getattr(module, "NAME", one.name))] = module.__name__
    return dict(sorted(found.items()))


def chosen_modules(package_name: str, names: tuple[str, ...], word: str) -> dict[str, ModuleType]:
    """Return the modules of these names, or all of them when none is named.

    Raises:
        InputError: There is none of a name.
    """
    known = named_modules(package_name)
    for name in names:
        if name not in known:
            raise InputError(f'there is no {word} "{name}"{did_you_mean(name, known)}')
    return {name: importlib.import_module(known[name]) for name in names or known}
