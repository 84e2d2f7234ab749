"""Liquids at rest with a Liquid Surface, and what is measured of it."""

from __future__ import annotations

import numpy as np

from loki_core.data.surface import Surface
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup

H = 1.0 / 16.0  # edge of the liquid's voxels [m]


def box(lower, upper):
    """A closed box of quads."""
    corners = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij"), axis=-1).reshape(-1, 3)
    lower, upper = np.asarray(lower, float), np.asarray(upper, float)
    faces = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    return Surface.from_faces(lower + corners * (upper - lower), np.array(faces))


def liquid_solver(stream, *behaviors, size=(1.0, 1.0, 1.0), comm=None, inputs=None, **options):
    """A Solver of a liquid "Water" in a box with walls, and its "Surface"."""
    setup = SolverSetup(
        "liquid",
        HybridObject(name="Water", voxel_size=H, input="water"),
        LiquidSurface(name="Surface", **options),
        *behaviors,
        substeps=2,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=size,
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )
    return Solver(setup, {"water": stream, **(inputs or {})}, comm=comm)


def surface_of(stream, **options):
    """The Liquid Surface of a stream at the start."""
    return liquid_solver(stream, **options).object("Surface").output()


def enclosed_volume(surface):
    """Volume inside a closed mesh by the divergence theorem [m^3]."""
    x = np.asarray(surface.positions, np.float64)[surface.triangles()]
    return float(np.einsum("ij,ij->", x[:, 0], np.cross(x[:, 1], x[:, 2]))) / 6.0


def particle_volume(solver):
    """Volume that the particles of "Water" stand for [m^3]."""
    water = solver.object("Water")
    return water.count() * water.particle_share * water.voxel_size**3


def edge_uses(surface):
    """How often every edge is run along in its direction, and whether the way back is there."""
    pairs = surface.half_edges().astype(np.int64)
    forward = pairs[:, 0] * surface.point_count + pairs[:, 1]
    backward = pairs[:, 1] * surface.point_count + pairs[:, 0]
    _, counts = np.unique(forward, return_counts=True)
    return counts, np.isin(backward, forward)
