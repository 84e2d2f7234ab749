"""Joinable: an Object whose points can be unknowns of the joint system of all solids.

It numbers its unknowns, says what they weigh and which of them are prescribed, and moves by what
the joint system finds (`objects/solids/solid_system.py`). Backward Euler: with x = x0 + h v,

    r = f(x, v) - M (v - v0) / h = 0,     (M / h^2 - df/dx) dx = r     in each Newton iteration.

The unknowns are displacements, and float64 throughout. Numbers go by body and id, not by the rows
in which points are stored, so they last while rows change places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior
from loki_core.data.accessors import Access, ChannelData, Declaration
from loki_core.data.particle_system import ParticleSystem
from loki_core.kernels.particles.lagrangian_step import largest_speed
from loki_core.kernels.solids.constraint_assembly import add_particles
from loki_core.objects.basics.capabilities import Displacing, SolvedPoints
from loki_core.objects.basics.object import Object
from loki_core.objects.solids.embedded_points import EmbeddedPoints, OwnPoints
from loki_core.objects.solids.solid_system import SolidSystem
from loki_core.objects.solids.unknowns import POSITION, Unknowns
from loki_core.pipeline.stages import USER_STAGES, Stage
from loki_core.pipeline.task import Step, task

Int64 = NDArray[np.int64]


class Joinable(Object, Displacing, SolvedPoints):
    """Points with three unknowns each, every one a body of its own; subclasses may differ.

    Attributes:
        particles: The points that Forces and Constraints act on.
        is_joined: Whether the joint system solves for them.
        system: The joint system, once joined.
        unknowns: Their numbers.
        parameter_version: Changes when rest lengths, overrides of the input or the like do, on
            which stiffness depends.
        body_colliders: Colliders that contacts may be found with; they enter themselves.
        fluid: The Operator that makes a liquid of them, if any.
        contacts: What lets particles meet Colliders, if anything does.
    """

    particles: ParticleSystem
    system: SolidSystem
    fluid: Any = None
    stages_to_move: tuple[str, ...] = USER_STAGES
    contacts: Any = None
    has_frames = False
    unknowns: Unknowns
    _numbered: Int64 = np.empty(0, np.int64)  # ids in the order of their numbers

    def __post_init__(self) -> None:
        super().__post_init__()
        self.is_joined = False
        self.unknowns = Unknowns.of_points(np.empty(0, np.int64))
        self.parameter_version = 0
        self.body_colliders: list[Any] = []

    @property
    def data(self) -> dict[str, ChannelData]:
        return {"particles": self.particles}

    @property
    def task_data(self) -> dict[str, Any]:
        """Its own, and the unknowns of the joint system."""
        return self.data | ({"solids": self.system.unknowns} if self.is_joined else {})

    def joint_declaration(self, name: str) -> Declaration:
        """What a Task of the joint system touches here when it calls the methods below."""
        searches = self.scope.settings.newton_iterations > 1
        touched = {
            "number": Declaration(reads=("particles.id",)),
            "move": Declaration(writes=("particles.position", "particles.velocity")),
            "solve": Declaration(reads=("particles.position",)),
            "fill_inertia": Declaration(reads=("particles.mass",)),
            "way_to_start": Declaration(reads=("particles.start_position",)),
        }.get(name, Declaration())
        if name == "move" and searches:
            names = ["particles.force", "particles.mass", "particles.start_velocity"]
            names += ["particles.jacobian"] if self.is_implicit else []
            touched = replace(touched, reads=tuple(names))
        return touched

    def join(self) -> None:
        """Become part of the joint system; whoever needs that asks, before there is any data."""
        if not self.is_joined:
            self.is_joined = True
            self.scope.solids.add(self)

    def offer_channel(self, name: str) -> None:
        """All that it can have is there."""

    def were_moved(self) -> None:
        """Nothing has to be done at once."""

    def need_jacobian(self) -> None:
        """Make room for Jacobians; called by implicit Forces."""
        self.particles.add_channel("jacobian", self.particles.dtype, (3, 3))

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
        if self.is_implicit and name in ("assemble", "solve"):
            declaration = replace(declaration, reads=(*declaration.reads, "particles.jacobian"))
        return stage, declaration

    def parameters_version(self, behavior: Behavior) -> tuple[Any, ...]:
        """Changes when what overrides parameters of a Behavior, or of the Object, may have."""
        painted = (
            *self.overriding_channels(behavior),
            *self.overriding_channels(self.behavior),
        )
        channels = self.particles.channels
        versions = tuple(channels[name].version for name in painted)
        return (self.settings, self.parameter_version, self.particles.layout_version, versions)

    def take_overrides(self, stream: Any, changed: Mapping[str, list[str]]) -> None:
        self.parameter_version += 1

    # -- places on it ----------------------------------------------------------------------

    def embed(
        self, primitives: Int64, corners: Int64, weights: NDArray[np.float64]
    ) -> EmbeddedPoints:
        """Points as they are: each is a primitive."""
        return OwnPoints(self, primitives)

    def attachable(self, ids: Int64) -> tuple[Int64, Int64, bool]:
        """Every point, a body of its own."""
        own = np.arange(len(ids), dtype=np.int64)
        return own[:, None], own, True

    # -- unknowns --------------------------------------------------------------------------

    def number(self) -> None:
        """Number the unknowns after bodies came or went."""
        ids = self.particles.local("id")
        order = np.argsort(ids, kind="stable")
        self._numbered = ids[order]
        self.unknowns = Unknowns.of_points(order)

    def needs_numbers(self) -> bool:
        """Whether bodies came or went when rows changed places; if not, find the rows again."""
        ids = self.particles.local("id")
        order = np.argsort(ids, kind="stable")
        if not np.array_equal(ids[order], self._numbered):
            return True
        self.unknowns.reorder(order)
        return False

    def vertices(self) -> tuple[NDArray[np.int32], NDArray[np.float64] | None]:
        """How many unknowns belong together, in the order of their numbers; and where, at rest.

        None where it is not known: then a matrix is ordered by its graph.
        """
        return self.unknowns.widths(), None

    @property
    def is_of_points(self) -> bool:
        """Whether these are all points, without angles."""
        return self.unknowns.size == 3 * self.particles.count

    def places(self) -> NDArray[np.float64]:
        """Where they are now, in the same order."""
        found = np.empty(self.unknowns.size)
        self.unknowns.scatter(found, POSITION, self.particles.local("position"))
        return found.reshape(-1, 3)

    def fill_fixed(self, fixed: NDArray[np.uint8]) -> None:
        """Mark the prescribed ones among this Object's unknowns."""
        self.unknowns.scatter(fixed, POSITION, 1, self.held_points() != 0)

    def fill_inertia(self, inertia: NDArray[np.float64]) -> None:
        """Write mass, or moment of inertia, of this Object's unknowns."""
        self.unknowns.scatter(inertia, POSITION, self.particles.local("mass")[:, None])

    def fill_sizes(self, sizes: NDArray[np.float64]) -> None:
        """Write the magnitudes of this Object's unknowns, of which rounding is a part."""
        self.unknowns.scatter(sizes, POSITION, np.abs(self.particles.local("position")))

    def largest_turn(self, change: NDArray[np.float64]) -> float:
        """Largest angle that a correction turns anything by [rad]; points do not turn."""
        return 0.0

    def inertial_rounding(self) -> float:
        """By how much rounding of velocities may change the kinetic potential, over epsilon [J]."""
        after, before = self.particles.local("velocity"), self.particles.local("start_velocity")
        mass = self.particles.local("mass")[:, None]
        moved = np.abs(after - before) * (np.abs(after) + np.abs(before))
        return float(np.sum(mass * moved))

    def iterate(self) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Channels that `displace` changes, each with a copy of what it is now."""
        names = ("position", "velocity")
        return [(self.particles.local(name), self.particles.local(name).copy()) for name in names]

    def displace(self, change: NDArray[np.float64], fraction: float, dt: float) -> None:
        """Move by a part of the system's correction [size of this Object]; velocities follow."""
        moved = self.unknowns.gather(change, POSITION)
        self.particles.local("position")[:] += fraction * moved
        self.particles.local("velocity")[:] += (fraction / dt) * moved
        for name in ("position", "velocity"):
            self.particles.mark_written(name)

    def way_to_start(self) -> NDArray[np.float64]:
        """The correction that brings it back to the start of the step, where that is known."""
        change, particles = np.zeros(self.unknowns.size), self.particles
        moved = particles.local("start_position") - particles.local("position")
        self.unknowns.scatter(change, POSITION, moved)
        return change

    def displace_turning(
        self, change: NDArray[np.float64], fraction: float, dt: float
    ) -> NDArray[np.float64]:
        """Move along a curve that a correction is tangent to; returns what points moved [n, 3]."""
        self.displace(change, fraction, dt)
        moved: NDArray[np.float64] = fraction * self.unknowns.gather(change, POSITION)
        return moved

    def take_step(self, change: NDArray[np.float64], dt: float) -> None:
        """Move by a whole correction that no line search has looked at."""
        self.displace(change, 1.0, dt)

    def inertial_energy(self, change: NDArray[np.float64], dt: float) -> NDArray[np.float64]:
        """Kinetic potential m |v - v0|^2 / 2 of each point, or of each body, which is as good."""
        velocity = self.particles.local("velocity") - self.particles.local("start_velocity")
        energy: NDArray[np.float64] = (
            0.5 * self.particles.local("mass") * np.einsum("na,na->n", velocity, velocity)
        )
        return energy

    def force_work(self, moved: NDArray[np.float64]) -> float:
        """What Forces do as points move by so much [n, 3]: f d + d J d / 2, in J."""
        work = float(np.einsum("na,na->", self.particles.local("force"), moved))
        if self.is_implicit:
            jacobian = self.particles.local("jacobian")
            work += 0.5 * float(np.einsum("na,nab,nb->", moved, jacobian, moved))
        return work

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
            "solids.fixed",
        ),
        accumulates=("solids.force", "solids.matrix"),
    )
    def assemble(self, access: Access, step: Step) -> None:
        """Bring inertia and the Forces' sums into the joint system."""
        system, force = self.system, access["particles.force"]
        jacobian = access["particles.jacobian"] if self.is_implicit else np.empty((1, 3, 3))
        add_particles(
            self.unknowns.starts(POSITION), self.unknowns.first, access["particles.mass"],
            access["particles.velocity"], access["particles.start_velocity"], force, jacobian,
            int(self.is_implicit), step.dt, system.fixed, system.row, system.rhs, system.values,
        )  # fmt: skip

    # -- what others ask -------------------------------------------------------------------

    def time_step_limit(self) -> float:
        """Points cross at most `courant_number` Buckets in a substep."""
        speed = float(largest_speed(self.particles.local("velocity")))
        if not speed > 0.0:
            return np.inf
        return float(self.scope.settings.courant_number) * self.scope.domain.bucket_size / speed
