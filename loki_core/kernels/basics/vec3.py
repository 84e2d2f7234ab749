"""Three numbers at a time: tuple functions that LLVM keeps in registers."""

from __future__ import annotations

import math

from loki_core.kernels.jit import device


@device
def load3(array, row):
    """Row of an [n, 3] array as a tuple."""
    return array[row, 0], array[row, 1], array[row, 2]


@device
def add3(a, b):
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@device
def sub3(a, b):
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


@device
def scale3(a, factor):
    return a[0] * factor, a[1] * factor, a[2] * factor


@device
def dot3(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@device
def norm3(a):
    return math.sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2])
