"""Strands that hold on to each other and to a moving mesh; saves where they are after some steps.

attachment_ranks.py TARGET.npz MODE
"""

from __future__ import annotations

import sys

import numpy as np

import loki_core as lk
from loki_core.parallel.comm import SERIAL, one_fails_all_fail, world
from loki_core.pipeline.repartition import state_for_rank
from loki_vfx.serialization.codec import pack, unpack
from tests.ranks import balance_at_every_look

MODES = {
    "once": {},
    "every_step": {"every_step": True, "newton_iterations": 3},
    "balanced": {"balance_every": 2, "friction": 0.01},
    "resumed": {
        "balance_every": 2,
        "friction": 0.01,
        "every_step": True,
        "resume": True,
        "sag_free": True,
    },
    "few": {"strands": 1, "sag_free": True},
    "sag_free": {"sag_free": True},
    "multipliers": {"mode": "compliance", "friction": 0.01},
    "few_multipliers": {"mode": "compliance", "strands": 1},
}


def rows(count, *, height, seed):
    """Strands of different sizes, and some rings, side by side along z."""
    rng = np.random.default_rng(seed)
    places, sizes = [], []
    closed = np.arange(count) % 4 == 3
    for strand in range(count):
        size = 4 + strand % 3
        along = np.arange(size)[:, None] * np.array([0.02, 0.0, 0.0])
        if closed[strand]:
            angle = 2.0 * np.pi * np.arange(size) / size
            along = 0.025 * np.stack((1.0 + np.cos(angle), 0.0 * angle, np.sin(angle)), axis=1)
        places.append(along + [0.0, height, 0.015 * strand] + 0.001 * rng.random((size, 3)))
        sizes.append(size)
    return lk.Curves(np.concatenate(places), np.concatenate(([0], np.cumsum(sizes))), closed)


def skin(frame):
    corners = np.array([[-0.1, -0.02, -0.1], [0.3, -0.02, -0.1], [0.3, -0.02, 0.4]])
    corners = np.concatenate((corners, [[-0.1, -0.02, 0.4]]))
    shift = np.array([0.002, 0.001, 0.0]) * (frame - 1)
    return lk.Surface.from_faces(corners + shift, [[0, 1, 2], [0, 2, 3]])


def rods(name, mode):
    return lk.Group(
        name,
        lk.CurvesObject(input=f"{name}_rows", root="free", radius=1e-3),
        lk.StretchingConstraint(young_modulus=1e6, mode=mode),
        lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5),
    )


def again(curves):
    """The same curves, as if they were read from a file once more."""
    return lk.Curves(curves.positions.copy(), curves.offsets, curves.closed)


def held(solver):
    """What this rank has of the pairs on the skin, and what of the inputs; of all ranks."""
    comm, (on_skin,) = solver.comm, solver.actions["Skin"]
    rows, stream = len(on_skin.table["length"]), solver.inputs["lower_rows"]
    return {
        "rows": np.concatenate(comm.all_gather(np.array([rows]))),
        "streams": np.array([comm.total(int(isinstance(stream, lk.Curves)))]),
    }


def resumed(setup, inputs, solver):
    """Where strands are that went on from the state of a solver, on these ranks and on one."""
    comm = solver.comm
    one = lk.Solver(setup, inputs)
    one.restore(unpack(pack(solver.state())))
    one.run(3)
    found = {"same": one.read("upper/CurvesObject", "position")}
    parts = comm.gather(np.frombuffer(pack(solver.state()), np.uint8))
    if comm.rank == 0:
        states = [unpack(part) for part in parts]
        alone = lk.Solver(setup, inputs, comm=SERIAL)
        alone.restore(state_for_rank(states, 0, 1))
        alone.run(3)
        found["other"] = alone.read("upper/CurvesObject", "position")
    comm.barrier()
    return found


def main(target, mode):
    comm = world()
    balance_at_every_look()
    chosen = dict(MODES[mode])
    every_step, friction = chosen.pop("every_step", False), chosen.pop("friction", 0.0)
    resume = chosen.pop("resume", False)
    more = (lk.SagFreeStart(),) if chosen.pop("sag_free", False) else ()
    strands, way = chosen.pop("strands", 12), chosen.pop("mode", "stiffness")
    upper = rows(strands, height=0.02, seed=2)
    pinned = np.zeros(upper.point_count, np.int32)
    pinned[upper.offsets[:-1]] = 1  # columns of another rank that are prescribed
    upper.set_channel("point", "pinned", pinned)
    setup = lk.SolverSetup(
        "strands",
        rods("lower", way),
        rods("upper", way),
        lk.GravityForce(),
        lk.AttachmentConstraint(
            name="Between",
            source="lower",
            target="upper",
            emission="within_range",
            range=0.024,
            every_step=every_step,
            flexibility=0.5,
            stiffness=20.0,
            orientation_stiffness=(1e-4, 1e-4, 0.0),
            damping_time=0.01,
            friction=friction,
            friction_stiffness=5.0,
            mode=way,
        ),
        lk.AttachmentConstraint(
            name="Among",
            source="upper",
            target="upper",
            emission="closest",
            range=0.05,
            flexibility=1.0,
            stiffness=10.0,
        ),
        lk.AttachmentConstraint(
            name="Skin", source="lower", target="skin", stiffness=5.0, tangential_stiffness=2.0
        ),
        *more,
        frames_per_second=100,
        bucket_size=0.02,
        **chosen,
    )
    lower = rows(strands + 2, height=0.0, seed=1)
    inputs = {"lower_rows": lambda frame: again(lower), "upper_rows": upper, "skin": skin}
    with one_fails_all_fail(comm):
        solver = lk.Solver(setup, inputs)
        solver.run(3)
        found = resumed(setup, inputs, solver) if resume else {}
        solver.run(3)
        found |= held(solver)
        for name in ("lower", "upper"):
            for channel in ("position", "velocity", "edges.angle"):
                found[f"{name}.{channel}"] = solver.read(f"{name}/CurvesObject", channel)
        local = [len(action.numbers) for some in solver.actions.values() for action in some
                 if hasattr(action, "numbers")]  # fmt: skip
        owned = [int(action.is_owner.sum()) for some in solver.actions.values() for action in some
                 if hasattr(action, "numbers")]  # fmt: skip
        found["owned"] = np.array([comm.total(count) for count in owned])
        found["evaluated"] = np.array([comm.total(count) for count in local])
        found["ghosts"] = comm.total(len(solver.solids.couplings.ghost_rows))
        found["bodies"] = np.concatenate(
            comm.all_gather(np.array([len(solver.solids.body_start) - 1]))
        )
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
