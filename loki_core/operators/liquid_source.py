"""Liquid Source: liquid that comes out of a mesh, and Liquid Sink, where it goes.

In every substep the places inside the source that no particle is near are filled, as the start is:
at `velocity` v the source so gives its cross-section times v. A `flux` holds it back to a volume a
second; places are then taken in a random order that is the same for any number of ranks. Places in
solids stay empty.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.surface import Surface
from loki_core.errors import InputError
from loki_core.operators.operator import Operator
from loki_core.pipeline.task import Step

Array = NDArray[Any]


class LiquidSource(Behavior, kind="operator"):
    """Let liquid come out of a mesh."""

    source: str | None = parameter(None, kind="stream", doc="Closed mesh that is kept full.")
    velocity: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="m/s", is_spatial=True, doc="Velocity of what comes out."
    )
    flux: float | None = parameter(
        None,
        unit="m^3/s",
        minimum=0.0,
        doc="Most liquid that comes out in a second; none keeps the source full.",
    )

    def empty_stream(self, parameter_name: str) -> Surface:
        """No faces."""
        return Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))

    def create(self, scope: Any) -> list[Any]:
        """Make one Action for each liquid, if there is a source."""
        return super().create(scope) if self.source is not None else []


class LiquidSink(Behavior, kind="operator"):
    """Take away the liquid inside a mesh."""

    source: str | None = parameter(None, kind="stream", doc="Closed mesh that swallows liquid.")

    def empty_stream(self, parameter_name: str) -> Surface:
        """No faces."""
        return Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))

    def create(self, scope: Any) -> list[Any]:
        """Make one Action for each liquid, if there is a sink."""
        return super().create(scope) if self.source is not None else []


class _LiquidMesh(Operator):
    """A mesh in which particles come or go."""

    @classmethod
    def acts_on(cls, item: Any) -> bool:
        """Only on liquids."""
        return hasattr(item, "liquid_sources")

    def placed(self) -> Any:
        """The mesh as it is now, relative to the domain's origin."""
        from loki_core.objects.triangles import Triangles

        mesh = self.target.scope.inputs[self.behavior.source]
        label = f'{self.path}: source "{self.behavior.source}"'
        if not isinstance(mesh, Surface) and not hasattr(mesh, "tetrahedra"):
            raise InputError(f"{label} is a {type(mesh).__name__}; a closed mesh is expected")
        place = self.target.scope.domain.to_relative(mesh.positions)
        return Triangles.of(mesh, label=label).at(place, label=label)

    def near(self, placed: Any) -> NDArray[np.bool_]:
        """Which local particles are in Buckets that the mesh's box touches, shape [n]."""
        particles, size = self.target.particles, self.target.scope.domain.bucket_size
        corners = placed.tree.corners.reshape(-1, 3)
        lower = np.floor(corners.min(axis=0) / size)
        upper = np.floor(corners.max(axis=0) / size)
        coords = particles.buckets.local_coords
        chosen = np.all((coords >= lower) & (coords <= upper), axis=1)
        counts = np.diff(particles.offsets[: len(coords) + 1])
        return np.repeat(chosen, counts)


