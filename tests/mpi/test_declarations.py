"""Every Task declares what it does, and does what it declares; scenes run on two ranks."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from pathlib import Path

import pytest

import loki_core
from tests.ranks import run_on_ranks

SCRIPT = Path(__file__).parent / "scripts" / "declared_tasks.py"


#: The volumes of strands are kept: only who asks first for them reads these.
KEPT = {"touches edges.rest_length", "touches edges.tangent"}
#: What Tasks declare and no scene asks for; the last two are for bodies so large that they have
#: factors of their own, or multigrid.
UNUSED = {
    "CoupledBuoyancyAction.fill_pores": KEPT,
    "CoupledBuoyancyAction.push_solids": KEPT,
    "MatchTargetAction.match": {"touches solids.fixed_with_ghosts"},
    "SolidSystem.solve": {"touches */particles.position"},
}


def all_tasks():
    """Names of all methods of the core that are Tasks."""
    found = set()
    for module in pkgutil.walk_packages(loki_core.__path__, "loki_core."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            for name, method in vars(kind).items():
                if hasattr(method, "__loki_task__"):
                    found.add(f"{kind.__qualname__}.{name}")
    return found


@pytest.mark.mpi
@pytest.mark.compiles
def test_tasks_do_what_they_declare(tmp_path):
    # What is done and not declared fails in the scenes themselves.
    run_on_ranks(SCRIPT, 2, tmp_path / "tasks.json")
    found = json.loads((tmp_path / "tasks.json").read_text())
    assert set(found) == all_tasks()
    idle = {name: set(one["idle"]) for name, one in found.items() if one["idle"]}
    assert idle == {name: unused for name, unused in UNUSED.items() if name in idle}
