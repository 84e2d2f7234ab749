"""Zalesak's slotted disc after one turn: what each scheme of advection does to a sharp shape.

Rigid rotation about the middle of the unit square in 628 steps. L1 = sum |q - q0| / sum q0 is
compared with a calibration of the same scheme with exact traces (validation/data).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result, rows_of

STEPS = 628
RESOLUTIONS = (100, 200)
#: Scheme, limiter and the row of the calibration that it claims; the first is the default.
SCHEMES = (
    ("cubic", "conserve", "SL-cubic-clamped"),
    ("cubic", "clamp", "SL-cubic-clamped"),
    ("cubic", "none", "SL-cubic"),
    ("semi_lagrangian", "none", "SL-linear"),
    ("maccormack", "none", "MacCormack"),
    ("maccormack", "revert", "MacCormack+Selle limiter"),
    ("bfecc", "none", "BFECC"),
    ("bfecc", "clamp", "BFECC+lim"),
)


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS, schemes: tuple[Any, ...] = SCHEMES
) -> list[dict[str, Any]]:
    """Turn the disc once with every scheme."""
    calibrated = {
        (int(row["n"]), row["scheme"]): float(row["L1rel"])
        for row in rows_of("zalesak_calibration.csv")
        if row["case"] == "zalesak" and int(row["steps"]) == STEPS
    }
    results = []
    for n in resolutions:
        start = slotted_disc(n)
        for scheme, limiter, row in schemes:
            final = turn(n, start, scheme, limiter)
            judged = _judged(n, scheme, limiter, start, final, calibrated[n, row])
            if (scheme, limiter) == SCHEMES[0][:2]:
                judged[0]["curves"] = {"n": n, "start": start, "final": final}
            results += judged
    return results


def slotted_disc(n: int, samples: int = 8) -> NDArray[np.float64]:
    """Coverage of n x n voxels by the disc, from samples x samples points each."""
    place = (np.arange(n * samples) + 0.5) / (n * samples)
    x, y = np.meshgrid(place, place, indexing="ij")
    disc = (x - 0.5) ** 2 + (y - 0.75) ** 2 <= 0.15**2
    slot = (np.abs(x - 0.5) <= 0.025) & (y <= 0.85)
    inside = (disc & ~slot).astype(np.float64)
    covered: NDArray[np.float64] = inside.reshape(n, samples, n, samples).mean(axis=(1, 3))
    return covered


def turn(n: int, start: NDArray[np.float64], scheme: str, limiter: str) -> NDArray[np.float64]:
    """The field after one revolution, n x n."""
    h = 1.0 / n
    setup = loki.SolverSetup(
        "zalesak",
        loki.VolumeObject(
            name="Gas",
            voxel_size=h,
            input="start",
            region="box",
            channels=("density",),
            velocity_scheme="none",
            channel_scheme=scheme,
            channel_limiter=limiter,
        ),
        precision="double",
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 8.0 * h),
        boundary_lower=("open", "open", "periodic"),
        boundary_upper=("open", "open", "periodic"),
        frames_per_second=1.0 / (2.0 * np.pi),
        substeps=STEPS,
    )
    solver = loki.Solver(setup, {"start": _stream(n, start)})
    solver.run(1)
    written = solver.outputs()["Gas"].to_dense("density")
    final: NDArray[np.float64] = written[0, :n, :n, 0]
    return final


def _stream(n: int, start: NDArray[np.float64]) -> loki.Voxels:
    """The disc and the rotation; the velocity goes on beyond the square."""
    size = 8 * ((n + 7) // 8) + 8
    h = 1.0 / n
    centre = (np.arange(size) + 0.5) * h - 0.5
    velocity = np.zeros((3, size, size, 8))
    velocity[0] = -centre[None, :, None]
    velocity[1] = centre[:, None, None]
    density = np.zeros((1, size, size, 8))
    density[0, :n, :n] = start[..., None]
    blocks = loki.Voxels.from_dense({"velocity": velocity}, (0.0, 0.0, 0.0), h, location="face")
    shape = (size // 8, 8, size // 8, 8, 1, 8)
    split = density[0].reshape(shape).transpose(0, 2, 4, 1, 3, 5)
    i, j, k = blocks.coords.T
    blocks.set_channel("density", split[i, j, k])
    return blocks


def _judged(
    n: int,
    scheme: str,
    limiter: str,
    start: NDArray[np.float64],
    final: NDArray[np.float64],
    reference: float,
) -> list[dict[str, Any]]:
    words = f"{scheme}, limiter {limiter}, n = {n}"
    error = float(np.abs(final - start).sum() / start.sum())
    mass = float(final.sum() / start.sum() - 1.0)
    shape = np.count_nonzero((final > 0.5) != (start > 0.5)) / np.count_nonzero(start > 0.5)
    overshoot = float(max(0.0, final.max() - 1.0, -final.min()))
    limited = limiter != "none"
    best = (0.50 if n == 100 else 0.25) if scheme == "cubic" else None
    return [
        result(
            "zalesak", f"L1, {words}", error, reference, production=1.1 * reference, best=best
        ),
        result(
            "zalesak", f"change of mass, {words}", mass, 0.0,
            error=abs(mass), production=0.03, best=None if limited else 1e-4,
        ),
        result(
            "zalesak", f"overshoot, {words}", overshoot, 0.0, production=1e-12 if limited else None
        ),
        result("zalesak", f"mismatch of the q > 1/2 set, {words}", float(shape), 0.0),
    ]  # fmt: skip
