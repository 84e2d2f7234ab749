"""The communicator: MPI behind one small object, with a serial twin.

This is the only file that imports mpi4py. Everything that is sent is a numpy array or bytes:
nothing is pickled. Both communicators have the same methods, so that no caller asks whether there
is MPI.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import LokiError
from loki_core.operating_system import wait_until_read

Array = NDArray[Any]

# Variables that a launcher sets for its ranks; without one of them there is no MPI job to join.
_LAUNCHER_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")

# A rank's last words go from its pipe through the launcher's helper to the launcher [s].
SECONDS_FOR_LAST_WORDS = 2.0
SECONDS_TO_PASS_ON = 0.1


class Pending(ABC):
    """An exchange under way; the arrays to receive are filled when `wait` returns."""

    @abstractmethod
    def wait(self) -> None:
        """Return when everything has arrived and the send buffers may be reused."""


class Communicator(ABC):
    """What ranks can say to each other. All methods are collective but `post`.

    Attributes:
        bytes_sent: What this rank has sent to others so far, for the statistics.
    """

    rank: int
    size: int
    bytes_sent: int = 0

    @abstractmethod
    def all_gather(self, array: Array) -> list[Array]:
        """Return every rank's one-dimensional array, in rank order; lengths may differ."""

    @abstractmethod
    def all_reduce(self, array: Array, operation: str) -> Array:
        """Combine equally shaped arrays by "sum", "min" or "max", in rank order."""

    @abstractmethod
    def all_to_all(self, arrays: Sequence[Array]) -> list[Array]:
        """Send `arrays[r]` to rank r and return what each rank sent here, in rank order."""

    @abstractmethod
    def post(self, sends: Mapping[int, Array], receives: Mapping[int, Array]) -> Pending:
        """Start sending and receiving C-contiguous arrays of known size, keyed by rank."""

    @abstractmethod
    def broadcast(self, data: bytes | None, root: int = 0) -> bytes:
        """Return the bytes that `root` gave."""

    @abstractmethod
    def gather(self, array: Array, root: int = 0) -> list[Array]:
        """Return every rank's one-dimensional array on `root`, in rank order; elsewhere nothing."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has come here."""

    @abstractmethod
    def patient_barrier(self) -> None:
        """Return when every rank has come here; sleep while waiting, for waits of seconds."""

    @abstractmethod
    def abort(self, code: int) -> NoReturn:
        """End every rank of the job at once."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; the same answer on all."""
        return bool(self.all_reduce(np.array([flag], dtype=np.int8), "max")[0])

    def maximum(self, value: float) -> float:
        """Largest value of any rank."""
        return float(self.all_reduce(np.array([value], dtype=np.float64), "max")[0])

    def total(self, value: int) -> int:
        """Sum of an integer over ranks (exact)."""
        return int(self.all_reduce(np.array([value], dtype=np.int64), "sum")[0])

    def raise_together(self, error: LokiError | None) -> None:
        """Raise on every rank if any rank has an error: the first by rank, same text everywhere."""
        if self.size == 1:
            if error is not None:
                error.together = True
                raise error
            return
        if not self.any(error is not None):
            return
        text = f"{type(error).__name__}\n{error}" if error is not None else ""
        texts = self.all_gather(np.frombuffer(text.encode(), dtype=np.uint8))
        rank = next(r for r, t in enumerate(texts) if t.size)
        name, _, message = texts[rank].tobytes().decode().partition("\n")
        place = f" (rank {rank} of {self.size})"
        agreed = _error_type(name)(message if message.endswith(place) else message + place)
        agreed.together = True
        raise agreed


class _Done(Pending):
    def wait(self) -> None:
        return


