"""The staggered grid of a volume: its cells' kinds, divergence, and the pressure's matrix.

Velocities live on faces (Harlow & Welch 1965): component a of voxel (i, j, k) on its lower face
along a, so the upper faces of a Bucket's last voxels are stored by the next Bucket. Where there is
none the face is known: a wall's or an inflow's velocity, or it belongs to ambient air.

    kind 0  SOLID     inside a solid, or outside the domain box: takes part in nothing
    kind 1  FLUID     the pressure is unknown
    kind 2  AMBIENT   next to space without Buckets, or to an open side of the box: p = 0

The pressure keeps the flux of every FLUID cell at what its sources ask for,

    sum_f s_f [w_f u_f + (1 - w_f) u_solid] = h d,      u_f = u*_f - m_f (q_above - q_below)

with w the open fraction of a face, s = +1 for upper faces, m <= 1 the mobility that implicit drag
leaves (1 without), and q = p dt / (rho h). In q the matrix is  sum_f w_f m_f (q_c - q_n):  it does
not know the time step, and stays the same while the geometry does (Batty et al. 2007).
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.buckets.voxel_places import axis_step, beside
from loki_core.kernels.jit import device, parallel_kernel, prange

SOLID, FLUID, AMBIENT = 0, 1, 2
EMPTY_CODE = -1
# Kinds of the box's sides, as the kernels know them.
SIDE_OPEN, SIDE_SLIP, SIDE_NO_SLIP, SIDE_INFLOW, SIDE_PERIODIC = 0, 1, 2, 3, 4


@device
def cover(index, lower, upper):
    """Part of the voxel from index to index + 1 that lies between two planes."""
    return max(0.0, min(index + 1.0, upper) - max(index * 1.0, lower))


@parallel_kernel
def classify_box(coords, neighbours, lower, upper, sides, kind, fraction):
    """Set kinds and open fractions by the domain box and the missing Buckets alone.

    Args: coords int32 [b, 3]; neighbours int32 [local, 27]; lower, upper float64 [3] in voxels from
    the origin, infinite where there is no side; sides int [6]; kind uint8 [b, 1, r, r, r]; fraction
    [b, 3, r, r, r]: both are filled for local Buckets.
    """
    r = kind.shape[2]
    for b in prange(neighbours.shape[0]):
        classify_bucket(np.int64(b), coords, neighbours, lower, upper, sides, kind, fraction, r)


@device
def classify_bucket(b, coords, neighbours, lower, upper, sides, kind, fraction, r):
    """Do one Bucket."""
    if is_inner_bucket(b, coords, neighbours, lower, upper, r):
        kind[b] = FLUID
        fraction[b] = 1.0
        return
    for i in range(r):
        for j in range(r):
            for k in range(r):
                g = (coords[b, 0] * r + i, coords[b, 1] * r + j, coords[b, 2] * r + k)
                local = (i, j, k)
                inside = True
                ambient = False
                for a in range(3):
                    centre = g[a] + 0.5
                    if centre < lower[a] or centre > upper[a]:
                        inside = False
                    if sides[2 * a] == SIDE_OPEN and centre - 1.0 < lower[a]:
                        ambient = True
                    if sides[2 * a + 1] == SIDE_OPEN and centre + 1.0 > upper[a]:
                        ambient = True
                    step = axis_step(a)
                    if local[a] == 0 and neighbours[b, 13 - step] == EMPTY_CODE:
                        ambient = True
                    if local[a] == r - 1 and neighbours[b, 13 + step] == EMPTY_CODE:
                        ambient = True
                kind[b, 0, i, j, k] = (AMBIENT if ambient else FLUID) if inside else SOLID
                for a in range(3):
                    # The face between ambient air and nothing is no unknown: it follows the air.
                    borders_nothing = local[a] == 0 and neighbours[b, 13 - axis_step(a)] < 0
                    area = 0.0 if borders_nothing else face_cover(g, a, lower, upper)
                    fraction[b, a, i, j, k] = area


@device
def is_inner_bucket(b, coords, neighbours, lower, upper, r):
    """Whether a Bucket has neighbours on all sides and is not at the sides of the box."""
    for a in range(3):
        step = axis_step(a)
        if neighbours[b, 13 - step] < 0 or neighbours[b, 13 + step] < 0:
            return False
        first = coords[b, a] * r
        if first - 1.0 < lower[a] or first + r + 1.0 > upper[a]:
            return False
    return True


@device
def face_cover(g, a, lower, upper):
    """Open fraction of the lower face along a of voxel g: both its cells are inside the box."""
    area = 1.0
    for c in range(3):
        if c != a:
            area *= cover(g[c], lower[c], upper[c])
    above = lower[a] < g[a] + 0.5 and g[a] + 0.5 < upper[a]
    below = lower[a] < g[a] - 0.5 and g[a] - 0.5 < upper[a]
    return area if above and below else 0.0


@parallel_kernel
def set_wall_faces(coords, lower, upper, sides, side_velocity, velocity):
    """Give faces on and beyond walls and inflows the normal velocity of their side.

    Args: side_velocity float64 [6, 3]; velocity [b, 3, r, r, r]; others as before.
    """
    for b in prange(velocity.shape[0]):
        set_faces_of_bucket(np.int64(b), coords, lower, upper, sides, side_velocity, velocity)


@device
def set_faces_of_bucket(b, coords, lower, upper, sides, side_velocity, velocity):
    """Do one Bucket: whole layers of faces. A wall between two faces holds the nearer one."""
    r = velocity.shape[2]
    for a in range(3):
        for place in range(r):
            g = coords[b, a] * r + place
            side = -1
            if g < lower[a] + 0.5 and sides[2 * a] != SIDE_OPEN:
                side = 2 * a
            elif g > upper[a] - 0.5 and sides[2 * a + 1] != SIDE_OPEN:
                side = 2 * a + 1
            if side >= 0:
                value = side_velocity[side, a]
                for m in range(r):
                    for n in range(r):
                        if a == 0:
                            velocity[b, a, place, m, n] = value
                        elif a == 1:
                            velocity[b, a, m, place, n] = value
                        else:
                            velocity[b, a, m, n, place] = value


@parallel_kernel
def negative_divergence(
    velocity, solid_velocity, has_solids, fraction, outer, neighbours, kind, source, has_source, h,
    r, out,
):  # fmt: skip
    """Write h d - sum_f s_f [w u + (1 - w) u_solid] of FLUID cells to out, 0 elsewhere.

    Args: flat arrays: velocity, fraction [b * 3 * r^3] with ghosts; solid_velocity likewise, or
    anything if has_solids is 0; outer float64 [6], the normal velocity of each side of the box;
    source [b * r^3] 1/s, or anything if has_source is 0; out float64 [local * r^3].
    """
    for b in prange(neighbours.shape[0]):
        divergence_of_bucket(
            np.int64(b), velocity, solid_velocity, has_solids, fraction, outer, neighbours, kind,
            source, has_source, h, np.uint64(r), out,
        )  # fmt: skip


@device
def flux(velocity, solid_velocity, has_solids, fraction, n):
    """Flux through a stored face: the open part's and the solid part's.

    Closed faces hold the velocity of their wall; without solids the closed part of a face that is
    half open is a wall's, which nothing passes.
    """
    w = np.float64(fraction[n])
    if has_solids == 1:
        return w * velocity[n] + (1.0 - w) * solid_velocity[n]
    return (w if w > 0.0 else 1.0) * velocity[n]


@device
def divergence_of_bucket(
    b, velocity, solid, has_solids, fraction, outer, neighbours, kind, source, has_source, h, r, out
):  # fmt: skip
    """Do one Bucket: all lower faces, then the upper ones; a layer of these is next door."""
    rr = r * r
    size = rr * r
    home = np.uint64(b) * size
    for n in range(size):
        out[home + n] = h * source[home + n] if has_source == 1 else 0.0
    for axis in range(3):
        axis_size = np.uint64(axis) * size
        first = np.uint64(b) * np.uint64(3) * size + axis_size
        add_fluxes(velocity, solid, has_solids, fraction, 1.0, first, home, size, out)
        beyond = np.int64(neighbours[b, 13 + axis_step(axis)])
        other = np.uint64(max(beyond, 0)) * np.uint64(3) * size + axis_size
        # Along an axis the Bucket is `runs` runs of `length` voxels, whose last `step` lie at the
        # border.
        step = rr if axis == 0 else (r if axis == 1 else np.uint64(1))
        length = step * r
        for run in range(size // length):
            start = run * length
            add_fluxes(
                velocity, solid, has_solids, fraction, -1.0, first + start + step, home + start,
                length - step, out,
            )  # fmt: skip
            last = home + start + length - step
            if beyond >= 0:
                add_fluxes(
                    velocity, solid, has_solids, fraction, -1.0, other + start, last, step, out
                )
            else:
                for n in range(step):
                    out[last + n] -= outer[2 * axis + 1]
    for n in range(size):
        if kind[home + n] != FLUID:
            out[home + n] = 0.0


@device
def add_fluxes(velocity, solid, has_solids, fraction, sign, face, cell, count, out):
    """Add the fluxes of a run of faces, times a sign, to a run of cells."""
    for n in range(count):
        out[cell + n] += sign * flux(velocity, solid, has_solids, fraction, face + n)


@device
def share_of_face(mobility, has_mobility, b, a, i, j, k):
    """Mobility of a stored face."""
    return mobility[b, a, i, j, k] if has_mobility == 1 else 1.0


@parallel_kernel
def count_pressure_entries(kind, fraction, compliance, has_compliance, neighbours, counts):
    """Count the matrix entries of each local cell's row: int32 [local * r^3]."""
    for b in prange(neighbours.shape[0]):
        count_entries_of_bucket(
            np.int64(b), kind, fraction, compliance, has_compliance, neighbours, counts
        )  # fmt: skip


