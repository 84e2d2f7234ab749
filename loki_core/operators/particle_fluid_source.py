"""Sources and sinks of particle fluids: what Liquid Source and Liquid Sink are to particles.

A source has a lattice of places, which moves with the velocity of what comes out. Places that enter
the mesh get a particle, so a jet brings its cross-section times its velocity, whatever gravity does
to it afterwards. A place in the midst of particles is taken, so a source that is blocked or drowned
emits nothing. Where the velocity is not the same for all, or none, there is no
such lattice, and every free place is filled: the source is kept full.

A channel "radius" of the mesh, of one value, is that of the particles that come out, so sources of
one fluid may differ in resolution; "density" is theirs, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.particles.smoothing import prototype
from loki_core.objects.basics.capabilities import Capability, LooseParticles
from loki_core.objects.particles.mesh_to_particles import Nearest, channels_of
from loki_core.objects.particles.particle_filling import BALL, painted_radius, places_inside
from loki_core.objects.particles.source_parameters import is_painted
from loki_core.operators.liquid_mesh import LiquidMesh, SourceMesh
from loki_core.pipeline.task import Step

if TYPE_CHECKING:
    from loki_core.operators.liquid_sink import LiquidSink
    from loki_core.operators.liquid_source import LiquidSource

Array = NDArray[Any]

#: A place is taken if a particle is nearer than these spacings, or the liquid there is denser than
#: that over its density at rest: behind a jet it is 0.3, between drowned particles 0.9.
ROOM, FULL = 0.75, 0.5
SAME = 1e-3  # spacings within which two places are the same


def is_fluid(item: Capability) -> bool:
    """Whether an Object is particles that are a fluid."""
    return isinstance(item, LooseParticles) and item.fluid is not None


def is_in_box(placed: Any, position: Array, margin: float) -> NDArray[np.bool_]:
    """Which positions [n, 3] are in the box around a mesh."""
    corners = placed.tree.corners.reshape(-1, 3)
    lower, upper = corners.min(axis=0) - margin, corners.max(axis=0) + margin
    return np.asarray(np.all((position >= lower) & (position <= upper), axis=1))


class ParticleFluidSource(SourceMesh[LooseParticles]):
    """Fills one particle fluid from the source.

    Attributes:
        way: Which the lattice has moved by [m], [3].
        former: Its places at the end of the last substep [m], [n, 3].
    """

    settings: LiquidSource

    def __init__(self, behavior: LiquidSource, target: LooseParticles) -> None:
        super().__init__(behavior, target)
        self.way, self.former = np.zeros(3), np.empty((0, 3))
        self._told = False
        target.fluid_sources.append(self)

    @classmethod
    def acts_on(cls, item: Capability) -> bool:
        """Only on particles that are a fluid."""
        return is_fluid(item)

    @property
    def radius(self) -> float:
        """Of the particles that come out [m]."""
        return painted_radius(self.mesh, float(self.target.settings.radius), label=self.label)

    @property
    def spacing(self) -> float:
        """Of these [m]."""
        return float(np.cbrt(BALL) * self.radius)

    @property
    def thinnest(self) -> float:  # type: ignore[override]
        """A spacing."""
        return self.spacing

    def emit(self, step: Step) -> None:
        """Add what comes in the substep, where it is at its end. Collective."""
        placed = self.placed()
        if placed.is_empty:
            self.former = np.empty((0, 3))
            return
        target, spacing = self.target, self.spacing
        moved = np.asarray(self.of_mesh("velocity"), np.float64) * step.dt
        self.way = np.mod(self.way + moved, spacing)
        place = places_inside(
            placed, target.scope.domain, spacing, label=self.label, shift=self.way, shell=self.shell
        )
        if not len(place) and not self._told:
            self._told = True
            self.target.warning = (
                f"{self.path}: no particle fits into the source: its mesh has no place of the "
                f"lattice of {spacing:g} m; use a larger mesh or a smaller radius"
            )
        place = self._outside_solids(place)
        entered = self._has_entered(place, moved)
        self.former = place
        place = place[entered]
        self._add(self._due(place[self._is_free(placed, place)], step), placed)

    def _has_entered(self, place: Array, moved: Array) -> NDArray[np.bool_]:
        """Which places were not in the mesh before the lattice moved; all where it does not."""
        from scipy.spatial import cKDTree

        flows = bool(np.any(moved)) and not float(self.of_mesh("normal_velocity"))
        painted = [is_painted(self.behavior, n, self.mesh) for n in ("velocity", "normal_velocity")]
        differs = any(painted) or "velocity" in channels_of(self.mesh)
        if not flows or differs or not len(self.former):
            return np.ones(len(place), bool)
        distance, _ = cKDTree(self.former).query(
            place - moved, distance_upper_bound=SAME * self.spacing
        )
        return np.asarray(~np.isfinite(distance))

    def _is_free(self, placed: Any, place: Array) -> NDArray[np.bool_]:
        """Which places have room among the particles of all ranks. Collective."""
        from scipy.spatial import cKDTree

        particles, comm = self.target.particles, self.target.scope.domain.comm
        kept, support = particles.kept(), float(self.target.fluid.settings.support)
        position = particles.local("position")[kept].astype(np.float64)
        spacing = np.cbrt(BALL) * particles.local("radius")[kept].astype(np.float64)
        # Between particles of two sizes it is the mean of their spacings that counts.
        largest = comm.maximum(float(spacing.max(initial=0.0)))
        reach = 0.5 * support * (self.spacing + largest)
        near = is_in_box(placed, position, reach + 0.5 * (self.shell or 0.0))
        parts = comm.all_gather(np.column_stack((position, spacing))[near].reshape(-1))
        everyone = np.concatenate(parts).reshape(-1, 4)
        if not len(everyone) or not len(place):
            return np.ones(len(place), bool)
        pairs = cKDTree(place).sparse_distance_matrix(
            cKDTree(everyone[:, :3]), reach, output_type="ndarray"
        )
        theirs = everyone[pairs["j"], 3]
        apart = pairs["v"] / (0.5 * (self.spacing + theirs))
        left = np.maximum(1.0 - apart / support, 0.0)
        share = prototype(support).norm * left**4 * (1.0 + 4.0 * apart / support)
        share *= (theirs / (0.5 * support * (self.spacing + theirs))) ** 3
        filled = np.bincount(pairs["i"], share, minlength=len(place)).astype(np.float64)
        filled[pairs["i"][apart < ROOM]] = np.inf
        return np.asarray(filled < FULL)

    def _outside_solids(self, place: Array) -> Array:
        for collider in self.target.body_colliders:
            place = place[~collider.covers(place)]
        return place

    def _due(self, place: Array, step: Step) -> Array:
        """The places that are filled. The same on every rank. Collective."""
        settings, count = self.settings, len(place)
        if settings.capacity is not None:
            present = self.target.scope.domain.comm.total(self.target.count())
            room = max(0, int(settings.capacity) - present)
            if room < count and not self._told:
                self._told = True
                self.target.warning = (
                    f"{self.path}: the fluid has {int(settings.capacity):,} particles, its "
                    "capacity; nothing more comes out of the source while it has them"
                )
            count = min(count, room)
        speed = float(np.linalg.norm(self.of_mesh("velocity")))
        pause = self.spacing / speed if speed > 0.0 else 0.0
        count = self.within_flux(count, BALL * self.radius**3, step.dt, pause)
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
        values = {
            "mass": BALL * self.radius**3 * self._density(own, placed),
            **self.carried(own, placed),
            "position": own.astype(particles.dtype),
            "radius": np.full(len(own), self.radius),
        }
        lifetime = self.target.settings.lifetime
        if lifetime is not None:
            values.setdefault("lifetime", np.full(len(own), float(lifetime)))
        particles.append(values, ids=ids)

    def _density(self, place: Array, placed: Any) -> Array:
        """Of new particles [kg/m^3]."""
        location, painted = channels_of(self.mesh).get("density", ("", None))
        if painted is None or not len(place):
            return np.full(len(place), float(self.target.settings.density))
        return np.asarray(Nearest(placed, place).carried(location, painted))

    def state(self) -> dict[str, Any]:
        """What is due, and where the lattice is."""
        return {**super().state(), "way": self.way, "former": self.former}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it back."""
        super().restore(state)
        self.way = np.asarray(state.get("way", self.way), np.float64)
        self.former = np.asarray(state.get("former", self.former), np.float64).reshape(-1, 3)


class ParticleFluidSink(LiquidMesh[LooseParticles]):
    """Empties one particle fluid in the sink."""

    behavior: LiquidSink

    def __init__(self, behavior: LiquidSink, target: LooseParticles) -> None:
        super().__init__(behavior, target)
        target.fluid_sinks.append(self)

    @classmethod
    def acts_on(cls, item: Capability) -> bool:
        """Only on particles that are a fluid."""
        return is_fluid(item)

    def swallowed(self) -> NDArray[np.bool_]:
        """Which local particles are in the sink, shape [n]."""
        placed = self.placed()
        position = self.target.particles.local("position")
        inside = np.zeros(len(position), bool)
        if placed.is_empty:  # and has neither an inside nor an outside
            return inside
        rows = np.flatnonzero(is_in_box(placed, position, 0.0))
        inside[rows[placed.winding(position[rows].astype(np.float64)) > 0.5]] = True
        return inside if self.behavior.side == "inside" else ~inside
