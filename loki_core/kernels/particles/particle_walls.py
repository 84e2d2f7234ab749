"""Walls of particle fluids: the sides of the box and the distance fields of Colliders.

A wall does two things to a particle. It takes a part of the support of its kernel, which counts as
filled (`smoothing`): that holds a liquid off by pressure. And it stops what comes nearer than half
a spacing, with Coulomb's friction on what slides along it:

    slide <- slide - min(|slide|, mu push) slide / |slide|

with the slide relative to the wall's own motion in the step. Both are asked for in every iteration
of a solve, so only particles near walls are looked at: `near` are their places.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.bucket_hash import find_bucket, pack_bucket
from loki_core.kernels.jit import device, parallel_kernel, prange
from loki_core.kernels.particles.smoothing import wall_share, wall_slope

FAR = 1.0e30
MOST_LOOKS = 4096  # at the distance, along the way of a particle
SHORTEST_LOOK = 0.02  # voxels from one look to the next, at least
FLAT = 0.05  # steepness of a distance below which it has no direction
GRAZING = 1.0e-6  # sine of the angle at which a way goes along a surface and does not meet it


@parallel_kernel
def distance_to_box(packed, places, lower, upper, closest):
    """Lower closest [n] to the distance of places [n] from the sides of a box, some at infinity."""
    for n in prange(places.shape[0]):
        p = places[n]
        for axis in range(3):
            x = np.float64(packed[p, axis])
            closest[n] = min(closest[n], x - lower[axis], upper[axis] - x)


@parallel_kernel
def distance_to_field(table_keys, table_values, distance, voxel, packed, places, closest):
    """Lower closest [n] to the distance of places [n] from a field; unknown ones are far away."""
    for n in prange(places.shape[0]):
        p = places[n]
        found, _, _, _ = distance_at(
            table_keys, table_values, distance, voxel, packed[p, 0], packed[p, 1], packed[p, 2]
        )
        closest[n] = min(closest[n], found)


@device
def distance_at(table_keys, table_values, distance, voxel, px, py, pz):
    """Trilinear distance [m] and its gradient; far away where a corner is not stored."""
    r = distance.shape[2]
    x, y, z = px / voxel - 0.5, py / voxel - 0.5, pz / voxel - 0.5
    i0, j0, k0 = np.int64(math.floor(x)), np.int64(math.floor(y)), np.int64(math.floor(z))
    fx, fy, fz = x - i0, y - j0, z - k0
    value = 0.0
    gx = 0.0
    gy = 0.0
    gz = 0.0
    known = np.int64(-1)
    bi0 = np.int64(0)
    bj0 = np.int64(0)
    bk0 = np.int64(0)
    for corner in range(8):
        a, b, c = corner >> 2, (corner >> 1) & 1, corner & 1
        i, j, k = i0 + a, j0 + b, k0 + c
        bi, bj, bk = i // r, j // r, k // r
        if known < 0 or bi != bi0 or bj != bj0 or bk != bk0:
            known = np.int64(find_bucket(table_keys, table_values, pack_bucket(bi, bj, bk)))
            bi0, bj0, bk0 = bi, bj, bk
            if known < 0:
                return FAR, 0.0, 0.0, 0.0
        d = np.float64(distance[known, 0, i - bi * r, j - bj * r, k - bk * r])
        wx, wy, wz = (fx if a else 1.0 - fx), (fy if b else 1.0 - fy), (fz if c else 1.0 - fz)
        value += d * wx * wy * wz
        gx += (d if a else -d) * wy * wz
        gy += (d if b else -d) * wx * wz
        gz += (d if c else -d) * wx * wy
    return value, gx / voxel, gy / voxel, gz / voxel


@device
def meet_wall(open_part, gradient, n, s, nx, ny, nz, h, step, norm):
    """Let one wall, at distance s along its unit normal, take its part of a support."""
    if s >= h:
        return
    share = wall_share(s / h, step, norm)
    slope = wall_slope(s / h, step, norm) / h
    left = open_part[n]
    gradient[n, 0] = gradient[n, 0] * (1.0 - share) + left * slope * nx
    gradient[n, 1] = gradient[n, 1] * (1.0 - share) + left * slope * ny
    gradient[n, 2] = gradient[n, 2] * (1.0 - share) + left * slope * nz
    open_part[n] = left * (1.0 - share)


@parallel_kernel
def meet_box(packed, near, lower, upper, support, step, norm, open_part, gradient):
    """Start open_part [n] and its gradient [n, 3] with what the sides of the box leave."""
    for n in prange(near.shape[0]):
        p = near[n]
        open_part[n] = 1.0
        gradient[n, :] = 0.0
        h = np.float64(support[p])
        for axis in range(3):
            x = np.float64(packed[p, axis])
            nx, ny, nz = 1.0 * (axis == 0), 1.0 * (axis == 1), 1.0 * (axis == 2)
            meet_wall(open_part, gradient, n, x - lower[axis], nx, ny, nz, h, step, norm)
            meet_wall(open_part, gradient, n, upper[axis] - x, -nx, -ny, -nz, h, step, norm)


@parallel_kernel
def meet_field(
    table_keys, table_values, distance, voxel, packed, near, support, step, norm, open_part,
    gradient,
):  # fmt: skip
    """Let a distance field take its part."""
    for n in prange(near.shape[0]):
        p = near[n]
        s, gx, gy, gz = distance_at(
            table_keys, table_values, distance, voxel, packed[p, 0], packed[p, 1], packed[p, 2]
        )
        steepness = math.sqrt(gx * gx + gy * gy + gz * gz)
        if s < support[p] and steepness > FLAT:
            meet_wall(
                open_part, gradient, n, s, gx / steepness, gy / steepness, gz / steepness,
                np.float64(support[p]), step, norm,
            )  # fmt: skip


@parallel_kernel
def add_wall_density(near, open_part, density):
    """Count what walls take as filled."""
    for n in prange(near.shape[0]):
        density[near[n]] += 1.0 - open_part[n]


@parallel_kernel
def add_wall_push(near, open_part, gradient, moment, multiplier, applied, shift):
    """Add what walls push: their multiplier is that of the particle itself, while it pushes.

    Along the wall multipliers go on behind it as they are before it, so what neighbours displace a
    particle by is completed: of the moment of a full neighbourhood (`smoothing.Prototype`) they
    have what the walls leave. Without it, what stands at a wall would sink.
    """
    for n in prange(near.shape[0]):
        p = near[n]
        square = 0.0
        along = 0.0
        for axis in range(3):
            square += gradient[n, axis] * gradient[n, axis]
            along += gradient[n, axis] * shift[axis, p]
        if square > 0.0:
            missing = min(1.0 - open_part[n], 0.5 * moment)
            more = missing / (moment - missing)
            for axis in range(3):
                shift[axis, p] += more * (shift[axis, p] - along / square * gradient[n, axis])
        twice = -2.0 * (min(applied[p], 0.0) - min(applied[p] - multiplier[p], 0.0))
        for axis in range(3):
            shift[axis, p] += twice * gradient[n, axis]


@device
def stop_at(p, n, push, nx, ny, nz, start, drift, friction, packed, total):
    """Push a place out along a normal, and let it rub; drift [3] is the wall's way in the step."""
    packed[p, 0] += push * nx
    packed[p, 1] += push * ny
    packed[p, 2] += push * nz
    sx = packed[p, 0] - start[n, 0] - drift[0]
    sy = packed[p, 1] - start[n, 1] - drift[1]
    sz = packed[p, 2] - start[n, 2] - drift[2]
    along = sx * nx + sy * ny + sz * nz
    sx -= along * nx
    sy -= along * ny
    sz -= along * nz
    slide = math.sqrt(sx * sx + sy * sy + sz * sz)
    back = min(1.0, friction * push / slide) if slide > 0.0 else 0.0
    packed[p, 0] -= back * sx
    packed[p, 1] -= back * sy
    packed[p, 2] -= back * sz
    total[0, p] += push * nx - back * sx
    total[1, p] += push * ny - back * sy
    total[2, p] += push * nz - back * sz


