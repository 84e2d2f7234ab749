"""The level set of a liquid from its particles, on voxels of edge dx = h / refinement.

    density   f = (T * sum_p V_p delta(x - x_p)) / (T * open space),  T a tent of half-width h
    bulk      phi = -h depth(f), the distance to the surface where that is a plane (`liquid_cells`)
    smooth    phi, blurred by (1, 2, 1) / 4 along each axis
    fair      phi - sigma^2 / 2 laplace(phi): blurring by a kernel of variance sigma^2 moves a
              surface of curvature k by sigma^2 k / 2, which this gives back, as in Taubin (1995),
              for T and for every blur; so balls do not shrink
    drops     -s log(exp(-phi / s) + sum_p w_p exp((r_p - |x - x_p|) / s)), a soft union with balls
              about the particles that the bulk leaves out

T is the trilinear splat on fine voxels, widened by a discrete tent, which is exact; beside walls
and solids it is divided by its part in open space, as if liquid went on there. w_p is 1 for a
particle that is alone or in a thin sheet and 0 in bulk and at its surface, told by
f + 3 h |grad f| / 4: at the plane surface of a pool that is above 1, in a sheet of one layer 1 / 2.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.block_samples import trilinear
from loki_core.kernels.buckets.bucket_block import fill_outside, gather_block
from loki_core.kernels.gas.mac_grid import cover
from loki_core.kernels.jit import device, parallel_kernel, prange
from loki_core.kernels.liquid.liquid_cells import SMALLEST_ROOM, depth_of

GRADIENT_PART = 0.75
#: Where f + 3 h |grad f| / 4 is below the first a particle is a drop, above the second it is bulk.
ALONE, BULK = 0.65, 0.85


@device
def load_component(values, c, neighbours, b, halo, background, block):
    """Copy a component of a Bucket and `halo` voxels around it to a flat block."""
    r = values.shape[2]
    gather_block(
        values.reshape(-1), (np.uint64(c), np.uint64(values.shape[1])), neighbours[b],
        np.uint64(r), np.uint64(halo), np.uint64(r + 2 * halo), background, False, block,
        np.uint64(0),
    )  # fmt: skip


@device
def filter_axis(block, spare, stride, taps):
    """Filter a flat block along an axis; what is less than the taps' reach from its ends is lost.

    There it runs on into the next row: one loop without a branch.
    """
    reach = (taps.shape[0] // 2) * stride
    for p in range(reach, block.shape[0] - reach):
        total = block[p] - block[p]
        for t in range(taps.shape[0]):
            total += taps[t] * block[p + t * stride - reach]
        spare[p] = total
    for p in range(reach, block.shape[0] - reach):
        block[p] = spare[p]


@parallel_kernel
def widen_density(
    splat, open_part, has_solids, coords, neighbours, lower, upper, taps, open_taps, out
):  # fmt: skip
    """Write the density of local Buckets: the splat widened, over its part in open space.

    Args: splat [b, 1, r, r, r] with ghosts, 1 where full; open_part the same, the part of voxels
    outside of colliders, if has_solids is 1; lower, upper float64 [3]: closed planes of the box in
    voxels, infinite for others; taps, open_taps [2 k + 1] with halo k; out: the density.
    """
    for b in prange(neighbours.shape[0]):
        widen_bucket(
            np.int64(b), splat, open_part, has_solids, coords, neighbours, lower, upper, taps,
            open_taps, out,
        )  # fmt: skip


@device
def widen_bucket(
    b, splat, open_part, has_solids, coords, neighbours, lower, upper, taps, open_taps, out
):  # fmt: skip
    r = out.shape[2]
    halo = taps.shape[0] // 2
    n = r + 2 * halo
    block = np.empty(n * n * n, splat.dtype)
    spare = np.zeros(n * n * n, splat.dtype)
    zero = block.dtype.type(0.0)
    load_component(splat, 0, neighbours, b, halo, zero, block)
    for stride in (n * n, n, 1):
        filter_axis(block, spare, stride, taps)
    covers = np.empty((3, n))
    for a in range(3):
        for i in range(n):
            covers[a, i] = cover(coords[b, a] * r + i - halo, lower[a], upper[a])
    if has_solids == 0:
        rooms = np.zeros((3, n))
        for a in range(3):
            for i in range(halo, n - halo):
                for t in range(open_taps.shape[0]):
                    rooms[a, i] += open_taps[t] * covers[a, i + t - halo]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    room = rooms[0, i + halo] * rooms[1, j + halo] * rooms[2, k + halo]
                    value = block[((i + halo) * n + j + halo) * n + k + halo]
                    out[b, 0, i, j, k] = value / max(room, SMALLEST_ROOM)
        return
    room = np.empty(n * n * n, splat.dtype)
    load_component(open_part, 0, neighbours, b, halo, block.dtype.type(1.0), room)
    for p in range(n * n * n):
        room[p] *= covers[0, p // (n * n)] * covers[1, p // n % n] * covers[2, p % n]
    for stride in (n * n, n, 1):
        filter_axis(room, spare, stride, open_taps)
    for i in range(r):
        for j in range(r):
            for k in range(r):
                p = ((i + halo) * n + j + halo) * n + k + halo
                out[b, 0, i, j, k] = block[p] / max(room[p], SMALLEST_ROOM)


@parallel_kernel
def find_drops(
    density, neighbours, rows, halo, refinement, share, sheet, alone_radius, sheet_radius,
    position, offsets, coords, bucket_size, radius, weight,
):  # fmt: skip
    """Write radius [m] and weight of the ball of each particle; 0 where bulk has it.

    Args: density with ghosts and corners; rows: the volume's row of each Bucket of particles;
    share: density that one particle has alone, sheet: in a sheet of one layer.
    """
    for b in prange(rows.shape[0]):
        r = density.shape[2]
        n = r + 2 * halo
        block = np.empty(n * n * n, density.dtype)
        zero = block.dtype.type(0.0)
        load_component(density, 0, neighbours, np.int64(rows[b]), halo, zero, block)
        scale = r / bucket_size
        for p in range(offsets[b], offsets[b + 1]):
            x = (np.float64(position[p, 0]) - coords[b, 0] * bucket_size) * scale + halo - 0.5
            y = (np.float64(position[p, 1]) - coords[b, 1] * bucket_size) * scale + halo - 0.5
            z = (np.float64(position[p, 2]) - coords[b, 2] * bucket_size) * scale + halo - 0.5
            here = sample(block, n, x, y, z)
            weight[p] = 0.0
            radius[p] = 0.0
            if here >= BULK:
                continue
            e = 0.5 * refinement
            gx = sample(block, n, x + e, y, z) - sample(block, n, x - e, y, z)
            gy = sample(block, n, x, y + e, z) - sample(block, n, x, y - e, z)
            gz = sample(block, n, x, y, z + e) - sample(block, n, x, y, z - e)
            told = here + GRADIENT_PART * math.sqrt(gx * gx + gy * gy + gz * gz)
            weight[p] = 1.0 - smooth_step((told - ALONE) / (BULK - ALONE))
            company = smooth_step((here - share) / max(sheet - share, 1.0e-6))
            radius[p] = alone_radius + company * (sheet_radius - alone_radius)


@device
def smooth_step(t):
    """Rise from 0 to 1 between 0 and 1, level at both ends."""
    t = min(max(t, 0.0), 1.0)
    return t * t * (3.0 - 2.0 * t)


@device
def sample(block, n, x, y, z):
    """Value at a place of a block, not nearer to its ends than half a voxel."""
    i, j, k = np.int64(x), np.int64(y), np.int64(z)
    stride_y = np.uint64(n)
    p = np.uint64((i * n + j) * n + k)
    return trilinear(block, p, stride_y * stride_y, stride_y, x - i, y - j, z - k)


@parallel_kernel
def depth_to_distance(density, scale, out):
    """Write the distance to a plane surface with that density, flat arrays; 1 voxel is `scale`."""
    for n in prange(out.shape[0]):
        out[n] = -scale * depth_of(density[n])


@parallel_kernel
def filter_distance(distance, coords, neighbours, box, background, taps, fairing, most, out):
    """Blur local Buckets by taps along each axis, then take fairing times the Laplacian off.

    Args: distance with ghosts and corners, in voxels; box int64 [2, 3]: planes of the box, beyond
    which it is mirrored; background: where no Bucket is; taps [3]; most: largest Laplacian.
    """
    for b in prange(neighbours.shape[0]):
        filter_bucket(
            np.int64(b), distance, coords, neighbours, box, background, taps, fairing, most, out
        )


@device
def filter_bucket(b, distance, coords, neighbours, box, background, taps, fairing, most, out):
    r = out.shape[2]
    halo = 2
    n = r + 2 * halo
    block = np.empty(n * n * n, distance.dtype)
    spare = np.zeros(n * n * n, distance.dtype)
    number = block.dtype.type
    load_component(distance, 0, neighbours, b, halo, number(background), block)
    mirror_outside(block, coords, b, r, halo, box)
    for stride in (n * n, n, 1):
        filter_axis(block, spare, stride, taps)
    for i in range(r):
        for j in range(r):
            for k in range(r):
                p = ((i + halo) * n + j + halo) * n + k + halo
                value = np.float64(block[p])
                bend = block[p + 1] + block[p - 1] + block[p + n] + block[p - n] - 6.0 * value
                bend += block[p + n * n] + block[p - n * n]
                out[b, 0, i, j, k] = value - fairing * min(max(bend, -most), most)


@device
def mirror_outside(block, coords, b, r, halo, box):
    """Fill what lies outside the box with the mirror image of what is inside."""
    n = r + 2 * halo
    x = np.int64(coords[b, 0]) * r - halo
    y = np.int64(coords[b, 1]) * r - halo
    z = np.int64(coords[b, 2]) * r - halo
    lower = (box[0, 0] - x, box[0, 1] - y, box[0, 2] - z)
    upper = (box[1, 0] - x, box[1, 1] - y, box[1, 2] - z)
    number = block.dtype.type
    ones = np.ones(6, np.int8)  # the rule MIRROR on all sides
    fill_outside(
        block, np.uint64(0), n, -1, lower, upper, ones, ones.astype(block.dtype),
        np.zeros(6, block.dtype), number(0.5),
    )  # fmt: skip


@parallel_kernel
def unite_with_balls(balls, softness, distance):
    """Unite the bulk with soft balls, flat arrays; softness in units of the distance."""
    for n in prange(distance.shape[0]):
        if balls[n] > 0.0:
            total = math.exp(-distance[n] / softness) + balls[n]
            distance[n] = -softness * math.log(total)


@parallel_kernel
def cut_by_box(coords, lower, upper, distance):
    """Let the level set end at the planes of the box, in voxels; local Buckets."""
    for b in prange(distance.shape[0]):
        r = distance.shape[2]
        for i in range(r):
            x = coords[b, 0] * r + i + 0.5
            dx = max(lower[0] - x, x - upper[0])
            for j in range(r):
                y = coords[b, 1] * r + j + 0.5
                dy = max(lower[1] - y, y - upper[1])
                for k in range(r):
                    z = coords[b, 2] * r + k + 0.5
                    dz = max(lower[2] - z, z - upper[2])
                    beyond = max(dx, max(dy, dz))
                    if beyond > distance[b, 0, i, j, k]:
                        distance[b, 0, i, j, k] = beyond


@parallel_kernel
def begin_band(field, neighbours, band, out):
    """Begin a narrow band: distances [voxels] of voxels at the surface, +-band elsewhere.

    At the surface the distance is the value over the length of its gradient.
    """
    for b in prange(neighbours.shape[0]):
        r = field.shape[2]
        n = r + 2
        block = np.empty(n * n * n, field.dtype)
        load_component(field, 0, neighbours, np.int64(b), 1, block.dtype.type(np.nan), block)
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    p = ((i + 1) * n + j + 1) * n + k + 1
                    here = np.float64(block[p])
                    x, cut_x = steepest(block, p, n * n)
                    y, cut_y = steepest(block, p, n)
                    z, cut_z = steepest(block, p, 1)
                    value = math.copysign(band, here)
                    if cut_x or cut_y or cut_z:
                        slope = math.sqrt(x * x + y * y + z * z)
                        value = min(max(here / max(slope, 1.0e-6), -1.0), 1.0)
                    out[b, 0, i, j, k] = value


@device
def steepest(block, p, stride):
    """(larger difference to the two next voxels, whether one has another sign); NaN counts not."""
    here = np.float64(block[p])
    slope, cut = 0.0, False
    for q in (p - stride, p + stride):
        there = np.float64(block[q])
        if there == there:
            slope = max(slope, abs(there - here))
            cut |= (here < 0.0) != (there < 0.0)
    return slope, cut


@parallel_kernel
def grow_band(neighbours, band, source, out):
    """Grow a narrow band by one layer, upwind: the solution of |grad d| = 1 (Osher & Sethian 1988).

    Voxels within 1 of the surface stay as they are.
    """
    for b in prange(neighbours.shape[0]):
        r = source.shape[2]
        n = r + 2
        block = np.empty(n * n * n, source.dtype)
        load_component(source, 0, neighbours, np.int64(b), 1, block.dtype.type(band), block)
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    p = ((i + 1) * n + j + 1) * n + k + 1
                    here = np.float64(block[p])
                    value = abs(here)
                    if value >= 1.0:
                        x = min(abs(block[p - n * n]), abs(block[p + n * n]))
                        y = min(abs(block[p - n]), abs(block[p + n]))
                        z = min(abs(block[p - 1]), abs(block[p + 1]))
                        if min(x, min(y, z)) < band:
                            far = upwind_distance(np.float64(x), np.float64(y), np.float64(z))
                            value = min(value, far)
                    out[b, 0, i, j, k] = math.copysign(value, here)


@device
def upwind_distance(x, y, z):
    """Distance that follows from the nearest along each axis, in voxels (Zhao 2005)."""
    x, y = min(x, y), max(x, y)
    x, z = min(x, z), max(x, z)
    y, z = min(y, z), max(y, z)
    distance = x + 1.0
    if distance > y:
        distance = 0.5 * (x + y + math.sqrt(max(2.0 - (x - y) ** 2, 0.0)))
        if distance > z:
            mean = (x + y + z) / 3.0
            rest = mean * mean - (x * x + y * y + z * z - 1.0) / 3.0
            distance = mean + math.sqrt(max(rest, 0.0))
    return distance