class LiquidSourceAction(_LiquidMesh, behavior=LiquidSource):
    """Fills one liquid from the source."""

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        self.debt = 0.0  # volume that is due [m^3]
        self._places: tuple[Any, Any, Array] | None = None  # of a mesh, in Buckets of these cuts
        target.liquid_sources.append(self)

    def emit(self, step: Step) -> None:
        """Add what is missing in the source. The particles are in their Buckets. Collective."""
        from loki_core.objects.liquid_seeding import add_particles

        target, placed = self.target, self.placed()
        place = self._inside(placed)
        if len(place):
            place = place[~self._is_taken(place, placed)]
        place = self._due(place[self._is_free(place)], step)
        velocity = np.tile(np.asarray(self.settings.velocity, np.float64), (len(place), 1))
        add_particles(target, place, {"velocity": velocity})

    def _inside(self, placed: Any) -> Array:
        """Places in the source, in Buckets of this rank; found anew when the mesh is another."""
        from loki_core.objects.liquid_seeding import fill_mesh

        target, name = self.target, self.behavior.source
        mesh, cuts = target.scope.inputs[name], target.scope.domain.cuts
        known = self._places
        if known is None or known[0] is not mesh or not np.array_equal(known[1], cuts):
            label = f'{self.path}: source "{name}"'
            place = np.empty((0, 3)) if placed.is_empty else fill_mesh(target, mesh, label)
            self._places = known = (mesh, cuts, place)
        return known[2]

    def _is_taken(self, place: Array, placed: Any) -> NDArray[np.bool_]:
        """Which places have a particle in their part of a voxel, or are in a voxel that is full."""
        target = self.target
        size, spacing = target.voxel_size, target.voxel_size * np.cbrt(target.particle_share)
        position = target.particles.local("position")[self.near(placed)]
        taken = np.isin(_codes(place, spacing), _codes(position, spacing))
        voxels, counts = np.unique(_codes(position, size), return_counts=True)
        wanted = _codes(place, size)
        at = np.minimum(np.searchsorted(voxels, wanted), max(len(voxels) - 1, 0))
        present = np.zeros(len(place), np.int64)
        if len(voxels):
            present = np.where(voxels[at] == wanted, counts[at], 0)
        room = round(1.0 / target.particle_share) - present
        # Of the free places of a voxel as many are filled as particles are missing there.
        order = np.lexsort((taken, wanted))
        first = np.searchsorted(wanted[order], wanted[order], side="left")
        rank = np.empty(len(place), np.int64)
        rank[order] = np.arange(len(place)) - first
        full: NDArray[np.bool_] = taken | (rank >= room)
        return full

    def _is_free(self, place: Array) -> NDArray[np.bool_]:
        """Which places are in no solid."""
        free = np.ones(len(place), bool)
        for collider in self.target.colliders:
            if len(place):
                free &= collider.sample(place).distance > 0.0
        return free

    def _due(self, place: Array, step: Step) -> Array:
        """The places that the flux leaves, in the order of the curve. Collective."""
        if self.settings.flux is None:
            return place
        target = self.target
        comm, volume = target.scope.domain.comm, target.particle_share * target.voxel_size**3
        self.debt += float(self.settings.flux) * step.dt
        wanted = int(self.debt / volume + 1e-9)
        drawn = _draw(place, target, step, self.path)
        everyone = np.sort(np.concatenate(comm.all_gather(drawn)))
        count = min(wanted, len(everyone))
        # What finds no room now comes later, but not all at once.
        self.debt = min(self.debt - count * volume, float(self.settings.flux) * step.dt + volume)
        if count == 0:
            return place[:0]
        chosen: Array = place[drawn <= everyone[count - 1]]
        return chosen

    def state(self) -> dict[str, Any]:
        """What is due."""
        return {"debt": self.debt}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self.debt = float(state.get("debt", 0.0))


class LiquidSinkAction(_LiquidMesh, behavior=LiquidSink):
    """Empties one liquid in the sink."""

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        target.liquid_sinks.append(self)

    def drain(self) -> None:
        """Take particles away that are in the sink."""
        particles, placed = self.target.particles, self.placed()
        if placed.is_empty:
            return
        rows = np.flatnonzero(self.near(placed))
        position = particles.local("position")[rows].astype(np.float64)
        gone = np.zeros(particles.count, bool)
        gone[rows[placed.winding(position) > 0.5]] = True
        particles.remove(gone)


def _codes(place: Array, spacing: float) -> NDArray[np.int64]:
    """Number of the lattice cell that each place is in."""
    cells = np.floor(np.asarray(place, np.float64) / spacing).astype(np.int64) + (1 << 20)
    codes: NDArray[np.int64] = (cells[:, 0] << 42) | (cells[:, 1] << 21) | cells[:, 2]
    return codes


def _draw(place: Array, target: Any, step: Step, path: str) -> Array:
    """A number from 0 to 1 for each place in this step."""
    from loki_core.kernels.emission import fill_uniforms
    from loki_core.kernels.random import random_key

    spacing = target.voxel_size * np.cbrt(target.particle_share)
    drawn = np.empty((len(place), 1))
    key = random_key(step.seed, zlib.crc32(path.encode()), step.substep)
    fill_uniforms(key, _codes(place, spacing), drawn)
    return drawn[:, 0]
