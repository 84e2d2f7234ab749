"""A new Force in one file, from a folder outside the project, shows up everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SPRING = '''
"""Spring Force: pull every particle towards the origin.

    f = -k x,   df/dx = -k I
"""

from loki_core import Behavior, Force, parameter


class SpringToOriginForce(Behavior, kind="force"):
    """Pull everything in the Group towards the world's origin."""

    stiffness: float = parameter(
        2.0, unit="N/m", minimum=0.0, varies="vertex", doc="k of the spring."
    )


class SpringAction(Force, behavior=SpringToOriginForce):
    implicit = True

    def evaluate(self, points, force, jacobian):
        k, step = points.resolve("stiffness")
        k = k if step else k[0]
        position = self.target.scope.domain.to_world(points["position"])
        force -= k * position
        for axis in range(3):
            jacobian[:, axis, axis] -= k
'''

RUN = """
import numpy as np, loki_core as loki
from loki_core.behavior import find_behavior
Spring = find_behavior("SpringToOriginForce")
setup = loki.SolverSetup("s", loki.ParticleObject(input="p"), Spring(stiffness=50.0),
                         precision="double", frames_per_second=100.0)
points = loki.Points(np.array([[1.0, 0.0, 0.0]]))
points.set_channel("point", "mass", np.array([2.0]))
solver = loki.Solver(setup, {"p": points})
solver.run(3)
print(repr(float(solver.read("ParticleObject", "position")[0, 0])))
"""


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "spring_to_origin.py").write_text(SPRING)
    return {**os.environ, "LOKI_EXTENSIONS": str(tmp_path)}


def _wtloki(environment, *arguments):
    command = [
        sys.executable,
        "-m",
        "loki_vfx.bridges.standalone.command_line",
        *map(str, arguments),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_implicitly(environment):
    done = subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Backward Euler of x'' = -(k/m) x: v1 = (v0 - h w2 x0) / (1 + h^2 w2), x1 = x0 + h v1.
    x, v, h, w2 = 1.0, 0.0, 0.01, 25.0
    for _ in range(3):
        v = (v - h * w2 * x) / (1.0 + h * h * w2)
        x += h * v
    assert abs(float(done.stdout) - x) < 1e-12


def test_it_appears_in_explain_json_and_reference(environment, tmp_path):
    setup = {
        "loki": "solver_setup",
        "schema_version": 1,
        "name": "spring",
        "children": [
            {"behavior": "ParticleObject", "parameters": {"input": "points"}},
            {"behavior": "SpringToOriginForce", "parameters": {"stiffness": "3 N/m"}},
        ],
    }
    path = tmp_path / "spring.loki.json"
    path.write_text(json.dumps(setup))
    mesh = tmp_path / "points.ply"
    mesh.write_text(
        "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
        "property float z\nend_header\n0 1 0\n"
    )
    explained = json.loads(
        _wtloki(environment, "explain", path, "--input", f"points={mesh}", "--json")
    )
    assert "SpringToOriginForce" in json.dumps(explained)
    _wtloki(environment, "reference", "--output", tmp_path / "reference")
    pages = "".join(page.read_text() for page in (tmp_path / "reference").rglob("*.md"))
    assert "SpringToOriginForce" in pages
    assert "spring_to_origin_stiffness" in pages