@parallel_kernel
def stop_at_box(near, lower, upper, support, keep, friction, start, packed, total):
    """Keep places `keep` supports away from the sides of the box, which are at rest.

    Args: friction [n], or [1] for all; start [n, 3] m, where the step began; total [3, places] m,
    which the push is added to.
    """
    for n in prange(near.shape[0]):
        p = near[n]
        gap = np.float64(support[p]) * keep
        mu = friction[n] if friction.shape[0] > 1 else friction[0]
        still = (0.0, 0.0, 0.0)
        for axis in range(3):
            nx, ny, nz = 1.0 * (axis == 0), 1.0 * (axis == 1), 1.0 * (axis == 2)
            below = lower[axis] + gap - packed[p, axis]
            above = packed[p, axis] - (upper[axis] - gap)
            if below > 0.0 and above > 0.0:
                continue  # a gap too narrow for it: leave it to the density
            if below > 0.0:
                stop_at(p, n, below, nx, ny, nz, start, still, mu, packed, total)
            elif above > 0.0:
                stop_at(p, n, above, -nx, -ny, -nz, start, still, mu, packed, total)


@parallel_kernel
def stop_at_field(
    table_keys, table_values, distance, voxel, near, support, keep, friction, start, drift, packed,
    total,
):  # fmt: skip
    """Keep places `keep` supports away from a field's surface.

    Args: friction [n]; drift [n, 3] m, by which the surface moves in the step.
    """
    for n in prange(near.shape[0]):
        p = near[n]
        s, gx, gy, gz = distance_at(
            table_keys, table_values, distance, voxel, packed[p, 0], packed[p, 1], packed[p, 2]
        )
        push = np.float64(support[p]) * keep - s
        if push <= 0.0:
            continue
        steepness = math.sqrt(gx * gx + gy * gy + gz * gz)
        if steepness > FLAT:
            nx, ny, nz = gx / steepness, gy / steepness, gz / steepness
            stop_at(p, n, push, nx, ny, nz, start, drift[n], friction[n], packed, total)
        else:  # too deep inside to know the way out: back to where it came from
            for axis in range(3):
                back = start[n, axis] + drift[n, axis] - packed[p, axis]
                packed[p, axis] += back
                total[axis, p] += back


