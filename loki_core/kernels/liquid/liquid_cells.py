"""What of a volume's cells is liquid, from the part of each that particles fill.

The filled part f is a sum with trilinear weights, so for a plane surface a distance s voxels beyond
a cell's centre

    f = 1 - (1 - s)^2 / 2  (s > 0),     f = (1 + s)^2 / 2  (s < 0)

which gives s back. A cell is liquid where s > 0. Between a liquid cell and air the surface lies at
theta = s_liquid / (s_liquid - s_air) of the way, where the pressure is that of the air: the face
between them is moved 1 / theta as much by a difference of pressure (Gibou et al. 2002; Enright et
al. 2003), which is second order.

Beside walls and solids a part of the weights' reach holds no liquid, so f is taken of the room that
there is. But particles end anywhere within their spacing of a solid, so there f is unsure
(kernels/colliders/solid_room), and a surface that lies where f says is not level beside a wall.
So cells whose weights a solid cuts have the depth that two cells in a row beside them tell, where
the surface passes these: whole cells only as far as their own particles may be wrong. Of a cut cell
that a solid leaves little of, few particles tell anything: it has that depth, or else is liquid
beside liquid, unless air is beside it, too. Otherwise each gap among a few particles would be a
hole, into which the water around shoots.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.voxel_places import beside, voxel_at
from loki_core.kernels.gas.mac_grid import AMBIENT, FLUID, SIDE_OPEN, SOLID, cover
from loki_core.kernels.jit import device, parallel_kernel, prange

SMALLEST_ROOM = 0.125
#: Depth in voxels from which on a cell is liquid. It is a little above 0: the pressure of a cell
#: falls with its depth while faces around it get more mobile, and their product stays exact only as
#: long as neither is cut off.
LEAST_DEPTH = 1.0e-3
LEAST_FILLED = 1.0 - 0.5 * (1.0 - LEAST_DEPTH) ** 2
#: Open part of a cell from which on its particles tell whether it is full.
LEAST_WHOLE = 0.95
#: Depth in voxels up to which the surface passes a cell, for sure.
SURE_DEPTH = 0.9
#: Who tells how full a cell is: nobody yet, particles that may be wrong, particles for sure, or the
#: cells beside it.
UNTOLD, TOLD, SURE, JUDGED = 0, 1, 2, 3
#: Part that is corrected in a substep of an error no larger than particles beside a solid are
#: unsure: so slowly that it makes no waves, and that no volume is lost for long.
UNSURE_PART = 0.05
#: Filled part below which a cell that is open by more than this holds nothing.
DRY = 0.1


@parallel_kernel
def open_outside(coords, lower, upper, sides, space):
    """Let cells beyond open sides of the box be air: nothing holds what leaves there."""
    r = space.shape[2]
    for b in prange(space.shape[0]):
        for a in range(3):
            for side in range(2):
                if sides[2 * a + side] != SIDE_OPEN:
                    continue
                for place in range(r):
                    centre = coords[b, a] * r + place + 0.5
                    if (side == 0 and centre > lower[a]) or (side == 1 and centre < upper[a]):
                        continue
                    if a == 0:
                        space[b, 0, place] = AMBIENT
                    elif a == 1:
                        space[b, 0, :, place] = AMBIENT
                    else:
                        space[b, 0, :, :, place] = AMBIENT


@parallel_kernel
def cut_to_box(coords, lower, upper, space, open_part):
    """Multiply the open part of each local cell by that within the box; none of a solid is open."""
    r = space.shape[2]
    for b in prange(space.shape[0]):
        if is_inside_box(np.int64(b), coords, lower, upper, r) and all_are(
            space[b].reshape(-1), FLUID
        ):
            continue
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    place = (coords[b, 0] * r + i, coords[b, 1] * r + j, coords[b, 2] * r + k)
                    part = 0.0 if space[b, 0, i, j, k] == SOLID else 1.0
                    for a in range(3):
                        part *= cover(place[a], lower[a], upper[a])
                    open_part[b, 0, i, j, k] *= part


@device
def is_inside_box(b, coords, lower, upper, r):
    """Whether a Bucket and the voxels around it are inside the box."""
    for a in range(3):
        if coords[b, a] * r - 1.0 < lower[a] or coords[b, a] * r + r + 1.0 > upper[a]:
            return False
    return True


@device
def all_are(values, wanted):
    same = True
    for n in range(values.shape[0]):
        same &= values[n] == wanted
    return same


@parallel_kernel
def measure_room(open_part, coords, neighbours, lower, upper, sides, out):
    """Write the part of the trilinear weights about each cell that lies in open space to out.

    Args: open_part [b, 1, r, r, r] with ghosts and corners; sides int [6].
    """
    for b in prange(neighbours.shape[0]):
        room_of_bucket(np.int64(b), open_part, coords, neighbours, lower, upper, sides, out)


@device
def room_of_bucket(b, open_part, coords, neighbours, lower, upper, sides, out):
    r = out.shape[2]
    if is_open_around(b, open_part, coords, neighbours, lower, upper):  # most are far from walls
        out[b] = 1.0
        return
    n = r + 2
    part = np.empty((n, n, n), out.dtype)
    for i in range(n):
        for j in range(n):
            for k in range(n):
                part[i, j, k] = part_at(
                    open_part, coords, neighbours, lower, upper, sides, b, i - 1, j - 1, k - 1
                )
    for i in range(r):
        for j in range(r):
            for k in range(r):
                total = 0.0
                for di in range(3):
                    for dj in range(3):
                        line = part[i + di, j + dj, k] + part[i + di, j + dj, k + 2]
                        line = 0.125 * line + 0.75 * part[i + di, j + dj, k + 1]
                        weight = (0.75 if di == 1 else 0.125) * (0.75 if dj == 1 else 0.125)
                        total += weight * line
                out[b, 0, i, j, k] = max(total, SMALLEST_ROOM)


@device
def is_open_around(b, open_part, coords, neighbours, lower, upper):
    """Whether all voxels of a Bucket and around it are open."""
    if not is_inside_box(b, coords, lower, upper, open_part.shape[2]):
        return False
    one = open_part.dtype.type(1.0)
    for direction in range(27):
        other = np.int64(neighbours[b, direction])
        if other >= 0 and not all_are(open_part[other].reshape(-1), one):
            return False
    return True


@device
def part_at(open_part, coords, neighbours, lower, upper, sides, b, i, j, k):
    """Open part of a voxel of a Bucket or beside it; nothing is open beyond walls."""
    r = open_part.shape[2]
    for a in range(3):
        centre = coords[b, a] * r + (i if a == 0 else (j if a == 1 else k)) + 0.5
        if centre < lower[a] and sides[2 * a] != SIDE_OPEN:
            return 0.0
        if centre > upper[a] and sides[2 * a + 1] != SIDE_OPEN:
            return 0.0
    other, i, j, k = voxel_at(neighbours, b, r, i, j, k)
    return np.float64(open_part[other, 0, i, j, k]) if other >= 0 else 1.0


@device
def depth_of(filled):
    """Depth s of a cell's centre below the surface, in voxels from -1 to 1."""
    if filled < 0.5:
        return math.sqrt(2.0 * max(filled, 0.0)) - 1.0
    return 1.0 - math.sqrt(2.0 * max(1.0 - filled, 0.0))


