"""Hand the parts of a saved state to another number of ranks.

A checkpoint has one part per rank that wrote it. Each new rank takes a share of the old parts;
`Solver.restore` then sends every particle and Bucket to its new owner, so which rank read it first
does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loki_core.errors import FormatError

#: Of an Action's state: what a rank has its own part of.
ELEMENTS = "elements"


def state_for_rank(parts: Sequence[dict[str, Any]], rank: int, size: int) -> dict[str, Any]:
    """The state that rank `rank` of `size` starts from, out of the parts of all former ranks.

    With as many ranks as before it is that rank's own part, untouched.
    """
    if not parts:
        raise FormatError("a checkpoint without parts cannot be restored")
    if len(parts) == size:
        return parts[rank]
    chosen = [part for number, part in enumerate(parts) if number % size == rank]
    if not chosen:
        return _emptied(parts[0])
    return chosen[0] if len(chosen) == 1 else _merged(chosen)


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Join the element arrays of several parts; what all ranks share is taken from the first."""
    merged = dict(parts[0])
    merged["objects"] = {
        path: {
            **parts[0]["objects"][path],
            "data": {
                name: _joined([part["objects"][path]["data"][name] for part in parts])
                for name in parts[0]["objects"][path]["data"]
            },
        }
        for path in parts[0]["objects"]
    }
    merged["actions"] = {
        path: {**state, ELEMENTS: _joined([part["actions"][path][ELEMENTS] for part in parts])}
        if ELEMENTS in state
        else state
        for path, state in parts[0]["actions"].items()
    }
    return merged


def _emptied(part: dict[str, Any]) -> dict[str, Any]:
    """The same state without elements, for a rank that gets no part."""
    emptied = dict(part)
    emptied["objects"] = {
        path: {
            **item,
            "data": {
                name: _map_arrays(data, lambda a: a[:0]) for name, data in item["data"].items()
            },
        }
        for path, item in part["objects"].items()
    }
    emptied["actions"] = {
        path: {**state, ELEMENTS: _map_arrays(state[ELEMENTS], lambda a: a[:0])}
        if ELEMENTS in state
        else state
        for path, state in part["actions"].items()
    }
    return emptied


def _joined(states: list[dict[str, Any]]) -> dict[str, Any]:
    first = states[0]
    joined: dict[str, Any] = {}
    for key, value in first.items():
        if isinstance(value, dict):
            joined[key] = _joined([state[key] for state in states])
        elif isinstance(value, np.ndarray):
            joined[key] = np.concatenate([state[key] for state in states])
        else:
            joined[key] = value
    return joined


def _map_arrays(state: dict[str, Any], change: Any) -> dict[str, Any]:
    return {
        key: _map_arrays(value, change)
        if isinstance(value, dict)
        else change(value)
        if isinstance(value, np.ndarray)
        else value
        for key, value in state.items()
    }
