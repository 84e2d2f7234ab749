"""Transform: move, turn and scale a stream.

    p' = M T(translate) T(pivot) R(rotate) S(scale) T(-pivot) p

R turns about x, then y, then z (or another order); M is an extra matrix, applied last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from loki_core.behavior import parameter
from loki_core.data.channels import KNOWN_TRANSFORMS
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

Matrix = npt.NDArray[np.float64]
ORDERS = ("xyz", "xzy", "yxz", "yzx", "zxy", "zyx")
LENGTHS = ("distance",)  # voxel channels that hold lengths and grow with the volume


class Transform(Node):
    """Move, turn and scale points, meshes and volumes; channels follow as their kind says."""

    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in"),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", like="in"),)

    translate: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="m", is_spatial=True, doc="Shift."
    )
    rotate: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="rad", doc="Angles about x, y and z."
    )
    order: str = parameter("xyz", choices=ORDERS, doc="Which axis is turned about first.")
    scale: tuple[float, float, float] = parameter((1.0, 1.0, 1.0), doc="Factor along each axis.")
    pivot: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0),
        unit="m",
        is_spatial=True,
        doc="Place that turning and scaling leave where it is.",
    )
    # fmt: off
    matrix: (
        tuple[float, float, float, float,
              float, float, float, float,
              float, float, float, float,
              float, float, float, float]
        | None
    ) = parameter(None, doc="Extra 4x4 matrix for column vectors, row by row, applied last.")
    # fmt: on

    def to_matrix(self) -> Matrix:
        """Return the 4x4 matrix of all parameters, for column vectors."""
        linear = np.diag(np.asarray(self.scale, np.float64))
        for axis in self.order:
            linear = _rotation("xyz".index(axis), self.rotate["xyz".index(axis)]) @ linear
        pivot = np.asarray(self.pivot, np.float64)
        result = np.eye(4)
        result[:3, :3] = linear
        result[:3, 3] = np.asarray(self.translate, np.float64) + pivot - linear @ pivot
        if self.matrix is not None:
            result = np.asarray(self.matrix, np.float64).reshape(4, 4) @ result
        return result

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the moved stream."""
        matrix = self.to_matrix()
        stream = inputs["in"]
        if isinstance(stream, Voxels):
            return {"out": _moved_voxels(stream, matrix)}
        return {"out": stream.transformed(matrix)}


def _rotation(axis: int, angle: float) -> Matrix:
    i, j = (axis + 1) % 3, (axis + 2) % 3
    rotation = np.eye(3)
    rotation[i, i] = rotation[j, j] = np.cos(angle)
    rotation[j, i] = np.sin(angle)
    rotation[i, j] = -np.sin(angle)
    return rotation


def _moved_voxels(voxels: Voxels, matrix: Matrix) -> Voxels:
    """Return voxels on a moved lattice; a lattice cannot be turned, or scaled unevenly."""
    factor = float(matrix[0, 0])
    if not np.array_equal(matrix[:3, :3], factor * np.eye(3)) or factor <= 0.0:
        raise InputError(
            "voxels can be shifted and scaled evenly, not turned, mirrored or stretched; make a "
            "mesh of them first, or transform what they were made from"
        )
    if not np.array_equal(matrix[3], [0.0, 0.0, 0.0, 1.0]):
        raise InputError(f"the matrix {matrix.tolist()} is not affine")
    moved = Voxels(
        voxels.coords,
        voxels.voxel_size * factor,
        origin=voxels.origin * factor + matrix[:3, 3],
        block_resolution=voxels.block_resolution,
    )
    for name, channel in voxels.channels.items():
        grows = name in LENGTHS or (
            channel.components == 3 and KNOWN_TRANSFORMS.get(name) == "vector"
        )
        values: Any = channel.values
        background = channel.background
        if grows and factor != 1.0:
            values = (values * factor).astype(channel.values.dtype)
            background *= factor
        moved.set_channel(name, values, location=channel.location, background=background)
    return moved
