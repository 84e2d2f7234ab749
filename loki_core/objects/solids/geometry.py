"""Geometry Object: points of a mesh that bodies are made of, one for each island.

What holds them together are Constraints: Distance on the edges, of faces on those of the triangles
that they are cut into. A point has the mass of its share of the material at rest:

    Surface      rho t A / 3       of each triangle at it, with thickness t
    Wireframe    rho pi t^2 l / 8  of each edge at it, of a round section with diameter t
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.constraints.elements import Elements
from loki_core.data.accessors import Access, ChannelData, Declaration
from loki_core.data.body_particles import BodyParticles
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError
from loki_core.kernels.solids.rod_motion import begin_vertices
from loki_core.objects.basics.capabilities import Edges, Triangles
from loki_core.objects.basics.object import Scope
from loki_core.objects.solids.embedded_points import EmbeddedPoints, FacePoints, WeightedPoints
from loki_core.objects.solids.goals import goals
from loki_core.objects.solids.islands import Islands, PrimitiveMeans
from loki_core.objects.solids.layout import cumulative, members
from loki_core.objects.solids.solid import Solid
from loki_core.objects.solids.unknowns import POSITION, Block, Unknowns
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]
Float = NDArray[np.float64]
Int64 = NDArray[np.int64]


class GeometryObject(Behavior, kind="object", varies="vertex"):
    """Simulate a surface or a wireframe: its points, held together by Constraints."""

    input: str = parameter(
        "mesh", kind="stream", doc="Surface or Wireframe, as it is at the start."
    )
    thickness: float = parameter(
        5.0e-4,
        unit="m",
        minimum=1.0e-9,
        channel="thickness",
        doc="Of the material of a surface; diameter of the edges of a wireframe.",
    )
    density: float = parameter(
        500.0,
        unit="kg/m^3",
        minimum=1.0e-9,
        channel="density",
        doc="Mass of the material over its volume; that of woven cotton.",
    )
    radius: float | None = parameter(
        None,
        unit="m",
        minimum=1.0e-9,
        channel="radius",
        doc="Distance that contacts keep, and size of a point in a flow; none is half of the "
        "thickness.",
    )

    def bucket_size_hint(self, inputs: Mapping[str, Any]) -> float | None:
        """Some Buckets along the mesh."""
        stream = inputs.get(self.input)
        if not isinstance(stream, Mesh) or stream.point_count == 0:
            return None
        lower, upper = stream.bounds()
        return float(np.max(upper - lower)) / 16.0

    def empty_stream(self, parameter_name: str) -> Surface:
        """No faces."""
        return Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int64))

    def create(self, scope: Scope) -> list[Any]:
        """Make the Object."""
        return [Geometry(self, scope)]


class Geometry(Solid, Edges, Triangles):
    """The islands of one Geometry Object.

    Attributes:
        edges: Lengths of edges at rest.
        faces: What Constraints keep of triangles.
        edge_vertices: Rows of the ends of each.
        edge_offsets: First edge of each local island, and the end.
        triangles: Rows of the corners of those that faces are cut into; none of a wireframe.
        triangle_offsets: First triangle of each local island, and the end.
    """

    behavior: GeometryObject
    stream_types = ((Surface, Wireframe), "a Surface or a Wireframe is")
    section = ("thickness", "density", "radius")
    topology: Islands

    coupling_reads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Solid.coupling_reads,
        "point_volumes": ("particles.rest_size",),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        # Faces have frames; a point of an edge has none.
        self.has_frames = isinstance(self.scope.inputs[self.behavior.input], Surface)
        self.particles.add_channel("rest_size", np.float64)  # area, or length, of the share
        self.particles.add_channel("rest_position", np.float64, (3,))
        self.edges = BodyParticles(self.scope.domain, name=f"{self.path} edges")
        self.edges.add_channel("rest_length", np.float64)
        self.faces = BodyParticles(self.scope.domain, name=f"{self.path} triangles")

    @property
    def data(self) -> dict[str, ChannelData]:
        return {"particles": self.particles, "edges": self.edges, "triangles": self.faces}

    # -- start -----------------------------------------------------------------------------

    def layout_of(self, stream: Surface | Wireframe) -> Islands:
        return Islands.of(stream)

    def check_input(self, stream: Surface | Wireframe) -> None:
        """Refuse points without mass, and edges without a direction."""
        used = np.zeros(stream.point_count, bool)
        islands = self.topology
        used[islands.edges.reshape(-1)] = True
        if not np.all(used):
            raise InputError(
                f"{self.input_label}: point {int(np.argmin(used))} is part of no primitive, so it "
                f"has no mass ({int(np.sum(~used))} such points); remove it"
            )
        ends = stream.positions.astype(np.float64)[islands.edges]
        length = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
        short = length <= 1e-9 * max(float(length.max(initial=0.0)), 1e-12)
        if np.any(short):
            first, second = islands.edges[int(np.argmax(short))]
            raise InputError(
                f"{self.input_label}: points {first} and {second} are at one place "
                f"({int(short.sum())} such edges); merge them"
            )

    def append_parts(self, stream: Any, bodies: Int64) -> None:
        """Add edges and triangles."""
        islands = self.topology
        for holder, counts in (
            (self.edges, islands.edge_counts),
            (self.faces, islands.triangle_counts),
        ):
            body, ids = members(bodies, counts)
            holder.next_id = int(counts.sum())
            holder.append({"body": body}, ids=ids)

    def find_parts(self) -> None:
        """Rows of the ends of local edges, and in which order unknowns are numbered."""
        self._ids = self.particles.local("id").copy()
        row = np.full(self.topology.point_count, -1)
        row[self._ids] = np.arange(len(self._ids))
        self.edge_offsets = cumulative(self.topology.edge_counts[self.local_bodies])
        _, numbers = members(self.local_bodies, self.topology.edge_counts)
        self.edge_vertices = np.ascontiguousarray(row[self.topology.edges[numbers]])
        counts = self.topology.triangle_counts
        self.triangle_offsets = cumulative(counts[self.local_bodies])
        _, numbers = members(self.local_bodies, counts)
        self.triangles = np.ascontiguousarray(row[self.topology.triangles[numbers]])
        self._places = _narrow_order(self.edge_vertices, self.offsets)

    def has_parts(self) -> bool:
        edges = int(self.edge_offsets[-1]) == self.edges.count
        return edges and int(self.triangle_offsets[-1]) == self.faces.count

    def measure(self) -> None:
        """Lengths and shares of points at rest are those of the start."""
        position = self.particles.local("position")
        self.particles.local("rest_position")[:] = position
        ends = position[self.edge_vertices]
        length = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
        self.edges.local("rest_length")[:] = length
        size = self.particles.local("rest_size")
        size[:] = 0.0
        if not self.has_frames:
            for side in range(2):
                np.add.at(size, self.edge_vertices[:, side], 0.5 * length)
            return
        for corner in range(3):
            np.add.at(size, self.triangles[:, corner], self.triangle_areas() / 3.0)

    def triangle_areas(self) -> Float:
        """Of each triangle at rest [m^2]."""
        x = self.particles.local("rest_position")[self.triangles]
        area: Float = np.linalg.norm(np.cross(x[:, 1] - x[:, 0], x[:, 2] - x[:, 0]), axis=1)
        return 0.5 * area

    def triangle_volumes(self) -> Float:
        """Area at rest times the mean thickness of the corners, of each triangle [m^3]."""
        thickness: Float = self.own("thickness")[self.triangles].mean(axis=1)
        return self.triangle_areas() * thickness

    def triangle_reads(self) -> tuple[str, ...]:
        """Places at rest, and the thickness where it is painted."""
        return ("particles.rest_position", *self.painted("thickness"))

    def triangle_elements(self, *, by_place: bool = False) -> Elements:
        """All triangles; the first direction of the material is along the first edge."""
        triangles = self.triangles
        dofs = self.unknowns.joint(POSITION, triangles).reshape(len(triangles), 9).astype(np.int32)
        gradients = None
        if not by_place:
            corners = self.particles.local("rest_position")[triangles]
            gradients = share_gradients(sheet_places(corners))
        return Elements(self.triangle_offsets, dofs, triangles, self.faces, gradients=gradients)

    def weigh(self) -> None:
        """Radii and masses, by sizes at rest."""
        particles, thickness = self.particles, self.own("thickness")
        half = self.per_vertex_or(self.behavior, "radius", lambda: 0.5 * thickness, label=self.path)
        particles.local("radius")[:] = half
        particles.local("mass")[:] = self.own("density") * self.point_volumes()
        for name in ("radius", "mass"):
            particles.mark_written(name)

    def point_volumes(self) -> Float:
        """Material of each point [m^3]."""
        thickness, size = self.own("thickness"), self.particles.local("rest_size")
        if not self.has_frames:
            volume: Float = 0.25 * np.pi * thickness**2 * size
            return volume
        return thickness * size

    def reads_of(self, *methods: str) -> tuple[str, ...]:
        """The thickness may be painted."""
        reads = super().reads_of(*methods)
        return (*reads, *self.painted("thickness")) if "point_volumes" in methods else reads

    # -- parameters ------------------------------------------------------------------------

    def primitive_channels(self) -> Mapping[str, Array]:
        return PrimitiveMeans(self.topology, self._ids)

    def primitives_of_vertices(self) -> tuple[int, Int64]:
        """Means stand at the points themselves."""
        return self.particles.count, np.arange(self.particles.count)

    # -- places on it ----------------------------------------------------------------------

    def embed(self, primitives: Int64, corners: Int64, weights: Float) -> EmbeddedPoints:
        """Points on triangles, or on edges."""
        return (FacePoints if self.has_frames else WeightedPoints)(self, corners, weights)

    def attachable(self, ids: Int64) -> tuple[Int64, Int64, bool]:
        """Every triangle of a surface, every edge of a wireframe."""
        islands = self.topology
        return islands.triangles if self.has_frames else islands.edges, islands.body, False

    # -- the step --------------------------------------------------------------------------

    def joint_declaration(self, name: str) -> Declaration:
        """The order of a large matrix goes by places at rest."""
        touched = super().joint_declaration(name)
        if name == "number":
            touched = replace(touched, reads=(*touched.reads, "particles.rest_position"))
        return touched

    def number(self) -> None:
        """Number points so that edges join near numbers."""
        vertices = Block(POSITION, 3, self.offsets)
        self.unknowns = Unknowns.interleaved([vertices], places=self._places)
        order = np.argsort(self.unknowns.starts(POSITION))
        self._rest_places = self.particles.local("rest_position")[order]

    def vertices(self) -> tuple[NDArray[np.int32], Float]:
        """Points, where they were at the start."""
        return self.unknowns.widths(), self._rest_places

    @task(
        Stage.RESET_ACCUMULATORS,
        reads=("particles.pinned", "particles.goal", "particles.goal_before"),
        writes=(
            "particles.position",
            "particles.velocity",
            "particles.start_position",
            "particles.start_velocity",
        ),
    )
    def begin(self, access: Access, step: Step) -> None:
        """Keep the start of the step; prescribed points go to its end, others guess it."""
        animated = "goal" in self.particles.channels
        before, after, part = goals(self, self.part_of_frame(step))
        begin_vertices(
            access["particles.pinned"], int(animated), before, after, part, step.dt,
            access["particles.position"], access["particles.velocity"],
            access["particles.start_position"], access["particles.start_velocity"],
        )  # fmt: skip

    # -- what it looks like ----------------------------------------------------------------

    def output(self) -> Any:
        """The host's faces or edges, with velocities, radii and all channels of the input."""
        world = self.scope.domain.to_world(self.particles.local("position"))
        return self.shown(self.topology.shown(self._ids, world))


