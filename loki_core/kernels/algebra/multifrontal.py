"""The multifrontal method: sparse factors as a tree of dense fronts (Duff & Reid 1983; Liu 1992).

A front holds the unknowns that it eliminates, its own, and its boundary: the later unknowns that
they are joined to, directly or by what was eliminated below. What its elimination does to the
boundary, the update U, is added to the front above. The fronts of separate subtrees have nothing in
common until then, so that threads take subtrees; the large fronts on top are shared by their tiles
(`front_tiles.py`). Children are added in the order of their numbers.

Numbers of a front, columns of the table `fronts`, int64:

    OWN, STRIPS       strips of own unknowns, and of all; each part is filled up to full strips
    FACTOR, PLACE     where its factor begins in `values`, and its own unknowns in the vectors
    UNKNOWNS          own unknowns without the filling, whose diagonal is one
    BOUNDARY, COUNT   where its boundary begins in the lists, and how many unknowns it has
    CHILD, CHILDREN   where its children are listed, and how many there are

Of boundary unknowns `relative` has the row in the front above, `beyond` the place in the vectors.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.algebra.front_tiles import (
    PANEL,
    eliminate_strips,
    factor_corner,
    strip,
    update_block,
)
from loki_core.kernels.basics.rows import LANES, load, repeated, store, total
from loki_core.kernels.jit import device, inlined, kernel, parallel_kernel, prange

OWN, STRIPS, FACTOR, PLACE, UNKNOWNS, BOUNDARY, COUNT, CHILD, CHILDREN = range(9)
FRONT_NUMBERS = 9
SMALL_PRODUCT = (
    1024  # tiles that are multiplied with a vector in the time that threads take to wake
)


# -- what the fronts are -------------------------------------------------------------------------


@kernel
def find_boundaries(indptr, indices, order, rank, begin, child_begin, children, start, keys):
    """List the boundary vertices of all fronts, as front * vertices + place in the order.

    Args:
        rank: Place of each vertex in the order.
        begin: First own place of each front, and the end of the last.
        child_begin, children: Children of each front.
        start: Filled: where each front's boundary begins; [fronts + 1].
        keys: Filled, in no order within a front. Returns False where it is too short.
    """
    n = order.shape[0]
    seen = np.full(n, -1, np.int32)
    count = 0
    for f in range(begin.shape[0] - 1):
        start[f] = count
        end = begin[f + 1]
        for place in range(begin[f], end):
            v = order[place]
            for e in range(indptr[v], indptr[v + 1]):
                other = rank[indices[e]]
                if other >= end and seen[other] != f:
                    seen[other] = f
                    if count == keys.shape[0]:
                        return False
                    keys[count] = f * n + other
                    count += 1
        for i in range(child_begin[f], child_begin[f + 1]):
            c = children[i]
            for k in range(start[c], start[c + 1]):
                other = keys[k] - c * n
                if other >= end and seen[other] != f:
                    seen[other] = f
                    if count == keys.shape[0]:
                        return False
                    keys[count] = f * n + other
                    count += 1
        start[f + 1] = count
    return True


@kernel
def relate(begin, parent, start, boundary, place, width, fronts, relative, beyond):
    """Fill `relative` and `beyond` for all fronts.

    Args:
        boundary: Boundary vertices of each front, from start[f] on, as places in the order, sorted.
        place, width: Place in the vectors and unknowns of each vertex, in the order.
    """
    for f in range(parent.shape[0]):
        at = fronts[f, BOUNDARY]
        p = parent[f]
        if p < 0:
            continue
        cursor = start[p]
        row = 8 * fronts[p, OWN]
        for k in range(start[f], start[f + 1]):
            v = boundary[k]
            if v < begin[p + 1]:
                local = place[v] - fronts[p, PLACE]
            else:
                while boundary[cursor] != v:
                    row += width[boundary[cursor]]
                    cursor += 1
                local = row
            for part in range(width[v]):
                relative[at] = local + part
                beyond[at] = place[v] + part
                at += 1


@parallel_kernel
def locate(indptr, indices, block, front_of, place, vertex_of, fronts, beyond, front, target):
    """Find where the entries of a matrix on and below its diagonal go.

    Args:
        indptr, indices: Compressed rows, of unknowns or of blocks with `block` rows and columns.
        front_of: Front of each vertex.
        place: Place in the vectors of each unknown.
        vertex_of: Vertex of each unknown.
        front: Filled: the front of each entry; -1 above the diagonal, -2 where the graph has no
            such edge.
        target: Filled: place in that front's factor.
    """
    for number in prange(place.shape[0]):
        row = np.int64(number)
        i = row // block
        mine = place[row]
        former, far, base, f = -1, 0, 0, 0
        for e in range(indptr[i], indptr[i + 1]):
            for part in range(block):
                column = indices[e] * block + part
                entry = (e * block + row - i * block) * block + part
                if column > row:
                    front[entry] = -1
                    continue
                other = place[column]
                low, high = min(mine, other), max(mine, other)
                vertex = vertex_of[column]
                if vertex != former:
                    # The unknowns of a vertex follow one another: one search serves all of them.
                    former = vertex
                    f = front_of[vertex_of[row] if low == mine else vertex]
                    base = find_row(fronts, beyond, f, high)
                    far = high - base
                if base < 0:
                    front[entry] = -2
                    continue
                line = high - far
                k = low - fronts[f, PLACE]
                front[entry] = f
                target[entry] = strip(line >> 3, fronts[f, OWN]) + 8 * k + (line & 7)


@inlined
def find_row(fronts, beyond, f, place):
    """Row of an unknown in a front, by its place in the vectors, or -1."""
    own = 8 * fronts[f, OWN]
    if place < fronts[f, PLACE] + own:
        return place - fronts[f, PLACE]
    low = fronts[f, BOUNDARY]
    end = low + fronts[f, COUNT]
    high = end
    while low < high:
        half = (low + high) // 2
        if beyond[half] < place:
            low = half + 1
        else:
            high = half
    if low == end or beyond[low] != place:
        return -1
    return own + low - fronts[f, BOUNDARY]


@kernel
def sort_entries(front, target, entry_begin, source, destination):
    """List the entries of each front: number in the matrix, and place in the front's factor.

    Args:
        entry_begin: Filled: where each front's entries begin, and the end of the last.
    """
    entry_begin[:] = 0
    for e in range(front.shape[0]):
        if front[e] >= 0:
            entry_begin[front[e] + 1] += 1
    for f in range(entry_begin.shape[0] - 1):
        entry_begin[f + 1] += entry_begin[f]
    for e in range(front.shape[0]):
        if front[e] >= 0:
            at = entry_begin[front[e]]
            entry_begin[front[e]] += 1
            source[at] = e
            destination[at] = target[e]
    for f in range(entry_begin.shape[0] - 1, 0, -1):
        entry_begin[f] = entry_begin[f - 1]
    entry_begin[0] = 0


# -- factorisation -------------------------------------------------------------------------------


@parallel_kernel
def factor_subtrees(
    bin_begin, bins, fronts, update, children, relative, entry_begin, source, destination, data,
    signs, values, packed, room, least, replacement, failed, replaced,
):  # fmt: skip
    """Factorise fronts, one bin on each thread.

    Args:
        bin_begin, bins: Fronts of each bin, children before their parents.
        update: Where the update of each front lies in `values`.
        entry_begin, source, destination, data: Entries of the matrix, from `sort_entries`.
        signs: Sign of each pivot by its place in the vectors.
        values: Factors and updates; filled.
        packed: Work space, `room` numbers for each bin.
        failed: Filled: place in the vectors of the first bad pivot of each bin, or -1.
        replaced: Filled: how many pivots were replaced in each bin.
    """
    for number in prange(bin_begin.shape[0] - 1):
        w = np.int64(number)
        failed[w] = -1
        replaced[w] = 0
        for i in range(bin_begin[w], bin_begin[w + 1]):
            f = bins[i]
            own, strips = fronts[f, OWN], fronts[f, STRIPS]
            base, mine = fronts[f, FACTOR], update[f]
            for s in range(strips):
                clear_strip(values, base, mine, own, s)
            add_entries(fronts, f, entry_begin, source, destination, data, values)
            for k in range(fronts[f, CHILD], fronts[f, CHILD] + fronts[f, CHILDREN]):
                c = children[k]
                for s in range((fronts[c, COUNT] + 7) // 8):
                    add_child_strip(fronts, f, c, s, mine, update[c], relative, values)
            for p in range(0, own, PANEL):
                stop = min(p + PANEL, own)
                status = factor_corner(
                    values, base, own, p, stop, signs, fronts[f, PLACE], packed, w * room,
                    least, replacement,
                )  # fmt: skip
                if status < 0:
                    place = fronts[f, PLACE] - 1 - status
                    failed[w] = place if failed[w] < 0 else min(failed[w], place)
                    break
                replaced[w] += status
                eliminate_strips(
                    values, base, own, stop, strips, p, stop, signs, fronts[f, PLACE], packed,
                    w * room,
                )  # fmt: skip
                for first in range(stop, strips, PANEL):
                    update_block(
                        values, base, mine, own, first, strips, first, min(first + PANEL, strips),
                        p, stop, packed, w * room,
                    )  # fmt: skip


@parallel_kernel
def factor_front(
    f, fronts, update, children, relative, entry_begin, source, destination, data, signs, values,
    packed, least, replacement,
):  # fmt: skip
    """Factorise one large front with all threads; return what `factor_corner` does."""
    own, strips = fronts[f, OWN], fronts[f, STRIPS]
    base, mine, place = fronts[f, FACTOR], update[f], fronts[f, PLACE]
    for s in prange(strips):
        clear_strip(values, base, mine, own, np.int64(s))
    add_entries(fronts, f, entry_begin, source, destination, data, values)
    for k in range(fronts[f, CHILD], fronts[f, CHILD] + fronts[f, CHILDREN]):
        c = children[k]
        for s in prange((fronts[c, COUNT] + 7) // 8):
            add_child_strip(fronts, f, c, np.int64(s), mine, update[c], relative, values)
    replaced = 0
    for p in range(0, own, PANEL):
        stop = min(p + PANEL, own)
        status = factor_corner(
            values, base, own, p, stop, signs, place, packed, 0, least, replacement
        )
        if status < 0:
            return status
        replaced += status
        blocks = (strips - stop + PANEL - 1) // PANEL
        for pair in prange((strips - stop + 1) // 2):
            s = stop + 2 * np.int64(pair)
            eliminate_strips(
                values, base, own, s, min(s + 2, strips), p, stop, signs, place, packed, 0
            )
        for number in prange(blocks * (blocks + 1) // 2):
            task = np.int64(number)
            i = np.int64((np.sqrt(8.0 * task + 1.0) - 1.0) * 0.5)
            while i * (i + 1) // 2 > task:
                i -= 1
            while (i + 1) * (i + 2) // 2 <= task:
                i += 1
            j = task - i * (i + 1) // 2
            first, s = stop + PANEL * j, stop + PANEL * i
            update_block(
                values, base, mine, own, s, min(s + PANEL, strips), first,
                min(first + PANEL, strips), p, stop, packed, 0,
            )  # fmt: skip
    return replaced


@device
def clear_strip(values, base, update, own, s):
    """Set a strip of a front to zero, in the factor and in the update."""
    begin = np.uint64(base + strip(s, own))
    for k in range(begin, begin + np.uint64(64 * min(s + 1, own))):
        values[k] = 0.0
    if s >= own:
        i = s - own
        begin = np.uint64(update + 32 * i * (i + 1))
        for k in range(begin, begin + np.uint64(64 * (i + 1))):
            values[k] = 0.0


@device
def add_entries(fronts, f, entry_begin, source, destination, data, values):
    """Add a front's entries of the matrix, and ones for what fills its last own strip."""
    base, own = fronts[f, FACTOR], fronts[f, OWN]
    for e in range(entry_begin[f], entry_begin[f + 1]):
        values[np.uint64(base + destination[e])] += data[np.uint64(source[e])]
    for k in range(fronts[f, UNKNOWNS], 8 * own):
        values[base + strip(k >> 3, own) + 8 * k + (k & 7)] = 1.0


