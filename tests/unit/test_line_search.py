"""Newton's line search: what it says where no part of a step lowers the potential."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.constraints.distance import DistanceAction
from loki_core.errors import DivergenceError

pytestmark = pytest.mark.compiles


def test_the_constraint_whose_energy_rises_is_named(monkeypatch):
    """A Distance that counts stretch as gain: its matrix leads uphill."""
    strand = np.stack((0.1 * np.arange(5), np.zeros(5), np.zeros(5)), axis=1)
    setup = lk.SolverSetup(
        "hair",
        lk.CurvesObject(name="Hair", input="hair", radius=1e-3),
        lk.StretchingConstraint(young_modulus=1e5),
        lk.DistanceConstraint(name="Spring", stiffness=1e4, rest_scale=0.5),
        newton_iterations=4,
    )
    right = DistanceAction.energies
    monkeypatch.setattr(DistanceAction, "energies", lambda self, dt: -100.0 * right(self, dt))
    solver = lk.Solver(setup, {"hair": lk.Curves.from_strands(strand[None])})
    with pytest.raises(DivergenceError, match=r"no part of the Newton step.*it is Spring.* rises"):
        solver.run(1)
