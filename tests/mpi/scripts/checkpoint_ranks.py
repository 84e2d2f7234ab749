"""Run a scene, write a checkpoint on the way, or continue from one on any number of ranks.

checkpoint_ranks.py TARGET run FOLDER        frames 1 to 7, with a checkpoint of frame 4
checkpoint_ranks.py TARGET resume FOLDER     from the checkpoint to frame 7
checkpoint_ranks.py TARGET cancel FOLDER     stopped on request in frame 5, checkpoint there
"""

from __future__ import annotations

import sys

import numpy as np

from loki_core.data.points import Points
from loki_core.errors import Cancelled
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.gravity import GravityForce
from loki_core.objects.particles.particles import ParticleObject
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.parallel.comm import one_fails_all_fail, world
from loki_core.pipeline.repartition import state_for_rank
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from loki_vfx.serialization.checkpoint_file import (
    commit_checkpoint,
    open_checkpoint,
    write_rank_state,
)
from tests.ranks import balance_at_every_look

CHECKPOINT, LAST = 4, 7


def make_solver(comm):
    rng = np.random.default_rng(3)
    points = Points(rng.random((1500, 3)))
    points.set_channel("point", "velocity", rng.standard_normal((1500, 3)))
    points.set_channel("point", "painted", rng.random((1500, 3)))
    setup = SolverSetup(
        "scene",
        ParticleObject(
            input="p", source="p", rate=3000.0, lifetime=0.4, lifetime_variation=0.9,
            velocity_spread=2.0, name="dust",
        ),
        GravityForce(),
        FluidDragForce(velocity=(1.0, 0.0, 0.0)),
        ParticleExpression(
            expression="heat = heat + dt * length(velocity) + rand(1)",
            new_channels=("heat",),
            stage="SUBSTEP_END",
        ),
        substeps=2,
        bucket_size=0.2,
        balance_every=3,
    )  # fmt: skip
    return Solver(setup, {"p": points}, comm=comm)


def write(comm, solver, folder):
    write_rank_state(folder, CHECKPOINT, solver.state(), rank=comm.rank)
    comm.barrier()
    if comm.rank == 0:
        commit_checkpoint(folder, CHECKPOINT, ranks=comm.size)
    comm.barrier()


def run(comm, folder):
    solver = make_solver(comm)
    solver.run(CHECKPOINT - 1)
    write(comm, solver, folder)
    solver.run(LAST - CHECKPOINT)
    return solver


def cancel(comm, folder):
    """Stop in mid-substep of a later frame: only one rank hears the request."""
    solver = make_solver(comm)
    solver.run(CHECKPOINT - 1)
    seen = []

    def listen(label):
        seen.append(label)
        if len(seen) == 17 and comm.rank == comm.size - 1:
            solver.cancel()

    solver.observe_tasks(listen)
    try:
        solver.run(1)
    except Cancelled:
        write(comm, solver, folder)
        return solver
    raise AssertionError("the request to stop was not heard")


def resume(comm, folder):
    checkpoint = open_checkpoint(folder, CHECKPOINT)
    parts = [checkpoint.read(rank) for rank in range(checkpoint.ranks)]
    solver = make_solver(comm)
    solver.restore(state_for_rank(parts, comm.rank, comm.size))
    solver.run(LAST - solver.frame)
    return solver


def main(target, way, folder):
    comm = world()
    balance_at_every_look()
    with one_fails_all_fail(comm):
        solver = {"run": run, "resume": resume, "cancel": cancel}[way](comm, folder)
        names = [n for n in solver.object("dust").particles.channels if n != "jacobian"]
        found = {name: solver.read("dust", name) for name in names}
        found["time"] = np.array([solver.time])
        found["counts"] = np.concatenate(
            comm.all_gather(np.array([solver.object("dust").particles.count]))
        )
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
