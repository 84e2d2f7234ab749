"""Counter-based random numbers: a pure function of (key, id, stream), with no state to store.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as
1, 2, 3", SC 2011). A number depends on what it is for, and not on who computes it, when, or in
which order, so results are the same for any number of threads and ranks, and a resumed run needs
no generator state:

    key = random_key(seed, frame, substep)      once per launch, on the host
    value = uniform(key, particle_id, stream)   in the kernel, for every particle
"""

from __future__ import annotations

import numpy as np

from loki_core.kernels.jit import device

# All words are kept below 2**32 inside 64 bits, so that no product or sum ever overflows and the
# formulas mean the same with and without compilation.
WORD = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)
FACTOR_0 = np.uint64(0xD2511F53)
FACTOR_1 = np.uint64(0xCD9E8D57)
KEY_STEP_0 = np.uint64(0x9E3779B9)
KEY_STEP_1 = np.uint64(0xBB67AE85)
ROUNDS = 10

_ALL_BITS = (1 << 64) - 1


def random_key(seed: int, *counters: int) -> np.uint64:
    """Mix a seed and any counters (frame, substep, ...) into one 64-bit key.

    Each word passes the finaliser of SplitMix64 before the next is added; integers of any sign and
    size are taken modulo 2**64.
    """
    state = 0
    for word in (seed, *counters):
        state = (state + int(word) + 0x9E3779B97F4A7C15) & _ALL_BITS
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _ALL_BITS
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _ALL_BITS
        state ^= state >> 31
    return np.uint64(state)


@device
def philox(c0, c1, c2, c3, k0, k1):
    """Encrypt the counter (c0, c1, c2, c3) with the key (k0, k1): 32-bit words in uint64."""
    for _ in range(ROUNDS):
        p0 = FACTOR_0 * c0
        p1 = FACTOR_1 * c2
        c0, c1, c2, c3 = (p1 >> SHIFT) ^ c1 ^ k0, p1 & WORD, (p0 >> SHIFT) ^ c3 ^ k1, p0 & WORD
        k0 = (k0 + KEY_STEP_0) & WORD
        k1 = (k1 + KEY_STEP_1) & WORD
    return c0, c1, c2, c3


@device
def uniform(key, identifier, stream):
    """Uniform number in [0, 1), float64 with 53 random bits.

    `key` is a uint64 from `random_key`; `identifier` and `stream` are int64 of any sign.
    """
    id_low = np.uint64(identifier & 0xFFFFFFFF)
    id_high = np.uint64((identifier >> 32) & 0xFFFFFFFF)
    stream_low = np.uint64(stream & 0xFFFFFFFF)
    stream_high = np.uint64((stream >> 32) & 0xFFFFFFFF)
    a, b, _, _ = philox(id_low, id_high, stream_low, stream_high, key & WORD, key >> SHIFT)
    high = np.float64(a >> np.uint64(5))  # 27 bits
    low = np.float64(b >> np.uint64(6))  # 26 bits
    return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0)
