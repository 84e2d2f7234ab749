"""Attribute: make, copy, move, rename and delete channels of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from loki_core.behavior import parameter
from loki_core.data.channels import LOCATIONS, TRANSFORMS
from loki_core.data.mesh import Mesh
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError, did_you_mean
from loki_graph.mesh_channels import promote, shallow_copy
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

OPERATIONS = ("set", "copy", "promote", "rename", "delete")
DTYPES = ("float32", "float64", "int32", "int64", "bool")


class Attribute(Node):
    """Set a channel to a value, copy it, promote it to another location, rename or delete it."""

    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in"),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", like="in"),)

    operation: str = parameter("set", choices=OPERATIONS, doc="What is done.")
    channel: str = parameter("attribute", kind="channel", doc="The channel that it is done to.")
    location: str = parameter("point", choices=LOCATIONS, doc="Where that channel is.")
    size: int = parameter(1, choices=(1, 3), doc="Numbers of one value that is set.")
    value: float = parameter(0.0, doc="What a channel of size 1 is set to.")
    vector: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), doc="What a channel of size 3 is set to."
    )
    dtype: str = parameter("float32", choices=DTYPES, doc="Number type of a channel that is set.")
    transform: str | None = parameter(
        None, choices=TRANSFORMS, doc="How it follows a Transform; none goes by its name."
    )
    to: str = parameter("", kind="channel", doc="New name when copied, renamed or promoted.")
    to_location: str = parameter("point", choices=LOCATIONS, doc="Where a promoted channel goes.")

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the stream with its channels changed; arrays that stay are shared."""
        stream = inputs["in"]
        if isinstance(stream, Voxels):
            return {"out": self._change_voxels(stream)}
        mesh = shallow_copy(stream)
        getattr(self, f"_{self.operation}")(mesh)
        return {"out": mesh}

    # one method for each operation on meshes

    def _set(self, mesh: Mesh) -> None:
        count = mesh.count(self.location)
        one = np.asarray(self.value if self.size == 1 else self.vector)
        values = np.broadcast_to(one, (count, *one.shape)).astype(self.dtype)
        mesh.set_channel(self.location, self.channel, values, transform=self.transform)

    def _copy(self, mesh: Mesh) -> None:
        kind = self.transform
        if self.channel == "position" and self.location == "point":
            values: npt.NDArray[Any] = mesh.positions.copy()
            kind = kind or "point"
        else:
            values = self._found(mesh).copy()
            kind = kind or mesh.channels[self.location].transform_of(self.channel)
        mesh.set_channel(self.location, self._new_name(), values, transform=kind)

    def _promote(self, mesh: Mesh) -> None:
        values = promote(mesh, self._found(mesh), source=self.location, target=self.to_location)
        kind = self.transform or mesh.channels[self.location].transform_of(self.channel)
        mesh.set_channel(self.to_location, self.to or self.channel, values, transform=kind)

    def _rename(self, mesh: Mesh) -> None:
        values = self._found(mesh)
        channels = mesh.channels[self.location]
        kind = self.transform or channels.transform_of(self.channel)
        new = self._new_name()
        if new in channels:
            raise InputError(f'there is a {self.location} channel "{new}" already; delete it first')
        del channels[self.channel]
        channels.set(new, values, transform=kind)

    def _delete(self, mesh: Mesh) -> None:
        self._found(mesh)
        del mesh.channels[self.location][self.channel]

    def _found(self, mesh: Mesh) -> npt.NDArray[Any]:
        channels = mesh.channels[self.location]
        if self.channel not in channels:
            hint = did_you_mean(self.channel, channels)
            raise InputError(
                f'the {mesh.type_name} has no {self.location} channel "{self.channel}"{hint}'
            )
        return channels[self.channel]

    def _new_name(self) -> str:
        if not self.to or self.to == self.channel:
            raise InputError(f'to = "{self.to}": give the new name of channel "{self.channel}"')
        return self.to

    def _change_voxels(self, voxels: Voxels) -> Voxels:
        changed = Voxels(
            voxels.coords,
            voxels.voxel_size,
            origin=voxels.origin,
            block_resolution=voxels.block_resolution,
        )
        changed.channels = dict(voxels.channels)
        if self.operation == "promote":
            raise InputError("voxels have no locations to promote a channel to")
        if self.operation == "set":
            r = voxels.block_resolution
            one = np.atleast_1d(np.asarray(self.value if self.size == 1 else self.vector))
            shape = (voxels.block_count, len(one), r, r, r)
            values = np.broadcast_to(one[None, :, None, None, None], shape).astype(self.dtype)
            changed.set_channel(self.channel, values)
            return changed
        channel = voxels.channel(self.channel)
        if self.operation in ("rename", "copy"):
            new = self._new_name()
            if self.operation == "rename" and new in changed.channels:
                raise InputError(f'there is a channel "{new}" already; delete it first')
            changed.channels[new] = channel
        if self.operation in ("rename", "delete"):
            del changed.channels[self.channel]
        return changed