@parallel_kernel
def classify_liquid(space, room, filled, kind):
    """Divide filled by the room, and tell liquid from air, flat arrays over local cells."""
    for n in prange(kind.shape[0]):
        filled[n] = filled[n] / room[n]
        kind[n] = space[n]
        if space[n] == FLUID and filled[n] < LEAST_FILLED:
            kind[n] = AMBIENT


@parallel_kernel
def mark_told(open_part, unsure, told):
    """Write what is known of how full cells are by their particles alone, flat arrays."""
    for n in prange(told.shape[0]):
        told[n] = UNTOLD
        if open_part[n] > LEAST_WHOLE:
            told[n] = TOLD if unsure[n] > 0.0 else SURE


@parallel_kernel
def judge_cut_cells(
    kind, space, open_part, unsure, told, fraction, neighbours, judged, fills, filled, new_kind,
    new_told,
):  # fmt: skip
    """Find kinds of cells of local Buckets whose weights solids cut by the cells beside them.

    The cells that are judged are never the ones that tell, so their order does not matter.

    Args: kind, told, fraction of faces, and filled: with ghosts, two layers; space, open_part and
    unsure, local; judged: TOLD for whole cells, UNTOLD for cut ones; fills: 1 where these become
    liquid beside liquid if no line tells. new_kind and new_told, local: filled. What cells that are
    judged have filled becomes what suits them.
    """
    for b in prange(neighbours.shape[0]):
        judge_bucket(
            np.int64(b), kind, space, open_part, unsure, told, fraction, neighbours, judged, fills,
            filled, new_kind, new_told,
        )  # fmt: skip


