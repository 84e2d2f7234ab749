"""Fluid: an Object whose velocity lives on the faces of a staggered grid; gas and liquid share it.

It knows the box and the solids around it, takes what Forces bring, and is what the Pressure and the
Viscosity Material act on. How velocities are carried along is for the Volume (on the grid) and the
Hybrid Object (by particles) to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior
from loki_core.data.accessors import Access, ChannelData, Declaration
from loki_core.data.discrete_volume import RESOLUTIONS, DiscreteVolume
from loki_core.data.voxels import Voxels
from loki_core.errors import DivergenceError, InputError, SetupError
from loki_core.kernels.gas.extension import FARTHEST, HOLDS, SLIPS
from loki_core.kernels.gas.mac_grid import apply_forces, largest_components, mobility_of_drag
from loki_core.objects.basics.capabilities import Faces
from loki_core.objects.basics.object import Object
from loki_core.objects.basics.override_channels import override_names
from loki_core.objects.gas.surroundings import Surroundings
from loki_core.objects.gas.volume_boundaries import classify, hold_walls, surroundings_of
from loki_core.objects.gas.voxel_parameters import VoxelParameter, resolve_on_voxels
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task

Array = NDArray[Any]


SMALLEST_RESOLUTION = 4  # voxels along a Bucket; traces need a halo of a few


class Fluid(Object, Faces):
    """Base of gas and liquid.

    Attributes:
        volume: Its channels; `data["volume"]`.
        colliders: Fields of solids in the fluid; Colliders add themselves.
        bodies: What the pressure moves, see `constraints/pressure_border.py`; they add themselves.
        boundaries: Actions that say what a side of the box does; they add themselves.
        uniform_forces: Functions that give an acceleration of everything [m/s^2].
        projector: The Pressure Material's Action, or None.
        cut_faces: Faces that colliders cut, once they have been found.
        closed_faces: Those that they close, beside their surface.
        viscous: Whether a Viscosity Material acts, so that walls hold the fluid.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.resolution = self._resolution()
        self.voxel_size = self.scope.domain.bucket_size / self.resolution
        self.volume = DiscreteVolume(self.scope.domain, name=self.path, dtype=self.scope.dtype)
        settings = self.scope.settings
        self.settings = self.behavior.at(
            0.0, frames_per_second=settings.frames_per_second, start_frame=settings.start_frame
        )
        self._add("velocity", components=3, background=self.ambient_velocity)
        self._add("open_fraction", components=3, derived=True)
        self._add("pressure")
        self._add("kind", dtype=np.uint8, derived=True)
        self.colliders: list[Any] = []
        self.bodies: list[Any] = []
        self.boundaries: list[Any] = []
        self.uniform_forces: list[Any] = []
        self.projector: Any = None
        self.cut_faces: Any = None
        self.closed_faces: Any = None
        self.boundaries_of_points: dict[int, Any] = {}  # points in this volume, by Object
        self.viscous = False
        #: Changes whenever kinds or open fractions do; solvers keep their matrices until then.
        self.geometry_version = 0
        self._geometry: Any = None

    @property
    def materials(self) -> tuple[str, ...]:
        """Channels of cells that the fluid carries along."""
        return ()

    @property
    def ambient_velocity(self) -> tuple[float, float, float]:
        """Velocity of what is around [m/s]."""
        return (0.0, 0.0, 0.0)

    def _resolution(self) -> int:
        domain, wanted = self.scope.domain, float(self.settings.voxel_size)
        count = domain.bucket_size / wanted
        allowed = [r for r in RESOLUTIONS if r >= SMALLEST_RESOLUTION]
        resolution = min(allowed, key=lambda r: abs(r / count - 1.0))
        if abs(resolution / count - 1.0) > 1e-6:
            sizes = ", ".join(f"{domain.bucket_size / r:.9g} m" for r in allowed)
            raise SetupError(
                f"{self.path}.voxel_size = {wanted:.9g} m does not divide the Bucket of "
                f"{domain.bucket_size:.9g} m; allowed: {sizes}"
            )
        return resolution

    def _add(
        self,
        name: str,
        *,
        components: int = 1,
        dtype: Any = None,
        background: float | Sequence[float] = 0.0,
        derived: bool = False,
    ) -> None:
        self.volume.add_channel(
            name,
            dtype,
            components=components,
            resolution=self.resolution,
            location="face" if components == 3 else "cell",
            background=background,
            derived=derived,
        )

    @property
    def data(self) -> dict[str, ChannelData]:
        return {"volume": self.volume}

    @property
    def task_data(self) -> dict[str, Any]:
        """Its own, the fields of colliders, and points of others that meet it."""
        data: dict[str, Any] = dict(self.data)
        data |= {f"collider{n}": one.volume for n, one in enumerate(self.colliders)}
        for number, one in enumerate(self.boundaries_of_points.values()):
            data |= {f"points{number}": one.points, f"carrier{number}": one.carrier}
        return data

    def collider_reads(self, *channels: str) -> tuple[str, ...]:
        """Channels of all colliders' fields as Tasks name them; those of samples if none."""
        return tuple(
            f"collider{number}.{channel}"
            for number, one in enumerate(self.colliders)
            for channel in channels or one.volume.channels
        )

    def tasks(self) -> Iterator[Task]:
        """Points are sorted only where there are any."""
        for one in super().tasks():
            if one.name != "sort_points" or self.boundaries_of_points:
                yield one

    @task(Stage.SORT_POINTS)
    def sort_points(self, access: Access, step: Step) -> None:
        """Take the points that meet the fluid, as they are in this Newton iteration."""
        for one in self.boundaries_of_points.values():
            one.take()

    def need_force(self) -> None:
        """Make room for forces on faces [N]; Forces call it."""
        if "force" not in self.volume.channels:
            self._add("force", components=3, derived=True)

    def need_drag(self) -> None:
        """Make room for derivatives -df/du of forces on faces [kg/s]; implicit Forces call it."""
        self.need_force()
        if "drag" not in self.volume.channels:
            self._add("drag", components=3, derived=True)

    def need_jacobian(self) -> None:
        """Make room for what implicit Forces bring: on a volume their drag."""
        self.need_drag()

    def need_divergence(self) -> None:
        """Make room for sources of volume [1/s]."""
        if "divergence" not in self.volume.channels:
            self._add("divergence", derived=True)

    def need_compliance(self) -> None:
        """Have the channel through which solids give way: volume a cell takes up by pressure.

        What is in it is added to the diagonal of the pressure matrix, in the units of that: rho h
        / dt times the change of volume flux by pressure, over h^2. Whoever asks for it writes it
        anew in each substep.
        """
        if "compliance" not in self.volume.channels:
            self._add("compliance", derived=True)

    def need_pores(self) -> None:
        """Make room for solids that share the space of the gas and its pressure.

        On faces: the share of space that they take, that share times their velocity [m/s], and
        how much of a pressure gradient moves them, as a mobility of the gas.
        """
        if "solid_share" not in self.volume.channels:
            for name in ("solid_share", "solid_flux", "solid_give"):
                self._add(name, components=3, derived=True)

    def need_solids(self) -> None:
        """Make room for the velocity of solids on faces [m/s], and how they hold the fluid."""
        if "solid_velocity" not in self.volume.channels:
            self._add("solid_velocity", components=3, derived=True)
            self._add("solid_grip", components=3, dtype=np.uint8, derived=True)
            if self.viscous:  # which asks where exactly solids hold it
                self._add("solid_distance", components=3, background=FARTHEST, derived=True)

    @property
    def keeps_start(self) -> bool:
        """Whether several Newton iterations start from one velocity."""
        return self.scope.settings.newton_iterations > 1

    @property
    def face_mass(self) -> float:
        """Mass of the fluid around a face [kg]."""
        return float(self.settings.density) * self.voxel_size**3

    def met_faces(self) -> Any:
        """Which faces points meet, and the mass these move; None for all, as they are."""
        return None

    def met_reads(self) -> tuple[str, ...]:
        """What a Task reads that asks for those."""
        return ()

    # -- boundaries ------------------------------------------------------------------------

    @task(
        Stage.UPDATE_BOUNDARIES,
        writes=("volume.kind", "volume.open_fraction", "volume.velocity"),
        communicates=True,
    )
    def update_boundaries(self, access: Access, step: Step) -> None:
        """Find what is fluid, solid or ambient, and how open every face is."""
        surroundings = self.surroundings()
        state = (
            self.volume.layout_version,
            surroundings.kinds,
            tuple((collider.version, self.grip_of(collider)) for collider in self.colliders),
        )
        if state != self._geometry:
            self._geometry = state
            self.geometry_version += 1
            classify(self, surroundings)
            self.remember_space()
        hold_walls(self, surroundings, self.volume.local("velocity"))
        if self.colliders:  # sides may change their velocity while the geometry stays
            hold_walls(self, surroundings, self.volume.local("solid_velocity"))
            self.volume.mark_written("solid_velocity")
        if "divergence" in self.volume.channels:  # sources add to it next
            self.volume.local("divergence")[:] = 0.0

    def grip_of(self, collider: Any) -> int:
        """What a collider does to the fluid at its surface: HOLDS it, or lets it slide (SLIPS)."""
        free = ("slip",) if self.viscous else ("slip", "auto")
        return SLIPS if collider.slip in free else HOLDS

    @property
    def some_slip(self) -> bool:
        """Whether the fluid slides along any collider."""
        return any(self.grip_of(collider) == SLIPS for collider in self.colliders)

    @property
    def is_liquid(self) -> bool:
        """Whether the fluid ends at a surface, beyond which there is nothing."""
        return False

    def let_ambient_faces_flow(self) -> None:
        """Let the outermost faces of the air around follow those inside, where there is air."""

    def forces_have_acted(self) -> None:
        """Take note of the velocity before the pressure acts on it. Collective."""

    def acted_reads(self) -> tuple[str, ...]:
        """What a Task reads that says so, besides the velocity."""
        return ()

    def remember_space(self) -> None:
        """Take note of kinds and open fractions, which are new."""

    def hold_known_faces(self) -> None:
        """Give faces of walls and solids their own velocity."""
        velocity = self.volume.local("velocity")
        if self.colliders:
            closed = self.volume.local("open_fraction") == 0.0
            velocity[closed] = self.volume.local("solid_velocity")[closed]
        hold_walls(self, self.surroundings(), velocity)
        self.volume.mark_written("velocity")

    def surroundings(self) -> Surroundings:
        """What lies beyond the sides of the domain box, now."""
        return surroundings_of(self)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Complete the Tasks' declarations with the channels that this volume has."""
        has = self.volume.channels
        extra: dict[str, tuple[str, ...]] = {
            "update_boundaries": ("solid_velocity", "solid_grip", "solid_distance", "divergence"),
            "reset_forces": ("force", "drag", "solid_share", "solid_flux", "solid_give"),
        }
        writes = tuple(f"volume.{c}" for c in extra.get(name, ()) if c in has)
        reads: tuple[str, ...] = ()
        if name == "update_boundaries":
            reads = self.collider_reads()
        if name == "sort_points":
            numbers = range(len(self.boundaries_of_points))
            reads = tuple(f"carrier{n}.{c}" for n in numbers for c in ("id", "position"))
            declaration = replace(declaration, layout=tuple(f"points{n}" for n in numbers))
        if name == "apply":
            wanted = ("force", "drag", "start_velocity")
            reads = tuple(f"volume.{c}" for c in wanted if c in has)
        return stage, replace(
            declaration,
            reads=(*declaration.reads, *reads),
            writes=(*declaration.writes, *writes),
        )

    # -- forces ----------------------------------------------------------------------------

    @task(Stage.RESET_FORCES)
    def reset_forces(self, access: Access, step: Step) -> None:
        """Clear what Forces add to."""
        for name in access.declaration.writes:
            access[name][:] = 0.0

    @task(Stage.APPLY_FLUID_FORCES, reads=("volume.open_fraction",), writes=("volume.velocity",))
    def apply(self, access: Access, step: Step) -> None:
        """Bring the velocity to u*, implicit in drag."""
        velocity = access["volume.velocity"]
        has = {name: int(name in self.volume.channels) for name in ("force", "drag")}
        uniform = self.uniform_acceleration()
        start = access["volume.start_velocity"] if self.keeps_start else velocity
        if not has["force"] and not np.any(uniform) and not self.keeps_start:
            return
        flat = velocity.reshape(-1)
        apply_forces(
            access["volume.force"].reshape(-1) if has["force"] else flat,
            access["volume.drag"].reshape(-1) if has["drag"] else flat,
            has["force"],
            has["drag"],
            start.reshape(-1),
            self.face_mass,
            step.dt,
            uniform,
            access["volume.open_fraction"].reshape(-1),
            self.resolution**3,
            flat,
        )

    @property
    def uniform_part(self) -> float:
        """Part of a uniform acceleration that is not the hydrostatic pressure's around."""
        return 1.0

    def uniform_acceleration(self) -> NDArray[np.float64]:
        """What uniform forces do [m/s^2]."""
        total = np.zeros(3)
        for acceleration in self.uniform_forces:
            total += acceleration()
        return total

    def mobility(self, dt: float) -> Array | None:
        """What a pressure gradient moves of each face; None where it moves all alike."""
        return self.mobility_under_drag(dt)

    def moved_by_pressure(self) -> tuple[str, ...]:
        """Channels beside the velocity that a projection writes: those of bodies that it moves."""
        has = self.bodies and "solid_velocity" in self.volume.channels
        return ("volume.solid_velocity",) if has else ()

    def projection_reads(self) -> tuple[str, ...]:
        """Channels beside kinds, fractions and the velocity that a projection reads."""
        names = (
            "drag", "divergence", "compliance", "solid_velocity", "solid_share", "solid_flux",
            "solid_give",
        )  # fmt: skip
        found = tuple(f"volume.{one}" for one in names if one in self.volume.channels)
        return tuple(one for one in found if one not in self.moved_by_pressure())

    def mobility_under_drag(self, dt: float) -> Array | None:
        """What of each face drag leaves free to move; None where there is no drag."""
        if "drag" not in self.volume.channels:
            return None
        drag = self.volume.local("drag")
        wrong = ~((drag >= 0.0) & np.isfinite(drag))
        text = f"{self.path}: drag on it is negative or not finite"
        self.scope.domain.comm.raise_together(DivergenceError(text) if wrong.any() else None)
        mobility = np.empty_like(drag)
        mobility_of_drag(drag.reshape(-1), self.face_mass, dt, mobility.reshape(-1))
        return mobility

    # -- what others ask -------------------------------------------------------------------

    def time_step_limit(self) -> float:
        """Time in which nothing crosses more than `courant_number` voxels."""
        speed = float(self.bucket_speeds().max(initial=0.0))
        if not speed > 0.0:
            return np.inf
        return float(self.scope.settings.courant_number) * self.voxel_size / speed

    def bucket_speeds(self) -> NDArray[np.float64]:
        """Largest component of the velocity in each local Bucket [m/s]."""
        speeds = np.empty((self.volume.buckets.local_count, 3))
        largest_components(self.volume.local("velocity"), speeds)
        fastest: NDArray[np.float64] = speeds.max(axis=1, initial=0.0)
        return fastest

    def count(self) -> int:
        return self.volume.buckets.local_count * self.resolution**3

    def voxels(self, names: Sequence[str]) -> Voxels:
        """Channels as a voxel stream in world space, this rank's Buckets."""
        buckets = self.volume.buckets
        voxels = Voxels(
            buckets.local_coords,
            self.voxel_size,
            origin=self.scope.domain.origin,
            block_resolution=self.resolution,
        )
        for name in names:
            channel = self.volume.channel(name)
            voxels.set_channel(
                name,
                self.volume.local(name).copy(),
                location=channel.location,
                background=channel.background[0],
            )
        return voxels

    def read(self, channel: str) -> tuple[NDArray[np.int64], Array]:
        """Places on the curve and values [buckets, c, r, r, r] of this rank's Buckets."""
        buckets = self.volume.buckets
        ids = np.arange(buckets.first, buckets.first + buckets.local_count, dtype=np.int64)
        return ids, self.volume.local(channel)

    def write(self, channel: str, values: Array) -> None:
        """Set a channel of all Buckets, in curve order."""
        buckets = self.volume.buckets
        values = np.asarray(values)
        expected = (len(buckets.all_keys), *self.volume.channel(channel).values.shape[1:])
        if values.shape != expected:
            raise InputError(
                f"{self.path}.{channel}: shape {values.shape} given, {expected} expected"
            )
        mine = slice(buckets.first, buckets.first + buckets.local_count)
        self.volume.local(channel)[:] = values[mine]
        self.volume.mark_written(channel)

    # -- sparse parameters -----------------------------------------------------------------

    def overriding_channels(self, behavior: Behavior) -> tuple[str, ...]:
        """Materials that override a parameter of the Behavior in each voxel."""
        present = self.materials
        varying = [n for n, one in behavior.parameters().items() if one.varies == "vertex"]
        names = override_names(type(behavior), *varying) if varying else ()
        return tuple(name for name in names if name in present)

    def on_voxels(self, behavior: Behavior, name: str, *, label: str) -> VoxelParameter:
        """A parameter in cells and on faces. Collective where it varies."""
        return resolve_on_voxels(self, behavior, name, label=label)

    def painted_reads(self, behavior: Behavior) -> tuple[str, ...]:
        """The same as a Task declares them."""
        return tuple(f"volume.{name}" for name in self.overriding_channels(behavior))

    def follow_overrides(self, behavior: Behavior) -> None:
        """Follow them, and make room for forces that are not the same everywhere."""
        super().follow_overrides(behavior)
        if behavior.kind == "force" and self.overriding_channels(behavior):
            self.need_force()
