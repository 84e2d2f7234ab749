"""Potential flow around a cylinder by one projection: the order of cut-cell walls.

    u_r = U (1 - R^2/r^2) cos th,     u_th = -U (1 + R^2/r^2) sin th,     psi = U (r - R^2/r) sin th

A box of 4 R around a Collider that is a cylinder starts with the uniform flow everywhere; one solve
of the Pressure Material does the rest. The flux through the sides of the box is the exact one: they
are walls, and what flows through a side is a source in the cell beside it, which is the same
equation.

What a face's velocity is: a cell's balance is  sum_f s_f w_f u_f = 0  with the open fractions w, so
w_f u_f is the flux through the open part over the area of the whole face, and u_f the mean velocity
over the open part. The exact one is

    u_f = [psi at one end of the open part - psi at the other] / length of the open part

with psi = 0 on the cylinder; it fulfils the cells' balance to the last digit, for the exact w. In
the middle of the face, which is not that of the open part, the velocity is another by O(h): a
scheme that had those values on cut faces would have an O(1) divergence in their cells. The
error is that of all faces with an open part; that of faces which the cylinder does not cut, and
that against the velocity in the middles of faces, where these are outside, are told as well: cut
faces are one of n, so the last has an order of 1.5 for any scheme that keeps volume.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._report import result

Array = NDArray[np.float64]

RESOLUTIONS = (8, 16, 32)
RADIUS, SPEED = 1.0, 1.0  # m, m/s
HALF, THICKNESS = 2.0, 1.0  # m, of the box; along z it is periodic
#: Off the grid's own planes, so that faces are cut in every way.
AXIS = np.array((0.0137, 0.0071))
CORNERS = 720  # of the cylinder's section


def run(resolutions: tuple[int, ...] = RESOLUTIONS) -> list[dict[str, Any]]:
    """Run at each resolution and compare them."""
    results = []
    errors = {n: velocity_errors(n) for n in resolutions}
    for n, found in errors.items():
        for name, value in found.items():
            metric = f"{name} error of velocity, R = {n} voxels"
            results.append(result("cylinder_potential", metric, value, 0.0))
    for coarse, fine in pairwise(sorted(errors)):
        for name in ("L2", "L2 (uncut faces)", "L2 (middles of faces)"):
            limits = {"production": 1.8, "best": 1.8} if name == "L2" else {}
            order = float(np.log2(errors[coarse][name] / errors[fine][name]))
            metric = f"order of {name} error, R = {coarse} to {fine}"
            results.append(
                result("cylinder_potential", metric, order, None, lower_is_better=False, **limits)
            )
    return results


def velocity_errors(n: int) -> dict[str, float]:
    """Root of the mean square, and largest, error of the velocity over U."""
    h = RADIUS / n
    written = projected(h).voxels(("velocity", "open_fraction"))
    velocity, open_part = (
        written.to_dense(name)[:2, :, :, 0] for name in ("velocity", "open_fraction")
    )
    every, uncut, middles = [], [], []
    for axis in (0, 1):
        length, mean = exact_means(h, axis)
        inside = np.ones(length.shape, bool)  # and not a side of the box
        inside[(0, slice(None)) if axis == 0 else (slice(None), 0)] = False
        open_too = inside & (open_part[axis] > 0.0) & (length > 0.0)
        off = (velocity[axis] - mean) / SPEED
        every.append(off[open_too])
        uncut.append(off[open_too & (open_part[axis] == 1.0)])
        x, y = _places(h, axis)
        outside = inside & (np.hypot(x, y) > RADIUS)
        middles.append((velocity[axis] - exact_velocity(x, y)[axis])[outside] / SPEED)
    norms = {"L2": every, "L2 (uncut faces)": uncut, "L2 (middles of faces)": middles}
    found = {name: float(np.sqrt(np.mean(np.concatenate(e) ** 2))) for name, e in norms.items()}
    return {**found, "largest": float(np.abs(np.concatenate(every)).max())}


def projected(h: float) -> Any:
    """Return the gas of voxels h [m] after one projection."""
    sides = ("wall", "wall", "periodic")
    setup = loki.SolverSetup(
        "cylinder",
        loki.VolumeObject(name="Gas", voxel_size=h, region="box", density=1.0, channels=()),
        loki.PressureMaterial(),
        loki.Collider(input="cylinder", slip="slip"),
        precision="double",
        domain_lower=(-HALF, -HALF, 0.0),
        domain_upper=(HALF, HALF, THICKNESS),
        boundary_lower=sides,
        boundary_upper=sides,
    )
    solver = loki.Solver(setup, {"cylinder": cylinder()})
    solver.run(1)  # nothing moves yet; the cylinder's faces are found
    gas: Any = solver.object("Gas")
    gas.need_divergence()
    velocity, source = gas.volume.local("velocity"), gas.volume.local("divergence")
    velocity[:, 0][gas.volume.local("open_fraction")[:, 0] > 0.0] = SPEED
    _fill(source[:, 0], side_sources(h), gas.volume.buckets.local_coords)
    for name in ("velocity", "divergence"):
        gas.volume.mark_written(name)
    gas.projector.project(1.0 / 24.0)
    return gas


def cylinder() -> loki.Surface:
    """A prism of many sides along z, one period long and so without ends."""
    angle = 2.0 * np.pi * np.arange(CORNERS) / CORNERS
    ring = RADIUS * np.stack((np.cos(angle), np.sin(angle)), axis=-1) + AXIS
    points = [np.column_stack((ring, np.full(CORNERS, z))) for z in (0.0, THICKNESS)]
    low = np.arange(CORNERS)
    after = np.roll(low, -1)
    faces = [(low, after, after + CORNERS), (low, after + CORNERS, low + CORNERS)]
    return loki.Surface.from_faces(
        np.concatenate(points), np.concatenate([np.stack(face, axis=-1) for face in faces])
    )


def exact_velocity(x: Array, y: Array) -> tuple[Array, Array]:
    """Velocity [m/s] at places relative to the axis."""
    r2 = x**2 + y**2
    u = SPEED * (1.0 - RADIUS**2 * (x**2 - y**2) / r2**2)
    return u, -2.0 * SPEED * RADIUS**2 * x * y / r2**2


def exact_means(h: float, axis: int) -> tuple[Array, Array]:
    """Length of the open part of faces across an axis [m], and the mean velocity over it [m/s]."""
    x, y = _places(h, axis)
    across, along = (x, y) if axis == 0 else (y, x)
    covered = np.sqrt(np.maximum(RADIUS**2 - across**2, 0.0))  # from -covered to covered
    ends = np.clip(covered, along - 0.5 * h, along + 0.5 * h)
    length = h - (ends - np.clip(-covered, along - 0.5 * h, along + 0.5 * h))
    if axis == 0:
        flux = stream(x, y + 0.5 * h) - stream(x, y - 0.5 * h)
    else:
        flux = stream(x - 0.5 * h, y) - stream(x + 0.5 * h, y)
    length = np.where(length > 1e-9 * h, length, 0.0)
    return length, flux / np.where(length > 0.0, length, h)


def stream(x: Array, y: Array) -> Array:
    """Stream function [m^2/s] at places relative to the axis; 0 in the cylinder."""
    return SPEED * y * (1.0 - RADIUS**2 / np.maximum(x**2 + y**2, RADIUS**2))


def side_sources(h: float) -> Array:
    """Volume that comes in through the sides of the box, in cells beside them [1/s], [nx, ny]."""
    n = round(2.0 * HALF / h)
    corner = np.linspace(-HALF, HALF, n + 1)
    psi = stream(*np.meshgrid(corner - AXIS[0], corner - AXIS[1], indexing="ij"))
    source = np.zeros((n, n))
    along_x, along_y = np.diff(psi, axis=1) / h**2, -np.diff(psi, axis=0) / h**2
    source[0] += along_x[0]
    source[-1] -= along_x[-1]
    source[:, 0] += along_y[:, 0]
    source[:, -1] -= along_y[:, -1]
    return source


def _places(h: float, axis: int) -> tuple[Array, Array]:
    """Centres of the faces across an axis, relative to the cylinder's axis [m], each [nx, ny]."""
    centre = -HALF + h * (np.arange(round(2.0 * HALF / h)) + 0.5)
    x, y = np.meshgrid(centre - AXIS[0], centre - AXIS[1], indexing="ij")
    return (x - 0.5 * h, y) if axis == 0 else (x, y - 0.5 * h)


def _fill(blocks: Array, values: Array, coords: NDArray[np.int32]) -> None:
    """Write values [nx, ny] of cells to blocks [b, r, r, r] of all depths."""
    r = blocks.shape[1]
    for block, (i, j, _) in zip(blocks, (coords - coords.min(axis=0)) * r):
        block[:] = values[i : i + r, j : j + r, None]
