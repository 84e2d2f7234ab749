"""The full viscous stress on a staggered grid, as one symmetric system for all faces.

The velocity after a step of implicit viscosity minimises (Batty & Bridson 2008)

    sum_faces 1/2 rho (u - u*)^2 + dt mu [ sum_cells c (d_a u_a)^2
                                           + sum_edges e/2 (d_b u_a + d_a u_b)^2 ]

so with K = dt mu / (rho h^2) the row of face u_a is

    m u_a + 2 K c (differences along a) + K e (differences along b, those of u_b along a) = m u*_a

m is the mass of a face over that of a whole voxel: in a gas the open part of the face. c is 1 in
cells that are not solid; e is the part of an edge's four cells that is not solid. On a no-slip side
of the box the tangential velocity beyond it is mirrored, 2 U - u, so that the side itself moves
with U; there e is 1/2, which makes its drag exactly mu (U - u) / (h/2). A slip side, a slip solid
and the border to ambient air have e = 0: no shear. Solids' velocities are known. Whether a solid
slips is said by the faces that it closes: each has that of the solid nearest to it. Where one of
the two faces along b is held by a solid, at the part t of the way from the other one to it,

    e/2 (d_b u_a / t_a + d_a u_b / t_b)^2,      e = t_a t_b      (t = 1 where none or both are held)

so that a plane at rest drags by mu u / (t h), wherever in the voxels it lies.

A liquid ends at its surface, which no stress crosses. There the mass of a face is that of its
particles, m, and c and e are multiplied by the part of the cell or the edge's control volume that
lies below the surface, V = 1/2 + s between 0.01 and 1 (s: depth of its centre in voxels):

    m u_a + 2 K V c (...) + K V e (...) = m u*_a

Nothing pulls at a free liquid then: rigid motion has no stress, and momentum and angular momentum
are kept, as they are weighed by m. Where the viscosity varies, K is that of the largest one, and c
and e are multiplied by the cell's part of it, or the mean of the edge's cells, by what they hold.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.voxel_places import voxel_at
from loki_core.kernels.gas.extension import HOLDS, SLIPS
from loki_core.kernels.gas.mac_grid import SIDE_OPEN, SIDE_SLIP, SOLID
from loki_core.kernels.jit import device, parallel_kernel, prange

MISSING = 3  # nothing is stored there, or it lies beyond an open side
BEYOND = 4  # plus a side of the box: beyond a wall or an inflow
#: Of a control volume that counts as liquid if particles are around, however few: threads and
#: sheets that are thinner than the voxels, and the outermost particles, do not fall apart.
SMALLEST_PART = 0.01
#: Of the way to a solid: a face whose middle is nearer, or inside, is held as if it were so far.
SMALLEST_WAY = 0.1


@device
def cell_code(kind, coords, neighbours, lower, upper, sides, b, i, j, k):
    """Kind of a voxel at most one Bucket away, MISSING, or BEYOND plus a side of the box."""
    r = kind.shape[2]
    place = (i, j, k)
    for a in range(3):
        centre = coords[b, a] * r + place[a] + 0.5
        if centre < lower[a]:
            return MISSING if sides[2 * a] == SIDE_OPEN else BEYOND + 2 * a
        if centre > upper[a]:
            return MISSING if sides[2 * a + 1] == SIDE_OPEN else BEYOND + 2 * a + 1
    other, ni, nj, nk = voxel_at(neighbours, b, r, i, j, k)
    if other < 0:
        return MISSING
    return np.int64(kind[other, 0, ni, nj, nk])


@device
def moved(i, j, k, axis, step):
    """Place one step along an axis."""
    return (
        i + (step if axis == 0 else 0),
        j + (step if axis == 1 else 0),
        k + (step if axis == 2 else 0),
    )


@device
def liquid_part(depth):
    """Part of a control volume below a plane surface at a depth of its centre, in voxels."""
    return min(max(0.5 + depth, SMALLEST_PART), 1.0)


@device
def has_velocity(fraction, mass, b, a, i, j, k):
    """Whether particles or a solid give a face its velocity; one beyond a side has that of it."""
    return b < 0 or mass[b, a, i, j, k] > 0.0 or fraction[b, a, i, j, k] == 0.0


@device
def slides(fraction, grip, b, a, i, j, k):
    """Whether a solid closes a face that lets fluids slide along it."""
    return b >= 0 and fraction[b, a, i, j, k] == 0.0 and grip[b, a, i, j, k] == SLIPS


@device
def wall_part(fraction, grip, gap, neighbours, r, b, a, c, i, j, k):
    """Part t of the way between two faces along a, beside each other along c, that is no solid's.

    Below 1 where a solid holds one of them: by its distance from both.
    """
    own, oi, oj, ok = voxel_at(neighbours, b, r, i, j, k)
    x, y, z = moved(i, j, k, c, -1)
    other, ni, nj, nk = voxel_at(neighbours, b, r, x, y, z)
    if own < 0 or other < 0:
        return 1.0
    closed = fraction[own, a, oi, oj, ok] == 0.0
    if closed == (fraction[other, a, ni, nj, nk] == 0.0):
        return 1.0
    here, there = gap[own, a, oi, oj, ok], gap[other, a, ni, nj, nk]
    holds = grip[own, a, oi, oj, ok] if closed else grip[other, a, ni, nj, nk]
    if holds != HOLDS:
        return 1.0
    far, near = (there, here) if closed else (here, there)
    if near >= 0.0:
        return 1.0
    return min(max(np.float64(far / (far - near)), SMALLEST_WAY), 1.0)


@device
def edge_weight(
    fraction, kind, coords, neighbours, lower, upper, sides, grip, gap, mass, parts, is_liquid,
    b, a, c, i, j, k,
):  # fmt: skip
    """(e, side or -1, t_a, t_c) of the edge at the lower corner of a voxel along a and c.

    The side is that of a no-slip wall or inflow which the edge lies on.
    """
    r = kind.shape[2]
    inside = 0
    side = -1
    depth, held, viscosity = 0.0, 0.0, 0.0
    for step_a in range(-1, 1):
        for step_c in range(-1, 1):
            x, y, z = moved(i, j, k, a, step_a)
            x, y, z = moved(x, y, z, c, step_c)
            code = cell_code(kind, coords, neighbours, lower, upper, sides, b, x, y, z)
            if code == MISSING:
                return 0.0, -1, 1.0, 1.0
            if code >= BEYOND:
                side = code - BEYOND
                if sides[side] == SIDE_SLIP:
                    return 0.0, -1, 1.0, 1.0
            elif code != SOLID:
                inside += 1
                if is_liquid == 1:
                    other, ni, nj, nk = voxel_at(neighbours, b, r, x, y, z)
                    s = np.float64(parts[other, 0, ni, nj, nk])
                    depth += s
                    if parts.shape[1] > 1:
                        held += 1.0 + s
                        viscosity += (1.0 + s) * parts[other, 1, ni, nj, nk]
    if grip.shape[0] > 0:
        for back in range(2):
            x, y, z = moved(i, j, k, c, -back)
            other, ni, nj, nk = voxel_at(neighbours, b, r, x, y, z)
            if slides(fraction, grip, other, a, ni, nj, nk):
                return 0.0, -1, 1.0, 1.0
            x, y, z = moved(i, j, k, a, -back)
            other, ni, nj, nk = voxel_at(neighbours, b, r, x, y, z)
            if slides(fraction, grip, other, c, ni, nj, nk):
                return 0.0, -1, 1.0, 1.0
    e = 0.25 * inside
    part_a, part_c = 1.0, 1.0
    if grip.shape[0] > 0 and side < 0:
        part_a = wall_part(fraction, grip, gap, neighbours, r, b, a, c, i, j, k)
        part_c = wall_part(fraction, grip, gap, neighbours, r, b, c, a, i, j, k)
        if part_a < 1.0 or part_c < 1.0:
            e = part_a * part_c
    if is_liquid == 1 and inside > 0:
        e *= liquid_part(depth / inside)
        if parts.shape[1] > 1 and held > 0.0:
            e *= viscosity / held
        for back in range(2):
            x, y, z = moved(i, j, k, c, -back)
            other, ni, nj, nk = voxel_at(neighbours, b, r, x, y, z)
            if not has_velocity(fraction, mass, other, a, ni, nj, nk):
                return 0.0, -1, 1.0, 1.0
            x, y, z = moved(i, j, k, a, -back)
            other, ni, nj, nk = voxel_at(neighbours, b, r, x, y, z)
            if not has_velocity(fraction, mass, other, c, ni, nj, nk):
                return 0.0, -1, 1.0, 1.0
    return e, side, part_a, part_c


@device
def cell_weight(fraction, neighbours, mass, parts, b, a, i, j, k):
    """C of a liquid's cell, for the stress along a; the voxel is at most one Bucket away."""
    r = fraction.shape[2]
    other, ni, nj, nk = voxel_at(neighbours, b, r, i, j, k)
    if not has_velocity(fraction, mass, other, a, ni, nj, nk):
        return 0.0
    weight = liquid_part(np.float64(parts[other, 0, ni, nj, nk]))
    if parts.shape[1] > 1:
        weight *= parts[other, 1, ni, nj, nk]
    x, y, z = moved(i, j, k, a, 1)
    other, ni, nj, nk = voxel_at(neighbours, b, r, x, y, z)
    if not has_velocity(fraction, mass, other, a, ni, nj, nk):
        return 0.0
    return weight


