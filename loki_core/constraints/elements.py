"""Elements: the sets of points that a Constraint acts on; the paper's Constraint Particle System.

An element has points, the unknowns of these (and of edges, where it looks at those), and a memory:
channels of the target's data, a row for each element, which go where the body goes and are part of
every state. What is painted on points is an element's by the mean over its points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loki_core.data.body_particles import BodyParticles

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Elements:
    """Elements of this rank, in the order of the target's bodies.

    Attributes:
        runs: First element of each local body of the target, and the end, [bodies + 1].
        dofs: Unknowns of each element in the rank's numbering, [n, d].
        points: Rows of the points whose parameters it takes, [n, k].
        holder: What has a row for each element; None where nothing is remembered.
        rows: Which row that is; the element's own number if None.
        gradients: Of the shares of its points by the place at rest, [n, k, c] 1/m, where energies
            are of deformation gradients (`point_energy.py`).
    """

    runs: NDArray[np.int64]
    dofs: NDArray[np.int32]
    points: NDArray[np.int64]
    holder: BodyParticles | None = None
    rows: NDArray[np.int64] | None = None
    gradients: Array | None = None

    @property
    def count(self) -> int:
        """Elements of this rank."""
        return len(self.dofs)

    def mean(self, values: Array) -> Array:
        """What points have [points, ...], of each element: the mean over its points."""
        found: Array = values[self.points[:, 0]].astype(np.float64)
        for column in range(1, self.points.shape[1]):
            found += values[self.points[:, column]]
        found /= self.points.shape[1]
        return found

    def remembered(self, name: str, components: int) -> Array:
        """What elements remember by this name [n, components]; zeros at first."""
        assert self.holder is not None, "elements without a holder remember nothing"
        self.holder.add_channel(name, np.float64, (components,))
        kept: Array = self.holder.local(name)
        return kept if self.rows is None else kept[self.rows]

    def remember(self, name: str, values: Array) -> None:
        """Keep such values."""
        assert self.holder is not None, "elements without a holder remember nothing"
        kept = self.holder.local(name)
        kept[slice(None) if self.rows is None else self.rows] = values
        self.holder.mark_written(name)
