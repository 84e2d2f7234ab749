"""Houdini's JSON, as text and in its binary form: what `.geo` and `.bgeo` files are written in.

The binary form is a stream of tokens after a magic number: one byte says what follows, lengths are
one byte or a marker and 2, 4 or 8 bytes, all little-endian. Two things are beyond JSON: uniform
arrays, which are numpy arrays here, and texts that are defined once and then named by a number
(SideFX, "The .geo and .bgeo file formats"; checked with files that Houdini 17.5 to 18.5 wrote).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.errors import FormatError

MAGIC = b"\x7fNSJb"
DEEPEST = 200  # lists within lists, more than any file has
LONGEST_TEXT = 1 << 28

NULL, BOOL, FALSE, TRUE = 0x00, 0x10, 0x30, 0x31
TOKEN_REF, TEXT, TOKEN_DEFINE, TOKEN_UNDEFINE = 0x26, 0x27, 0x2B, 0x2D
LIST, LIST_END, MAP, MAP_END, UNIFORM = 0x5B, 0x5D, 0x7B, 0x7D, 0x40
SEPARATORS = (0x3A, 0x2C)  # of keys and of values; they say nothing
NUMBERS = {
    0x11: "<i1", 0x12: "<i2", 0x13: "<i4", 0x14: "<i8", 0x18: "<f2", 0x19: "<f4", 0x1A: "<f8",
    0x21: "|u1", 0x22: "<u2",
}  # fmt: skip
CODES = {np.dtype(name): code for code, name in NUMBERS.items()}
LENGTH_BYTES = {0xF2: 2, 0xF4: 4, 0xF8: 8}

Array = npt.NDArray[Any]


def decode(data: bytes | memoryview) -> Any:
    """Return what a file holds, whichever of the two forms it has.

    Uniform arrays of numbers are views into `data`, which cannot be written to.

    Raises:
        FormatError: It is damaged, or something else.
    """
    if bytes(data[:5]) == MAGIC:
        return _Reader(data).document()
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"neither Houdini's binary form nor JSON: {str(error)[:200]}") from error


def encode_binary(document: Any) -> list[bytes | memoryview]:
    """Return the binary form in parts, to be written after one another; arrays are not copied."""
    parts: list[bytes | memoryview] = [MAGIC]
    small = bytearray()

    def flush() -> None:
        if small:
            parts.append(bytes(small))
            small.clear()

    def put_array(values: Array) -> None:
        small.append(UNIFORM)
        if values.dtype == np.bool_:
            words = -(-values.size // 32)
            bits = np.zeros(4 * words, np.uint8)
            packed = np.packbits(values.reshape(-1), bitorder="little")
            bits[: packed.size] = packed
            small.append(BOOL)
            small.extend(_length(values.size))
            small.extend(bits.tobytes())
            return
        plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        if plain.dtype not in CODES:
            raise FormatError(f"Houdini's binary form has no arrays of {values.dtype}")
        small.append(CODES[plain.dtype])
        small.extend(_length(plain.size))
        flush()
        parts.append(plain.reshape(-1).data.cast("B") if plain.size else b"")

    def put(value: Any) -> None:
        if isinstance(value, np.ndarray):
            put_array(value)
        elif isinstance(value, str):
            text = value.encode()
            small.append(TEXT)
            small.extend(_length(len(text)))
            small.extend(text)
        elif value is None:
            small.append(NULL)
        elif isinstance(value, (bool, np.bool_)):
            small.append(TRUE if value else FALSE)
        elif isinstance(value, (int, np.integer)):
            small.append(0x14)
            small.extend(struct.pack("<q", int(value)))
        elif isinstance(value, (float, np.floating)):
            small.append(0x1A)
            small.extend(struct.pack("<d", float(value)))
        elif isinstance(value, dict):
            small.append(MAP)
            for key, item in value.items():
                put(str(key))
                put(item)
            small.append(MAP_END)
        else:
            small.append(LIST)
            for item in value:
                put(item)
            small.append(LIST_END)

    put(document)
    flush()
    return parts


def encode_text(document: Any) -> bytes:
    """Return the text form."""
    return json.dumps(document, default=_plain).encode()


def pairs(value: Any, what: str) -> dict[str, Any]:
    """Return a list of alternating keys and values, or a map, as a dict.

    Raises:
        FormatError: It is neither.
    """
    if isinstance(value, dict):
        return value
    if not isinstance(value, list) or len(value) % 2:
        raise FormatError(f"{what} is no list of keys and values")
    return {str(key): item for key, item in zip(value[::2], value[1::2], strict=True)}


def numbers(values: Any, dtype: Any, what: str) -> Array:
    """Return a list or uniform array as a flat or [n, k] array of a type.

    Raises:
        FormatError: It holds something else.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" and array.size:
            raise FormatError(f"{what} holds something else than numbers")
        return np.asarray(array, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{what} holds something else than numbers: {str(error)[:80]}") from error


class _Reader:
    """Reads one value after the other; every read is checked against the end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = memoryview(data)
        self.at = len(MAGIC)
        self.tokens: dict[int, str] = {}
        self._readers: dict[int, Callable[[int], Any]] = {
            NULL: lambda _: None,
            FALSE: lambda _: False,
            TRUE: lambda _: True,
            BOOL: lambda _: bool(self._byte()),
            TEXT: lambda _: self._text(),
            TOKEN_REF: lambda _: self._token(),
            LIST: self._list,
            MAP: self._map,
            UNIFORM: lambda _: self._uniform(),
        }

    def document(self) -> Any:
        value = self._value(0)
        if value is _END:
            raise self._damaged("it begins with an end")
        return value

    def _damaged(self, what: str) -> FormatError:
        return FormatError(f"damaged at byte {self.at} of {len(self.data)}: {what}")

    def _take(self, count: int) -> memoryview:
        if count < 0 or self.at + count > len(self.data):
            raise self._damaged(f"{count} bytes are announced and not there")
        part = self.data[self.at : self.at + count]
        self.at += count
        return part

    def _byte(self) -> int:
        return self._take(1)[0]

    def _length(self) -> int:
        first = self._byte()
        if first < 0xF1:
            return first
        if first not in LENGTH_BYTES:
            raise self._damaged(f"no length begins with {first:#x}")
        return int.from_bytes(self._take(LENGTH_BYTES[first]), "little")

    def _text(self) -> str:
        count = self._length()
        if count > LONGEST_TEXT:
            raise self._damaged(f"a text of {count} bytes")
        text = bytes(self._take(count))
        try:
            return text.decode("utf8")
        except UnicodeDecodeError:
            return text.decode("latin-1")  # as older programs write their paths

    def _token(self) -> str:
        number = self._length()
        if number not in self.tokens:
            raise self._damaged(f"text {number} was not defined")
        return self.tokens[number]

    def _value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise self._damaged("lists are nested too deeply")
        while True:
            code = self._byte()
            if code == TOKEN_DEFINE:
                number = self._length()
                self.tokens[number] = self._text()
            elif code == TOKEN_UNDEFINE:
                self.tokens.pop(self._length(), None)
            elif code not in SEPARATORS:
                break
        if code in (LIST_END, MAP_END):
            return _END
        if code in self._readers:
            return self._readers[code](depth)
        if code in NUMBERS:
            kind = np.dtype(NUMBERS[code])
            return np.frombuffer(self._take(kind.itemsize), kind)[0].item()
        raise self._damaged(f"no value begins with {code:#x}")

    def _list(self, depth: int) -> list[Any]:
        found = []
        while (value := self._value(depth + 1)) is not _END:
            found.append(value)
        return found

    def _map(self, depth: int) -> dict[str, Any]:
        found = {}
        while (key := self._value(depth + 1)) is not _END:
            value = self._value(depth + 1)
            if not isinstance(key, str) or value is _END:
                raise self._damaged("a map has texts as keys, and a value for each")
            found[key] = value
        return found

    def _uniform(self) -> Array | list[Any]:
        code, count = self._byte(), self._length()
        if code == BOOL:
            bits = np.frombuffer(self._take(-(-count // 32) * 4), np.uint8)
            return np.unpackbits(bits, bitorder="little")[:count].astype(bool)
        if code in (TOKEN_REF, TEXT):
            if count > len(self.data):
                raise self._damaged(f"{count} texts are announced and not there")
            return [self._token() if code == TOKEN_REF else self._text() for _ in range(count)]
        if code not in NUMBERS:
            raise self._damaged(f"no uniform array has type {code:#x}")
        kind = np.dtype(NUMBERS[code])
        return np.frombuffer(self._take(count * kind.itemsize), kind)


_END = object()


def _length(count: int) -> bytes:
    if count < 0xF1:
        return bytes([count])
    if count < 1 << 16:
        return b"\xf2" + struct.pack("<H", count)
    if count < 1 << 32:
        return b"\xf4" + struct.pack("<I", count)
    return b"\xf8" + struct.pack("<Q", count)


def _plain(value: Any) -> Any:
    """What `json` cannot write by itself."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no part of a document")
