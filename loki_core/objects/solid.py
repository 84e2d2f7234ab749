"""Solid: the base of Objects whose unknowns are solved together, body by body.

A solid numbers its unknowns, says what they weigh and which of them are prescribed, and moves by
what the joint system finds (`objects/solid_system.py`). Backward Euler: with x = x0 + h v,

    r = f(x, v) - M (v - v0) / h = 0,     (M / h^2 - df/dx) dx = r     in each Newton iteration.

The unknowns are displacements, and float64 throughout. What is prescribed stands where it has to be
at the end of the step before the first iteration begins, and is no unknown any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.accessors import Access, ChannelData, Declaration
from loki_core.data.body_particles import BodyParticles
from loki_core.kernels.constraint_assembly import add_particles
from loki_core.kernels.lagrangian_step import first_bad_row, largest_speed
from loki_core.objects.object import PARTICLE_COST, Object
from loki_core.objects.solid_system import SolidSystem
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]
Int64 = NDArray[np.int64]


class Solid(Object):
    """Particles that belong to bodies; what else has unknowns comes in subclasses.

    Attributes:
        particles: The points that Forces and Constraints act on.
        system: The joint system, once the Solver has made it.
        first_dof: Where this Object's unknowns begin among those of the rank.
        body_start: First unknown of each local body, from 0 in this Object, shape [bodies + 1].
        particle_dof: First unknown of each particle, from 0 in this Object, shape [count].
        parameter_version: Changes when rest lengths or the like do, on which stiffness depends.
        body_colliders: Colliders that contacts may be found with; they enter themselves.
    """

    system: SolidSystem
    first_dof: int = 0
    body_start: Int64
    particle_dof: Int64

    def __post_init__(self) -> None:
        super().__post_init__()
        self.particles = BodyParticles(self.scope.domain, name=self.path)
        for name, shape, default in (
            ("velocity", (3,), 0.0),
            ("mass", (), 1.0),
            ("radius", (), 1.0),
            ("force", (3,), 0.0),
            ("start_position", (3,), 0.0),
            ("start_velocity", (3,), 0.0),
        ):
            self.particles.add_channel(name, np.float64, shape, default=default)
        self.particles.add_channel("pinned", np.uint8)
        self.parameter_version = 0
        self.body_colliders: list[Any] = []

    @property
    def data(self) -> dict[str, ChannelData]:
        return {"particles": self.particles}

    def need_jacobian(self) -> None:
        """Make room for Jacobians; called by implicit Forces."""
        self.particles.add_channel("jacobian", np.float64, (3, 3))

    @property
    def is_implicit(self) -> bool:
        """Whether any Force brings a Jacobian."""
        return "jacobian" in self.particles.channels

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the Jacobian to the Tasks that clear and use it."""
        if self.is_implicit and name == "reset_forces":
            declaration = replace(declaration, writes=(*declaration.writes, "particles.jacobian"))
        if self.is_implicit and name == "assemble":
            declaration = replace(declaration, reads=(*declaration.reads, "particles.jacobian"))
        return stage, declaration

    @property
    def paints(self) -> bool:
        """Whether parameters may change without their Behavior: painted channels are there."""
        return bool(self.vertex_channels()) or bool(self.details)

    # -- unknowns --------------------------------------------------------------------------

    def number(self) -> int:
        """Number the unknowns after bodies came or went; returns how many there are here."""
        self.particle_dof = 3 * np.arange(self.particles.count, dtype=np.int64)
        self.body_start = 3 * self.particles.body_offsets()
        return 3 * self.particles.count

    def own_stencils(self) -> list[tuple[Int64, NDArray[np.int32]]]:
        """Runs of elements by body, and their unknowns: what the Object couples by itself."""
        dofs = (self.first_dof + self.particle_dof[:, None] + np.arange(3)).astype(np.int32)
        return [(self.particles.body_offsets(), dofs)]

    def fill_fixed(self, fixed: NDArray[np.uint8]) -> None:
        """Mark the prescribed ones among this Object's unknowns."""
        pinned = self.particles.local("pinned") != 0
        fixed[(self.particle_dof[pinned][:, None] + np.arange(3)).reshape(-1)] = 1

    def displace(self, change: NDArray[np.float64], fraction: float, dt: float) -> None:
        """Move by a part of the system's correction [size of this Object]; velocities follow."""
        moved = change[self.particle_dof[:, None] + np.arange(3)]
        self.particles.local("position")[:] += fraction * moved
        self.particles.local("velocity")[:] += (fraction / dt) * moved
        for name in ("position", "velocity"):
            self.particles.mark_written(name)

    def inertial_energy(self, change: NDArray[np.float64], dt: float) -> NDArray[np.float64]:
        """Kinetic potential of each body: m |v - v0|^2 / 2; and what Forces do along a change."""
        velocity = self.particles.local("velocity") - self.particles.local("start_velocity")
        mass = self.particles.local("mass")
        energy = 0.5 * mass * np.einsum("na,na->n", velocity, velocity)
        return self._by_body(energy)

    def force_work(self, change: NDArray[np.float64]) -> tuple[float, float]:
        """Linear and quadratic part of what Forces do along a correction [J]: f d and d J d."""
        moved = change[self.particle_dof[:, None] + np.arange(3)]
        linear = float(np.einsum("na,na->", self.particles.local("force"), moved))
        quadratic = 0.0
        if self.is_implicit:
            jacobian = self.particles.local("jacobian")
            quadratic = float(np.einsum("na,nab,nb->", moved, jacobian, moved))
        return linear, quadratic

    def _by_body(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        offsets = self.particles.body_offsets()
        if len(offsets) == 1:
            return np.zeros(0)
        summed: NDArray[np.float64] = np.add.reduceat(values, offsets[:-1])
        return summed

    # -- the step --------------------------------------------------------------------------

    @task(Stage.RESET_FORCES, writes=("particles.force",))
    def reset_forces(self, access: Access, step: Step) -> None:
        """Clear forces and Jacobians."""
        access["particles.force"][:] = 0.0
        if self.is_implicit:
            access["particles.jacobian"][:] = 0.0

    @task(
        Stage.ASSEMBLE_SOLIDS,
        reads=(
            "particles.mass",
            "particles.force",
            "particles.velocity",
            "particles.start_velocity",
        ),
    )
    def assemble(self, access: Access, step: Step) -> None:
        """Bring inertia and the Forces' sums into the joint system."""
        system, force = self.system, access["particles.force"]
        jacobian = access["particles.jacobian"] if self.is_implicit else np.empty((1, 3, 3))
        add_particles(
            self.particle_dof, self.first_dof, access["particles.mass"],
            access["particles.velocity"], access["particles.start_velocity"], force, jacobian,
            int(self.is_implicit), step.dt, system.fixed, system.row, system.rhs, system.values,
        )  # fmt: skip

    # -- what others ask -------------------------------------------------------------------

    def occupied_buckets(self) -> NDArray[np.int32]:
        return self.particles.occupied_buckets()

    def held_points(self) -> NDArray[np.uint8]:
        held: NDArray[np.uint8] = self.particles.local("pinned")
        return held

    def push_points(self, impulse: NDArray[np.float64], dt: float) -> None:
        """Give points an impulse; they move by it in the next step, as far as bodies let them."""
        free = self.particles.local("pinned") == 0
        change = np.where(free[:, None], impulse / self.particles.local("mass")[:, None], 0.0)
        self.particles.local("velocity")[:] += change

    def check_state(self) -> str | None:
        position, velocity = self.particles.local("position"), self.particles.local("velocity")
        maximum = float(self.scope.settings.maximum_speed)
        reach = self.scope.domain.reach
        row = int(first_bad_row(position, velocity, maximum, reach))
        if row < 0:
            return None
        body = int(self.particles.local("body")[row])
        return (
            f"point {int(self.particles.local('id')[row])} of body {body} has position "
            f"{position[row].tolist()} m and velocity {velocity[row].tolist()} m/s: not finite, "
            f"faster than {maximum:g} m/s, or farther than {reach:g} m from the domain's origin"
        )

    def time_step_limit(self) -> float:
        """Points cross at most `courant_number` Buckets in a substep."""
        speed = float(largest_speed(self.particles.local("velocity")))
        if not speed > 0.0:
            return np.inf
        return float(self.scope.settings.courant_number) * self.scope.domain.bucket_size / speed

    def count(self) -> int:
        return self.particles.count

    def bucket_weights(self) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        """Bodies weigh where their first particle is, since they are owned there."""
        keys, places = np.unique(self.particles.home_keys(), return_inverse=True)
        counts = np.diff(self.particles.body_offsets()).astype(np.float64)
        weights = PARTICLE_COST * np.bincount(places, counts, minlength=len(keys))
        return keys, weights.astype(np.float64)

    def owners(self) -> NDArray[np.int64]:
        """Rank that each local body belongs to."""
        return self.scope.domain.owners(self.particles.home_keys()).astype(np.int64)

    def redistribute(self) -> None:
        """Move whole bodies to their ranks. Collective."""
        owners, offsets = self.owners(), self.particles.body_offsets()
        self.particles.settle(np.repeat(owners, np.diff(offsets)))
