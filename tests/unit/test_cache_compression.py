"""Compressed frames: bit for bit as written, smaller where it is worth it, and not trusted."""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import tracemalloc

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.errors import FormatError, LokiError
from loki_vfx.bridges.standalone.inspect_command import command
from loki_vfx.serialization import block_compression, frame_cache
from loki_vfx.serialization.block_compression import BLOCK, compress, decompress
from loki_vfx.serialization.codec import (
    DIGEST_AT,
    PACK_HEADER,
    Limits,
    pack,
    pack_parts,
    packed_frames,
    unpack,
)
from loki_vfx.serialization.frame_cache import FrameCacheReader, FrameCacheWriter, Manifest


def stored(found) -> int:
    return sum(memoryview(block).nbytes for block in found.blocks)


def restored(found) -> bytes:
    blocks = [memoryview(block).cast("B") for block in found.blocks]
    return bytes(decompress(blocks, found.size, found.width) if found.width else blocks[0])


def packed(document) -> bytes:
    return b"".join(pack_parts(document, compressed=True).parts)


def smoke_with(density) -> Voxels:
    voxels = Voxels(np.argwhere(np.ones((8, 8, 8))), 0.1)
    voxels.set_channel("density", density)
    velocity = np.zeros((512, 3, 8, 8, 8), np.float32)
    voxels.set_channel("velocity", velocity, location="face")
    return voxels


def cases() -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    sparse = random.random(300_000, np.float32)
    sparse[random.random(300_000) < 0.86] = 0.0
    return {
        "zeros": np.zeros(BLOCK, np.float32),
        "sparse": sparse,
        "smooth": np.sin(np.arange(300_000) / 50.0).astype(np.float32),
        "doubles": np.cumsum(random.normal(size=100_000)),
        "ids": np.arange(400_000),
        "noise": random.integers(0, 256, 300_000).astype(np.uint8),
        "odd": random.integers(0, 3, 3 * BLOCK + 5).astype(np.uint8),
        "few": np.arange(7.0),
    }


@pytest.mark.parametrize("name", cases())
def test_bytes_come_back_and_are_not_more(name):
    values = cases()[name]
    found = compress(values.view(np.uint8).data, values.itemsize)
    assert restored(found) == values.tobytes()
    assert stored(found) <= values.nbytes
    wanted = {"zeros": 1, "smooth": 4, "doubles": 8, "ids": 8, "noise": 0, "few": 0, "odd": 1}
    assert found.width == wanted.get(name, found.width)
    ratio = {"zeros": 1e4, "sparse": 3.0, "smooth": 1.2, "doubles": 1.15, "ids": 50.0, "odd": 3.0}
    assert values.nbytes >= ratio.get(name, 1.0) * stored(found)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5000), st.sampled_from([1, 2, 4, 8]), st.integers(1, 256), st.integers(0, 99))
def test_any_bytes_come_back(count, width, values, seed):
    data = np.random.default_rng(seed).integers(0, values, count).astype(np.uint8)
    assert restored(compress(data.data, width)) == data.tobytes()


def test_a_first_frame_without_smoke_takes_kilobytes(tmp_path):
    """512 blocks of 4 channels are 4 MB of zeros."""
    with FrameCacheWriter(tmp_path, Manifest("a" * 64)) as writer:
        writer.write_frame(1, {"Smoke": smoke_with(np.zeros((512, 8, 8, 8), np.float32))})
        assert writer.last_frame_bytes < 10_000
    reader = FrameCacheReader(tmp_path)
    ((size, plain),) = reader.sizes(1).values()
    assert size < 10_000 and plain > 4_000_000
    assert not reader.read(1, "Smoke").to_dense("density").any()
    assert reader.verify() == []


