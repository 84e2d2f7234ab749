"""The contract of hosts: what goes in is the same stream everywhere, and comes back as it was.

A host brings two functions: one that makes its own data of a stream, and one that makes a stream of
its data. The streams are those that the first run in Houdini gives.
"""

from __future__ import annotations

from typing import Any

from loki_vfx.bridges.houdini.loki_houdini.contract_streams import (
    SINGLE,
    TYPES,
    changed_there_and_back,
    differences,
    dressed,
)

__all__ = ["SINGLE", "TYPES", "assert_same", "check_there_and_back", "dressed"]


def check_there_and_back(name: str, give: Any, take: Any) -> None:
    """What a host makes of a stream becomes the same stream again, with the same digest."""
    assert changed_there_and_back(name, give, take) == []


def assert_same(a: Any, b: Any) -> None:
    """Bit for bit: type, positions, topology, channels and how they transform."""
    assert differences(a, b) == []
