"""`wtloki bench liquid`: its cases run, and figures say what they compare."""

from __future__ import annotations

import pytest

from loki_vfx.benchmarks import liquid
from loki_vfx.benchmarks.peers.mantaflow import PeerError

GOALS = {
    "step_vs_mantaflow_64": 5.0,
    "step_vs_mantaflow_128": 10.0,
    "particle_steps_per_s_core": 1.5e6,
    "cost_box_times_8": 1.05,
    "growth_double_liquid": 2.3,
    "bytes_per_particle": 200.0,
    "ranks2_speedup": 1.6,
    "vdb_fraction": 0.05,
}


@pytest.fixture
def apart(monkeypatch):
    """Let cases take a second for a million particles, and the peer five."""

    def measure(case):
        particles = 8 * int(liquid.np.prod(liquid.cells_of(case)[0]))
        return {
            "step_seconds_mean": 1e-6 * particles,
            "particles": particles,
            "cells": particles // 8,
            "threads": 2,
            "peak_memory": 100_000_000 + 150 * particles,
            "surface_seconds": 0.1,
            "vdb_seconds": 4e-8 * particles,
            "vdb_bytes": 4 * particles,
            "vdb_voxels": particles,
            "vdb_module": "openvdb",
        }

    def peer(n, *, frames, steps, band):
        return {"step_seconds_mean": 1e-5 * n**3, "particles": 3 * n**3}

    monkeypatch.setattr(liquid, "measure", measure)
    monkeypatch.setattr(liquid, "dam_break_step", peer)
    monkeypatch.setattr(
        liquid, "rank_figures", lambda n: {"ranks2_speedup": {"value": 1.7, "goal": 1.6}}
    )
    return measure


def test_figures_have_their_goals_and_definitions(apart):
    figures = liquid.run(quick=False)
    assert {name: one["goal"] for name, one in figures.items()} == GOALS
    assert figures["step_vs_mantaflow_64"]["value"] == pytest.approx(5.0)  # 8 / 4 particles a cell
    assert figures["particle_steps_per_s_core"]["value"] == pytest.approx(0.5e6)
    assert "1000000 particles in 125000 cells" in figures["particle_steps_per_s_core"]["how"]
    assert figures["cost_box_times_8"]["value"] == pytest.approx(1.0)
    assert figures["growth_double_liquid"]["value"] == pytest.approx(2.0)
    assert figures["bytes_per_particle"]["value"] == pytest.approx(150.0)
    assert figures["vdb_fraction"]["value"] == pytest.approx(0.01)  # of four steps


def test_without_the_peer_the_reason_is_told(apart, monkeypatch):
    def missing(*_, **__):
        raise PeerError("bpy is not installed")

    monkeypatch.setattr(liquid, "dam_break_step", missing)
    for one in liquid.mantaflow_figures(16, 32).values():
        assert one["value"] is None and one["how"] == "bpy is not installed"


@pytest.mark.compiles
@pytest.mark.parametrize(
    "case",
    [
        {"shape": "dam_break", "n": 8, "frames": 1},
        {"shape": "pool", "n": 8, "long": 2, "tall": 2, "frames": 1},
    ],
)
def test_a_case_runs(case):
    found = liquid.run_case(case)
    assert found["particles"] == 8 * found["cells"]
    assert found["step_seconds_mean"] > 0.0 and found["peak_memory"] > 1e6
