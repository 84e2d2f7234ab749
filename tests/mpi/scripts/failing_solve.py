"""One rank fails in the middle of what ranks do together: failing_solve.py WAY.

solve     before a linear solve that others have begun
gather    before values are gathered by ids from all ranks
"""

from __future__ import annotations

import sys

import numpy as np

import loki_core as lk
from loki_core.constraints.attachment import AttachmentAction
from loki_core.errors import DivergenceError
from loki_core.objects.solids.solid_system import SolidSystem
from loki_core.parallel.comm import one_fails_all_fail, world


def fail_before(kind, name, rank, comm):
    """Let a method fail on one rank, from the second frame on."""
    method = getattr(kind, name)

    def failing(self, *arguments):
        if comm.rank == rank and self.frames > 1:
            raise DivergenceError(f"rank {rank} cannot go on")
        return method(self, *arguments)

    kind.frames = 0
    setattr(kind, name, failing)


def main(way):
    comm = world()
    target = {"solve": (SolidSystem, "_solve_bodies"), "gather": (AttachmentAction, "evaluate")}
    fail_before(*target[way], 1, comm)
    strands = np.zeros((8, 5, 3))
    strands[..., 0], strands[..., 2] = 0.02 * np.arange(5), 0.05 * np.arange(8)[:, None]
    setup = lk.SolverSetup(
        "web",
        lk.CurvesObject(name="Hair", input="hair", radius=1e-3),
        lk.StretchingConstraint(young_modulus=1e6),
        lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5),
        lk.AttachmentConstraint(source="Hair", target="Hair", range=0.06, stiffness=10.0),
        lk.GravityForce(),
        bucket_size=0.05,
    )
    with one_fails_all_fail(comm):
        solver = lk.Solver(setup, {"hair": lk.Curves.from_strands(strands)})
        assert comm.total(len(solver.solids.solids[0].particles.local("id"))) == 40
        for frame in range(4):
            target[way][0].frames = frame
            solver.run(1)
        print("finished")


if __name__ == "__main__":
    main(sys.argv[1])
