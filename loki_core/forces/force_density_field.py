"""Force Density Field: a force per mass or per volume, constant or sampled from a voxel stream.

    f = w m a(x)   per mass [m/s^2],      f = w V b(x)   per volume [N/m^3],      V = 4/3 pi r^3

The mask w multiplies a painted strength, a voxel mask, and a ball that fades from 1 at its centre's
half radius to 0 at its radius (3 s^2 - 2 s^3). The field is taken at the end-of-step position; its
gradient is left out, so the force is explicit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.voxel_field import FieldSampler
from loki_core.forces.force import Force, ForcePoints
from loki_core.kernels.jit import parallel_kernel, prange
from loki_core.objects.basics.capabilities import Faces, MovedPoints


class ForceDensityField(Behavior, kind="force", varies="vertex"):
    """Push every Object in the Group by a field of force per mass or per volume."""

    value: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0),
        is_spatial=True,
        doc="Constant part of the field [m/s^2 or N/m^3].",
    )
    field: str | None = parameter(
        None, kind="stream", doc="Voxel stream whose channel is added to the constant part."
    )
    channel: str = parameter("force", kind="channel", doc="Vector channel of the voxel stream.")
    per: str = parameter("mass", choices=("mass", "volume"), doc="What the field is a density of.")
    strength: float = parameter(1.0, doc="Factor; paint it to mask the force.")
    mask: str | None = parameter(
        None, kind="stream", doc="Voxel stream whose scalar channel multiplies the force."
    )
    mask_channel: str = parameter("mask", kind="channel", doc="Scalar channel of the mask stream.")
    mask_center: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0),
        unit="m",
        varies="no",  # the ball is one; what it leaves is painted as strength
        is_spatial=True,
        doc="Centre of the ball outside which there is no force.",
    )
    mask_radius: float | None = parameter(
        None,
        unit="m",
        minimum=0.0,
        varies="no",
        doc="Radius of that ball; none acts everywhere.",
    )


class ForceDensityAction(Force, behavior=ForceDensityField):
    """Adds the field's force."""

    settings: ForceDensityField
    reads = ("mass", "radius")  # the radius gives particles their volume

    def __init__(self, behavior: ForceDensityField, target: MovedPoints | Faces) -> None:
        super().__init__(behavior, target)
        self._sampler = FieldSampler(type(behavior).__name__)

    def evaluate(
        self, points: ForcePoints, force: NDArray[Any], jacobian: NDArray[Any] | None
    ) -> None:
        """Add w m a or w V b to the forces."""
        position = points["position"]
        settings = self.settings
        weight = self._weight(points, position)
        density = points["volume"] if settings.per == "volume" else points["mass"]
        value, step = points.resolve("value")
        accumulate_field(density, value, step, weight, force)
        if settings.field is not None:
            sampled = self._sampler.sample(
                self.target.scope, settings.field, settings.channel, components=3, position=position
            )
            accumulate_field(density, sampled, 1, weight, force)

    def _weight(self, points: ForcePoints, position: NDArray[Any]) -> NDArray[Any]:
        settings, dtype = self.settings, position.dtype
        strength, step = points.resolve("strength")
        weight = np.empty(len(position), dtype)
        weight[:] = strength if step else strength[0]
        if settings.mask is not None:
            sampled = self._sampler.sample(
                self.target.scope,
                settings.mask,
                settings.mask_channel,
                components=1,
                position=position,
            )
            weight *= sampled[:, 0]
        if settings.mask_radius is not None:
            centre = self.target.scope.domain.to_relative(np.array(settings.mask_center))
            fade_by_ball(position, centre, float(settings.mask_radius), weight)
        return weight


@parallel_kernel
def accumulate_field(density, value, step, weight, force):
    """Add weight times density [n], a mass or a volume, times value [n or 1, 3] to force [n, 3]."""
    for i in prange(force.shape[0]):
        for axis in range(3):
            force[i, axis] += weight[i] * density[i] * value[i * step, axis]


@parallel_kernel
def fade_by_ball(position, centre, radius, weight):
    """Multiply weight [n] by 1 inside half the radius, falling smoothly to 0 at the radius."""
    for i in prange(position.shape[0]):
        dx = position[i, 0] - centre[0]
        dy = position[i, 1] - centre[1]
        dz = position[i, 2] - centre[2]
        distance = np.sqrt(dx * dx + dy * dy + dz * dz)
        s = min(1.0, max(0.0, 2.0 * (1.0 - distance / radius))) if radius > 0.0 else 0.0
        weight[i] *= s * s * (3.0 - 2.0 * s)
