"""Sources and sinks of particle fluids: what Liquid Source and Liquid Sink are to particles.

A source is kept full of particles on a lattice, which moves with the velocity of what comes out:
what enters the mesh with it is free for the next ones. A place that has a particle within
`ROOM` spacings is taken, so a source that is blocked or drowned emits nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.objects.particle_filling import places_inside
from loki_core.operators.liquid_mesh import LiquidMesh
from loki_core.pipeline.task import Step

Array = NDArray[Any]

BALL = 4.0 / 3.0 * np.pi
ROOM = 0.75  # spacings


class _ParticleMesh(LiquidMesh):
    """A mesh in one particle fluid."""

    @classmethod
    def acts_on(cls, item: Any) -> bool:
        """Only on particles that are a fluid."""
        return getattr(item, "fluid", None) is not None and hasattr(item, "derive_channel")

    @property
    def radius(self) -> float:
        """Of the particles that come out [m]."""
        return float(self.target.settings.radius)

    @property
    def spacing(self) -> float:
        """Of these [m]."""
        return float(np.cbrt(BALL) * self.radius)

    def inside_box(self, placed: Any, position: Array, margin: float) -> NDArray[np.bool_]:
        """Which positions [n, 3] are in the box around the mesh."""
        corners = placed.tree.corners.reshape(-1, 3)
        lower, upper = corners.min(axis=0) - margin, corners.max(axis=0) + margin
        return np.asarray(np.all((position >= lower) & (position <= upper), axis=1))


class ParticleFluidSource(_ParticleMesh):
    """Fills one particle fluid from the source."""

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        self.debt = 0.0  # volume that is due [m^3]
        self._told = False
        target.fluid_sources.append(self)
        if behavior.channels:
            from loki_core.objects.mesh_to_particles import make_room

            make_room(target.particles, self.mesh, behavior.channels, label=self.label)

    @property
    def shell(self) -> float | None:
        """Thickness of the shell [m], if it is one."""
        if self.behavior.mode != "shell":
            return None
        return max(float(self.settings.thickness), self.spacing)

    def emit(self, step: Step) -> None:
        """Add what is missing in the source at the end of the substep. Collective."""
        placed = self.placed()
        if placed.is_empty:
            return
        target, spacing = self.target, self.spacing
        way = np.asarray(self.settings.velocity, np.float64) * (step.time + step.dt)
        place = places_inside(
            placed, target.scope.domain, spacing, label=self.label, shift=np.mod(way, spacing),
            shell=self.shell,
        )  # fmt: skip
        place = self._outside_solids(place)
        place = self._due(place[self._is_free(placed, place)], step)
        self._add(place, placed)

    def _is_free(self, placed: Any, place: Array) -> NDArray[np.bool_]:
        """Which places no particle, of any rank, is near to. Collective."""
        from scipy.spatial import cKDTree

        particles, comm = self.target.particles, self.target.scope.domain.comm
        reach = ROOM * self.spacing
        position = particles.local("position")[particles.kept()].astype(np.float64)
        near = position[self.inside_box(placed, position, reach + 0.5 * (self.shell or 0.0))]
        parts = comm.all_gather(np.ascontiguousarray(near).reshape(-1))
        everyone = np.concatenate(parts).reshape(-1, 3)
        if not len(everyone) or not len(place):
            return np.ones(len(place), bool)
        distance, _ = cKDTree(everyone).query(place, distance_upper_bound=reach)
        return np.asarray(~np.isfinite(distance))

    def _outside_solids(self, place: Array) -> Array:
        for collider in self.target.body_colliders:
            place = place[~collider.covers(place)]
        return place

    def _due(self, place: Array, step: Step) -> Array:
        """The places that are filled. The same on every rank. Collective."""
        settings, comm = self.settings, self.target.scope.domain.comm
        count, volume = len(place), BALL * self.radius**3
        if settings.capacity is not None:
            present = comm.total(self.target.count())
            room = max(0, int(settings.capacity) - present)
            if room < count and not self._told:
                self._told = True
                self.target.warning = (
                    f"{self.path}: the fluid has {int(settings.capacity):,} particles, its "
                    "capacity; nothing more comes out of the source while it has them"
                )
            count = min(count, room)
        if settings.flux is not None:
            self.debt += float(settings.flux) * step.dt
            count = min(int(self.debt / volume + 1e-9), count)
            # What finds no room now comes later, but not all at once.
            self.debt = min(self.debt - count * volume, float(settings.flux) * step.dt + volume)
        if count < len(place):  # spread over the source
            chosen = np.linspace(0, len(place), count, endpoint=False).astype(np.int64)
            place = place[chosen]
        return place

    def _add(self, place: Array, placed: Any) -> None:
        """Append particles, each rank its share of them. Collective."""
        particles, domain = self.target.particles, self.target.scope.domain
        first = particles.reserve_ids(len(place))
        rank, size = domain.comm.rank, domain.comm.size
        mine = slice(len(place) * rank // size, len(place) * (rank + 1) // size)
        own = place[mine]
        ids = np.arange(first + mine.start, first + mine.stop, dtype=np.int64)
        radius = self.radius
        values = {
            "position": own.astype(particles.dtype),
            "radius": np.full(len(own), radius),
            "mass": np.full(len(own), BALL * radius**3 * float(self.target.settings.density)),
            **self._carried(own, placed),
        }
        lifetime = self.target.settings.lifetime
        if lifetime is not None:
            values.setdefault("lifetime", np.full(len(own), float(lifetime)))
        particles.append(values, ids=ids)

    def _carried(self, place: Array, placed: Any) -> dict[str, Array]:
        """Velocity, and the mesh's channels that particles have."""
        from loki_core.objects.mesh_to_particles import Nearest

        velocity = np.tile(np.asarray(self.settings.velocity, np.float64), (len(place), 1))
        mesh, along = self.mesh, float(self.settings.normal_velocity)
        if not len(place) or not (along or any(mesh.channels.values())):
            return {"velocity": velocity}
        nearest = Nearest(placed, place)
        values = nearest.channels(mesh, self.target.particles, label=self.label)
        velocity += values.pop("velocity", np.zeros(3))
        if along:
            velocity += along * nearest.normals()
        return {**values, "velocity": velocity}

    def state(self) -> dict[str, Any]:
        """What is due."""
        return {"debt": self.debt}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self.debt = float(state.get("debt", 0.0))


class ParticleFluidSink(_ParticleMesh):
    """Empties one particle fluid in the sink."""

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        target.fluid_sinks.append(self)

    def swallowed(self) -> NDArray[np.bool_]:
        """Which local particles are in the sink, shape [n]."""
        placed = self.placed()
        position = self.target.particles.local("position")
        inside = np.zeros(len(position), bool)
        if placed.is_empty:  # and has neither an inside nor an outside
            return inside
        rows = np.flatnonzero(self.inside_box(placed, position, 0.0))
        inside[rows[placed.winding(position[rows].astype(np.float64)) > 0.5]] = True
        return inside if self.behavior.side == "inside" else ~inside
