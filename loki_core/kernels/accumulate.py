"""The exact accumulator's inner loop, and sums over the runs of a sorted array."""

from __future__ import annotations

import math

from loki_core.kernels.jit import prange, strict_kernel

LOWEST_EXPONENT = -1088  # below the smallest subnormal, 2^-1074, and a multiple of 32
BIN_COUNT = 69  # 69 * 32 = 2208 binary places: 2^-1088 up to beyond 2^1024 times 2^31 addends


@strict_kernel
def add_to_bins(values, bins):
    """Add float64 values [n, columns] into int64 bins [columns, BIN_COUNT + 1], exactly.

    The last bin counts addends that are not finite.
    """
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            value = values[row, column]
            if not math.isfinite(value):
                bins[column, 69] += 1
                continue
            if value == 0.0:
                continue
            mantissa, exponent = math.frexp(abs(value))
            whole = int(math.ldexp(mantissa, 53))  # value = whole * 2^(exponent - 53)
            place = exponent - 53 + 1088
            if place < 0:  # a subnormal: its low bits are zero
                whole >>= -place
                place = 0
            bin_index = place >> 5
            shift = place & 31
            low = whole & 0xFFFFFFFF
            high = whole >> 32
            sign = 1 if value > 0.0 else -1
            shifted_low = low << shift
            shifted_high = high << shift
            bins[column, bin_index] += sign * (shifted_low & 0xFFFFFFFF)
            bins[column, bin_index + 1] += sign * (
                (shifted_low >> 32) + (shifted_high & 0xFFFFFFFF)
            )
            bins[column, bin_index + 2] += sign * (shifted_high >> 32)


@strict_kernel
def sum_runs(values, offsets, sums):
    """Sum rows offsets[b] to offsets[b + 1] of values [n, columns] into sums [runs, columns]."""
    for run in prange(sums.shape[0]):
        for column in range(values.shape[1]):
            total = 0.0
            for row in range(offsets[run], offsets[run + 1]):
                total += values[row, column]
            sums[run, column] = total
