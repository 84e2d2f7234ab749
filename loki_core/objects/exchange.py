"""Exchange: what a coupling has brought from one Object to another, step by step.

Every coupling accounts for the impulse that points got, that the fluid got, and that went to walls
and prescribed points, each from its own side; what no side accounts for is the residual.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.parallel.comm import Communicator
from loki_core.parallel.reduce import exact_sum

Float = NDArray[np.float64]
NAMES = ("momentum_to_solids", "momentum_to_fluid", "momentum_to_walls")


class Exchange:
    """Sums over all ranks since the start of the run.

    Attributes:
        momentum: Given to points, to the fluid, and to walls and what is prescribed, [3, 3] N s.
        energy: Kinetic energy given to the points and to the fluid [J]; the rest is heat.
        steps: Substeps that were counted.
        last: Momentum of the last substep, [3, 3] N s.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.momentum: Float = np.zeros((3, 3))
        self.energy: Float = np.zeros(2)
        self.steps = 0
        self.last: Float = np.zeros((3, 3))
        self.last_energy: Float = np.zeros(2)
        self._substep = -1

    def add(
        self,
        substep: int,
        *,
        to_points: Float,
        to_fluid: Float,
        to_walls: Float,
        velocity: Float,
        flow: Float,
    ) -> None:
        """Count impulses [n, 3] of one substep; counting it again replaces it. Collective.

        Args:
            velocity, flow: Of points and of the fluid there, in the middle of the exchange [m/s].
        """
        if substep == self._substep:
            self.momentum -= self.last
            self.energy -= self.last_energy
            self.steps -= 1
        self._substep = substep
        for row, part in enumerate((to_points, to_fluid, to_walls)):
            self.last[row] = [exact_sum(self.comm, part[:, axis]) for axis in range(3)]
        self.last_energy[0] = exact_sum(self.comm, np.einsum("na,na->n", to_points, velocity))
        self.last_energy[1] = exact_sum(self.comm, np.einsum("na,na->n", to_fluid, flow))
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
        document["heat"] = float(-self.energy.sum())
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
        self.momentum = np.array(state.get("momentum", np.zeros((3, 3))), np.float64)
        self.energy = np.array(state.get("energy", np.zeros(2)), np.float64)
        self.steps = int(state.get("steps", 0))
        self._substep = -1
