"""A communicator that counts: how often ranks speak, how much they send, how long they wait.

Time in it is mostly time spent waiting for others, so a Task's own work is what is left of its
time. It does all that the communicator inside does, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import NoReturn

from loki_core.parallel.comm import Array, Communicator, Pending


@dataclass
class Traffic:
    """Totals of one kind of call on this rank.

    Attributes:
        calls: How often.
        messages: Sent from point to point; collectives count none.
        bytes_sent: As the communicator counts them.
        seconds: Time in the calls, and in the waits for what they began.
    """

    calls: int = 0
    messages: int = 0
    bytes_sent: int = 0
    seconds: float = 0.0


class ObservedCommunicator(Communicator):
    """Another communicator, observed.

    Args:
        inner: What really speaks.

    Attributes:
        traffic: Totals by the name of the method.
        seconds: Time in all of them.
    """

    def __init__(self, inner: Communicator) -> None:
        self.inner = inner
        self.rank, self.size = inner.rank, inner.size
        self.traffic: dict[str, Traffic] = {}
        self.seconds = 0.0

    @property
    def calls(self) -> int:
        """How often any method was used."""
        return sum(of_kind.calls for of_kind in self.traffic.values())

    @contextmanager
    def watch(self, name: str, *, calls: int = 1, messages: int = 0) -> Iterator[None]:
        """Count one call of a method."""
        start, sent = perf_counter(), self.inner.bytes_sent
        try:
            yield
        finally:
            seconds = perf_counter() - start
            of_kind = self.traffic.setdefault(name, Traffic())
            of_kind.calls += calls
            of_kind.messages += messages
            of_kind.bytes_sent += self.inner.bytes_sent - sent
            of_kind.seconds += seconds
            self.seconds += seconds
            self.bytes_sent = self.inner.bytes_sent

    def all_gather(self, array: Array) -> list[Array]:
        with self.watch("all_gather"):
            return self.inner.all_gather(array)

    def all_reduce(self, array: Array, operation: str) -> Array:
        with self.watch("all_reduce"):
            return self.inner.all_reduce(array, operation)

    def all_to_all(self, arrays: Sequence[Array]) -> list[Array]:
        with self.watch("all_to_all"):
            return self.inner.all_to_all(arrays)

    def post(self, sends: Mapping[int, Array], receives: Mapping[int, Array]) -> Pending:
        with self.watch("post", messages=len(sends)):
            return _ObservedPending(self, self.inner.post(sends, receives))

    def broadcast(self, data: bytes | None, root: int = 0) -> bytes:
        with self.watch("broadcast"):
            return self.inner.broadcast(data, root)

    def gather(self, array: Array, root: int = 0) -> list[Array]:
        with self.watch("gather"):
            return self.inner.gather(array, root)

    def barrier(self) -> None:
        with self.watch("barrier"):
            self.inner.barrier()

    def patient_barrier(self) -> None:
        with self.watch("patient_barrier"):
            self.inner.patient_barrier()

    def abort(self, code: int) -> NoReturn:
        self.inner.abort(code)


class _ObservedPending(Pending):
    def __init__(self, comm: ObservedCommunicator, pending: Pending) -> None:
        self._comm, self._pending = comm, pending

    def wait(self) -> None:
        with self._comm.watch("post", calls=0):
            self._pending.wait()