class SerialCommunicator(Communicator):
    """One process alone: every collective is the identity."""

    rank = 0
    size = 1

    def all_gather(self, array: Array) -> list[Array]:
        return [array]

    def all_reduce(self, array: Array, operation: str) -> Array:
        return array

    def all_to_all(self, arrays: Sequence[Array]) -> list[Array]:
        return list(arrays)

    def post(self, sends: Mapping[int, Array], receives: Mapping[int, Array]) -> Pending:
        for rank, target in receives.items():
            np.copyto(target, sends[rank])
        return _Done()

    def broadcast(self, data: bytes | None, root: int = 0) -> bytes:
        assert data is not None
        return data

    def gather(self, array: Array, root: int = 0) -> list[Array]:
        return [array]

    def barrier(self) -> None:
        return

    def patient_barrier(self) -> None:
        return

    def abort(self, code: int) -> NoReturn:
        sys.exit(code)


class _Requests(Pending):
    def __init__(self, mpi: Any, requests: list[Any], buffers: Sequence[Array]) -> None:
        self._mpi = mpi
        self._requests = requests
        self._buffers = buffers  # kept alive while MPI reads and fills them

    def wait(self) -> None:
        self._mpi.Request.Waitall(self._requests)


class MpiCommunicator(Communicator):
    """The ranks of an MPI job."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = MPI.COMM_WORLD
        sys.excepthook = self._abort_on_uncaught
        self.rank = self._comm.Get_rank()
        self.size = self._comm.Get_size()

    def _abort_on_uncaught(self, kind: Any, error: Any, place: Any) -> None:
        """End all ranks with the traceback of the one that nobody caught: others would hang."""
        text = "".join(traceback.format_exception(kind, error, place))
        sys.stderr.write(f"rank {self.rank} of {self.size} failed:\n{text}")
        sys.stderr.flush()
        self.abort(getattr(error, "exit_code", 1))

    def all_gather(self, array: Array) -> list[Array]:
        counts = np.empty(self.size, dtype=np.int64)
        self._comm.Allgather(np.array([array.size], dtype=np.int64), counts)
        gathered = np.empty(int(counts.sum()), dtype=array.dtype)
        self.bytes_sent += array.nbytes * (self.size - 1)
        width = array.dtype.itemsize
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        self._comm.Allgatherv(
            [np.ascontiguousarray(array).view(np.uint8), self._mpi.BYTE],
            [gathered.view(np.uint8), counts * width, starts * width, self._mpi.BYTE],
        )
        return np.split(gathered, np.cumsum(counts)[:-1])

    def all_reduce(self, array: Array, operation: str) -> Array:
        array = np.ascontiguousarray(array)
        gathered = np.empty((self.size, *array.shape), dtype=array.dtype)
        self._comm.Allgather(array.view(np.uint8), gathered.view(np.uint8))
        combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[operation]
        result: Array = gathered[0].copy()
        for other in gathered[1:]:  # rank order, so that every rank rounds alike
            combine(result, other, out=result)
        return result

    def all_to_all(self, arrays: Sequence[Array]) -> list[Array]:
        dtype = arrays[0].dtype
        send_counts = np.array([a.size for a in arrays], dtype=np.int64)
        receive_counts = np.empty(self.size, dtype=np.int64)
        self._comm.Alltoall(send_counts, receive_counts)
        width = dtype.itemsize
        packed = np.concatenate([a.reshape(-1) for a in arrays]).astype(dtype, copy=False)
        self.bytes_sent += packed.nbytes - arrays[self.rank].nbytes
        received = np.empty(int(receive_counts.sum()), dtype=dtype)
        send_starts = np.concatenate(([0], np.cumsum(send_counts)[:-1]))
        receive_starts = np.concatenate(([0], np.cumsum(receive_counts)[:-1]))
        self._comm.Alltoallv(
            [packed.view(np.uint8), send_counts * width, send_starts * width, self._mpi.BYTE],
            [
                received.view(np.uint8),
                receive_counts * width,
                receive_starts * width,
                self._mpi.BYTE,
            ],
        )
        return np.split(received, np.cumsum(receive_counts)[:-1])

    def post(self, sends: Mapping[int, Array], receives: Mapping[int, Array]) -> Pending:
        requests = [
            self._comm.Irecv([target.reshape(-1).view(np.uint8), self._mpi.BYTE], source=rank)
            for rank, target in receives.items()
        ]
        requests += [
            self._comm.Isend([source.reshape(-1).view(np.uint8), self._mpi.BYTE], dest=rank)
            for rank, source in sends.items()
        ]
        self.bytes_sent += sum(source.nbytes for source in sends.values())
        return _Requests(self._mpi, requests, [*sends.values(), *receives.values()])

    def broadcast(self, data: bytes | None, root: int = 0) -> bytes:
        size = np.array([len(data) if data is not None else 0], dtype=np.int64)
        self._comm.Bcast(size, root=root)
        if self.rank == root:
            assert data is not None
            self._comm.Bcast([np.frombuffer(data, dtype=np.uint8), self._mpi.BYTE], root=root)
            return data
        buffer = np.empty(int(size[0]), dtype=np.uint8)
        self._comm.Bcast([buffer, self._mpi.BYTE], root=root)
        return buffer.tobytes()

    def gather(self, array: Array, root: int = 0) -> list[Array]:
        counts = np.empty(self.size if self.rank == root else 0, dtype=np.int64)
        self._comm.Gather(np.array([array.nbytes], dtype=np.int64), counts, root=root)
        gathered = np.empty(int(counts.sum()), dtype=np.uint8)
        ends = np.cumsum(counts)
        starts = ends - counts
        receive = [gathered, counts, starts, self._mpi.BYTE] if self.rank == root else None
        sent = np.ascontiguousarray(array).view(np.uint8)
        self.bytes_sent += sent.nbytes if self.rank != root else 0
        self._comm.Gatherv([sent, self._mpi.BYTE], receive, root=root)
        if self.rank != root:
            return []
        return [part.view(array.dtype) for part in np.split(gathered, ends[:-1])]

    def barrier(self) -> None:
        self._comm.Barrier()

    def patient_barrier(self) -> None:
        # MPI's own waiting keeps a core busy, which the host next door could use
        request, pause = self._comm.Ibarrier(), 1.0e-4
        while not request.Test():
            time.sleep(pause)
            pause = min(2.0 * pause, 1.0e-2)

    def abort(self, code: int) -> NoReturn:
        # The launcher ends at once, and what it has not read and passed on is lost.
        sys.stderr.flush()
        wait_until_read(2, SECONDS_FOR_LAST_WORDS)
        time.sleep(SECONDS_TO_PASS_ON)
        self._comm.Abort(code)
        os._exit(code)  # Abort does not return; this line tells the type checker so


SERIAL = SerialCommunicator()


def world() -> Communicator:
    """The communicator of this process: MPI's when a launcher started it, else the serial twin."""
    if any(variable in os.environ for variable in _LAUNCHER_VARIABLES):
        return MpiCommunicator()
    return SERIAL


@contextmanager
def one_fails_all_fail(comm: Communicator) -> Iterator[None]:
    """End every rank when one leaves by an exception, with that rank's traceback on stderr.

    A hung farm job is worse than a failed one: without this the other ranks would wait for ever.
    """
    try:
        yield
    except BaseException as error:
        leaves_well = isinstance(error, SystemExit) and error.code in (0, None)
        if comm.size == 1 or leaves_well:
            raise
        sys.stderr.write(f"rank {comm.rank} of {comm.size} failed:\n{traceback.format_exc()}")
        sys.stderr.flush()
        code = getattr(error, "exit_code", getattr(error, "code", 1))
        comm.abort(code if isinstance(code, int) and code else 1)


def _error_type(name: str) -> type[LokiError]:
    from loki_core import errors

    found = getattr(errors, name, LokiError)
    return found if isinstance(found, type) and issubclass(found, LokiError) else LokiError
