"""Volume from points: density, distance or mask of particles on sparse voxels.

density    sum_p m_p w(x - x_p) / h^3, with trilinear weights w: mass is conserved
distance   min_p |x - x_p| - radius, cut off at the band
mask       1 where distance < 0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from loki_core.behavior import parameter
from loki_core.data.mesh import Mesh
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError, did_you_mean
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket
from loki_graph.voxel_blocks import BLOCK, blocks_near, voxel_centres

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

Floats = npt.NDArray[np.float64]


class VolumeFromPoints(Node):
    """Turn the points of a stream into voxels of density, distance or mask."""

    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in", "mesh"),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", "voxels"),)

    mode: str = parameter("density", choices=("density", "distance", "mask"), doc="What is stored.")
    voxel_size: float = parameter(0.1, unit="m", minimum=1.0e-6, doc="Edge of a voxel.")
    radius: float = parameter(0.1, unit="m", minimum=0.0, doc="Of a point, for distance and mask.")
    band: float = parameter(
        3.0, minimum=1.0, maximum=1000.0, doc="Voxels outside that still hold a distance."
    )
    mass: float = parameter(1.0, unit="kg", doc="Of a point without a mass channel, for density.")
    channel: str = parameter("", kind="channel", doc="Its name; empty is the name of the mode.")
    carry: tuple[str, ...] = parameter(
        (), doc="Point channels whose weighted mean is stored too, with density."
    )

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the voxels."""
        mesh: Mesh = inputs["in"]
        mesh.validate("in")
        positions = mesh.positions.astype(np.float64)
        name = self.channel or self.mode
        if self.mode == "density":
            return {"out": self._density(mesh, positions, name)}
        return {"out": self._distance(positions, name)}

    def _density(self, mesh: Mesh, positions: Floats, name: str) -> Voxels:
        h = self.voxel_size
        voxels = Voxels(blocks_near(positions, voxel_size=h, reach=h), h, block_resolution=BLOCK)
        channels = mesh.channels["point"]
        mass: Any = np.asarray(channels.get("mass", self.mass), np.float64)
        mass = np.broadcast_to(mass, (len(positions),))
        rows, weights = _trilinear(voxels, positions)
        total = _splat(voxels, rows, weights * mass[:, None])
        voxels.set_channel(name, _as_blocks(voxels, total / h**3).astype(np.float32))
        for carried in self.carry:
            if carried not in channels:
                raise InputError(
                    f'carry: there is no point channel "{carried}"{did_you_mean(carried, channels)}'
                )
            values = channels[carried].astype(np.float64).reshape(len(positions), -1)
            share = weights * mass[:, None]
            parts = [
                np.divide(
                    _splat(voxels, rows, share * values[:, k : k + 1]),
                    total,
                    out=np.zeros_like(total),
                    where=total > 0.0,
                )
                for k in range(values.shape[1])
            ]
            blocks = np.stack([_as_blocks(voxels, part) for part in parts], axis=1)
            voxels.set_channel(carried, blocks.astype(np.float32))
        return voxels

    def _distance(self, positions: Floats, name: str) -> Voxels:
        from scipy.spatial import cKDTree

        h = self.voxel_size
        outside = self.band * h
        reach = self.radius + (outside if self.mode == "distance" else h)
        voxels = Voxels(
            blocks_near(positions, voxel_size=h, reach=reach), h, block_resolution=BLOCK
        )
        if voxels.block_count == 0:
            voxels.set_channel(name, np.empty((0, BLOCK, BLOCK, BLOCK), np.float32))
            return voxels
        tree: Any = cKDTree(positions)
        near, _ = tree.query(voxel_centres(voxels), distance_upper_bound=reach)
        distance = np.minimum(near - self.radius, outside)
        if self.mode == "mask":
            inside = (distance < 0.0).astype(np.float32)
            voxels.set_channel(name, _as_blocks(voxels, inside))
        else:
            blocks = _as_blocks(voxels, distance).astype(np.float32)
            voxels.set_channel(name, blocks, background=float(np.float32(outside)))
        return voxels


def _trilinear(voxels: Voxels, positions: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the 8 voxels around each point as rows of all values, and their weights, [n, 8]."""
    place = (positions - voxels.origin) / voxels.voxel_size - 0.5
    first = np.floor(place).astype(np.int64)
    part = place - first
    order, keys = _sorted_keys(voxels.coords.astype(np.int64))
    rows = np.empty((len(positions), 8), np.int64)
    weights = np.empty((len(positions), 8))
    for corner in range(8):
        offset = np.array([corner & 1, (corner >> 1) & 1, corner >> 2])
        voxel = first + offset
        block, local = np.divmod(voxel, BLOCK)
        found = order[np.searchsorted(keys, _key(block))]
        rows[:, corner] = ((found * BLOCK + local[:, 0]) * BLOCK + local[:, 1]) * BLOCK + local[
            :, 2
        ]
        weights[:, corner] = np.prod(np.where(offset == 1, part, 1.0 - part), axis=1)
    return rows, weights


def _key(coords: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    shifted = coords + (1 << 20)  # not negative: 21 bits each
    return np.asarray((shifted[:, 0] << 42) | (shifted[:, 1] << 21) | shifted[:, 2])


def _sorted_keys(
    coords: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    keys = _key(coords)
    order = np.argsort(keys, kind="stable")
    return order, keys[order]


def _splat(voxels: Voxels, rows: npt.NDArray[np.int64], weights: Floats) -> Floats:
    total = np.bincount(rows.reshape(-1), weights.reshape(-1), minlength=voxels.voxel_count)
    return np.asarray(total, np.float64)


def _as_blocks(voxels: Voxels, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.reshape(voxels.block_count, BLOCK, BLOCK, BLOCK)
