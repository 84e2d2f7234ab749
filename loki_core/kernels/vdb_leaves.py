"""Blocks of voxels as leaves of a VDB tree: which voxels are active, and their values packed.

A leaf is 8 x 8 x 8 voxels of a block of r x r x r; leaf n of a block is at (n / m^2, n / m % m,
n % m) in it, m = r / 8.
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import parallel_kernel, prange

LEAF = 8
MASK_BYTES = 64


@parallel_kernel
def mark_active(values, background, masks, counts):
    """Mark voxels that differ from the background, in masks [b, leaves, 64] of bits; count them.

    Args: values float32 [b, c, r, r, r]; counts int32 [b, leaves].
    """
    for b in prange(values.shape[0]):
        m = values.shape[2] // LEAF
        for leaf in range(m * m * m):
            x, y, z = LEAF * (leaf // (m * m)), LEAF * (leaf // m % m), LEAF * (leaf % m)
            total = 0
            for row in range(MASK_BYTES):  # a byte is a row along z
                i, j = x + row // LEAF, y + row % LEAF
                bits = 0
                for k in range(LEAF):
                    for c in range(values.shape[1]):
                        if values[b, c, i, j, z + k] != background:
                            bits |= 1 << k
                masks[b, leaf, row] = bits
                for k in range(LEAF):
                    total += bits >> k & 1
            counts[b, leaf] = total


@parallel_kernel
def pack_active(values, masks, chosen, starts, out):
    """Write for each chosen leaf its mask, a zero and the values of active voxels.

    Args: values uint8 [b, c, r, r, r, 4], bytes of float32; masks [b, leaves, 64]; chosen int64
    [n], of b * leaves; starts int64 [n] in out, uint8.
    """
    for n in prange(chosen.shape[0]):
        leaves = masks.shape[1]
        m = values.shape[2] // LEAF
        b, leaf = chosen[n] // leaves, chosen[n] % leaves
        x, y, z = LEAF * (leaf // (m * m)), LEAF * (leaf // m % m), LEAF * (leaf % m)
        at = starts[n]
        for row in range(MASK_BYTES):
            out[at + row] = masks[b, leaf, row]
        out[at + MASK_BYTES] = 0
        at += MASK_BYTES + 1
        for row in range(MASK_BYTES):
            i, j = x + row // LEAF, y + row % LEAF
            bits = np.int64(masks[b, leaf, row])
            if bits == 0:
                continue
            for k in range(LEAF):
                if bits >> k & 1:
                    for c in range(values.shape[1]):
                        for byte in range(4):
                            out[at + byte] = values[b, c, i, j, z + k, byte]
                        at += 4
