"""A liquid on several ranks: the flow of one rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "liquid_scene.py"
TOLERANCE = 1e-8  # m and m/s after twelve steps, solved to 1e-9


@pytest.mark.mpi
@pytest.mark.parametrize("transfer", ["apic", pytest.param("affine_flip", marks=pytest.mark.slow)])
def test_a_dam_break_does_not_depend_on_ranks(transfer, tmp_path):
    alone = results_on_ranks(SCRIPT, 1, tmp_path, transfer)
    for ranks in (2, 3):
        many = results_on_ranks(SCRIPT, ranks, tmp_path, transfer)
        assert len(many["counts"]) == ranks and many["counts"].min() > 0
        for name in ("position", "velocity"):
            np.testing.assert_allclose(many[name], alone[name], rtol=0, atol=TOLERANCE)
