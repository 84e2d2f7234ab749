"""Embedding: particles that ride on an Object's degrees of freedom.

    x_e = sum_k w_ek q_k,     J = dx_e / dq = w_ek I     (constant, kept as ids and weights)

Actions see embedded positions and give forces there; `pull_back` brings them to the degrees of
freedom as J^T f. Degrees of freedom are named by id, so they may live on any rank; the plan of who
asks whom is made once per layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.accessors import Access
from loki_core.data.particle_directory import GatherPlan
from loki_core.errors import InputError

Array = NDArray[Any]


class Embedding:
    """Embedded particles of this rank.

    Args:
        ids: Particles that carry each embedded one, shape [count, k].
        weights: Their shares, shape [count, k]; rows sum to 1.
        data_name: What Tasks call the carrying Particle System.
    """

    def __init__(
        self, ids: NDArray[np.int64], weights: NDArray[np.float64], *, data_name: str = "particles"
    ) -> None:
        if ids.shape != weights.shape or ids.ndim != 2:
            raise InputError(f"embedding: ids {ids.shape} and weights {weights.shape} do not match")
        if not np.allclose(weights.sum(axis=1), 1.0, rtol=0.0, atol=1e-12):
            row = int(np.argmax(np.abs(weights.sum(axis=1) - 1.0)))
            raise InputError(f"embedding: weights[{row}] = {weights[row]} do not sum to 1")
        self.ids = np.ascontiguousarray(ids, dtype=np.int64)
        self.weights = weights.astype(np.float64)
        self.data_name = data_name
        self._plan: GatherPlan | None = None

    @property
    def count(self) -> int:
        """Embedded particles of this rank."""
        return len(self.ids)

    def push_forward(self, access: Access, values: Array) -> Array:
        """Embedded positions, or velocities, from the carriers' local values [n, c]. Collective."""
        gathered = self._current_plan(access).gather(values)
        carried = gathered.reshape(*self.ids.shape, *values.shape[1:])
        embedded: Array = np.einsum("ek,ekc->ec", self.weights, carried)
        return embedded

    def pull_back(self, access: Access, forces: Array, target: Array) -> None:
        """Add J^T f of embedded forces [count, c] to the carriers' local values. Collective."""
        shared = self.weights[:, :, None] * forces[:, None, :]
        self._current_plan(access).scatter_add(shared.reshape(-1, forces.shape[1]), target)

    def _current_plan(self, access: Access) -> GatherPlan:
        version = access.of(self.data_name).layout_version
        stale = self._plan is None or self._plan.layout_version != version
        if access.of(self.data_name).domain.comm.any(stale):
            self._plan = access.plan(self.data_name, self.ids.reshape(-1))
        assert self._plan is not None
        return self._plan
