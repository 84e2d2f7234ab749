"""Particle Contacts: particles and droplets that a Collision Constraint lets meet Colliders.

Particles have no neighbours, so a Collider is all that they can touch, and it is heavy: their
contacts are impulses, each for itself (`kernels/particles/particle_contacts.py`). Ways are followed
by sphere tracing through the distance that Colliders have, which move in the step: no particle is
too fast for a wall that is thicker than a voxel, and no wall too thin for a particle that is
larger. Where there are several Colliders, they are looked at in turn, until no way meets any.

Droplets that collide with each other in the same step are brought out of Colliders once more.
Particles that are a fluid look at Colliders themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.accessors import Access
from loki_core.kernels.particles.particle_contacts import follow_ways
from loki_core.objects.basics.capabilities import LooseParticles
from loki_core.objects.colliders.body_collider import BodyCollider, MeetsColliders, resolution_for
from loki_core.objects.particles.particle_walls import CORNER, drift_of, field_of, rows_near
from loki_core.operators.operator import Operator
from loki_core.parallel.reduce import exact_sums
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

if TYPE_CHECKING:
    from loki_core.constraints.collision import CollisionConstraint

Array = NDArray[Any]
Float = NDArray[np.float64]


class ParticleContacts(MeetsColliders, Operator[LooseParticles]):
    """Lets the particles of one Object meet Colliders.

    Attributes:
        impulse: What Colliders have given particles so far, over all ranks [N s], three numbers.
    """

    target: LooseParticles
    cost = 0.5  # of a particle
    meeting = ("meet",)

    def __init__(self, behavior: CollisionConstraint, target: LooseParticles) -> None:
        super().__init__(behavior, target)
        target.meet_colliders(self)
        self.impulse = np.zeros(3)

    def state(self) -> dict[str, Any]:
        return {"impulse": self.impulse}

    def restore(self, state: dict[str, Any]) -> None:
        self.impulse = np.array(state.get("impulse", (0.0, 0.0, 0.0)), np.float64)

    # -- Colliders -------------------------------------------------------------------------

    def collider_resolution(self) -> int:
        """Voxels along a Bucket, so that they are no larger than a particle if that can be."""
        return resolution_for(self.target.scope.domain, float(self.target.settings.radius))

    @task(Stage.ADAPT_TOPOLOGY, reads=("particles.radius",), communicates=True)
    def ask_colliders(self, access: Access, step: Step) -> None:
        """Say how far from Colliders the distance has to be known: on all ranks the same."""
        largest = float(access["particles.radius"].max(initial=0.0))
        largest = self.target.scope.domain.comm.maximum(largest)
        thickest = float(self.resolve("thickness", np.float64).values.max(initial=0.0))
        thickest = self.target.scope.domain.comm.maximum(thickest)
        for one in self.target.body_colliders:
            one.need(largest + thickest, is_tight=True)

    def _colliders(self) -> list[BodyCollider]:
        if self.target.fluid is not None:
            return []
        return [one for one in self.target.body_colliders if one.field.volume.buckets.count]

    # -- the step --------------------------------------------------------------------------

    @task(
        Stage.MEET_COLLIDERS,
        reads=(
            "particles.start_position",
            "particles.start_velocity",
            "particles.radius",
            "particles.mass",
        ),
        writes=("particles.position", "particles.velocity"),
        communicates=True,
    )
    def meet(self, access: Access, step: Step) -> None:
        """Follow the ways of this step, and end or turn them at Colliders."""
        velocity = access["particles.velocity"]
        gain = velocity.astype(np.float64) - access["particles.start_velocity"]
        start = access["particles.start_position"].astype(np.float64)
        self._follow(access["particles.position"], velocity, start, gain, step.dt, goes_on=True)

    def remember(self) -> None:
        """Keep where droplets are, before they collide with each other."""
        particles = self.target.particles
        particles.local("start_position")[:] = particles.local("position")

    def settle(self, dt: float) -> None:
        """End the ways at Colliders that collisions have sent droplets on since. Collective."""
        particles = self.target.particles
        domain, position = particles.domain, particles.local("position")
        moved = position.astype(np.float64) - particles.local("start_position")
        for axis in np.flatnonzero(domain.periodic):
            period = float(domain.upper[axis] - domain.lower[axis])
            moved[:, axis] -= period * np.round(moved[:, axis] / period)
        self._follow(
            position, particles.local("velocity"), position - moved, np.zeros_like(moved), dt,
            goes_on=False,
        )  # fmt: skip
        for name in ("position", "velocity"):
            particles.mark_written(name)

    def _follow(
        self, position: Array, velocity: Array, start: Float, gain: Float, dt: float, *,
        goes_on: bool,
    ) -> None:  # fmt: skip
        """Let particles meet Colliders between start and position, and account for it."""
        particles, before = self.target.particles, velocity.astype(np.float64)
        gap = particles.local("radius").astype(np.float64) + self._of_each("thickness")
        restitution, friction = map(self._of_each, ("restitution", "friction_coefficient"))
        colliders = self._colliders()
        for _ in range(CORNER):
            was = position.copy()
            for one in colliders:
                speed = one.speed if goes_on else 0.0  # it has arrived
                way = np.linalg.norm(position - start, axis=1) + dt * speed
                near = rows_near(one, position, way, gap)
                drift = drift_of(one, position, start[near], near, dt if goes_on else 0.0)
                rough = one.friction_at(friction[near], start[near], position[near])
                follow_ways(
                    *field_of(one), near, gap[near], restitution[near], rough, start[near], drift,
                    gain[near], dt, float(goes_on), position, velocity,
                )  # fmt: skip
            if len(colliders) < 2 or np.array_equal(was, position):
                break
        pushed = np.any(velocity != before, axis=1)
        change = (velocity - before)[pushed] * particles.local("mass")[pushed, None]
        self.impulse = self.impulse + exact_sums(particles.domain.comm, change)

    def _of_each(self, name: str) -> Float:
        """A parameter of every particle, [count]."""
        values, step = self.resolve(name, np.float64)
        count = self.target.particles.count
        return np.asarray(values, np.float64) if step else np.full(count, float(values[0]))