def test_inspect_shows_sizes(tmp_path):
    with FrameCacheWriter(tmp_path, Manifest("a" * 64)) as writer:
        writer.write_frame(1, {"Smoke": smoke_with(np.zeros((512, 8, 8, 8), np.float32))})
    told = CliRunner().invoke(command, [str(tmp_path)])
    assert told.exit_code == 0, told.output
    size, plain = FrameCacheReader(tmp_path).sizes(1)["Smoke"]
    assert f"{size:,} bytes, {plain:,} uncompressed" in told.output
    told = CliRunner().invoke(command, [str(tmp_path), "--json"])
    found = json.loads(told.output)["objects"]["Smoke"]
    assert (found["bytes"], found["plain_bytes"]) == (size, plain)


def test_caches_of_before_are_read(tmp_path, monkeypatch):
    """A frame of version 1, whose index says nothing of sizes before compression."""
    write = frame_cache.write_packed
    monkeypatch.setattr(frame_cache, "write_packed", lambda path, one, **_: write(path, one))
    points = Points(np.random.default_rng(1).random((50, 3)))
    with FrameCacheWriter(tmp_path, Manifest("a" * 64)) as writer:
        writer.write_frame(1, {"Dust": points})
    index = tmp_path / "frames" / "000001.json"
    content = json.loads(index.read_text())
    del content["objects"]["Dust"][0]["plain_bytes"]
    index.write_text(json.dumps(content))
    reader = FrameCacheReader(tmp_path)
    np.testing.assert_array_equal(reader.read(1, "Dust").positions, points.positions)
    assert reader.sizes(1)["Dust"][1] is None
    assert CliRunner().invoke(command, [str(tmp_path)]).exit_code == 0


def test_frames_for_the_bridge_are_as_they_were_before():
    voxels = smoke_with(np.random.default_rng(2).random((512, 8, 8, 8), np.float32))
    plain = packed_frames(memoryview(pack(voxels)))
    found = packed_frames(memoryview(packed(voxels)))
    assert [bytes(one) for one in found] == [bytes(one) for one in plain]


def resealed(data: bytearray) -> bytes:
    """Return a block with sizes and checksum that fit, as a hostile peer would."""
    data[16:24] = struct.pack("<Q", len(data))
    data[DIGEST_AT] = bytes(32)
    data[DIGEST_AT] = hashlib.blake2b(data, digest_size=32).digest()
    return bytes(data)


def test_what_is_damaged_is_refused_in_words():
    data = packed({"a": np.zeros(40_000), "b": np.arange(5000), "c": np.arange(3.0)})
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(400):
        broken = bytearray(data)
        place = int(random.integers(PACK_HEADER.size, len(data)))
        broken[place] = int(random.integers(0, 256))
        if random.random() < 0.3:
            broken = broken[: int(random.integers(PACK_HEADER.size, len(data)))]
        try:
            unpack(resealed(broken))
        except FormatError as error:
            assert str(error).startswith("packed data")
            refused += 1
    assert refused > 200


def test_a_block_that_claims_much_takes_no_memory():
    """A terabyte in the table, and 16 MB in a block that should hold one."""
    data = bytearray(packed({"a": np.zeros(BLOCK // 8)}))
    at = PACK_HEADER.size + 12  # size and width of the second frame
    assert struct.unpack_from("<Q", data, at) == (BLOCK,)
    claimed = data.copy()
    struct.pack_into("<Q", claimed, at, 1 << 40)
    bomb = block_compression._zstd().compress(bytes(16 * BLOCK), 1)
    tracemalloc.start()
    with pytest.raises(FormatError, match="accepted are"):
        unpack(resealed(claimed))
    with pytest.raises(FormatError, match="1048576 blocks, more than fit"):
        unpack(resealed(claimed), limits=Limits(total_bytes=1 << 41))
    with pytest.raises(FormatError, match=f"claims {16 * BLOCK} bytes where {BLOCK} are"):
        decompress([memoryview(bomb)], BLOCK, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * BLOCK


def test_without_zstd_it_is_said_what_to_install(monkeypatch):
    data = packed({"a": np.zeros(40_000)})
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(LokiError, match=r"pip install backports\.zstd"):
        unpack(data)
