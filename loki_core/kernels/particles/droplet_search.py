"""Which droplets touch within a substep: a tree of moving boxes over straight paths.

A droplet is a place at the end of the substep [m], a velocity [m/s], a radius [m] and the time [s]
from which on it moves like that. At the time t it is at

    x(t) = x_end - (dt - t) v,     begin <= t <= dt.

Two of them touch first where |x_i(t) - x_j(t)| = r_i + r_j while they approach. Those that overlap
already touch at once if they approach, and never if they part.

A *moving box* is a box at the start and one at the end of the substep: the least start, the least
end, the greatest start, the greatest end, [x, y, z] each. What is linear in time stays between, so
two moving boxes never meet if along one axis one is beyond the other at the start and at the end.
A common velocity cancels: a fast spray is searched as quickly as a slow one. A tree of such boxes
needs no cells, so radii and speeds may differ by any factor. Its leaves are runs of rows along a
space-filling curve, which is how particles are stored.

Sixteen rows, or boxes, stand side by side and are looked at together: `motion` is [n / 16, 8
numbers, 16 rows], `boxes` [nodes / 16, 12 numbers, 16 nodes]. A negative radius says that there is
no droplet. All of it is free of fast-math: what touches, and when, must not depend on which
droplets a rank or a thread looks at together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loki_core.kernels.jit import prange, strict_kernel

LANES = 16  # rows of a leaf, and children of a node: as many as LLVM makes vectors of
LANE_BITS = 4
BLOCKS = 128  # parts of a search that threads take, each with a list of its own
FIRST_CAPACITY = 512  # contacts that such a list has room for at first
LEVELS = 16  # more than any tree has

#: Place of a bit, by the top four of its product with a number that has all of them once.
SEQUENCE = 0x09AF
PLACES = np.argsort([(SEQUENCE << place >> 12) & 15 for place in range(16)]).astype(np.int64)

NEVER = math.inf
CLOSE = 1.0e-6  # way to the nearest point of two paths, over the radii, that is none
X, Y, Z, VX, VY, VZ, RADIUS, BEGIN = range(8)
NUMBERS = 8  # of a droplet

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


class Tree(NamedTuple):
    """Moving boxes of the leaves from `first_leaf` on, then of each level above."""

    first_leaf: int
    leaf_count: int
    boxes: Float64  # [groups, 12, 16]
    starts: Int64  # first group of each level, and the end, shape [levels + 1]

    def coarse(self, most: int) -> Float64:
        """The boxes of the finest level that has no more than this many, shape [n, 12]."""
        last = len(self.starts) - 2
        level = next(
            n for n in range(last + 1) if LANES * np.diff(self.starts)[n] <= most or n == last
        )
        groups = self.boxes[self.starts[level] : self.starts[level + 1]]
        flat = groups.transpose(0, 2, 1).reshape(-1, 12)
        return np.ascontiguousarray(flat[flat[:, 0] <= flat[:, 6]])


class Contacts(NamedTuple):
    """Pairs of rows that touch, and when [s]."""

    time: Float64
    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]

    def part(self, chosen: Any) -> Contacts:
        """Some of them."""
        return Contacts(self.time[chosen], self.first[chosen], self.second[chosen])

    def joined(self, *others: Contacts) -> Contacts:
        """These and others."""
        return Contacts(*(np.concatenate(all) for all in zip(self, *others, strict=True)))


class TooManyContacts(Exception):
    """More contacts than memory should be spent on; `row` has some of them."""

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row}")
        self.row = row


NO_CONTACTS = Contacts(np.empty(0), np.empty(0, np.int32), np.empty(0, np.int32))


def build_tree(
    motion: Float64, dt: float, *, first_leaf: int, leaf_count: int, boxes: Float64 | None = None
) -> Tree:
    """Bound `leaf_count` leaves from `first_leaf` on; `boxes` is storage to use again."""
    sizes = [max(1, -(-leaf_count // LANES))]
    while len(sizes) == 1 or sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // LANES))
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    if boxes is None or len(boxes) < starts[-1]:
        boxes = np.empty((int(1.25 * starts[-1]), 12, LANES))
    bound_leaves(motion, first_leaf, leaf_count, dt, boxes[: sizes[0]])
    for level in range(1, len(sizes)):
        children = boxes[starts[level - 1] : starts[level]]
        bound_groups(children, boxes[starts[level] : starts[level + 1]])
    return Tree(first_leaf, leaf_count, boxes, starts)


class ContactSearch:
    """Lists of contacts that threads fill, kept from call to call.

    Args:
        most: Contacts of one search that memory is spent on.
    """

    def __init__(self, most: int = 1 << 25) -> None:
        self.most = most // BLOCKS
        self._ways = np.empty((BLOCKS, 2, LEVELS), np.int64)
        self._own = np.empty((BLOCKS, LANES, 12, LANES))
        self._reserve(FIRST_CAPACITY)

    def _reserve(self, capacity: int) -> None:
        shape = (BLOCKS, capacity)
        self._lists = Contacts(
            np.empty(shape), np.empty(shape, np.int32), np.empty(shape, np.int32)
        )

    def among(self, tree: Tree, motion: Float64, dt: float) -> Contacts:
        """All contacts between rows of a tree.

        Raises:
            TooManyContacts: Which is no spray.
        """

        def fill(counts: Int64) -> None:
            find_contacts(
                motion, dt, tree.first_leaf, tree.leaf_count, tree.boxes, tree.starts, self.most,
                self._ways, self._own, *self._lists, counts,
            )  # fmt: skip

        return self._filled(fill)

    def of(
        self,
        rows: Int64,
        trees: Iterable[Tree],
        motion: Float64,
        dt: float,
        *,
        ids: Int64,
        owned: npt.NDArray[np.uint8],
        changed: npt.NDArray[np.uint8],
    ) -> Contacts:
        """All contacts of some rows, which are those marked as changed, with rows of trees.

        A contact of two such rows is told once, and one of two that others own not at all.

        Raises:
            TooManyContacts: Which is no spray.
        """
        found = NO_CONTACTS
        for tree in trees if len(rows) else ():

            def fill(counts: Int64, tree: Tree = tree) -> None:
                find_contacts_of(
                    rows, motion, dt, tree.first_leaf, tree.boxes, tree.starts, ids, owned,
                    changed, self.most, self._ways, self._own, *self._lists, counts,
                )  # fmt: skip

            if tree.leaf_count:
                found = found.joined(self._filled(fill))
        return found

    def _filled(self, fill: Any) -> Contacts:
        counts = np.zeros(BLOCKS, np.int64)
        while True:
            fill(counts)
            needed = int(counts.max())
            if needed > self.most:
                raise TooManyContacts(int(self._lists[1][np.argmax(counts), 0]))
            if needed <= self._lists[0].shape[1]:
                break
            self._reserve(2 * needed)
        if not counts.any():
            return NO_CONTACTS
        is_filled = np.arange(needed) < counts[:, None]
        return self._lists.part((slice(None), slice(needed))).part(is_filled)


@strict_kernel
def load_droplets(
    position, velocity, radius, mass, ids, keep, order, motion, row_mass, row_ids, bad
):
    """Fill rows with droplets that move all the time; mark leaves that have an impossible one.

    Args: position, velocity [n, 3]; radius, mass, ids, keep [n], whether it takes part; order [n],
    which one is in each row. Filled in: motion [n / 16, 8, 16]; row_mass, row_ids; bad [n / 16].
    """
    for leaf in prange(motion.shape[0]):
        is_bad = False
        for lane in range(LANES):
            row = leaf * LANES + lane
            for number in range(NUMBERS):
                motion[leaf, number, lane] = 0.0
            motion[leaf, RADIUS, lane] = -1.0
            if row >= order.shape[0]:
                continue
            i = order[row]
            row_mass[row], row_ids[row] = mass[i], ids[i]
            if keep[i]:
                total = 0.0
                for axis in range(3):
                    motion[leaf, X + axis, lane] = position[i, axis]
                    motion[leaf, VX + axis, lane] = velocity[i, axis]
                    total += abs(position[i, axis]) + abs(velocity[i, axis])
                motion[leaf, RADIUS, lane] = radius[i]
                is_bad |= not (total < 1.0e150 and 0.0 < radius[i] < 1.0e50)
                is_bad |= not 0.0 < mass[i] < 1.0e150
        bad[leaf] = is_bad


@strict_kernel
def contact_time(motion, i, j, dt):
    """Time [s] at which two droplets touch first, or NEVER. The same for (j, i), bit for bit.

    With p their distance vector when both have begun, u the relative velocity and R = r_i + r_j

        t = begin + (|p|^2 - R^2) / (-p u + sqrt((p u)^2 - u^2 (|p|^2 - R^2))),     p u < 0.

    Droplets that overlap and are at their nearest, but for round-off, do not approach.
    """
    a, m, b, n = i // LANES, i % LANES, j // LANES, j % LANES
    begin = max(motion[a, BEGIN, m], motion[b, BEGIN, n])
    left = dt - begin
    ux = motion[a, VX, m] - motion[b, VX, n]
    uy = motion[a, VY, m] - motion[b, VY, n]
    uz = motion[a, VZ, m] - motion[b, VZ, n]
    px = (motion[a, X, m] - motion[b, X, n]) - left * ux
    py = (motion[a, Y, m] - motion[b, Y, n]) - left * uy
    pz = (motion[a, Z, m] - motion[b, Z, n]) - left * uz
    along = px * ux + py * uy + pz * uz
    if not along < 0.0:  # they part, or something is no number
        return NEVER
    reach = motion[a, RADIUS, m] + motion[b, RADIUS, n]
    apart = px * px + py * py + pz * pz - reach * reach
    square = ux * ux + uy * uy + uz * uz
    if apart <= 0.0:
        return begin if along * along > CLOSE * CLOSE * reach * reach * square else NEVER
    root = along * along - square * apart
    if not root >= 0.0:
        return NEVER
    time = begin + apart / (math.sqrt(root) - along)
    return time if time <= dt else NEVER


@strict_kernel
def may_touch(motion, leaf, lane, other, dt):
    """Bits of the rows of a leaf whose paths come near enough to that of one row, at any time."""
    x, y, z = motion[leaf, X, lane], motion[leaf, Y, lane], motion[leaf, Z, lane]
    vx, vy, vz = motion[leaf, VX, lane], motion[leaf, VY, lane], motion[leaf, VZ, lane]
    radius, begin = motion[leaf, RADIUS, lane], motion[leaf, BEGIN, lane]
    bits = np.uint32(0)
    for n in range(LANES):
        left = dt - max(begin, motion[other, BEGIN, n])
        ux = vx - motion[other, VX, n]
        uy = vy - motion[other, VY, n]
        uz = vz - motion[other, VZ, n]
        px = (x - motion[other, X, n]) - left * ux
        py = (y - motion[other, Y, n]) - left * uy
        pz = (z - motion[other, Z, n]) - left * uz
        along = px * ux + py * uy + pz * uz
        reach = radius + motion[other, RADIUS, n]
        apart = px * px + py * py + pz * pz - reach * reach
        root = along * along - (ux * ux + uy * uy + uz * uz) * apart
        near = (along < 0.0) & ((apart <= 0.0) | (root >= 0.0)) & (motion[other, RADIUS, n] >= 0.0)
        bits |= np.uint32(near) << np.uint32(n)
    return np.int64(bits)


@strict_kernel
def meeting(boxes, group, lane, others, other):
    """Bits of the moving boxes of a group that may meet one moving box."""
    b0, b1, b2 = boxes[group, 0, lane], boxes[group, 1, lane], boxes[group, 2, lane]
    b3, b4, b5 = boxes[group, 3, lane], boxes[group, 4, lane], boxes[group, 5, lane]
    b6, b7, b8 = boxes[group, 6, lane], boxes[group, 7, lane], boxes[group, 8, lane]
    b9, b10, b11 = boxes[group, 9, lane], boxes[group, 10, lane], boxes[group, 11, lane]
    bits = np.uint32(0)
    for n in range(LANES):
        gap = max(
            min(others[other, 0, n] - b6, others[other, 3, n] - b9),
            min(b0 - others[other, 6, n], b3 - others[other, 9, n]),
        )
        gap = max(gap, min(others[other, 1, n] - b7, others[other, 4, n] - b10))
        gap = max(gap, min(b1 - others[other, 7, n], b4 - others[other, 10, n]))
        gap = max(gap, min(others[other, 2, n] - b8, others[other, 5, n] - b11))
        gap = max(gap, min(b2 - others[other, 8, n], b5 - others[other, 11, n]))
        bits |= np.uint32(gap <= 0.0) << np.uint32(n)
    return np.int64(bits)


@strict_kernel
def fill_row_boxes(motion, leaf, dt, boxes, group):
    """Write the moving boxes of a leaf's rows, a hair wider than the droplets for round-off."""
    for n in range(LANES):
        radius = motion[leaf, RADIUS, n]
        for axis in range(3):
            end = motion[leaf, X + axis, n]
            start = end - dt * motion[leaf, VX + axis, n]
            wide = radius * (1.0 + 1.0e-9) + 1.0e-14 * (abs(start) + abs(end))
            wide = wide if radius >= 0.0 else -math.inf
            boxes[group, axis, n] = start - wide
            boxes[group, 3 + axis, n] = end - wide
            boxes[group, 6 + axis, n] = start + wide
            boxes[group, 9 + axis, n] = end + wide


