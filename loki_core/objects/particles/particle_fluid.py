"""Particle Fluid: what the Operators that make particles a liquid have in common.

A fluid particle fills the volume V of its ball when the liquid is at rest, so particles are
d = V^(1/3) apart, and its kernel reaches `support` d. The liquid's surroundings are the sides of
the box that are walls, and the Colliders.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.data.accessors import Access
from loki_core.data.mesh import Mesh
from loki_core.kernels.particles.density_constraint import (
    correct_positions,
    invert_diagonal,
    move_places,
    sum_density,
    sum_gradients,
)
from loki_core.kernels.particles.lagrangian_step import largest_speed
from loki_core.kernels.particles.particle_velocities import farthest_apart
from loki_core.kernels.particles.smoothing import prototype
from loki_core.objects.basics.capabilities import LooseParticles
from loki_core.objects.colliders.body_collider import MeetsColliders, resolution_for
from loki_core.objects.particles.neighbour_search import NeighbourSearch
from loki_core.objects.particles.particle_matter import ParticleMatter
from loki_core.objects.particles.particle_state import sort_moved
from loki_core.objects.particles.particle_walls import ParticleWalls
from loki_core.operators.operator import Operator
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task
from loki_core.sparse_parameters import Resolved

Array = NDArray[Any]

BALL = 4.0 / 3.0 * np.pi
#: Largest eigenvalue of the multipliers' system over its diagonal: 2.6 on a lattice, and 3.6 where
#: particles are in great disorder.
LARGEST_EIGENVALUE = 4.0
#: W h^3 / N at a fifth of the support, where the tensile correction has its largest value.
TENSILE_REFERENCE = 0.8**4 * 1.8
#: By how much all iterations together reduce errors from particle to particle; slower ones are
#: reduced less, and the more so the larger this is.
REDUCTION = 4.0
#: Lists hold what is farther away by a part of a support, from the least to the largest; beyond,
#: they are made anew. It grows when that is needed, and shrinks again while it is not.
LEAST_SKIN, LARGEST_SKIN = 0.04, 0.08
WIDER, NARROWER = 1.3, 0.98


class FluidBehavior(ParticleMatter, abstract=True, varies="vertex"):
    """What all of them can be told."""

    support: float = parameter(
        2.0,
        minimum=1.6,
        maximum=4.0,
        varies="no",  # a pair has one kernel
        doc="Reach of a particle's kernel, in spacings.",
    )
    friction: float = parameter(
        0.0, minimum=0.0, doc="Coulomb's coefficient of the walls of the box."
    )
    largest_motion: float = parameter(
        2.0,
        minimum=0.01,
        varies="no",
        doc="Most spacings that particles move in a substep, where substeps are adaptive.",
    )


class ParticleFluid(MeetsColliders, Operator[LooseParticles]):
    """Base of these Operators.

    Attributes:
        search: Neighbours, while a substep is solved.
        skin: How much farther than a support lists reach, over the largest support.
        body_colliders: Colliders enter themselves with the target.
    """

    settings: FluidBehavior
    target: LooseParticles
    meeting = ("solve",)

    def __init__(self, behavior: FluidBehavior, target: LooseParticles) -> None:
        super().__init__(behavior, target)
        target.become_fluid(self)
        self.search = NeighbourSearch(target.particles)
        self.skin = LEAST_SKIN
        target.derive_channel("pressure")
        target.derive_channel("density_ratio")

    def state(self) -> dict[str, Any]:
        """How far lists reach, by which sums are rounded otherwise."""
        return {"skin": self.skin}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self.skin = float(state.get("skin", LEAST_SKIN))

    # -- sizes -----------------------------------------------------------------------------

    @property
    def prototype(self) -> Any:
        """Sums over a filled neighbourhood."""
        return prototype(float(self.settings.support))

    def volumes(self) -> Array:
        """Of each local particle [m^3]."""
        return _of_each(self.target.particles.local("radius"), lambda radius: BALL * radius**3)

    def supports(self, volume: Array) -> Array:
        """Reach of each local particle's kernel [m]."""
        support = float(self.settings.support)
        return _of_each(volume, lambda volume: support * np.cbrt(volume))

    def density_ratios(self, volume: Array) -> tuple[Array, bool]:
        """Density of each particle over the Object's, [count], and whether one, [1], is for all.

        Whether it is is the same on every rank. Collective.
        """
        density, comm = float(self.target.settings.density), self.target.scope.domain.comm
        ratio = np.asarray(self.target.particles.local("mass") / (density * volume))
        largest = comm.maximum(float(ratio.max(initial=0.0)))
        smallest = -comm.maximum(-float(ratio.min(initial=np.inf)))
        if largest - smallest <= 1e-5 * largest:
            return np.full(1, largest), True
        return (ratio, False) if np.isfinite(smallest) else (np.ones(1), True)

    def prepare(self, step: Step) -> None:
        """Stop what has met a wall, and let ghosts be where particles have moved. Collective."""
        particles = self.target.particles
        particles.release_scratch()  # Forces have done their work
        self._stop_at_walls(step.dt)
        domain = particles.domain
        if domain.comm.size == 1:
            return
        way = step.dt * float(largest_speed(particles.local("velocity")))
        way = domain.comm.maximum(math.inf if math.isnan(way) else way)
        radius = domain.comm.maximum(float(particles.local("radius").max(initial=0.0)))
        reach = float(self.settings.support) * np.cbrt(BALL) * radius
        # A ghost layer is a Bucket wide; two particles may have moved towards each other.
        if not 2.0 * way + 1.2 * reach < domain.bucket_size:
            sort_moved(particles)

    def _stop_at_walls(self, dt: float) -> None:
        """Let ways end at walls, and velocities with them, on the rank that has measured these."""
        walls, particles = self.walls(), self.target.particles
        if not walls.has_box and not walls.colliders:
            return
        velocity, dtype = particles.local("velocity"), particles.dtype
        moved: Array = np.zeros((3, particles.count), dtype)
        support = self.supports(self.volumes())
        if walls.catch(particles.local("position"), velocity, support, moved, dt):
            velocity += moved.T / dtype.type(dt)

    # -- surroundings ----------------------------------------------------------------------

    def walls(self) -> ParticleWalls:
        """What stands around the particles in this substep."""
        return ParticleWalls(
            self.target.scope.domain,
            self.target.body_colliders,
            spacing=1.0 / float(self.settings.support),
            lattice=self.prototype,
            friction=self.resolve("friction", np.float64).values,
        )

    def collider_resolution(self) -> int:
        """Voxels along a Bucket in which Colliders are measured: no larger than a spacing."""
        target = self.target
        radii = [float(target.settings.radius), *(one.radius for one in target.fluid_sources)]
        stream = target.scope.inputs.get(target.settings.input or "")
        if isinstance(stream, Mesh):
            painted = [channels.get("radius", ()) for channels in stream.channels.values()]
            radii += [float(np.min(some)) for some in painted if len(some) and np.min(some) > 0.0]
        return resolution_for(target.scope.domain, float(np.cbrt(BALL) * min(radii)))

    @task(Stage.ADAPT_TOPOLOGY, reads=("particles.radius",), communicates=True)
    def ask_colliders(self, access: Access, step: Step) -> None:
        """Say how far from Colliders the distance has to be known: on all ranks the same."""
        radius = float(access["particles.radius"].max(initial=0.0))
        radius = self.target.scope.domain.comm.maximum(radius)
        support = float(self.settings.support) * np.cbrt(BALL) * radius
        for one in self.target.body_colliders:
            one.need(1.5 * support, is_tight=True)

    def time_step_limit(self) -> float:
        """Particles move a few spacings in a substep at most [s]."""
        particles = self.target.particles
        sources = self.target.fluid_sources
        speeds = [float(largest_speed(particles.local("velocity")))]
        speeds += [one.speed for one in (*sources, *self.target.body_colliders)]
        if not max(speeds) > 0.0:
            return np.inf
        radii = [s.radius for s in sources]
        radius = float(np.min(particles.local("radius"), initial=min(radii, default=np.inf)))
        return float(self.settings.largest_motion * np.cbrt(BALL) * radius / max(speeds))


