"""Force: an Action that gives f, and optionally df/dx, at single points.

The author of a Force writes `evaluate`; this base owns the Tasks, and runs it on the particles of
solids and on the faces of volumes. By convention derivatives are with respect to the end-of-step
position, so a velocity-dependent force has df/dx = (df/dv) / dt (paper, 5.1). A Force that leaves
the Jacobian alone is integrated explicitly.

A face is a point with the mass of the gas around it. It moves along one axis only, so of f and
df/dx it takes that component, and u* = u + dt f / (m - dt^2 df/dx) (paper, 6.2). What varies by
voxel is on a face the mean of its two cells (`objects/gas/voxel_parameters.py`).

Fluids take what is uniform, an acceleration g of everything, as one vector. Where it varies by
voxel, faces get m (g(x) - g) besides, so that only what differs from g is a force on faces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loki_core.behavior import Behavior
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import AccessError, SetupError
from loki_core.kernels.gas.face_points import add_face_force, fill_face_cells, fill_face_points
from loki_core.objects.basics.capabilities import Faces, MovedPoints
from loki_core.objects.gas.voxel_parameters import VoxelParameter, varying_channels
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task
from loki_core.sparse_parameters import Resolved

Array = NDArray[Any]

BALL = 4.0 / 3.0 * np.pi
BUCKETS_AT_ONCE = 128  # faces of so many are in memory at a time


@dataclass(frozen=True)
class ForcePoints:
    """The points that a Force acts on: an Object's particles, or faces of a volume.

    Besides the channels that the Force declares, `points["volume"]` is the space that a point takes
    [m^3]: a particle's ball, or the voxel around a face.

    Attributes:
        dt: Length of the substep [s].
        time: Time at its end [s], which is when an implicit force acts.
    """

    _force: Force
    _channels: Mapping[str, Array]
    dt: float
    time: float
    _on_faces: Callable[[str, DTypeLike], Resolved] | None = None

    def __getitem__(self, channel: str) -> Array:
        if channel == "volume" and channel not in self._channels and "radius" in self._channels:
            ball: Array = (BALL * self._channels["radius"] ** 3).astype(
                self._channels["radius"].dtype
            )
            return ball
        if channel not in self._channels:
            kind = type(self._force).__name__
            raise AccessError(
                f'{self._force.path}: "{channel}" is used but was never declared; '
                f'add it to {kind}.reads, as in reads = ("{channel}",)'
            )
        return self._channels[channel]

    def resolve(self, parameter: str, dtype: DTypeLike | None = None) -> Resolved:
        """A parameter of the Behavior for every point, as `(values, step)`.

        Its type is that of positions, if none is asked for.
        """
        kind = self._channels["position"].dtype if dtype is None else dtype
        find = self._force.resolve if self._on_faces is None else self._on_faces
        return find(parameter, kind)


class Force(Action[MovedPoints | Faces]):
    """Base of all Forces.

    Class attributes, set by the author:
        reads: Channels that `evaluate` needs besides position and velocity.
        implicit: Whether `evaluate` adds to the Jacobian.
        is_uniform: Whether all of it is `uniform_acceleration`, where fluids are concerned.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    implicit: ClassVar[bool] = False
    is_uniform: ClassVar[bool] = False

    def __init__(self, behavior: Behavior, target: MovedPoints | Faces) -> None:
        super().__init__(behavior, target)
        if isinstance(target, Faces):
            if self.is_uniform:
                target.uniform_forces.append(self.uniform_acceleration)
            else:
                target.need_force()
        if self.implicit:
            target.need_jacobian()

    def tasks(self) -> Iterator[Task]:
        """Only those that the target has points for."""
        on_particles = isinstance(self.target, MovedPoints)
        on_faces = isinstance(self.target, Faces) and self.acts_on_faces
        for one in super().tasks():
            if one.name == "accumulate" and not on_particles:
                continue
            if one.name == "accumulate_on_faces" and not on_faces:
                continue
            yield one

    @property
    def acts_on_faces(self) -> bool:
        """Whether there is more than an acceleration of everything."""
        return not self.is_uniform or bool(self.target.overriding_channels(self.behavior))

    def uniform_acceleration(self) -> NDArray[np.float64]:
        """Acceleration of everything at the current time [m/s^2], of a Force that is uniform."""
        raise SetupError(f"{type(self).__name__} is uniform and must define uniform_acceleration()")

    def evaluate(self, points: ForcePoints, force: Array, jacobian: Array | None) -> None:
        """Add f [N] to force [n, 3], and df/dx [N/m] to jacobian [n, 3, 3] where there is one."""
        raise SetupError(f"{type(self).__name__} is a Force and must define evaluate(...)")

    @task(Stage.EVALUATE_FORCES, accumulates=("particles.force",))
    def accumulate(self, access: Access, step: Step) -> None:
        """Add the force and its Jacobian."""
        declared = access.declaration
        channels = {name.partition(".")[2]: access[name] for name in declared.reads}
        jacobian = access["particles.jacobian"] if self.implicit else None
        points = ForcePoints(self, channels, step.dt, step.time + step.dt)
        self.evaluate(points, access["particles.force"], jacobian)

    @task(
        Stage.EVALUATE_FLUID_FORCES,
        reads=("volume.velocity",),
        accumulates=("volume.force",),
        halo=1,
        corners=True,
        local_sums=True,
    )
    def accumulate_on_faces(self, access: Access, step: Step) -> None:
        """Add the force on faces, and its derivative as a drag."""
        buckets = access.of("volume").buckets
        self._known = self._varying()
        for start in range(0, buckets.local_count, BUCKETS_AT_ONCE):
            part = buckets.local[start : start + BUCKETS_AT_ONCE]
            for axis in range(3):
                self._accumulate_on_part(access, step, part, axis)
        self._known.clear()

    def _accumulate_on_part(
        self, access: Access, step: Step, part: NDArray[np.int32], axis: int
    ) -> None:
        target = self.target
        assert isinstance(target, Faces)
        volume, velocity = access.of("volume"), access["volume.velocity"]
        count = len(part) * target.resolution**3
        dtype, h = velocity.dtype, float(target.voxel_size)
        neighbours = volume.buckets.neighbours
        channels: dict[str, Array] = {
            "position": np.empty((count, 3), dtype),
            "velocity": np.empty((count, 3), dtype),
            "mass": np.full(count, target.face_mass, dtype),
            "volume": np.full(count, h**3, dtype),
            "radius": np.full(count, np.cbrt(h**3 / BALL), dtype),  # the ball of that volume
        }
        fill_face_points(
            velocity, part, volume.buckets.coords, neighbours, axis, h,
            channels["position"], channels["velocity"],
        )  # fmt: skip
        for name in self.reads:
            if name in channels:
                continue
            cells, background = access[f"volume.{name}"], volume.channel(name).background[0]
            channels[name] = np.empty(count, dtype)
            fill_face_cells(cells, part, neighbours, axis, background, channels[name])
        force = np.zeros((count, 3), dtype)
        jacobian = np.zeros((count, 3, 3), dtype) if self.implicit else None
        find = partial(self._on_faces, part, axis)
        points = ForcePoints(self, channels, step.dt, step.time + step.dt, find)
        self.evaluate(points, force, jacobian)
        if self.is_uniform:
            self._leave_what_differs(channels["mass"], force)
        none = velocity[:1]
        add_face_force(
            force,
            np.zeros((1, 3, 3), dtype) if jacobian is None else jacobian,
            int(self.implicit),
            step.dt,
            part,
            axis,
            access["volume.force"],
            access["volume.drag"] if self.implicit else none,
        )

    def _varying(self) -> dict[str, VoxelParameter]:
        """The parameters that vary by voxel. Collective."""
        fluid = self.target
        assert isinstance(fluid, Faces)
        return {
            name: self.on_voxels(name)
            for name, one in self.behavior.parameters().items()
            if one.varies == "vertex" and varying_channels(fluid, self.behavior, name)
        }

    def _on_faces(
        self, part: NDArray[np.int32], axis: int, name: str, dtype: DTypeLike
    ) -> Resolved:
        """A parameter on the faces of some Buckets."""
        if name not in self._known:  # and so is the same everywhere
            self._known[name] = self.on_voxels(name)
        return self._known[name].of_points(part, axis, dtype)

    def _leave_what_differs(self, mass: Array, force: Array) -> None:
        """Of the force of a uniform acceleration leave what the fluid does not have already."""
        force -= mass[:, None] * self.uniform_acceleration().astype(force.dtype)
        assert isinstance(self.target, Faces)
        force *= force.dtype.type(self.target.uniform_part)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add what this Force reads, and the Jacobian if it is implicit."""
        stage, declaration = super().declare(name, stage, declaration)
        if name == "accumulate_on_faces":
            volume = self.target.data.get("volume")
            has = volume.channels if volume is not None else {}
            own = tuple(f"volume.{c}" for c in self.reads if c in has)
            accumulates = declaration.accumulates
            if self.implicit:
                accumulates = (*accumulates, "volume.drag")
            return stage, replace(
                declaration,
                reads=tuple(dict.fromkeys((*declaration.reads, *own))),
                accumulates=accumulates,
            )
        if name != "accumulate":
            return stage, declaration
        wanted = ("position", "velocity", *self.reads)
        reads = dict.fromkeys((*declaration.reads, *(f"particles.{channel}" for channel in wanted)))
        accumulates = declaration.accumulates
        if self.implicit:
            accumulates = (*accumulates, "particles.jacobian")
        return stage, replace(declaration, reads=tuple(reads), accumulates=accumulates)
