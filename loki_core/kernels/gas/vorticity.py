"""Vorticity of face velocities, and the confinement force made from it.

    omega = curl u,    N = grad|omega| / |grad|omega||,    a = epsilon h (N x omega)

(Fedkiw, Stam and Jensen, "Visual Simulation of Smoke", SIGGRAPH 2001; epsilon in 1/s.)

Vorticity lives on the edges of voxels, where the four face velocities around an edge give it by one
difference each; a cell has the mean of its four edges along each axis. On a face omega is the mean
of its two cells, and the gradient of |omega| is one difference across the face and the mean of the
cells' central differences along it: all of it reaches two voxels, corners included. An edge that
touches a closed face has no vorticity: a wall that slips makes none.

Where |omega| does not vary, round-off must not choose a direction, so the gradient is divided by

    sqrt(|g|^2 + (0.01 |omega| / h)^2)        (1 % less at structures of 14 voxels)

A Bucket is worked on in a scratch block with two voxels around it. Beyond missing Buckets the
velocity is the nearest stored one.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, parallel_kernel, prange

BUCKETS_PER_BLOCK = 16
HALO = 2


@device
def stored_neighbour(neighbours, b, dx, dy, dz):
    """(Bucket, dx, dy, dz) of a neighbour, or of the nearest stored one on the way to it."""
    entry = neighbours[b, (dx + 1) * 9 + (dy + 1) * 3 + dz + 1]
    if entry >= 0:
        return entry, dx, dy, dz
    # Drop one direction, then two; the order is fixed, so every rank finds the same.
    for drop in range(1, 7):
        mask = drop if drop < 3 else (4 if drop == 3 else (3 if drop == 4 else drop))
        ex = 0 if mask & 4 else dx
        ey = 0 if mask & 2 else dy
        ez = 0 if mask & 1 else dz
        entry = neighbours[b, (ex + 1) * 9 + (ey + 1) * 3 + ez + 1]
        if entry >= 0:
            return entry, ex, ey, ez
    return np.int32(b), 0, 0, 0


@device
def source_place(target, way, found, r):
    """Place in the found Bucket of a voxel `target`, counted from the Bucket in the middle."""
    if way == found:
        return target - way * r
    return 0 if way < 0 else r - 1


@device
def gather_velocity(velocity, open_fraction, step, neighbours, b, block):
    """Fill block [3, r + 4, r + 4, r + 4] around a Bucket; closed faces become NaN."""
    r = velocity.shape[2]
    for direction in range(27):
        dx, dy, dz = direction // 9 - 1, direction // 3 % 3 - 1, direction % 3 - 1
        other, ex, ey, ez = stored_neighbour(neighbours, b, dx, dy, dz)
        x0, x1 = span(dx, r)
        y0, y1 = span(dy, r)
        z0, z1 = span(dz, r)
        for a in range(3):
            for x in range(x0, x1):
                sx = source_place(x, dx, ex, r)
                for y in range(y0, y1):
                    sy = source_place(y, dy, ey, r)
                    row = velocity[other, a, sx, sy]
                    is_open = open_fraction[other * step, a, sx, sy]
                    out = block[a, x + HALO, y + HALO]
                    if dz == 0:
                        for z in range(r):
                            out[z + HALO] = row[z] if is_open[z] > 0 else np.nan
                    else:
                        for z in range(z0, z1):
                            sz = source_place(z, dz, ez, r)
                            out[z + HALO] = row[sz] if is_open[sz] > 0 else np.nan


@device
def span(way, r):
    """First and last-plus-one voxel of a neighbour's part of the block, along one axis."""
    if way < 0:
        return -HALO, 0
    if way == 0:
        return 0, r
    return r, r + HALO


@device
def edge_vorticity(block, inverse_h, zero, edges):
    """Fill edges [3, r + 3, ...]: place (i, j, k) is the lower edge of block voxel (i + 1, ...)."""
    n = edges.shape[1]
    u, v, w = block[0], block[1], block[2]
    for i in range(n):
        for j in range(n):
            for k in range(n):
                x, y, z = i + 1, j + 1, k + 1
                at_x = (w[x, y, z] - w[x, y - 1, z]) - (v[x, y, z] - v[x, y, z - 1])
                at_y = (u[x, y, z] - u[x, y, z - 1]) - (w[x, y, z] - w[x - 1, y, z])
                at_z = (v[x, y, z] - v[x - 1, y, z]) - (u[x, y, z] - u[x, y - 1, z])
                # Not a number: one of the four faces is closed.
                edges[0, i, j, k] = at_x * inverse_h if at_x == at_x else zero
                edges[1, i, j, k] = at_y * inverse_h if at_y == at_y else zero
                edges[2, i, j, k] = at_z * inverse_h if at_z == at_z else zero


