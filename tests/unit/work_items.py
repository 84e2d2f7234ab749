"""Stand-ins for what a Python Processor of TOPs has: an item holder and its work items."""

from __future__ import annotations

from typing import Any


class FakeItem:
    """Keeps what a work item is told."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.command = ""
        self.attributes: dict[str, Any] = {}
        self.outputs: list[str] = []

    def setCommand(self, command: str) -> None:
        self.command = command

    def setIntAttrib(self, name: str, value: int) -> None:
        assert isinstance(value, int)
        self.attributes[name] = value

    def setFloatAttrib(self, name: str, value: float) -> None:
        assert isinstance(value, float)
        self.attributes[name] = value

    def setStringAttrib(self, name: str, value: str) -> None:
        assert isinstance(value, str)
        self.attributes[name] = value

    def addExpectedOutputFile(self, path: str, tag: str = "", own: bool = True) -> None:
        assert not own
        self.outputs.append(path)


class FakeHolder:
    """Adds work items as a Python Processor's item holder does."""

    def __init__(self) -> None:
        self.items: list[FakeItem] = []

    def addWorkItem(self, *, index: int) -> FakeItem:
        self.items.append(FakeItem(index))
        return self.items[-1]