@device
def first_meeting(
    table_keys, table_values, distance, voxel, ax, ay, az, wx, wy, wz, length, gap
):  # fmt: skip
    """Where a way from a along the unit vector w first comes within `gap` of a surface, towards it.

    Returns: how far that is seen [m], or -1; how far it is, between this look and the one before;
    the surface's normal there.
    """
    gone = 0.0
    before = 0.0
    s_before = FAR
    for _ in range(MOST_LOOKS):
        s, gx, gy, gz = distance_at(
            table_keys, table_values, distance, voxel, ax + gone * wx, ay + gone * wy,
            az + gone * wz,
        )  # fmt: skip
        steepness = math.sqrt(gx * gx + gy * gy + gz * gz)
        towards = -(gx * wx + gy * wy + gz * wz)
        if s < gap and steepness > FLAT and towards > GRAZING * steepness:
            part = (s_before - gap) / (s_before - s) if gap < s_before < FAR else 1.0
            nx, ny, nz = gx / steepness, gy / steepness, gz / steepness
            return gone, before + part * (gone - before), nx, ny, nz
        if gone >= length:
            break
        before = gone
        s_before = s
        # Where the distance is not known, no surface is within a voxel.
        gone += voxel if s >= FAR else max(s - gap, 0.25 * gap, SHORTEST_LOOK * voxel)
        gone = min(gone, length)
    return -1.0, -1.0, 0.0, 0.0, 0.0


@parallel_kernel
def stop_on_the_way(
    table_keys, table_values, distance, voxel, near, support, keep, friction, start, drift, packed,
    total,
):  # fmt: skip
    """Stop places where their ways first came within `keep` supports of a field's surface.

    What is left of the way goes on along the surface, as far as friction lets it. So no wall is
    too thin to be met, however far particles go in a step. Ways are seen from the surface, which
    moves by `drift` [n, 3] m. Args: packed [places, 3 or 4]; others as of `stop_at_field`.
    """
    for n in prange(near.shape[0]):
        p = near[n]
        gap = np.float64(support[p]) * keep
        ax, ay, az = start[n, 0] + drift[n, 0], start[n, 1] + drift[n, 1], start[n, 2] + drift[n, 2]
        wx, wy, wz = packed[p, 0] - ax, packed[p, 1] - ay, packed[p, 2] - az
        length = math.sqrt(wx * wx + wy * wy + wz * wz)
        if not length > gap:
            continue  # and has not passed the middle of any wall
        wx, wy, wz = wx / length, wy / length, wz / length
        gone, _, nx, ny, nz = first_meeting(
            table_keys, table_values, distance, voxel, ax, ay, az, wx, wy, wz, length, gap
        )
        if gone >= 0.0:
            push = -(nx * wx + ny * wy + nz * wz) * (length - gone)
            stop_at(p, n, push, nx, ny, nz, start, drift[n], friction[n], packed, total)