@device
def is_unknown(fraction, b, a, i, j, k):
    """Whether a face is stored and free to move."""
    return b >= 0 and fraction[b, a, i, j, k] > 0.0


@device
def viscous_row(
    velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity, grip, gap,
    mass, parts, is_liquid, kappa, b, a, i, j, k, columns, data, first, write,
):  # fmt: skip
    """Return (entries, right-hand side) of a face's row, and write the row if `write` is 1.

    A face without stress has no entries: it keeps its velocity.
    """
    r = kind.shape[2]
    row = (((b * 3 + a) * r + i) * r + j) * r + k
    own = np.float64(mass[b, a, i, j, k])
    diagonal = own
    rhs = own * velocity[b, a, i, j, k]
    at = first + 1
    # normal stress in the two cells along a
    for side in range(2):
        ci, cj, ck = moved(i, j, k, a, side - 1)
        code = cell_code(kind, coords, neighbours, lower, upper, sides, b, ci, cj, ck)
        if code == SOLID or code >= MISSING:
            continue
        fi, fj, fk = moved(i, j, k, a, 2 * side - 1)
        other, ni, nj, nk = voxel_at(neighbours, b, r, fi, fj, fk)
        weight = 2.0 * kappa
        if is_liquid == 1:
            weight *= cell_weight(fraction, neighbours, mass, parts, b, a, ci, cj, ck)
            if weight == 0.0:
                continue
        if is_unknown(fraction, other, a, ni, nj, nk):
            if write == 1:
                columns[at] = (((other * 3 + a) * r + ni) * r + nj) * r + nk
                data[at] = -weight
            at += 1
        elif other >= 0:
            if grip.shape[0] > 0 and slides(fraction, grip, other, a, ni, nj, nk):
                continue  # it says nothing of how fast the fluid slides past it
            rhs += weight * velocity[other, a, ni, nj, nk]
        else:
            outer = 2 * a + side
            if sides[outer] == SIDE_OPEN or other == -1:
                continue
            rhs += weight * side_velocity[outer, a]
        diagonal += weight
    # shear on the four edges
    for c in range(3):
        if c == a:
            continue
        for side in range(2):
            ei, ej, ek = moved(i, j, k, c, side)
            e, wall, part_a, part_c = edge_weight(
                fraction, kind, coords, neighbours, lower, upper, sides, grip, gap, mass, parts,
                is_liquid, b, a, c, ei, ej, ek,
            )  # fmt: skip
            if e == 0.0:
                continue
            weight = kappa * e / (part_a * part_a)
            fi, fj, fk = moved(i, j, k, c, 2 * side - 1)
            if wall >= 0:
                if wall // 2 == c:  # mirrored; the wall's own normal velocity has no gradient
                    diagonal += 4.0 * weight
                    rhs += 4.0 * weight * side_velocity[wall, a]
                continue
            other, ni, nj, nk = voxel_at(neighbours, b, r, fi, fj, fk)
            diagonal += weight
            if is_unknown(fraction, other, a, ni, nj, nk):
                if write == 1:
                    columns[at] = (((other * 3 + a) * r + ni) * r + nj) * r + nk
                    data[at] = -weight
                at += 1
            else:
                rhs += weight * velocity[other, a, ni, nj, nk]
            sign = 1.0 if side == 0 else -1.0
            weight = kappa * e / (part_a * part_c)
            for back in range(2):
                gi, gj, gk = moved(ei, ej, ek, a, -back)
                other, ni, nj, nk = voxel_at(neighbours, b, r, gi, gj, gk)
                term = sign * weight if back == 0 else -sign * weight
                if is_unknown(fraction, other, c, ni, nj, nk):
                    if write == 1:
                        columns[at] = (((other * 3 + c) * r + ni) * r + nj) * r + nk
                        data[at] = term
                    at += 1
                else:
                    rhs -= term * velocity[other, c, ni, nj, nk]
    if diagonal == own:
        return 0, rhs
    if write == 1:
        columns[first] = row
        data[first] = diagonal
    return at - first, rhs


