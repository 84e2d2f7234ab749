"""Curvature of a liquid's surface from the filled part f of its cells, and the force it makes.

    smooth      F = 2 G f - G G f,  G a binomial blur, over the cells that liquid could fill alone
    curvature   kappa = -div(grad F / |grad F|), above 0 where the liquid bulges
    force       sigma kappa h^2 / theta on faces between liquid and air, towards the liquid

f is a sum over particles and rough on the scale of a voxel; its second derivatives are worth
nothing unless it is blurred. G leaves exp(-v k^2 / 2) of a wave of number k (v the variance of G);
F leaves 1 - (1 - exp(-v k^2 / 2))^2 of it, so that long waves keep nearly all of their curvature,
as with Taubin (1995). Level sets of a blurred ball are spheres about its centre: where F = 1 / 2
they are smaller than the ball by a little that is known.

Cells that are solid, or beyond the box, weigh nothing: there liquid and air go on as they are,
which is a contact angle of 90 degrees.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.buckets.block_samples import trilinear
from loki_core.kernels.buckets.bucket_block import gather_block
from loki_core.kernels.buckets.voxel_places import beside
from loki_core.kernels.gas.mac_grid import AMBIENT, FLUID
from loki_core.kernels.jit import device, parallel_kernel, prange
from loki_core.kernels.liquid.surface_field import load_component

#: Filled part above which a cell is liquid, near enough.
LIQUID = 0.5
#: Largest curvature in 1/voxel: that of a ball with a radius of a voxel.
MOST = 2.0
#: Square of the smallest gradient [1/voxel^2] that still tells where a surface is.
FLAT = 1.0e-6
#: How far F = 1 / 2 lies below the surface of balls, over their curvature [voxel^2].
SHRINKING = 0.6
#: Voxels from a cell to the smooth surface, along an axis, at most.
REACH = 2


@parallel_kernel
def blur_open(values, weights, neighbours, taps, out):
    """Write the weighted mean of a channel about each cell of local Buckets to out.

    Args: values, weights [b, 1, r, r, r] with ghosts and corners; taps [2 k + 1], with halo k.
    """
    for b in prange(neighbours.shape[0]):
        blur_bucket(np.int64(b), values, weights, neighbours, taps, out)


@device
def blur_bucket(b, values, weights, neighbours, taps, out):
    r = out.shape[2]
    halo = taps.shape[0] // 2
    n = r + 2 * halo
    size = n * n * n
    block, weight = np.empty(size, out.dtype), np.empty(size, out.dtype)
    number = block.dtype.type
    zero, one = number(0.0), number(1.0)
    load_component(values, 0, neighbours, b, halo, zero, block)
    least, most = block[0], block[0]
    for p in range(size):
        least, most = min(least, block[p]), max(most, block[p])
    if most < LIQUID or least > LIQUID:  # no surface is near
        out[b, 0] = zero if most < LIQUID else one
        return
    load_component(weights, 0, neighbours, b, halo, zero, weight)
    lightest = one
    for p in range(size):
        block[p] = min(block[p], one) * weight[p]
        lightest = min(lightest, weight[p])
    spare = np.empty(size, out.dtype)
    filter_inner(block, r, halo, taps, spare)
    if lightest < one:
        filter_inner(weight, r, halo, taps, spare)
    for i in range(r):
        for j in range(r):
            for k in range(r):
                p = (i * r + j) * r + k
                total = weight[p] if lightest < one else one
                out[b, 0, i, j, k] = block[p] / total if total > zero else zero


@device
def filter_inner(block, r, halo, taps, spare):
    """Filter a block along all axes; its first r^3 values are then those of the Bucket."""
    n = r + 2 * halo
    filter_along(block, 1, n, n * n, taps, spare)
    filter_along(spare, r, n, n, taps, block)
    filter_along(block, r * r, n, 1, taps, spare)
    for p in range(r * r * r):
        block[p] = spare[p]


@device
def filter_along(source, outer, length, stride, taps, out):
    """Filter the middle axis of an array [outer, length, stride], flat, as far as the taps fit."""
    step, taken = np.uint64(stride), np.uint64(length * stride)
    count = np.uint64((length - taps.shape[0] + 1) * stride)
    for a in range(np.uint64(outer)):
        for p in range(count):
            out[a * count + p] = 0.0
        for t in range(np.uint64(taps.shape[0])):
            tap, start = taps[t], a * taken + t * step
            for p in range(count):
                out[a * count + p] += tap * source[start + p]


@parallel_kernel
def find_curvature(smooth, neighbours, out):
    """Write the curvature of the level sets of a smooth field [1/voxel] to out, for local Buckets.

    Args: smooth [b, 1, r, r, r] with ghosts and corners, large in the liquid.
    """
    for b in prange(neighbours.shape[0]):
        curvature_of_bucket(np.int64(b), smooth, neighbours, out)


@device
def load_nearest(values, neighbours, b, halo, block):
    """Copy a Bucket and `halo` voxels around it; where no Bucket is, the nearest value goes on."""
    r = values.shape[2]
    gather_block(
        values.reshape(-1), (np.uint64(0), np.uint64(1)), neighbours[b], np.uint64(r),
        np.uint64(halo), np.uint64(r + 2 * halo), block.dtype.type(0.0), True, block, np.uint64(0),
    )  # fmt: skip


@device
def curvature_of_bucket(b, smooth, neighbours, out):
    r = out.shape[2]
    n = r + 2
    block = np.empty(n * n * n, smooth.dtype)
    load_nearest(smooth, neighbours, b, 1, block)
    for i in range(r):
        for j in range(r):
            for k in range(r):
                out[b, 0, i, j, k] = curvature_at(block, ((i + 1) * n + j + 1) * n + k + 1, n)


@device
def curvature_at(f, p, n):
    """Curvature at place p of a flat block with n voxels an edge."""
    x, y, z = n * n, n, 1
    fx = 0.5 * (np.float64(f[p + x]) - f[p - x])
    fy = 0.5 * (np.float64(f[p + y]) - f[p - y])
    fz = 0.5 * (np.float64(f[p + z]) - f[p - z])
    square = fx * fx + fy * fy + fz * fz
    if square < FLAT:
        return 0.0
    twice = 2.0 * np.float64(f[p])
    fxx = f[p + x] + f[p - x] - twice
    fyy = f[p + y] + f[p - y] - twice
    fzz = f[p + z] + f[p - z] - twice
    fxy = 0.25 * (np.float64(f[p + x + y]) - f[p + x - y] - f[p - x + y] + f[p - x - y])
    fyz = 0.25 * (np.float64(f[p + y + z]) - f[p + y - z] - f[p - y + z] + f[p - y - z])
    fzx = 0.25 * (np.float64(f[p + z + x]) - f[p + z - x] - f[p - z + x] + f[p - z - x])
    bend = fx * fx * (fyy + fzz) + fy * fy * (fzz + fxx) + fz * fz * (fxx + fyy)
    bend -= 2.0 * (fx * fy * fxy + fy * fz * fyz + fz * fx * fzx)
    return min(max(-bend / (square * math.sqrt(square)), -MOST), MOST)


@parallel_kernel
def take_from_surface(smooth, curvature, neighbours, out):
    """Write the curvature at the point of the surface nearest to each cell to out.

    The surface is that of the smooth field, F = 1 / 2, and not that of the filled part: of that,
    places that stand out would have less curvature and stand out more.

    Args: smooth, curvature [b, 1, r, r, r] with REACH + 1 layers of ghosts and corners.
    """
    for b in prange(neighbours.shape[0]):
        take_for_bucket(np.int64(b), smooth, curvature, neighbours, out)


@device
def take_for_bucket(b, smooth, curvature, neighbours, out):
    r = out.shape[2]
    halo = REACH + 1
    n = r + 2 * halo
    f = np.empty(n * n * n, smooth.dtype)
    kappa = np.empty(n * n * n, smooth.dtype)
    load_nearest(smooth, neighbours, b, halo, f)
    load_nearest(curvature, neighbours, b, halo, kappa)
    for i in range(r):
        for j in range(r):
            for k in range(r):
                p = ((i + halo) * n + j + halo) * n + k + halo
                gx = 0.5 * (np.float64(f[p + n * n]) - f[p - n * n])
                gy = 0.5 * (np.float64(f[p + n]) - f[p - n])
                gz = 0.5 * (np.float64(f[p + 1]) - f[p - 1])
                square = gx * gx + gy * gy + gz * gz
                if square < FLAT:
                    out[b, 0, i, j, k] = 0.0
                    continue
                way = (0.5 - np.float64(f[p])) / square
                way -= SHRINKING * np.float64(kappa[p]) / math.sqrt(square)
                x = i + halo + min(max(way * gx, -REACH), REACH)
                y = j + halo + min(max(way * gy, -REACH), REACH)
                z = k + halo + min(max(way * gz, -REACH), REACH)
                x0, y0, z0 = math.floor(x), math.floor(y), math.floor(z)
                first = np.uint64((np.int64(x0) * n + np.int64(y0)) * n + np.int64(z0))
                out[b, 0, i, j, k] = trilinear(
                    kappa, first, np.uint64(n * n), np.uint64(n), x - x0, y - y0, z - z0
                )


@parallel_kernel
def add_surface_force(kind, curvature, nearness, neighbours, scale, force):
    """Add scale * kappa / theta to faces of local Buckets between liquid and air.

    Args: kind, curvature [b, 1, r, r, r] with ghosts; nearness 1 / theta of local faces, theta the
    way from the liquid cell's centre to the surface in voxels; scale: sigma h [N]; force [N].
    """
    for b in prange(neighbours.shape[0]):
        force_on_bucket(np.int64(b), kind, curvature, nearness, neighbours, scale, force)


@device
def force_on_bucket(b, kind, curvature, nearness, neighbours, scale, force):
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
                    above = np.float64(curvature[b, 0, i, j, k])
                    below = np.float64(curvature[other, 0, ni, nj, nk])
                    near = np.float64(nearness[b, a, i, j, k])
                    theta = min(1.0 / near, 1.0)
                    if here == FLUID:  # the pressure of the surface below pushes up
                        kappa = above + theta * (below - above)
                        force[b, a, i, j, k] += scale * kappa * near
                    else:
                        kappa = below + theta * (above - below)
                        force[b, a, i, j, k] -= scale * kappa * near
