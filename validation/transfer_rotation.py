"""A disc that turns, from particles to faces and back many times with the particles held fixed.

With linear weights w of the faces of component a, a particle at x_p between two faces a part f of
the way along an axis has

    sum_f w x_f = x_p,     sum_f w (x_f - x_p)_i (x_f - x_p)_j = D_ij,   D_ii = h^2 f (1 - f)

so that of what it gives to the faces, w (u_p + c_p (x_f - x_p)), the moment about the origin is

    L_p = x_p v_p - y_p u_p + D_x c_vx - D_y c_uy

with f along x among the faces of v, and along y among those of u. Back again, w (x_f - x_p) =
D dw/dx for linear weights, so velocities and gradients that are read from the faces have the same
L: APIC keeps it. D takes the place of the dx^2 / 4 that quadratic weights have (Jiang et al. 2015).
PIC loses what D c holds at every transfer. FLIP without forces gives particles their own velocity.

Four particles a cell, moved at random by up to a quarter of their distance, in the plane of the
cells' centres: this is the case in two dimensions. They start with c = 0, so that what APIC does
differs from what it did before, at the rim for many transfers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result

Array = NDArray[np.float64]

RESOLUTIONS = (8, 16)
#: L / L0 after so many transfers of PIC, of a reference code, for a disc of 16 cells.
PIC = {1: 0.99724, 100: 0.7793, 200: 0.6129}
TRANSFERS = 200
PER_AXIS, JITTER = 2, 0.5
H = 1.0  # m


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS, transfers: int = TRANSFERS
) -> list[dict[str, Any]]:
    """Run every transfer at each resolution."""
    results = []
    for n in resolutions:
        for precision, production, best in (("double", 1e-10, 1e-12), ("single", 1e-5, 1e-5)):
            kept = moments("apic", n, transfers, precision=precision)
            drift = float(np.abs(np.diff(kept)).max())
            metric = f"apic, change of L a transfer, R = {n}, {precision}"
            results.append(
                result("transfer_rotation", metric, drift, 0.0, production=production, best=best)
            )
        results += _pic(n, transfers)
        kept = moments("flip", n, transfers, flip_part=1.0)
        metric = f"flip, change of L, R = {n}, double"
        results.append(
            result("transfer_rotation", metric, float(abs(kept[-1] - 1.0)), 0.0, production=1e-10)
        )
        kept = moments("flip", n, transfers)
        metric = f"flip with the default part of pic, L / L0 after {transfers}, R = {n}"
        results.append(result("transfer_rotation", metric, float(kept[-1]), None))
    return results


def _pic(n: int, transfers: int) -> list[dict[str, Any]]:
    kept = moments("pic", n, transfers)
    results = []
    for count, reference in PIC.items():
        if count > transfers:
            continue
        value, metric = float(kept[count]), f"pic, L / L0 after {count}, R = {n}"
        if n == 16:
            error = abs(value / reference - 1.0)
            found = result(
                "transfer_rotation", metric, value, reference, error=error, production=0.05
            )
        else:
            found = result("transfer_rotation", metric, value, None)
        results.append(found)
    return results


def moments(
    transfer: str, n: int, transfers: int, *, precision: str = "double", **options: Any
) -> Array:
    """L / L0 of a disc of n cells after 0, 1, ... transfers."""
    places = disc(n)
    points = loki.Points(places)
    points.set_channel("point", "velocity", np.cross((0.0, 0.0, 1.0), places))
    reach = 8.0 * H * np.ceil(n / 8.0 + 1.0)
    setup = loki.SolverSetup(
        "turning_disc",
        loki.HybridObject(
            name="Disc", voxel_size=H, input="disc", transfer=transfer, particles_per_axis=1,
            **options,
        ),
        precision=precision,
        domain_lower=(-reach, -reach, 0.0),
        domain_upper=(reach, reach, 8.0 * H),
    )  # fmt: skip
    turning: Any = loki.Solver(setup, {"disc": points}).object("Disc")
    found = [_moment(turning)]
    for _ in range(transfers):
        turning.grid.take_particles()
        turning.grid.move_particles(0.0)
        found.append(_moment(turning))
    return np.array(found) / found[0]


def disc(n: int, seed: int = 1) -> Array:
    """Places of the particles of a disc of n cells [m], shape [count, 3]."""
    steps = np.arange(-PER_AXIS * n, PER_AXIS * n) + 0.5
    regular = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    moved = JITTER * (np.random.default_rng(seed).random(regular.shape) - 0.5)
    places = (regular + moved) * H / PER_AXIS
    places = places[np.hypot(*places.T) < n * H]
    return np.column_stack((places, np.full(len(places), 0.5 * H)))


def _moment(item: Any) -> float:
    """Angular momentum of all particles about the axis of the disc, each of mass 1 [m^2/s]."""
    domain, particles = item.scope.domain, item.particles
    x = domain.to_world(particles.local("position").astype(np.float64))
    u = particles.local("velocity").astype(np.float64)
    total = x[:, 0] * u[:, 1] - x[:, 1] * u[:, 0]
    if item.is_affine:
        part = x[:, :2] / H - 0.5
        part -= np.floor(part)
        spread = H**2 * part * (1.0 - part)
        c = particles.local("affine").astype(np.float64)
        total += spread[:, 0] * c[:, 1, 0] - spread[:, 1] * c[:, 0, 1]
    return float(np.sum(total))
