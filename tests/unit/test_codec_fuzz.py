"""Thousands of damaged messages: each is decoded or refused, and none makes memory grow."""

from __future__ import annotations

import hashlib
import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.errors import FormatError
from loki_vfx.serialization.codec import DIGEST_AT, PACK_HEADER, decode, encode, pack, unpack

# hypothesis draws a seed and a seed makes a batch: drawing every byte would take minutes
SEEDS, BATCH = 60, 100  # 6,000 damaged inputs for each of the four targets below
fuzz = settings(derandomize=True, max_examples=SEEDS, deadline=None, database=None)
seeds = st.integers(0, 2**32 - 1)


def documents() -> list:
    rng = np.random.default_rng(11)
    curves = Curves.from_strands(rng.random((2, 3, 3)).astype(np.float32))
    curves.set_channel("point", "velocity", rng.random((6, 3)))
    curves.set_channel("detail", "name", "hair")
    surface = Surface.from_faces(np.eye(3), [[0, 1, 2]])
    surface.set_channel("point", "pinned", np.array([True, False, True]))
    body = Body(np.eye(4)[:, :3], [[0, 1, 2, 3]])
    voxels = Voxels.from_dense(np.ones((2, 2, 2), np.float32), np.zeros(3), 0.1, block_resolution=2)
    return [
        {"hello": "loki", "versions": {"codec": 1}, "list": [1, 2.5, None, True, -7, b"bytes"]},
        {"frame": 12, "streams": {"hair": curves, "skin": surface}},
        {"streams": [body, voxels, Points(np.zeros((0, 3)))]},
        {"arrays": [np.arange(5), np.zeros((2, 0, 3)), np.ones((2, 2), np.float32)], "n": 2**60},
        [[[[[{"deep": [[]]}]]]]],
    ]


MESSAGES = [[bytes(frame) for frame in encode(document)] for document in documents()]
PACKED = [pack(document) for document in documents()]

HUGE = [b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", struct.pack("<Q", 1 << 40)]
HUGE += [b"\xdd\xff\xff\xff\xff", b"\xdf\x7f\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
HUGE += [b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\xdc\xff\xff", b"\xde\xff\xff"]
HUGE += [b"\x91" * 80, b"\xdc\x40\x00" * 30, b"\xcf" + b"\xff" * 8, b"\xd3\x80" + b"\x00" * 7]

KINDS = ("flip", "byte", "cut", "remove", "insert", "huge", "huge insert", "repeat")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return `data` after one to four changes: bits, cuts, insertions, huge length fields."""
    changed = bytearray(data)
    for kind in rng.choices(KINDS, k=rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        if kind == "flip" and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == "byte" and at < len(changed):
            changed[at] = rng.randrange(256)
        elif kind == "cut":
            del changed[at:]
        elif kind == "remove":
            del changed[at : at + rng.randint(1, 9)]
        elif kind == "insert":
            changed[at:at] = rng.randbytes(rng.randint(1, 9))
        elif kind == "huge":
            field = rng.choice(HUGE)
            changed[at : at + len(field)] = field
        elif kind == "huge insert":
            changed[at:at] = rng.choice(HUGE)
        elif kind == "repeat":
            changed[at:at] = changed[at : at + rng.randint(1, 40)]
    return bytes(changed)


@contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()


def decode_or_refuse(function, data, size: int) -> bool:
    """Return whether `data` was decoded; anything but FormatError or much memory fails."""
    most = 300_000 + 100 * size
    for _ in range(3):  # what is made once, such as a module that is imported late, does not count
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        try:
            function(data)
            decoded = True
        except FormatError as error:
            assert str(error)
            decoded = False
        grown = tracemalloc.get_traced_memory()[1] - before
        if grown < most:
            break
    assert grown < most, f"{grown} bytes for {size} bytes of input"
    return decoded


@fuzz
@given(seeds)
def test_damaged_messages(seed):
    rng = random.Random(seed)
    with traced():
        for _ in range(BATCH):
            frames = list(rng.choice(MESSAGES))
            # mostly the msgpack: it has the structure
            which = 0 if rng.random() < 0.6 else rng.randrange(len(frames))
            frames[which] = mutated(frames[which], rng)
            decode_or_refuse(decode, frames, sum(map(len, frames)))


@fuzz
@given(seeds)
def test_damaged_files(seed):
    rng = random.Random(seed)
    with traced():
        for _ in range(BATCH):
            data = rng.choice(PACKED)
            damaged = mutated(data, rng)
            decoded = decode_or_refuse(unpack, damaged, len(damaged))
            assert decoded == (damaged == data)  # the checksum notices every change


@fuzz
@given(seeds)
def test_forged_files_whose_checksum_is_right(seed):
    rng = random.Random(seed)
    with traced():
        for _ in range(BATCH):
            damaged = bytearray(mutated(rng.choice(PACKED), rng))
            if len(damaged) >= PACK_HEADER.size:
                if rng.random() < 0.7:
                    damaged[16:24] = struct.pack("<Q", len(damaged))
                damaged[DIGEST_AT] = bytes(32)
                damaged[DIGEST_AT] = hashlib.blake2b(damaged, digest_size=32).digest()
            decode_or_refuse(unpack, bytes(damaged), len(damaged))


@fuzz
@given(seeds)
def test_noise_is_refused_or_decoded(seed):
    rng = random.Random(seed)
    with traced():
        for _ in range(BATCH):
            frames = [rng.randbytes(rng.randrange(60)) for _ in range(rng.randint(1, 4))]
            if rng.random() < 0.8:
                frames[0] = b"\x93\xa4loki\x01" + frames[0]
            decode_or_refuse(decode, frames, sum(map(len, frames)))


def test_some_mutations_still_decode_so_the_tests_above_reach_the_inside():
    rng = random.Random(1)
    with traced():
        decoded = 0
        for _ in range(500):
            frames = list(rng.choice(MESSAGES))
            frames[-1] = mutated(frames[-1], rng)
            decoded += decode_or_refuse(decode, frames, sum(map(len, frames)))
    assert 10 < decoded < 490


@pytest.mark.parametrize("version", [0, 3, 127, 128, 255])
def test_every_other_version_is_refused_by_name(version):
    frame = bytearray(MESSAGES[0][0])
    frame[6] = version
    with pytest.raises(FormatError, match=f"version {version}; this Loki reads version 1"):
        decode([bytes(frame)])
    data = bytearray(PACKED[0])
    data[8:12] = struct.pack("<I", version)
    with pytest.raises(FormatError, match=f"version {version}; this Loki reads version 1"):
        unpack(bytes(data))
