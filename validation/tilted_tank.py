"""Water at rest in a tank that is turned against the grid stays at rest, for ten seconds.

The tank is a Collider whose outside is solid: a box 1 m wide, turned about the axis of the slab,
half full. The surface is level. Default settings, 24 frames a second and one substep a frame. The
water starts on the grid's own lattice, cut off by the walls, so what is along them is not quite
full; the speed is the largest of any particle at any frame, and that after SETTLING is told, too.
The volume is that of the cross-section: the mean height of the surface away from the walls against
that of the start. The pressure is found on the line through the tank's middle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki

from ._liquids import DENSITY, GRAVITY, PER_AXIS, THICKNESS, written
from ._report import result

Array = NDArray[np.float64]

RESOLUTIONS = (32, 64)
ANGLES = (10.0, 20.0, 30.0)  # degrees
WIDTH, DEPTH = 1.0, 0.5  # m, of the tank, and of its water were it not turned
SECONDS, SETTLING = 10.0, 2.0


def run(
    resolutions: tuple[int, ...] = RESOLUTIONS,
    angles: tuple[float, ...] = ANGLES,
    seconds: float = SECONDS,
) -> list[dict[str, Any]]:
    """Run at each resolution and angle."""
    results = []
    for n in resolutions:
        for angle in angles:
            found = rest(n, angle, seconds)
            for metric, reference, limits in (
                ("largest speed over sqrt(g H)", 0.0, {"production": 5e-3, "best": 1e-4}),
                ("largest speed once settled over sqrt(g H)", 0.0, {}),
                ("change of volume", 0.0, {"production": 0.01, "best": 1e-3}),
                ("pressure at the bottom over rho g H", 1.0, {"production": 0.01, "best": 1e-3}),
            ):
                if metric in found:
                    value, words = found[metric], f"{metric}, n = {n}, {angle:g} degrees"
                    one = result(
                        "tilted_tank", words, value, reference,
                        error=abs(value - reference), **limits,
                    )  # fmt: skip
                    results.append(one)
    return results


def rest(n: int, angle: float, seconds: float) -> dict[str, float]:
    """Leave the water alone; return what should be 0, 0, 0 and 1."""
    h = WIDTH / n
    solver, level = tank(n, angle)
    height = float(np.mean(surface_heights(written(solver)[0], h)))
    fastest = settled = 0.0
    frames = round(24 * seconds)
    for frame in range(frames):
        solver.run(1)
        places, velocity = written(solver)
        speed = float(np.linalg.norm(velocity, axis=1).max())
        fastest = max(fastest, speed)
        if frame >= 24 * SETTLING:
            settled = max(settled, speed)
    scale = np.sqrt(GRAVITY * DEPTH)
    change = float(np.mean(surface_heights(places, h))) - height
    found = {
        "largest speed over sqrt(g H)": fastest / scale,
        "change of volume": change / DEPTH,
        "pressure at the bottom over rho g H": bottom_pressure(solver, h, level, angle),
    }
    if frames > 24 * SETTLING:
        found["largest speed once settled over sqrt(g H)"] = settled / scale
    return found


def tank(n: int, angle: float) -> tuple[loki.Solver, float]:
    """Return the solver, and the height of the water's surface [m]; the tank's middle is at 0."""
    h, turn = WIDTH / n, turned(angle)
    corners = 0.5 * WIDTH * np.array(((-1, -1), (1, -1), (1, 1), (-1, 1))) @ turn.T
    bucket = 8 * h
    half = bucket * np.ceil((np.abs(corners).max() + 2 * h) / bucket)
    spacing = h / PER_AXIS
    line = spacing * (np.arange(-round(half / spacing), round(half / spacing)) + 0.5)
    across, up = (a.reshape(-1) for a in np.meshgrid(line, line, indexing="ij"))
    inside = np.all(np.abs(np.column_stack((across, up)) @ turn) < 0.5 * WIDTH, axis=1)
    level = 0.0  # half of a square is below its middle, however it is turned
    wet = inside & (up < level)
    z = spacing * (np.arange(THICKNESS * PER_AXIS) + 0.5)
    places = np.column_stack(
        (np.tile(across[wet], len(z)), np.tile(up[wet], len(z)), np.repeat(z, np.sum(wet)))
    )
    sides = ("wall",) * 3
    setup = loki.SolverSetup(
        "tilted tank",
        loki.HybridObject(name="Water", voxel_size=h, input="water", density=DENSITY),
        loki.PressureMaterial(),
        loki.GravityForce(),
        loki.Collider(input="tank", mode="solid_outside"),
        domain_lower=(-half, -half, 0.0),
        domain_upper=(half, half, THICKNESS * h),
        boundary_lower=sides,
        boundary_upper=sides,
    )
    inputs = {"water": loki.Points(places), "tank": prism(corners, -1.0, THICKNESS * h + 1.0)}
    return loki.Solver(setup, inputs), level


def turned(angle: float) -> Array:
    """Matrix that turns by an angle [degrees]."""
    a = np.radians(angle)
    return np.array(((np.cos(a), -np.sin(a)), (np.sin(a), np.cos(a))))


def prism(corners: Array, bottom: float, top: float) -> loki.Surface:
    """A closed prism along z over a convex polygon [n, 2] m."""
    n = len(corners)
    points = np.concatenate([np.column_stack((corners, np.full(n, z))) for z in (bottom, top)])
    sides = [(i, (i + 1) % n, n + (i + 1) % n) for i in range(n)]
    sides += [(i, n + (i + 1) % n, n + i) for i in range(n)]
    ends = [(0, i + 1, i) for i in range(1, n - 1)]
    ends += [(n, n + i, n + i + 1) for i in range(1, n - 1)]
    return loki.Surface.from_faces(points, np.array(sides + ends, np.int32))


def surface_heights(places: Array, h: float) -> Array:
    """Heights of the surface [m] over columns a voxel wide in the middle of the tank.

    What particles below -DEPTH / 4 fill is the same at any time, so those above are counted.
    """
    floor = -0.25 * DEPTH
    counted = (np.abs(places[:, 0]) < 0.25 * WIDTH) & (places[:, 1] > floor)
    columns = round(0.5 * WIDTH / h)
    column = np.floor((places[counted, 0] + 0.25 * WIDTH) / h).astype(int)
    count = np.bincount(np.clip(column, 0, columns - 1), minlength=columns)
    heights: Array = floor + count * h / (PER_AXIS**3 * THICKNESS)
    return heights


def bottom_pressure(solver: loki.Solver, h: float, level: float, angle: float) -> float:
    """Pressure over rho g times the depth, a voxel above the tank's floor below its middle."""
    water: Any = solver.object("Water")
    volume = water.volume
    pressure, kind = volume.local("pressure")[:, 0], volume.local("kind")[:, 0]
    r = pressure.shape[1]
    origin = np.asarray(water.scope.domain.origin)
    first = volume.buckets.local_coords * r * h + origin
    steps = (np.arange(r) + 0.5) * h
    x = first[:, 0, None] + steps
    y = first[:, 1, None] + steps
    wall = -0.5 * WIDTH / np.cos(np.radians(angle))  # the floor's height below the middle
    wanted = (np.abs(x) < 0.75 * h)[:, :, None] & (np.abs(y - wall - 1.5 * h) < 0.75 * h)[:, None]
    chosen = wanted[:, :, :, None] & (kind == 1)
    depth = np.broadcast_to((level - y)[:, None, :, None], pressure.shape)[chosen]
    return float(np.mean(pressure[chosen] / (DENSITY * GRAVITY * depth)))
