"""Curves Object: strands as discrete elastic rods (Bergou et al. 2008, 2010).

A strand has positions at its vertices and an angle at each edge, by which the material frame is
turned against a reference frame that moves along without twist. Unknowns are interleaved along the
strand, x_0, theta_0, x_1, theta_1, ..., so that its matrix is a narrow band. What holds a strand
together are Constraints: Stretching or Distance, and Bending, which has the twist in it.

    mass of a vertex              rho A (half of each edge at it)
    moment of inertia of an edge  rho A l (a^2 + b^2) / 4        cross-section: an ellipse of
    area                          A = pi a b                     half axes a = radius, b = aspect a

A prescribed edge (both ends are) cannot bend, so the joint at its end has only the half length of
the other edge: then a clamp is where the free part begins, to second order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, ChannelData, Declaration
from loki_core.data.body_particles import BodyParticles
from loki_core.data.channels import check_values
from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.errors import InputError
from loki_core.kernels.solids.rod_frames import move_frames, reference_twist, start_frames
from loki_core.kernels.solids.rod_lengths import keep_lengths
from loki_core.kernels.solids.rod_motion import (
    add_edges,
    begin_edges,
    begin_vertices,
    displace_rods,
    vertex_filaments,
)
from loki_core.objects.basics.capabilities import Joints
from loki_core.objects.basics.object import Scope
from loki_core.objects.solids.embedded_points import EdgePoints, EmbeddedPoints
from loki_core.objects.solids.goals import goals
from loki_core.objects.solids.host_geometry import curve_edges
from loki_core.objects.solids.layout import cumulative, members
from loki_core.objects.solids.rod_clamps import pin, start_directors, take_directors, turn_clamps
from loki_core.objects.solids.solid import Solid
from loki_core.objects.solids.strands import Strands
from loki_core.objects.solids.unknowns import POSITION, TWIST, Block, Unknowns
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]
Int64 = NDArray[np.int64]

ROOTS = ("clamped", "pinned", "free")
STRANDS_PER_BUCKET = 8
#: Length over that of first order, beyond which a step's second-order stretch is taken back.
LONGEST = 1.25
#: Parameters of the cross-section, which masses follow from.
SECTION = ("radius", "aspect", "density")


class CurvesObject(Behavior, kind="object"):
    """Simulate curves as elastic rods: hair, grass, cables."""

    input: str = parameter("curves", kind="stream", doc="Curves, as they are at the start.")
    root: str = parameter(
        "clamped",
        choices=ROOTS,
        doc="What holds the first point: with its direction, by itself, or not at all.",
    )
    rest: str = parameter(
        "input",
        choices=("input", "straight"),
        doc="Shape without stress: as the input starts, or straight.",
    )
    radius: float = parameter(
        5.0e-5,
        unit="m",
        minimum=1.0e-9,
        varies="vertex",
        channel="radius",
        doc="Half axis of the cross-section along the first material axis; that of a hair.",
    )
    aspect: float = parameter(
        1.0,
        minimum=1.0e-3,
        maximum=1.0e3,
        varies="vertex",
        channel="aspect",
        doc="The other half axis over the first.",
    )
    density: float = parameter(
        1300.0,
        unit="kg/m^3",
        minimum=1.0e-9,
        varies="vertex",
        channel="density",
        doc="Mass of the material over its volume; that of a hair.",
    )
    young_modulus: float = parameter(
        3.0e9,
        unit="Pa",
        minimum=0.0,
        varies="vertex",
        channel="young_modulus",
        doc="Stress over strain of the material; that of a hair.",
    )
    shear_modulus: float = parameter(
        1.1e9,
        unit="Pa",
        minimum=0.0,
        varies="vertex",
        channel="shear_modulus",
        doc="Shear stress over shear strain of the material; that of a hair.",
    )
    twist: float = parameter(
        0.0,
        unit="rad",
        varies="vertex",
        channel="twist",
        doc="Angle by which prescribed edges are turned since the start; full turns count.",
    )
    maximum_stretch: float = parameter(
        10.0,
        minimum=1.0,
        doc="Length of an edge over that at rest, beyond which a step has failed.",
    )

    def bucket_size_hint(self, inputs: Mapping[str, Any]) -> float | None:
        """Buckets of a few strands."""
        stream = inputs.get(self.input)
        if not isinstance(stream, Mesh) or stream.point_count == 0:
            return None
        lower, upper = stream.bounds()
        return float(np.max(upper - lower)) / 16.0

    def empty_stream(self, parameter_name: str) -> Curves:
        """No curves."""
        return Curves(np.empty((0, 3)), [0])

    def create(self, scope: Scope) -> list[Any]:
        """Make the Object."""
        return [Rods(self, scope)]


class Rods(Solid, Joints):
    """The strands of one Curves Object.

    Attributes:
        edges: Angles, frames and lengths of edges.
        joints: Rest strains and lengths of the places where two edges meet.
        edge_offsets, joint_offsets: First row of each local strand.
        closed: Which local strands are, uint8.
    """

    behavior: CurvesObject
    coupling_reads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Solid.coupling_reads,
        "filaments": ("edges.tangent", "edges.rest_length"),
        "point_volumes": ("particles.radius", "edges.tangent", "edges.rest_length"),
    }

    edge_offsets: Int64
    joint_offsets: Int64
    closed: NDArray[np.uint8]
    topology: Strands
    stream_types = ((Curves,), "curves are")
    section = ("radius", "aspect", "density")
    has_frames = True

    def __post_init__(self) -> None:
        super().__post_init__()
        domain = self.scope.domain
        self.edges = BodyParticles(domain, name=f"{self.path} edges")
        for name, shape in (
            ("angle", ()),
            ("angular_velocity", ()),
            ("start_angular_velocity", ()),
            ("start_angle", ()),
            ("base_angle", ()),
            ("inertia", ()),
            ("rest_length", ()),
            ("length", ()),
            ("tangent", (3,)),
            ("reference", (3,)),
        ):
            self.edges.add_channel(name, np.float64, shape)
        self.edges.add_channel("pinned", np.uint8)
        self.joints = BodyParticles(domain, name=f"{self.path} joints")
        for name, shape in (("rest_strain", (3,)), ("length", ()), ("reference_twist", ())):
            self.joints.add_channel(name, np.float64, shape)
        self.joints.add_channel("rest_stiffening", np.float64, default=1.0)
        self._volumes: NDArray[np.float64] = np.zeros(0)
        self._volumes_of: Any = None  # what they were found for
        self._overshot = False

    @property
    def data(self) -> dict[str, ChannelData]:
        return {"particles": self.particles, "edges": self.edges, "joints": self.joints}

    # -- start -----------------------------------------------------------------------------

    def layout_of(self, stream: Curves) -> Strands:
        return Strands.of(stream)

    def check_input(self, stream: Curves) -> None:
        self._refuse_short(stream, self.input_label)
        self._refuse_normals(stream)

    def _refuse_short(self, stream: Curves, label: str) -> None:
        """Refuse what has no length: no direction can be given to it."""
        edges = stream.edges()
        between = np.diff(stream.positions[edges].astype(np.float64), axis=1)[:, 0]
        lengths = np.linalg.norm(between, axis=1)
        scale = max(float(lengths.max(initial=0.0)), 1e-12)
        short = lengths <= 1e-9 * scale
        if np.any(short):
            first, second = edges[int(np.argmax(short))]
            raise InputError(
                f"{label}: points {first} and {second} of curve "
                f"{int(stream.curve_of_point()[first])} are at one place "
                f"({int(short.sum())} such pairs); remove one of them"
            )

    def append_parts(self, stream: Curves, bodies: Int64) -> None:
        """Add edges and joints."""
        edge_counts, joint_counts = self._counts(np.arange(self.topology.body_count))
        for system, counts in ((self.edges, edge_counts), (self.joints, joint_counts)):
            body, ids = members(bodies, counts)
            system.next_id = int(counts.sum())
            system.append({"body": body}, ids=ids)

    def _counts(self, strands: Int64) -> tuple[Int64, Int64]:
        """Edges and joints of each strand."""
        sizes, closed = self.topology.sizes[strands], self.topology.closes[strands]
        return sizes - 1 + closed, np.maximum(sizes - 2 + 2 * closed, 0)

    def _refuse_normals(self, stream: Curves) -> None:
        """Refuse what gives strands no direction."""
        normal = stream.channels["primitive"].get("normal")
        if normal is not None:
            label = f'{self.input_label}: primitive channel "normal"'
            check_values(normal, (3,), label=label)

    def find_parts(self) -> None:
        """Offsets of the local strands, and which vertices their edges and joints have."""
        bodies = self.local_bodies
        sizes, closed = self.topology.sizes[bodies], self.topology.closes[bodies]
        self.closed = closed.astype(np.uint8)
        self.edge_offsets, self.joint_offsets = map(cumulative, self._counts(bodies))
        # Vertices of edges and of joints, as rows.
        edge_strand = np.repeat(np.arange(len(bodies)), np.diff(self.edge_offsets))
        local = np.arange(self.edge_offsets[-1]) - self.edge_offsets[edge_strand]
        first, size = self.offsets[edge_strand], sizes[edge_strand]
        self.edge_vertices = np.stack((first + local, first + (local + 1) % size), axis=1)
        joint_strand = np.repeat(np.arange(len(bodies)), np.diff(self.joint_offsets))
        local = np.arange(self.joint_offsets[-1]) - self.joint_offsets[joint_strand]
        shift = 1 - closed[joint_strand]  # an open strand's first joint is at its second vertex
        self.joint_vertex = self.offsets[joint_strand] + local + shift
        edge_first = self.edge_offsets[joint_strand]
        count = np.diff(self.edge_offsets)[joint_strand]
        after = local + shift
        self.joint_edges = np.stack((edge_first + (after - 1) % count, edge_first + after), axis=1)

    def has_parts(self) -> bool:
        return int(self.edge_offsets[-1]) == self.edges.count

    # -- places on it ----------------------------------------------------------------------

    def embed(self, primitives: Int64, corners: Int64, weights: Array) -> EmbeddedPoints:
        """Points on edges."""
        return EdgePoints(self, primitives, corners, weights)

    def attachable(self, ids: Int64) -> tuple[Int64, Int64, bool]:
        """Every edge."""
        strands = self.topology
        bodies = np.repeat(np.arange(strands.primitive_count), strands.sizes)
        return curve_edges(strands.offsets, strands.closed), bodies, False

    # -- masses and rest shape -------------------------------------------------------------

    def primitive_channels(self) -> Mapping[str, Array]:
        """Strands may override, too."""
        bodies = self.local_bodies
        return {name: array[bodies] for name, array in self.topology.channels.items()}

    def primitives_of_vertices(self) -> tuple[int, Int64]:
        """The strand of each vertex."""
        strands = len(self.local_bodies)
        return strands, np.repeat(np.arange(strands), np.diff(self.offsets))

    def half_axes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Half axes of the cross-section at every vertex [m]."""
        radius = self.particles.local("radius")
        return radius, radius * self.own("aspect")

    def on_edges(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Means of a vertex quantity over the two ends of every edge."""
        means: NDArray[np.float64] = 0.5 * values[self.edge_vertices].sum(axis=1)
        return means

    def measure(self) -> None:
        """Lengths at rest are those of the start."""
        ends = self.particles.local("position")[self.edge_vertices]
        self.edges.local("rest_length")[:] = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)

    def weigh(self) -> None:
        """Radii, masses and moments of inertia, by the lengths at rest."""
        particles, edges = self.particles, self.edges
        particles.local("radius")[:] = self.own("radius")
        length = edges.local("rest_length")
        first, second = self.half_axes()
        area = self.on_edges(np.pi * first * second)
        line = self.on_edges(self.own("density")) * area
        mass = np.zeros(particles.count)
        for side in range(2):
            np.add.at(mass, self.edge_vertices[:, side], 0.5 * line * length)
        particles.local("mass")[:] = mass
        square = self.on_edges(first**2 + second**2)
        edges.local("inertia")[:] = 0.25 * line * length * square
        for system, names in ((particles, ("radius", "mass")), (edges, ("inertia",))):
            for name in names:
                system.mark_written(name)

    def find_rest_shape(self) -> None:
        """Frames of the start, and the strains that are without stress."""
        from loki_core.kernels.solids.rod_strains import bending_strains_only

        edges, joints = self.edges, self.joints
        start_frames(
            self.particles.local("position"), self.offsets, self.edge_offsets, self.closed,
            edges.local("tangent"), edges.local("length"), edges.local("reference"),
        )  # fmt: skip
        self._turn_to_normals()
        self._refresh_reference_twist()
        if self.behavior.rest == "input":
            bending_strains_only(
                edges.local("tangent"), edges.local("reference"), edges.local("angle"),
                joints.local("reference_twist"), self.edge_offsets, self.joint_offsets,
                self.closed, joints.local("rest_strain"),
            )  # fmt: skip

    def _turn_to_normals(self) -> None:
        """Let the first material axis of every strand's first edge point along its `normal`."""
        given = self.topology.channels.get("normal")
        if given is None:
            return
        edges = self.edges
        normal = given[self.local_bodies].astype(np.float64)
        roots = self.edge_offsets[:-1]
        tangent, reference = edges.local("tangent")[roots], edges.local("reference")[roots]
        second = np.cross(tangent, reference)
        angle = np.arctan2(
            np.einsum("na,na->n", normal, second), np.einsum("na,na->n", normal, reference)
        )
        for name in ("angle", "base_angle"):
            edges.local(name)[:] = np.repeat(angle, np.diff(self.edge_offsets))

    def _refresh_reference_twist(self) -> None:
        reference_twist(
            self.edges.local("tangent"), self.edges.local("reference"), self.edge_offsets,
            self.joint_offsets, self.closed, self.joints.local("reference_twist"),
        )  # fmt: skip

    def pin(self, stream: Curves) -> None:
        pin(self, stream)

    def start_goals(self) -> None:
        super().start_goals()
        start_directors(self)

    def take_goals(self, stream: Curves) -> None:
        super().take_goals(stream)
        take_directors(self)

    def were_moved(self) -> None:
        """Frames follow."""
        self._move_frames()

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add what keeping lengths needs, where no line search does."""
        stage, declaration = super().declare(name, stage, declaration)
        if name == "begin" and self.scope.settings.newton_iterations == 1:
            more = ("edges.rest_length", "particles.mass")
            declaration = replace(declaration, reads=(*declaration.reads, *more))
        if name == "begin":
            turned = ("edges.director_point",) if self._has_samples else ()
            more = (*self.painted("twist"), *turned)
            declaration = replace(declaration, reads=(*declaration.reads, *more))
        return stage, declaration

    def reads_of(self, *methods: str) -> tuple[str, ...]:
        """The cross-section may be painted."""
        reads = super().reads_of(*methods)
        return (*reads, *self.painted("aspect")) if "point_volumes" in methods else reads

    # -- unknowns --------------------------------------------------------------------------

    def joint_declaration(self, name: str) -> Declaration:
        """Add the edges' angles, and the frames that go along."""
        touched = super().joint_declaration(name)
        own = {"reset": "pinned", "fill_inertia": "inertia", "way_to_start": "start_angle"}
        if name in own:
            return replace(touched, reads=(*touched.reads, f"edges.{own[name]}"))
        if name != "move":
            return touched
        edges = ("angle", "angular_velocity", "tangent", "length", "reference")
        writes = (*(f"edges.{one}" for one in edges), "joints.reference_twist")
        more: tuple[str, ...] = ("edges.rest_length", "particles.mass", "particles.pinned")
        if touched.reads:  # a line search weighs what moves
            more = (*more, "edges.inertia", "edges.start_angular_velocity")
        return Declaration((*touched.reads, *more), (*touched.writes, *writes))

    def number(self) -> None:
        """Interleave positions and angles along each strand."""
        vertices, edges = Block(POSITION, 3, self.offsets), Block(TWIST, 1, self.edge_offsets)
        self.unknowns = Unknowns.interleaved([vertices, edges])

    def fill_fixed(self, fixed: NDArray[np.uint8]) -> None:
        super().fill_fixed(fixed)
        self.unknowns.scatter(fixed, TWIST, 1, self.edges.local("pinned") != 0)

    def fill_inertia(self, inertia: NDArray[np.float64]) -> None:
        super().fill_inertia(inertia)
        self.unknowns.scatter(inertia, TWIST, self.edges.local("inertia")[:, None])

    def fill_sizes(self, sizes: NDArray[np.float64]) -> None:
        super().fill_sizes(sizes)
        # Frames have angles of a turn or so beside that of the material.
        turned = np.abs(self.edges.local("angle")) + np.pi
        self.unknowns.scatter(sizes, TWIST, turned[:, None])

    def largest_turn(self, change: NDArray[np.float64]) -> float:
        """That of edges about their ends and about themselves."""
        moved = self.unknowns.gather(change, POSITION)
        between = np.linalg.norm(np.diff(moved[self.edge_vertices], axis=1)[:, 0], axis=1)
        turned = between / self.edges.local("rest_length")
        spun = np.abs(self.unknowns.gather(change, TWIST))
        return float(max(turned.max(initial=0.0), spun.max(initial=0.0)))

    def inertial_rounding(self) -> float:
        edges = self.edges
        after, before = edges.local("angular_velocity"), edges.local("start_angular_velocity")
        moved = np.abs(after - before) * (np.abs(after) + np.abs(before))
        return super().inertial_rounding() + float(np.sum(edges.local("inertia") * moved))

    def iterate(self) -> list[tuple[Array, Array]]:
        """Frames are kept too: what carried them there cannot always carry them back."""
        names = ("angle", "angular_velocity", "tangent", "length", "reference")
        kept = [(self.edges.local(name), self.edges.local(name).copy()) for name in names]
        twist = self.joints.local("reference_twist")
        return [*super().iterate(), *kept, (twist, twist.copy())]

    def displace(self, change: NDArray[np.float64], fraction: float, dt: float) -> None:
        """Move vertices and angles, and carry the frames along."""
        self._move_unknowns(change, fraction, dt)
        self._move_frames()

    def take_step(self, change: NDArray[np.float64], dt: float) -> None:
        """Move by a whole correction without its second-order stretch."""
        self._move_unknowns(change, 1.0, dt)
        self._keep_lengths(dt)  # it knows the frames from before
        self._move_frames()

    def _move_unknowns(self, change: NDArray[np.float64], fraction: float, dt: float) -> None:
        particles, edges = self.particles, self.edges
        displace_rods(
            change, fraction, fraction / dt, self.unknowns.starts(POSITION),
            self.unknowns.starts(TWIST), particles.local("position"), particles.local("velocity"),
            edges.local("angle"), edges.local("angular_velocity"),
        )  # fmt: skip
        for system, names in (
            (particles, ("position", "velocity")),
            (edges, ("angle", "angular_velocity")),
        ):
            for name in names:
                system.mark_written(name)

    def way_to_start(self) -> NDArray[np.float64]:
        change, edges = super().way_to_start(), self.edges
        turned = edges.local("start_angle") - edges.local("angle")
        self.unknowns.scatter(change, TWIST, turned[:, None])
        return change

    def displace_turning(
        self, change: NDArray[np.float64], fraction: float, dt: float
    ) -> NDArray[np.float64]:
        """Move as `displace` does, but turn edges instead of stretching them."""
        before = self.particles.local("position").copy()
        self._move_unknowns(change, fraction, dt)
        self._rebuild(1.0, dt)
        self._move_frames()
        moved: NDArray[np.float64] = self.particles.local("position") - before
        return moved

    def _keep_lengths(self, dt: float) -> None:
        """Take back what a linear step stretched by turning; a line search has its own way."""
        if self.scope.settings.newton_iterations == 1:
            self._overshot = self._rebuild(LONGEST, dt)

    def _rebuild(self, longest: float, dt: float) -> bool:
        """Give strands that are longer than that the lengths of first order; whether any was."""
        particles, edges = self.particles, self.edges
        overshot = np.zeros(len(self.offsets) - 1, np.uint8)
        keep_lengths(
            self.offsets, self.edge_offsets, self.closed, edges.local("tangent"),
            edges.local("length"), edges.local("rest_length"), particles.local("mass"),
            particles.local("pinned"), longest, 1.0 / dt, np.empty((edges.count, 4)),
            particles.local("position"), particles.local("velocity"), overshot,
        )  # fmt: skip
        return bool(overshot.any())

    def overshoots(self) -> bool:
        return self._overshot

    def _move_frames(self) -> None:
        edges = self.edges
        move_frames(
            self.particles.local("position"), self.offsets, self.edge_offsets, self.closed,
            edges.local("tangent"), edges.local("length"), edges.local("reference"),
        )  # fmt: skip
        self._refresh_reference_twist()

    def inertial_energy(self, change: NDArray[np.float64], dt: float) -> NDArray[np.float64]:
        edges = self.edges
        spin = edges.local("angular_velocity") - edges.local("start_angular_velocity")
        energy = 0.5 * edges.local("inertia") * spin**2
        return np.concatenate((super().inertial_energy(change, dt), energy))

    # -- the step --------------------------------------------------------------------------

    @task(
        Stage.RESET_ACCUMULATORS,
        reads=(
            "particles.pinned",
            "particles.goal",  # and all about goals: where the input moves
            "particles.goal_before",
            "edges.pinned",
            "edges.director",
            "edges.director_before",
            "edges.director_angle",
        ),
        writes=(
            "particles.position",
            "particles.velocity",
            "particles.start_position",
            "particles.start_velocity",
            "edges.base_angle",
            "edges.angle",
            "edges.angular_velocity",
            "edges.start_angle",
            "edges.start_angular_velocity",
            "edges.tangent",
            "edges.length",
            "edges.reference",
            "joints.reference_twist",
        ),
    )
    def begin(self, access: Access, step: Step) -> None:
        """Keep the start of the step; prescribed points go to its end, others guess it."""
        particles = self.particles
        animated = "goal" in particles.channels
        before, after, part = goals(self, self.part_of_frame(step))
        begin_vertices(
            access["particles.pinned"], int(animated), before, after, part, step.dt,
            access["particles.position"], access["particles.velocity"],
            access["particles.start_position"], access["particles.start_velocity"],
        )  # fmt: skip
        self._keep_lengths(step.dt)
        self._move_frames()
        turn_clamps(self, self.part_of_frame(step))
        goal = self._twist_goal(step.time + step.dt)
        begin_edges(
            access["edges.pinned"], goal, step.dt,
            access["edges.angle"], access["edges.angular_velocity"], access["edges.start_angle"],
            access["edges.start_angular_velocity"],
        )  # fmt: skip

    def _twist_goal(self, time: float) -> NDArray[np.float64]:
        """Angle of every edge at the time of the step's end, if it is prescribed."""
        values, step = self.resolve(
            self.behavior, "twist", label=self.path, dtype=np.float64, time=time
        )
        turned = values[self.edge_vertices[:, 0]] if step else values[0]
        goal: NDArray[np.float64] = self.edges.local("base_angle") + turned
        return goal

    @task(
        Stage.ASSEMBLE_SOLIDS,
        reads=(
            "edges.inertia",
            "edges.angular_velocity",
            "edges.start_angular_velocity",
            "solids.fixed",
        ),
        accumulates=("solids.force", "solids.matrix"),
    )
    def assemble_edges(self, access: Access, step: Step) -> None:
        """Bring the edges' moments of inertia into the joint system."""
        system = self.system
        add_edges(
            self.unknowns.starts(TWIST), self.unknowns.first, access["edges.inertia"],
            access["edges.angular_velocity"], access["edges.start_angular_velocity"], step.dt,
            system.fixed, system.row, system.rhs, system.values,
        )  # fmt: skip

    # -- what others ask -------------------------------------------------------------------

    def point_volumes(self) -> NDArray[np.float64]:
        """Pieces of the strands."""
        known = self.parameters_version(self.behavior)
        if known != self._volumes_of:
            first, second = self.half_axes()
            self._volumes = np.pi * first * second * self.filaments()[1]
            self._volumes_of = known
        return self._volumes

    def filaments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean direction of the edges at every vertex, and half of their lengths."""
        tangent, length = np.zeros((self.particles.count, 3)), np.zeros(self.particles.count)
        vertex_filaments(
            self.edges.local("tangent"), self.edges.local("rest_length"), self.offsets,
            self.edge_offsets, tangent, length,
        )  # fmt: skip
        return tangent, length

    def check_state(self) -> str | None:
        """The same as for all solids, and edges that are far too long."""
        return super().check_state() or self._find_overlong()

    def _find_overlong(self) -> str | None:
        holds = (one for one in self.system.constraints if one.target is self)
        if not any(one.place == "edges" for one in holds):
            return None  # nothing keeps their lengths
        length, rest = self.edges.local("length"), self.edges.local("rest_length")
        most = float(self.settings.maximum_stretch)
        # A prescribed edge is as long as the input makes it.
        free = ~np.all(self.particles.local("pinned")[self.edge_vertices] != 0, axis=1)
        overlong = free & ~(length <= most * rest)
        if not overlong.any():
            return None
        edge = int(np.argmax(overlong))
        first, second = self.particles.local("id")[self.edge_vertices[edge]]
        return (
            f"the edge between points {first} and {second} of strand "
            f"{int(self.edges.local('body')[edge])} is {length[edge]:.3g} m long and "
            f"{rest[edge]:.3g} m at rest ({int(overlong.sum())} such edges), more than "
            f"maximum_stretch = {most:g} times; use more substeps, a stiffer StretchingConstraint "
            "or DistanceConstraint, or allow more"
        )

    def output(self) -> Curves:
        """Strands in world space with velocities, radii and the user's channels."""
        world = self.scope.domain.to_world(self.particles.local("position"))
        curves: Curves = self.shown(Curves(world, self.offsets, self.closed.astype(bool)))
        for name, array in self.primitive_channels().items():
            curves.set_channel("primitive", name, array)
        curves.set_channel("primitive", "strand", self.local_bodies)
        return curves