@device
def count_entries_of_bucket(b, kind, fraction, compliance, has_compliance, neighbours, counts):
    """Do one Bucket."""
    r = kind.shape[2]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                row = ((b * r + i) * r + j) * r + k
                entries = 0
                if kind[b, 0, i, j, k] == FLUID:
                    total = 0.0
                    if has_compliance == 1:
                        total += compliance[b, 0, i, j, k]
                    for a in range(3):
                        other, ni, nj, nk = beside(neighbours, b, r, a, -1, i, j, k)
                        w = fraction[b, a, i, j, k]
                        total += w
                        if other >= 0 and w > 0.0 and kind[other, 0, ni, nj, nk] == FLUID:
                            entries += 1
                        other, ni, nj, nk = beside(neighbours, b, r, a, 1, i, j, k)
                        if other >= 0:
                            w = fraction[other, a, ni, nj, nk]
                            total += w
                            if w > 0.0 and kind[other, 0, ni, nj, nk] == FLUID:
                                entries += 1
                    if total > 0.0:
                        entries += 1
                counts[row] = entries


@parallel_kernel
def fill_pressure_matrix(
    kind, fraction, mobility, has_mobility, compliance, has_compliance, neighbours, starts, columns,
    data,
):  # fmt: skip
    """Fill the rows, the diagonal first; columns count voxels of local, then ghost Buckets."""
    for b in prange(neighbours.shape[0]):
        fill_pressure_rows(
            np.int64(b), kind, fraction, mobility, has_mobility, compliance, has_compliance,
            neighbours, starts, columns, data,
        )  # fmt: skip


