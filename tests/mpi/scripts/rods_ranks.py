"""Strands on a patch that moves, alone or in wind; saves where they are after some frames.

rods_ranks.py TARGET.npz SCENE                        SCENE: strands, wind
rods_ranks.py TARGET.npz SCENE run FOLDER             with a checkpoint on the way
rods_ranks.py TARGET.npz SCENE resume FOLDER          from that checkpoint, on any number of ranks
"""

from __future__ import annotations

import sys

import numpy as np

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from loki_core.pipeline.repartition import state_for_rank
from loki_vfx.serialization.checkpoint_file import (
    commit_checkpoint,
    open_checkpoint,
    write_rank_state,
)
from tests.ranks import balance_at_every_look

CHECKPOINT, LAST = 3, 6
STRANDS = 40
CHANNELS = ("position", "velocity", "edges.angle", "edges.angular_velocity")


def patch():
    """Curly strands of different sizes that stand on a patch, and some rings that fall."""
    rng = np.random.default_rng(7)
    places, sizes, closed = [], [], []
    for strand in range(STRANDS):
        size, is_ring = 4 + strand % 5, strand % 8 == 5
        root = np.array([0.03 * (strand % 8), 0.0, 0.04 * (strand // 8)])
        angle = 2.0 * np.pi * np.arange(size) / size if is_ring else 0.8 * np.arange(size)
        up = np.full(size, 0.08) if is_ring else 0.015 * np.arange(size)
        places.append(
            root
            + np.stack((0.008 * np.cos(angle), up, 0.008 * np.sin(angle)), axis=1)
            + 0.001 * rng.random((size, 3))
        )
        sizes.append(size)
        closed.append(is_ring)
    curves = lk.Curves(np.concatenate(places), np.cumsum([0, *sizes]), np.array(closed))
    curves.set_channel("point", "radius", 2e-4 * (1.0 + rng.random(curves.point_count)))
    curves.set_channel("primitive", "clump", np.arange(STRANDS))
    return curves


def moving(frame):
    """The patch turns about y and shifts."""
    start = patch()
    angle, shift = 0.06 * (frame - 1), np.array([0.004, 0.0, 0.002]) * (frame - 1)
    turn = np.array(
        [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
    )
    moved = lk.Curves(start.positions @ turn.T + shift, start.offsets, start.closed)
    for place in ("point", "primitive"):
        for name, values in start.channels[place].items():
            moved.set_channel(place, name, values)
    return moved


def make_solver(comm, scene):
    parts = [
        lk.Group(
            "Hair",
            lk.CurvesObject(input="hair"),
            lk.StretchingConstraint(young_modulus=1e7),
            lk.BendingConstraint(young_modulus=1e7, shear_modulus=3e6, damping_time=0.01),
        ),
        lk.GravityForce(),
    ]
    if scene == "wind":
        parts += [
            lk.Group(
                "Wind",
                lk.VolumeObject(
                    voxel_size=0.0125,
                    around="Hair/CurvesObject",
                    padding=4,
                    channels=(),
                    ambient_velocity=(2.0, 0.0, 0.5),
                ),
                lk.PressureMaterial(tolerance=1e-13),
            ),
            lk.CoupledDragForce(),
            lk.CoupledBuoyancyOperator(),
        ]
    setup = lk.SolverSetup(
        "patch",
        *parts,
        precision="double",
        bucket_size=0.05,
        balance_every=2,
        substeps=2,
    )
    return lk.Solver(setup, {"hair": moving}, comm=comm)


def write(comm, solver, folder):
    write_rank_state(folder, CHECKPOINT, solver.state(), rank=comm.rank)
    comm.barrier()
    if comm.rank == 0:
        commit_checkpoint(folder, CHECKPOINT, ranks=comm.size)
    comm.barrier()


def run(comm, scene, way="run", folder=None):
    solver = make_solver(comm, scene)
    if way == "resume":
        checkpoint = open_checkpoint(folder, CHECKPOINT)
        parts = [checkpoint.read(rank) for rank in range(checkpoint.ranks)]
        solver.restore(state_for_rank(parts, comm.rank, comm.size))
    elif folder is not None:
        solver.run(CHECKPOINT - solver.frame)
        write(comm, solver, folder)
    solver.run(LAST - solver.frame)
    return solver


def main(target, scene, *rest):
    comm = world()
    balance_at_every_look()
    with one_fails_all_fail(comm):
        solver = run(comm, scene, *rest)
        found = {name: solver.read("Hair/CurvesObject", name) for name in CHANNELS}
        if scene == "wind":
            found["flow"] = solver.read("Wind/VolumeObject", "velocity")
            for path, document in solver.exchanges().items():
                for name in ("momentum_to_solids", "momentum_to_fluid", "momentum_residual"):
                    if document[name] is not None:
                        found[f"{path} {name}"] = np.array(document[name])
        rods = solver.object("Hair/CurvesObject")
        found["counts"] = np.concatenate(comm.all_gather(np.array([rods.particles.count])))
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