@parallel_kernel
def count_viscous_entries(
    velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity, grip, gap,
    mass, parts, is_liquid, kappa, counts, bordering,
):  # fmt: skip
    """Count entries of all rows [local * 3 r^3], and note which rows have known neighbours.

    A known face has no row, nor has one without stress.

    Args: fraction, kind with ghosts; grip, gap: [b, 3, r, r, r] with ghosts and corners, what
    solids do to fluids on the faces that they close, and the distance of the nearest one [m]; no
    Buckets where there is none; mass: [b, 3, r, r, r] m; parts: of a liquid, else not read: [b, 1
    or 2, r, r, r] depth of cells in voxels and, where it varies, their part of the viscosity; mass
    and parts with ghosts and corners; kappa: K.
    """
    for b in prange(neighbours.shape[0]):
        count_rows_of_bucket(
            velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity,
            grip, gap, mass, parts, is_liquid, kappa, np.int64(b), counts, bordering,
        )  # fmt: skip


@device
def count_rows_of_bucket(
    velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity, grip, gap,
    mass, parts, is_liquid, kappa, b, counts, bordering,
):  # fmt: skip
    """Do one Bucket."""
    r = kind.shape[2]
    nothing = counts[:0]
    no_data = side_velocity[0, :0]
    for a in range(3):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    row = (((b * 3 + a) * r + i) * r + j) * r + k
                    counts[row] = 0
                    bordering[row] = 0
                    if is_unknown(fraction, b, a, i, j, k):
                        entries, _ = viscous_row(
                            velocity, fraction, kind, coords, neighbours, lower, upper, sides,
                            side_velocity, grip, gap, mass, parts, is_liquid, kappa, b, a, i, j,
                            k, nothing, no_data, 0, 0,
                        )  # fmt: skip
                        counts[row] = entries
                        # Inside the gas a row has its diagonal, 6 faces of its own component and
                        # 8 of the others.
                        bordering[row] = 1 if 0 < entries < 15 else 0