def sheet_places(corners: Float) -> Float:
    """Places of triangles' corners [n, 3, 3] in their own planes, [n, 3, 2].

    The first is at the origin, the second on the first axis.
    """
    one, two = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    length = np.linalg.norm(one, axis=1)
    along = np.einsum("ni,ni->n", one, two) / length
    across = np.linalg.norm(np.cross(one, two), axis=1) / length
    places = np.zeros((len(corners), 3, 2))
    places[:, 1, 0], places[:, 2, 0], places[:, 2, 1] = length, along, across
    return places


def share_gradients(places: Float) -> Float:
    """Gradients of the shares of triangles' corners, [n, 3, 2] 1/m, from their places [n, 3, 2]."""
    sides = places[:, 1:] - places[:, :1]  # rows: sides, which are w_1 = 1 and w_2 = 1
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.linalg.inv(sides) if len(sides) else np.zeros((0, 2, 2))
    others = inverse.transpose(0, 2, 1)
    return np.concatenate((-others.sum(axis=1, keepdims=True), others), axis=1)


def _narrow_order(edges: Int64, offsets: Int64) -> Int64:
    """Place of each point in its body, so that edges join near places (Cuthill-McKee)."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    count = int(offsets[-1])
    if not count:
        return np.empty(0, np.int64)
    ends = np.concatenate((edges, edges[:, ::-1]))
    graph = coo_matrix((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), (count, count))
    order = reverse_cuthill_mckee(graph.tocsr(), symmetric_mode=True).astype(np.int64)
    body = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = order[np.argsort(body[order], kind="stable")]
    places = np.empty(count, np.int64)
    places[order] = np.arange(count)
    return places - offsets[body]
