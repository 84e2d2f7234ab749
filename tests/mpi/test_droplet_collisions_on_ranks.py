"""Droplets collide alike on any number of ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ranks import results_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "droplet_collisions.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("droplets")
    return {ranks: results_on_ranks(SCRIPT, ranks, folder) for ranks in (1, 2, 3)}


def of_scene(found, scene):
    return {
        name.partition("/")[2]: values
        for name, values in found.items()
        if name.startswith(f"{scene}/")
    }


@pytest.mark.mpi
@pytest.mark.parametrize("scene", ["spray", "far", "periodic", "few"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_collisions_do_not_depend_on_ranks(runs, scene, ranks):
    alone, many = of_scene(runs[1], scene), of_scene(runs[ranks], scene)
    counts = many.pop("counts")
    np.testing.assert_array_equal(counts.sum(axis=1), alone.pop("counts")[:, 0])
    assert set(many) == set(alone)
    if scene == "few":
        assert ranks == 2 or counts.min() == 0  # a rank without droplets takes part
    else:
        assert (counts > 100).all(axis=1).any()
        for name in ("coalescences", "reflexions", "stretchings", "satellites"):
            assert alone[f"account.{name}"] > 3, name
    for name, values in alone.items():
        if scene == "periodic" and values.dtype.kind == "f":  # images are rounded
            error = 1e-12 * np.abs(values).max()
            np.testing.assert_allclose(many[name], values, rtol=0, atol=error, err_msg=name)
        else:
            np.testing.assert_array_equal(many[name], values, err_msg=name)
