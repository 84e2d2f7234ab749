"""The codec: documents come back as they were, arrays without a copy, and nothing is trusted."""

from __future__ import annotations

import enum
import struct
import tracemalloc

import msgpack
import numpy as np
import pytest

from loki_core.data.curves import Curves
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.errors import FormatError
from loki_vfx.serialization.codec import (
    ARRAY_EXT,
    CODEC_VERSION,
    STREAM_EXT,
    Limits,
    decode,
    encode,
    pack,
    unpack,
)


def message(content, *frames) -> list[bytes]:
    """Return a hand-made message around `content`, as a hostile peer would."""
    return [msgpack.packb(["loki", CODEC_VERSION, content]), *frames]


def array_ext(dtype, shape, frame):
    return msgpack.ExtType(ARRAY_EXT, msgpack.packb([dtype, shape, frame]))


def test_plain_values_come_back():
    document = {
        "none": None,
        "flags": [True, False],
        "numbers": [0, -1, 2**63, -(2**63), 1.5, float("inf")],
        "text": "Hår",
        "bytes": b"\x00\xff",
        "nested": {"a": {"b": [[], {}]}},
    }
    assert decode(encode(document)) == document


def test_tuples_numpy_scalars_and_enums_become_plain():
    class Kind(enum.Enum):
        LIQUID = "liquid"

    document = {"t": (1, 2), "f": np.float32(0.5), "b": np.bool_(True), "kind": Kind.LIQUID}
    assert decode(encode(document)) == {"t": [1, 2], "f": 0.5, "b": True, "kind": "liquid"}


@pytest.mark.parametrize(
    "dtype", ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", ">f4", ">i8"]
)
def test_arrays_of_every_dtype(dtype):
    array = (np.arange(24) % 2).reshape(2, 3, 4).astype(dtype)
    again = decode(encode(array))
    np.testing.assert_array_equal(again, array)
    assert again.dtype == np.dtype(dtype).newbyteorder("<")


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (4, 0, 2), (1, 1, 1, 1, 1)])
def test_arrays_of_odd_shapes(shape):
    again = decode(encode({"a": np.ones(shape, np.float32)}))["a"]
    assert again.shape == shape
    assert not again.flags.writeable


def test_arrays_are_neither_copied_in_nor_out():
    array = np.arange(10_000, dtype=np.float64)
    frames = encode({"a": array})
    assert np.shares_memory(np.frombuffer(frames[1], np.float64), array)
    again = decode(frames)["a"]
    assert np.shares_memory(again, array)
    assert not again.flags.writeable


def test_strided_arrays_are_written_in_order():
    array = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for odd in (array[:, ::2], array.T, np.asfortranarray(array)):
        np.testing.assert_array_equal(decode(encode(odd)), odd)


def test_nan_is_valid_data():
    assert np.isnan(decode(encode(np.array([np.nan])))).all()


def test_streams_come_back_as_their_own_type():
    curves = Curves.from_strands(np.random.default_rng(1).random((5, 4, 3)))
    curves.set_channel("point", "velocity", np.ones((20, 3)))
    surface = Surface.from_faces(np.eye(3), [[0, 1, 2]])
    voxels = Voxels.from_dense(np.ones((8, 8, 8), np.float32), (0.0, 0.0, 0.0), 0.1)
    again = decode(encode({"streams": {"hair": curves, "list": [surface, voxels]}}))["streams"]
    assert isinstance(again["hair"], Curves)
    np.testing.assert_array_equal(again["hair"].positions, curves.positions)
    assert again["hair"].channels["point"].transform_of("velocity") == "vector"
    assert isinstance(again["list"][0], Surface)
    np.testing.assert_array_equal(again["list"][1].to_dense("density"), 1.0)


def test_packed_form_is_one_block_with_aligned_arrays():
    document = {"a": np.arange(7, dtype=np.float64), "b": [1, "two"], "c": np.zeros(3, bool)}
    data = pack(document)
    assert len(data) % 64 == 0
    again = unpack(data)
    np.testing.assert_array_equal(again["a"], document["a"])
    assert again["b"] == [1, "two"]
    assert again["a"].flags.aligned
    assert np.shares_memory(again["a"], np.frombuffer(data, np.uint8))


