"""Discrete Volumes on ranks: slabs of 1 to 8 layers, accumulation, passes, migration, levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks import run_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "volume_exchange.py"


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_volumes_on_ranks(ranks):
    assert "all checks passed" in run_on_ranks(SCRIPT, ranks, timeout=120.0).stdout
