"""Terminal velocity of water drops in still air, against Gunn & Kinzer (1949).

A drop of diameter d falls from rest until drag balances weight. The measured speeds at 20 degC and
1013 mbar are 2.06 m/s for 0.5 mm and 4.03 m/s for 1 mm; the Schiller-Naumann law of a rigid sphere
is 1.6 % and 4.3 % low there, which is all of the error that is left.

A droplet of 20 micrometres that is coupled to a simulated gas falls by Stokes' law, m g = 6 pi mu a
v, as long as it is small against a voxel: what it does to the gas around it moves with it and makes
it faster, by about its radius over a voxel. The slip against the gas at the drop is
free of that.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Any

import numpy as np

import loki_core as loki

from ._report import result

CASE = "terminal_velocity"
PRODUCTION, BEST = 0.08, 0.03
SECONDS = 2.0
#: The coupled drop: diameter [m], gravity [m/s^2], viscosity [Pa s] and density of water [kg/m^3].
SMALL, GRAVITY, VISCOSITY, WATER = 20.0e-6, 9.81, 1.81e-5, 998.2
COUPLED = 0.10  # threshold of its speed
WIDTH = 0.016  # m, of the gas around it


def run() -> list[dict[str, Any]]:
    """Let drops fall with steps h and h / 2 and compare their speed."""
    results = []
    for diameter, measured in _measurements():
        for substeps in (1, 2):
            speed = fall_speed(diameter, substeps)
            error = abs(speed - measured) / measured
            results.append(
                {
                    "case": CASE,
                    "metric": f"speed, d = {1e3 * diameter:g} mm, dt = 1/{24 * substeps} s",
                    "value": speed,
                    "reference": measured,
                    "error": error,
                    "threshold_production": PRODUCTION,
                    "threshold_best": BEST,
                    "pass": bool(error <= PRODUCTION),
                }
            )
    return results + coupled_results()


def coupled_results() -> list[dict[str, Any]]:
    """The drop in a simulated gas of two voxel sizes, each with steps h and h / 2."""
    results = []
    mass = np.pi / 6.0 * SMALL**3 * WATER
    stokes = mass * GRAVITY / (3.0 * np.pi * VISCOSITY * SMALL)
    for cells in (16, 32):
        for substeps in (1, 2):
            speed, slip = coupled_speed(cells, substeps)
            label = f"d / voxel = {SMALL * cells / WIDTH:g}, dt = 1/{240 * substeps} s"
            for name, value in (("speed", speed), ("slip", slip)):
                results.append(
                    result(
                        CASE,
                        f"{name} of a coupled drop, {label}",
                        value,
                        stokes,
                        error=abs(value - stokes) / stokes,
                        production=COUPLED,
                        best=COUPLED,
                    )
                )
    return results


def coupled_speed(cells: int, substeps: int) -> tuple[float, float]:
    """Speed of the small drop, and that against the gas where it is [m/s], after 0.2 s."""
    voxel = WIDTH / cells
    setup = loki.SolverSetup(
        CASE,
        loki.Group("Drop", loki.ParticleObject(input="drop", radius=0.5 * SMALL, density=WATER)),
        loki.Group(
            "Gas",
            loki.VolumeObject(voxel_size=voxel, region="box", channels=()),
            loki.PressureMaterial(),
            loki.ViscosityMaterial(viscosity=VISCOSITY),
        ),
        loki.GravityForce(acceleration=(0.0, -GRAVITY, 0.0)),
        loki.CoupledDragForce(viscosity=VISCOSITY),
        precision="double",
        frames_per_second=240.0,
        substeps=substeps,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(WIDTH, WIDTH, WIDTH),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )
    # Above the middle, so that it passes several voxels on its way and no wall is near.
    start = np.array([[0.5, 0.6, 0.5]]) * WIDTH + 0.3 * voxel
    solver = loki.Solver(setup, {"drop": loki.Points(start)})
    solver.run(48)
    (drag,) = solver.actions["CoupledDragForce"]
    speed = -float(solver.read("Drop/ParticleObject", "velocity")[0, 1])
    return speed, speed + float(drag.flow[0, 1])


def fall_speed(diameter: float, substeps: int) -> float:
    """Speed [m/s] of a drop of this diameter [m] after two seconds in still air."""
    setup = loki.SolverSetup(
        "terminal_velocity",
        loki.ParticleObject(input="drop", radius=0.5 * diameter, density=998.2),
        loki.GravityForce(),
        loki.FluidDragForce(),
        substeps=substeps,
    )
    solver = loki.Solver(setup, {"drop": loki.Points(np.zeros((1, 3)))})
    solver.run(round(SECONDS * setup.settings.frames_per_second))
    velocity = solver.outputs()["ParticleObject"].channels["point"]["velocity"]
    return float(-velocity[0, 1])


def _measurements() -> list[tuple[float, float]]:
    """Diameters [m] and measured speeds [m/s]."""
    data = files(__package__).joinpath("data/gunn_kinzer_terminal_velocity.csv")
    lines = [line for line in data.read_text().splitlines() if not line.startswith("#")]
    return [(1e-3 * float(row["d_mm"]), float(row["v_meas"])) for row in csv.DictReader(lines)]
