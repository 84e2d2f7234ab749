"""Held bytes: what a Solver keeps in arrays on this rank between two frames, by what it is for.

Every array that can be reached from the Solver counts once, with all of its storage. Unlike the
memory of a process this does not depend on the allocator, so that ranks can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from loki_core.constraints.joining import JoiningConstraint
from loki_core.data.mesh import Mesh
from loki_core.data.voxels import Voxels
from loki_core.pipeline.solver import Solver

PLAIN = (str, bytes, int, float, bool, complex, type(None), type)


def held_bytes(solver: Solver) -> dict[str, int]:
    """Bytes of arrays: "inputs" in streams, "joining" in Constraints between bodies, and "all"."""
    found: dict[int, int] = {}
    parts = dict.fromkeys(("inputs", "joining", "all"), 0)
    streams = [one for one in _reached(solver) if isinstance(one, (Mesh, Voxels))]
    joining = [one for some in solver.actions.values() for one in some]
    for name, roots in (
        ("inputs", streams),
        ("joining", [one for one in joining if isinstance(one, JoiningConstraint)]),
    ):
        beyond = () if name == "inputs" else _objects(solver)
        arrays = (one for root in roots for one in _arrays(root, beyond))
        parts[name] = _count(arrays, found)
    _count(_arrays(solver, ()), found)
    parts["all"] = sum(found.values())
    return parts


def _objects(solver: Solver) -> tuple[Any, ...]:
    """What Actions know but do not own."""
    systems = (solver.solids, solver.domain, solver.comm, *solver.inputs.values())
    return (*solver.objects.values(), *systems, solver.setup, solver.settings)


def _count(arrays: Iterator[Any], found: dict[int, int]) -> int:
    """Note the storage of arrays that was not found before, and return its bytes."""
    total = 0
    for array in arrays:
        while isinstance(array.base, np.ndarray):
            array = array.base
        if id(array) not in found:
            found[id(array)] = array.nbytes
            total += array.nbytes
    return total


def _arrays(root: Any, beyond: tuple[Any, ...]) -> Iterator[Any]:
    return (one for one in _reached(root, beyond) if isinstance(one, np.ndarray))


def _reached(root: Any, beyond: tuple[Any, ...] = ()) -> Iterator[Any]:
    """All values that can be reached from one, not through others, each once."""
    seen = {id(one) for one in beyond}
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            waiting += list(value)
        elif not isinstance(value, np.ndarray):
            waiting += _fields(value)


def _fields(value: Any) -> list[Any]:
    """What an instance or a function holds."""
    fields = list(getattr(value, "__dict__", {}).values()) if not callable(value) else []
    if callable(value):
        closed = getattr(value, "__closure__", None) or ()
        fields += [cell.cell_contents for cell in closed]
        fields += [getattr(value, "__self__", None)]
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name != "__weakref__":
                fields.append(getattr(value, name, None))
    return fields
