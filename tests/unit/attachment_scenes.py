"""What tests of attachments share: strands, pairs, a Solver, and the Action in it."""

from __future__ import annotations

import numpy as np

import loki_core as lk


def line(start, direction=(1.0, 0.0, 0.0), *, points=6, spacing=0.02):
    return np.asarray(start) + np.arange(points)[:, None] * spacing * np.asarray(direction, float)


def solver_of(*parts, inputs, **settings):
    settings.setdefault("frames_per_second", 100)
    return lk.Solver(lk.SolverSetup("scene", *parts, **settings), inputs)


def attach(solver):
    (actions,) = (one for path, one in solver.actions.items() if "Attachment" in path)
    return actions[0]


def pairs_stream(source, target):
    points = lk.Points(np.zeros((len(source), 3)))
    points.set_channel("point", "source_id", np.asarray(source))
    points.set_channel("point", "target_id", np.asarray(target))
    return points
