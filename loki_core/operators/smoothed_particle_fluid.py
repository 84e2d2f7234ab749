"""Smoothed Particle Fluid: an SPH liquid with implicit pressure, for spray and small amounts.

Of the class of divergence-free SPH (Bender & Koschier 2015), with two problems in each step. Forces
have brought the particles to x* with v*; rho is density over that at rest.

    velocity    v = v* + dx / dt, x = x* + dx   so that   rho(x) <= max(1, rho of the step before)
    position    x <- x + dy                     so that   rho(x) <= 1

The first keeps what is dense from getting denser, and its multipliers are a pressure. The second
takes away what errors have left; it moves particles and gives them no velocity, so mending never
adds energy. Both are complementarity problems (`kernels/particles/density_constraint.py`), solved
by projected Jacobi iterations with Chebyshev's acceleration, which measure densities and gradients
anew each time. What they cannot reach, the slow part of the pressure, is found on cells of several
spacings (`objects/particles/coarse_pressure.py`), so that deep water needs no more of them than
shallow. The second problem is left without it: there it would mend all at once, with a jolt.

The pressure starts from half of that of the step before, so a liquid at rest needs fewer
iterations. That is an explicit force, and particles under pressure p vibrate with up to
omega^2 = 2 * 4.7 p / (rho d^2): it is applied in as many parts as (omega dt)^2 is, each where the
one before has led, which is stable at any depth; adaptive substeps keep that number small.

Viscous stress is implicit (conjugate gradients), surface tension explicit
(`kernels/particles/particle_forces.py`). Viscosity, tension and contact angle may vary by particle:
a pair has the harmonic mean of its viscosities, and a particle of the surface its own tension.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.data.accessors import Access
from loki_core.kernels.particles.density_constraint import (
    find_multipliers,
    sum_density,
    sum_gradients,
)
from loki_core.kernels.particles.lagrangian_step import largest_speed
from loki_core.kernels.particles.particle_forces import (
    add_tension,
    apply_viscosity,
    find_curvature,
    find_normals,
    multiply_vectors,
    smooth_curvature,
    tension_factor,
)
from loki_core.objects.particles.coarse_pressure import CoarsePressure
from loki_core.objects.particles.particle_fluid import (
    BALL,
    LARGEST_EIGENVALUE,
    FluidBehavior,
    FluidStep,
    ParticleFluid,
    chebyshev_steps,
)
from loki_core.parallel.reduce import fixed_sum
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task
from loki_core.sparse_parameters import Resolved

Array = NDArray[Any]

CYCLE = 6  # iterations after which the acceleration starts anew, with a coarse correction
#: Compression that one iteration answers, and way of a particle in one, over its support.
MOST_ERROR = 0.2
FURTHEST = 0.5
#: Tolerance of the velocity problem over that of densities: what is wrong adds up over steps. It is
#: no narrower for a density tolerance below the default.
VELOCITY_TOLERANCE, LEAST_TOLERANCE = 0.05, 1.0e-3
#: Part of it below which not even the coarse part of the pressure is looked for.
NOTHING = 0.02
#: Compression that a coarse correction answers at once, and the density of particles under pressure
#: from which on they are a liquid whose pressure may vary slowly.
MOST_SLOW_ERROR, CROWDED = 0.003, 0.95
#: What is as dense as that, but for this, is under pressure as soon as something presses.
NEARLY = 1.0e-3
#: (omega dt)^2 of the fastest vibration, over multipliers in units of the spacing squared: 9.4 on a
#: lattice, and more in disorder.
STIFFEST = 14.0
#: Part of the last step's pressure that a step begins with. All of it would carry an impact on
#: into the next step, where it throws a liquid up that should rest.
WARM = 0.5
MOST_PARTS = 64
#: Largest (omega dt)^2, where substeps are adaptive.
STEADY = 8.0
#: nu dt / d^2 below which the viscous step is explicit.
EXPLICIT = 0.01
#: Residual of an implicit one.
VISCOUS_TOLERANCE = 1.0e-4
MOST_VISCOUS_ITERATIONS = 200
#: Least viscosity where there is surface tension, over sqrt(sigma d / rho).
QUIETING = 0.2
#: Part of the time in which a capillary wave of two spacings turns that a step may take.
CAPILLARY = 0.4


class SmoothedParticleFluid(FluidBehavior):
    """Let the particles of the Group be an SPH liquid, with bounded compression."""

    tolerance: float = parameter(
        0.001,
        minimum=1e-7,
        maximum=0.1,
        varies="no",
        doc="Mean compression at which iterations end.",
    )
    max_iterations: int = parameter(
        100, minimum=1, maximum=10000, doc="Most iterations of either problem in a substep."
    )
    viscosity: float = parameter(1.0e-6, unit="m^2/s", minimum=0.0, doc="Kinematic viscosity.")
    artificial_viscosity: float = parameter(
        0.1,
        minimum=0.0,
        maximum=10.0,
        doc="Least viscosity, over the spacing times the speed of particles or of pressure waves: "
        "what keeps particles quiet.",
    )
    surface_tension: float = parameter(
        0.0, unit="N/m", minimum=0.0, doc="Surface tension; water in air has 0.0728."
    )
    contact_angle: float = parameter(
        math.pi / 2.0,
        unit="rad",
        minimum=0.0,
        maximum=math.pi,
        doc="Angle at which the surface meets walls and Colliders: adhesion; 0 wets them.",
    )
    largest_motion: float = parameter(
        0.5,
        minimum=0.01,
        varies="no",
        doc="Most spacings that particles move in a substep, where substeps are adaptive.",
    )


class SmoothedParticleFluidAction(ParticleFluid, behavior=SmoothedParticleFluid):
    """Moves the particles of one Particle Object."""

    settings: SmoothedParticleFluid
    cost = 10.0

    @task(
        Stage.SOLVE_SECONDARIES,
        reads=("particles.radius", "particles.mass"),
        writes=(
            "particles.position",
            "particles.velocity",
            "particles.pressure",
            "particles.density_ratio",
        ),
        layout=("particles",),
    )
    def solve(self, access: Access, step: Step) -> None:
        """Apply forces between particles, and keep their density."""
        self.prepare(step)
        solve = _Solve(self, step)
        solve.run()
        self.search.forget()
        self.iterations = solve.iterations
        if solve.wrong > float(self.settings.tolerance):
            self.warning = (
                f"densities are wrong by {solve.wrong:.2g} on the mean after "
                f"{int(self.settings.max_iterations)} iterations, above the tolerance of "
                f"{float(self.settings.tolerance):g}; shorten the substeps"
            )

    def time_step_limit(self) -> float:
        """Steps resolve capillary waves of two spacings, and what pressure makes vibrate [s]."""
        limit, particles = super().time_step_limit(), self.target.particles
        if particles.count == 0:
            return limit
        tension = float(self.resolve("surface_tension", np.float64).values.max())
        spacing = np.cbrt(BALL) * float(particles.local("radius").min())
        density = float(self.target.settings.density)
        pressure = float(particles.local("pressure").max())
        if pressure > 0.0:
            limit = min(limit, spacing * math.sqrt(STEADY * density / (STIFFEST * pressure)))
        if tension > 0.0:
            wave = math.sqrt(density * spacing**3 / (2.0 * math.pi * tension))
            limit = min(limit, CAPILLARY * wave)
        return limit


class _Solve(FluidStep):
    """One substep.

    Attributes:
        way: What places have been moved by, from where forces had brought them [3, places] m.
        iterations: Of both problems.
        wrong: Mean error of densities that is left.
        coarse: Of the problem under way, for the lists that are valid.
        count: Of the particles of all ranks.
    """

    settings: SmoothedParticleFluid
    way: Array
    coarse: CoarsePressure | None = None
    iterations = 0
    wrong = 0.0
    count = 0

    def run(self) -> None:
        """Move, and leave the result in the particles' channels. Collective."""
        particles, kind, search = self.particles, self.particles.dtype, self.search
        self.count = particles.domain.comm.total(particles.count)
        self.way = self.begin()
        self._apply_forces()
        tolerance = float(self.settings.tolerance)
        self.measure_density()
        self.stiffness = self.measure_stiffness()
        pressure = particles.local("pressure") * kind.type(WARM * self.pressure_scale)
        applied = search.gather(np.minimum(pressure, kind.type(0.0)))
        applied = self._press(applied)
        before = search.gather(particles.local("density_ratio"))
        # What is new is as dense as it is: that it was put too close gives it no velocity.
        before = np.maximum(np.where(before > 0.0, before, self.density), kind.type(1.0))
        narrow = VELOCITY_TOLERANCE * max(tolerance, LEAST_TOLERANCE)
        applied = self._project(before, applied, narrow, coarsely=True)
        moved: Array = np.zeros((particles.count, 3), kind)
        search.scatter(self.way.T, moved)
        search.scatter(applied / kind.type(self.pressure_scale), particles.local("pressure"))
        nothing: Array = np.zeros(search.places, kind)
        self._project(np.ones(1, kind), nothing, tolerance)
        self.end(self.way)
        particles.local("velocity")[:] += moved / kind.type(self.dt)
        search.scatter(self.density, particles.local("density_ratio"))
        particles.wrap()

    # -- forces between particles ----------------------------------------------------------

    def _apply_forces(self) -> None:
        """Change velocities by surface tension and viscous stress, and positions with them."""
        search, kind = self.search, self.particles.dtype
        tensions = self.resolve("surface_tension")
        viscosities = self._viscosities(tensions)
        tension, viscosity = self.largest(tensions), self.largest(viscosities)
        if tension == 0.0 and viscosity == 0.0:
            return
        self.velocity: Array = np.zeros((search.places, 4), kind)
        self.velocity[:, :3] = search.gather(self.particles.local("velocity"))
        before = self.velocity.copy()
        flat = self.velocity.reshape(-1)
        if tension > 0.0:
            self._add_tension(tension, self.parts(tensions, tension), flat)
            search.share(self.velocity)
        if viscosity > 0.0:
            self._solve_viscosity(viscosity * self.dt, self.parts(viscosities, viscosity))
        change = kind.type(self.dt) * (self.velocity - before)[:, :3]
        search.packed[:, :3] += change
        search.share(search.packed, moves=True)
        search.scatter(self.velocity[:, :3], self.particles.local("velocity"))
        self.note_places(self.way - change.T)

    def _viscosities(self, tension: Resolved) -> Resolved:
        """Viscosity of rows [m^2/s]; at least what takes away what the disorder brings in.

        Waves of pressure run with sqrt(p / rho), and capillary ones of a spacing with
        sqrt(sigma / (rho d)).
        """
        particles, comm = self.particles, self.particles.domain.comm
        density = float(self.action.target.settings.density)
        reach = -comm.maximum(-float(self.reach.min(initial=np.inf)))
        given, artificial = self.resolve("viscosity"), self.resolve("artificial_viscosity")
        if not np.isfinite(reach):
            return given
        spacing = reach / float(self.settings.support)
        pressure = comm.maximum(float(particles.local("pressure").max(initial=0.0)))
        speed = comm.maximum(float(largest_speed(particles.local("velocity"))))
        wave = max(speed, math.sqrt(pressure / density))
        capillary = QUIETING * np.sqrt(tension.values * spacing / density)
        least = np.maximum(artificial.values * spacing * wave, capillary)
        step = max(tension.step, given.step, artificial.step)
        return Resolved(np.maximum(given.values, least), step, given.origin)

    def _add_tension(self, tension: float, parts: Array, velocity: Array) -> None:
        """Change velocities [4 places] by surface tension and adhesion.

        Args:
            tension: Largest sigma [N/m].
            parts: Of it that each place has, or [1] for all of it.
        """
        search, kind = self.search, self.particles.dtype
        strength = tension * self.dt / float(self.action.target.settings.density)
        self.measure_density()  # and walls
        gradient: Array = np.zeros((search.places, 4), kind)
        sum_gradients(*self.listed, gradient.reshape(-1), self.multiplier)
        gradient[:, :3] -= self.walls.gradient_by_place(search)
        normal = gradient.copy()
        find_normals(normal.reshape(-1), search.support)
        search.share(normal)
        curvature: Array = np.zeros(search.places, kind)
        smoothed: Array = np.zeros(search.places, kind)
        find_curvature(*self.listed, normal.reshape(-1), curvature)
        search.share(curvature)
        smooth_curvature(*self.listed, normal.reshape(-1), curvature, smoothed)
        if len(parts) > 1:
            smoothed *= parts
        factor = 2.0 * tension_factor(float(self.settings.support), self.norm)
        add_tension(
            gradient.reshape(-1), normal.reshape(-1), smoothed, factor * strength, self.weight,
            velocity,
        )  # fmt: skip
        self._add_adhesion(strength, parts, velocity)

    def _add_adhesion(self, strength: float, parts: Array, velocity: Array) -> None:
        """Let walls attract what wets them. Args: as above, and sigma dt over the density."""
        angle = self.resolve("contact_angle")
        if angle.step == 0 and len(parts) == 1:
            wetting = math.cos(float(angle.values[0]))
            self.walls.add_adhesion(self.search, wetting * strength, self.weight, velocity)
            return
        cosine = np.cos(angle.values).astype(self.particles.dtype)
        wets = parts * (self.search.gather(cosine) if angle.step else cosine)
        with np.errstate(divide="ignore"):  # what nothing attracts is as if it had no end of weight
            weight = (self.weight / wets).astype(self.particles.dtype)
        self.walls.add_adhesion(self.search, strength, weight, velocity)

    def _solve_viscosity(self, strength: float, parts: Array) -> None:
        """Solve v - dt a(v) = v*, by conjugate gradients on all components together.

        Args:
            strength: Largest nu dt [m^2].
            parts: Of it that each place has, or [1] for all of it.
        """
        search, comm = self.search, self.particles.domain.comm
        own, solution = search.own, self.velocity
        kind = solution.dtype.type

        def product(values: Array) -> Array:
            result: Array = np.zeros_like(values)
            apply_viscosity(
                *self.listed, strength, parts, self.weight, values.reshape(-1), result.reshape(-1)
            )
            return result

        spacing = float(np.min(search.support, initial=np.inf)) / float(self.settings.support)
        if comm.maximum(strength / spacing**2) < EXPLICIT:
            solution += solution - product(solution) / self._weight_of_vectors()
            search.share(solution)
            return
        products = np.empty(len(own))

        def dot(one: Array, two: Array) -> float:
            multiply_vectors(own, search.packed, one, two, products)
            return fixed_sum(comm, products)

        residual = self._weight_of_vectors() * solution - product(solution)
        residual[:, 3] = 0.0
        goal = VISCOUS_TOLERANCE**2 * dot(solution, solution)
        direction = residual.copy()
        square = dot(residual, residual)
        for _ in range(MOST_VISCOUS_ITERATIONS):
            if not square > goal:
                break
            search.share(direction)
            image = product(direction)
            step = square / dot(direction, image)
            solution += kind(step) * direction
            residual -= kind(step) * image
            square, former = dot(residual, residual), square
            direction = residual + kind(square / former) * direction
        search.share(solution)

    def _weight_of_vectors(self) -> Array:
        return self.weight if len(self.weight) == 1 else self.weight[:, None]

    # -- density ---------------------------------------------------------------------------

    def _press(self, applied: Array) -> Array:
        """Apply multipliers in parts, and return them by place. Collective."""
        search, particles = self.search, self.particles
        kind = particles.dtype.type
        spacing = search.support / kind(self.settings.support)
        stiffest = particles.domain.comm.maximum(
            STIFFEST * float(np.max(-applied / (spacing * spacing), initial=0.0))
        )
        parts = min(MOST_PARTS, math.ceil(stiffest))
        for _ in range(parts):
            applied, _ = self._keep_lists(applied, applied)
            part = applied / kind(parts)
            self.displace(part, part, self.way, furthest=FURTHEST)
        return applied

    def _project(
        self, target: Array, applied: Array, tolerance: float, *, coarsely: bool = False
    ) -> Array:
        """Move places until densities are not above the target, on the mean. Collective.

        Args:
            target: Density over that at rest, [places] or [1].
            applied: Multipliers to begin with.
            tolerance: Mean of what may be wrong.
            coarsely: Whether the slow part is found on cells.

        Returns:
            The multipliers that were found, by place.
        """
        most = int(self.settings.max_iterations)
        steps = chebyshev_steps(CYCLE, LARGEST_EIGENVALUE)
        self.multiplier[:] = 0.0
        self.coarse = None
        for number in range(most + 1):
            momentum, strength = steps[number % CYCLE]
            applied, target = self._keep_lists(applied, target)
            self.wrong = self._find_multipliers(target, applied, momentum, strength)
            # A thin layer that is pressed is little on the mean of deep water.
            enough = tolerance if number or not coarsely else NOTHING * tolerance
            if self.wrong <= enough or number == most:
                break
            if coarsely and number % CYCLE == 0:
                self._correct_coarsely(target, applied)
                applied, target = self._keep_lists(applied, target)
                self._find_multipliers(target, applied, momentum, strength)
            applied += self.multiplier
            self.displace(self.multiplier, applied, self.way, furthest=FURTHEST)
            self.iterations += 1
        return applied

    def _find_multipliers(
        self, target: Array, applied: Array, momentum: float, strength: float
    ) -> float:
        """Find what an iteration adds; returns the mean of what is wrong. Collective."""
        self.measure_density()
        own, comm = self.search.own, self.particles.domain.comm
        wrong = np.empty(len(own))
        find_multipliers(
            own, self.density, target, self.stiffness, strength, self.weight, MOST_ERROR, 0.0,
            self.whole, momentum, applied, self.multiplier, wrong,
        )  # fmt: skip
        return fixed_sum(comm, wrong) / max(self.count, 1)

    def _correct_coarsely(self, target: Array, applied: Array) -> None:
        """Add the slow part of the multipliers to those that are applied, and move. Collective."""
        search, kind = self.search, self.particles.dtype
        if self.coarse is None:
            pressed = ((applied < 0.0) | (self.density > target - kind.type(NEARLY))).astype(kind)
            search.share(pressed)
            self.coarse = CoarsePressure(
                self.particles.domain, packed=search.packed, own=search.own, weight=self.weight,
                active=pressed, push=self.push_of(pressed), hold=self._hold(pressed),
                density=self.density, moment=self.moment,
                spacing=self.largest_reach / float(self.settings.support),
            )  # fmt: skip
        self.coarse.correct(
            search.packed, self.density, target, MOST_SLOW_ERROR, applied, self.multiplier
        )
        applied += self.multiplier
        self.displace(self.multiplier, applied, self.way, furthest=FURTHEST)
        self.iterations += 1

    def _hold(self, pressed: Array) -> Array:
        """Response of places of their own [1/m^2], as far as few neighbours are under pressure."""
        packed = self.search.packed.copy()
        packed[:, 3] *= pressed
        filled = np.zeros_like(pressed)
        sum_density(*self.listed[:4], packed.reshape(-1), *self.listed[5:], filled)
        self.walls.add_density(self.search, filled)
        hold: Array = pressed * np.maximum(CROWDED - filled, 0.0) * self.weight / self.stiffness
        return hold

    def _keep_lists(self, applied: Array, target: Array) -> tuple[Array, Array]:
        """List neighbours anew if any may be missing; returns what is by place. Collective."""
        if not self.has_moved(self.way):
            return applied, target
        one = len(target) == 1
        wanted = np.full_like(applied, target[0]) if one else target
        self.way, applied, wanted, self.multiplier = self.renew_lists(
            self.way, applied, wanted, self.multiplier
        )
        self.coarse = None
        self.measure_density()
        self.stiffness = self.measure_stiffness()
        return applied, target if one else wanted
