"""Water in a tube with trapped air, whose divider is a heavy body; on any number of ranks.

tube_scene.py TARGET.npz
"""

from __future__ import annotations

import sys

import numpy as np

from loki_core.parallel.comm import one_fails_all_fail, world
from tests.skeleton.floating_body import FloatingBody, announce
from tests.unit.test_air_pockets import tube


def main():
    """Run, and save what rank 0 has gathered."""
    solver = tube("trapped", tolerance=1e-10, precision="double")
    body = FloatingBody(solver.object("Water"), (0.3, 0.2, 0.05), (0.7, 0.95, 0.45), mass=1e5)
    announce(solver)
    solver.run(2)
    counts = np.concatenate(solver.comm.all_gather(np.array([solver.object("Water").count()])))
    found = {name: solver.read("Water", name) for name in ("position", "velocity")}
    if solver.comm.rank == 0:
        np.savez(sys.argv[1], counts=counts, body=body.velocity, **found)


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main()
