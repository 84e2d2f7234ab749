"""One small plume from end to end: what every version of numpy has to be able to do."""

from __future__ import annotations

import numpy as np

import loki_core as loki
from loki_graph.nodes.shape_source import unit_sphere


def test_smoke_rises_from_a_burner():
    burner = unit_sphere(16, 8)
    burner.positions = 0.5 * burner.positions + (0.0, 0.5, 0.0)
    setup = loki.SolverSetup(
        "plume",
        loki.VolumeObject(name="Plume", voxel_size=0.125, padding=8),
        loki.PressureMaterial(),
        loki.BuoyancyForce(),
        loki.VolumeEmission(source="burner", density=1.0, temperature=600.0),
        domain_lower=(-2.0, 0.0, -2.0),
        domain_upper=(2.0, 4.0, 2.0),
        boundary_lower=("open", "wall", "open"),
    )
    solver = loki.Solver(setup, {"burner": burner})
    heights = []
    for _ in range(8):
        solver.run(1)
        smoke = solver.outputs()["Plume"]
        density = smoke.to_dense("density")[0].astype(np.float64)
        height = (
            smoke.origin[1] + (smoke.first_voxel()[1] + np.arange(density.shape[1]) + 0.5) * 0.125
        )
        heights.append(float((density.sum(axis=(0, 2)) * height).sum() / density.sum()))
    assert heights[0] < heights[3] < heights[-1] and heights[-1] > heights[0] + 0.04
    assert density.max() <= 1.0 and density.min() >= 0.0
