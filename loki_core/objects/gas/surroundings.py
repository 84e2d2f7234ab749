"""Surroundings of a Volume: what lies beyond the sides of the domain box, for advection.

    OPEN       still air: channels have their background, the velocity goes on as it is inside
    SLIP       a wall: channels are mirrored, the normal velocity is the wall's, the rest mirrored
    NO_SLIP    a wall: the whole velocity is the wall's
    INFLOW     given velocity and given channels
    PERIODIC   the other side of the box

Sides are in the order of `grid_domain.FACES`. Planes are given in voxels from the domain's origin;
mirrors lie on the voxel face nearest to a plane, and traces end on the plane itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import VolumeChannel
from loki_core.data.grid_domain import FACES, GridDomain
from loki_core.errors import SetupError
from loki_core.kernels.buckets.bucket_block import CLAMP, MIRROR, NOTHING

OPEN, SLIP, NO_SLIP, INFLOW, PERIODIC = range(5)
WALLS = (SLIP, NO_SLIP)

#: Stands for a plane that is not there, in voxels; farther than any Bucket.
FAR = 1 << 40

Rules = tuple[NDArray[np.int8], NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Surroundings:
    """What a Volume's channels are outside the box and outside its Buckets.

    Attributes:
        lower: Lower planes of the box in voxels from the domain's origin, [3]; -inf for none.
        upper: Upper planes, [3]; inf for none.
        kinds: One of OPEN, SLIP, NO_SLIP, INFLOW, PERIODIC for each side, [6].
        velocity: Velocity of the wall or of the inflow [m/s], [6, 3].
        inflow: What flows in by channel, one number or one for each side, [6]; other channels
            flow in with their background.
        ambient_velocity: Velocity where no Bucket is stored, for traces that end far away [m/s].
    """

    lower: NDArray[np.float64] = field(default_factory=lambda: np.full(3, -np.inf))
    upper: NDArray[np.float64] = field(default_factory=lambda: np.full(3, np.inf))
    kinds: Sequence[int] = (OPEN,) * 6
    velocity: NDArray[np.float64] = field(default_factory=lambda: np.zeros((6, 3)))
    inflow: Mapping[str, float | Sequence[float]] = field(default_factory=dict)
    ambient_velocity: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        for name, shape in (("lower", (3,)), ("upper", (3,)), ("velocity", (6, 3))):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != shape:
                raise SetupError(f"Surroundings: {name} has shape {array.shape}, expected {shape}")
            object.__setattr__(self, name, array)
        kinds = tuple(int(kind) for kind in self.kinds)
        if len(kinds) != 6 or not all(OPEN <= kind <= PERIODIC for kind in kinds):
            raise SetupError(f"Surroundings: kinds = {kinds}, expected six numbers of 0 to 4")
        object.__setattr__(self, "kinds", kinds)
        for side, kind in enumerate(kinds):
            if kind == PERIODIC and kinds[side ^ 1] != PERIODIC:
                raise SetupError(f"Surroundings: {FACES[side]} is periodic, the other side is not")

    @classmethod
    def of_domain(
        cls,
        domain: GridDomain,
        resolution: int,
        *,
        no_slip: bool = False,
        inflow: Mapping[str, float | Sequence[float]] | None = None,
        ambient_velocity: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> Surroundings:
        """Surroundings that follow from the conditions of the domain's box."""
        codes = {"open": OPEN, "inflow": INFLOW, "periodic": PERIODIC}
        codes["wall"] = NO_SLIP if no_slip else SLIP
        scale = resolution / domain.bucket_size
        return cls(
            lower=domain.relative_lower * scale,
            upper=domain.relative_upper * scale,
            kinds=tuple(codes[condition.kind] for condition in domain.boundaries),
            velocity=np.array([condition.velocity for condition in domain.boundaries]),
            inflow=dict(inflow or {}),
            ambient_velocity=ambient_velocity,
        )

    def planes(self) -> NDArray[np.int64]:
        """Nearest voxel faces to the planes of the box, [2, 3]; far away where there is none.

        A voxel whose middle lies on a plane is inside.
        """
        planes = np.array([np.ceil(self.lower - 0.5), np.floor(self.upper + 0.5)])
        for side, kind in enumerate(self.kinds):
            if kind == PERIODIC:
                planes[side % 2, side // 2] = np.inf
        far = np.array([[-FAR] * 3, [FAR] * 3], dtype=np.float64)
        return np.where(np.isfinite(planes), planes, far).astype(np.int64)

    def walls(self) -> NDArray[np.float64]:
        """Limits that no trace passes, in voxels, [2, 3]."""
        limits = np.array([[-float(FAR)] * 3, [float(FAR)] * 3])
        for side, kind in enumerate(self.kinds):
            place = (self.lower, self.upper)[side % 2][side // 2]
            if kind in WALLS and np.isfinite(place):
                limits[side % 2, side // 2] = place
        return limits

    def rules(self, channels: Sequence[VolumeChannel]) -> Rules:
        """Rules, scales and offsets of all components of channels, [components, 6] each."""
        rows = [
            self._rules_of(channel, c) for channel in channels for c in range(channel.components)
        ]
        dtype = channels[0].dtype
        return (
            np.array([[rule for rule, _, _ in row] for row in rows], dtype=np.int8),
            np.array([[scale for _, scale, _ in row] for row in rows], dtype=dtype),
            np.array([[offset for _, _, offset in row] for row in rows], dtype=dtype),
        )

    def _rules_of(self, channel: VolumeChannel, component: int) -> list[tuple[int, float, float]]:
        return [
            self._velocity_rule(side, component)
            if channel.location == "face"
            else self._cell_rule(side, channel, component)
            for side in range(6)
        ]

    def _cell_rule(
        self, side: int, channel: VolumeChannel, component: int
    ) -> tuple[int, float, float]:
        kind = self.kinds[side]
        if kind == PERIODIC:
            return NOTHING, 0.0, 0.0
        if kind in WALLS:
            return MIRROR, 1.0, 0.0
        if kind == INFLOW:
            if channel.name not in self.inflow:
                return MIRROR, 0.0, channel.background[component]
            return MIRROR, 0.0, float(np.broadcast_to(self.inflow[channel.name], 6)[side])
        return MIRROR, 0.0, channel.background[component]

    def _velocity_rule(self, side: int, component: int) -> tuple[int, float, float]:
        kind = self.kinds[side]
        velocity = float(self.velocity[side, component])
        if kind == PERIODIC:
            return NOTHING, 0.0, 0.0
        if kind == OPEN:
            return CLAMP, 1.0, 0.0
        if kind == INFLOW:
            return MIRROR, 0.0, velocity
        if kind == NO_SLIP or component == side // 2:
            return MIRROR, -1.0, 2.0 * velocity
        return MIRROR, 1.0, 0.0
