"""Sums that no order changes: exact ones, and those in fixed point. Sums over sorted runs too.

In fixed point an addend is two integers, *limbs*, of 31 binary places each: what it is in units
that are coarse enough for the largest addend of all, and what is left of it in units 2^31 times
finer. Integers add up to the same in any order, and 2^31 of them fit into 64 bits.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, prange, strict_kernel

LOWEST_EXPONENT = -1088  # below the smallest subnormal, 2^-1074, and a multiple of 32
BIN_COUNT = 69  # 69 * 32 = 2208 binary places: 2^-1088 up to beyond 2^1024 times 2^31 addends
LIMB_BITS = 31
LIMB = 2.0**LIMB_BITS
RUN = 4096  # addends that one thread takes at a time


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
def find_largest(values, largest):
    """Fill largest [runs] with the largest magnitudes of values [n]: infinite for what is not."""
    for run in prange(largest.shape[0]):
        most = 0.0
        for n in range(run * RUN, min((run + 1) * RUN, values.shape[0])):
            size = abs(values[n])
            most = max(most, size if size < math.inf else math.inf)
        largest[run] = most


@strict_kernel
def sum_limbs(values, scale, limbs):
    """Fill limbs [runs, 2], int64, with sums of values [n] times scale, a power of two.

    Values times scale are at most 2^30.
    """
    for run in prange(limbs.shape[0]):
        coarse, fine = np.int64(0), np.int64(0)
        for n in range(run * RUN, min((run + 1) * RUN, values.shape[0])):
            more, rest = cut(values[n] * scale)
            coarse += more
            fine += rest
        limbs[run, 0] = coarse
        limbs[run, 1] = fine


@device
def cut(value):
    """Cut a value of at most 2^30 into limbs: units, and units of 2^-31."""
    coarse = math.floor(value)
    return np.int64(coarse), np.int64(math.floor((value - coarse) * LIMB))


@strict_kernel
def sum_runs(values, offsets, sums):
    """Sum rows offsets[b] to offsets[b + 1] of values [n, columns] into sums [runs, columns]."""
    for run in prange(sums.shape[0]):
        for column in range(values.shape[1]):
            total = 0.0
            for row in range(offsets[run], offsets[run + 1]):
                total += values[row, column]
            sums[run, column] = total
