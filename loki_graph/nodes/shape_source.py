"""Shape source: simple shapes, so that a graph runs without files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loki_core.behavior import parameter
from loki_core.data.curves import Curves
from loki_core.data.surface import Surface
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

Points = npt.NDArray[np.float64]
SHAPES = ("sphere", "box", "disc", "grid", "line")
BOX_FACES = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]


class ShapeSource(Node):
    """Make a sphere, box, disc, grid (Surface) or line (Curves) around a centre.

    Discs and grids lie in the xz plane and face up; a line is the diagonal of its box.
    """

    shape: str = parameter("sphere", choices=SHAPES, doc="What is made.")
    center: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="m", is_spatial=True, doc="Its middle."
    )
    size: tuple[float, float, float] = parameter(
        (1.0, 1.0, 1.0), unit="m", minimum=0.0, doc="Extent along x, y and z."
    )
    resolution: tuple[int, int] = parameter(
        (16, 16), minimum=1, maximum=4096, doc="Pieces around and along, or along x and z."
    )

    def outputs(self) -> Mapping[str, Socket]:
        """Return one output of the shape's type."""
        return {"out": Socket("out", "curves" if self.shape == "line" else "surface")}

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the shape."""
        around, along = self.resolution
        unit: Surface | Curves
        if self.shape == "sphere":
            unit = unit_sphere(max(around, 3), max(along, 2))
        elif self.shape == "box":
            unit = unit_box()
        elif self.shape == "disc":
            unit = unit_disc(max(around, 3))
        elif self.shape == "grid":
            unit = unit_grid(around, along)
        else:
            unit = Curves.from_strands(unit_line(around))
        size, center = np.asarray(self.size), np.asarray(self.center)
        unit.positions = unit.positions * size + center
        return {"out": unit}


def unit_box_corners() -> Points:
    """Return the corners of a box of edge 1 around the origin, x slowest, shape [8, 3]."""
    return np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])


def unit_box() -> Surface:
    """Return a closed box of edge 1 around the origin: six quads."""
    return Surface.from_faces(unit_box_corners(), np.array(BOX_FACES))


def box_between(lower: tuple[float, float, float], upper: tuple[float, float, float]) -> Surface:
    """Return a closed box between two corners [m]."""
    box = unit_box()
    low, high = np.asarray(lower), np.asarray(upper)
    box.positions = 0.5 * (low + high) + (high - low) * box.positions
    return box


def turned(outline: list[tuple[float, float]], sides: int = 48) -> Surface:
    """Return the closed surface of an outline that is turned about the y axis.

    Args:
        outline: Corners as radius and height [m], from the axis against the clock.
        sides: Corners of a turn.
    """
    angle = np.arange(sides) * (2.0 * np.pi / sides)
    radius, height = np.array(outline).T
    places = np.stack(
        np.broadcast_arrays(
            radius * np.cos(angle)[:, None], height, -radius * np.sin(angle)[:, None]
        ),
        axis=-1,
    )
    corner = np.arange(sides * len(outline)).reshape(sides, len(outline))
    corner[:, radius == 0.0] = corner[0, radius == 0.0]  # one point on the axis
    beside, above = np.roll(corner, -1, axis=0), np.roll(corner, -1, axis=1)
    across = np.roll(beside, -1, axis=1)
    faces = np.stack((corner, beside, across, corner, across, above), axis=-1).reshape(-1, 3)
    faces = faces[[len(set(face)) == 3 for face in faces.tolist()]]
    used, faces = np.unique(faces, return_inverse=True)
    return Surface.from_faces(places.reshape(-1, 3)[used], faces.reshape(-1, 3))


def unit_line(pieces: int) -> Points:
    """Return the diagonal of a box of edge 1, shape [1, pieces + 1, 3]."""
    steps = np.linspace(-0.5, 0.5, pieces + 1)
    return np.repeat(steps[:, None], 3, axis=1)[None]


def unit_grid(columns: int, rows: int) -> Surface:
    """Return quads over a square of edge 1 in the xz plane that face up."""
    x, z = np.linspace(-0.5, 0.5, columns + 1), np.linspace(-0.5, 0.5, rows + 1)
    positions = np.stack(np.broadcast_arrays(x[:, None], 0.0, z[None, :]), axis=-1).reshape(-1, 3)
    i, j = (a.reshape(-1) for a in np.meshgrid(np.arange(columns), np.arange(rows), indexing="ij"))
    first = i * (rows + 1) + j
    return Surface.from_faces(
        positions, np.stack([first, first + 1, first + rows + 2, first + rows + 1], axis=1)
    )


def unit_disc(pieces: int) -> Surface:
    """Return triangles over a disc of diameter 1 in the xz plane that face up."""
    angle = 2.0 * np.pi * np.arange(pieces) / pieces
    ring = 0.5 * np.stack([np.cos(angle), np.zeros(pieces), np.sin(angle)], axis=1)
    i = np.arange(pieces)
    faces = np.stack([np.zeros(pieces, np.int64), 1 + (i + 1) % pieces, 1 + i], axis=1)
    return Surface.from_faces(np.concatenate([np.zeros((1, 3)), ring]), faces)


def unit_sphere(pieces: int, bands: int) -> Surface:
    """Return a closed sphere of diameter 1: quads, and triangles around the poles on y."""
    angle = 2.0 * np.pi * np.arange(pieces) / pieces
    height = np.pi * np.arange(1, bands) / bands
    rings = np.stack(
        np.broadcast_arrays(
            np.sin(height)[:, None] * np.cos(angle),
            np.cos(height)[:, None],
            np.sin(height)[:, None] * np.sin(angle),
        ),
        axis=-1,
    ).reshape(-1, 3)
    top, bottom = len(rings), len(rings) + 1
    i = np.arange(pieces)
    following = (i + 1) % pieces
    upper = (np.arange(bands - 2) * pieces)[:, None]
    lower = upper + pieces
    quads = np.stack([upper + i, upper + following, lower + following, lower + i], axis=-1)
    last = (bands - 2) * pieces
    first_cap = np.stack([np.full(pieces, top), following, i], axis=1)
    last_cap = np.stack([np.full(pieces, bottom), last + i, last + following], axis=1)
    sizes = np.repeat([3, 4, 3], [pieces, quads.size // 4, pieces])
    poles = np.array([[0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
    return Surface(
        0.5 * np.concatenate([rings, poles]),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([first_cap.reshape(-1), quads.reshape(-1), last_cap.reshape(-1)]),
    )
