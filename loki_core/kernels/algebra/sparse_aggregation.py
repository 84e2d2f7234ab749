"""Aggregates of unknowns for multigrid: chains of three, three times over.

Each round joins nodes into straight chains of three along strong connections, then collapses the
graph. On a grid the first round makes lines of three, the second squares, the third boxes of 27,
which is what one step of prolongator smoothing spans. Where the caller knows such boxes, only those
rows go through this whose box is cut by something. A connection is strong if its mean weight per
contact is a quarter of the node's largest; in later rounds two groups join only across a broad
contact, so weak directions stay uncoarsened. Chains are joined in row order, by one thread.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device, inlined, kernel, parallel_kernel, prange

DEGREE = 6  # strongest connections that a node keeps


@inlined
def keep_strongest(neighbour, weight, contacts, count, first, neighbours, weights, touch):
    """Insert into a node's list, sorted by weight, then by number; return its new length.

    Args: count: unsigned, as are all indices: others are checked for being negative; first: where
    the node's list begins in the flat lists.
    """
    one = np.uint64(1)
    place = first + count
    while place > first and (
        weights[place - one] < weight
        or (weights[place - one] == weight and neighbours[place - one] > neighbour)
    ):
        place -= one
    end = first + np.uint64(6)
    if place >= end:
        return count
    last = min(first + count, end - one)
    while last > place:
        neighbours[last] = neighbours[last - one]
        weights[last] = weights[last - one]
        touch[last] = touch[last - one]
        last -= one
    neighbours[place] = neighbour
    weights[place] = weight
    touch[place] = contacts
    return min(count + one, np.uint64(6))


@inlined
def largest_weight(slices, columns, values, i):
    """Largest negative coupling of a row, made positive."""
    largest = np.float32(0.0)
    for e in range(slices[i >> 3] + (i & 7), slices[(i >> 3) + 1], 8):
        if columns[e] != i:
            largest = max(largest, -np.float32(values[e]))
    return largest


@parallel_kernel
def count_contacts(slices, columns, values, labels, box, contacts):
    """Strong couplings of each row within its box; -1 where one is weak, or crosses labels."""
    rows = box.shape[0]
    for i in prange(rows):
        weakest = np.float32(0.25) * largest_weight(slices, columns, values, i)
        count = 0
        for e in range(slices[i >> 3] + (i & 7), slices[(i >> 3) + 1], 8):
            j = columns[e]
            if j != i and j < rows and values[e] != 0.0 and box[j] == box[i]:
                good = -np.float32(values[e]) >= weakest
                good = good and (labels.shape[0] == 0 or labels[i] == labels[j])
                count = count + 1 if good and count >= 0 else -1
        contacts[i] = count


@device
def strong_of_row(slices, columns, values, place, labels, i, node, neighbours, weights, touch):
    """List the strong connections of one row of the matrix."""
    largest = largest_weight(slices, columns, values, i)
    count = np.uint64(0)
    first = np.uint64(6 * node)
    if largest > 0.0:
        for e in range(np.uint64(slices[i >> 3] + (i & 7)), np.uint64(slices[(i >> 3) + 1]), 8):
            j = np.uint32(columns[e])
            weight = -np.float32(values[e])
            strong = j != i and j < place.shape[0] and weight >= np.float32(0.25) * largest
            if strong and place[j] >= 0 and (labels.shape[0] == 0 or labels[i] == labels[j]):
                count = keep_strongest(
                    place[j], weight, 1, count, first, neighbours, weights, touch
                )  # fmt: skip
    for t in range(count, np.uint64(6)):
        neighbours[first + t] = -1


@parallel_kernel
def strong_graph(slices, columns, values, labels, chosen, place, neighbours, weights, touch):
    """List the strongest negative connections between chosen rows: [chosen, 6], -1 at the end.

    Args: chosen: rows; place: the number of each row among them, or -1.
    """
    nodes, degree = neighbours.shape
    lists = neighbours.reshape(nodes * degree)
    strengths = weights.reshape(nodes * degree)
    touches = touch.reshape(nodes * degree)
    for node in prange(nodes):
        strong_of_row(
            slices, columns, values, place, labels, chosen[node], node, lists, strengths, touches
        )  # fmt: skip


@device
def straight_third(neighbours, group, stamp, a, b):
    """Free neighbour of b that touches no other neighbour of a: the chain a, b, c is straight."""
    for t in range(6):
        if neighbours[a, t] < 0:
            break
        stamp[neighbours[a, t]] = a
    for t in range(6):
        c = neighbours[b, t]
        if c < 0:
            break
        if c == a or group[c] >= 0 or stamp[c] == a:
            continue
        straight = True
        for u in range(6):
            d = neighbours[c, u]
            if d < 0:
                break
            if d != b and stamp[d] == a:
                straight = False
        if straight:
            return c
    return -1


@kernel
def join_chains(neighbours, active, stamp, group, members):
    """Join nodes into chains of up to three, then leftovers to a neighbour; return the count.

    Args: neighbours int32 [nodes, 6]; active bool [nodes]: others stay out; stamp int32 [nodes],
    filled with -1; group int32 [nodes], filled with -1; members int32 [nodes, 4].
    """
    count = 0
    nodes = neighbours.shape[0]
    for a in range(nodes):
        if group[a] >= 0 or not active[a]:
            continue
        group[a] = count
        members[count, 0] = a
        members[count, 1] = -1
        members[count, 2] = -1
        members[count, 3] = -1
        for t in range(6):
            b = neighbours[a, t]
            if b < 0:
                break
            if group[b] < 0:
                group[b] = count
                members[count, 1] = b
                c = straight_third(neighbours, group, stamp, a, b)
                if c >= 0:
                    group[c] = count
                    members[count, 2] = c
                break
        count += 1
    return count


@kernel
def join_leftovers(neighbours, group, members, count, renumbered):
    """Let a group of one join its strongest neighbour's group of at most three; return the count.

    Args: renumbered int32 [count], filled with -1 on entry: the new number of each group.
    """
    for g in range(count):
        a = members[g, 0]
        if members[g, 1] >= 0:
            continue
        for t in range(6):
            b = neighbours[a, t]
            if b < 0:
                break
            h = group[b]
            if h >= 0 and h != g and members[h, 3] < 0 and members[h, 0] >= 0:
                place = 1
                while members[h, place] >= 0:
                    place += 1
                members[h, place] = a
                group[a] = h
                members[g, 0] = -1
                break
    kept = 0
    for g in range(count):
        if members[g, 0] >= 0:
            renumbered[g] = kept
            for t in range(4):
                members[kept, t] = members[g, t]
            kept += 1
    for a in range(group.shape[0]):
        if group[a] >= 0:
            group[a] = renumbered[group[a]]
    return kept


@device
def collapse_group(
    neighbours, weights, touch, group, members, sizes, g, near, sums, counts, new_neighbours,
    new_weights, new_touch,
):  # fmt: skip
    """Connections of one group: sums over its members', strong and broad ones kept."""
    found = 0
    for m in range(4):
        a = members[g, m]
        if a < 0:
            break
        at = np.uint64(6 * a)
        for t in range(np.uint64(6)):
            b = neighbours[at + t]
            if b < 0:
                break
            h = group[np.uint32(b)]
            if h < 0 or h == g:
                continue
            place = 0
            while place < found and near[place] != h:
                place += 1
            if place == found:
                near[place] = h
                sums[place] = 0.0
                counts[place] = 0
                found += 1
            sums[place] += weights[at + t] * touch[at + t]
            counts[place] += touch[at + t]
    largest = np.float32(0.0)
    for place in range(found):
        largest = max(largest, sums[place] / counts[place])
    kept = np.uint64(0)
    first = np.uint64(6 * g)
    for place in range(found):
        mean = sums[place] / counts[place]
        broad = 2 * counts[place] >= min(sizes[g], sizes[near[place]])
        if broad and mean >= np.float32(0.25) * largest:
            kept = keep_strongest(
                near[place], mean, counts[place], kept, first, new_neighbours, new_weights,
                new_touch,
            )  # fmt: skip
    for t in range(kept, np.uint64(6)):
        new_neighbours[first + t] = -1