@device
def fill_pressure_rows(
    b, kind, fraction, mobility, has_mobility, compliance, has_compliance, neighbours, starts,
    columns, data,
):  # fmt: skip
    """Do the rows of one Bucket."""
    r = kind.shape[2]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                row = ((b * r + i) * r + j) * r + k
                if starts[row + 1] == starts[row]:
                    continue
                place = starts[row]
                diagonal = 0.0
                if has_compliance == 1:
                    diagonal = np.float64(compliance[b, 0, i, j, k])
                at = place + 1
                for a in range(3):
                    for side in range(2):
                        other, ni, nj, nk = beside(neighbours, b, r, a, 2 * side - 1, i, j, k)
                        if other < 0:
                            continue
                        if side == 0:
                            w = fraction[b, a, i, j, k]
                            share = share_of_face(mobility, has_mobility, b, a, i, j, k)
                        else:
                            w = fraction[other, a, ni, nj, nk]
                            share = share_of_face(mobility, has_mobility, other, a, ni, nj, nk)
                        neighbour_kind = kind[other, 0, ni, nj, nk]
                        if w > 0.0 and neighbour_kind != SOLID:
                            diagonal += w * share
                        if w > 0.0 and neighbour_kind == FLUID:
                            columns[at] = ((other * r + ni) * r + nj) * r + nk
                            data[at] = -w * share
                            at += 1
                columns[place] = row
                data[place] = diagonal


@parallel_kernel
def subtract_pressure_gradient(q, fraction, mobility, has_mobility, neighbours, r, velocity):
    """Correct all open faces: u -= m (q_above - q_below).

    Args: flat arrays; q [b * r^3] with ghosts; an open face has no SOLID cell beside it.
    """
    for b in prange(neighbours.shape[0]):
        subtract_in_bucket(
            np.int64(b), q, fraction, mobility, has_mobility, neighbours, np.uint64(r), velocity
        )


