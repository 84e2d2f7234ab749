"""Lid-driven cavity at Re 100, 400 and 1000: a box of gas whose upper wall moves along itself.

Unit box, lid u = 1, no-slip walls, nu = 1 / Re, a slab one Bucket thick and periodic, CFL 1, from
rest until d(KE)/dt < 1e-6. Velocities on the two centre lines are compared with Ghia, Ghia & Shin
(1982) where their table holds, and with a Richardson-extrapolated Newton solution
(validation/data/ghia1982.csv).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result, rows_of

REYNOLDS = (100, 400, 1000)
RESOLUTIONS = (64, 128)
LONGEST = 150  # seconds that a run may take to become steady


def run(
    reynolds: tuple[int, ...] = REYNOLDS, resolutions: tuple[int, ...] = RESOLUTIONS
) -> list[dict[str, Any]]:
    """Run every Reynolds number at every resolution."""
    results = []
    for number in reynolds:
        errors = {}
        for n in resolutions:
            velocity = steady_velocity(n, number)
            against = deviations(velocity, number)
            errors[n] = _rms(against["ref_richardson"])
            judged = _judged(number, n, against)
            judged[0]["curves"] = {"reynolds": number, "n": n, **centre_lines(velocity)}
            results += judged
        if len(errors) == 2:
            coarse, fine = sorted(errors)
            order = float(np.log2(errors[coarse] / errors[fine]))
            metric = f"order against the reference, Re {number}, n = {coarse} to {fine}"
            results.append(result("cavity", metric, order, None, best=1.8))
    return results


def _judged(number: int, n: int, against: dict[str, NDArray[np.float64]]) -> list[dict[str, Any]]:
    judged = n >= 128
    ghia, reference = against["ghia1982"], against["ref_richardson"]
    where = f"Re {number}, n = {n}"
    limits = {"production": 0.010} if judged else {}
    return [
        result("cavity", f"rms against Ghia, {where}", _rms(ghia), 0.0, **limits),
        result(
            "cavity", f"max against Ghia, {where}", float(np.abs(ghia).max()), 0.0,
            production=0.025 if judged else None,
        ),
        result(
            "cavity", f"rms against the reference, {where}", _rms(reference), 0.0,
            best=0.003 if judged else None,
        ),
    ]  # fmt: skip


def steady_velocity(n: int, reynolds: float) -> NDArray[np.float64]:
    """Velocity [3, n, n] of the steady flow."""
    h = 1.0 / n
    walls = ("wall", "wall", "periodic")
    setup = loki.SolverSetup(
        "cavity",
        loki.VolumeObject(name="Gas", voxel_size=h, region="box", density=1.0, channels=()),
        loki.PressureMaterial(),
        loki.ViscosityMaterial(viscosity=1.0 / reynolds),
        loki.DomainBoundary(name="Lid", sides=("y_upper",), velocity=(1.0, 0.0, 0.0)),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 8.0 * h),
        boundary_lower=walls,
        boundary_upper=walls,
        frames_per_second=1.0,
        substeps=n,
    )
    solver = loki.Solver(setup)
    energy = 0.0
    for _ in range(LONGEST):
        solver.run(1)
        written = solver.outputs()["Gas"].to_dense("velocity")
        velocity: NDArray[np.float64] = written[:, :n, :n, 0].astype(np.float64)
        before, energy = energy, 0.5 * h * h * float(np.sum(velocity**2))
        if abs(energy - before) < 1e-6:
            break
    return velocity


def deviations(velocity: NDArray[np.float64], reynolds: float) -> dict[str, NDArray[np.float64]]:
    """Computed less tabulated velocities on the two centre lines."""
    from scipy.interpolate import CubicSpline

    line = centre_lines(velocity)
    lines = {name: CubicSpline(line["places"], line[name]) for name in ("u", "v")}
    found: dict[str, list[float]] = {"ghia1982": [], "ref_richardson": []}
    for row in rows_of("ghia1982.csv"):
        if float(row["Re"]) != reynolds:
            continue
        computed = float(lines[row["profile"]](float(row["coord"])))
        if row["use"] == "1":
            found["ghia1982"].append(computed - float(row["ghia1982"]))
        found["ref_richardson"].append(computed - float(row["ref_richardson"]))
    return {name: np.array(values) for name, values in found.items()}


def centre_lines(velocity: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Places along the centre lines with both walls [m], u(0.5, y) and v(x, 0.5) there [m/s]."""
    n = velocity.shape[1]
    # The centre lines lie on faces of the component that is compared: no averaging is needed.
    return {
        "places": np.concatenate(([0.0], (np.arange(n) + 0.5) / n, [1.0])),
        "u": np.concatenate(([0.0], velocity[0, n // 2], [1.0])),
        "v": np.concatenate(([0.0], velocity[1, :, n // 2], [0.0])),
    }


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values**2)))
