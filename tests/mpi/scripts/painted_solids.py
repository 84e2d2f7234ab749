"""Solids with every parameter painted that varies; saves where they are after two frames.

painted_solids.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np

import loki_core as lk
from loki_core.behavior import registry
from loki_core.parallel.comm import one_fails_all_fail, world
from loki_core.sparse_parameters import channel_names
from tests.ranks import balance_at_every_look
from tests.unit.painted_scenes import SCENES, SHOWN, STREAMS

SOLIDS = ("hair", "lying", "soft", "sheet", "soft_sheet", "windy", "dust")


def painted(scene):
    """The stream of a scene, each parameter that varies by vertex scaled."""
    stream, rng = SCENES[scene][1](), np.random.default_rng(9)
    for kind in SHOWN[scene]:
        for name, declared in registry()[kind].parameters().items():
            if declared.varies == "vertex":
                channel = f"{channel_names(registry()[kind], name)[0]}_scale"
                values = rng.uniform(0.8, 1.25, stream.point_count)
                stream.set_channel("point", channel, values)
    return stream


def main(target):
    comm = world()
    balance_at_every_look()
    with one_fails_all_fail(comm):
        found = {}
        for scene in SOLIDS:
            make_setup, _, path, others = SCENES[scene]
            solver = lk.Solver(make_setup(), {STREAMS[scene]: painted(scene), **others}, comm=comm)
            solver.run(2)
            for name in ("position", "velocity"):
                found[f"{scene} {name}"] = solver.read(path, name)
            held = np.array([solver.object(path).count()])
            found[f"{scene} counts"] = np.concatenate(comm.all_gather(held))
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
