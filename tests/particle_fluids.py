"""What tests of particle fluids build: blocks of particles, meshes, and a Solver around them."""

from __future__ import annotations

from typing import Any

import numpy as np

import loki_core as lk

G = 9.81


def radius_of(spacing: float) -> float:
    """Radius of the ball that fills a cube of this edge [m]."""
    return float(spacing * (3.0 / (4.0 * np.pi)) ** (1.0 / 3.0))


def block(nx: int, ny: int, nz: int, *, spacing: float, corner: Any = (0.0, 0.0, 0.0)) -> Any:
    """Places of a cubic lattice in a box that begins at a corner."""
    axes = [np.arange(n) + 0.5 for n in (nx, ny, nz)]
    x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    return x * spacing + np.asarray(corner)


def box_mesh(lower: Any, upper: Any) -> lk.Surface:
    """A closed box."""
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    positions = np.asarray(lower) + corners * (np.asarray(upper) - np.asarray(lower))
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [f for a, b, c, d in quads for f in ((a, b, c), (a, c, d))]
    return lk.Surface.from_faces(positions, np.array(faces, np.int32))


def sphere_mesh(radius: float, rings: int = 24) -> lk.Surface:
    """A closed sphere around the origin."""
    import trimesh

    ball = trimesh.creation.uv_sphere(radius=radius, count=[rings, rings])
    return lk.Surface.from_faces(ball.vertices, ball.faces.astype(np.int32))


def fluid(
    points: Any,
    *,
    radius: float = 0.05,
    gravity: bool = False,
    collider: Any = None,
    move: Any = (0.0, 0.0, 0.0),
    fps: float = 24.0,
    substeps: int = 1,
    precision: str = "single",
    kind: Any = None,
    density: float = 1000.0,
    domain_lower: Any = None,
    domain_upper: Any = None,
    boundary_lower: Any = ("open",) * 3,
    boundary_upper: Any = ("open",) * 3,
    bucket_size: float | None = None,
    **settings: Any,
) -> lk.Solver:
    """A Solver with one Particle Object that is a fluid."""
    kind = lk.PositionBasedFluid if kind is None else kind
    parts: list[Any] = [
        lk.ParticleObject(name="P", input="p", radius=radius, density=density),
        kind(**settings),
    ]
    inputs: dict[str, Any] = {"p": points if isinstance(points, lk.Points) else lk.Points(points)}
    if collider is not None:
        parts.append(lk.Collider(input="solid"))
        if callable(collider):
            inputs["solid"] = collider
        else:
            collider.positions = collider.positions + np.asarray(move)
            inputs["solid"] = collider
    if gravity:
        parts.append(lk.GravityForce(acceleration=(0.0, -G, 0.0)))
    setup = lk.SolverSetup(
        "t",
        *parts,
        frames_per_second=fps,
        substeps=substeps,
        adaptive_substeps=False,
        precision=precision,
        domain_lower=domain_lower,
        domain_upper=domain_upper,
        boundary_lower=boundary_lower,
        boundary_upper=boundary_upper,
        bucket_size=bucket_size,
    )
    return lk.Solver(setup, inputs)


def read(solver: lk.Solver, channel: str) -> Any:
    """A channel of all particles, by id."""
    return solver.read("P", channel)
