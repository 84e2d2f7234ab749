"""Run one skeleton scene and save what the tests compare: run_scene.py TARGET SCENE [VARIANT]."""

from __future__ import annotations

import sys

import numpy as np

from loki_core.data.points import Points
from loki_core.forces.gravity import GravityForce
from loki_core.parallel.comm import one_fails_all_fail, world
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import Group, SolverSetup
from tests.ranks import balance_at_every_look
from tests.skeleton.chain import ChainDistance, ChainObject
from tests.skeleton.grid_particles import GridParticleObject
from tests.skeleton.poisson import PoissonObject


def chain(variant: str) -> dict[str, np.ndarray]:
    children = [ChainObject(), ChainDistance(), GravityForce()]
    if variant == "reordered":
        children = children[::-1]
    setup = SolverSetup(
        "chain", Group("Chain", *children), substeps=2, bucket_size=0.2, balance_every=2
    )
    solver = Solver(setup)
    solver.run(5)
    path = "Chain/ChainObject"
    action = solver.actions["Chain/ChainDistance"][0]
    return {
        "position": solver.read(path, "position"),
        "velocity": solver.read(path, "velocity"),
        "residuals": np.array(action.residuals),
    }


def grid_particles(variant: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    points = Points(rng.random((4000, 3)) * np.array([1.0, 0.4, 0.7]))
    points.set_channel("point", "velocity", rng.standard_normal((4000, 3)))
    sides = ("periodic" if variant == "periodic" else "open", "open", "open")
    setup = SolverSetup(
        "pic",
        GridParticleObject(input="points"),
        bucket_size=0.125,
        domain_lower=(0.0, -2.0, -2.0),
        domain_upper=(1.0, 2.0, 2.0) if variant == "periodic" else (40.0, 2.0, 2.0),
        boundary_lower=sides,
        boundary_upper=sides,
        balance_every=2,
    )
    solver = Solver(setup, {"points": points})
    solver.run(6)
    path = "GridParticleObject"
    return {
        "position": solver.read(path, "position"),
        "velocity": solver.read(path, "velocity"),
        "mass": solver.read(path, "mass"),
        "sums": np.array(solver.objects[path].sums),
    }


def poisson(variant: str) -> dict[str, np.ndarray]:
    periodic = ("periodic", "wall", "periodic") if variant == "periodic" else ("wall",) * 3
    # With walls the box ends inside Buckets: 27, 30 and 24 cells of 1/32 m.
    upper = (1.0, 30 / 32, 0.5) if variant == "periodic" else (27 / 32, 30 / 32, 24 / 32)
    setup = SolverSetup(
        "poisson",
        PoissonObject(),
        bucket_size=0.25,
        precision="double",
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=upper,
        boundary_lower=periodic,
        boundary_upper=periodic,
    )
    solver = Solver(setup)
    solver.run(1)
    item = solver.objects["PoissonObject"]
    inside = item.volume.local("rhs") != 0.0
    exact = item.volume.local("rhs") / item.eigenvalue()
    error = np.max(np.abs((item.volume.local("pressure") - exact)[inside]), initial=0.0)
    return {
        "pressure": solver.read("PoissonObject", "pressure"),
        "error": np.array(solver.comm.maximum(float(error))),
        "iterations": np.array(item.report.iterations),
        "size": np.array(item.report.size),
    }


if __name__ == "__main__":
    comm = world()
    balance_at_every_look()
    with one_fails_all_fail(comm):
        variant = sys.argv[3] if len(sys.argv) > 3 else ""
        found = {"chain": chain, "grid_particles": grid_particles, "poisson": poisson}[sys.argv[2]](
            variant
        )
        if comm.rank == 0:
            np.savez(sys.argv[1], **found)
