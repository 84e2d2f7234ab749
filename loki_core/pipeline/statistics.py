"""Statistics: what each Task cost, in time, in bytes between ranks, and in iterations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from loki_core.parallel.comm import Communicator


@dataclass
class TaskStatistics:
    """Totals of one Task since the start of the run."""

    label: str
    stage: str
    calls: int = 0
    seconds: float = 0.0
    bytes_sent: int = 0
    iterations: int = 0

    @contextmanager
    def measure(self, comm: Communicator) -> Iterator[None]:
        """Count one call, its time and what this rank sent in it."""
        start, sent = perf_counter(), comm.bytes_sent
        try:
            yield
        finally:
            self.calls += 1
            self.seconds += perf_counter() - start
            self.bytes_sent += comm.bytes_sent - sent

    def to_document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "task": self.label,
            "stage": self.stage,
            "calls": self.calls,
            "seconds": self.seconds,
            "bytes_sent": self.bytes_sent,
            "iterations": self.iterations,
        }
