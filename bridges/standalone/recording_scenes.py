"""Recording Scenes: small scenes of the Behaviors that no example has, for the Kernel Book.

Together with the examples they call what each Behavior needs at its defaults. A new Behavior that
no example uses joins the scene of its kind here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as lk

Built = tuple[lk.SolverSetup, dict[str, Any]]

WALLS = ("wall", "wall", "wall")
BOX: Mapping[str, Any] = {
    "domain_lower": (0.0, 0.0, 0.0),
    "domain_upper": (1.0, 1.0, 1.0),
    "boundary_lower": WALLS,
    "boundary_upper": WALLS,
}
VOXEL = 1.0 / 16.0
SMALL, LARGE = 5, 40  # points along a sheet: one has an envelope, the other factors of its own


def sheets(points: int, newton_iterations: int) -> Built:
    """Cloth of springs, of membranes and of rubber, held together, above a ball."""
    held = lk.AttachmentConstraint(source="Springs", target="Membrane", range=0.1)
    setup = lk.SolverSetup(
        "sheets",
        *(
            lk.Group(name, lk.GeometryObject(input=name.lower()), constraint)
            for name, constraint in (
                ("Springs", lk.DistanceConstraint()),
                ("Membrane", lk.MembraneConstraint()),
                ("Rubber", lk.NeoHookeanConstraint()),
            )
        ),
        held,
        lk.CollisionConstraint(),
        lk.Collider(input="block"),
        lk.GravityForce(),
        lk.FluidDragForce(velocity=(1.0, 0.0, 0.0)),
        newton_iterations=newton_iterations,
    )
    heights = {"springs": 0.0, "membrane": 0.05, "rubber": 0.1}
    inputs = {name: sheet(points, height) for name, height in heights.items()}
    return setup, {**inputs, "block": block((0.2, -0.2, 0.2), (0.4, -1e-3, 0.4))}


def springs() -> Built:
    """A wireframe, and a sheet that is a body by itself."""
    ends = np.array([[0, 1], [1, 2]], np.int32)
    line = lk.Wireframe(np.array([[0.0, 1.0, 0.0], [0.1, 1.0, 0.0], [0.2, 1.0, 0.0]]), ends)
    setup = lk.SolverSetup(
        "springs",
        lk.GeometryObject(name="Line", input="line"),
        lk.GeometryObject(name="Sheet", input="sheet"),
        lk.DistanceConstraint(),
        lk.GravityForce(),
    )
    return setup, {"line": line, "sheet": sheet(SMALL, 0.5)}


def room() -> Built:
    """Smoke in a closed room, with all that guides and changes it."""
    setup = lk.SolverSetup(
        "room",
        lk.VolumeObject(name="Air", voxel_size=VOXEL, region="box"),
        lk.PressureMaterial(),
        lk.BuoyancyForce(),
        lk.VolumeEmission(source="block", density=1.0, temperature=600.0),
        lk.DissipationOperator(channels=("density", "temperature")),
        lk.DomainBoundary(sides=("y_upper",)),
        lk.GuideOperator(field="wind", strength=1.0),
        lk.ForceDensityField(field="wind", channel="velocity", value=(0.0, 1.0, 0.0)),
        lk.TurbulenceForce(),
        lk.VorticityConfinementOperator(),
        lk.VolumeExpression(expression="soot = density + temperature", new_channels=("soot",)),
        **BOX,
    )
    return setup, {"block": block((0.3, 0.1, 0.3), (0.7, 0.3, 0.7)), "wind": wind()}


def tank() -> Built:
    """Water that is coloured, drawn together by its surface, filled and drained."""
    setup = lk.SolverSetup(
        "tank",
        lk.HybridObject(name="Water", voxel_size=VOXEL, input="water"),
        lk.PressureMaterial(),
        lk.SurfaceTensionForce(),
        lk.ChannelMixing(channels=("dye",)),
        lk.DomainBoundary(sides=("x_lower",)),
        lk.GuideOperator(field="wind", strength=1.0),
        lk.ForceDensityField(field="wind", channel="velocity", value=(0.0, 1.0, 0.0)),
        lk.LiquidSource(source="block", velocity=(0.0, -1.0, 0.0)),
        lk.LiquidSink(source="drain"),
        lk.ParticleExpression(expression="tint = age", new_channels=("tint",)),
        lk.VolumeExpression(expression="velocity *= 0.99"),
        lk.GravityForce(),
        **BOX,
    )
    inputs = {
        "block": block((0.3, 0.6, 0.3), (0.7, 0.8, 0.7)),
        "drain": block((0.0, 0.0, 0.0), (0.2, 0.2, 0.2)),
        "wind": wind(),
        "water": dyed((16, 8, 16)),
    }
    return setup, inputs


def dust() -> Built:
    """Particles that a field moves and an expression marks, and a liquid that is drained."""
    setup = lk.SolverSetup(
        "dust",
        lk.Group(
            "Dust",
            lk.ParticleObject(input="seeds", radius=0.01),
            lk.ParticleExpression(expression="tint = age", new_channels=("tint",)),
            lk.CollisionConstraint(),
        ),
        lk.Group(
            "Drops",
            lk.ParticleObject(input="drops", radius=0.02),
            lk.PositionBasedFluid(),
            lk.LiquidSink(source="drain"),
        ),
        lk.ForceDensityField(field="wind", channel="velocity", value=(0.0, -1.0, 0.0)),
        lk.Collider(input="block"),
        **BOX,
    )
    inputs = {
        "seeds": dyed((4, 4, 4)),
        "drops": dyed((6, 6, 6)),
        "drain": block((0.0, 0.0, 0.0), (0.2, 0.2, 0.2)),
        "block": block((0.5, 0.0, 0.5), (0.8, 0.1, 0.8)),
        "wind": wind(),
    }
    return setup, inputs


def lock() -> Built:
    """Strands that hang as they were groomed, and meet another shape."""
    setup = lk.SolverSetup(
        "lock",
        lk.CurvesObject(input="strands", radius=1e-3),
        lk.StretchingConstraint(),
        lk.BendingConstraint(),
        lk.DistanceConstraint(),
        lk.MatchTarget(target="shape"),
        lk.GravityForce(),
    )
    roots = np.array([[0.3, 0.6, 0.3], [0.4, 0.6, 0.4]])
    straight = roots[:, None] + np.linspace(0.0, 0.3, 5)[:, None] * np.array([1.0, -0.5, 0.2])
    bent = straight - np.array([0.0, 0.02, 0.0]) * np.linspace(0.0, 1.0, 5)[:, None] ** 2
    curves = lk.Curves.from_strands
    return setup, {"strands": curves(straight), "shape": curves(bent)}


#: What runs for the book beside the examples.
SCENES: Mapping[str, Callable[[], Built]] = {
    "sheets": lambda: sheets(SMALL, 1),
    "sheets, searching": lambda: sheets(SMALL, 4),
    "large sheets": lambda: sheets(LARGE, 1),
    "springs": springs,
    "room": room,
    "tank": tank,
    "dust": dust,
    "lock": lock,
}


# -- streams ---------------------------------------------------------------------------------------


def sheet(points: int, height: float) -> lk.Surface:
    """A level square of quads, 0.5 m along each side."""
    x, z = np.meshgrid(*[np.linspace(0.0, 0.5, points)] * 2, indexing="ij")
    places = np.stack((x, np.full_like(x, height), z), axis=-1).reshape(-1, 3)
    row = np.arange(points * points).reshape(points, points)
    quads = np.stack((row[:-1, :-1], row[:-1, 1:], row[1:, 1:], row[1:, :-1]), axis=-1)
    return lk.Surface.from_faces(places, quads.reshape(-1, 4))


def block(lower: tuple[float, ...], upper: tuple[float, ...]) -> lk.Surface:
    """A closed box of triangles."""
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float64)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [face for a, b, c, d in quads for face in ((a, b, c), (a, c, d))]
    size = np.asarray(upper) - np.asarray(lower)
    return lk.Surface.from_faces(np.asarray(lower) + corners * size, faces)


def dyed(counts: tuple[int, int, int]) -> lk.Points:
    """Points half a voxel apart in a corner of the box, with a channel "dye"."""
    numbers: NDArray[Any] = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1)
    points = lk.Points(0.5 * VOXEL * (numbers.reshape(-1, 3) + 0.5))
    points.set_channel("point", "dye", np.linspace(0.0, 1.0, points.point_count))
    return points


def wind() -> lk.Voxels:
    """A field with a velocity in the whole box."""
    field = lk.Voxels(np.zeros((1, 3), np.int32), 0.125, block_resolution=8)
    field.set_channel("velocity", np.full((1, 3, 8, 8, 8), 0.5), location="cell")
    return field