@device
def judge_bucket(
    b, kind, space, open_part, unsure, told, fraction, neighbours, judged, fills, filled, new_kind,
    new_told,
):  # fmt: skip
    r = kind.shape[2]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                here = kind[b, 0, i, j, k]
                new_kind[b, 0, i, j, k] = here
                new_told[b, 0, i, j, k] = told[b, 0, i, j, k]
                if space[b, 0, i, j, k] != FLUID or told[b, 0, i, j, k] != judged:
                    continue
                in_liquid, in_air = False, False
                total, count = 0.0, 0  # of lines of which particles are sure
                other_total, other_count = 0.0, 0
                for side in range(6):
                    a, step = side // 2, 2 * (side % 2) - 1
                    other, ni, nj, nk = beside(neighbours, b, r, a, step, i, j, k)
                    if other < 0:
                        continue
                    if step < 0:
                        w = fraction[b, a, i, j, k]
                    else:
                        w = fraction[other, a, ni, nj, nk]
                    if w == 0.0:
                        continue
                    there = kind[other, 0, ni, nj, nk]
                    in_liquid |= there == FLUID
                    if there == SOLID or told[other, 0, ni, nj, nk] == UNTOLD:
                        continue
                    in_air |= there == AMBIENT
                    # Along a line the depth is linear, where it is neither cut off nor cut.
                    x = i + (2 * step if a == 0 else 0)
                    y = j + (2 * step if a == 1 else 0)
                    z = k + (2 * step if a == 2 else 0)
                    far, mi, mj, mk = voxel_at(neighbours, b, r, x, y, z)
                    if far < 0 or kind[far, 0, mi, mj, mk] == SOLID:
                        continue
                    if told[far, 0, mi, mj, mk] == UNTOLD:
                        continue
                    first = depth_of(filled[other, 0, ni, nj, nk])
                    second = depth_of(filled[far, 0, mi, mj, mk])
                    if max(abs(first), abs(second)) >= SURE_DEPTH:
                        continue
                    if told[other, 0, ni, nj, nk] == SURE and told[far, 0, mi, mj, mk] == SURE:
                        total += 2.0 * first - second
                        count += 1
                    else:
                        other_total += 2.0 * first - second
                        other_count += 1
                if count == 0 and judged == UNTOLD:
                    total, count = other_total, other_count
                # What is open of a cell may be above the surface, though its middle is not.
                is_dry = filled[b, 0, i, j, k] < DRY and open_part[b, 0, i, j, k] > DRY
                depth = min(max(total / max(count, 1), -1.0), 1.0)
                is_told = count > 0 and not (is_dry and depth >= LEAST_DEPTH)
                if is_told and is_near_air(b, i, j, k, kind, told, neighbours):
                    part = filled_at(depth)
                    if judged == TOLD:
                        own = np.float64(filled[b, 0, i, j, k])
                        wrong = np.float64(unsure[b, 0, i, j, k])
                        part = min(max(part, own - wrong), own + wrong)
                    new_kind[b, 0, i, j, k] = FLUID if part >= LEAST_FILLED else AMBIENT
                    new_told[b, 0, i, j, k] = SURE if judged == TOLD else JUDGED
                    filled[b, 0, i, j, k] = part
                elif fills == 1 and here == AMBIENT and in_liquid and not in_air:
                    new_kind[b, 0, i, j, k] = FLUID
                    least = filled.dtype.type(LEAST_FILLED)
                    filled[b, 0, i, j, k] = max(filled[b, 0, i, j, k], least)


