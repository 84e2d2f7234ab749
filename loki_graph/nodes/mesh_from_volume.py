"""Mesh from volume: the surface on which a voxel channel has one value, through VTK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from loki_core.behavior import parameter
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket

if TYPE_CHECKING:
    from loki_graph.evaluate import Context


class MeshFromVolume(Node):
    """Make the iso-surface of a voxel channel, facing away from the inside."""

    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in", "voxels"),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", "surface"),)

    channel: str = parameter("", kind="channel", doc="A scalar channel; empty if there is one.")
    value: float = parameter(0.0, doc="The value on the surface.")
    inside: str = parameter(
        "below", choices=("below", "above"), doc="Distances are below inside, densities above."
    )

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the surface."""
        voxels: Voxels = inputs["in"]
        name = self.channel
        if not name:
            if len(voxels.channels) != 1:
                known = ", ".join(voxels.channels) or "none"
                raise InputError(f"the voxels have the channels {known}; choose one")
            name = next(iter(voxels.channels))
        return {"out": iso_surface(voxels, name, self.value, inside_below=self.inside == "below")}


def iso_surface(voxels: Voxels, channel: str, value: float, *, inside_below: bool) -> Surface:
    """Return the surface where a cell channel has a value, shape closed at the background.

    Raises:
        InputError: pyvista is missing, or the channel is not a scalar at cells.
    """
    source = voxels.channel(channel)
    if source.components != 1 or source.location != "cell":
        raise InputError(
            f'channel "{channel}" has {source.components} components at {source.location}s; a '
            "surface needs one number at each cell"
        )
    if voxels.block_count == 0:
        return Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))
    pyvista = _pyvista()
    dense = voxels.to_dense(channel)[0].astype(np.float64)
    # a border of background closes surfaces that end at the last block
    padded = np.pad(dense, 1, constant_values=source.background)
    image = pyvista.ImageData(
        dimensions=padded.shape,
        spacing=(voxels.voxel_size,) * 3,
        origin=voxels.origin + voxels.voxel_size * (voxels.first_voxel() - 0.5),
    )
    image.point_data["values"] = padded.ravel(order="F")
    found = image.contour([value], scalars="values", compute_normals=False)
    faces = np.asarray(found.faces).reshape(-1, 4)[:, 1:]
    if inside_below:  # VTK makes them face lower values
        faces = faces[:, ::-1]
    return Surface.from_faces(np.asarray(found.points, np.float64), np.ascontiguousarray(faces))


def _pyvista() -> Any:
    try:
        import pyvista
    except ImportError as error:
        raise InputError("surfaces of volumes need pyvista: pip install pyvista") from error
    return pyvista
