"""Position-Based Fluid: particles that keep their distance, as a liquid of constant density does.

(Macklin & Mueller 2013, with the extensions of Alduan, Tena & Otaduy 2015, seed 002, section 3;
formulas in `kernels/particles/density_constraint.py`.) Forces have moved the particles to x* with
v*. Then

    neighbours of x*
    repeat: multipliers from densities, corrections from multipliers, walls and Colliders
    v = v* + (x - x*) / dt
    viscosity (XSPH, in as many parts as are stable), vorticity confinement

The stiffness is that of a prototype, so the system that the multipliers solve has the same diagonal
everywhere and a known largest eigenvalue: its Jacobi iteration is accelerated by Chebyshev's
polynomial, which makes ten iterations as good as thirty. The multipliers together are a pressure,
p = -rho sum lambda / dt^2, which particles carry as a channel.

Tension, viscosity and vorticity may vary by particle. A pair has the mean of its two viscosities
and tensions, so that it gains no momentum (`kernels/particles/particle_velocities.py`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.data.accessors import Access
from loki_core.kernels.particles.density_constraint import find_multipliers
from loki_core.kernels.particles.particle_velocities import (
    confine_vortices,
    find_vorticity,
    smooth_velocities,
)
from loki_core.objects.particles.particle_fluid import (
    FluidBehavior,
    FluidStep,
    ParticleFluid,
    chebyshev_steps,
)
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task
from loki_core.sparse_parameters import Resolved

Array = NDArray[Any]

#: Compression that all iterations together answer, and that one does at most. What is squeezed at
#: an impact would be shot away otherwise: a jet that meets a plate must not gain energy.
ALL_ERRORS, MOST_ERROR = 1.0, 0.2
#: Way of a particle in one iteration, over its support.
FURTHEST = 0.5
#: Largest eigenvalue of the multipliers' system over the prototype's diagonal: 3.2 on a lattice,
#: and 8.6 for particles that are a quarter of a spacing away from it.
LARGEST_EIGENVALUE = 8.0
#: Acceleration at kappa = 1 by which particles are held together [m/s^2].
TENSION = 20.0
#: Tensile correction over the largest attraction.
TENSILE = 0.5
#: Viscosity that comes with kappa = 1: what pulls particles about is taken from their motion.
QUIETING = 0.2
#: Strongest part of the viscosity that one pass applies.
STABLE_VISCOSITY = 0.5


class PositionBasedFluid(FluidBehavior):
    """Let the particles of the Group be an incompressible liquid: robust, at any time step."""

    iterations: int = parameter(
        5, minimum=1, maximum=200, doc="How often densities are corrected in a substep."
    )
    relaxation: float = parameter(
        1.0,
        minimum=0.05,
        maximum=1.5,
        varies="no",  # what the iteration converges by
        doc="beta: part of the correction that is applied.",
    )
    surface_tension: float = parameter(
        0.1,
        minimum=0.0,
        maximum=10.0,
        doc="kappa: how strongly particles at the surface hold together; 0 lets them fly apart.",
    )
    inequality: bool = parameter(
        False, doc="Whether densities below that at rest are left alone, whatever the tension."
    )
    viscosity: float = parameter(
        0.05,
        minimum=0.0,
        maximum=1000.0,
        doc="How much velocities are evened out in a substep: 0.05 water, 1 oil, 100 toothpaste; "
        "less than 0.05 leaves water that never comes to rest.",
    )
    vorticity: float = parameter(
        0.0, minimum=0.0, doc="Strength of vorticity confinement, which keeps small rolls alive."
    )


class PositionBasedFluidAction(ParticleFluid, behavior=PositionBasedFluid):
    """Corrects the particles of one Particle Object."""

    settings: PositionBasedFluid
    cost = 6.0

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
        """Correct positions, and velocities with them."""
        self.prepare(step)
        _Solve(self, step).run()
        self.search.forget()
        self.iterations = int(self.settings.iterations)


class _Solve(FluidStep):
    """One substep.

    Attributes:
        way: What corrections have moved places by [3, places] m.
        applied: Multipliers of all iterations, by place.
        tension, tensions: Largest kappa, and the part of it that each place has, or one for all.
    """

    settings: PositionBasedFluid
    way: Array
    applied: Array
    tension: float
    tensions: Array

    def run(self) -> None:
        """Correct, and leave the result in the particles' channels. Collective."""
        particles, kind, search = self.particles, self.particles.dtype, self.search
        self.way = self.begin()
        self.applied = np.zeros(search.places, kind)
        self.stiffness = self.prototype_stiffness()
        self._find_tension()
        for momentum, strength in chebyshev_steps(
            int(self.settings.iterations), LARGEST_EIGENVALUE / float(self.settings.relaxation)
        ):
            self._keep_lists()
            self._iterate(momentum, strength)
        self._keep_lists()
        self.measure_density()  # of what is written
        moved = self.end(self.way)
        self.way = np.empty((3, 0), kind)
        moved /= kind.type(self.dt)
        particles.local("velocity")[:] += moved
        del moved
        self.applied /= kind.type(self.pressure_scale)
        search.scatter(self.applied, particles.local("pressure"))
        search.scatter(self.density, particles.local("density_ratio"))
        self.applied = self.multiplier = self.applied[:0].copy()
        self._stir()
        particles.wrap()

    def _keep_lists(self) -> bool:
        """List neighbours anew if any may be missing; returns whether. Collective."""
        if not self.has_moved(self.way):
            return False
        self.way, self.applied, self.multiplier = self.renew_lists(
            self.way, self.applied, self.multiplier
        )
        self.stiffness = self.prototype_stiffness()
        self._find_tension()
        return True

    def _find_tension(self) -> None:
        """Take kappa for the places that there are now. Collective where it varies."""
        found = self.resolve("surface_tension")
        self.tension = self.largest(found)
        self.tensions = self.parts(found, self.tension)

    def _iterate(self, momentum: float, strength: float) -> None:
        settings = self.settings
        self.measure_density()
        most = min(MOST_ERROR, ALL_ERRORS / int(settings.iterations))
        pull = TENSION * self.tension * self.dt * self.dt
        find_multipliers(
            self.search.own, self.density, np.ones(1, self.density.dtype), self.stiffness, strength,
            self.weight, most, 0.0 if settings.inequality else pull, self.tensions, momentum,
            self.applied, self.multiplier, np.empty(0),
        )  # fmt: skip
        self.applied += self.multiplier
        tensile = TENSILE * pull / int(settings.iterations)
        self.displace(
            self.multiplier, self.applied, self.way, furthest=FURTHEST, tensile=tensile,
            part=self.tensions,
        )  # fmt: skip

    def _stir(self) -> None:
        """Let velocities even out, and vortices gain what was lost of them."""
        quieting = self._quietening()
        strength = self.largest(quieting)
        vorticity = self.resolve("vorticity")
        swirl = self.largest(vorticity)
        if strength == 0.0 and swirl == 0.0:
            return
        search, particles = self.search, self.particles
        search.share(self.density)
        velocity: Array = np.zeros((search.places, 4), particles.dtype)
        velocity[:, :3] = search.gather(particles.local("velocity"))
        passes = math.ceil(strength / STABLE_VISCOSITY)
        other, parts = velocity.copy(), self.parts(quieting, strength)
        for _ in range(passes):
            smooth_velocities(
                *self.listed, self.density, strength / passes, parts, self.weight,
                velocity.reshape(-1), other.reshape(-1),
            )  # fmt: skip
            velocity, other = other, velocity
            search.share(velocity)
        if swirl:
            self._confine(swirl, self.parts(vorticity, swirl), velocity)
        search.scatter(velocity[:, :3], particles.local("velocity"))

    def _quietening(self) -> Resolved:
        """How much of each velocity is evened out: viscosity, and what comes with the tension."""
        tension, viscosity = self.resolve("surface_tension"), self.resolve("viscosity")
        values = viscosity.values + QUIETING * np.minimum(tension.values, 1.0)
        return Resolved(values, max(tension.step, viscosity.step), viscosity.origin)

    def _confine(self, strength: float, parts: Array, velocity: Array) -> None:
        search = self.search
        vortex: Array = np.zeros((search.places, 4), velocity.dtype)
        find_vorticity(*self.listed, velocity.reshape(-1), vortex.reshape(-1))
        size = np.sqrt(np.einsum("pa,pa->p", vortex[:, :3], vortex[:, :3]))
        search.share(size)
        confine_vortices(
            *self.listed, vortex.reshape(-1), size, (strength * self.dt) * parts.astype(np.float64),
            velocity.reshape(-1),
        )  # fmt: skip
