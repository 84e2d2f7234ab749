"""Nested dissection of a graph: separators by vertex, from coordinates or from graph distance.

A piece of the graph is cut in two halves A, B of equal weight by a number at each vertex, its key:
the place along a direction, or a distance in the graph. The vertices that touch the cut edges form
a two-sided graph; a smallest set of vertices that touches all of them (a minimum vertex cover)
separates the rest of A from the rest of B. Koenig: from a maximum matching take Z, all that
alternating paths reach from unmatched vertices of A; then

    S = (A \\ Z) + (B & Z),    |S| = edges of the matching

`order` is the elimination order: a piece becomes [rest of A | rest of B | S], and so on within the
rests. Every tie is decided by the number of the vertex, so that the order is always the same.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device, kernel

BINS = 512
#: A separator of more than this part of its piece is not worth a cut.
LARGEST_SEPARATOR = 0.4
#: Directions along which the piece is longest, counted in edges, that are tried.
TRIED = 4
#: Graph distance is tried again where a separator is so many times longer than its piece predicts.
TOO_LONG = 1.5
SMOOTHINGS = 8
DEAD = np.int32(2**31 - 1)


@kernel
def edge_lengths(indptr, indices, coordinates, directions, longest, mean):
    """Longest and mean extent of the edges along each direction, for `dissect`."""
    count = max(indices.shape[0], 1)
    for d in range(directions.shape[0]):
        dx, dy, dz = directions[d, 0], directions[d, 1], directions[d, 2]
        most, total = 0.0, 0.0
        for v in range(indptr.shape[0] - 1):
            here = dx * coordinates[v, 0] + dy * coordinates[v, 1] + dz * coordinates[v, 2]
            for e in range(indptr[v], indptr[v + 1]):
                w = indices[e]
                there = dx * coordinates[w, 0] + dy * coordinates[w, 1] + dz * coordinates[w, 2]
                length = abs(here - there)
                most = max(most, length)
                total += length
        longest[d] = most * (1.0 + 1e-12)  # rounding must not hide an edge
        mean[d] = total / count


@kernel
def dissect(
    indptr, indices, width, coordinates, directions, longest, mean, leaf, order, begin, parent
):
    """Order a graph by nested dissection and list its fronts; return how many there are.

    Args:
        width: Weight of each vertex, its number of unknowns.
        coordinates: [n, 3], or [0, 3] where only graph distance is to be used.
        directions: Unit vectors to try, with what `edge_lengths` says of them.
        leaf: Weight up to which a piece is not cut.
        order: Filled: vertices in the order of elimination.
        begin: Filled: first place in `order` of each front; its vertices end where in elimination
            order the next front begins. Fronts are listed from the top down.
        parent: Filled: the front that each one's updates go to, or -1.
    """
    n = order.shape[0]
    have_coordinates = coordinates.shape[0] > 0
    key, best_key, smooth = np.empty(n), np.empty(n), np.empty(n)
    level, items, fifo = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    part, match = np.zeros(n, np.int32), np.full(n, -1, np.int32)
    came_from, visited = np.empty(n, np.int32), np.zeros(n, np.int32)
    score = np.empty(directions.shape[0])
    bins = np.empty(BINS, np.int64)
    # Pieces to do: begin, end, front above, whether to try distances; weight of the separator above
    # and of what it cut, and of the one above that.
    todo = np.zeros((n + 1, 8), np.int64)
    for v in range(n):
        order[v] = v
    fronts, parts, waiting = 0, 0, 0
    if n > 0:
        todo[0, 1], todo[0, 2], todo[0, 3] = n, -1, 1
        waiting = 1
    while waiting > 0:
        waiting -= 1
        low, high, above = todo[waiting, 0], todo[waiting, 1], todo[waiting, 2]
        by_graph = todo[waiting, 3] == 1 or not have_coordinates
        cut_above, size_above = todo[waiting, 4], todo[waiting, 5]
        cut_before, size_before = todo[waiting, 6], todo[waiting, 7]
        if size_before == 0:
            cut_before, size_before = cut_above, size_above
        weight = 0
        for i in range(low, high):
            weight += width[order[i]]
        divided = False
        if weight > leaf and high - low > 1:
            best, best_at, best_item = 1 << 60, 0.0, -1
            from_graph = False
            if have_coordinates:
                rank_directions(order, low, high, coordinates, directions, mean, score)
                for _ in range(TRIED):
                    d = 0
                    for other in range(1, directions.shape[0]):
                        if score[other] > score[d]:
                            d = other
                    if score[d] <= 0.0:
                        break
                    score[d] = -1.0
                    for i in range(low, high):
                        v = order[i]
                        key[v] = (
                            directions[d, 0] * coordinates[v, 0]
                            + directions[d, 1] * coordinates[v, 1]
                            + directions[d, 2] * coordinates[v, 2]
                        )
                    at, item = middle(order, low, high, width, weight, key, bins, items)
                    found = touching(
                        indptr, indices, width, order, low, high, part, key, at, item, longest[d]
                    )
                    if found < best:
                        best, best_at, best_item = found, at, item
                        for i in range(low, high):
                            best_key[order[i]] = key[order[i]]
                if size_before > 0 and best > TOO_LONG * np.sqrt(weight / size_before) * cut_before:
                    by_graph = True
            if by_graph:
                for attempt in range(2):
                    spread = graph_keys(
                        indptr, indices, order, low, high, part, attempt, fifo, level, visited, key,
                        smooth,
                    )  # fmt: skip
                    if spread == 0.0:
                        break
                    at, item = middle(order, low, high, width, weight, key, bins, items)
                    found = touching(
                        indptr, indices, width, order, low, high, part, key, at, item, spread
                    )
                    if found < best:
                        best, best_at, best_item = found, at, item
                        from_graph = True
                        for i in range(low, high):
                            best_key[order[i]] = key[order[i]]
            parts += 2
            for i in range(low, high):
                v = order[i]
                first = best_key[v] < best_at or (best_key[v] == best_at and v < best_item)
                part[v] = parts - 1 if first else parts
            cover(indptr, indices, order, low, high, part, parts, match, came_from, fifo, visited)
            second, rest, cut = gather_parts(
                order, low, high, part, parts, match, visited, width, items
            )
            divided = cut <= LARGEST_SEPARATOR * weight
        if not divided:
            begin[fronts], parent[fronts] = low, above
            fronts += 1
            continue
        if rest < high:
            begin[fronts], parent[fronts] = rest, above
            above = fronts
            fronts += 1
        again = 1 if from_graph else 0
        for half in range(2):
            start = low if half == 0 else second
            end = second if half == 0 else rest
            if end > start:
                todo[waiting, 0], todo[waiting, 1], todo[waiting, 2] = start, end, above
                todo[waiting, 3], todo[waiting, 4], todo[waiting, 5] = again, cut, weight
                todo[waiting, 6], todo[waiting, 7] = cut_above, size_above
                waiting += 1
    return fronts


@device
def rank_directions(order, low, high, coordinates, directions, mean, score):
    """Standard deviation of a piece along each direction, in edges."""
    count = 1.0 / (high - low)
    x, y, z = 0.0, 0.0, 0.0
    for i in range(low, high):
        v = order[i]
        x += coordinates[v, 0]
        y += coordinates[v, 1]
        z += coordinates[v, 2]
    x, y, z = x * count, y * count, z * count
    xx, xy, xz, yy, yz, zz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(low, high):
        v = order[i]
        dx, dy, dz = coordinates[v, 0] - x, coordinates[v, 1] - y, coordinates[v, 2] - z
        xx += dx * dx
        xy += dx * dy
        xz += dx * dz
        yy += dy * dy
        yz += dy * dz
        zz += dz * dz
    for d in range(directions.shape[0]):
        dx, dy, dz = directions[d, 0], directions[d, 1], directions[d, 2]
        variance = dx * (dx * xx + 2.0 * (dy * xy + dz * xz)) + dy * (dy * yy + 2.0 * dz * yz)
        variance += dz * dz * zz
        score[d] = np.sqrt(max(variance, 0.0) * count) / mean[d] if mean[d] > 0.0 else -1.0


@device
def middle(order, low, high, width, weight, key, bins, items):
    """The key and vertex that begin the second half of a piece, by weight.

    Bins narrow the search down; the vertices of one bin are sorted by key and number.
    """
    least, most = key[order[low]], key[order[low]]
    for i in range(low, high):
        least = min(least, key[order[i]])
        most = max(most, key[order[i]])
    half = weight // 2
    scale = (BINS - 1) / (most - least) if most > least else 0.0
    bins[:] = 0
    for i in range(low, high):
        v = order[i]
        bins[np.int64((key[v] - least) * scale)] += width[v]
    before, chosen = 0, 0
    while chosen < BINS - 1 and before + bins[chosen] <= half:
        before += bins[chosen]
        chosen += 1
    count = 0
    for i in range(low, high):
        v = order[i]
        if np.int64((key[v] - least) * scale) == chosen:
            items[count] = v
            count += 1
    sort_by_key(items, count, key)
    for k in range(count):
        v = items[k]
        # The first vertex never begins the second half: both halves have one at least.
        if before > 0 and before + width[v] > half:
            return key[v], np.int64(v)
        before += width[v]
    # One vertex that outweighs all others is the first half alone.
    return key[items[0]], np.int64(items[0]) + 1


@device
def sort_by_key(items, count, key):
    """Sort by key, then by number (Shell 1959)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            v = items[i]
            k = i
            while k >= gap:
                w = items[k - gap]
                if key[w] < key[v] or (key[w] == key[v] and w < v):
                    break
                items[k] = w
                k -= gap
            items[k] = v
        gap //= 3


