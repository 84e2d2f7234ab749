"""Momenta of a liquid's particles and of its grid, summed Bucket by Bucket; rigid corrections.

Masses are in particles: a face that has the weight of a full voxel weighs 1 / share of them. Sums
run in the order of particles and faces, so they do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device, parallel_kernel, prange

#: Sums over a Bucket's particles: count, x, v, x cross v, and xx, yy, zz, xy, xz, yz.
PARTICLE_SUMS = 16
#: Sums over a Bucket's faces: momentum, angular momentum, and the mass on faces across x.
FACE_SUMS = 7


@parallel_kernel
def sum_particles(position, velocity, offsets, chosen, out):
    """Fill out float64 [buckets, 16] for the chosen Buckets of particles; 0 for the others."""
    for b in prange(out.shape[0]):
        out[b] = 0.0
        if chosen[b]:
            for p in range(offsets[b], offsets[b + 1]):
                add_particle(position[p], velocity[p], out[b])


@device
def add_particle(place, motion, out):
    x, y, z = np.float64(place[0]), np.float64(place[1]), np.float64(place[2])
    u, v, w = np.float64(motion[0]), np.float64(motion[1]), np.float64(motion[2])
    out[0] += 1.0
    out[1] += x
    out[2] += y
    out[3] += z
    out[4] += u
    out[5] += v
    out[6] += w
    out[7] += y * w - z * v
    out[8] += z * u - x * w
    out[9] += x * v - y * u
    out[10] += x * x
    out[11] += y * y
    out[12] += z * z
    out[13] += x * y
    out[14] += x * z
    out[15] += y * z


@parallel_kernel
def sum_faces(velocity, weight, coords, h, chosen, out):
    """Fill out float64 [buckets, 7] with the momenta of the chosen Buckets' faces, of mass weight.

    Args: velocity, weight [b, 3, r, r, r]; coords int32 [b, 3]; h m.
    """
    for b in prange(out.shape[0]):
        out[b] = 0.0
        if chosen[b]:
            add_faces(velocity[b], weight[b], coords[b], h, out[b])


@device
def add_faces(velocity, weight, coords, h, out):
    r = velocity.shape[1]
    for a in range(3):
        c, d = (a + 1) % 3, (a + 2) % 3
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    if weight[a, i, j, k] > 0.0:
                        momentum = np.float64(weight[a, i, j, k]) * velocity[a, i, j, k]
                        cell = (i, j, k)
                        out[a] += momentum
                        out[6] += weight[a, i, j, k] if a == 0 else 0.0
                        # x cross e_a has x_d along c and -x_c along d.
                        out[3 + c] += (coords[d] * r + cell[d] + 0.5) * h * momentum
                        out[3 + d] -= (coords[c] * r + cell[c] + 0.5) * h * momentum


@parallel_kernel
def move_rigidly(
    body, centre, shift, change, turn, offsets, position, velocity, affine, has_affine
):
    """Shift the particles of bodies, and add a rigid motion to their velocities.

    Args: body int64 [buckets], or negative; centre, shift m, change m/s, turn 1/s: float64
    [bodies, 3]; affine [n, 3, 3] 1/s, or anything if has_affine is 0.
    """
    for b in prange(body.shape[0]):
        c = body[b]
        if c >= 0:
            for p in range(offsets[b], offsets[b + 1]):
                tx, ty, tz = turn[c, 0], turn[c, 1], turn[c, 2]
                x, y = position[p, 0] + shift[c, 0], position[p, 1] + shift[c, 1]
                z = position[p, 2] + shift[c, 2]
                rx, ry, rz = x - centre[c, 0], y - centre[c, 1], z - centre[c, 2]
                position[p, 0], position[p, 1], position[p, 2] = x, y, z
                velocity[p, 0] += change[c, 0] + ty * rz - tz * ry
                velocity[p, 1] += change[c, 1] + tz * rx - tx * rz
                velocity[p, 2] += change[c, 2] + tx * ry - ty * rx
                if has_affine == 1:
                    affine[p, 0, 1] -= tz
                    affine[p, 0, 2] += ty
                    affine[p, 1, 0] += tz
                    affine[p, 1, 2] -= tx
                    affine[p, 2, 0] -= ty
                    affine[p, 2, 1] += tx