def test_packing_twice_gives_the_same_bytes():
    assert pack({"a": np.arange(3), "b": 1}) == pack({"a": np.arange(3), "b": 1})


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"a": {1: 2}}, "document.a has the key 1"),
        ({"a": [set()]}, r"document.a\[0\] is of type set"),
        ({"a": np.array([object()])}, "document.a is an array of object"),
        ({"a": np.zeros((1,) * 6)}, "6 axes"),
        ({"a": 2**64}, "cannot be written"),
        ({"a": np.array(["text"])}, "<U4"),
        ({"a": lambda: 0}, "function"),
        ({"a": "\ud800"}, "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_named(document, words):
    with pytest.raises(FormatError, match=words):
        encode(document)


def test_documents_that_contain_themselves_are_refused():
    document: list = []
    document.append(document)
    with pytest.raises(FormatError, match="nested deeper"):
        encode(document)


# -- hostile input ------------------------------------------------------------------------------


def test_unknown_version_tells_both_versions():
    frames = encode({})
    newer = bytearray(frames[0])
    newer[6] = 99
    with pytest.raises(FormatError, match="codec version 99; this Loki reads version 1: update"):
        decode([bytes(newer)])
    data = bytearray(pack({}))
    data[8:12] = struct.pack("<I", 7)
    with pytest.raises(FormatError, match="file format version 7; this Loki reads version 1 and 2"):
        unpack(data)


@pytest.mark.parametrize(
    ("content", "frames", "words"),
    [
        (array_ext("|O", [1], 1), [bytes(8)], "dtype"),
        (array_ext("<M8[s]", [1], 1), [bytes(8)], "dtype"),
        (array_ext("<f8", [2], 1), [bytes(8)], "needs 16 bytes"),
        (array_ext("<f8", [2**62, 2**62], 1), [bytes(8)], "needs"),
        (array_ext("<f8", [0, 2**62], 1), [b""], "needs"),
        (array_ext("<f8", [-1], 1), [bytes(8)], "no list of counts"),
        (array_ext("<f8", [True], 1), [bytes(8)], "no list of counts"),
        (array_ext("<f8", [1] * 6, 1), [bytes(8)], "at most 5 axes"),
        (array_ext("<f8", [1], 0), [bytes(8)], "frame 0 is not there"),
        (array_ext("<f8", [1], 2), [bytes(8)], "frame 2 is not there"),
        (array_ext("<f8", [1], "1"), [bytes(8)], "is not there"),
        ([array_ext("<f8", [1], 1)] * 2, [bytes(8)], "used twice"),
        (array_ext("|b1", [1], 1), [b"\x02"], "other than 0 and 1"),
        (msgpack.ExtType(ARRAY_EXT, b"\xc0"), [], "described by"),
        (msgpack.ExtType(ARRAY_EXT, b""), [], "cut off"),
        (msgpack.ExtType(5, b"x"), [], "extension type"),
        (msgpack.Timestamp(1, 2), [], "extension type"),
        (msgpack.ExtType(STREAM_EXT, msgpack.packb({"type": "liquid"})), [], "stream type"),
        (msgpack.ExtType(STREAM_EXT, msgpack.packb([])), [], "is a map"),
        ({b"bytes": 1}, [], "no text"),
        ({1: 1}, [], "msgpack"),
        (None, [b"spare"], "belongs to no array"),
    ],
)
def test_messages_that_lie_are_refused(content, frames, words):
    with pytest.raises(FormatError, match=words):
        decode(message(content, *frames))


def test_a_stream_inside_a_stream_is_refused():
    inner = msgpack.ExtType(STREAM_EXT, msgpack.packb({"type": "points"}))
    outer = msgpack.ExtType(STREAM_EXT, msgpack.packb({"type": inner}))
    with pytest.raises(FormatError, match="stream inside a stream"):
        decode(message(outer))


def test_a_surface_with_indices_out_of_range_is_refused():
    surface = Surface.from_faces(np.eye(3), [[0, 1, 2]])
    surface.face_vertices[1] = 7
    with pytest.raises(FormatError, match=r"face_vertices\[1\] = 7 is no point"):
        decode(encode(surface))


def test_duplicate_keys_are_refused():
    body = b"\x93\xa4loki\x01\x82\xa1a\x01\xa1a\x02"
    with pytest.raises(FormatError, match="twice"):
        decode([body])


@pytest.mark.parametrize(
    "body",
    [
        b"\x93\xa4loki\x01" + b"\xdd\xff\xff\xff\xff",
        b"\x93\xa4loki\x01" + b"\xdf\xff\xff\xff\xff",
        b"\x93\xa4loki\x01" + b"\xdb\xff\xff\xff\xff",
        b"\x93\xa4loki\x01" + b"\xc9\xff\xff\xff\xff\x01",
        b"\x93\xa4loki\x01" + b"\xdd\x00\x0f\x00\x00" * 200_000,
        b"\x93\xa4loki\x01" + b"\x91" * 500_000 + b"\xc0",
        b"\x93\xa4loki\x01\xc1",
        b"\x93\xa4loki\x01\xc0\xc0",
        b"\x93\xa4loki\x01",
        b"\x93\xa4loki",
        b"",
    ],
)
def test_claimed_sizes_allocate_nothing(body):
    tracemalloc.start()
    with pytest.raises(FormatError):
        decode([body])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(frames=2), "frames"),
        (Limits(total_bytes=100), "bytes"),
        (Limits(header_bytes=10), "frame 0"),
        (Limits(items=5), "items"),
        (Limits(list_length=2), "list of length 3"),
        (Limits(map_length=1), "map of length 3"),
        (Limits(text_bytes=4), "text of length 5"),
        (Limits(depth=1), "nested deeper"),
        (Limits(dimensions=1), "at most 1 axes"),
    ],
)
def test_every_limit_is_kept(limits, words):
    document = {"a": [np.zeros((4, 4)), np.zeros(3), 1], "b": "text5", "c": None}
    decode(encode(document))
    with pytest.raises(FormatError, match=words):
        decode(encode(document), limits=limits)


def test_every_single_byte_change_of_packed_data_is_noticed():
    data = pack({"a": np.arange(3), "text": "loki"})
    for i in range(len(data)):
        damaged = bytearray(data)
        damaged[i] ^= 0x10
        with pytest.raises(FormatError):
            unpack(damaged)


@pytest.mark.parametrize("length", [0, 1, 55, 63, 64, 71, 100, -1])
def test_cut_off_data_is_noticed(length):
    data = pack({"a": np.arange(100)})
    with pytest.raises(FormatError):
        unpack(data[:length])


def test_frames_that_are_no_bytes_are_refused():
    with pytest.raises(FormatError, match="frame 0"):
        decode([object()])
    with pytest.raises(FormatError, match="0 frames"):
        decode([])
