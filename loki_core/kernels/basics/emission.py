"""Random numbers for emission: one row per particle, from its id."""

from __future__ import annotations

from loki_core.kernels.basics.random import uniform
from loki_core.kernels.jit import parallel_kernel, prange


@parallel_kernel
def fill_uniforms(key, ids, uniforms):
    """Fill uniforms [n, streams] in [0, 1) from (key, id, stream)."""
    for n in prange(ids.shape[0]):
        for stream in range(uniforms.shape[1]):
            uniforms[n, stream] = uniform(key, ids[n], stream)