@device
def is_near_air(b, i, j, k, kind, told, neighbours):
    """Whether air is around a cell, for sure: a cell in the liquid is not quite full either."""
    r = kind.shape[2]
    found = False
    for n in range(27):
        other, ni, nj, nk = voxel_at(
            neighbours, b, r, i + n // 9 - 1, j + n // 3 % 3 - 1, k + n % 3 - 1
        )
        if other >= 0 and told[other, 0, ni, nj, nk] != UNTOLD:
            found |= kind[other, 0, ni, nj, nk] == AMBIENT
    return found


@device
def filled_at(depth):
    """Filled part of a cell whose centre is so deep below a plane surface: see `depth_of`."""
    if depth < 0.0:
        return 0.5 * (1.0 + depth) ** 2
    return 1.0 - 0.5 * (1.0 - depth) ** 2


@parallel_kernel
def surface_mobility(kind, filled, neighbours, mobility):
    """Multiply the mobility of faces between liquid and air by 1 / theta, for local Buckets."""
    for b in prange(neighbours.shape[0]):
        mobility_of_bucket(np.int64(b), kind, filled, neighbours, mobility)


@device
def mobility_of_bucket(b, kind, filled, neighbours, mobility):
    r = kind.shape[2]
    for a in range(3):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    other, ni, nj, nk = beside(neighbours, b, r, a, -1, i, j, k)
                    if other < 0:
                        continue
                    here, there = kind[b, 0, i, j, k], kind[other, 0, ni, nj, nk]
                    if here + there != FLUID + AMBIENT or here == there:
                        continue
                    s = depth_of(filled[b, 0, i, j, k])
                    t = depth_of(filled[other, 0, ni, nj, nk])
                    inside, outside = (s, t) if here == FLUID else (t, s)
                    if outside < 0.0:
                        mobility[b, a, i, j, k] *= (inside - outside) / inside


@parallel_kernel
def density_error(kind, filled, open_part, loose, neighbours, most, out):
    """Write by how much cells are too full, or inside the liquid too empty, to out: float64, flat.

    A part of the whole voxel, of which a cut cell holds only what is open. Next to air a cell is
    not full for good reasons, and where a wall lets go either: there only what is too much counts.
    """
    for b in prange(neighbours.shape[0]):
        error_of_bucket(
            np.int64(b), kind, filled, open_part, loose, neighbours, most, out
        )  # fmt: skip


@device
def error_of_bucket(b, kind, filled, open_part, loose, neighbours, most, out):
    r = kind.shape[2]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                row = ((b * r + i) * r + j) * r + k
                out[row] = 0.0
                if kind[b, 0, i, j, k] != FLUID:
                    continue
                error = np.float64(filled[b, 0, i, j, k]) - 1.0
                if loose[b, 0, i, j, k] == 1:
                    error = max(error, 0.0)
                if error < 0.0:
                    for n in range(27):
                        other, ni, nj, nk = voxel_at(
                            neighbours, b, r, i + n // 9 - 1, j + n // 3 % 3 - 1, k + n % 3 - 1
                        )
                        if other >= 0 and kind[other, 0, ni, nj, nk] == AMBIENT:
                            error = 0.0
                out[row] = min(max(error, -most), most) * open_part[b, 0, i, j, k]


@parallel_kernel
def trust_particles(unsure, open_part, error):
    """Take from errors of cells' volume most of what particles beside solids are unsure of.

    Flat arrays; error as from `density_error`.
    """
    for n in prange(error.shape[0]):
        most = np.float64(unsure[n]) * open_part[n]
        beyond = error[n] - min(max(error[n], -most), most)
        error[n] = beyond + UNSURE_PART * (error[n] - beyond)


@parallel_kernel
def mark_near_air(kind, neighbours, out):
    """Mark local cells that air is around: 1, else 0."""
    r = kind.shape[2]
    for b in prange(neighbours.shape[0]):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    out[b, 0, i, j, k] = is_beside_air(np.int64(b), i, j, k, kind, neighbours)


@device
def is_beside_air(b, i, j, k, kind, neighbours):
    r = kind.shape[2]
    found = 0
    for n in range(27):
        other, ni, nj, nk = voxel_at(
            neighbours, b, r, i + n // 9 - 1, j + n // 3 % 3 - 1, k + n % 3 - 1
        )
        if other >= 0 and kind[other, 0, ni, nj, nk] == AMBIENT:
            found = 1
    return found