@device
def subtract_in_bucket(b, q, fraction, mobility, has_mobility, neighbours, r, velocity):
    """Do one Bucket, axis by axis; the first layer of voxels has its lower ones next door."""
    rr = r * r
    size = rr * r
    home = np.uint64(b) * size
    for axis in range(3):
        first = (np.uint64(b) * np.uint64(3) + np.uint64(axis)) * size
        before = np.int64(neighbours[b, 13 - axis_step(axis)])
        other = np.uint64(max(before, 0)) * size
        step = rr if axis == 0 else (r if axis == 1 else np.uint64(1))
        length = step * r
        for run in range(size // length):
            start = run * length
            if before >= 0:
                subtract_run(
                    q, fraction, mobility, has_mobility, velocity, first + start, home + start,
                    other + start + length - step, step,
                )  # fmt: skip
            subtract_run(
                q, fraction, mobility, has_mobility, velocity, first + start + step,
                home + start + step, home + start, length - step,
            )  # fmt: skip


@device
def subtract_run(q, fraction, mobility, has_mobility, velocity, face, above, below, count):
    """Correct a run of faces, given where it and the cells above and below it begin."""
    for n in range(count):
        change = q[above + n] - q[below + n]
        if has_mobility == 1:
            change *= mobility[face + n]
        if fraction[face + n] > 0.0:
            velocity[face + n] -= change


@parallel_kernel
def find_wall_cells(kind, fraction, neighbours, out):
    """Tell which local FLUID cells have a wall or a solid on any side: bool [local * r^3]."""
    for b in prange(neighbours.shape[0]):
        find_wall_cells_of_bucket(np.int64(b), kind, fraction, neighbours, out)


@device
def find_wall_cells_of_bucket(b, kind, fraction, neighbours, out):
    """Do one Bucket."""
    r = kind.shape[2]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                row = ((b * r + i) * r + j) * r + k
                out[row] = False
                if kind[b, 0, i, j, k] != FLUID:
                    continue
                for a in range(3):
                    other, ni, nj, nk = beside(neighbours, b, r, a, 1, i, j, k)
                    beyond = other < EMPTY_CODE
                    if other >= 0:
                        beyond = fraction[other, a, ni, nj, nk] < 1.0
                    if beyond or fraction[b, a, i, j, k] < 1.0:
                        out[row] = True


@parallel_kernel
def guess_pressure(pressure, kind, factor, q):
    """Write factor * pressure of FLUID cells to q, 0 elsewhere; all flat."""
    for n in prange(q.shape[0]):
        q[n] = factor * pressure[n] if kind[n] == FLUID else 0.0


@parallel_kernel
def total_pressure(q, scale, before, pushed, kind, pressure):
    """Write scale * q + pushed * before of FLUID cells to pressure, 0 elsewhere; all flat."""
    for n in prange(q.shape[0]):
        pressure[n] = scale * q[n] + pushed * before[n] if kind[n] == FLUID else 0.0


@parallel_kernel
def let_ambient_faces_flow(kind, coords, lower, upper, neighbours, velocity):
    """Give faces between ambient air and nothing the velocity of the next face inwards.

    Nothing is where no Bucket is stored, and beyond the box, lower to upper in voxels; a solid is
    something.
    """
    for b in prange(neighbours.shape[0]):
        let_faces_of_bucket_flow(np.int64(b), kind, coords[b], lower, upper, neighbours, velocity)


@device
def let_faces_of_bucket_flow(b, kind, place, lower, upper, neighbours, velocity):
    """Do one Bucket. The faces that are read belong to voxels that are not ambient borders."""
    r = kind.shape[2]
    others = 0
    for one in kind[b].reshape(-1):
        others += one != FLUID
    for a in range(3 if others else 0):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    here = kind[b, 0, i, j, k]
                    if here == FLUID:
                        continue
                    other, ni, nj, nk = beside(neighbours, b, r, a, -1, i, j, k)
                    middle = place[a] * r + (i if a == 0 else (j if a == 1 else k)) + 0.5
                    if here == AMBIENT and (other < 0 or middle - 1.0 < lower[a]):
                        up, ui, uj, uk = beside(neighbours, b, r, a, 1, i, j, k)
                        if up == b:
                            velocity[b, a, i, j, k] = velocity[b, a, ui, uj, uk]
                    elif (
                        here == SOLID
                        and middle > upper[a]
                        and other == b
                        and kind[other, 0, ni, nj, nk] == AMBIENT
                    ):
                        velocity[b, a, i, j, k] = velocity[b, a, ni, nj, nk]


@parallel_kernel
def blow_in(kind, fraction, change, wind, velocity):
    """Add a change of the wind [3] to open faces; faces of ambient cells get the wind itself."""
    r = kind.shape[2]
    for b in prange(kind.shape[0]):
        for a in range(3):
            for i in range(r):
                for j in range(r):
                    for k in range(r):
                        if kind[b, 0, i, j, k] == AMBIENT:
                            velocity[b, a, i, j, k] = wind[a]
                        elif fraction[b, a, i, j, k] > 0.0:
                            velocity[b, a, i, j, k] += change[a]


@parallel_kernel
def apply_forces(
    force, drag, has_force, has_drag, start, mass, dt, uniform, fraction, size, velocity
):
    """Bring velocities to u*: u += (dt f + m a dt - m (u - u0)) / (m + dt D) on open faces.

    Args: flat arrays [b * 3 * size]: force N, drag kg/s, start m/s: velocities at the start of the
    Newton loop; mass of a face's control volume [kg]; uniform float64 [3], an acceleration; size
    r^3.
    """
    for block in prange(velocity.shape[0] // size):
        force_block(
            force, drag, has_force, has_drag, start, mass, dt, mass * uniform[block % 3], fraction,
            np.uint64(block) * np.uint64(size), np.uint64(size), velocity,
        )  # fmt: skip


@device
def force_block(
    force, drag, has_force, has_drag, start, mass, dt, uniform, fraction, first, size, velocity
):
    """Do one component of one Bucket."""
    for n in range(first, first + size):
        if fraction[n] > 0.0:
            f = uniform
            if has_force == 1:
                f += force[n]
            inertia = mass
            if has_drag == 1:
                inertia += dt * drag[n]
            velocity[n] += (dt * f - mass * (velocity[n] - start[n])) / inertia


@parallel_kernel
def mobility_of_drag(drag, mass, dt, mobility):
    """Write m / (m + dt D), what a pressure gradient moves of a face, flat arrays."""
    for n in prange(drag.shape[0]):
        mobility[n] = mass / (mass + dt * drag[n])


@parallel_kernel
def bucket_deviation(values, background, out):
    """Largest |value - background| of each Bucket's component 0, into out [buckets].

    A value that is not a number counts as infinite.
    """
    for b in prange(out.shape[0]):
        largest = 0.0
        flat = values[b, 0].reshape(-1)
        for n in range(flat.shape[0]):
            deviation = abs(flat[n] - background)
            if not deviation <= largest:
                largest = deviation if deviation == deviation else np.inf
        out[b] = max(largest, np.float64(out[b]))


@parallel_kernel
def occupied_ranges(values, background, activity, ranges):
    """Widen ranges [buckets, 2, 3] to the voxels that differ from the background by `activity`.

    First and last index along each axis. A value that is not a number differs.
    """
    r = values.shape[2]
    for b in prange(ranges.shape[0]):
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    if not abs(values[b, 0, i, j, k] - background) <= activity:
                        ranges[b, 0, 0] = min(ranges[b, 0, 0], i)
                        ranges[b, 0, 1] = min(ranges[b, 0, 1], j)
                        ranges[b, 0, 2] = min(ranges[b, 0, 2], k)
                        ranges[b, 1, 0] = max(ranges[b, 1, 0], i)
                        ranges[b, 1, 1] = max(ranges[b, 1, 1], j)
                        ranges[b, 1, 2] = max(ranges[b, 1, 2], k)


@parallel_kernel
def largest_components(velocity, out):
    """Largest magnitude of each component in each Bucket, into out [buckets, 3]; NaN is inf."""
    for b in prange(out.shape[0]):
        for a in range(3):
            largest = 0.0
            flat = velocity[b, a].reshape(-1)
            for n in range(flat.shape[0]):
                size = abs(flat[n])
                if not size <= largest:
                    largest = size if size == size else np.inf
            out[b, a] = largest


@parallel_kernel
def reset_cells(kind, background, values):
    """Give SOLID cells the background."""
    for b in prange(values.shape[0]):
        kinds = kind[b, 0].reshape(-1)
        for c in range(values.shape[1]):
            flat = values[b, c].reshape(-1)
            for n in range(flat.shape[0]):
                if kinds[n] == SOLID:
                    flat[n] = background[c]
