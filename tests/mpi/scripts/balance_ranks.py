"""Scenes whose load wanders from rank to rank; saves where things are, and every look at the load.

    balance_ranks.py TARGET.npz SCENE MODE

dust      a cloud that travels as far as it is long, so that all of it ends on a few ranks
still     the same cloud, which stays
hair      the travelling cloud, and a row of strands whose roots travel too
smoke     a puff in a wind, around which Buckets come and go

model, timings   what Buckets weigh
never            the load is not balanced
resumed          by the model, and in the middle a new Solver takes over from the state
"""

from __future__ import annotations

import copy
import sys

import numpy as np

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world

FRAMES, STOP = 12, 2  # then roots have left the Buckets of their strands' ranks
COUNT, STRANDS = 4000, 48
SPEED = 3.0  # m/s: a cloud of 1 m travels 1.5 m in 12 frames
FIELDS = ("substep", "of", "imbalance_before", "imbalance_after", "moved", "places", "bytes")


def dust(speed):
    rng = np.random.default_rng(3)
    points = lk.Points(rng.random((COUNT, 3)))
    points.set_channel("point", "velocity", np.full((COUNT, 3), speed))
    return [lk.ParticleObject(name="Load", input="load")], {"load": points}, {"bucket_size": 0.1}


def hair():
    """Strands that stand out and down, on roots that travel along x, and dust of their weight."""
    behaviors, inputs, settings = dust(SPEED)
    along = 0.01 * np.arange(6)
    shape = np.stack((0.0 * along, -along, along), axis=1)
    roots = np.arange(STRANDS)[:, None, None] * np.array([0.02, 0.0, 0.0])

    def at(frame):
        return lk.Curves.from_strands(roots + shape + [0.08 * (frame - 1), 0.0, 0.0])

    strands = lk.Group(
        "Hair",
        lk.CurvesObject(name="Strands", input="strands"),
        lk.StretchingConstraint(young_modulus=3.0e7),
        lk.BendingConstraint(young_modulus=3.0e7, shear_modulus=1.1e7),
        lk.GravityForce(),
    )
    return [*behaviors, strands], {**inputs, "strands": at}, settings


def smoke():
    density = np.zeros((16, 16, 16))
    density[4:12, 4:12, 4:12] = 1.0
    puff = lk.Voxels.from_dense(density, (0.0, 0.0, 0.0), 0.125)
    air = lk.VolumeObject(
        name="Load", voxel_size=0.125, input="load", padding=4, ambient_velocity=(3.0, 4.0, 6.0)
    )
    return [air], {"load": puff}, {}


SCENES = {"dust": lambda: dust(SPEED), "still": lambda: dust(0.0), "hair": hair, "smoke": smoke}


def make_solver(comm, scene, mode):
    behaviors, inputs, settings = SCENES[scene]()
    settings |= {"balance_every": 0 if mode == "never" else 5, "substeps": 2}
    if mode == "timings":
        settings["balance_weights"] = "timings"
    return lk.Solver(lk.SolverSetup("load", *behaviors, **settings), inputs, comm=comm)


def main(target, scene, mode):
    comm = world()
    shares = []  # particles of each rank once the load is balanced, in every substep

    def note(solver, step):
        shares.append(np.concatenate(comm.all_gather(np.array([solver.object("Load").count()]))))

    with one_fails_all_fail(comm):
        solver = make_solver(comm, scene, mode)
        solver.observe("PRE_SOLVE", note)
        start = solver.domain.cuts.copy()
        solver.run(STOP)
        looks = solver.balances()
        if mode == "resumed":
            state = copy.deepcopy(solver.state())
            solver = make_solver(comm, scene, mode)
            solver.restore(state)
            started = len(solver.balances())  # of the start that the state replaced
            solver.run(FRAMES - STOP)
            looks += solver.balances()[started:]
        else:
            solver.run(FRAMES - STOP)
            looks = solver.balances()
        counts = np.array([item.count() for item in solver.objects.values()])
        names = ("density" if scene == "smoke" else "position", "velocity")
        found = {
            f"{path}.{name}": solver.read(path, name) for path in solver.objects for name in names
        }
        found |= {
            "shares": np.array(shares),
            "counts": np.concatenate(comm.all_gather(counts)),
            "start_cuts": start,
            "cuts": solver.domain.cuts,
        }
        for name in FIELDS:
            found[f"look.{name}"] = np.array([look[name] for look in looks])
            told = found[f"look.{name}"].view(np.uint8).reshape(-1)
            everyone = comm.all_gather(np.ascontiguousarray(told))
            assert all(np.array_equal(one, everyone[0]) for one in everyone), name
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
