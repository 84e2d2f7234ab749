"""Solid: the base of Objects whose points belong to bodies, which are kept whole and in order.

A solid is always part of the joint system (`objects/solids/joinable.py`). What is prescribed stands
where it has to be at the end of the step before the first iteration begins, and is no unknown any
more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.data.accessors import Declaration
from loki_core.data.body_particles import BodyParticles
from loki_core.kernels.particles.lagrangian_step import first_bad_row
from loki_core.objects.basics.capabilities import Bodies
from loki_core.objects.solids.joinable import Joinable
from loki_core.pipeline.task import Weights

Int64 = NDArray[np.int64]


class Solid(Joinable, Bodies):
    """Particles that belong to bodies; what else has unknowns comes in subclasses."""

    kept_by = "body"
    cost = 0.75  # of a vertex, its share of the joint system included

    coupling_reads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "held_points": ("particles.pinned",),
        "push_points": ("particles.pinned", "particles.mass"),
        "account": ("particles.pinned", "particles.body"),
    }

    particles: BodyParticles

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

    # -- unknowns --------------------------------------------------------------------------

    def joint_declaration(self, name: str) -> Declaration:
        """Bodies are found by their numbers; what is prescribed is pinned."""
        touched = super().joint_declaration(name)
        more = {
            "number": Declaration(reads=("particles.body",)),
            "reset": Declaration(reads=("particles.body", "particles.pinned")),
        }.get(name, touched)
        if name == "move" and touched.reads:  # a line search adds up by body
            more = replace(touched, reads=(*touched.reads, "particles.body"))
        return more

    def number(self) -> int:
        self.particle_dof = 3 * np.arange(self.particles.count, dtype=np.int64)
        self.body_start = 3 * self.particles.body_offsets()
        return 3 * self.particles.count

    def needs_numbers(self) -> bool:
        """Bodies are in the order of their ids, so rows change only where bodies come or go."""
        return True

    def point_bodies(self) -> Int64:
        sizes = np.diff(self.particles.body_offsets())
        return np.repeat(np.arange(len(sizes)), sizes)

    def inertial_energy(self, change: NDArray[np.float64], dt: float) -> NDArray[np.float64]:
        """Kinetic potential of each body."""
        energy, offsets = super().inertial_energy(change, dt), self.particles.body_offsets()
        if len(offsets) == 1:
            return np.zeros(0)
        summed: NDArray[np.float64] = np.add.reduceat(energy, offsets[:-1])
        return summed

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

    def count(self) -> int:
        return self.particles.count

    def weights(self) -> Weights:
        """Bodies weigh where their first particle is."""
        counts = np.diff(self.particles.body_offsets()).astype(np.float64)
        return self.particles.home_keys(), self.element_cost * counts

    def owners(self) -> NDArray[np.int64]:
        """Rank that each local body belongs to."""
        return self.scope.domain.body_owners(self.particles.home_keys()).astype(np.int64)

    def redistribute(self) -> None:
        """Move whole bodies to their ranks. Collective."""
        owners, offsets = self.owners(), self.particles.body_offsets()
        self.particles.settle(np.repeat(owners, np.diff(offsets)))
