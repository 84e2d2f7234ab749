"""Volume Expression: a user's snippet, run over each voxel at a user-facing Stage.

    heat = smoothstep(300.0, 900.0, temperature)
    density = density * exp(-a * dt * heat)
    velocity += dt * vec3(b, 0.0, 0.0)
    if position[1] > 2.0:
        density = 0.0

The language is that of Particle Expressions (loki_core/expressions). Names of cell channels read
and write them; `position` is the world position of the cell's centre. `velocity` is the mean of the
cell's faces, and what a snippet adds to it goes to the faces: each changes by the mean of its two
cells. Face velocities are so changed, never replaced by smoother ones. `dt`, `time`, `frame`, `id`
(of the voxel, the same on any number of ranks) and the four user values `a` to `d` can be read.

Solid cells keep what they have. At Stages before colliders are placed, such as INGEST, only cells
outside the domain box count as solid.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.expressions import ChannelType
from loki_core.expressions.expression_behavior import (
    ExpressionAction,
    ExpressionBehavior,
    channel_kind,
)
from loki_core.kernels.buckets.voxel_places import beside
from loki_core.kernels.gas.mac_grid import SOLID
from loki_core.kernels.jit import parallel_kernel, prange
from loki_core.objects.basics.capabilities import Faces, Gas
from loki_core.objects.gas.volume_input import cell_positions, in_parts
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]

#: Cell channels that an expression must not change: the Object's own bookkeeping.
READ_ONLY_CHANNELS = ("kind", "pressure", "divergence", "compliance")
_AXIS_BITS = 21  # of a voxel's id, for each axis


class VolumeExpression(ExpressionBehavior):
    """Run a snippet of code over each voxel in the Group."""

    channel_form = '"name" or "name:background"'

    new_channels: tuple[str, ...] = parameter(
        (), doc='Channels that the gas shall carry too, as "name" or "name:background".'
    )

    def create(self, scope: Any) -> list[Any]:
        """Make one Action for each fluid; only a gas can carry new channels along."""
        return super().create(scope.narrowed(Gas) if self.new_channels else scope)

    @classmethod
    def takes_detail(cls, detail: str) -> bool:
        """Return whether it is a number, or nothing."""
        return _is_number(detail or "0")


class VolumeExpressionAction(ExpressionAction[Faces], behavior=VolumeExpression):
    """Runs the compiled snippet."""

    data_name = "volume"

    def __init__(self, behavior: VolumeExpression, target: Faces) -> None:
        super().__init__(behavior, target)
        for name, background in behavior.channels_to_create():
            assert isinstance(target, Gas)  # others are not asked to carry any
            target.add_material(name, float(background or 0.0))

    def channel_types(self) -> dict[str, ChannelType]:
        """Return the kinds of the cell channels, and of what is made of the faces."""
        volume = self.target.data["volume"]
        channels = {
            name: ChannelType(kind, writable=name not in READ_ONLY_CHANNELS)
            for name, channel in volume.channels.items()
            if (kind := _kind(volume, channel)) is not None
        }
        channels["position"] = ChannelType("vector", writable=False)
        channels["velocity"] = ChannelType("vector")
        return channels

    @task(Stage.PRE_SOLVE)
    def run(self, access: Access, step: Step) -> None:
        """Run the snippet on every local voxel."""
        volume = access.of("volume")
        if "velocity" not in self.checked.writes:
            self._run_on_parts(access, step, volume, None)
            return
        r = volume.channel("velocity").resolution
        with volume.scratch("velocity_change", components=3, resolution=r) as change:
            self._run_on_parts(access, step, volume, change.values)
            volume.refresh(change.name)
            self._change_faces(access, volume, change.values)

    def _run_on_parts(
        self, access: Access, step: Step, volume: DiscreteVolume, change: Array | None
    ) -> None:
        for part in in_parts(volume.buckets.local):
            self._run_on_part(access, step, volume, part, change)

    def _run_on_part(
        self,
        access: Access,
        step: Step,
        volume: DiscreteVolume,
        part: NDArray[np.int32],
        change: Array | None,
    ) -> None:
        """Run the snippet on some Buckets; write what it adds to cells' velocity to `change`."""
        checked = self.checked
        arrays: dict[str, Array] = {}
        for name in {*checked.reads, *checked.writes} - {"position", "velocity", "id"}:
            arrays[name] = access[f"volume.{name}"][part[0] : part[-1] + 1].reshape(-1)
        solid = self._solid_cells(access, volume, part)
        kept = {name: arrays[name][solid] for name in checked.writes if name in arrays}
        if "id" in checked.channels:
            arrays["id"] = _voxel_ids(volume, part)
        if "position" in checked.channels:
            arrays["position"] = volume.domain.to_world(cell_positions(volume, "velocity", part))
        count = len(part) * volume.channel("velocity").resolution ** 3
        if "velocity" in checked.channels:
            arrays["velocity"] = np.empty((count, 3), volume.dtype)
            average_to_cells(
                access["volume.velocity"], volume.buckets.neighbours, part, arrays["velocity"]
            )
        before = None if change is None else arrays["velocity"].copy()
        self.run_on(arrays, step, count=count)
        for name, values in kept.items():
            arrays[name][solid] = values
        if change is not None:
            added = arrays["velocity"] - before
            added[solid] = 0.0
            r = volume.channel("velocity").resolution
            change[part] = added.reshape(len(part), r, r, r, 3).transpose(0, 4, 1, 2, 3)

    @property
    def precedes_boundaries(self) -> bool:
        """Whether the snippet runs before the substep's boundaries are known."""
        return Stage[self.behavior.stage].order < Stage.UPDATE_BOUNDARIES.order

    def _solid_cells(
        self, access: Access, volume: DiscreteVolume, part: NDArray[np.int32]
    ) -> NDArray[np.intp]:
        """Which cells of some Buckets keep what they have, as indices among them."""
        if not self.precedes_boundaries:
            kind = access["volume.kind"][part[0] : part[-1] + 1]
            return np.flatnonzero(kind.reshape(-1) == SOLID)
        domain = volume.domain
        lower = np.where(domain.periodic, -np.inf, domain.lower)
        upper = np.where(domain.periodic, np.inf, domain.upper)
        if not (np.isfinite(lower).any() or np.isfinite(upper).any()):
            return np.empty(0, np.intp)
        centre = domain.to_world(cell_positions(volume, "velocity", part))
        return np.flatnonzero(((centre < lower) | (centre > upper)).any(axis=1))

    def _change_faces(self, access: Access, volume: DiscreteVolume, change: Array) -> None:
        velocity = access["volume.velocity"]
        everywhere = self.precedes_boundaries
        add_to_faces(
            change,
            volume.buckets.neighbours,
            velocity.dtype.type(0.5),
            velocity if everywhere else access["volume.open_fraction"],
            int(everywhere),
            velocity,
        )

    def touched(self) -> tuple[set[str], set[str]]:
        """Return what the snippet reads and writes, and what tells open faces and cells."""
        reads, writes = super().touched()
        reads -= {"position", "id"}
        if "velocity" in writes:
            reads |= {"velocity"}
        if not self.precedes_boundaries:
            reads |= {"kind"} | ({"open_fraction"} if "velocity" in writes else set())
        return reads, writes

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Ask for the layer of voxels around if the mean of a cell's faces is read."""
        stage, declared = super().declare(name, stage, declaration)
        return stage, replace(declared, halo=1 if "volume.velocity" in declared.reads else 0)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _kind(volume: DiscreteVolume, channel: Any) -> Any:
    """The expression language's kind of a cell channel, or None if it has no such kind."""
    same = channel.resolution == volume.channel("velocity").resolution
    if channel.location != "cell" or channel.components != 1 or not same:
        return None
    return channel_kind(channel.dtype, ())