@strict_kernel
def bound_group(children, child, boxes, group, lane):
    """Write the moving box around a group of children."""
    for side in range(6):
        least = math.inf
        greatest = -math.inf
        for n in range(LANES):
            least = min(least, children[child, side, n])
            greatest = max(greatest, children[child, 6 + side, n])
        boxes[group, side, lane] = least
        boxes[group, 6 + side, lane] = greatest


@strict_kernel
def bound_leaves(motion, first_leaf, leaf_count, dt, boxes):
    """Bound the rows of every leaf; places without one are inside out."""
    for group in prange(boxes.shape[0]):
        rows = np.empty((1, 12, LANES))
        for lane in range(LANES):
            leaf = group * LANES + lane
            if leaf < leaf_count:
                fill_row_boxes(motion, first_leaf + leaf, dt, rows, 0)
                bound_group(rows, 0, boxes, group, lane)
            else:
                boxes[group, :6, lane] = math.inf
                boxes[group, 6:, lane] = -math.inf


@strict_kernel
def bound_groups(children, boxes):
    """Bound every group of children; places without one are inside out."""
    for group in prange(boxes.shape[0]):
        for lane in range(LANES):
            child = group * LANES + lane
            if child < children.shape[0]:
                bound_group(children, child, boxes, group, lane)
            else:
                boxes[group, :6, lane] = math.inf
                boxes[group, 6:, lane] = -math.inf