class FluidStep:
    """One substep of a fluid: sizes by row, then lists and values by place.

    Attributes:
        listed: What every sum over neighbours begins with.
        weight: Density of each place over the Object's, or one for all.
        walls: What stands around.
        density: Over rest density, at each place.
        multiplier: What the last iteration added to the multipliers.
        stiffness: k of each place [m^2], or one for all.
    """

    settings: FluidBehavior
    listed: tuple[Any, ...]
    weight: Array
    walls: ParticleWalls
    density: Array
    multiplier: Array
    stiffness: Array
    _shift: Array
    _listed_at: Array

    def __init__(self, action: ParticleFluid, step: Step) -> None:
        self.action, self.dt, self.settings = action, step.dt, action.settings
        self.search, self.particles = action.search, action.target.particles
        self.volume = action.volumes()
        self.reach = action.supports(self.volume)
        lattice = action.prototype
        self.norm, self.moment = lattice.norm, lattice.moment
        comm = self.particles.domain.comm
        self.largest_reach = comm.maximum(float(self.reach.max(initial=0.0)))
        self._stiffness = lattice.stiffness / float(self.settings.support) ** 2
        self._weight_of_rows, self._is_one_liquid = action.density_ratios(self.volume)

    # -- parameters that vary --------------------------------------------------------------

    @property
    def whole(self) -> Array:
        """Part of a parameter that every place has where it does not vary."""
        return np.ones(1, self.particles.dtype)

    def resolve(self, name: str) -> Resolved:
        """A parameter of the fluid for each row, in double precision."""
        return self.action.resolve(name, np.float64)

    def largest(self, found: Resolved) -> float:
        """Largest value on all ranks, none negative. Collective where it varies."""
        if found.step == 0:
            return float(found.values[0])
        return float(self.particles.domain.comm.maximum(float(found.values.max(initial=0.0))))

    def parts(self, found: Resolved, largest: float) -> Array:
        """Part of the largest value that each place has, [places], or [1] for all of it.

        Collective where it varies.
        """
        if found.step == 0:
            return self.whole
        return self.search.gather((found.values / (largest or 1.0)).astype(self.particles.dtype))

    @property
    def pressure_scale(self) -> float:
        """Multipliers of a whole step [m^2] over pressure [Pa]."""
        density = float(self.action.target.settings.density)
        return float(-self.dt * self.dt / (self.moment * density))

    # -- neighbours ------------------------------------------------------------------------

    def begin(self) -> Array:
        """List neighbours; returns what places were moved by [3, places] m: nothing. Collective."""
        self.list_neighbours()
        way: Array = np.zeros((3, self.search.places), self.particles.dtype)
        self.note_places(way)
        self.action.skin = max(NARROWER * self.action.skin, LEAST_SKIN)
        return way

    def end(self, way: Array) -> Array:
        """Leave positions in the particles' channel; returns by how much rows moved [count, 3] m.

        What corrections have moved through a Collider is brought back, in velocity too. Nothing is
        moved after it.
        """
        particles, search, walls = self.particles, self.search, self.walls
        position, velocity = particles.local("position"), particles.local("velocity")
        search.scatter(search.packed[:, :3], position)
        moved: Array = np.zeros((particles.count, 3), particles.dtype)
        search.scatter(way.T, moved)
        if walls.colliders:
            rows = np.ascontiguousarray(moved.T)
            if walls.catch(position, velocity, self.reach, rows, self.dt):
                velocity += (rows.T - moved) / particles.dtype.type(self.dt)
        self._shift, self._listed_at = np.empty((2, 3, 0), particles.dtype)
        return moved

    def list_neighbours(self, moved: Array | None = None) -> None:
        """List neighbours, and walls, at the present positions. Collective.

        Args:
            moved: What corrections have moved rows by in this step already [m], [count, 3].
        """
        search, particles, kind = self.search, self.particles, self.particles.dtype
        self._skin = self.action.skin * self.largest_reach
        search.build(self.reach, self.volume, skin=self._skin)
        weight = self._weight_of_rows.astype(kind)
        self.weight = weight if self._is_one_liquid else search.gather(weight)
        self.listed = (
            search.clusters, search.first, search.last, search.entries, search.packed.reshape(-1),
            search.support, search.is_uniform, self.norm,
        )  # fmt: skip
        self.walls = self.action.walls()
        self.walls.look(search, particles.local("velocity"), moved, self.dt)
        self.density = np.ones(search.places, kind)
        self.multiplier = np.zeros(search.places, kind)
        self._shift = np.zeros((3, search.places), kind)

    def renew_lists(self, way: Array, *values: Array) -> tuple[Array, ...]:
        """List neighbours anew, and return arrays by place for the new places. Collective.

        Args:
            way: What corrections have moved places by in this step [3, places] m.
            values: Others by place, [places] or [places, c].
        """
        search, particles = self.search, self.particles
        rows = []
        for one in (np.ascontiguousarray(way.T), *values):
            row: Array = np.zeros((particles.count, *one.shape[1:]), one.dtype)
            search.scatter(one, row)
            rows.append(row)
        search.scatter(search.packed[:, :3], particles.local("position"))
        self.action.skin = min(WIDER * self.action.skin, LARGEST_SKIN)
        self.list_neighbours(rows[0])
        found = [search.gather(row) for row in rows]
        found[0] = np.ascontiguousarray(found[0].T)
        self.note_places(found[0])
        return tuple(found)

    def note_places(self, total: Array) -> None:
        """Note by how much places [3, places] had moved when neighbours were listed."""
        self._listed_at = total.copy() if total.any() else total[:, :0]

    def has_moved(self, total: Array) -> bool:
        """Whether any has moved so far since then that a neighbour may be missing. Collective."""
        farthest = float(farthest_apart(self.search.own, total, self._listed_at))
        moved: bool = self.particles.domain.comm.any(not 2.0 * farthest <= self._skin)
        return moved

    # -- densities and corrections ---------------------------------------------------------

    def measure_density(self) -> None:
        """Densities and walls at the present positions."""
        sum_density(*self.listed, self.density)
        self.walls.add_density(self.search, self.density)

    def displace(
        self,
        multiplier: Array,
        applied: Array,
        total: Array,
        *,
        furthest: float,
        tensile: float = 0.0,
        part: Array | None = None,
    ) -> None:
        """Move places by what multipliers push, and stop them at walls. Collective.

        Args:
            applied: Multipliers of the whole step so far, these included: walls do not pull.
            total: What places have moved by [3, places] m, which is added to.
            furthest: Longest way, over a support.
            tensile: Largest s_ij over a support [m].
            part: Of that which each place has; all of it if None.
        """
        search = self.search
        search.share(multiplier)
        correct_positions(
            *self.listed, multiplier, tensile, self.whole if part is None else part,
            TENSILE_REFERENCE, self._shift,
        )  # fmt: skip
        self.walls.add_push(multiplier, applied, self._shift)
        move_places(self._shift, self.weight, search.support, furthest, search.packed, total)
        self.walls.stop(search, total)
        search.share(search.packed, moves=True)

    def push_of(self, multiplier: Array) -> Array:
        """What multipliers by place, none negative, pull places by, times weight [3, places] m."""
        minus = -multiplier  # walls do not pull
        self.search.share(minus)
        correct_positions(*self.listed, minus, 0.0, self.whole, TENSILE_REFERENCE, self._shift)
        self.walls.add_push(minus, minus, self._shift)
        push: Array = -self._shift
        return push

    def prototype_stiffness(self) -> Array:
        """K of each place [m^2], of a filled neighbourhood; one for all where all are alike."""
        support = self.search.support[:1] if self.search.is_uniform else self.search.support
        stiffness: Array = self._stiffness * support * support
        return stiffness

    def measure_stiffness(self) -> Array:
        """K of each place [m^2], of its own neighbourhood and the walls as they were measured."""
        search, kind = self.search, self.particles.dtype
        gradient: Array = np.zeros(4 * search.places, kind)
        stiffness: Array = np.zeros(search.places, kind)
        sum_gradients(*self.listed, gradient, stiffness)
        wall = self.walls.gradient_by_place(search)
        invert_diagonal(
            gradient, wall, search.support, self.weight, 0.5 / self._stiffness, stiffness
        )
        return stiffness


