"""Strands or leaves on a patch that moves, alone or in wind; saves where they are at the end.

rods_ranks.py TARGET.npz SCENE                        SCENE: strands, wind, leaves
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
ANGLES = ("edges.angle", "edges.angular_velocity")


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


def leaves():
    """Sheets of quads and triangles that hang from their first two points, and some that fall."""
    rng = np.random.default_rng(8)
    places, polygons, pins = [], [], []
    for leaf in range(STRANDS):
        size = 3 + leaf % 3
        x, y = np.meshgrid(0.01 * np.arange(size), -0.01 * np.arange(size), indexing="xy")
        flat = np.stack((x, y, 0.1 * x), axis=-1).reshape(-1, 3)
        root = np.array([0.05 * (leaf % 8), 0.0, 0.04 * (leaf // 8)])
        row = len(pins) + np.arange(size * size).reshape(size, size)
        quads = np.stack((row[:-1, :-1], row[:-1, 1:], row[1:, 1:], row[1:, :-1]), axis=-1)
        polygons += quads.reshape(-1, 4).tolist()
        places.append(root + flat + 0.001 * rng.random(flat.shape))
        pins += [leaf % 5 > 0, leaf % 5 > 0, *[0] * (size * size - 2)]
    mesh = lk.Surface.from_polygons(np.concatenate(places), polygons)
    mesh.set_channel("point", "pinned", np.array(pins, np.float64))
    mesh.set_channel("point", "thickness", 5e-4 * (1.0 + rng.random(mesh.point_count)))
    return mesh


def swaying(frame):
    """The leaves' points go back and forth."""
    mesh = leaves()
    mesh.positions = mesh.positions + np.array([0.004, 0.002, 0.0]) * np.sin(frame - 1.0)
    return mesh


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


def hanging():
    """Leaves in a wind that they do not change, and what they are tied to."""
    return [
        lk.Group(
            "Hair",
            lk.GeometryObject(name="CurvesObject", input="leaves"),
            lk.DistanceConstraint(
                stiffness=40.0, damping_time=0.01, friction=1e-3, friction_stiffness=1.0
            ),
            lk.AttachmentConstraint(
                source="Hair/CurvesObject",
                target="Hair/CurvesObject",
                range=0.02,
                stiffness=5.0,
                flexibility=0.5,
            ),
        ),
        lk.FluidDragForce(velocity=(1.0, 0.0, 2.0)),
        lk.GravityForce(),
    ]


def make_solver(comm, scene):
    parts = (
        hanging()
        if scene == "leaves"
        else [
            lk.Group(
                "Hair",
                lk.CurvesObject(input="hair"),
                lk.StretchingConstraint(young_modulus=1e7),
                lk.BendingConstraint(young_modulus=1e7, shear_modulus=3e6, damping_time=0.01),
            ),
            lk.GravityForce(),
        ]
    )
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
    return lk.Solver(
        setup, {"leaves": swaying} if scene == "leaves" else {"hair": moving}, comm=comm
    )


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
        names = ("position", "velocity", *(() if scene == "leaves" else ANGLES))
        found = {name: solver.read("Hair/CurvesObject", name) for name in names}
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
