"""Wind with threads of smoke streams around a ball in a tunnel.

Air comes in at one end with a given velocity and leaves at the other; the four sides are walls
along which it glides. Smoke of a row of small sources shows the flow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.constraints.pressure import PressureMaterial
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.domain_boundary import DomainBoundary
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.solver_setup import Group, SolverSetup
from loki_graph.nodes.shape_source import unit_sphere

FRAMES = 60
LENGTH, WIDTH = 3.2, 1.28


def build(voxel_size: float = 0.04, wind: float = 2.0) -> tuple[SolverSetup, dict[str, Any]]:
    """Return the Solver Setup and its inputs.

    Args:
        voxel_size: Edge of a voxel [m].
        wind: Speed of the air that comes in [m/s].
    """
    tunnel = Group(
        "Tunnel",
        VolumeObject(
            name="Air",
            voxel_size=voxel_size,
            region="box",
            channels=("density",),
            ambient_velocity=(wind, 0.0, 0.0),
        ),
        PressureMaterial(),
        DomainBoundary(
            name="Inlet", sides=("x_lower",), condition="inflow", velocity=(wind, 0.0, 0.0)
        ),
        VolumeEmission(name="Threads", source="threads"),
        Collider(name="Ball", input="ball"),
    )
    setup = SolverSetup(
        "wind_tunnel",
        tunnel,
        substeps=2,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(LENGTH, WIDTH, WIDTH),
        boundary_lower=("open", "wall", "wall"),
        boundary_upper=("open", "wall", "wall"),
    )
    center = (0.9, 0.5 * WIDTH, 0.5 * WIDTH)
    return setup, {"threads": threads(voxel_size), "ball": ball(center, 0.2)}


def threads(voxel_size: float, count: int = 7) -> Voxels:
    """Return a row of small smoking cubes across the inlet, level with the ball's middle."""
    voxels = round(WIDTH / voxel_size)
    density = np.zeros((8, voxels, voxels), np.float32)
    places = np.round((np.arange(count) + 1.0) * voxels / (count + 1)).astype(int)
    middle = voxels // 2
    for j in places:
        density[3:5, j - 1 : j + 1, middle - 1 : middle + 1] = 1.0
    return Voxels.from_dense(density, (0.0, 0.0, 0.0), voxel_size)


def ball(center: tuple[float, float, float], radius: float) -> Surface:
    """Return a ball about a point [m]."""
    surface = unit_sphere(48, 24)
    surface.positions = np.asarray(center) + 2.0 * radius * surface.positions
    return surface