@device
def add_child_strip(fronts, f, c, s, update, child_update, relative, values):
    """Add eight rows of the update of child c to front f. Rows keep their order, so columns too."""
    own, base = fronts[f, OWN], fronts[f, FACTOR]
    list_begin, count = fronts[c, BOUNDARY], fronts[c, COUNT]
    source = child_update + 32 * s * (s + 1)
    last = min(8 * s + 8, count)
    split, high = 0, last  # columns of the child before `split` are own columns of the front
    while split < high:
        half = (split + high) // 2
        if relative[list_begin + half] < 8 * own:
            split = half + 1
        else:
            high = half
    for i in range(8 * s, last):
        row = relative[list_begin + i]
        at = np.uint64(source + i - 8 * s)
        line = row >> 3
        target = np.uint64(base + strip(line, own) + (row & 7))
        for k in range(np.uint64(list_begin), np.uint64(list_begin + min(split, i + 1))):
            values[target + np.uint64(8) * np.uint64(relative[k])] += values[at]
            at += np.uint64(8)
        beyond = line - own
        target = np.uint64(update + 32 * beyond * (beyond + 1) - 64 * own + (row & 7))
        for k in range(np.uint64(list_begin + split), np.uint64(list_begin + max(split, i + 1))):
            values[target + np.uint64(8) * np.uint64(relative[k])] += values[at]
            at += np.uint64(8)


