"""Field source: a velocity field in a box, so that a graph runs without files.

constant     u = velocity
vortex       u = velocity + omega axis x r  exp(-d^2 / radius^2),  d the distance to the axis
curl_noise   u = velocity + amplitude curl N(x / wavelength + offset), without divergence
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from loki_core.behavior import parameter
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError, SetupError
from loki_core.kernels.basics.noise import curl_noise3
from loki_core.kernels.jit import parallel_kernel, prange
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket
from loki_graph.voxel_blocks import BLOCK, MAX_VOXELS, voxel_centres

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

FIELDS = ("constant", "vortex", "curl_noise")


class FieldSource(Node):
    """Fill a box of voxels with a constant, turning or noisy velocity field."""

    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", "voxels"),)

    field: str = parameter("constant", choices=FIELDS, doc="What is added to the velocity.")
    lower: tuple[float, float, float] = parameter(
        (-1.0, -1.0, -1.0), unit="m", doc="Lower corner of the box."
    )
    upper: tuple[float, float, float] = parameter(
        (1.0, 1.0, 1.0), unit="m", doc="Upper corner; the box is filled up to whole blocks."
    )
    voxel_size: float = parameter(0.1, unit="m", minimum=1.0e-6, doc="Edge of a voxel.")
    channel: str = parameter("velocity", kind="channel", doc="Name of the vector channel.")
    velocity: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="m/s", is_spatial=True, doc="The same everywhere."
    )
    center: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="m", is_spatial=True, doc="A place on the axis of the vortex."
    )
    axis: tuple[float, float, float] = parameter(
        (0.0, 1.0, 0.0), is_spatial=True, doc="Direction of that axis."
    )
    angular_velocity: float = parameter(1.0, unit="rad/s", doc="At the axis of the vortex.")
    radius: float = parameter(
        1.0, unit="m", minimum=1.0e-6, doc="Distance at which the vortex turns 1/e as fast."
    )
    amplitude: float = parameter(1.0, unit="m/s", doc="Strength of the noise.")
    wavelength: float = parameter(
        0.5, unit="m", minimum=1.0e-6, doc="Size of the noise's largest swirls."
    )
    offset: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), doc="Place in the noise, in wavelengths; animate it to let it flow."
    )

    def validate(self, place: str) -> None:
        """Check that the vortex has an axis."""
        if self.axis == (0.0, 0.0, 0.0):
            raise SetupError(f"{place}.axis = (0, 0, 0) is no direction")

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the voxels."""
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        if not (lower < upper).all():
            raise InputError(f"upper = {upper.tolist()} m is not above lower = {lower.tolist()} m")
        edge = BLOCK * self.voxel_size
        # an almost whole number of blocks is that number, whatever round-off says
        counts = np.ceil((upper - lower) / edge - 1.0e-9)
        if float(np.prod(counts)) * BLOCK**3 > MAX_VOXELS:
            raise InputError(
                f"the box takes {float(np.prod(counts)) * BLOCK**3:.3g} voxels of "
                f"{self.voxel_size:g} m; at most {MAX_VOXELS} are allowed: choose a larger "
                "voxel_size"
            )
        coords = np.argwhere(np.ones(np.maximum(counts, 1).astype(np.int64), bool))
        voxels = Voxels(coords, self.voxel_size, origin=lower, block_resolution=BLOCK)
        values = self.velocity_at(voxel_centres(voxels)).astype(np.float32)
        blocks = values.reshape(voxels.block_count, BLOCK, BLOCK, BLOCK, 3)
        voxels.set_channel(self.channel, np.moveaxis(blocks, 4, 1))
        return {"out": voxels}

    def velocity_at(self, places: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return velocities [m/s] at places [m], both of shape [n, 3]."""
        result = np.zeros_like(places)
        if self.field == "curl_noise":
            scaled = places / self.wavelength + np.asarray(self.offset)
            fill_curl_noise(np.ascontiguousarray(scaled), result)
            result *= self.amplitude
        elif self.field == "vortex":
            axis = np.asarray(self.axis) / np.linalg.norm(self.axis)
            arm = places - np.asarray(self.center)
            arm = arm - np.outer(arm @ axis, axis)
            fall = np.exp(-np.sum(arm**2, axis=1, keepdims=True) / self.radius**2)
            result = self.angular_velocity * np.cross(axis, arm) * fall
        return np.asarray(result + np.asarray(self.velocity))


@parallel_kernel
def fill_curl_noise(places: Any, result: Any) -> None:
    """Fill result [n, 3] with curl noise at places [n, 3], in lattice cells."""
    for n in prange(places.shape[0]):
        x, y, z = curl_noise3(places[n, 0], places[n, 1], places[n, 2])
        result[n, 0] = x
        result[n, 1] = y
        result[n, 2] = z
