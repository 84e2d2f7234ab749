"""One rank fails, in one of several ways; the others wait for it: failing_rank.py WAY."""

from __future__ import annotations

import sys

import numpy as np

from loki_core.behavior import Behavior, parameter
from loki_core.data.points import Points
from loki_core.errors import DivergenceError, InputError
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.operator import Operator
from loki_core.parallel.comm import one_fails_all_fail, world
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import task
from loki_core.solver_setup import SolverSetup


class TrapOperator(Behavior, kind="operator"):
    """Fails in a Task, on rank 1 only."""

    way: str = parameter("bug", doc="How.")


class TrapAction(Operator, behavior=TrapOperator):
    @task(Stage.ADVECT, writes=("particles.velocity",))
    def spring(self, access, step):
        """Fail in the second frame."""
        rank = self.target.scope.domain.comm.rank
        if rank != 1 or step.frame < 3:
            return
        way = self.settings.way
        if way == "bug":
            raise ZeroDivisionError("a bug on rank 1")
        if way == "input":
            raise InputError("rank 1 cannot read its input")
        if way == "divergence":
            raise DivergenceError("rank 1 has lost its balance")
        if way == "once" and step.dt > 0.03:
            raise DivergenceError("rank 1 needs a shorter step")
        if way == "nan":
            access["particles.velocity"][:1] = np.nan


def main(way):
    comm = world()
    with one_fails_all_fail(comm):
        if way == "exit" and comm.rank == 1:
            sys.exit(3)
        if way == "early" and comm.rank == 1:
            raise RuntimeError("rank 1 did not even start")
        points = Points(np.random.default_rng(1).random((200, 3)))
        setup = SolverSetup(
            "trap", ParticleObject(input="p"), GravityForce(), TrapOperator(way=way), retries=2
        )
        solver = Solver(setup, {"p": points})
        solver.run(4)
        count = len(solver.read("ParticleObject", "position"))
        if comm.rank == 0:
            print(f"finished with {count} particles, {solver.timeline.retried} retries")


if __name__ == "__main__":
    main(sys.argv[1])
