"""A groom and particles as outputs: from the solver itself, and through nodes after it.

ordered_outputs.py FOLDER

FOLDER/direct    the cache of a run whose outputs are the solver's own
FOLDER/nodes     the cache of one with nodes in between
FOLDER/graph.RANK.npz    what an Evaluator gives on every rank
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from loki_graph import Evaluator, Graph
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.output import Output
from loki_graph.nodes.solver_setup import SolverSetupNode
from loki_graph.nodes.transform import Transform
from loki_vfx.bridges.standalone.graph_scene import graph_scene
from loki_vfx.bridges.standalone.runner import Runner

HAIR, DUST = "Hair/CurvesObject", "Dust/ParticleObject"
LAST = 3


def groom():
    """Strands of different sizes whose order has nothing to do with where they are."""
    rng = np.random.default_rng(11)
    places = rng.permutation(24)
    parts = []
    for number, place in enumerate(places):
        size = 3 + number % 4
        root = np.array([0.05 * (place % 6), 0.0, 0.07 * (place // 6)])
        parts.append(root + np.arange(size)[:, None] * np.array([0.004, 0.01, 0.0]))
    curves = lk.Curves(np.concatenate(parts), np.cumsum([0, *map(len, parts)]))
    curves.set_channel("primitive", "clump", np.arange(len(parts)))
    curves.set_channel("point", "number", np.arange(curves.point_count))
    return curves


def dust():
    rng = np.random.default_rng(5)
    points = lk.Points(0.3 * rng.random((60, 3)))
    points.set_channel("point", "number", np.arange(60))
    return points


def graph(*, nodes):
    """Both Objects as outputs; with nodes in between that keep neither order nor names."""
    setup = lk.SolverSetup(
        "both",
        lk.Group(
            "Hair", lk.CurvesObject(input="groom"), lk.StretchingConstraint(),
            lk.BendingConstraint(),
        ),
        lk.Group("Dust", lk.ParticleObject(input="dust")),
        lk.GravityForce(),
        substeps=2,
    )  # fmt: skip
    parts = {
        "g": HostInput(stream="groom"),
        "d": HostInput(stream="dust"),
        "s": SolverSetupNode(setup=setup),
        "hair": Output(),
        "dust": Output(),
    }
    joined = [("g.out", "s.groom"), ("d.out", "s.dust")]
    if not nodes:
        joined += [(f"s.{HAIR}", "hair.in"), (f"s.{DUST}", "dust.in")]
        return Graph("direct", nodes=parts, connections=joined)
    parts |= {"up": Transform(translate=(0.0, 2.0, 0.0)), "half": Transform(scale=(0.5, 0.5, 0.5))}
    joined += [(f"s.{HAIR}", "up.in"), ("up", "hair"), (f"s.{DUST}", "half.in"), ("half", "dust")]
    return Graph("nodes", nodes=parts, connections=joined)


def main(folder: Path) -> None:
    comm, inputs = world(), {"groom": groom(), "dust": dust()}
    for name in ("direct", "nodes"):
        scene = graph_scene(graph(nodes=name == "nodes"), inputs, folder=folder)
        Runner(
            scene.setup, scene.inputs, output=folder / name, frames=(1, LAST), comm=comm,
            checkpoint_every=0, document=scene.document, after=scene.after,
        ).run()  # fmt: skip
    evaluator = Evaluator(graph(nodes=True), host_inputs=inputs, comm=comm)
    found = {}
    for frame in range(1, LAST + 1):
        found = {name: evaluator.evaluate(name, frame) for name in ("hair", "dust")}
    np.savez(folder / f"graph.{comm.rank}.npz", **{n: s.positions for n, s in found.items()})


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main(Path(sys.argv[1]))
