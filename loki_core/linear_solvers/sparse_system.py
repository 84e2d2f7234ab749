"""A sparse matrix distributed by rows, as a System.

This rank's rows arrive in compressed form. Columns 0 .. size - 1 are its own rows; the columns that
follow are ghosts, rows of other ranks, whose global numbers the caller gives. The matrix is kept
once, in slices of eight rows (see kernels/algebra/sparse_sliced.py), in one byte or in float32
where it loses nothing by it or came so, else in float64; vectors are float64. A row of zeros
belongs to an unknown that takes part in nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import InputError
from loki_core.kernels.algebra.sparse_sliced import (
    BLOCK,
    dot_blocks,
    extract_diagonal,
    fill_rows,
    fill_slices,
    find_runs,
    multiply,
    ordered_sum,
    row_lengths,
    slice_widths,
)
from loki_core.kernels.basics.rows import LANES
from loki_core.linear_solvers.halo import Halo
from loki_core.linear_solvers.system import Rows, Vector
from loki_core.parallel.comm import SERIAL, Communicator

Array = NDArray[Any]
KINDS = ("spd", "quasi-definite", "general")


class SlicedMatrix:
    """Rows in slices of eight.

    Attributes:
        rows: Number of rows.
        slices: Where each slice begins, int64 [ceil(rows / 8) + 1].
        columns, values: Entries, int32 and int8, float32 or float64.
    """

    def __init__(self, rows: int, slices: Array, columns: Array, values: Array) -> None:
        self.rows = rows
        self.slices, self.columns, self.values = slices, columns, values
        self._runs: tuple[Array, Array] | None = None

    @classmethod
    def from_csr(cls, indptr: Array, indices: Array, data: Array) -> SlicedMatrix:
        """Copy compressed rows."""
        rows = len(indptr) - 1
        widths = np.zeros((rows + LANES - 1) // LANES, dtype=np.int64)
        slice_widths(indptr, widths)
        matrix = cls.allocate(rows, widths, data.dtype)
        fill_slices(indptr, indices, data, matrix.slices, matrix.columns, matrix.values)
        return matrix

    @classmethod
    def allocate(cls, rows: int, widths: Array, dtype: Any) -> SlicedMatrix:
        """Make room for rows of these lengths, one per slice."""
        slices = np.zeros(len(widths) + 1, dtype=np.int64)
        np.cumsum(LANES * widths, out=slices[1:])
        count = int(slices[-1])
        return cls(rows, slices, np.empty(count, dtype=np.int32), np.empty(count, dtype=dtype))

    def to_csr(self) -> Rows:
        """Copy into compressed rows, without stored zeros."""
        lengths = np.zeros(self.rows, dtype=np.int64)
        row_lengths(self.slices, self.values, self.rows, lengths)
        indptr = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
        indices = np.empty(int(indptr[-1]), dtype=np.int32)
        data = np.empty(int(indptr[-1]), dtype=self.values.dtype)
        fill_rows(self.slices, self.columns, self.values, indptr, indices, data)
        return indptr, indices, data

    def diagonal(self) -> Vector:
        """The diagonal, float64."""
        out = np.zeros(self.rows)
        extract_diagonal(self.slices, self.columns, self.values, self.rows, out)
        return out

    def multiply(self, x: Array, out: Array, partial: Array) -> None:
        """Write A x to out and x . A x of each block to partial; x holds the ghosts too."""
        multiply(*self.products, x, out, partial)

    @property
    def products(self) -> tuple[Array, Array, Array, Array, Array]:
        """What products with a vector read: slices, runs, same, columns and values."""
        if self._runs is None:
            slots = len(self.columns) // LANES
            kind = np.result_type(self.values.dtype, np.float32)
            self._runs = np.empty(slots, np.int32), np.empty(slots, kind)
            find_runs(self.columns, self.values, *self._runs)
        return self.slices, *self._runs, self.columns, self.values

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.slices.nbytes + 1.25 * self.columns.nbytes + self.values.nbytes)


@dataclass(frozen=True)
class Boxes:
    """Small boxes of a lattice that unknowns lie on.

    Attributes:
        number: Box of each row, int32.
        contacts: Entries off the diagonal between the rows of each box where nothing, such as a
            wall, comes between them.
    """

    number: NDArray[np.int32]
    contacts: NDArray[np.int64]

    @classmethod
    def of_cubes(cls, cubes: int, edge: int) -> Boxes:
        """Boxes of up to 3^3 of cubes whose edge^3 unknowns are numbered x, y, z."""
        parts = -(-edge // 3)
        part = np.arange(edge) * parts // edge
        place = (part[:, None, None] * parts + part[:, None]) * parts + part
        number = np.arange(cubes, dtype=np.int32)[:, None] * parts**3 + place.ravel()
        a, b, c = np.meshgrid(*[np.bincount(part)] * 3, indexing="ij")
        contacts = 2 * (3 * a * b * c - a * b - b * c - c * a)
        return cls(number.ravel().astype(np.int32), np.tile(contacts.ravel(), cubes))

    def of_rows(self, rows: NDArray[np.int64]) -> Boxes:
        """The boxes of some of the rows; one that misses any is no whole box."""
        return Boxes(self.number[rows], self.contacts)


class SparseSystem:
    """A x = b with a sparse A, this rank's rows. Making one is collective.

    Args:
        indptr: Row starts, int32 (int64 for more than 2^31 entries), shape [size + 1].
        indices: Columns, int32.
        data: Entries, float32 or float64.
        comm: The ranks that share the system.
        ghost_rows: Global numbers of the columns from `size` on, int64.
        kind: "spd", "quasi-definite" or "general".
        block_size: Unknowns that belong together.
        null_space: Orthonormal vectors n with A n = 0.
        near_null_space: Vectors that A makes small, this rank's part; None: the constant.
        boxes: Unknowns that lie together, from which multigrid may take its aggregates.
        places: Where the rows are in longer vectors of the caller's; None: everywhere.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        data: Array,
        *,
        comm: Communicator = SERIAL,
        ghost_rows: Array | None = None,
        kind: str = "spd",
        block_size: int = 1,
        null_space: Sequence[Vector] = (),
        near_null_space: Sequence[Array] | None = None,
        boxes: Boxes | None = None,
        places: NDArray[np.int64] | None = None,
    ) -> None:
        self.comm = comm
        self.boxes = boxes
        self.places: NDArray[np.int64] | slice = slice(None) if places is None else places
        self.size = len(indptr) - 1
        ghosts = 0 if ghost_rows is None else len(ghost_rows)
        error = _complaint(indptr, indices, data, self.size + ghosts, kind)
        comm.raise_together(None if error is None else InputError(error))
        self.kind, self.block_size = kind, block_size
        self.null_space = list(null_space)
        self.near_null_space = near_null_space
        indices = np.ascontiguousarray(indices, dtype=np.int32)
        data = _without_loss(np.ascontiguousarray(data), comm)
        self.matrix = SlicedMatrix.from_csr(np.ascontiguousarray(indptr), indices, data)
        self.halo = Halo(comm, self.size, ghost_rows)
        self.total_size = self.halo.total
        self._partial = np.zeros((self.size + BLOCK - 1) // BLOCK)
        self._extended = np.zeros(self.halo.length if ghosts else 0)

    def multiply(self, x: Vector, out: Vector) -> None:
        """Write A x to out. Collective."""
        self.multiply_partial(x, out)

    def multiply_dot(self, x: Vector, out: Vector) -> float:
        """Write A x to out and return x . A x over all ranks. Collective."""
        self.multiply_partial(x, out)
        return self._total()

    def multiply_partial(self, x: Vector, out: Vector) -> None:
        """Write A x to out; x may be as long as `halo.length`, and its ghosts are then filled."""
        if x.size < self.halo.length:
            self._extended[: self.size] = x
            x = self._extended
        self.halo.refresh(x)
        self.matrix.multiply(x, out, self._partial)

    def dot(self, x: Array, y: Array) -> float:
        """Inner product over all ranks, summed in fixed blocks of rows. Collective."""
        dot_blocks(x, y, self._partial)
        return self._total()

    def total_of(self, partial: Array) -> float:
        """Sum of the blocks' values, over all ranks in their order. Collective."""
        return float(self.comm.all_reduce(np.array([ordered_sum(partial)]), "sum")[0])

    def diagonal(self) -> Vector:
        """The diagonal of A, this rank's part."""
        return self.matrix.diagonal()

    def csr(self) -> Rows:
        """This rank's rows as (indptr, indices, data), without stored zeros."""
        indptr, indices, data = self.matrix.to_csr()
        return indptr, indices, data.astype(np.result_type(data, np.float32), copy=False)

    @property
    def blocks(self) -> int:
        """How many blocks of rows sums go over, on this rank."""
        return int(self._partial.size)

    def _total(self) -> float:
        return self.total_of(self._partial)


def _without_loss(data: Array, comm: Communicator) -> Array:
    """The data in the smallest type in which every value of every rank survives.

    Whole numbers, as 1 and 6, fit in a byte; float32 stays as it is otherwise.
    """
    for kind in (np.int8, np.float32):
        if not comm.any(_loses(data, kind)):
            return data.astype(kind, copy=False)
    return data.astype(np.float64, copy=False)


def _loses(data: Array, kind: Any) -> bool:
    if data.dtype == kind:
        return False
    for first in range(0, len(data), 1 << 20):  # the first part mostly decides
        part = data[first : first + (1 << 20)]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.any(part.astype(kind) != part):
                return True
    return False


def _complaint(indptr: Array, indices: Array, data: Array, columns: int, kind: str) -> str | None:
    """What is wrong with compressed rows, or None."""
    if kind not in KINDS:
        return f'a system of kind "{kind}" is not known; known: {", ".join(KINDS)}'
    if data.dtype not in (np.float32, np.float64):
        return f"a sparse system's data are {data.dtype}; they must be float32 or float64"
    if len(indptr) < 1 or int(indptr[0]) != 0 or np.any(np.diff(indptr) < 0):
        return "a sparse system's indptr must begin with 0 and not decrease"
    if int(indptr[-1]) != len(indices) or len(indices) != len(data):
        return (
            f"a sparse system's indptr ends with {int(indptr[-1])}, but there are "
            f"{len(indices)} indices and {len(data)} data"
        )
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= columns):
        return (
            f"a sparse system has columns {int(indices.min())} to {int(indices.max())}; with its "
            f"ghosts it has only 0 to {columns - 1}"
        )
    return None
