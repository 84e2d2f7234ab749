"""Faces of a volume as points: their places, velocities and channels, and the forces on them."""

from __future__ import annotations

from loki_core.kernels.buckets.voxel_places import beside, voxel_at
from loki_core.kernels.jit import parallel_kernel, prange


@parallel_kernel
def fill_face_points(velocity, buckets, coords, neighbours, axis, h, position, out):
    """Fill places [n, 3] relative to the origin and velocities [n, 3] of faces along an axis.

    The component along the axis is the face's own; the others are the mean of the four faces
    around it that are stored. n counts the voxels of the listed Buckets.
    """
    r = velocity.shape[2]
    for m in prange(buckets.shape[0]):
        b = buckets[m]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    n = ((m * r + i) * r + j) * r + k
                    position[n, 0] = (coords[b, 0] * r + i + (0.0 if axis == 0 else 0.5)) * h
                    position[n, 1] = (coords[b, 1] * r + j + (0.0 if axis == 1 else 0.5)) * h
                    position[n, 2] = (coords[b, 2] * r + k + (0.0 if axis == 2 else 0.5)) * h
                    below, bi, bj, bk = beside(neighbours, b, r, axis, -1, i, j, k)
                    for c in range(3):
                        if c == axis:
                            out[n, c] = velocity[b, c, i, j, k]
                            continue
                        total = velocity[b, c, i, j, k]
                        count = 1
                        up, ui, uj, uk = beside(neighbours, b, r, c, 1, i, j, k)
                        if up >= 0:
                            total += velocity[up, c, ui, uj, uk]
                            count += 1
                        if below >= 0:
                            total += velocity[below, c, bi, bj, bk]
                            count += 1
                        di = i + (1 if c == 0 else (-1 if axis == 0 else 0))
                        dj = j + (1 if c == 1 else (-1 if axis == 1 else 0))
                        dk = k + (1 if c == 2 else (-1 if axis == 2 else 0))
                        both, ui, uj, uk = voxel_at(neighbours, b, r, di, dj, dk)
                        if both >= 0:
                            total += velocity[both, c, ui, uj, uk]
                            count += 1
                        out[n, c] = total / count


@parallel_kernel
def fill_face_cells(values, buckets, neighbours, axis, background, out):
    """Mean of the two cells beside each face; the background where there is none."""
    r = values.shape[2]
    for m in prange(buckets.shape[0]):
        b = buckets[m]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    below, bi, bj, bk = beside(neighbours, b, r, axis, -1, i, j, k)
                    other = values[below, 0, bi, bj, bk] if below >= 0 else background
                    n = ((m * r + i) * r + j) * r + k
                    out[n] = 0.5 * (values[b, 0, i, j, k] + other)


@parallel_kernel
def add_face_force(force, jacobian, is_implicit, dt, buckets, axis, out, drag):
    """Add component `axis` of force [n, 3] to out, and -dt df/dx of jacobian to drag."""
    r = out.shape[2]
    for m in prange(buckets.shape[0]):
        b = buckets[m]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    n = ((m * r + i) * r + j) * r + k
                    out[b, axis, i, j, k] += force[n, axis]
                    if is_implicit == 1:
                        drag[b, axis, i, j, k] -= dt * jacobian[n, axis, axis]