@device
def touching(indptr, indices, width, order, low, high, part, key, at, item, reach):
    """Weight of the vertices on one side that touch the other: the lesser of the two sides.

    No edge is longer than `reach`, so that vertices further from the cut need not be looked at.
    """
    first, second = 0, 0
    for i in range(low, high):
        v = order[i]
        if abs(key[v] - at) > reach:
            continue
        before = key[v] < at or (key[v] == at and v < item)
        for e in range(indptr[v], indptr[v + 1]):
            w = indices[e]
            if part[w] == part[v] and (key[w] < at or (key[w] == at and w < item)) != before:
                if before:
                    first += width[v]
                else:
                    second += width[v]
                break
    return min(first, second)


@device
def graph_keys(
    indptr, indices, order, low, high, part, attempt, fifo, level, visited, key, smooth
):  # fmt: skip
    """Fill keys from distances in the graph; return the most by which neighbours differ, or 0.

    The first attempt numbers the vertices breadth first from one that is far from others (George &
    Liu 1981); the second takes the difference of the distances from both ends of the piece.
    """
    count = high - low
    if attempt == 0:
        start = order[low]
        for _ in range(2):
            end = levels(indptr, indices, order, low, high, part, start, fifo, level)
            start = fifo[end - 1]
        levels(indptr, indices, order, low, high, part, start, fifo, level)
        for i in range(count):
            v = fifo[i]
            key[v] = level[v] + i / count
            visited[v] = level[v]
        return 2.0
    # `visited` holds the distances from the one end, `fifo` ends with the other.
    end = levels(indptr, indices, order, low, high, part, fifo[count - 1], fifo, level)
    for i in range(count):
        v = fifo[i]
        key[v] = visited[v] - level[v] - i / count
        visited[v] = 0
    # Means over the neighbours make the cut straight.
    for _ in range(SMOOTHINGS):
        for i in range(low, high):
            v = order[i]
            total, count = key[v], 1
            for e in range(indptr[v], indptr[v + 1]):
                w = indices[e]
                if part[w] == part[v]:
                    total += key[w]
                    count += 1
            smooth[v] = total / count
        for i in range(low, high):
            key[order[i]] = smooth[order[i]]
    return 3.0 if end == high - low else 0.0


