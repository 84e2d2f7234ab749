"""Exchange: what a coupling has brought from one Object to another, step by step.

Every coupling accounts for the impulse that points got, that the fluid got, and that went to walls
and prescribed points, each measured on its own side; what points got without a reaction, because
the coupling goes one way or they are outside of the fluid, is unanswered. What no side accounts for
is the residual. A side that cannot be measured is None, and so is the residual then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.body_particles import BodyParticles
from loki_core.data.particle_system import ParticleSystem
from loki_core.parallel.comm import Communicator
from loki_core.parallel.reduce import exact_sum, exact_sums

Float = NDArray[np.float64]
NAMES = ("momentum_to_solids", "momentum_to_fluid", "momentum_to_walls", "momentum_unanswered")
NOTHING: Float = np.zeros((0, 3))


class Exchange:
    """Sums over all ranks since the start of the run.

    Attributes:
        momentum: Given to points, to the fluid, to walls and what is prescribed, and what has no
            reaction, [4, 3] N s.
        energy: Kinetic energy given to the points and to the fluid [J]; the rest is heat.
        steps: Substeps that were counted.
        last: Momentum of the last substep, [4, 3] N s.
        measures_fluid: Whether what the fluid got can be told apart.
        is_one_way: Whether one side does not answer; then heat has no meaning.
    """

    def __init__(
        self, comm: Communicator, *, measures_fluid: bool = True, is_one_way: bool = False
    ) -> None:
        self.comm = comm
        self.measures_fluid = measures_fluid
        self.is_one_way = is_one_way
        self.momentum: Float = np.zeros((4, 3))
        self.energy: Float = np.zeros(2)
        self.steps = 0
        self.last: Float = np.zeros((4, 3))
        self.last_energy: Float = np.zeros(2)
        self._substep = -1

    def add(
        self,
        substep: int,
        *,
        to_points: Float,
        to_fluid: Float = NOTHING,
        to_walls: Float = NOTHING,
        unanswered: Float = NOTHING,
        energy_to_points: Float,
        energy_to_fluid: Float = NOTHING,
    ) -> None:
        """Count impulses [any, 3] N s of one substep; counting it again replaces it. Collective.

        Args:
            energy_to_points, energy_to_fluid: Work of these impulses [J], any shape.
        """
        if substep == self._substep:
            self.momentum -= self.last
            self.energy -= self.last_energy
            self.steps -= 1
        self._substep = substep
        for row, part in enumerate((to_points, to_fluid, to_walls, unanswered)):
            self.last[row] = exact_sums(self.comm, part)
        for row, part in enumerate((energy_to_points, energy_to_fluid)):
            self.last_energy[row] = exact_sum(self.comm, part)
        self.momentum += self.last
        self.energy += self.last_energy
        self.steps += 1

    def to_document(self) -> dict[str, Any]:
        """Plain values for the statistics."""
        document: dict[str, Any] = {"steps": self.steps, "mass": 0.0}
        for name, row in zip(NAMES, self.momentum, strict=True):
            document[name] = row.tolist()
        document["momentum_residual"] = self.momentum.sum(axis=0).tolist()
        document["last_residual"] = self.last.sum(axis=0).tolist()
        document["energy_to_solids"] = float(self.energy[0])
        document["energy_to_fluid"] = float(self.energy[1])
        document["heat"] = None if self.is_one_way else float(-self.energy.sum())
        if not self.measures_fluid:
            unknown = ("momentum_to_fluid", "momentum_unanswered", "momentum_residual")
            for name in (*unknown, "last_residual", "energy_to_fluid", "heat"):
                document[name] = None
        return document

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "momentum": self.momentum.copy(),
            "energy": self.energy.copy(),
            "steps": self.steps,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take such a state back; none is a run that begins."""
        self.momentum = np.zeros((4, 3))
        kept = np.array(state.get("momentum", self.momentum), np.float64)
        self.momentum[: len(kept)] = kept  # earlier versions had three rows
        self.energy = np.array(state.get("energy", np.zeros(2)), np.float64)
        self.steps = int(state.get("steps", 0))
        self._substep = -1


def in_runs(values: Float, carrier: ParticleSystem) -> Float:
    """Sums [runs, ...] of point values over bodies, or over Buckets, which are whole on a rank.

    Each is taken in the order of its own points, so exact sums of them do not depend on ranks.
    """
    offsets = carrier.body_offsets() if isinstance(carrier, BodyParticles) else carrier.offsets
    starts = np.unique(offsets[offsets < len(values)])
    if len(starts) == 0:
        return values[:0]
    summed: Float = np.add.reduceat(values, starts, axis=0)
    return summed
