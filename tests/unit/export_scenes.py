"""Small frame caches with something of every kind, for tests of exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_vfx.serialization.frame_cache import FrameCacheWriter, Manifest

Streams = dict[str, Any]


def cache_of(folder: Path, frames: dict[int, Streams], **manifest: Any) -> Path:
    facts = {"setup_hash": "a" * 64, "setup": {"name": "shot"}, "fps": 25.0} | manifest
    with FrameCacheWriter(folder, Manifest(**facts)) as writer:
        for frame, streams in frames.items():
            writer.write_frame(frame, streams)
    return folder


def sheet(frame: int, faces: int = 4) -> Surface:
    """A strip of quads that moves up."""
    x = np.repeat(np.arange(faces + 1.0), 2)
    z = np.tile([0.0, 1.0], faces + 1)
    i = 2 * np.arange(faces)
    positions = np.column_stack([x, np.full(len(x), 0.1 * frame), z])
    return Surface.from_faces(positions, np.stack([i, i + 1, i + 3, i + 2], axis=1))


def smoke(frame: int) -> Voxels:
    random = np.random.default_rng(frame)
    voxels = Voxels([[0, 0, 0], [1, 0, 0]], 0.1, origin=(0.0, 1.0, 0.0))
    voxels.set_channel("density", random.random((2, 8, 8, 8), dtype=np.float32))
    velocity = random.random((2, 3, 8, 8, 8), dtype=np.float32)
    voxels.set_channel("velocity", velocity, location="face")
    return voxels
