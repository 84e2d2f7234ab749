"""Move the rows of a channel to their new places: `target[n] = source[permutation[n]]`.

A row is moved as so many 32-bit words, whatever its type is, so a handful of compiled kernels
serve every channel; rows that are not whole words are moved byte by byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.kernels.jit import parallel_kernel, prange


def reorder_channel(
    source: npt.NDArray[Any], permutation: npt.NDArray[np.uint32], target: npt.NDArray[Any]
) -> None:
    """Fill `target` with the rows of `source` in the order of `permutation`.

    Args:
        source: A channel, C-contiguous, any dtype without objects, shape [n, ...].
        permutation: Row of `source` for each row of `target`, shape [m].
        target: Another array of the same dtype, shape [m, ...].
    """
    if source.dtype != target.dtype or source.shape[1:] != target.shape[1:]:
        raise ValueError(
            f"rows of {source.dtype}{list(source.shape[1:])} cannot move to rows of "
            f"{target.dtype}{list(target.shape[1:])}"
        )
    if len(target) != len(permutation):
        raise ValueError(f"{len(permutation)} rows cannot fill a target of {len(target)} rows")
    row_bytes = source.dtype.itemsize * int(np.prod(source.shape[1:], dtype=np.int64))
    if row_bytes == 0 or len(target) == 0:
        return
    word = np.uint32 if row_bytes % 4 == 0 else np.uint8
    words = row_bytes // np.dtype(word).itemsize
    read, write = source.reshape(-1).view(word), target.reshape(-1).view(word)
    if word is np.uint32 and words == 1:
        gather_one_word(read, permutation, write)
    elif word is np.uint32 and words == 2:
        gather_one_word(read.view(np.uint64), permutation, write.view(np.uint64))
    elif word is np.uint32 and words == 3:
        gather_three_words(read, permutation, write)
    else:
        gather_words(read, permutation, words, write)


@parallel_kernel
def gather_one_word(source, permutation, target):
    for n in prange(permutation.shape[0]):
        target[n] = source[permutation[n]]


@parallel_kernel
def gather_three_words(source, permutation, target):
    for n in prange(permutation.shape[0]):
        row = np.uint64(3) * np.uint64(permutation[n])
        place = np.uint64(3) * np.uint64(n)
        target[place] = source[row]
        target[place + np.uint64(1)] = source[row + np.uint64(1)]
        target[place + np.uint64(2)] = source[row + np.uint64(2)]


@parallel_kernel
def gather_words(source, permutation, words, target):
    for n in prange(permutation.shape[0]):
        row = np.uint64(words) * np.uint64(permutation[n])
        place = np.uint64(words) * np.uint64(n)
        for word in range(np.uint64(words)):
            target[place + word] = source[row + word]
