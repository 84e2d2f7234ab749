"""Voxel Parameters: a Behavior's parameter in the cells and on the faces of a fluid.

    of a gas      its cell channel of that name, such as `dissipation_rate`, a material: it comes
                  with the input or is made by `channels` or an Expression, and goes with the flow
    of a liquid   the channel of its particles: a cell has the mean of those around it,
                  sum w c / sum w, and where there are none what holds for the whole Object

A face has the mean of its two cells, of those that know one. Beyond the Buckets of a gas is the
background of the channel.
A gas has scalar channels alone, so of its vectors only the `_scale` varies. What the flow carries
may come to lie beyond a limit of the parameter by a little; it is cut there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loki_core.behavior import Behavior
from loki_core.kernels.gas.face_points import fill_face_cells
from loki_core.parallel.reduce import exact_sum
from loki_core.parameter import Parameter
from loki_core.sparse_parameters import Resolved, channel_names, resolve

if TYPE_CHECKING:
    from loki_core.objects.basics.capabilities import Faces
    from loki_core.objects.gas.fluid import Fluid

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class VoxelParameter:
    """A parameter on the voxels of one fluid.

    Attributes:
        fluid: Whose.
        cells: Values with ghosts, [b, c, r, r, r]; [1, c, 1, 1, 1] where it is the same everywhere,
            and then in double precision.
        outside: Where no cell knows one, [c].
        step: 0 where it is the same everywhere, else 1.
        origin: Where the values come from.
        is_vector: Whether it has components.
        known: 1 in cells that know one, else 0, shaped as one component; None where all do.
    """

    fluid: Fluid
    cells: Array
    outside: Array
    step: int
    origin: str
    is_vector: bool
    known: Array | None = None

    @property
    def is_zero(self) -> bool:
        """Whether it is nothing anywhere on this rank."""
        return not np.any(self.cells[: self.fluid.volume.buckets.local_count or 1])

    @property
    def number(self) -> float:
        """What it is everywhere."""
        return float(self.cells[0, 0, 0, 0, 0])

    def in_cells(self) -> Array:
        """Of local cells, [b, 1, r, r, r]; [1, 1, 1, 1, 1] where it is the same everywhere."""
        count = self.fluid.volume.buckets.local_count if self.step else 1
        return self.cells[:count, :1]

    def on_faces(self) -> Array:
        """On local faces, [b, 3, r, r, r], of a vector the component across each face.

        Where it is the same everywhere, [1, 1, 1, 1, 1] or [1, 3, 1, 1, 1].
        """
        if not self.step:
            return self.cells
        volume, r = self.fluid.volume, self.fluid.resolution
        found = np.empty((volume.buckets.local_count, 3, r, r, r), self.cells.dtype)
        for axis in range(3):
            component = axis if self.is_vector else 0
            values = self._on_axis(volume.buckets.local, axis, component)
            found[:, axis] = values.reshape(found[:, axis].shape)
        return found

    def of_points(self, part: NDArray[np.int32], axis: int, dtype: DTypeLike) -> Resolved:
        """On the faces across an axis of some Buckets, as `fill_face_points` counts them."""
        count = self.cells.shape[1]
        if not self.step:
            values = self.cells.reshape((1, count) if self.is_vector else 1)
        elif self.is_vector:
            values = np.stack([self._on_axis(part, axis, c) for c in range(count)], axis=1)
        else:
            values = self._on_axis(part, axis, 0)
        return Resolved(np.ascontiguousarray(values, dtype), self.step, self.origin)

    def _on_axis(self, part: NDArray[np.int32], axis: int, component: int) -> Array:
        """One component on the faces across an axis."""
        outside = float(self.outside[component])
        values = np.ascontiguousarray(self.cells[:, component : component + 1])
        if self.known is None:
            return self._mean_of_two(values, part, axis, outside)
        mean = self._mean_of_two(values * self.known, part, axis, 0.0)
        share = self._mean_of_two(self.known, part, axis, 0.0)
        whole = np.full_like(mean, outside)
        found: Array = np.divide(mean, share, out=whole, where=share > 0.0)
        return found

    def _mean_of_two(
        self, values: Array, part: NDArray[np.int32], axis: int, background: float
    ) -> Array:
        mean = np.empty(len(part) * self.fluid.resolution**3, values.dtype)
        neighbours = self.fluid.volume.buckets.neighbours
        fill_face_cells(values, part, neighbours, axis, background, mean)
        return mean


def resolve_on_voxels(fluid: Fluid, behavior: Behavior, name: str, *, label: str) -> VoxelParameter:
    """A parameter on the voxels of a fluid. Collective where it varies.

    Raises:
        SetupError: The parameter has no value.
        InputError: A channel has the wrong shape, or an input gave it a wrong value.
    """
    found = _of_particles if fluid.is_liquid else _of_gas
    return found(fluid, behavior, name, label)


def varying_channels(fluid: Faces, behavior: Behavior, name: str) -> tuple[str, ...]:
    """Channels of a gas, or of the particles of a liquid, that override one parameter."""
    own = channel_names(type(behavior), name)
    wanted = {*own, *(f"{one}_scale" for one in own)}
    return tuple(one for one in fluid.overriding_channels(behavior) if one in wanted)


def _of_gas(fluid: Fluid, behavior: Behavior, name: str, label: str) -> VoxelParameter:
    volume, declared = fluid.volume, behavior.parameters()[name]
    names = varying_channels(fluid, behavior, name)
    local: dict[str, Array] = {}
    outside: dict[str, Array] = {}
    for one in names:
        values = volume.local(one).reshape(-1)
        background = np.array(volume.channel(one).background[:1], values.dtype)
        if not one.endswith("_scale"):
            values, background = _cut(values, declared), _cut(background, declared)
        local[one], outside[one] = values, background
    whole = _in_voxels(fluid, behavior, name, label, outside, 1, np.float64)
    if not names:
        return _uniform(fluid, whole, declared.type.components)
    count, r = volume.buckets.local_count, fluid.resolution
    found = _in_voxels(fluid, behavior, name, label, local, count * r**3, volume.dtype)
    rows = found.values.reshape(count, r, r, r, declared.type.components)
    return _shared(fluid, np.moveaxis(rows, -1, 1), whole.values.reshape(-1), found.origin)


def _cut(values: Array, declared: Parameter) -> Array:
    """What lies beyond a limit, at the limit; what is not finite stays, to be told."""
    low = -np.inf if declared.minimum is None else declared.minimum
    high = np.inf if declared.maximum is None else declared.maximum
    if not values.size or (values.min() >= low and values.max() <= high):
        return values
    cut: Array = np.clip(values, low, high)
    return cut


def _in_voxels(
    fluid: Fluid,
    behavior: Behavior,
    name: str,
    label: str,
    channels: dict[str, Array],
    count: int,
    dtype: DTypeLike,
) -> Resolved:
    return resolve(
        behavior,
        name,
        behavior_label=label,
        channels={"detail": fluid.details, "voxel": channels},
        counts={"voxel": count},
        time=fluid.time,
        target="voxel",
        dtype=dtype,
        frames_per_second=fluid.scope.settings.frames_per_second,
        start_frame=fluid.scope.settings.start_frame,
    )


def _of_particles(liquid: Any, behavior: Behavior, name: str, label: str) -> VoxelParameter:
    from loki_core.objects.liquid.liquid_parts import cell_means

    components, dtype = behavior.parameters()[name].type.components, liquid.volume.dtype
    if not varying_channels(liquid, behavior, name):
        whole = liquid.of_object(behavior, name, label=label)
        return _uniform(liquid, Resolved(np.asarray([whole]), 0, "object"), components)
    found = liquid.resolve(behavior, name, label=label, dtype=dtype)
    known = (cell_means(liquid, np.ones(liquid.particles.count, dtype)) > 0.0).astype(dtype)
    outside = _beside_particles(liquid, behavior, name, label, found, components)
    cells = np.empty((len(known), components + 1, *known.shape[1:]), dtype)
    cells[:, -1] = known
    columns = found.values.reshape(-1, components)
    for c in range(components):
        mean = cell_means(liquid, np.ascontiguousarray(columns[:, c]))
        cells[:, c] = np.where(known, mean, outside[c])
    return _shared(liquid, cells, outside, found.origin, knows=True)


def _beside_particles(
    liquid: Any, behavior: Behavior, name: str, label: str, found: Resolved, components: int
) -> Array:
    """What holds where no particle is: the whole Object's, or the mean where that has none."""
    if getattr(behavior, name) is not None:
        return np.asarray(liquid.of_object(behavior, name, label=label)).reshape(-1)
    comm, values = liquid.scope.domain.comm, found.values.reshape(-1, components)
    sums = [exact_sum(comm, np.ascontiguousarray(column, np.float64)) for column in values.T]
    mean: Array = np.array(sums) / max(comm.total(len(values)), 1)
    return mean


def _uniform(fluid: Fluid, found: Resolved, components: int) -> VoxelParameter:
    one = np.asarray(found.values[:1], np.float64).reshape(1, components, 1, 1, 1)
    return VoxelParameter(fluid, one, one.reshape(-1), 0, found.origin, components > 1)


def _shared(
    fluid: Fluid, local: Array, outside: Array, origin: str, *, knows: bool = False
) -> VoxelParameter:
    """With the ghosts of local cells [b, c, r, r, r]; the last says which are known. Collective."""
    volume, count = fluid.volume, local.shape[1]
    with volume.scratch("parameter", components=count, resolution=fluid.resolution) as channel:
        volume.local(channel.name)[:] = local
        volume.mark_written(channel.name)
        volume.refresh(channel.name)
    cells, known = channel.values, None
    if knows:
        known = np.ascontiguousarray(cells[:, -1:])
        cells, count = cells[:, :-1], count - 1
    return VoxelParameter(fluid, cells, outside, 1, origin, count > 1, known)