@device
def levels(indptr, indices, order, low, high, part, start, fifo, level):
    """Number a piece breadth first; return how many vertices hang together with the first.

    What does not follows as if it were joined to the last vertex.
    """
    for i in range(low, high):
        level[order[i]] = -1
    fifo[0] = start
    level[start] = 0
    done, known, whole, scan = 0, 1, 0, low
    while True:
        while done < known:
            v = fifo[done]
            done += 1
            for e in range(indptr[v], indptr[v + 1]):
                w = indices[e]
                if part[w] == part[v] and level[w] < 0:
                    level[w] = level[v] + 1
                    fifo[known] = w
                    known += 1
        if whole == 0:
            whole = known
        if known == high - low:
            return whole
        while level[order[scan]] >= 0:
            scan += 1
        v = order[scan]
        level[v] = level[fifo[known - 1]] + 1
        fifo[known] = v
        known += 1


@device
def cover(indptr, indices, order, low, high, part, parts, match, came_from, fifo, visited):
    """Match the vertices on both sides of a cut; mark those of B in Z as DEAD in `visited`.

    A search that finds no augmenting path leaves what it saw dead: no later search can end there,
    and what all of them saw is Z.
    """
    first, second = parts - 1, parts
    for i in range(low, high):
        match[order[i]] = -1
        visited[order[i]] = 0
    for i in range(low, high):  # a first matching: whatever is free
        a = order[i]
        if part[a] == first:
            for e in range(indptr[a], indptr[a + 1]):
                b = indices[e]
                if part[b] == second and match[b] < 0:
                    match[a], match[b] = b, a
                    break
    stamp = 0
    for i in range(low, high):
        root = order[i]
        if part[root] != first or match[root] >= 0:
            continue
        stamp += 1
        fifo[0] = root
        done, known, end = 0, 1, -1
        while done < known and end < 0:
            a = fifo[done]
            done += 1
            for e in range(indptr[a], indptr[a + 1]):
                b = indices[e]
                if part[b] != second or visited[b] == stamp or visited[b] == DEAD:
                    continue
                visited[b] = stamp
                came_from[b] = a
                if match[b] < 0:
                    end = b
                    break
                fifo[known] = match[b]
                known += 1
        if end >= 0:
            while end >= 0:
                a = came_from[end]
                former = match[a]
                match[a], match[end] = end, a
                end = former
        else:
            for k in range(1, known):
                visited[match[fifo[k]]] = DEAD


@device
def gather_parts(order, low, high, part, parts, match, visited, width, items):
    """Sort a piece into [rest of A | rest of B | separator], each in the order it had.

    Returns where the rest of B and the separator begin, and the separator's weight.
    """
    first, second = 0, 0
    for i in range(low, high):
        v = order[i]
        partner = match[v]
        if part[v] == parts:
            chosen = visited[v] == DEAD
        else:
            chosen = partner >= 0 and visited[partner] != DEAD
        items[i - low] = v
        if chosen:
            part[v] = -1
        elif part[v] == parts:
            second += 1
        else:
            first += 1
    a, b, s, weight = low, low + first, low + first + second, 0
    for i in range(high - low):
        v = items[i]
        if part[v] == parts:
            order[b] = v
            b += 1
        elif part[v] >= 0:
            order[a] = v
            a += 1
        else:
            order[s] = v
            s += 1
            weight += width[v]
    return low + first, low + first + second, weight
