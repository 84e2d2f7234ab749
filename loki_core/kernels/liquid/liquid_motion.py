"""A liquid's grid velocities to its particles, and the particles along the flow.

Each Bucket of particles gathers the faces around it into a tile, wide enough for the longest way
that a particle goes in a step; all samples are taken there.

    PIC    u_p = u(x_p)                      FLIP  u_p += (u - u_before)(x_p)
    APIC   u_p = u(x_p), c_p = grad u(x_p)   (Jiang et al. 2015; seed 001, equation 23)

The way of a particle is traced through u with Ralston's third-order rule.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.gas.mac_grid import EMPTY_CODE, SIDE_NO_SLIP, SIDE_OPEN
from loki_core.kernels.jit import device, parallel_kernel, prange

#: Voxels that a particle is moved at most because there are too many: faces that solids nearly
#: close have displacements of any length.
LONGEST_PUSH = 0.3
#: Part of a velocity's gradient across two voxels that particles keep at a surface which rests, and
#: below which part of the noise it does.
CALM_PART = 0.5
CALM_BELOW = 0.16


@device
def gather_faces(faces, neighbours, row, halo, tile):
    """Fill tile [3, n, n, n] with the faces of a Bucket and `halo` layers around, 0 if missing.

    Args: faces [b, 3, r, r, r] with ghosts; row of the Bucket there.
    """
    r = faces.shape[2]
    n = r + 2 * halo
    for direction in range(27):
        other = np.int64(neighbours[row, direction])
        ti, i, ni = reach(direction // 9 - 1, r, halo)
        tj, j, nj = reach(direction // 3 % 3 - 1, r, halo)
        tk, k, nk = reach(direction % 3 - 1, r, halo)
        for a in range(3):
            for x in range(ni):
                for y in range(nj):
                    first = ((a * n + ti + x) * n + tj + y) * n + tk
                    for z in range(nk):
                        value = faces[other, a, i + x, j + y, k + z] if other >= 0 else 0.0
                        tile[first + z] = value


@device
def fill_beyond_box(neighbours, row, r, halo, sides, outer, tile):
    """Fill the layers of a tile [3, n, n, n] that lie beyond a side of the box, axis by axis.

    Beyond a wall the component along its normal is the wall's; the others go on as they are inside,
    or, where the wall holds the liquid, so that they are the wall's on it. Beyond an open side all
    go on.

    Args: sides int [6]; outer float64 [6, 3] m/s, or 0 for a displacement.
    """
    n = r + 2 * halo
    for axis in range(3):
        step = 9 if axis == 0 else (3 if axis == 1 else 1)
        for upper in range(2):
            if neighbours[row, 13 + (step if upper == 1 else -step)] >= EMPTY_CODE:
                continue
            side = 2 * axis + upper
            for a in range(3):
                normal = a == axis and sides[side] != SIDE_OPEN
                mirrored = a != axis and sides[side] == SIDE_NO_SLIP
                for layer in range(halo):
                    to = r + halo + layer if upper == 1 else halo - 1 - layer
                    source = r + halo - 1 if upper == 1 else halo
                    if mirrored:
                        source += -layer if upper == 1 else layer
                    for u in range(n):
                        for v in range(n):
                            value = tile[tile_place(a, axis, source, u, v, n)]
                            if mirrored:
                                value = 2.0 * outer[side, a] - value
                            if normal:
                                value = outer[side, a]
                            tile[tile_place(a, axis, to, u, v, n)] = value


@device
def tile_place(a, axis, along, u, v, n):
    """Place in a flat tile of component a, `along` an axis and u, v along the other two."""
    if axis == 0:
        return ((a * n + along) * n + u) * n + v
    if axis == 1:
        return ((a * n + u) * n + along) * n + v
    return ((a * n + u) * n + v) * n + along


@device
def reach(step, r, halo):
    """(first in the tile, first in the Bucket, count) along an axis, of the Bucket a step away."""
    if step < 0:
        return 0, r - halo, halo
    if step > 0:
        return r + halo, 0, halo
    return halo, 0, r


@device
def sample_tile(tile, n, x, y, z, a):
    """Component a of faces at a place in voxels of the tile; places outside are moved in."""
    last = n - 1.001
    gx = min(max(x if a == 0 else x - 0.5, 0.0), last)
    gy = min(max(y if a == 1 else y - 0.5, 0.0), last)
    gz = min(max(z if a == 2 else z - 0.5, 0.0), last)
    i, j, k = np.int64(gx), np.int64(gy), np.int64(gz)
    fx, fy, fz = gx - i, gy - j, gz - k
    m = np.uint64(n)
    first = ((np.uint64(a) * m + np.uint64(i)) * m + np.uint64(j)) * m + np.uint64(k)
    one = np.uint64(1)
    low = mix(tile[first], tile[first + one], tile[first + m], tile[first + m + one], fy, fz)
    first += m * m
    high = mix(tile[first], tile[first + one], tile[first + m], tile[first + m + one], fy, fz)
    return low + fx * (high - low)


@device
def mix(a, b, c, d, fy, fz):
    """Bilinear mean of a, b along z and c, d beyond them along y."""
    below = a + fz * (b - a)
    above = c + fz * (d - c)
    return below + fy * (above - below)


@device
def sample_gradient(tile, n, x, y, z, a):
    """(value, d/dx, d/dy, d/dz) of component a, per voxel."""
    gx = x if a == 0 else x - 0.5
    gy = y if a == 1 else y - 0.5
    gz = z if a == 2 else z - 0.5
    i, j, k = np.int64(gx), np.int64(gy), np.int64(gz)
    fx, fy, fz = gx - i, gy - j, gz - k
    m = np.uint64(n)
    first = ((np.uint64(a) * m + np.uint64(i)) * m + np.uint64(j)) * m + np.uint64(k)
    one = np.uint64(1)
    a000, a001 = np.float64(tile[first]), np.float64(tile[first + one])
    a010, a011 = np.float64(tile[first + m]), np.float64(tile[first + m + one])
    first += m * m
    a100, a101 = np.float64(tile[first]), np.float64(tile[first + one])
    a110, a111 = np.float64(tile[first + m]), np.float64(tile[first + m + one])
    b00, b01 = a000 + fx * (a100 - a000), a001 + fx * (a101 - a001)
    b10, b11 = a010 + fx * (a110 - a010), a011 + fx * (a111 - a011)
    c0, c1 = b00 + fy * (b10 - b00), b01 + fy * (b11 - b01)
    dx = mix(a100 - a000, a101 - a001, a110 - a010, a111 - a011, fy, fz)
    dy = b10 - b00 + fz * (b11 - b01 - (b10 - b00))
    return c0 + fz * (c1 - c0), dx, dy, c1 - c0


@device
def way_along(tile, n, x, y, z, u1, v1, w1, step):
    """Way of a place, where the velocity is u1, v1, w1, by Ralston's rule; in voxels.

    Args: step: time over the size of a voxel.
    """
    # u1 at the start, u2 after half a step of u1, u3 after three quarters of u2.
    half = 0.5 * step
    u2 = sample_tile(tile, n, x + half * u1, y + half * v1, z + half * w1, 0)
    v2 = sample_tile(tile, n, x + half * u1, y + half * v1, z + half * w1, 1)
    w2 = sample_tile(tile, n, x + half * u1, y + half * v1, z + half * w1, 2)
    most = 0.75 * step
    u3 = sample_tile(tile, n, x + most * u2, y + most * v2, z + most * w2, 0)
    v3 = sample_tile(tile, n, x + most * u2, y + most * v2, z + most * w2, 1)
    w3 = sample_tile(tile, n, x + most * u2, y + most * v2, z + most * w2, 2)
    ninth = step / 9.0
    return (
        ninth * (2.0 * u1 + 3.0 * u2 + 4.0 * u3),
        ninth * (2.0 * v1 + 3.0 * v2 + 4.0 * v3),
        ninth * (2.0 * w1 + 3.0 * w2 + 4.0 * w3),
    )


@device
def limited(value, most):
    """Value, of a size of at most `most`."""
    return min(max(value, -most), most)


@parallel_kernel
def faces_to_particles(
    faces, before, has_before, keep, keep_step, spread, neighbours, sides, outer, rows, coords,
    bucket_size, halo, dt, offsets, position, velocity, affine, has_affine, near_air, noise,
):  # fmt: skip
    """Bring the grid's velocity to particles, and move these along it.

    Args: faces, before, spread [b, 3, r, r, r] with ghosts: the velocity, that before the step
    (where has_before), and a displacement [m]; keep [n or 1], with its step: part of a particle's
    own velocity that stays, 0 for PIC and 1 for FLIP; sides int [6] and outer float64 [6, 3] of the
    box; rows int32 [particle buckets], of the volume; coords int32 [particle buckets, 3]; halo:
    layers of faces around a Bucket; position, velocity
    [n, 3], affine [n, 3, 3]; near_air uint8 [b, 1, r, r, r], and noise 1/s, the gradient that the
    surface's noise makes in a step.
    """
    for b in prange(rows.shape[0]):
        if offsets[b + 1] > offsets[b]:
            move_bucket(
                np.int64(b), faces, before, has_before, keep, keep_step, spread, neighbours, sides,
                outer, rows, coords, bucket_size, halo, dt, offsets, position, velocity, affine,
                has_affine, near_air, noise,
            )  # fmt: skip


@device
def move_bucket(
    b, faces, before, has_before, keep, keep_step, spread, neighbours, sides, outer, rows, coords,
    bucket_size, halo, dt, offsets, position, velocity, affine, has_affine, near_air, noise,
):  # fmt: skip
    """Do one Bucket."""
    r = faces.shape[2]
    n = r + 2 * halo
    inverse_h = r / bucket_size
    row = np.int64(rows[b])
    flow = np.empty(3 * n * n * n, faces.dtype)
    gather_faces(faces, neighbours, row, halo, flow)
    fill_beyond_box(neighbours, row, r, halo, sides, outer, flow)
    m = r + 2
    former = np.empty(3 * m * m * m if has_before == 1 else 1, faces.dtype)
    if has_before == 1:
        gather_faces(before, neighbours, row, 1, former)
        fill_beyond_box(neighbours, row, r, 1, sides, outer, former)
    push = np.empty(3 * m * m * m, faces.dtype)
    gather_faces(spread, neighbours, row, 1, push)
    fill_beyond_box(neighbours, row, r, 1, sides, 0.0 * outer, push)
    wide = np.empty((3, 3))
    step = dt * inverse_h
    for p in range(offsets[b], offsets[b + 1]):
        x = (np.float64(position[p, 0]) - coords[b, 0] * bucket_size) * inverse_h + halo
        y = (np.float64(position[p, 1]) - coords[b, 1] * bucket_size) * inverse_h + halo
        z = (np.float64(position[p, 2]) - coords[b, 2] * bucket_size) * inverse_h + halo
        u1, v1, w1 = 0.0, 0.0, 0.0
        for a in range(3):
            value, cx, cy, cz = sample_gradient(flow, n, x, y, z, a)
            if has_affine == 1:
                affine[p, a, 0] = cx * inverse_h
                affine[p, a, 1] = cy * inverse_h
                affine[p, a, 2] = cz * inverse_h
            if a == 0:
                u1 = value
            elif a == 1:
                v1 = value
            else:
                w1 = value
            new = value
            if has_before == 1:
                away = 1.0 - halo
                old = sample_tile(former, m, x + away, y + away, z + away, a)
                new += keep[p * keep_step] * (velocity[p, a] - old)
            velocity[p, a] = new
        if has_affine == 1 and noise > 0.0:
            i, j, k = inside(int(x) - halo, r), inside(int(y) - halo, r), inside(int(z) - halo, r)
            if near_air[row, 0, i, j, k] == 1:
                wide_gradient(flow, n, x, y, z, inverse_h, wide)
                calm_gradient(affine[p], wide, noise)
        dx, dy, dz = way_along(flow, n, x, y, z, u1, v1, w1, step)
        dx, dy, dz = dx / inverse_h, dy / inverse_h, dz / inverse_h
        away = 1.0 - halo
        most = LONGEST_PUSH / inverse_h
        dx += limited(sample_tile(push, m, x + away, y + away, z + away, 0), most)
        dy += limited(sample_tile(push, m, x + away, y + away, z + away, 1), most)
        dz += limited(sample_tile(push, m, x + away, y + away, z + away, 2), most)
        position[p, 0] += dx
        position[p, 1] += dy
        position[p, 2] += dz


@device
def wide_gradient(tile, n, x, y, z, inverse_h, out):
    """Write the gradient across two voxels about a place to out [3, 3], 1/s: waves of the grid's
    own length have none.
    """
    for a in range(3):
        for b in range(3):
            ex, ey, ez = 1.0 if b == 0 else 0.0, 1.0 if b == 1 else 0.0, 1.0 if b == 2 else 0.0
            change = sample_tile(tile, n, x + ex, y + ey, z + ez, a)
            change -= sample_tile(tile, n, x - ex, y - ey, z - ez, a)
            out[a, b] = 0.5 * change * inverse_h


@device
def calm_gradient(gradient, wide, noise):
    """Fade a gradient [3, 3] where it is no more than the surface's noise makes [1/s].

    What differs from the wide gradient is of the grid's own length, and fades altogether. The rest
    is part of a wave, which is damped only where it is so slow that the surface is as good as flat.
    """
    rough, even = 0.0, 0.0
    for a in range(3):
        for b in range(3):
            rough += (gradient[a, b] - wide[a, b]) ** 2
            even += wide[a, b] ** 2
    rough_part = min(rough / noise**2, 1.0)
    even_part = CALM_PART + (1.0 - CALM_PART) * min(even / (CALM_BELOW * noise) ** 2, 1.0)
    for a in range(3):
        for b in range(3):
            rest = gradient[a, b] - wide[a, b]
            gradient[a, b] = even_part * wide[a, b] + rough_part * rest


@parallel_kernel
def keep_inside(position, lower, upper, walls, margin, inside):
    """Hold particles off the box's walls, and find those that left through an open side.

    Args: lower, upper float64 [3] m, infinite where there is no side; walls uint8 [6]: 1 for a
    wall, 0 for an open side, 2 for a periodic one; margin m; inside bool [n], filled.
    """
    for p in prange(position.shape[0]):
        stays = True
        for a in range(3):
            x = np.float64(position[p, a])
            if walls[2 * a] == 1 and x < lower[a] + margin:
                position[p, a] = lower[a] + margin
            elif walls[2 * a] == 0 and x < lower[a]:
                stays = False
            if walls[2 * a + 1] == 1 and x > upper[a] - margin:
                position[p, a] = upper[a] - margin
            elif walls[2 * a + 1] == 0 and x > upper[a]:
                stays = False
            if not math.isfinite(x):
                stays = True  # the check of the state finds it
        inside[p] = stays


@parallel_kernel
def push_out(distance, neighbours, rows, coords, bucket_size, halo, margin, offsets, position):
    """Move particles out of a solid along its distance's gradient.

    Args: distance [b, 1, r, r, r] m with ghosts; rows int32 [particle buckets] of that field, or
    negative; halo: layers around a Bucket that particles may have reached; margin m.
    """
    for b in prange(rows.shape[0]):
        if rows[b] >= 0 and offsets[b + 1] > offsets[b]:
            push_bucket(
                np.int64(b), distance, neighbours, np.int64(rows[b]), coords, bucket_size, halo,
                margin, offsets, position,
            )  # fmt: skip


@device
def push_bucket(b, distance, neighbours, row, coords, bucket_size, halo, margin, offsets, position):
    """Do one Bucket."""
    r = distance.shape[2]
    n = r + 2 * halo
    inverse_h = r / bucket_size
    tile = np.empty((n, n, n), distance.dtype)
    gather_distance(distance, neighbours, row, halo, tile)
    for p in range(offsets[b], offsets[b + 1]):
        for _ in range(3):  # the field is a distance near the surface only
            x = (np.float64(position[p, 0]) - coords[b, 0] * bucket_size) * inverse_h + halo - 0.5
            y = (np.float64(position[p, 1]) - coords[b, 1] * bucket_size) * inverse_h + halo - 0.5
            z = (np.float64(position[p, 2]) - coords[b, 2] * bucket_size) * inverse_h + halo - 0.5
            value, dx, dy, dz = sample_distance(tile, n, x, y, z)
            if value >= margin:
                break
            length = math.sqrt(dx * dx + dy * dy + dz * dz)
            if not length > 0.0:
                break
            way = (margin - value) / length
            position[p, 0] += way * dx
            position[p, 1] += way * dy
            position[p, 2] += way * dz


@device
def gather_distance(distance, neighbours, row, halo, tile):
    """Fill tile [n, n, n] with distances; what is not stored is as the nearest voxel."""
    r = distance.shape[2]
    for direction in range(27):
        other = np.int64(neighbours[row, direction])
        ti, i, ni = reach(direction // 9 - 1, r, halo)
        tj, j, nj = reach(direction // 3 % 3 - 1, r, halo)
        tk, k, nk = reach(direction % 3 - 1, r, halo)
        for x in range(ni):
            for y in range(nj):
                for z in range(nk):
                    if other >= 0:
                        value = distance[other, 0, i + x, j + y, k + z]
                    else:
                        value = distance[
                            row, 0, inside(ti + x - halo, r), inside(tj + y - halo, r),
                            inside(tk + z - halo, r),
                        ]  # fmt: skip
                    tile[ti + x, tj + y, tk + z] = value


@device
def inside(index, r):
    """The nearest voxel of a Bucket along an axis."""
    return min(max(index, 0), r - 1)


@device
def sample_distance(tile, n, x, y, z):
    """(distance, its gradient) at a place among cell centres of the tile."""
    last = n - 1.001
    x, y, z = min(max(x, 0.0), last), min(max(y, 0.0), last), min(max(z, 0.0), last)
    i, j, k = np.int64(x), np.int64(y), np.int64(z)
    fx, fy, fz = x - i, y - j, z - k
    a000, a001 = np.float64(tile[i, j, k]), np.float64(tile[i, j, k + 1])
    a010, a011 = np.float64(tile[i, j + 1, k]), np.float64(tile[i, j + 1, k + 1])
    a100, a101 = np.float64(tile[i + 1, j, k]), np.float64(tile[i + 1, j, k + 1])
    a110, a111 = np.float64(tile[i + 1, j + 1, k]), np.float64(tile[i + 1, j + 1, k + 1])
    low, high = mix(a000, a001, a010, a011, fy, fz), mix(a100, a101, a110, a111, fy, fz)
    dx = mix(a100 - a000, a101 - a001, a110 - a010, a111 - a011, fy, fz)
    dy = mix(a010 - a000, a011 - a001, a110 - a100, a111 - a101, fx, fz)
    dz = mix(a001 - a000, a011 - a010, a101 - a100, a111 - a110, fx, fy)
    return low + fx * (high - low), dx, dy, dz
