"""A picture of the gallery: what is simulated, and what is seen of it."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import bpy

from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_vfx.bridges.blender.loki_to_host import show, show_volume
from loki_vfx.bridges.blender.points_display import follow_material
from loki_vfx.bridges.blender.volume_files import volume_path, write_volume

from .stage import AXES, use_material


@dataclass(frozen=True)
class Frame:
    """A frame of a simulation.

    Attributes:
        number: Its number.
        streams: Inputs by name and Objects by path.
        folder: Where volumes are written for Blender.
    """

    number: int
    streams: Mapping[str, Any]
    folder: Path

    def show(self, name: str, material: Any, stream: Any = None) -> Any:
        """Let the object of a name show its stream, or another one, and return it."""
        stream = self.streams[name] if stream is None else stream
        target = bpy.data.objects.get(name)
        if isinstance(stream, Voxels):
            path = volume_path(self.folder, name, self.number)
            if not path.exists():
                write_volume(self.folder, name, self.number, _writable(stream))
            shown = show_volume(self.folder, name, [self.number], AXES, target=target)
        else:
            shown = show(stream, name, AXES, target=target)
        use_material(shown, material)
        if isinstance(stream, Points):
            follow_material(shown)
        return shown


def _writable(voxels: Voxels) -> Voxels:
    """Return voxels of a cache with arrays of their own: openvdb refuses those of a file."""
    copied = Voxels(voxels.coords, voxels.voxel_size, origin=voxels.origin)
    for name, channel in voxels.channels.items():
        copied.channels[name] = replace(channel, values=channel.values.copy())
    return copied


@dataclass(frozen=True)
class Picture:
    """How a scene of the gallery becomes a picture and a clip.

    Attributes:
        dress: Fills an empty scene with light and a camera, and returns a function that shows a
            frame in it.
        options: Of the example, other than its defaults.
        still: The frame of the picture.
        clip: First and last frame of the clip, and the step between its frames.
        samples: Light paths of each pixel: of the picture, and of the clip.
    """

    dress: Callable[[Any], Callable[[Frame], None]]
    still: int
    clip: tuple[int, int, int]
    options: Mapping[str, float] = field(default_factory=dict)
    samples: tuple[int, int] = (128, 16)
