"""Triangle soups made consistent: points at one place fused, repeats dropped, neighbours aligned.

A winding number needs triangles that look the same way. Meshes from the real world have points
that are split along seams, faces that are there twice (often once from each side), and faces that
look the wrong way; all three are found from which triangles share an edge, so they are repaired
before anything is measured. Fans (edges of more than two triangles) are left as they are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.kernels.jit import kernel

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def fuse_points(positions: npt.NDArray[np.float64]) -> Int32:
    """Return for each point [n, 3] a number that exactly coinciding points share, shape [n]."""
    if len(positions) == 0:
        return np.empty(0, np.int32)
    places = positions + 0.0  # -0.0 and 0.0 are one place
    order = np.lexsort((places[:, 2], places[:, 1], places[:, 0]))
    sorted_places = places[order]
    is_new = np.ones(len(places), bool)
    is_new[1:] = (sorted_places[1:] != sorted_places[:-1]).any(axis=1)
    number = np.empty(len(places), np.int32)
    number[order] = np.cumsum(is_new) - 1
    return number


def first_of_repeats(triangles: Int32) -> npt.NDArray[np.bool_]:
    """Return which triangles [t, 3] are the first on their three points, whichever way they look.

    Triangles on fewer than three points are always kept.
    """
    ordered = np.sort(triangles, axis=1)
    order = np.lexsort((ordered[:, 2], ordered[:, 1], ordered[:, 0]))  # stable: the first leads
    rows = ordered[order]
    keep = np.ones(len(triangles), bool)
    keep[order[1:]] = (rows[1:] != rows[:-1]).any(axis=1)
    flat = (ordered[:, 0] == ordered[:, 1]) | (ordered[:, 1] == ordered[:, 2])
    return np.asarray(keep | flat)


def orient(triangles: Int32) -> tuple[npt.NDArray[np.bool_], Int64, Int64]:
    """Find which triangles [t, 3] to turn around so that neighbours look the same way.

    Of each connected part the larger share stays as it is.

    Returns:
        Which to turn around, shape [t]; then the border: edges that are not passed as often in one
        direction as in the other, as numbers 3 t + side, and how often more. A closed surface has
        none.
    """
    turned = np.zeros(len(triangles), bool)
    start = triangles.reshape(-1)
    end = triangles[:, [1, 2, 0]].reshape(-1)
    proper = np.flatnonzero(start != end)
    lower, upper = np.minimum(start, end)[proper], np.maximum(start, end)[proper]
    keys = lower.astype(np.int64) << 32 | upper.astype(np.int64)
    order = np.argsort(keys, kind="stable")
    edges, forward = proper[order], (start < end)[proper[order]]
    sorted_keys = keys[order]
    borders = np.flatnonzero(np.diff(sorted_keys, prepend=-1, append=-1))
    sizes = np.diff(borders)
    firsts = borders[:-1]
    pairs = firsts[sizes == 2]
    if np.any(forward[pairs] == forward[pairs + 1]):
        a, b = edges[pairs], edges[pairs + 1]
        neighbour = np.full(len(start), -1, np.int32)
        neighbour[a], neighbour[b] = b // 3, a // 3
        opposed = np.zeros(len(start), bool)
        opposed[a] = opposed[b] = forward[pairs] == forward[pairs + 1]
        align_neighbours(neighbour.reshape(-1, 3), opposed.reshape(-1, 3), turned)
        forward = forward ^ turned[edges // 3]
    if len(firsts) == 0:
        return turned, np.empty(0, np.int64), np.empty(0, np.int64)
    excess = np.abs(np.add.reduceat(np.where(forward, 1, -1), firsts))
    on_border = excess > 0
    return turned, edges[firsts[on_border]].astype(np.int64), excess[on_border].astype(np.int64)


@kernel
def align_neighbours(neighbour, opposed, turned):
    """Fill turned [t], given the neighbour over each edge or -1, and whether the two disagree."""
    count = neighbour.shape[0]
    seen = np.zeros(count, np.bool_)
    queue = np.empty(count, np.int32)
    for seed in range(count):
        if seen[seed]:
            continue
        seen[seed] = True
        queue[0] = seed
        head, tail, turns = 0, 1, 0
        while head < tail:
            t = queue[head]
            head += 1
            for side in range(3):
                other = neighbour[t, side]
                if other >= 0 and not seen[other]:
                    seen[other] = True
                    turned[other] = turned[t] != opposed[t, side]
                    turns += 1 if turned[other] else 0
                    queue[tail] = other
                    tail += 1
        if 2 * turns > tail:
            for place in range(tail):
                turned[queue[place]] = not turned[queue[place]]
