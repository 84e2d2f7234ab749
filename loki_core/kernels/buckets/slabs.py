"""Pack and unpack the parts of Buckets that ranks exchange.

A slab is the part of a Bucket next to one of its neighbours: `layers` thick along the axes in which
    the neighbour lies,
the whole Bucket along the others. Its direction n of the 27 leads from the neighbour to the Bucket,
so along an axis with offset +1 the neighbour needs the Bucket's lowest layers, with -1 its highest.
Direction 13 is the whole Bucket.
"""

from __future__ import annotations

from loki_core.kernels.jit import device, parallel_kernel, prange


@device
def slab_start(offset, resolution, layers):
    """First voxel of the slab along an axis."""
    return resolution - layers if offset == -1 else 0


@device
def slab_stop(offset, resolution, layers):
    """End of the slab along an axis."""
    return layers if offset == 1 else resolution


@parallel_kernel
def pack_slabs(values, buckets, directions, layers, offsets, packed):
    """Copy slabs of values [buckets, c, r, r, r] to packed [sum of voxels * c], slab by slab."""
    resolution = values.shape[2]
    for s in prange(buckets.shape[0]):
        b = buckets[s]
        di = directions[s] // 9 - 1
        dj = directions[s] // 3 % 3 - 1
        dk = directions[s] % 3 - 1
        place = offsets[s]
        for c in range(values.shape[1]):
            for i in range(slab_start(di, resolution, layers), slab_stop(di, resolution, layers)):
                for j in range(
                    slab_start(dj, resolution, layers), slab_stop(dj, resolution, layers)
                ):
                    for k in range(
                        slab_start(dk, resolution, layers), slab_stop(dk, resolution, layers)
                    ):
                        packed[place] = values[b, c, i, j, k]
                        place += 1


@parallel_kernel
def unpack_slabs(packed, buckets, directions, layers, offsets, values):
    """Copy packed slabs back to their places; the inverse of `pack_slabs`."""
    resolution = values.shape[2]
    for s in prange(buckets.shape[0]):
        b = buckets[s]
        di = directions[s] // 9 - 1
        dj = directions[s] // 3 % 3 - 1
        dk = directions[s] % 3 - 1
        place = offsets[s]
        for c in range(values.shape[1]):
            for i in range(slab_start(di, resolution, layers), slab_stop(di, resolution, layers)):
                for j in range(
                    slab_start(dj, resolution, layers), slab_stop(dj, resolution, layers)
                ):
                    for k in range(
                        slab_start(dk, resolution, layers), slab_stop(dk, resolution, layers)
                    ):
                        values[b, c, i, j, k] = packed[place]
                        place += 1
