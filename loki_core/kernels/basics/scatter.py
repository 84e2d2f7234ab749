"""Add rows of one array to rows of another, in order."""

from __future__ import annotations

from loki_core.kernels.jit import strict_kernel


@strict_kernel
def scatter_add_rows(contributions, rows, target):
    """target[rows[n]] += contributions[n], one after the other so that repeats always add alike."""
    for n in range(rows.shape[0]):
        for column in range(contributions.shape[1]):
            target[rows[n], column] += contributions[n, column]