def _of_each(values: Array, function: Callable[[Array], Array]) -> Array:
    """A function of values [n], in double precision, and once where all are the same.

    Of arrays in either case: that of a single number may round otherwise.
    """
    same = len(values) > 0 and np.ptp(values) == 0.0
    found = function(values[: 1 if same else None].astype(np.float64)).astype(values.dtype)
    return np.full(len(values), found[0]) if same else found


def chebyshev_steps(count: int, largest: float) -> list[tuple[float, float]]:
    """Momentum and strength of each iteration, for eigenvalues up to the largest over the diagonal.

    With these, `count` steps x += d, d <- momentum d + strength residual leave of every error
    between the largest eigenvalue b and a lower bound a a part of 1 / T_n((b + a) / (b - a)), with
    T_n Chebyshev's polynomial; a is such that this is `REDUCTION` (Golub & Varga 1961).
    """
    ratio = math.cosh(math.acosh(REDUCTION) / count)  # (b + a) / (b - a)
    smallest = largest * (ratio - 1.0) / (ratio + 1.0)
    half = 0.5 * (largest - smallest)
    steps = [(0.0, 2.0 / (largest + smallest))]
    before = 1.0 / ratio
    for _ in range(count - 1):
        now = 1.0 / (2.0 * ratio - before)
        steps.append((now * before, 2.0 * now / half))
        before = now
    return steps
