"""Curl noise that changes with time, on the faces of a volume: free of divergence on the grid.

    a = curl psi,     psi_c = sum over octaves n  A_n noise_n,c(x / s_n, t / tau_n)

(Bridson, Hourihan and Nordenstam, "Curl-Noise for Procedural Fluid Flow", SIGGRAPH 2007.) The three
potentials are gradient noise (kernels/basics/noise.py) at the edges of voxels, and the curl is the
sum of differences around a face, so the fluxes out of every voxel cancel to round-off, whatever the
scale.

Time turns the gradient of every lattice point from one random direction g_k to the next,

    g = cos(theta) g_k + sin(theta) g_(k+1),      theta = pi/2 q(t / tau - k),    q the quintic step

which keeps its variance at all times. Everything is a function of place, time and seed: no state.

Voxels lie on a lattice, so the sum over the eight corners of a noise cell is taken one axis at a
time: for a plane of voxels, then a row, then a voxel. Gradients are made once for a Bucket.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.basics.noise import lattice_gradient, lattice_hash, lattice_word
from loki_core.kernels.jit import device, parallel_kernel, prange

BUCKETS_PER_BLOCK = 8
WORD = np.uint64(0xFFFFFFFF)

#: Root mean square of the curl of three potentials on a lattice of unit cells, by integration over
#: the cell: E[(d noise)^2] = 2/3 sum_c (w_c^2 + 2 w_c w_c' d_c + w_c'^2 |d_c|^2) = 0.496196727...
CURL_RMS = 1.7254507709324864


@device
def quintic(f):
    """Smooth step with two derivatives of zero at 0 and 1."""
    return f * f * f * (f * (f * 6.0 - 15.0) + 10.0)


@device
def fill_axis(first, ratio, base, low, cell, fraction):
    """Noise cell and place in it of the planes (row 0) and centres (row 1) of voxels on an axis.

    Args: first: number of the Bucket's first voxel; low: noise cell that tables start at; cell
        int64 [2, r + 1], from low; fraction [2, r + 1].
    """
    for n in range(cell.shape[1]):
        for half in range(2):
            x = (first + n + 0.5 * half) * ratio + base
            whole = math.floor(x)
            cell[half, n] = np.int64(whole - low)
            fraction[half, n] = x - whole


@device
def fill_gradients(low, count, layer_now, layer_next, cosine, sine, gradients):
    """Gradients [3, count, count, count] of lattice points from `low` on, of one potential."""
    for i in range(count):
        x = lattice_word(low[0] + i)
        for j in range(count):
            y = lattice_word(low[1] + j)
            for k in range(count):
                z = lattice_word(low[2] + k)
                a, b, c = lattice_gradient(lattice_hash(x, y, z, layer_now))
                p, q, s = lattice_gradient(lattice_hash(x, y, z, layer_next))
                gradients[0, i, j, k] = cosine * a + sine * p
                gradients[1, i, j, k] = cosine * b + sine * q
                gradients[2, i, j, k] = cosine * c + sine * s


@device
def add_potential(axis, amplitude, gradients, count, cell, fraction, plane, row, psi):
    """Add amplitude times noise at the edges along an axis to psi [r + 1, r + 1, r + 1].

    Args: cell, fraction [3, 2, r + 1]; plane [3, count, count] and row [2, count] are scratch.
    """
    n = psi.shape[0]
    hx = 1 if axis == 0 else 0
    hy = 1 if axis == 1 else 0
    hz = 1 if axis == 2 else 0
    for i in range(n):
        lattice_x, fx = cell[0, hx, i], fraction[0, hx, i]
        wx = quintic(fx)
        for m in range(count):
            for q in range(count):
                plane[0, m, q] = (1.0 - wx) * gradients[0, lattice_x, m, q] * fx + wx * gradients[
                    0, lattice_x + 1, m, q
                ] * (fx - 1.0)
                for c in range(1, 3):
                    plane[c, m, q] = (1.0 - wx) * gradients[c, lattice_x, m, q] + wx * gradients[
                        c, lattice_x + 1, m, q
                    ]
        for j in range(n):
            m, fy = cell[1, hy, j], fraction[1, hy, j]
            wy = quintic(fy)
            for q in range(count):
                row[0, q] = (1.0 - wy) * (plane[0, m, q] + plane[1, m, q] * fy) + wy * (
                    plane[0, m + 1, q] + plane[1, m + 1, q] * (fy - 1.0)
                )
                row[1, q] = (1.0 - wy) * plane[2, m, q] + wy * plane[2, m + 1, q]
            for k in range(n):
                q, fz = cell[2, hz, k], fraction[2, hz, k]
                wz = quintic(fz)
                psi[i, j, k] += amplitude * (
                    (1.0 - wz) * (row[0, q] + row[1, q] * fz)
                    + wz * (row[0, q + 1] + row[1, q + 1] * (fz - 1.0))
                )


@device
def add_curl(psi, scale, weight, force):
    """Add scale times weight times the differences of psi around each lower face to force."""
    r = force.shape[1]
    px, py, pz = psi[0], psi[1], psi[2]
    for i in range(r):
        for j in range(r):
            for k in range(r):
                x = (pz[i, j + 1, k] - pz[i, j, k]) - (py[i, j, k + 1] - py[i, j, k])
                y = (px[i, j, k + 1] - px[i, j, k]) - (pz[i + 1, j, k] - pz[i, j, k])
                z = (py[i + 1, j, k] - py[i, j, k]) - (px[i, j + 1, k] - px[i, j, k])
                force[0, i, j, k] += scale * weight[0, i, j, k] * x
                force[1, i, j, k] += scale * weight[1, i, j, k] * y
                force[2, i, j, k] += scale * weight[2, i, j, k] * z


@device
def fill_bucket_potential(
    coords, b, r, count, ratio, base, amplitude, blend, layers, gradients, cell, fraction, plane,
    row, psi,
):  # fmt: skip
    """Fill psi [3, r + 1, r + 1, r + 1] of one Bucket with the sum of all octaves."""
    psi[:] = 0.0
    for octave in range(ratio.shape[0]):
        first = (coords[b, 0] * r * 1.0, coords[b, 1] * r * 1.0, coords[b, 2] * r * 1.0)
        low = (
            math.floor(first[0] * ratio[octave] + base[octave, 0]),
            math.floor(first[1] * ratio[octave] + base[octave, 1]),
            math.floor(first[2] * ratio[octave] + base[octave, 2]),
        )
        for c in range(3):
            fill_axis(first[c], ratio[octave], base[octave, c], low[c], cell[c], fraction[c])
        used = np.int64((r + 0.5) * ratio[octave]) + 3  # a partial cell on either side
        used = min(used, count)
        for c in range(3):
            fill_gradients(
                low, used, layers[octave, c, 0], layers[octave, c, 1], blend[octave, 0],
                blend[octave, 1], gradients,
            )  # fmt: skip
            add_potential(c, amplitude[octave], gradients, used, cell, fraction, plane, row, psi[c])


@parallel_kernel
def accumulate_curl_noise(
    coords, local_count, ratio, base, amplitude, blend, layers, count, scale, weight, weight_step,
    force,
):  # fmt: skip
    """Add scale times the curl noise to the lower faces of all local Buckets.

    Args: coords int32 [b, 3]; for each octave ratio: voxels per noise cell, inverted, base [3]:
        noise coordinate of voxel 0, amplitude, blend (cos theta, sin theta), layers uint64 [3, 2]:
        hashes of the potentials now and next; count: lattice points that a Bucket needs an axis;
        weight [local, 3, r, r, r], or one Bucket with step 0; force [local, 3, r, r, r].
    """
    r = force.shape[2]
    for n in prange((local_count + BUCKETS_PER_BLOCK - 1) // BUCKETS_PER_BLOCK):
        gradients = np.empty((3, count, count, count))
        cell = np.empty((3, 2, r + 1), np.int64)
        fraction = np.empty((3, 2, r + 1))
        plane = np.empty((3, count, count))
        row = np.empty((2, count))
        psi = np.empty((3, r + 1, r + 1, r + 1))
        for b in range(n * BUCKETS_PER_BLOCK, min(local_count, (n + 1) * BUCKETS_PER_BLOCK)):
            fill_bucket_potential(
                coords, b, r, count, ratio, base, amplitude, blend, layers, gradients, cell,
                fraction, plane, row, psi,
            )  # fmt: skip
            add_curl(psi, scale, weight[b * weight_step], force[b])
