"""Dense symmetric fronts in tiles of 8 x 8: their factorisation, as parts that threads can share.

The strip s holds the rows 8 s to 8 s + 7. Of each column its eight entries follow one another, so
that a row of eight lanes is loaded at once and a tile is 64 numbers in one piece:

    F[8 s + lane, 8 t + k] = values[strip(s) + 64 t + 8 k + lane]

A front has `own` strips of unknowns that it eliminates, then those of its boundary. The columns of
the first are the factor L; boundary against boundary is the update U, a triangle of tiles of its
own. With S = diag(+1 or -1), the signs of the pivots,

    F = [L1]  S [L1^T  L2^T] + [0  0]
        [L2]                   [0  U]

Columns are eliminated in panels of `PANEL` tiles. What stands on the right of a product is packed
beforehand, as -S L^T, so that every update is C += A B, whatever the signs. Strip s is packed from
PACKED * s on; the tile on the diagonal holds the signed reciprocals of the pivots. The entries of L
on the diagonal are stored as reciprocals too. Each tile is the sum of the same products in the same
order, on any number of threads.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.basics.rows import load, repeated, store
from loki_core.kernels.jit import device, inlined

PANEL = 16  # tiles: two strips of a panel fit in the first cache, sixteen packed ones in the second
PACKED = 64 * PANEL
HUGE = float(np.finfo(np.float64).max)


@inlined
def strip(s, own):
    """Where strip s begins in a factor: a triangle of tiles, then a rectangle."""
    full = min(s, own)
    return 64 * ((full * (full + 1)) // 2 + (s - full) * own)


@inlined
def tile_of(base, update, own, s, t):
    """Where the tile of strip s and column t lies, in the factor or in the update."""
    if t < own:
        return base + strip(s, own) + 64 * t
    i = s - own
    return update + 64 * ((i * (i + 1)) // 2 + t - own)


@device
def add_product(values, a, packed, b, count, out):
    """Add the product of a strip with a packed one, over `count` columns, to one tile."""
    at, b, c = np.uint64(a), np.uint64(b), np.uint64(out)
    eight = np.uint64(8)
    c0 = load(values, c)
    c1 = load(values, c + np.uint64(8))
    c2 = load(values, c + np.uint64(16))
    c3 = load(values, c + np.uint64(24))
    c4 = load(values, c + np.uint64(32))
    c5 = load(values, c + np.uint64(40))
    c6 = load(values, c + np.uint64(48))
    c7 = load(values, c + np.uint64(56))
    for _ in range(np.uint64(count)):
        x = load(values, at)
        c0 = c0 + x * packed[b]
        c1 = c1 + x * packed[b + np.uint64(1)]
        c2 = c2 + x * packed[b + np.uint64(2)]
        c3 = c3 + x * packed[b + np.uint64(3)]
        c4 = c4 + x * packed[b + np.uint64(4)]
        c5 = c5 + x * packed[b + np.uint64(5)]
        c6 = c6 + x * packed[b + np.uint64(6)]
        c7 = c7 + x * packed[b + np.uint64(7)]
        at += eight
        b += eight
    store(values, c, c0)
    store(values, c + np.uint64(8), c1)
    store(values, c + np.uint64(16), c2)
    store(values, c + np.uint64(24), c3)
    store(values, c + np.uint64(32), c4)
    store(values, c + np.uint64(40), c5)
    store(values, c + np.uint64(48), c6)
    store(values, c + np.uint64(56), c7)


@device
def add_products(values, a, a_next, packed, b, count, out, out_next):
    """Do the same for two strips at once: sixteen sums hide the latency of a sum."""
    at, at_next, b = np.uint64(a), np.uint64(a_next), np.uint64(b)
    c, d = np.uint64(out), np.uint64(out_next)
    eight = np.uint64(8)
    c0, d0 = load(values, c), load(values, d)
    c1, d1 = load(values, c + np.uint64(8)), load(values, d + np.uint64(8))
    c2, d2 = load(values, c + np.uint64(16)), load(values, d + np.uint64(16))
    c3, d3 = load(values, c + np.uint64(24)), load(values, d + np.uint64(24))
    c4, d4 = load(values, c + np.uint64(32)), load(values, d + np.uint64(32))
    c5, d5 = load(values, c + np.uint64(40)), load(values, d + np.uint64(40))
    c6, d6 = load(values, c + np.uint64(48)), load(values, d + np.uint64(48))
    c7, d7 = load(values, c + np.uint64(56)), load(values, d + np.uint64(56))
    for _ in range(np.uint64(count)):
        x, y = load(values, at), load(values, at_next)
        w = repeated(packed[b])
        c0, d0 = c0 + x * w, d0 + y * w
        w = repeated(packed[b + np.uint64(1)])
        c1, d1 = c1 + x * w, d1 + y * w
        w = repeated(packed[b + np.uint64(2)])
        c2, d2 = c2 + x * w, d2 + y * w
        w = repeated(packed[b + np.uint64(3)])
        c3, d3 = c3 + x * w, d3 + y * w
        w = repeated(packed[b + np.uint64(4)])
        c4, d4 = c4 + x * w, d4 + y * w
        w = repeated(packed[b + np.uint64(5)])
        c5, d5 = c5 + x * w, d5 + y * w
        w = repeated(packed[b + np.uint64(6)])
        c6, d6 = c6 + x * w, d6 + y * w
        w = repeated(packed[b + np.uint64(7)])
        c7, d7 = c7 + x * w, d7 + y * w
        at += eight
        at_next += eight
        b += eight
    store(values, c, c0)
    store(values, d, d0)
    store(values, c + np.uint64(8), c1)
    store(values, d + np.uint64(8), d1)
    store(values, c + np.uint64(16), c2)
    store(values, d + np.uint64(16), d2)
    store(values, c + np.uint64(24), c3)
    store(values, d + np.uint64(24), d3)
    store(values, c + np.uint64(32), c4)
    store(values, d + np.uint64(32), d4)
    store(values, c + np.uint64(40), c5)
    store(values, d + np.uint64(40), d5)
    store(values, c + np.uint64(48), c6)
    store(values, d + np.uint64(48), d6)
    store(values, c + np.uint64(56), c7)
    store(values, d + np.uint64(56), d7)


@device
def eliminate_tile(values, out, packed, diagonal):
    """Solve X S L^T = C in place, with the packed tile of L on the diagonal.

    Column by column: x_j = (c_j - sum_{k < j} x_k s_k L[j, k]) s_j / L[j, j].
    """
    c, d = np.uint64(out), np.uint64(diagonal)
    x0 = load(values, c) * packed[d]
    store(values, c, x0)
    x1 = load(values, c + np.uint64(8)) + x0 * packed[d + np.uint64(1)]
    x1 = x1 * packed[d + np.uint64(9)]
    store(values, c + np.uint64(8), x1)
    x2 = load(values, c + np.uint64(16)) + x0 * packed[d + np.uint64(2)]
    x2 = x2 + x1 * packed[d + np.uint64(10)]
    x2 = x2 * packed[d + np.uint64(18)]
    store(values, c + np.uint64(16), x2)
    x3 = load(values, c + np.uint64(24)) + x0 * packed[d + np.uint64(3)]
    x3 = x3 + x1 * packed[d + np.uint64(11)]
    x3 = x3 + x2 * packed[d + np.uint64(19)]
    x3 = x3 * packed[d + np.uint64(27)]
    store(values, c + np.uint64(24), x3)
    x4 = load(values, c + np.uint64(32)) + x0 * packed[d + np.uint64(4)]
    x4 = x4 + x1 * packed[d + np.uint64(12)]
    x4 = x4 + x2 * packed[d + np.uint64(20)]
    x4 = x4 + x3 * packed[d + np.uint64(28)]
    x4 = x4 * packed[d + np.uint64(36)]
    store(values, c + np.uint64(32), x4)
    x5 = load(values, c + np.uint64(40)) + x0 * packed[d + np.uint64(5)]
    x5 = x5 + x1 * packed[d + np.uint64(13)]
    x5 = x5 + x2 * packed[d + np.uint64(21)]
    x5 = x5 + x3 * packed[d + np.uint64(29)]
    x5 = x5 + x4 * packed[d + np.uint64(37)]
    x5 = x5 * packed[d + np.uint64(45)]
    store(values, c + np.uint64(40), x5)
    x6 = load(values, c + np.uint64(48)) + x0 * packed[d + np.uint64(6)]
    x6 = x6 + x1 * packed[d + np.uint64(14)]
    x6 = x6 + x2 * packed[d + np.uint64(22)]
    x6 = x6 + x3 * packed[d + np.uint64(30)]
    x6 = x6 + x4 * packed[d + np.uint64(38)]
    x6 = x6 + x5 * packed[d + np.uint64(46)]
    x6 = x6 * packed[d + np.uint64(54)]
    store(values, c + np.uint64(48), x6)
    x7 = load(values, c + np.uint64(56)) + x0 * packed[d + np.uint64(7)]
    x7 = x7 + x1 * packed[d + np.uint64(15)]
    x7 = x7 + x2 * packed[d + np.uint64(23)]
    x7 = x7 + x3 * packed[d + np.uint64(31)]
    x7 = x7 + x4 * packed[d + np.uint64(39)]
    x7 = x7 + x5 * packed[d + np.uint64(47)]
    x7 = x7 + x6 * packed[d + np.uint64(55)]
    x7 = x7 * packed[d + np.uint64(63)]
    store(values, c + np.uint64(56), x7)


@device
def factor_tile(values, at, signs, place, packed, into, least, replacement):
    """Factorise a tile on the diagonal and pack it.

    Where `replacement` is positive, it takes the place of pivots from -replacement to `least`.
    Returns how many it took; or -1 - k where that of column k has not its sign, or is no number.
    """
    replaced = 0
    for j in range(8):
        sign = signs[place + j]
        column = at + 8 * j
        pivot = values[column + j] * sign
        if not (pivot > least and pivot <= HUGE):  # neither holds for NaN
            if not (replacement > 0.0 and -replacement <= pivot and pivot <= least):
                return -1 - j
            pivot = replacement
            replaced += 1
        inverse = 1.0 / math.sqrt(pivot)
        row = load(values, np.uint64(column)) * (inverse * sign)
        store(values, np.uint64(column), row)
        for k in range(j + 1, 8):
            right = np.uint64(at + 8 * k)
            store(values, right, load(values, right) - row * (values[column + k] * sign))
        store(packed, np.uint64(into + 8 * j), row * -sign)
        values[column + j] = inverse
        packed[into + 9 * j] = inverse * sign
    return replaced


@device
def pack_strip(values, at, signs, place, packed, into, count):
    """Copy `count` columns of a strip of L, times -S."""
    source, target = np.uint64(at), np.uint64(into)
    for k in range(np.uint64(count)):
        store(packed, target, load(values, source) * -signs[np.uint64(place) + k])
        source += np.uint64(8)
        target += np.uint64(8)


@device
def factor_corner(values, base, own, p, end, signs, place, packed, into, least, replacement):
    """Factorise the tiles p to end - 1 on and below the diagonal, where a panel begins.

    Returns what `factor_tile` does, -1 - k counted from the front's first column.
    """
    replaced = 0
    for t in range(p, end):
        row = base + strip(t, own)
        mine = into + PACKED * t
        for u in range(p, t):
            right = into + PACKED * u
            done = 64 * (u - p)
            add_product(values, row + 64 * p, packed, right, 8 * (u - p), row + 64 * u)
            eliminate_tile(values, row + 64 * u, packed, right + done)
        count = 8 * (t - p)
        pack_strip(values, row + 64 * p, signs, place + 8 * p, packed, mine, count)
        add_product(values, row + 64 * p, packed, mine, count, row + 64 * t)
        status = factor_tile(
            values, row + 64 * t, signs, place + 8 * t, packed, mine + 8 * count, least, replacement
        )
        if status < 0:
            return status - 8 * t
        replaced += status
    return replaced


@device
def eliminate_strips(values, base, own, begin, end, p, stop, signs, place, packed, into):
    """Eliminate the columns of the tiles p to stop - 1 from the strips begin to end - 1."""
    count = 8 * (stop - p)
    for s in range(begin, end - 1, 2):
        a, b = base + strip(s, own), base + strip(s + 1, own)
        for u in range(p, stop):
            right = into + PACKED * u
            add_products(
                values, a + 64 * p, b + 64 * p, packed, right, 8 * (u - p), a + 64 * u, b + 64 * u
            )
            eliminate_tile(values, a + 64 * u, packed, right + 64 * (u - p))
            eliminate_tile(values, b + 64 * u, packed, right + 64 * (u - p))
        pack_strip(values, a + 64 * p, signs, place + 8 * p, packed, into + PACKED * s, count)
        pack_strip(values, b + 64 * p, signs, place + 8 * p, packed, into + PACKED * (s + 1), count)
    if (end - begin) % 2 == 1:
        s = end - 1
        a = base + strip(s, own)
        for u in range(p, stop):
            right = into + PACKED * u
            add_product(values, a + 64 * p, packed, right, 8 * (u - p), a + 64 * u)
            eliminate_tile(values, a + 64 * u, packed, right + 64 * (u - p))
        pack_strip(values, a + 64 * p, signs, place + 8 * p, packed, into + PACKED * s, count)


@device
def update_block(values, base, update, own, begin, end, first, last, p, stop, packed, into):
    """Subtract a panel's product from the tiles of some strips and columns.

    Args:
        begin, end: Strips; `begin` is not before `first`.
        first, last: Columns; of each strip those up to the diagonal are updated.
        p, stop: The panel.
    """
    count = 8 * (stop - p)
    for s in range(begin, end - 1, 2):
        a, b = base + strip(s, own) + 64 * p, base + strip(s + 1, own) + 64 * p
        for t in range(first, min(last, s + 1)):
            add_products(
                values, a, b, packed, into + PACKED * t, count,
                tile_of(base, update, own, s, t), tile_of(base, update, own, s + 1, t),
            )  # fmt: skip
        t = s + 1
        if t < last:
            out = tile_of(base, update, own, t, t)
            add_product(values, b, packed, into + PACKED * t, count, out)
    if (end - begin) % 2 == 1:
        s = end - 1
        a = base + strip(s, own) + 64 * p
        for t in range(first, min(last, s + 1)):
            out = tile_of(base, update, own, s, t)
            add_product(values, a, packed, into + PACKED * t, count, out)
