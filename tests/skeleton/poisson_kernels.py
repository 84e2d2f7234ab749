"""The weighted 7-point Laplacian of a cell channel, and inner products per Bucket.

    (L p)_c = sum over the six faces f of c:  w_f (p_c - p_n)       (positive semi-definite)

w is a face channel: component a of a voxel is its lower face along a, so a wall anywhere, inside a
    Bucket too, is a zero
weight. A face on the border of the stored Buckets has the weight that its neighbour entry's code
names, with p_n = 0 beyond it.
"""

from __future__ import annotations

from loki_core.kernels.jit import device, prange, strict_kernel


@device
def face_term(values, weights, boundary_weights, neighbours, b, r, axis, side, i, j, k):
    """W (p_c - p_n) of one face; side 0 is the lower one."""
    step = 1 if side == 1 else -1
    ni = i + (step if axis == 0 else 0)
    nj = j + (step if axis == 1 else 0)
    nk = k + (step if axis == 2 else 0)
    inside = 0 <= ni < r and 0 <= nj < r and 0 <= nk < r
    other = b
    if not inside:
        direction = 13 + step * (9 if axis == 0 else (3 if axis == 1 else 1))
        entry = neighbours[b, direction]
        if entry < 0:
            return boundary_weights[-entry] * values[b, 0, i, j, k]
        other = entry
        ni %= r
        nj %= r
        nk %= r
    if side == 0:
        weight = weights[b, axis, i, j, k]
    else:
        weight = weights[other, axis, ni, nj, nk]
    return weight * (values[b, 0, i, j, k] - values[other, 0, ni, nj, nk])


@strict_kernel
def weighted_laplacian(values, weights, boundary_weights, buckets, neighbours, scale, out):
    """Write scale L p to out for the listed Buckets.

    Args: values [b, 1, r, r, r]; weights [b, 3, r, r, r]; boundary_weights [9], by minus the
        neighbour's code; buckets
    int32; neighbours int32 [local, 27]; scale 1/h^2; out [local, 1, r, r, r].
    """
    r = values.shape[2]
    for n in prange(buckets.shape[0]):
        b = buckets[n]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    total = 0.0
                    for axis in range(3):
                        for side in range(2):
                            total += face_term(
                                values,
                                weights,
                                boundary_weights,
                                neighbours,
                                b,
                                r,
                                axis,
                                side,
                                i,
                                j,
                                k,
                            )
                    out[b, 0, i, j, k] = scale * total


@strict_kernel
def laplacian_diagonal(weights, boundary_weights, buckets, neighbours, scale, out):
    """Write the diagonal of scale L to out; arguments as for `weighted_laplacian`."""
    r = weights.shape[2]
    for n in prange(buckets.shape[0]):
        b = buckets[n]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    total = 0.0
                    for axis in range(3):
                        total += lower_weight(
                            weights, boundary_weights, neighbours, b, axis, i, j, k
                        )
                        total += upper_weight(
                            weights, boundary_weights, neighbours, b, axis, i, j, k
                        )
                    out[b, 0, i, j, k] = scale * total


@device
def lower_weight(weights, boundary_weights, neighbours, b, axis, i, j, k):
    """Weight of a voxel's lower face along an axis."""
    place = i if axis == 0 else (j if axis == 1 else k)
    if place == 0:
        entry = neighbours[b, 13 - (9 if axis == 0 else (3 if axis == 1 else 1))]
        if entry < 0:
            return boundary_weights[-entry]
    return weights[b, axis, i, j, k]


@device
def upper_weight(weights, boundary_weights, neighbours, b, axis, i, j, k):
    """Weight of a voxel's upper face along an axis: the lower one of the next voxel."""
    r = weights.shape[2]
    ni = i + 1 if axis == 0 else i
    nj = j + 1 if axis == 1 else j
    nk = k + 1 if axis == 2 else k
    if ni < r and nj < r and nk < r:
        return weights[b, axis, ni, nj, nk]
    entry = neighbours[b, 13 + (9 if axis == 0 else (3 if axis == 1 else 1))]
    if entry < 0:
        return boundary_weights[-entry]
    return weights[entry, axis, ni % r, nj % r, nk % r]


@strict_kernel
def bucket_dots(x, y, dots):
    """Inner product of each row of x and y [buckets, n], in order, into dots [buckets]."""
    for b in prange(dots.shape[0]):
        total = 0.0
        for n in range(x.shape[1]):
            total += x[b, n] * y[b, n]
        dots[b] = total