@parallel_kernel
def collapse_graph(
    neighbours, weights, touch, group, members, sizes, new_neighbours, new_weights, new_touch
):
    """Make the graph of the groups. Weights are means per contact; touch counts contacts."""
    nodes, degree = neighbours.shape
    count = new_neighbours.shape[0]
    lists, new_lists = neighbours.reshape(nodes * degree), new_neighbours.reshape(count * degree)
    strengths, new_strengths = weights.reshape(nodes * degree), new_weights.reshape(count * degree)
    touches, new_touches = touch.reshape(nodes * degree), new_touch.reshape(count * degree)
    for block in prange((count + 1023) // 1024):
        near = np.empty(24, dtype=np.int32)
        sums = np.empty(24, dtype=np.float32)
        counts = np.empty(24, dtype=np.int32)
        for g in range(1024 * block, min(1024 * block + 1024, count)):
            collapse_group(
                lists, strengths, touches, group, members, sizes, g, near, sums, counts, new_lists,
                new_strengths, new_touches,
            )  # fmt: skip


@parallel_kernel
def group_sizes(members, sizes, new_sizes):
    """Unknowns of each group, from those of its members."""
    for g in prange(new_sizes.shape[0]):
        total = 0
        for t in range(4):
            if members[g, t] >= 0:
                total += sizes[members[g, t]]
        new_sizes[g] = total


@parallel_kernel
def compose(aggregate, group):
    """Map each unknown's group to the group of that group."""
    for i in prange(aggregate.shape[0]):
        if aggregate[i] >= 0:
            aggregate[i] = group[aggregate[i]]


@kernel
def list_members(aggregate, starts, members):
    """List the unknowns of each aggregate in row order.

    Args: starts int32 [count + 1], zeros on entry; members int32 [unknowns in aggregates].
    """
    for i in range(aggregate.shape[0]):
        if aggregate[i] >= 0:
            starts[aggregate[i] + 1] += 1
    for a in range(starts.shape[0] - 1):
        starts[a + 1] += starts[a]
    for i in range(aggregate.shape[0]):
        if aggregate[i] >= 0:
            members[starts[aggregate[i]]] = i
            starts[aggregate[i]] += 1
    for a in range(starts.shape[0] - 1, 0, -1):
        starts[a] = starts[a - 1]
    starts[0] = 0
