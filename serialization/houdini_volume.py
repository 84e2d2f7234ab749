"""Volume primitives of Houdini: a dense box of voxels in tiles of 16 x 16 x 16.

The box is the cube from -1 to 1, taken by a 3 x 3 matrix for row vectors, around the primitive's
point. Within tiles x is fastest, and so it is among tiles. Tiles are "raw" (single precision),
"rawfull", "constant" or "fpreal16"; others ("FP32Range") are refused in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.errors import FormatError
from loki_vfx.serialization.houdini_json import numbers, pairs

TILE = 16
COMPRESSIONS = ["raw", "rawfull", "constant", "fpreal16", "FP32Range"]
LARGEST_VOLUME = 1 << 31

Array = npt.NDArray[Any]


@dataclass(slots=True)
class VolumePrimitive:
    """Values [nx, ny, nz] and where they are."""

    values: npt.NDArray[np.float32]
    transform: npt.NDArray[np.float64]  # [3, 3]: of the cube from -1 to 1, for row vectors
    border: float = 0.0


def volume_of_document(values: dict[str, Any], shared: Any = None) -> VolumePrimitive:
    """Return a volume from the values of its primitive.

    Args:
        shared: Its voxels, where they are stored apart.

    Raises:
        FormatError: It is damaged, or compressed in a way that is not known.
    """
    size = numbers(values.get("res", []), np.int64, "a volume's res").reshape(-1)
    if len(size) != 3 or size.min() < 1 or int(np.prod(size)) > LARGEST_VOLUME:
        raise FormatError(f"a volume has {size.tolist()} voxels")
    transform = numbers(values.get("transform", []), np.float64, "a volume's transform")
    if transform.size != 9:
        raise FormatError("a volume's transform is no matrix of 3 x 3")
    stored = values.get("voxels", []) if shared is None else shared
    voxels = pairs(stored, "a volume's voxels")
    border = pairs(values.get("border", {}), "a volume's border").get("value", 0.0)
    result = np.empty(tuple(size.tolist()), np.float32)
    if "constantarray" in voxels:
        result[:] = float(numbers(voxels["constantarray"], np.float64, "a volume").reshape(-1)[0])
    elif "tiledarray" in voxels:
        _read_tiles(pairs(voxels["tiledarray"], "a volume's tiles"), result)
    else:
        raise FormatError(f"a volume's voxels are stored as {list(voxels)[:3]}")
    return VolumePrimitive(result, transform.reshape(3, 3), float(border))


def volume_document(volume: VolumePrimitive, vertex: int) -> list[Any]:
    """Return the values of a volume's primitive."""
    tiles = []
    for box in _boxes(volume.values.shape):
        block = volume.values[box]
        if block.min() == block.max():
            tiles.append(["compression", 2, "data", float(block.flat[0])])
        else:
            tiles.append(["compression", 0, "data", np.ascontiguousarray(block.T).reshape(-1)])
    return [
        "vertex", vertex,
        "transform", volume.transform.reshape(-1),
        "res", np.array(volume.values.shape, np.int32),
        "border", {"type": "constant", "value": volume.border},
        "compression", {"tolerance": 0.0},
        "voxels", [
            "tiledarray",
            ["version", 1, "compressiontypes", COMPRESSIONS, "tiles", tiles],
        ],
        "visualization", {"mode": "smoke", "iso": 0.0, "density": 1.0},
        "taperx", 1.0,
        "tapery", 1.0,
    ]  # fmt: skip


def _read_tiles(stored: dict[str, Any], result: Array) -> None:
    names = list(stored.get("compressiontypes", stored.get("compressiontype", COMPRESSIONS)))
    tiles = stored.get("tiles", [])
    boxes = list(_boxes(result.shape))
    if len(tiles) != len(boxes):
        raise FormatError(f"a volume has {len(tiles)} tiles; expected {len(boxes)}")
    for box, tile in zip(boxes, tiles, strict=True):
        values = pairs(tile, "a volume's tile")
        number = values.get("compression", 0)
        name = names[number] if isinstance(number, int) and number < len(names) else str(number)
        shape = result[box].shape
        data = numbers(values.get("data", 0.0), np.float32, "a volume's tile")
        if name == "constant" or data.ndim == 0:
            result[box] = data.reshape(-1)[0]
        elif name in ("raw", "rawfull", "fpreal16"):
            full = (TILE, TILE, TILE) if data.size == TILE**3 else shape
            if data.size != full[0] * full[1] * full[2]:
                raise FormatError(f"a volume's tile has {data.size} voxels; expected {shape}")
            block = data.reshape(full[::-1]).T
            result[box] = block[: shape[0], : shape[1], : shape[2]]
        else:
            raise FormatError(
                f'a volume is compressed as "{name[:40]}", which cannot be read: set its '
                "compression to none, or use VDBs"
            )


def _boxes(size: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    nx, ny, nz = ([slice(b, min(b + TILE, n)) for b in range(0, n, TILE)] for n in size)
    for z in nz:
        for y in ny:
            for x in nx:
                yield x, y, z