@parallel_kernel
def sample_channel(table_keys, table_values, primitive, values, voxel, packed, near, sampled):
    """Fill sampled [n, c]: mean of a field's channel over the voxels around that know a surface."""
    r = values.shape[2]
    for n in prange(near.shape[0]):
        p = near[n]
        x = packed[p, 0] / voxel - 0.5
        y = packed[p, 1] / voxel - 0.5
        z = packed[p, 2] / voxel - 0.5
        i0, j0, k0 = np.int64(math.floor(x)), np.int64(math.floor(y)), np.int64(math.floor(z))
        fx, fy, fz = x - i0, y - j0, z - k0
        total = 0.0
        for c in range(sampled.shape[1]):
            sampled[n, c] = 0.0
        for corner in range(8):
            a, b, e = corner >> 2, (corner >> 1) & 1, corner & 1
            i, j, k = i0 + a, j0 + b, k0 + e
            bi, bj, bk = i // r, j // r, k // r
            row = np.int64(find_bucket(table_keys, table_values, pack_bucket(bi, bj, bk)))
            if row < 0 or primitive[row, 0, i - bi * r, j - bj * r, k - bk * r] < 0:
                continue
            weight = (fx if a else 1.0 - fx) * (fy if b else 1.0 - fy) * (fz if e else 1.0 - fz)
            total += weight
            for c in range(sampled.shape[1]):
                sampled[n, c] += weight * values[row, c, i - bi * r, j - bj * r, k - bk * r]
        if total > 0.0:
            for c in range(sampled.shape[1]):
                sampled[n, c] /= total


@device
def pull_of_wall(s, h, norm):
    """-d(2 F)/ds [1/m^2] at a distance s from a wall."""
    z = min(max(s / h, 0.0), 1.0)
    left = (1.0 - z) * (1.0 - z)
    return 4.0 * math.pi * norm * z * left * left * (1.0 + 4.0 * z) / (h * h)


@parallel_kernel
def pull_to_box(near, packed, support, norm, lower, upper, strength, weight, change):
    """Add the adhesion of the sides of the box to change [4 places].

    Args: strength, sigma cos(theta) over the Object's density, times a factor.
    """
    many = weight.shape[0] > 1
    for n in prange(near.shape[0]):
        p = near[n]
        h = np.float64(support[p])
        factor = strength / (weight[p] if many else weight[0])
        for axis in range(3):
            x = np.float64(packed[p, axis])
            change[4 * p + axis] += factor * (
                pull_of_wall(upper[axis] - x, h, norm) - pull_of_wall(x - lower[axis], h, norm)
            )


@parallel_kernel
def pull_to_field(
    table_keys, table_values, distance, voxel, near, packed, support, norm, strength, weight, change
):  # fmt: skip
    """Add the adhesion of a field's surface to change [4 places]."""
    many = weight.shape[0] > 1
    for n in prange(near.shape[0]):
        p = near[n]
        s, gx, gy, gz = distance_at(
            table_keys, table_values, distance, voxel, packed[p, 0], packed[p, 1], packed[p, 2]
        )
        steepness = math.sqrt(gx * gx + gy * gy + gz * gz)
        h = np.float64(support[p])
        if s < h and steepness > FLAT:
            factor = strength / (weight[p] if many else weight[0])
            pull = factor * pull_of_wall(s, h, norm) / steepness
            change[4 * p] -= pull * gx
            change[4 * p + 1] -= pull * gy
            change[4 * p + 2] -= pull * gz
