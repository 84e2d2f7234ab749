"""Run scenes that have every Task of the core, and save what Tasks declare and what they did.

declared_tasks.py TARGET.json
"""

from __future__ import annotations

import json
import re
import sys

import numpy as np

import loki_core as lk
from loki_core.data import task_notes
from loki_core.parallel.comm import one_fails_all_fail, world
from loki_core.pipeline.stages import Stage
from tests.ranks import balance_at_every_look
from tests.skeleton.declared_scenes import SCENES


def common(what, solver):
    """What a Task does, whichever Objects and Colliders there are."""
    for path in solver.objects:
        what = what.replace(f"{path}/", "*/")
    return re.sub(r"(collider|points|carrier)\d+", r"\1", what)


def main(target):
    comm = world()
    balance_at_every_look()
    task_notes.SUMS_EVERY = 1  # what changes seldom is seen, too
    found: dict[str, dict[str, set[str]]] = {}
    for scene in SCENES:
        setup, inputs, frames = scene()
        solver = lk.Solver(setup, inputs)
        solver.run(frames)
        for stage in Stage:
            for one in solver.schedule[stage]:
                of_task = found.setdefault(
                    one.task.run.__func__.__qualname__, {"declared": set(), "idle": set()}
                )
                everything = type(one.seen)().promised(one.task.declaration)
                idle = one.seen.idle(one.task.declaration)
                of_task["declared"] |= {common(what, solver) for what in everything}
                of_task.setdefault("seen", set()).update(
                    common(what, solver) for what in everything - idle
                )
    mine = {name: {k: sorted(v) for k, v in one.items()} for name, one in found.items()}
    text = np.frombuffer(json.dumps(mine).encode(), np.uint8)
    parts = [json.loads(part.tobytes()) for part in comm.all_gather(text)]
    if comm.rank == 0:
        whole = {
            name: {
                "idle": sorted(
                    set().union(*(part[name]["declared"] for part in parts))
                    - set().union(*(part[name]["seen"] for part in parts))
                )
            }
            for name in parts[0]
        }
        with open(target, "w") as file:
            json.dump(whole, file)


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main(sys.argv[1])