@device
def cell_vorticity(edges, quarter, cells):
    """Fill cells [4, r + 2, ...] with omega and |omega|; place 0 is the cell before the Bucket."""
    n = cells.shape[1]
    ex, ey, ez = edges[0], edges[1], edges[2]
    for i in range(n):
        for j in range(n):
            for k in range(n):
                x = quarter * (
                    (ex[i, j, k] + ex[i, j + 1, k]) + (ex[i, j, k + 1] + ex[i, j + 1, k + 1])
                )
                y = quarter * (
                    (ey[i, j, k] + ey[i + 1, j, k]) + (ey[i, j, k + 1] + ey[i + 1, j, k + 1])
                )
                z = quarter * (
                    (ez[i, j, k] + ez[i + 1, j, k]) + (ez[i, j + 1, k] + ez[i + 1, j + 1, k])
                )
                cells[0, i, j, k] = x
                cells[1, i, j, k] = y
                cells[2, i, j, k] = z
                cells[3, i, j, k] = math.sqrt(x * x + y * y + z * z)


@device
def confine_faces(cells, a, scale, half, flat, tiny, weight, out):
    """Add scale times h (N x omega) along axis a to the lower faces of a Bucket.

    With one-voxel differences g of |omega|, N needs no h: it is a direction.

    Args: cells [4, r + 2, ...]; flat 0.01, below which relative change |omega| counts as even; tiny
        keeps 0 / 0 away; weight and out [r, r, r].
    """
    r = out.shape[0]
    b, c = (a + 1) % 3, (a + 2) % 3
    ax, ay, az = 1 if a == 0 else 0, 1 if a == 1 else 0, 1 if a == 2 else 0
    bx, by, bz = 1 if b == 0 else 0, 1 if b == 1 else 0, 1 if b == 2 else 0
    cx, cy, cz = 1 if c == 0 else 0, 1 if c == 1 else 0, 1 if c == 2 else 0
    size = cells[3]
    omega_b, omega_c = cells[b], cells[c]
    quarter = half * half
    for i in range(r):
        for j in range(r):
            for k in range(r):
                x, y, z = i + 1, j + 1, k + 1
                p, q, s = x - ax, y - ay, z - az
                ob = half * (omega_b[x, y, z] + omega_b[p, q, s])
                oc = half * (omega_c[x, y, z] + omega_c[p, q, s])
                ga = size[x, y, z] - size[p, q, s]
                gb = quarter * (
                    (size[x + bx, y + by, z + bz] - size[x - bx, y - by, z - bz])
                    + (size[p + bx, q + by, s + bz] - size[p - bx, q - by, s - bz])
                )
                gc = quarter * (
                    (size[x + cx, y + cy, z + cz] - size[x - cx, y - cy, z - cz])
                    + (size[p + cx, q + cy, s + cz] - size[p - cx, q - cy, s - cz])
                )
                even = flat * half * (size[x, y, z] + size[p, q, s])
                length = math.sqrt(ga * ga + gb * gb + gc * gc + even * even + tiny)
                out[i, j, k] += scale * weight[i, j, k] * (gb * oc - gc * ob) / length


@device
def confine_range(
    velocity, open_fraction, open_step, first, last, neighbours, inverse_h, scale, quarter, flat,
    tiny, weight, weight_step, force, block, edges, cells,
):  # fmt: skip
    """Add the confinement force of one Bucket after the other."""
    for b in range(first, last):
        gather_velocity(velocity, open_fraction, open_step, neighbours, b, block)
        edge_vorticity(block, inverse_h, quarter - quarter, edges)
        cell_vorticity(edges, quarter, cells)
        for a in range(3):
            confine_faces(
                cells, a, scale, quarter + quarter, flat, tiny, weight[b * weight_step, a],
                force[b, a],
            )  # fmt: skip


@parallel_kernel
def accumulate_confinement(
    velocity, open_fraction, open_step, local_count, neighbours, inverse_h, scale, quarter, flat,
    tiny, weight, weight_step, force,
):  # fmt: skip
    """Add the confinement force to the lower faces of all local Buckets.

    Args: velocity [b, 3, r, r, r] m/s, ghosts current by two layers with corners; open_fraction
        [b, 3, r, r, r], or one Bucket of ones with open_step 0; neighbours [local, 27]; scale
        epsilon h times the mass of a face; weight [local, 3, r, r, r], or one Bucket with step 0;
        force [b, 3, r, r, r] N. Numbers have the type of the velocity.
    """
    r = velocity.shape[2]
    for n in prange((local_count + BUCKETS_PER_BLOCK - 1) // BUCKETS_PER_BLOCK):
        block = np.empty((3, r + 4, r + 4, r + 4), velocity.dtype)
        edges = np.empty((3, r + 3, r + 3, r + 3), velocity.dtype)
        cells = np.empty((4, r + 2, r + 2, r + 2), velocity.dtype)
        confine_range(
            velocity, open_fraction, open_step, n * BUCKETS_PER_BLOCK,
            min(local_count, (n + 1) * BUCKETS_PER_BLOCK), neighbours, inverse_h, scale, quarter,
            flat, tiny, weight, weight_step, force, block, edges, cells,
        )  # fmt: skip
