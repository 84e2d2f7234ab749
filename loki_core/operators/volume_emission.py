"""Volume Emission: a source puts gas, smoke or heat into the volumes of its Group.

    stamp   the materials and the velocity inside the source are what the source says
    add     materials grow by so much a second inside the source
    flux    so much gas a second comes out of the source, with its materials, and pushes the rest

The source is a mesh, whose inside emits, or a voxel stream, which emits where its `mask` channel is
above zero, or its density where it has no mask. A channel of the source overrides the parameter of
the same name, material by material; other channels of the source become materials too. What may
vary over the source is painted on it as `volume_emission_strength` and the like; inside a mesh it
is that of the nearest place on its faces.

A flux Q spread over the source's volume V is a divergence d = w Q / V in the pressure's equation,
and new gas mixes in:  dc/dt = d (c_source - c), which is taken implicitly. The coverage w of a
voxel falls from 1 to 0 across one voxel at the surface of a mesh.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.data.mesh import merge
from loki_core.data.voxel_field import VoxelField
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_core.objects.basics.capabilities import Gas
from loki_core.objects.gas.volume import OWN_CHANNELS
from loki_core.objects.gas.volume_input import cell_positions, in_parts
from loki_core.objects.gas.volume_topology import around_box
from loki_core.objects.particles.source_parameters import (
    is_painted,
    of_source,
    resolve_on_source,
    says,
)
from loki_core.operators.operator import Operator
from loki_core.parallel.reduce import exact_sum
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]

#: Materials that the Behavior itself has a value of.
GIVEN = ("density", "temperature")


class VolumeEmission(Behavior, kind="operator", varies="vertex"):
    """Emit gas, smoke or heat from a mesh or a voxel stream into the volumes of the Group."""

    source: str | None = parameter(None, kind="stream", doc="Mesh or voxel stream that emits.")
    mode: str = parameter("stamp", choices=("stamp", "add", "flux"), doc="How it emits.")
    density: float | None = parameter(
        1.0, doc="Density inside the source, or its growth a second; none leaves it alone."
    )
    temperature: float | None = parameter(
        None, unit="K", doc="Temperature inside the source, or its growth a second."
    )
    velocity: tuple[float, float, float] | None = parameter(
        None, unit="m/s", is_spatial=True, doc="Velocity inside the source; none leaves it alone."
    )
    inherit_velocity: float = parameter(
        0.0, doc="How much of the source's own motion is added to the velocity."
    )
    flux: float = parameter(
        0.0, unit="m^3/s", varies="object", doc="Gas that comes out of the source in flux mode."
    )
    strength: float = parameter(
        1.0, minimum=0.0, maximum=1.0, doc="Coverage factor; 0 turns the source off."
    )

    def create(self, scope: Any) -> list[Any]:
        """Make one Action for each volume, if there is a source."""
        return super().create(scope) if self.source is not None else []


class VolumeEmissionAction(Operator[Gas], behavior=VolumeEmission):
    """Writes the source's values into one Volume."""

    behavior: VolumeEmission
    settings: VolumeEmission

    def __init__(self, behavior: VolumeEmission, target: Gas) -> None:
        super().__init__(behavior, target)
        self._distance: Any = None
        self._nowhere = DiscreteVolume(target.scope.domain, name=f"source of {target.path}")
        self._measured: tuple[Any, NDArray[Any] | None] | None = (
            None  # mesh and velocity that it is of
        )
        self._frame = target.scope.settings.start_frame
        self._position: Any = None  # of the source's points at the end of this frame [m]
        self._previous: Any = None  # and of the frame before
        self._near: Any = None  # positions, which of them are covered, and what is known there
        target.emissions.append(self)
        if behavior.mode == "flux":
            target.need_divergence()
        self._take_source(self._frame)
        stream = self.source
        if isinstance(stream, Voxels):
            for name, channel in stream.channels.items():
                own = name in OWN_CHANNELS or name == "mask" or channel.components != 1
                if not own:
                    target.add_material(name, float(channel.background))

    @property
    def source(self) -> Any:
        """The source as it is now."""
        name = self.behavior.source
        assert name is not None  # or there is no Action
        return self.target.scope.inputs[name]

    def wanted_buckets(self) -> NDArray[np.int32]:
        """Buckets around the source that this rank names."""
        source, domain = self.source, self.target.scope.domain
        if self._is_off() or not sum(source.counts().values()):
            return np.empty((0, 3), np.int32)
        lower, upper = source.bounds()
        return around_box(domain, lower, upper, self.path)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Write the materials that the source may bring; voxels may bring any."""
        behavior, names = self.behavior, list(self.target.materials)
        if not isinstance(self.source, Voxels):
            names = [n for n in names if n in GIVEN and self._says(n)]
        inherits = behavior.inherit_velocity != 0.0 or self._is_painted("inherit_velocity")
        if self._says("velocity") or inherits or isinstance(self.source, Voxels):
            names.append("velocity")
        if behavior.mode == "flux":
            names.append("divergence")
        return stage, replace(declaration, accumulates=tuple(f"volume.{one}" for one in names))

    @property
    def task_data(self) -> dict[str, Any]:
        """Those of the target, and the distance from a mesh."""
        measured = self._distance is not None
        return super().task_data | {"source": self._distance.volume if measured else self._nowhere}

    @task(Stage.EMIT, layout=("source",), communicates=True)
    def emit(self, access: Access, step: Step) -> None:
        """Write the source's values where it covers voxels."""
        self._take_source(step.frame)  # also while it is off: its motion goes on
        target, volume = self.target, self.target.volume
        buckets = volume.buckets
        wanted = self.wanted_buckets()
        rows = _rows_of(buckets, wanted)
        if self._is_off() or not target.scope.domain.comm.any(len(rows) > 0):
            return
        self._measure(wanted)
        share = self._flux_share(rows) if self.settings.mode == "flux" else 0.0
        for part in in_parts(rows):
            cells = cell_positions(volume, "velocity", part)
            cover = self._cover(cells)
            if np.any(cover > 0.0):
                self._emit_materials(access, part, cells, cover, share, step.dt)
            for axis in range(3):
                self._emit_velocity(access, part, axis)
        self._near = None

    # -- parameters on the source ----------------------------------------------------------

    def _is_painted(self, name: str) -> bool:
        return is_painted(self.behavior, name, self.source)

    def _says(self, name: str) -> bool:
        return says(self.behavior, name, self.source, item=self.target)

    def _of_source(self, name: str) -> float:
        return float(of_source(self.behavior, name, self.source, item=self.target, label=self.path))

    def _is_off(self) -> bool:
        """Whether nothing is emitted anywhere."""
        return not self._is_painted("strength") and self._of_source("strength") == 0.0

    def _cover(self, position: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coverage of voxels around positions [n, 3], times the strength there."""
        coverage = self._coverage(position)
        cover: NDArray[np.float64] = self._at("strength", position, coverage) * coverage
        return cover

    def _covered(self, position: NDArray[np.float64]) -> float:
        """Sum of that over positions."""
        if self._is_painted("strength"):
            return float(self._cover(position).sum())
        return self._of_source("strength") * float(self._coverage(position).sum())

    def _at(
        self, name: str, position: NDArray[np.float64], cover: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """A parameter at positions [n, 3] that the source covers, [n] or [n, 3].

        Where it is the same everywhere, [1] or [1, 3].
        """
        resolved = partial(
            resolve_on_source, self.behavior, name, self.source, item=self.target, label=self.path
        )
        if not self._is_painted(name):
            return np.asarray(resolved(carry=self._carried, count=0).values)
        if self._near is None or self._near[0] is not position:
            rows = np.flatnonzero(cover > 0.0)
            self._near = (position, rows, self._places_of(position[rows]))
        _, rows, _ = self._near
        found = resolved(carry=self._carried, count=len(rows)).values
        values = np.zeros((len(position), *found.shape[1:]))
        values[rows] = found
        return values

    def _places_of(self, position: NDArray[np.float64]) -> Any:
        """What tells a channel of the source at positions: places on its faces, or these."""
        if isinstance(self.source, Voxels):
            return position
        from loki_core.objects.colliders.triangles import Triangles
        from loki_core.objects.particles.mesh_to_particles import Nearest

        mesh, domain = self.source, self.target.scope.domain
        label = f'{self.path}: source "{self.behavior.source}"'
        relative = domain.to_relative(mesh.positions)
        placed = Triangles.of(mesh, label=label).at(relative, label=label)
        return Nearest(placed, self._nearest_image(position))

    def _carried(self, location: str, channel: Any) -> NDArray[Any]:
        assert self._near is not None
        places = self._near[2]
        if location != "voxel":
            carried: NDArray[Any] = places.carried(location, channel)
            return carried
        components = self.source.channels[channel].components
        sampled = self._sampled(channel, places, components=components)
        return sampled[:, 0] if components == 1 else sampled

    # -- the source ------------------------------------------------------------------------

    def _take_source(self, frame: int) -> None:
        """Let the source be the one at the end of this frame, and keep where it was before."""
        if frame != self._frame:
            self._previous, self._frame = self._position, frame
        source = self.source
        self._position = None if isinstance(source, Voxels) else source.positions

    def _velocity(self) -> NDArray[Any] | None:
        """Velocity of the source's points since the frame before [m/s], None if not known."""
        now, before = self._position, self._previous
        if before is None or before.shape != now.shape:
            return None
        moved: NDArray[Any] = (now - before) / self.target.scope.settings.frame_duration
        return moved

    def _measure(self, wanted: NDArray[np.int32]) -> None:
        """Measure the distance to a mesh that is new, or moves in another way. Collective."""
        source = self.source
        if isinstance(source, Voxels):
            return
        velocity = None if "velocity" in source.channels["point"] else self._velocity()
        if self._is_measured(source, velocity):
            self._distance.move_within(wanted)
            return
        from loki_core.objects.colliders.signed_distance import narrow_band

        domain = self.target.scope.domain
        moving = source if velocity is None else _with_velocity(source, velocity)
        self._measured = (source, velocity)
        self._distance = narrow_band(
            domain,
            _with_images(moving, domain),
            resolution=self.target.resolution,
            within=wanted,
            label=f'{self.path}: source "{self.behavior.source}"',
        )

    def _is_measured(self, mesh: Any, velocity: NDArray[Any] | None) -> bool:
        if self._measured is None or self._measured[0] is not mesh:
            return False
        before = self._measured[1]
        if before is None or velocity is None:
            return before is velocity
        return np.array_equal(before, velocity)

    def _coverage(self, position: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much of the voxels around positions [n, 3] the source covers, 0 to 1."""
        source = self.source
        if isinstance(source, Voxels):
            name = next((n for n in ("mask", "density") if n in source.channels), None)
            if name is None:
                raise InputError(
                    f'{self.path}: source "{self.behavior.source}" has neither a "mask" nor a '
                    f'"density" channel to say where it emits; it has {sorted(source.channels)}'
                )
            value = self._sampled(name, position, components=1)[:, 0]
            covered: NDArray[np.float64] = (
                np.clip(value, 0.0, 1.0) if name == "mask" else (value > 0.0).astype(np.float64)
            )
            return covered
        distance = self._distance.sample(position).distance
        inside: NDArray[np.float64] = np.clip(0.5 - distance / self.target.voxel_size, 0.0, 1.0)
        return inside

    def _nearest_image(self, position: NDArray[np.float64]) -> NDArray[np.float64]:
        """Positions moved by whole periods to where they are nearest to the source."""
        domain = self.target.scope.domain
        if not any(domain.periodic):
            return position
        lower, upper = self.source.bounds()
        centre = 0.5 * (lower + upper) - domain.origin
        period = np.where(domain.periodic, domain.upper - domain.lower, 1.0)
        turns = np.where(domain.periodic, np.round((centre - position) / period), 0.0)
        moved: NDArray[np.float64] = position + turns * period
        return moved

    def _sampled(
        self, name: str, position: NDArray[np.float64], *, components: int
    ) -> NDArray[np.float64]:
        label = f'{self.path}: source "{self.behavior.source}"'
        field = VoxelField(self.source, name, components=components, label=label)
        position = self._nearest_image(position)
        sampled: NDArray[np.float64] = field.sample(position, self.target.scope.domain).astype(
            np.float64
        )
        return sampled

    def _values(
        self, name: str, position: NDArray[np.float64], cover: NDArray[np.float64]
    ) -> NDArray[np.float64] | None:
        """What the source says of a material at positions, or None if it says nothing."""
        source = self.source
        if isinstance(source, Voxels) and name in source.channels:
            return self._sampled(name, position, components=1)[:, 0]
        if name not in GIVEN or not self._says(name):
            return None
        return self._at(name, position, cover)

    def _flux_share(self, rows: NDArray[np.int32]) -> float:
        """Divergence of a wholly covered voxel [1/s]. Collective."""
        volume = self.target.volume
        sums = [self._covered(cell_positions(volume, "velocity", part)) for part in in_parts(rows)]
        covered = exact_sum(volume.domain.comm, np.array(sums, np.float64))
        if not covered > 0.0:
            return 0.0
        return self._of_source("flux") / (covered * float(self.target.voxel_size) ** 3)

    # -- writing ---------------------------------------------------------------------------

    def _emit_materials(
        self,
        access: Access,
        part: NDArray[np.int32],
        cells: NDArray[np.float64],
        cover: NDArray[np.float64],
        share: float,
        dt: float,
    ) -> None:
        mode, r = self.settings.mode, self.target.resolution
        divergence, covered = share * cover, cover
        if mode == "flux":
            access["volume.divergence"][part, 0] += divergence.reshape(-1, r, r, r)
            cover = dt * divergence / (1.0 + dt * np.maximum(divergence, 0.0))
            cover = np.clip(cover, 0.0, 1.0)
        for name in self.target.materials:
            given = self._values(name, cells, covered)
            if given is None:
                continue
            channel = access[f"volume.{name}"]
            before = channel[part, 0].reshape(-1).astype(np.float64)
            if mode == "add":
                after = before + dt * cover * given
            else:
                after = before + cover * (given - before)
            with np.errstate(over="ignore"):  # what is too large for single precision diverges
                channel[part, 0] = after.reshape(-1, r, r, r)

    def _emit_velocity(self, access: Access, part: NDArray[np.int32], axis: int) -> None:
        target, source = self.target, self.source
        streamed = isinstance(source, Voxels) and "velocity" in source.channels
        given_here = self._says("velocity")
        inherits = (
            self._is_painted("inherit_velocity") or self._of_source("inherit_velocity") != 0.0
        )
        if not given_here and not streamed and not inherits:
            return
        r = target.resolution
        faces = cell_positions(target.volume, "velocity", part, axis=axis)
        cover = self._cover(faces)
        given = np.zeros(len(faces))
        if streamed:
            given += self._sampled("velocity", faces, components=3)[:, axis]
        if given_here:
            given += self._at("velocity", faces, cover)[:, axis]
        if inherits and self._distance is not None:
            share = self._at("inherit_velocity", faces, cover)
            given += share * self._distance.sample(faces).velocity[:, axis]
        velocity = access["volume.velocity"]
        before = velocity[part, axis].reshape(-1).astype(np.float64)
        velocity[part, axis] = (before + cover * (given - before)).reshape(-1, r, r, r)

    # -- state -----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the places that the source's motion starts from."""
        places = {"position": self._position, "previous": self._previous}
        known = {name: place for name, place in places.items() if place is not None}
        return {"frame": self._frame, **known}

    def restore(self, state: dict[str, Any]) -> None:
        """Take the places back; the next substep measures the source anew."""
        self._frame = int(state.get("frame", self.target.scope.settings.start_frame))
        self._position, self._previous = state.get("position"), state.get("previous")
        self._distance = self._measured = None


def _rows_of(buckets: Any, wanted: NDArray[np.int32]) -> NDArray[np.int32]:
    """Local rows of the wanted Buckets that are tracked."""
    from loki_core.kernels.buckets.bucket_hash import find_buckets, pack_buckets

    rows = find_buckets(*buckets.table, codes=pack_buckets(wanted))
    rows = np.unique(rows[(rows >= 0) & (rows < buckets.local_count)])
    return rows.astype(np.int32)


def _with_velocity(mesh: Any, velocity: NDArray[Any]) -> Any:
    """The mesh with velocities of its points."""
    moving = copy.copy(mesh)
    moving.channels = copy.deepcopy(mesh.channels)
    moving.set_channel("point", "velocity", velocity)
    return moving


def _with_images(mesh: Any, domain: GridDomain) -> Any:
    """The mesh, and its images one period away where it crosses a periodic side."""
    for axis in np.flatnonzero(domain.periodic):
        lower, upper = mesh.bounds()
        period = np.zeros(3)
        period[axis] = domain.upper[axis] - domain.lower[axis]
        parts = [mesh]
        if lower[axis] < domain.lower[axis]:
            parts.append(_moved(mesh, period))
        if upper[axis] > domain.upper[axis]:
            parts.append(_moved(mesh, -period))
        mesh = merge(parts) if len(parts) > 1 else mesh
    return mesh


def _moved(mesh: Any, offset: NDArray[np.float64]) -> Any:
    moved = copy.copy(mesh)
    moved.positions = mesh.positions + offset
    return moved
