"""Curves from mesh: hair, fur or grass that grows on a surface and goes along with it.

Places, lengths and shapes are chosen on the mesh of the start frame, whose areas and paint they
depend on, and are kept in the axes of the triangle that each strand stands in. At every other frame
the strands stand in the same triangles: where the mesh turns or deforms, they are carried along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from loki_core.behavior import parameter
from loki_core.data.channels import check_values
from loki_core.data.curves import Curves
from loki_core.data.surface import Surface
from loki_core.errors import GraphError, InputError, SetupError
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket
from loki_graph.strand_growth import (
    Comb,
    Floats,
    Roots,
    Skin,
    even_roots,
    root_normals,
    triangle_frames,
    unit,
)

if TYPE_CHECKING:
    from loki_graph.evaluate import Context

MAX_STRANDS = 1 << 22
SHORTEST = 1.0e-3  # of the full length; where paint leaves less, nothing grows
#: Channels of the mesh that say something else of a strand, or that were used up.
NOT_CARRIED = ("density", "length_scale", "radius", "normal", "velocity", "id")


class CurvesFromMesh(Node):
    """Grow curves from a surface: hair, fur, grass.

    Point channels of the mesh thin them out (`density`, 0 to 1) and shorten them (`length_scale`).
    Curves have a `radius`, a number `id`, the surface's `root_normal`, and as `normal` the axis
    that they bend about; all other point and vertex channels of the mesh become theirs, as they
    are at the roots. Roots are chosen at the start frame and stay where they are on the mesh,
    whose faces may not change.
    """

    pulls: ClassVar[bool] = True
    input_sockets: ClassVar[tuple[Socket, ...]] = (Socket("in", "surface"),)
    output_sockets: ClassVar[tuple[Socket, ...]] = (Socket("out", "curves"),)

    count: int = parameter(
        1000, minimum=0, maximum=MAX_STRANDS, doc="Strands where no density is painted."
    )
    vertices: int = parameter(16, minimum=2, maximum=4096, doc="Points of a strand.")
    length: float = parameter(0.1, unit="m", minimum=1.0e-6, doc="Of the longest strands.")
    length_variation: float = parameter(
        0.2, minimum=0.0, maximum=0.95, doc="Part by which lengths are shortened at random."
    )
    root_radius: float = parameter(4.0e-5, unit="m", minimum=1.0e-9, doc="Radius at the root.")
    tip_radius: float = parameter(1.5e-5, unit="m", minimum=1.0e-9, doc="Radius at the tip.")
    direction: tuple[float, float, float] = parameter(
        (0.0, -1.0, 0.0), is_spatial=True, doc="Where strands lean and bend to."
    )
    lean: float = parameter(
        0.0, minimum=0.0, maximum=1.0, doc="How they begin: 0 along the normal, 1 the direction."
    )
    bend: float = parameter(
        0.0, minimum=0.0, maximum=1.0, doc="How far they have turned to the direction at the tip."
    )
    clearance: float = parameter(
        0.0, unit="m", minimum=0.0, doc="Distance kept from the surface; 0 lets them go through it."
    )
    spread: float = parameter(
        0.1, minimum=0.0, maximum=10.0, doc="Random part of how they begin, over the normal."
    )
    clumping: float = parameter(
        0.0, minimum=0.0, maximum=1.0, doc="How far tips are drawn to the middle of their clump."
    )
    clump_size: int = parameter(20, minimum=1, doc="Strands of a clump.")
    curl_radius: float = parameter(0.0, unit="m", minimum=0.0, doc="Of the curl at the tip.")
    curl_length: float = parameter(
        0.07, unit="m", minimum=1.0e-6, doc="Length of a strand for one turn of its curl."
    )
    seed: int = parameter(0, minimum=0, doc="Another seed gives other places and shapes.")

    def validate(self, place: str) -> None:
        """Refuse a direction without length."""
        if not isinstance(self.direction, tuple) or any(self.direction):
            return
        raise SetupError(f"{place}.direction = (0, 0, 0) leads nowhere; give it a length")

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the curves where the mesh of the frame carries them."""
        if not context.is_connected("in"):
            raise GraphError(f"{context.place}.in is not connected; it needs surface")
        start = context.evaluator.graph.start_frame
        recipe = (context.recipe(), self)
        if context.memory.get("recipe") != recipe:
            context.memory["groom"] = self.groom(context.pull("in", start))
            context.memory["recipe"] = recipe
        groom: Groom = context.memory["groom"]
        return {"out": groom.on(context.pull("in", context.whole_frame))}

    def groom(self, surface: Surface) -> Groom:
        """Return the strands that grow on a surface, in the axes of its triangles."""
        roots = even_roots(surface, self.count, seed=self.seed)
        random = np.random.default_rng((self.seed, 1)).random((self.count, 6))
        lengths = self.length * (1.0 - self.length_variation * random[:, 0])
        lengths *= _painted(surface, "length_scale", roots)
        grows = random[:, 1] < _painted(surface, "density", roots)
        grows &= lengths > SHORTEST * self.length
        roots, random, lengths = roots.chosen(grows), random[grows], lengths[grows]
        normals = root_normals(surface, roots)
        places = roots.mixed(surface.triangles(), surface.positions)
        strands, axis = self._comb(surface).grow(
            places,
            unit(normals + self.spread * (2.0 * random[:, 3:] - 1.0), otherwise=normals),
            lengths,
            2.0 * np.pi * random[:, 2],
            vertices=self.vertices,
        )
        frames = triangle_frames(surface, roots)
        return Groom(
            roots,
            ids=np.flatnonzero(grows),
            strands=np.einsum("nvi,nij->nvj", strands - places[:, None], frames),
            axis=np.einsum("ni,nij->nj", axis, frames),
            normals=np.einsum("ni,nij->nj", normals, frames),
            radius=np.linspace(self.root_radius, self.tip_radius, self.vertices),
            surface=surface,
        )

    def _comb(self, surface: Surface) -> Comb:
        return Comb(
            direction=self.direction,
            lean=self.lean,
            bend=self.bend,
            curl_radius=self.curl_radius,
            curl_length=self.curl_length,
            clumping=self.clumping,
            clump_size=self.clump_size,
            skin=Skin(surface, self.clearance) if self.clearance and self.count else None,
        )