@strict_kernel
def refit_tree(leaves, motion, first_leaf, dt, boxes, starts):
    """Bound some leaves, which are in ascending order, and all that is above them, anew."""
    rows = np.empty((1, 12, LANES))
    for n in range(leaves.shape[0]):
        leaf = leaves[n] - first_leaf
        fill_row_boxes(motion, leaves[n], dt, rows, 0)
        bound_group(rows, 0, boxes, leaf // LANES, leaf % LANES)
    for level in range(1, starts.shape[0] - 1):
        last = -1
        for n in range(leaves.shape[0]):
            node = (leaves[n] - first_leaf) >> (LANE_BITS * level)
            if node != last:
                group = starts[level] + node // LANES
                bound_group(boxes, starts[level - 1] + node, boxes, group, node % LANES)
                last = node


@strict_kernel
def find_contacts(
    motion, dt, first_leaf, leaf_count, boxes, starts, most, ways, own, time, first, second, counts
):  # fmt: skip
    """Fill each block's list with the contacts of its groups with themselves and later ones."""
    groups = starts[1]
    for block in prange(counts.shape[0]):
        begin = block * groups // counts.shape[0]
        end = (block + 1) * groups // counts.shape[0]
        found = 0
        for group in range(begin, end):
            found = contacts_of_group(
                group, motion, dt, first_leaf, leaf_count, boxes, starts, ways[block], own[block],
                time[block], first[block], second[block], found,
            )  # fmt: skip
            if found > most:
                break
        counts[block] = found


@strict_kernel
def contacts_of_group(
    group, motion, dt, first_leaf, leaf_count, boxes, starts, ways, own, time, first, second, found
):  # fmt: skip
    """Write contacts of a group of leaves; return how many were found so far, written or not."""
    leaves = min(LANES, leaf_count - group * LANES)
    for a in range(leaves):
        fill_row_boxes(motion, first_leaf + group * LANES + a, dt, own, a)
    mine, lane = starts[1] + group // LANES, group % LANES
    seen = group * LANES  # leaves before these have looked at them already
    level = begin_walk(boxes, mine, lane, boxes, starts, ways, seen)
    while level < starts.shape[0] - 1:
        if level > 1 or ways[1, level] == 0:
            level, _ = walk_on(level, boxes, mine, lane, boxes, starts, ways, seen)
            continue
        node = ways[0, level] * LANES + lowest_bit(ways[1, level])
        ways[1, level] &= ways[1, level] - 1
        some = meeting(boxes, starts[1] + node // LANES, node % LANES, boxes, group)
        while some != 0:
            a = lowest_bit(some)
            some &= some - 1
            near = meeting(boxes, group, a, boxes, node)
            if node == group:
                near &= -1 << a
            while near != 0:
                b = lowest_bit(near)
                near &= near - 1
                found = contacts_of_leaves(
                    first_leaf + group * LANES + a, first_leaf + node * LANES + b,
                    meeting(boxes, node, b, own, a), motion, dt, time, first, second, found,
                )  # fmt: skip
    return found


@strict_kernel
def contacts_of_leaves(leaf, other, lanes, motion, dt, time, first, second, found):
    """Write contacts of some rows of a leaf with those of another, or with its own later ones."""
    while lanes != 0:
        m = lowest_bit(lanes)
        lanes &= lanes - 1
        near = may_touch(motion, leaf, m, other, dt)
        if leaf == other:
            near &= -2 << m
        while near != 0:
            n = lowest_bit(near)
            near &= near - 1
            when = contact_time(motion, leaf * LANES + m, other * LANES + n, dt)
            if when <= dt:
                if found < time.shape[0]:
                    time[found] = when
                    first[found] = leaf * LANES + m
                    second[found] = other * LANES + n
                found += 1
    return found


@strict_kernel
def find_contacts_of(
    rows, motion, dt, first_leaf, boxes, starts, ids, owned, changed, most, ways, own,
    time, first, second, counts,
):  # fmt: skip
    """Fill each block's list with the contacts of its rows with rows of a tree."""
    for block in prange(counts.shape[0]):
        begin = block * rows.shape[0] // counts.shape[0]
        end = (block + 1) * rows.shape[0] // counts.shape[0]
        found = 0
        for n in range(begin, end):
            found = contacts_of_row(
                rows[n], motion, dt, first_leaf, boxes, starts, ids, owned, changed, ways[block],
                own[block], time[block], first[block], second[block], found,
            )  # fmt: skip
            if found > most:
                break
        counts[block] = found


@strict_kernel
def contacts_of_row(
    row, motion, dt, first_leaf, boxes, starts, ids, owned, changed, ways, own,
    time, first, second, found,
):  # fmt: skip
    """Write contacts of a row; return how many were found so far, written or not."""
    if motion[row // LANES, RADIUS, row % LANES] < 0.0:
        return found
    fill_row_boxes(motion, row // LANES, dt, own, 0)
    level = begin_walk(own, 0, row % LANES, boxes, starts, ways, 0)
    while level < starts.shape[0] - 1:
        level, leaf = walk_on(level, own, 0, row % LANES, boxes, starts, ways, 0)
        if leaf < 0:
            continue
        near = may_touch(motion, row // LANES, row % LANES, first_leaf + leaf, dt)
        while near != 0:
            other = (first_leaf + leaf) * LANES + lowest_bit(near)
            near &= near - 1
            is_told_there = changed[other] and ids[other] < ids[row]
            if ids[other] == ids[row] or is_told_there or not (owned[row] | owned[other]):
                continue
            when = contact_time(motion, row, other, dt)
            if when <= dt:
                if found < time.shape[0]:
                    time[found] = when
                    first[found] = row
                    second[found] = other
                found += 1
    return found


@strict_kernel
def begin_walk(query, group, lane, boxes, starts, ways, first):
    """Begin to look for the leaves, from `first` on, that one moving box meets.

    `ways` [2, LEVELS] has, for each level, the node above and the bits of those below it that are
    still to be visited. Returns the level to go on from; above the root all is done.
    """
    top = starts.shape[0] - 2
    ways[0, top] = 0
    ways[1, top] = meeting(query, group, lane, boxes, starts[top]) & -1 << (
        first >> (LANE_BITS * top)
    )
    return top


@strict_kernel
def walk_on(level, query, group, lane, boxes, starts, ways, first):
    """Take a step down or up the tree; return the level and the leaf that was met, or -1."""
    if ways[1, level] == 0:
        return level + 1, -1
    node = ways[0, level] * LANES + lowest_bit(ways[1, level])
    ways[1, level] &= ways[1, level] - 1
    if level == 0:
        return level, node
    level -= 1
    ways[0, level] = node
    skipped = max(0, (first >> (LANE_BITS * level)) - node * LANES)
    ways[1, level] = meeting(query, group, lane, boxes, starts[level] + node) & -1 << skipped
    return level, -1


@strict_kernel
def mark_rows_in(queries, motion, dt, first_leaf, boxes, starts, marks):
    """Mark the rows of a tree whose moving boxes meet any of the queries [n, 12, 1]."""
    ways = np.empty((2, LEVELS), np.int64)
    rows = np.empty((1, 12, LANES))
    for n in range(queries.shape[0]):
        level = begin_walk(queries, n, 0, boxes, starts, ways, 0)
        while level < starts.shape[0] - 1:
            level, leaf = walk_on(level, queries, n, 0, boxes, starts, ways, 0)
            if leaf >= 0:
                fill_row_boxes(motion, first_leaf + leaf, dt, rows, 0)
                near = meeting(queries, n, 0, rows, 0)
                for lane in range(LANES):
                    marks[(first_leaf + leaf) * LANES + lane] |= (near >> lane) & 1


@strict_kernel
def fill_boxes_of(rows, motion, dt, boxes):
    """Write the moving box of each of some rows into boxes [n, 12]."""
    group = np.empty((1, 12, LANES))
    for k in range(rows.shape[0]):
        fill_row_boxes(motion, rows[k] // LANES, dt, group, 0)
        boxes[k] = group[0, :, rows[k] % LANES]


@strict_kernel
def comes_first(time, first, second, ids, p, q):
    """Whether contact p is before contact q: by time, then by the lower id, then by the higher."""
    if time[p] != time[q]:
        return time[p] < time[q]
    low_p = min(ids[first[p]], ids[second[p]])
    low_q = min(ids[first[q]], ids[second[q]])
    if low_p != low_q:
        return low_p < low_q
    return max(ids[first[p]], ids[second[p]]) < max(ids[first[q]], ids[second[q]])


@strict_kernel
def choose_contacts(time, first, second, ids, owned, best, chosen):
    """List the contacts that are the first of both droplets; return how many.

    Of a droplet that another rank owns the first contact is not known here: it agrees.
    `best` is scratch for every row.
    """
    for p in range(time.shape[0]):
        best[first[p]] = -1
        best[second[p]] = -1
    for p in range(time.shape[0]):
        for row in (first[p], second[p]):
            if best[row] < 0 or comes_first(time, first, second, ids, p, best[row]):
                best[row] = p
    count = 0
    for p in range(time.shape[0]):
        agrees = best[first[p]] == p or not owned[first[p]]
        if agrees and (best[second[p]] == p or not owned[second[p]]):
            chosen[count] = p
            count += 1
    return count


@strict_kernel
def keep_unchanged(time, first, second, changed):
    """Move the contacts of rows that have not changed to the front; return how many."""
    count = 0
    for p in range(time.shape[0]):
        if not (changed[first[p]] | changed[second[p]]):
            time[count] = time[p]
            first[count] = first[p]
            second[count] = second[p]
            count += 1
    return count


@strict_kernel
def lowest_bit(bits):
    """Place of the lowest of sixteen bits, of which one is set."""
    return PLACES[((bits & -bits) * SEQUENCE >> 12) & 15]