# -- solution ------------------------------------------------------------------------------------


@parallel_kernel
def solve_fronts(
    bin_begin, bins, top, fronts, children, relative, beyond, signs, values, places, b, x, vector,
    carried, sums, room,
):  # fmt: skip
    """Write A^-1 b to x, by way of the factors.

    Args:
        bin_begin, bins: Fronts of subtrees, as `factor_subtrees` takes them.
        top: Fronts above them, children before their parents.
        places: Place in the vectors of each unknown.
        vector: Work space: the solution by places, and one zero more.
        carried: Work space: what each front hands upwards, as the boundary is listed.
        sums: Work space, `room` numbers for each bin.
    """
    for i in prange(vector.shape[0]):
        vector[i] = 0.0
    for i in prange(places.shape[0]):
        vector[places[i]] = b[i]
    for number in prange(bin_begin.shape[0] - 1):
        w = np.int64(number)
        for i in range(bin_begin[w], bin_begin[w + 1]):
            f = bins[i]
            forward_own(fronts, f, children, relative, values, vector, carried)
            for s in range(fronts[f, OWN], fronts[f, STRIPS]):
                forward_strip(fronts, f, s, values, vector, carried)
    for i in range(top.shape[0]):
        f = top[i]
        forward_own(fronts, f, children, relative, values, vector, carried)
        if is_small(fronts, f):
            for s in range(fronts[f, OWN], fronts[f, STRIPS]):
                forward_strip(fronts, f, s, values, vector, carried)
        else:
            for s in prange(fronts[f, OWN], fronts[f, STRIPS]):
                forward_strip(fronts, f, np.int64(s), values, vector, carried)
    for i in range(top.shape[0] - 1, -1, -1):
        f = top[i]
        fetch(fronts, f, beyond, vector, carried)
        if is_small(fronts, f):
            gather_columns(fronts, f, 0, fronts[f, OWN], values, carried, sums, 0)
        else:
            for block in prange((fronts[f, OWN] + PANEL - 1) // PANEL):
                begin = PANEL * np.int64(block)
                end = min(begin + PANEL, fronts[f, OWN])
                gather_columns(fronts, f, begin, end, values, carried, sums, 0)
        backward_own(fronts, f, signs, values, vector, sums, 0)
    for number in prange(bin_begin.shape[0] - 1):
        w = np.int64(number)
        for i in range(bin_begin[w + 1] - 1, bin_begin[w] - 1, -1):
            f = bins[i]
            fetch(fronts, f, beyond, vector, carried)
            gather_columns(fronts, f, 0, fronts[f, OWN], values, carried, sums, w * room)
            backward_own(fronts, f, signs, values, vector, sums, w * room)
    for i in prange(places.shape[0]):
        x[i] = vector[places[i]]


@inlined
def is_small(fronts, f):
    """Whether a front's boundary is not worth waking threads for."""
    return fronts[f, OWN] * (fronts[f, STRIPS] - fronts[f, OWN]) < SMALL_PRODUCT


@inlined
def strip_product(values, at, vector, place, tiles):
    """Product of a strip's first tiles with a vector, a row. Four sums hide their latency."""
    a = repeated(values[at]) * 0.0
    b, c, d = a, a, a
    for _ in range(tiles):
        a = a + load(values, at) * vector[place]
        b = b + load(values, at + np.uint64(8)) * vector[place + np.uint64(1)]
        c = c + load(values, at + np.uint64(16)) * vector[place + np.uint64(2)]
        d = d + load(values, at + np.uint64(24)) * vector[place + np.uint64(3)]
        a = a + load(values, at + np.uint64(32)) * vector[place + np.uint64(4)]
        b = b + load(values, at + np.uint64(40)) * vector[place + np.uint64(5)]
        c = c + load(values, at + np.uint64(48)) * vector[place + np.uint64(6)]
        d = d + load(values, at + np.uint64(56)) * vector[place + np.uint64(7)]
        at += np.uint64(64)
        place += np.uint64(8)
    return (a + b) + (c + d)


@device
def forward_own(fronts, f, children, relative, values, vector, carried):
    """Take what the children hand upwards, and solve with the triangle of own unknowns."""
    own, place, mine = fronts[f, OWN], fronts[f, PLACE], fronts[f, BOUNDARY]
    for k in range(8 * (fronts[f, STRIPS] - own)):
        carried[mine + k] = 0.0
    for k in range(fronts[f, CHILD], fronts[f, CHILD] + fronts[f, CHILDREN]):
        c = children[k]
        theirs = fronts[c, BOUNDARY]
        for i in range(theirs, theirs + fronts[c, COUNT]):
            row = relative[i]
            if row < 8 * own:
                vector[place + row] += carried[i]
            else:
                carried[mine + row - 8 * own] += carried[i]
    for s in range(own):
        at = np.uint64(fronts[f, FACTOR] + strip(s, own))
        here = np.uint64(place + 8 * s)
        product = strip_product(values, at, vector, np.uint64(place), np.uint64(s))
        row = load(vector, here) - product
        store(vector, here, row)
        at += np.uint64(64 * s)
        for j in range(np.uint64(LANES)):
            found = vector[here + j] * values[at + np.uint64(9) * j]
            vector[here + j] = found
            for k in range(j + np.uint64(1), np.uint64(LANES)):
                vector[here + k] -= values[at + np.uint64(8) * j + k] * found


@device
def forward_strip(fronts, f, s, values, vector, carried):
    """Subtract what the own unknowns do to eight of the boundary."""
    own = fronts[f, OWN]
    at = np.uint64(fronts[f, FACTOR] + strip(s, own))
    here = np.uint64(fronts[f, BOUNDARY] + 8 * (s - own))
    product = strip_product(values, at, vector, np.uint64(fronts[f, PLACE]), np.uint64(own))
    store(carried, here, load(carried, here) - product)


@device
def fetch(fronts, f, beyond, vector, carried):
    """Fetch the solution on the boundary of a front."""
    begin = fronts[f, BOUNDARY]
    for i in range(begin, begin + 8 * (fronts[f, STRIPS] - fronts[f, OWN])):
        carried[i] = vector[np.uint64(beyond[i])]


@device
def gather_columns(fronts, f, begin, end, values, carried, sums, into):
    """Sum up the product of the boundary's strips with the columns of the tiles begin to end.

    Lanes are summed apart: `sums` has eight numbers for each column.
    """
    own = fronts[f, OWN]
    for k in range(into + 64 * begin, into + 64 * end):
        sums[np.uint64(k)] = 0.0
    count = np.uint64(8 * (end - begin))
    eight = np.uint64(8)
    for s in range(own, fronts[f, STRIPS]):
        x = load(carried, np.uint64(fronts[f, BOUNDARY] + 8 * (s - own)))
        at = np.uint64(fronts[f, FACTOR] + strip(s, own) + 64 * begin)
        target = np.uint64(into + 64 * begin)
        for _ in range(count):
            store(sums, target, load(sums, target) + load(values, at) * x)
            at += eight
            target += eight


@device
def backward_own(fronts, f, signs, values, vector, sums, into):
    """Solve with the transposed triangle of own unknowns, from the last to the first."""
    own, place = fronts[f, OWN], fronts[f, PLACE]
    for back in range(own):
        t = own - 1 - back
        here = np.uint64(place + 8 * t)
        at = np.uint64(fronts[f, FACTOR] + strip(t, own))
        corner = at + np.uint64(64 * t)
        row = np.uint64(into + 64 * t)
        for k in range(np.uint64(LANES)):
            j = np.uint64(LANES - 1) - k
            found = vector[here + j] * signs[here + j] - total(load(sums, row + np.uint64(8) * j))
            for i in range(j + np.uint64(1), np.uint64(LANES)):
                found -= values[corner + np.uint64(8) * j + i] * vector[here + i]
            vector[here + j] = found * values[corner + np.uint64(9) * j]
        x = load(vector, here)
        target = np.uint64(into)
        for _ in range(np.uint64(8 * t)):
            store(sums, target, load(sums, target) + load(values, at) * x)
            at += np.uint64(8)
            target += np.uint64(8)