def _painted(surface: Surface, name: str, roots: Roots) -> Any:
    """Return a painted factor at the roots, or one where nothing is painted."""
    values = surface.channels["point"].get(name)
    if values is None:
        return 1.0
    check_values(values, (), label=f'the mesh\'s point channel "{name}"')
    return roots.mixed(surface.triangles(), values)


@dataclass(frozen=True, eq=False)
class Groom:
    """Strands on a surface: what is kept of them is in the axes of their triangles.

    Attributes:
        roots: Where they stand.
        ids: A number for each that does not depend on paint, shape [n].
        strands: Points from the root on [m], shape [n, vertices, 3].
        axis: The axis that each bends about, shape [n, 3].
        normals: Of the surface at the roots, shape [n, 3].
        radius: Along a strand [m], shape [vertices].
        surface: What they grew on.
    """

    roots: Roots
    ids: npt.NDArray[np.int64]
    strands: Floats
    axis: Floats
    normals: Floats
    radius: Floats
    surface: Surface

    def on(self, surface: Surface) -> Curves:
        """Return the strands on the same surface at another time.

        Raises:
            InputError: It has other faces.
        """
        self._refuse_other_faces(surface)
        frames = triangle_frames(surface, self.roots)
        places = self.roots.mixed(surface.triangles(), surface.positions)
        strands = np.einsum("nvj,nij->nvi", self.strands, frames)
        curves = Curves.from_strands(places[:, None] + strands)
        curves.set_channel("point", "radius", np.tile(self.radius, len(strands)))
        for location, corners in (
            ("point", surface.triangles()),
            ("vertex", surface.triangle_corners()),
        ):
            self._carry(surface, location, corners, curves)
        curves.set_channel("primitive", "id", self.ids)
        curves.set_channel("primitive", "normal", np.einsum("nj,nij->ni", self.axis, frames))
        curves.set_channel(
            "primitive",
            "root_normal",
            np.einsum("nj,nij->ni", self.normals, frames),
            transform="normal",
        )
        return curves

    def _carry(
        self, surface: Surface, location: str, corners: npt.NDArray[np.int32], curves: Curves
    ) -> None:
        """Give strands what the mesh has at their roots; whole numbers are the nearest corner's."""
        channels = surface.channels[location]
        nearest = corners[self.roots.triangle, np.argmax(self.roots.weights, axis=1)]
        for name, values in channels.items():
            if name in NOT_CARRIED:
                continue
            given = values[nearest]
            if values.dtype.kind == "f":
                given = self.roots.mixed(corners, values).astype(values.dtype)
            curves.set_channel("primitive", name, given, transform=channels.transform_of(name))

    def _refuse_other_faces(self, surface: Surface) -> None:
        known = self.surface
        if surface.point_count != known.point_count or not (
            np.array_equal(surface.face_offsets, known.face_offsets)
            and np.array_equal(surface.face_vertices, known.face_vertices)
        ):
            raise InputError(
                f"the mesh has {surface.primitive_count} faces of {surface.point_count} points, "
                f"and other {known.primitive_count} of {known.point_count} at the start frame; "
                "strands stay in their triangles, so these may not change"
            )
