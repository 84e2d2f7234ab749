"""Channel from image: paint a channel of a mesh with a texture, by its uv coordinates.

    value = low + (high - low) T(u, v),   T the texture between the centres of its pixels

(0, 0) is the lower left corner of the image and (1, 1) the upper right one. A Collider whose
`channels` name it, or that particles or solids meet where the channel is "friction", has the value
of the closest point of its surface (Alduan, Tena & Otaduy 2015, section 4.2). Values are those of
the image at vertices, and between these those of the mesh: faces have to be as small as what is
painted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from loki_core.behavior import parameter
from loki_core.data.mesh import Mesh
from loki_core.errors import InputError, SetupError, did_you_mean
from loki_graph.file_of_frame import FileOfFrame
from loki_graph.mesh_channels import shallow_copy
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket
from loki_vfx.serialization.images import SUFFIXES, Image, read_image

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

Floats = npt.NDArray[np.float64]

COMPONENTS = ("grey", "red", "green", "blue", "alpha", "colour")
GREY = np.array([0.2126, 0.7152, 0.0722])  # luminance of linear colours, Rec. 709


class ChannelFromImage(FileOfFrame, Node):
    """Paint a channel of a mesh with an image (png, jpg, tif, exr), by its uv coordinates.

    `####` or `%04d` in the path stands for the frame.
    """

    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in"),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", like="in"),)

    path: str = parameter("", doc="The image, relative to the graph's folder.")
    channel: str = parameter("friction", kind="channel", doc="The channel that is painted.")
    uv: str = parameter(
        "uv", kind="channel", doc="Vertex or point channel with the coordinates in the image."
    )
    component: str = parameter(
        "grey", choices=COMPONENTS, doc="What of the image's colour is used."
    )
    low: float = parameter(0.0, doc="Value where the image is 0, black.")
    high: float = parameter(1.0, doc="Value where the image is 1, white.")
    wrap: str = parameter(
        "repeat", choices=("repeat", "clamp"), doc="What is beyond the image: itself, or its rim."
    )
    filter: str = parameter(
        "linear", choices=("linear", "nearest"), doc="Between pixels, or the nearest pixel."
    )
    frame_offset: int = parameter(0, doc="Added to the frame to get the number in the file's name.")

    def validate(self, place: str) -> None:
        """Check that the suffix is one that can be read."""
        suffix = Path(self.path).suffix.lower()
        if self.path and suffix not in SUFFIXES:
            raise SetupError(
                f'{place}.path = "{self.path[:200]}" has the unknown suffix "{suffix}"'
                f"{did_you_mean(suffix, SUFFIXES)}"
            )
        if "\0" in self.path:
            raise SetupError(f"{place}.path holds characters that are not text")

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the mesh with the channel painted where its coordinates are."""
        stream = inputs["in"]
        if not isinstance(stream, Mesh):
            raise InputError(f"{context.place} paints meshes and points, not {stream.type_name}")
        location = self._location(stream, context.place)
        place = np.asarray(stream.channels[location][self.uv], np.float64)
        if place.ndim != 2 or place.shape[1] not in (2, 3):
            raise InputError(f'{context.place}: channel "{self.uv}" has no two numbers each')
        if not np.isfinite(place).all():
            raise InputError(f'{context.place}: channel "{self.uv}" is not finite everywhere')
        image = _component(read_image(self.file_in(context, context.whole_frame)), self.component)
        texture = sampled(image, place[:, :2], wrap=self.wrap, is_linear=self.filter == "linear")
        values = (self.low + (self.high - self.low) * texture).astype(np.float32)
        mesh = shallow_copy(stream)
        mesh.set_channel(location, self.channel, values[:, 0] if values.shape[1] == 1 else values)
        return {"out": mesh}

    def _location(self, mesh: Mesh, place: str) -> str:
        for location in ("vertex", "point"):
            if self.uv in mesh.channels[location]:
                return location
        known = [name for at in ("vertex", "point") for name in mesh.channels[at]]
        raise InputError(
            f'{place}: the mesh has no vertex or point channel "{self.uv}"'
            f"{did_you_mean(self.uv, known)}"
        )


def sampled(image: Image, place: Floats, *, wrap: str, is_linear: bool) -> Floats:
    """Return an image [h, w, c] at places [n, 2], (0, 0) in its lower left corner: [n, c]."""
    height, width = image.shape[:2]
    size = np.array([width, height])
    at = place * size - 0.5  # pixels, whose centres are whole numbers
    at[:, 1] = height - 1 - at[:, 1]  # rows come from above
    if not is_linear:
        x, y = _inside(np.floor(at + 0.5).astype(np.int64), size, wrap).T
        return np.asarray(image[y, x], np.float64)
    first = np.floor(at)
    part = at - first
    found = np.zeros((len(place), image.shape[2]))
    for step in ((0, 0), (1, 0), (0, 1), (1, 1)):
        weight = np.prod(np.where(step, part, 1.0 - part), axis=1)
        x, y = _inside(first.astype(np.int64) + step, size, wrap).T
        found += weight[:, None] * image[y, x]
    return found


def _inside(pixel: npt.NDArray[np.int64], size: Any, wrap: str) -> npt.NDArray[np.int64]:
    return pixel % size if wrap == "repeat" else np.clip(pixel, 0, size - 1)


def _component(image: Image, component: str) -> Image:
    """Return what is asked of an image's colours, [h, w, 1 or 3]."""
    count = image.shape[2]
    colours = np.repeat(image[:, :, :1], 3, axis=2) if count < 3 else image[:, :, :3]
    if component == "colour":
        return colours
    if component == "grey":
        return image[:, :, :1] if count < 3 else (colours @ GREY)[:, :, None].astype(np.float32)
    if component == "alpha":
        if count not in (2, 4):
            raise InputError("the image has no alpha")
        return image[:, :, -1:]
    number = ("red", "green", "blue").index(component)
    return colours[:, :, number : number + 1]