def _voxel_ids(volume: DiscreteVolume, part: NDArray[np.int32]) -> NDArray[np.int64]:
    """Numbers of voxels by their place on the lattice of the domain, [n]."""
    r = volume.channel("velocity").resolution
    mask = (1 << _AXIS_BITS) - 1
    corner = volume.buckets.coords[part].astype(np.int64) * r
    x, y, z = (
        (corner[:, axis, None] + np.arange(r)) & mask for axis in range(3)
    )  # each [buckets, r]
    ids = (x << 2 * _AXIS_BITS)[:, :, None, None] | (y << _AXIS_BITS)[:, None, :, None]
    numbers: NDArray[np.int64] = (ids | z[:, None, None, :]).reshape(-1)
    return numbers


@parallel_kernel
def average_to_cells(velocity, neighbours, buckets, out):
    """Mean of the two faces of each cell along each axis, out [n, 3]; a missing one is the other.

    Args: velocity [b, 3, r, r, r] with ghosts; neighbours [local, 27]; buckets: those to do.
    """
    r = velocity.shape[2]
    for m in prange(buckets.shape[0]):
        b = buckets[m]
        for i in range(r):
            for j in range(r):
                for k in range(r):
                    n = ((m * r + i) * r + j) * r + k
                    for a in range(3):
                        lower = velocity[b, a, i, j, k]
                        other, x, y, z = beside(neighbours, b, r, a, 1, i, j, k)
                        upper = velocity[other, a, x, y, z] if other >= 0 else lower
                        out[n, a] = 0.5 * (lower + upper)


@parallel_kernel
def add_to_faces(change, neighbours, half, open_fraction, everywhere, velocity):
    """Add to each open lower face the mean of its two cells' change [b, 3, r, r, r].

    If `everywhere` is 1 all faces count as open, and open_fraction is not read. A face without a
    cell below it takes the whole change of the one above.
    """
    r = velocity.shape[2]
    for number in prange(neighbours.shape[0]):
        b = np.int32(number)
        for a in range(3):
            for i in range(r):
                for j in range(r):
                    for k in range(r):
                        if everywhere == 0 and open_fraction[b, a, i, j, k] == 0:
                            continue
                        above = change[b, a, i, j, k]
                        other, x, y, z = beside(neighbours, b, r, a, -1, i, j, k)
                        below = change[other, a, x, y, z] if other >= 0 else above
                        velocity[b, a, i, j, k] += half * (above + below)
