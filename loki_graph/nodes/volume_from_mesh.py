"""Volume from mesh: the inside of a closed surface as voxels, a signed distance or a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from loki_core.behavior import parameter
from loki_core.data.body import Body
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket
from loki_graph.triangle_distance import band_distance, check_closed, inside_of
from loki_graph.voxel_blocks import BLOCK, MAX_VOXELS

if TYPE_CHECKING:
    from loki_graph.evaluate import Context


class VolumeFromMesh(Node):
    """Turn a closed surface or a body into voxels of signed distance (inside below 0) or mask."""

    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in", "mesh"),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", "voxels"),)

    mode: str = parameter("distance", choices=("distance", "mask"), doc="What is stored.")
    voxel_size: float = parameter(0.1, unit="m", minimum=1.0e-6, doc="Edge of a voxel.")
    band: float = parameter(
        3.0,
        minimum=1.0,
        maximum=1000.0,
        doc="Voxels on either side with exact distances; beyond, the distance stays the same.",
    )
    channel: str = parameter("", kind="channel", doc="Its name; empty is the name of the mode.")

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the voxels, whose lattice passes through the world origin."""
        surface = inputs["in"]
        if isinstance(surface, Body):
            surface = surface.boundary_surface()
        if not isinstance(surface, Surface):
            raise InputError(
                f"a volume has an inside, {surface.type_name} have none; use VolumeFromPoints"
            )
        surface.validate("in")
        check_closed(surface)
        name = self.channel or self.mode
        if surface.primitive_count == 0:
            return {"out": Voxels(np.empty((0, 3), np.int32), self.voxel_size)}
        return {"out": self._voxelise(surface, name)}

    def _voxelise(self, surface: Surface, name: str) -> Voxels:
        h = self.voxel_size
        reach = self.band * h if self.mode == "distance" else h
        edge = BLOCK * h
        lower = np.floor((surface.bounds()[0] - reach) / edge)
        counts = np.floor((surface.bounds()[1] + reach) / edge) - lower + 1
        total = float(np.prod(counts)) * BLOCK**3
        if total > MAX_VOXELS:
            raise InputError(
                f"the volume takes {total:.3g} voxels of {h:g} m; at most {MAX_VOXELS} are "
                "allowed: choose a larger voxel_size"
            )
        shape = (int(counts[0]) * BLOCK, int(counts[1]) * BLOCK, int(counts[2]) * BLOCK)
        origin = lower * edge
        triangles = surface.positions.astype(np.float64)[surface.triangles()]
        # in voxels, centres at whole numbers
        scaled = (triangles - origin) / h - 0.5
        inside = inside_of(scaled, shape)
        if self.mode == "mask":
            dense, background = inside.astype(np.float32), 0.0
        else:
            background = float(np.float32(reach))
            distance = band_distance(scaled, shape, limit=self.band) * h
            dense = np.where(inside, -distance, distance).astype(np.float32)
        return Voxels.from_dense(dense, origin, h, name=name, background=background)
