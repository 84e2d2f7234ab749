"""Liquid Source: liquid that comes out of a mesh.

In every substep the places in the source that no particle is near are filled, as the start is: at
`velocity` v the source so gives its cross-section times v. In the source is what is inside the
mesh, or, for a shell, near its faces. A `flux` holds it back to a volume a second, `capacity` to so
many particles in all; places are then taken in a random order that is the same for any number of
ranks. Places in solids stay empty.

That is for liquids on voxels. In particle fluids the places move with the velocity, and those that
enter the mesh are filled (`particle_fluid_source.py`).

New particles have the mesh's channels at the nearest place on it: colour, temperature, what was
painted; a `velocity` of its points is added to that of the source. So do parameters: velocities may
vary over the mesh, what is one for all of it is overridden by its detail channels.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.surface import Surface
from loki_core.objects.basics.capabilities import Liquid
from loki_core.operators.liquid_mesh import SourceMesh, no_faces
from loki_core.pipeline.task import Step

Array = NDArray[Any]


class LiquidSource(Behavior, kind="operator", varies="vertex"):
    """Let liquid come out of a mesh."""

    source: str | None = parameter(None, kind="stream", doc="Mesh that liquid comes out of.")
    mode: str = parameter(
        "inside",
        choices=("inside", "shell"),
        doc="What is kept full: the inside of a closed mesh, or a shell on the faces of any mesh.",
    )
    thickness: float = parameter(
        0.0,
        unit="m",
        minimum=0.0,
        varies="object",
        doc="Thickness of a shell; it is a voxel at least.",
    )
    velocity: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="m/s", is_spatial=True, doc="Velocity of what comes out."
    )
    normal_velocity: float = parameter(
        0.0, unit="m/s", doc="Velocity along the normals of the mesh, which is added."
    )
    flux: float | None = parameter(
        None,
        unit="m^3/s",
        minimum=0.0,
        varies="object",  # a total
        doc="Most liquid that comes out in a second; none keeps the source full.",
    )
    capacity: int | None = parameter(
        None, minimum=0, doc="Particles of the liquid from which on nothing more comes out."
    )
    channels: tuple[str, ...] = parameter(
        (),
        doc="Channels of the mesh that new particles get, beside those that the liquid has "
        'already; "Cd?" where the mesh has one.',
    )

    def empty_stream(self, parameter_name: str) -> Surface:
        """No faces."""
        return no_faces()

    def create(self, scope: Any) -> list[Any]:
        """Make one Action for each liquid, of voxels or of particles, if there is a source."""
        from loki_core.operators.particle_fluid_source import ParticleFluidSource

        if self.source is None:
            return []
        fluids = [item for item in scope.objects if ParticleFluidSource.acts_on(item)]
        return super().create(scope) + [ParticleFluidSource(self, item) for item in fluids]


class LiquidSourceAction(SourceMesh[Liquid], behavior=LiquidSource):
    """Fills one liquid from the source."""

    settings: LiquidSource

    def __init__(self, behavior: LiquidSource, target: Liquid) -> None:
        super().__init__(behavior, target)
        self._places = np.empty((0, 3))
        self._places_of: tuple[Any, ...] = (None,)  # what they were found for
        self._free = np.empty((0, 3))  # of them
        self._free_of: list[Any] = []  # the places, and the solids that they are outside of
        target.liquid_sources.append(self)

    def emit(self, step: Step) -> None:
        """Add what is missing in the source. The particles are in their Buckets. Collective."""
        from loki_core.objects.liquid.liquid_seeding import add_particles

        target, placed = self.target, self.placed()
        place = self._outside_solids(self._inside(placed))
        taken, present = self._is_taken(place, placed)
        # A source that is full is full, wherever in it the particles are.
        missing = target.scope.domain.comm.total(len(place) - present)
        place = self._due(place[~taken], missing, step)
        target.account.note("emitted", len(place))
        add_particles(target, place, self.carried(place, placed))

    @property
    def thinnest(self) -> float:  # type: ignore[override]
        """A voxel."""
        return float(self.target.voxel_size)

    @property
    def reach(self) -> float:  # type: ignore[override]
        """How far from its faces the source reaches [m]."""
        return 0.5 * (self.shell or 0.0)

    def _inside(self, placed: Any) -> Array:
        """Places in the source, in Buckets of this rank; found anew when the mesh is another."""
        from loki_core.objects.liquid.liquid_seeding import fill_mesh

        found_for = (placed, self.shell, self.target.scope.domain.cuts.tobytes())
        if self._places_of[0] is not placed or self._places_of[1:] != found_for[1:]:
            self._places, self._places_of = np.empty((0, 3)), found_for
            if not placed.is_empty:
                self._places = fill_mesh(self.target, self.mesh, self.label, shell=self.shell)
        return self._places

    def _is_taken(self, place: Array, placed: Any) -> tuple[NDArray[np.bool_], int]:
        """Which places have a particle in their part of a voxel, or are in a voxel that is full.

        And how many particles of this rank are in such parts; deep liquid is full of them.
        """
        target = self.target
        if not len(place):
            return np.empty(0, bool), 0
        size, spacing = target.voxel_size, target.voxel_size * np.cbrt(target.particle_share)
        position = target.particles.local("position")[self.near(placed, float(target.voxel_size))]
        parts, held = _codes(place, spacing), _codes(position, spacing)
        taken = np.isin(parts, held)
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
        taken, inside = taken | (rank >= room), int(np.count_nonzero(np.isin(held, parts)))
        if target.band is not None:
            deep = target.band.holds(place)
            taken, inside = taken | deep, inside + int(np.count_nonzero(deep))
        return taken, inside

    def _outside_solids(self, place: Array) -> Array:
        """The places that are in no solid. Collective."""
        colliders, comm = self.target.colliders, self.target.scope.domain.comm
        if not colliders:
            return place
        wanted = [place, *(one.solid_mesh() for one in colliders)]
        if len(wanted) != len(self._free_of) or any(
            one is not other for one, other in zip(wanted, self._free_of, strict=True)
        ):
            self._free_of = wanted
            self._free = place[~np.any([one.covers(place) for one in colliders], axis=0)]
        if comm.total(len(place)) > 0 and comm.total(len(self._free)) == 0:
            self.target.tell_once(f"{self.path}: all of the source is inside of Colliders")
        return self._free

    def _due(self, place: Array, missing: int, step: Step) -> Array:
        """The places that are filled, in the order of the curve. Collective.

        Args:
            missing: Particles that the whole source lacks.
        """
        room, target = self._room(), self.target
        comm, volume = target.scope.domain.comm, target.particle_volume
        total = comm.total(len(place))
        count = max(0, min(missing, total))
        if room is not None and room < count:
            count = room
            target.tell_once(
                f"{self.path}: the liquid has {self.settings.capacity:,} particles, its capacity; "
                "nothing more comes out of the source while it has them"
            )
        count = self.within_flux(count, volume, step.dt)
        if count in (0, total):
            return place[: len(place) if count else 0]
        drawn = _draw(place, target, step, self.path)
        everyone = np.sort(np.concatenate(comm.all_gather(drawn)))
        chosen: Array = place[drawn <= everyone[count - 1]]
        return chosen

    def _room(self) -> int | None:
        """How many particles the capacity leaves, if it is limited. Collective."""
        if self.settings.capacity is None:
            return None
        target = self.target
        present: int = target.scope.domain.comm.total(target.particles.count)
        return max(0, int(self.settings.capacity) - present)


def _codes(place: Array, spacing: float) -> NDArray[np.int64]:
    """Number of the lattice cell that each place is in."""
    cells = np.floor(np.asarray(place, np.float64) / spacing).astype(np.int64) + (1 << 20)
    codes: NDArray[np.int64] = (cells[:, 0] << 42) | (cells[:, 1] << 21) | cells[:, 2]
    return codes


def _draw(place: Array, target: Liquid, step: Step, path: str) -> Array:
    """A number from 0 to 1 for each place in this step."""
    from loki_core.kernels.basics.emission import fill_uniforms
    from loki_core.kernels.basics.random import random_key

    spacing = target.voxel_size * np.cbrt(target.particle_share)
    drawn = np.empty((len(place), 1))
    key = random_key(step.seed, zlib.crc32(path.encode()), step.substep)
    fill_uniforms(key, _codes(place, spacing), drawn)
    return drawn[:, 0]
