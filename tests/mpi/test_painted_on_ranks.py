"""What is painted on solids has the same effect on any number of ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "painted_solids.py"
#: Of the largest value; a wind's pressure is found by iterations.
TOLERANCE = {"windy": 1e-7}


@pytest.mark.mpi
@pytest.mark.compiles
def test_painted_parameters_do_not_depend_on_ranks(tmp_path):
    alone, many = (results_on_ranks(SCRIPT, ranks, tmp_path) for ranks in (1, 2))
    assert set(many) == set(alone)
    for name, values in alone.items():
        scene, what = name.split()
        if what == "counts":
            assert many[name].sum() == values.sum()
            assert many[name].min() > 0 or scene in ("windy", "dust"), name
            continue
        bound = TOLERANCE.get(scene, 1e-10) * np.abs(values).max()
        np.testing.assert_allclose(many[name], values, rtol=0, atol=bound, err_msg=name)