@parallel_kernel
def fill_viscous_rhs(
    velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity, grip, gap,
    mass, parts, is_liquid, kappa, rows, rhs,
):  # fmt: skip
    """Add what known faces and sides contribute to the right-hand sides of some rows."""
    r = kind.shape[2]
    for n in prange(rows.shape[0]):
        rhs[rows[n]] = rhs_of_row(
            velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity,
            grip, gap, mass, parts, is_liquid, kappa, np.int64(rows[n]), np.int64(r),
        )  # fmt: skip


@device
def rhs_of_row(
    velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity, grip, gap,
    mass, parts, is_liquid, kappa, row, r,
):  # fmt: skip
    """Right-hand side of one row."""
    k = row % r
    j = row // r % r
    i = row // (r * r) % r
    a = row // (r * r * r) % 3
    b = row // (3 * r * r * r)
    _, value = viscous_row(
        velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity,
        grip, gap, mass, parts, is_liquid, kappa, b, a, i, j, k, neighbours[0, :0],
        side_velocity[0, :0], 0, 0,
    )  # fmt: skip
    return value


@parallel_kernel
def fill_viscous_matrix(
    velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity, grip, gap,
    mass, parts, is_liquid, kappa, starts, columns, data,
):  # fmt: skip
    """Fill the rows, the diagonal first; columns count faces of local, then ghost Buckets."""
    for b in prange(neighbours.shape[0]):
        fill_bucket_rows(
            velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity,
            grip, gap, mass, parts, is_liquid, kappa, np.int64(b), starts, columns, data,
        )  # fmt: skip


@device
def fill_bucket_rows(
    velocity, fraction, kind, coords, neighbours, lower, upper, sides, side_velocity, grip, gap,
    mass, parts, is_liquid, kappa, b, starts, columns, data,
):  # fmt: skip
    """Do one Bucket."""
    r = kind.shape[2]
    for a in range(3):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    row = (((b * 3 + a) * r + i) * r + j) * r + k
                    if starts[row + 1] > starts[row]:
                        viscous_row(
                            velocity, fraction, kind, coords, neighbours, lower, upper, sides,
                            side_velocity, grip, gap, mass, parts, is_liquid, kappa, b, a, i, j,
                            k, columns, data, starts[row], 1,
                        )  # fmt: skip
