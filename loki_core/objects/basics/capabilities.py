"""Capabilities: what an Action needs of the Object that it acts on, one Protocol for each.

    class BuoyancyAction(Action[Gas], behavior=BuoyancyForce): ...

acts on every Object that is a gas, whatever its class, and knows what its `target` has. An Object
says what it can do by deriving from the Protocol; to have the names is not enough: a liquid has
particles, but it is its faces that Forces move. So no Action names a kind of Object, and a new
Object is met by all Actions that it suits.

    Capability                 every Object
      Points                   particles with channels
        MovedPoints            that Forces move
          SolvedPoints             that the joint system of solids may solve for
            Bodies             in bodies that stay whole
              Edges            with edges between them
                Sections       that are beams
                  Joints       and joints between these: strands
            LooseParticles     each by itself: grains, a liquid, droplets
      Immersed                 points that a fluid flows around
      Faces                    velocity on the faces of a staggered grid
        Gas                    that fills its space and carries materials
        Liquid                 that ends at a surface, and has particles: Points, Meeting, too
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    from abc import ABCMeta as _ProtocolMeta

    from loki_core.behavior import Behavior
    from loki_core.constraints.elements import Elements
    from loki_core.data.accessors import Declaration
    from loki_core.data.body_particles import BodyParticles
    from loki_core.data.discrete_volume import DiscreteVolume
    from loki_core.data.particle_system import ParticleSystem
    from loki_core.objects.basics.object import Scope
    from loki_core.objects.gas.surroundings import Surroundings
    from loki_core.objects.gas.voxel_parameters import VoxelParameter
    from loki_core.objects.solids.embedded_points import EmbeddedPoints
    from loki_core.objects.solids.solid_system import SolidSystem
    from loki_core.objects.solids.unknowns import Unknowns
    from loki_core.sparse_parameters import Resolved
else:
    _ProtocolMeta = type(Protocol)

Array = NDArray[Any]
Float = NDArray[np.float64]
Int64 = NDArray[np.int64]


class _Declared(_ProtocolMeta):
    """Lets `isinstance` ask for what is declared, not for names that happen to be there."""

    def __instancecheck__(cls, instance: object) -> bool:
        return cls in type(instance).__mro__


@runtime_checkable
class Capability(Protocol, metaclass=_Declared):
    """What every Object has."""

    behavior: Behavior
    settings: Any
    scope: Scope
    path: str
    warning: str
    time: float
    details: dict[str, Array]

    @property
    def data(self) -> dict[str, Any]:
        """Particle Systems and Discrete Volumes by the names that Tasks use."""

    @property
    def task_data(self) -> dict[str, Any]:
        """All that its Tasks may name."""

    def painted_reads(self, behavior: Behavior) -> tuple[str, ...]:
        """Channels that override a parameter of the Behavior, as a Task declares them."""

    def of_object(self, behavior: Behavior, name: str, *, label: str) -> Float:
        """A parameter of the whole Object, whatever vertices say."""

    def resolve(self, behavior: Behavior, name: str, *, label: str, dtype: DTypeLike) -> Resolved:
        """A parameter as kernels read it, for every vertex."""

    def vertex_channels(self) -> Mapping[str, Array]:
        """Channels that may override parameters per vertex: the user's own."""

    def is_painted(self, behavior: Behavior, name: str) -> bool:
        """Whether the input replaces a parameter in any place, on every rank alike."""

    def overriding_channels(self, behavior: Behavior) -> tuple[str, ...]:
        """Vertex channels that override a parameter of the Behavior."""

    def count(self) -> int:
        """Elements on this rank."""


# -- points ---------------------------------------------------------------------------------------


@runtime_checkable
class Points(Capability, Protocol):
    """Particles, whose channels Expressions read and write: `data["particles"]`.

    Attributes:
        particles: They.
        stages_to_move: User-facing Stages at which others may move them.
    """

    particles: ParticleSystem
    stages_to_move: tuple[str, ...]

    def offer_channel(self, name: str) -> None:
        """Have a channel of this name, if it is one that is there only where somebody asks."""

    def were_moved(self) -> None:
        """Take note that others have changed positions."""


@runtime_checkable
class MovedPoints(Points, Protocol):
    """Points with a mass, a velocity and a force; Forces add to "force" and "jacobian"."""

    def need_jacobian(self) -> None:
        """Make room for derivatives of forces."""


@runtime_checkable
class SolvedPoints(MovedPoints, Protocol):
    """Points that become unknowns of the joint system of solids where a Constraint asks.

    Attributes:
        system: The joint system, once joined.
        is_joined: Whether it solves for them.
        fluid: The Operator that makes a liquid of them, if any.
        contacts: What lets particles meet Colliders, if anything does.
        body_colliders: Colliders that they meet; these enter themselves.
        unknowns: Their numbers, body by body.
        parameter_version: Changes when rest lengths or the like do.
        kept_by: What they are owned by: "bucket" or "body".
        has_frames: Whether places on it have axes that turn.
    """

    system: SolidSystem
    is_joined: bool
    fluid: Any
    contacts: Any
    body_colliders: list[Any]
    unknowns: Unknowns
    parameter_version: int
    kept_by: str
    has_frames: bool

    def embed(self, primitives: Int64, corners: Int64, weights: Float) -> EmbeddedPoints:
        """Places on primitives, by ids of these and of their corners [n, k]. Collective."""

    def attachable(self, ids: Int64) -> tuple[Int64, Int64, bool]:
        """What points can be attached to, given the ids of all points on all ranks.

        Returns:
            Corners of all primitives, as places in the list; the body of each point; and whether
            points come and go, so that they go by id.
        """

    def join(self) -> None:
        """Become part of the joint system."""

    def parameters_version(self, behavior: Behavior) -> tuple[Any, ...]:
        """Changes when what overrides parameters of the Behavior may have."""

    def displace(self, change: Float, fraction: float, dt: float) -> None:
        """Move by a part of a correction."""

    def held_points(self) -> NDArray[np.uint8]:
        """Which points are prescribed, shape [n]."""

    def fill_inertia(self, inertia: Float) -> None:
        """Write mass, or moment of inertia, of all its unknowns."""

    def way_to_start(self) -> Float:
        """The change of all unknowns that brings it back to the start of the step."""

    def joint_declaration(self, name: str) -> Declaration:
        """What a Task touches that calls a method of this name."""


@runtime_checkable
class Bodies(SolvedPoints, Protocol):
    """Points of bodies that are whole on one rank."""


@runtime_checkable
class Edges(Bodies, Protocol):
    """Bodies with edges, in the order of the bodies: `data["edges"]`.

    Attributes:
        edges: Their channels, of which "rest_length" is the length at the start.
        edge_vertices: Rows of the ends of each, [edges, 2].
        edge_offsets: First edge of each body, [bodies + 1].
    """

    edges: BodyParticles
    edge_vertices: Int64
    edge_offsets: Int64


@runtime_checkable
class Triangles(Bodies, Protocol):
    """Bodies that are sheets of triangles, in the order of the bodies: `data["triangles"]`.

    Attributes:
        faces: Their channels.
        triangles: Rows of the corners of each, [triangles, 3].
        triangle_offsets: First triangle of each body, [bodies + 1].
    """

    faces: BodyParticles
    triangles: Int64
    triangle_offsets: Int64

    def triangle_elements(self, *, by_place: bool = False) -> Elements:
        """All triangles; with the gradients of their corners' shares in the sheet at rest.

        Args:
            by_place: Without these.
        """

    def triangle_volumes(self) -> Float:
        """Area at rest times thickness of each [m^3]."""

    def triangle_areas(self) -> Float:
        """Of each at rest [m^2]."""

    def triangle_reads(self) -> tuple[str, ...]:
        """What elements, areas and volumes are made of, as Tasks declare it."""

    def own(self, name: str) -> Float:
        """One of its own parameters for every vertex, such as its thickness."""

    def painted(self, name: str) -> tuple[str, ...]:
        """Channels that override one of its own parameters, as Tasks declare them."""


@runtime_checkable
class Sections(Edges, Protocol):
    """Edges that are beams, with a cross-section."""

    def per_vertex(self, behavior: Behavior, name: str, *, label: str) -> Float:
        """A parameter for every vertex, [n]."""

    def per_vertex_or(
        self, behavior: Behavior, name: str, derived: Callable[[], Float], *, label: str
    ) -> Float:
        """The same, or what it is derived from where it is not given."""

    def own(self, name: str) -> Float:
        """One of its own parameters for every vertex: of its material, or its section."""

    def painted(self, name: str) -> tuple[str, ...]:
        """Channels that override one of its own parameters, as Tasks declare them."""

    def half_axes(self) -> tuple[Float, Float]:
        """Of the cross-section at every vertex [m]."""

    def on_edges(self, values: Float) -> Float:
        """Mean of the vertices of each edge, [edges]."""


@runtime_checkable
class Joints(Sections, Protocol):
    """Strands: joints where edges meet, in the order of the bodies: `data["joints"]`.

    Attributes:
        joints: Their channels.
        joint_vertex: Row of the vertex of each, [joints].
        joint_edges: Its two edges, [joints, 2].
        joint_offsets: First joint of each strand, [strands + 1].
        offsets: First vertex of each strand, [strands + 1].
        closed: Whether strands are rings, [strands].
        topology: The strands as the input has them, those of all ranks.
    """

    joints: BodyParticles
    joint_vertex: Int64
    joint_edges: Int64
    joint_offsets: Int64
    offsets: Int64
    closed: NDArray[np.uint8]
    topology: Any


@runtime_checkable
class LooseParticles(SolvedPoints, Protocol):
    """Particles without neighbours, of which an Operator may make a liquid or droplets.

    Attributes:
        fluid: The Operator that makes a liquid of them, if any.
        droplets: The Operator that collides them as droplets, if any.
        fluid_sources, fluid_sinks: Where such a liquid comes from and goes; they enter themselves.
    """

    droplets: Any
    fluid_sources: list[Any]
    fluid_sinks: list[Any]

    @property
    def keeps_start(self) -> bool:
        """Whether it is known where a step began."""

    def become_fluid(self, fluid: Any) -> None:
        """Be a liquid, which the Operator moves."""

    def become_droplets(self, collisions: Any) -> None:
        """Be droplets, which the Operator collides."""

    def meet_colliders(self, contacts: Any) -> None:
        """Let an Action follow the ways of the particles, from where a step begins."""

    def derive_channel(self, name: str) -> None:
        """Add a channel that an Operator fills and that is part of the output."""


@runtime_checkable
class Meeting(Capability, Protocol):
    """Something of which meets a fluid point by point."""

    def points_in(self, fluid: Faces) -> Immersed | None:
        """What of it meets a fluid, if anything does."""


@runtime_checkable
class Immersed(Meeting, Protocol):
    """Points that a fluid flows around: `data["particles"]`, with mass, radius and force.

    Class attributes:
        coupling_reads: What each of the methods below reads, by its name.
    """

    coupling_reads: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def points_in(self, fluid: Faces) -> Immersed | None:
        """All of them."""
        return self

    def need_jacobian(self) -> None:
        """Make room for derivatives of forces."""

    def reads_of(self, *methods: str) -> tuple[str, ...]:
        """What a Task reads that calls these of the methods below."""
        names = [name for one in methods for name in self.coupling_reads.get(one, ())]
        return tuple(dict.fromkeys(names))

    def pushed_channels(self) -> tuple[str, ...]:
        """What `push_points` changes."""
        return ("particles.velocity",)

    def drag_shares(self) -> Float | None:
        """How much of its drag each point has, shape [n]; None for all of it."""
        return None

    def filaments(self) -> tuple[Float, Float] | None:
        """Unit tangents [n, 3] and lengths [n] of the filaments that points stand for, if any."""
        return None

    def held_points(self) -> NDArray[np.uint8]:
        """Which points are prescribed, so that no impulse moves them, shape [n]."""
        return np.zeros(self.data["particles"].count, np.uint8)

    def push_points(self, impulse: Float, dt: float) -> None:
        """Give points an impulse [n, 3] N s at the end of a step."""


@runtime_checkable
class Displacing(Immersed, Protocol):
    """Points that take space in a fluid."""

    def point_volumes(self) -> Float:
        """Space that each point takes [m^3], shape [n]."""


# -- volumes --------------------------------------------------------------------------------------


@runtime_checkable
class Faces(Capability, Protocol):
    """A fluid with its velocity on the faces of a staggered grid: `data["volume"]`.

    Attributes:
        volume: Its channels.
        colliders: Fields of solids in the fluid; Colliders add themselves.
        boundaries: Actions that say what a side of the box does; they add themselves.
        uniform_forces: Functions that give an acceleration of everything [m/s^2].
        projector: The Pressure Material's Action, or None.
        viscous: Whether a Viscosity Material acts.
        geometry_version: Changes whenever kinds or open fractions do.
    """

    volume: DiscreteVolume
    resolution: int
    voxel_size: float
    colliders: list[Any]
    bodies: list[Any]
    boundaries: list[Any]
    uniform_forces: list[Any]
    boundaries_of_points: dict[int, Any]
    projector: Any
    cut_faces: Any
    closed_faces: Any
    viscous: bool
    geometry_version: int

    @property
    def is_liquid(self) -> bool:
        """Whether it ends at a surface, beyond which there is nothing."""

    @property
    def ambient_velocity(self) -> tuple[float, float, float]:
        """Velocity of what is around [m/s]."""

    @property
    def face_mass(self) -> float:
        """Mass of the fluid around a face [kg]."""

    @property
    def keeps_start(self) -> bool:
        """Whether several Newton iterations start from one velocity."""

    @property
    def some_slip(self) -> bool:
        """Whether the fluid slides along any collider."""

    def projection_reads(self) -> tuple[str, ...]:
        """Channels beside kinds, fractions and the velocity that a projection reads."""

    def acted_reads(self) -> tuple[str, ...]:
        """Channels beside the velocity that say where forces act."""

    def met_reads(self) -> tuple[str, ...]:
        """Channels that say where points meet it."""

    def need_force(self) -> None:
        """Make room for forces on faces."""

    def need_drag(self) -> None:
        """Make room for derivatives of forces on faces."""

    def need_jacobian(self) -> None:
        """Make room for what implicit Forces bring."""

    def need_solids(self) -> None:
        """Make room for the velocity of solids."""

    def need_pores(self) -> None:
        """Make room for solids that share the space of the fluid."""

    def collider_reads(self, *channels: str) -> tuple[str, ...]:
        """Channels of all colliders' fields as Tasks name them; those of samples if none."""

    @property
    def uniform_part(self) -> float:
        """Part of a uniform acceleration that is not the hydrostatic pressure's around."""

    def on_voxels(self, behavior: Behavior, name: str, *, label: str) -> VoxelParameter:
        """A parameter in cells and on faces. Collective where it varies."""

    def surroundings(self) -> Surroundings:
        """What lies beyond the sides of the box."""

    def forces_have_acted(self) -> None:
        """Take note of the velocity before the pressure acts."""

    def let_ambient_faces_flow(self) -> None:
        """Let the outermost faces of the air around follow those inside, where there is air."""

    def hold_known_faces(self) -> None:
        """Give faces of walls and solids their own velocity."""

    def moved_by_pressure(self) -> tuple[str, ...]:
        """Channels beside the velocity that a projection writes."""

    def mobility(self, dt: float) -> Array | None:
        """What a pressure gradient moves of each face."""

    def mobility_under_drag(self, dt: float) -> Array | None:
        """What of each face drag leaves free to move."""

    def met_faces(self) -> Any:
        """Which faces points meet, and the mass these move."""


@runtime_checkable
class Gas(Faces, Protocol):
    """A fluid that fills its space, carries channels of cells along, and has air around it.

    Attributes:
        emissions: Actions that want Buckets around their source; they add themselves.
    """

    emissions: list[Any]

    @property
    def materials(self) -> tuple[str, ...]:
        """Channels that it carries along."""

    @property
    def ambient_temperature(self) -> float:
        """Of the air around [K]."""

    @property
    def ambient_density(self) -> float:
        """Of the air around [kg/m^3]."""

    def add_material(self, name: str, background: float = 0.0) -> None:
        """Carry one more channel along."""

    def need_divergence(self) -> None:
        """Make room for sources of volume [1/s]."""

    def extend_into_solids(self, names: Sequence[str]) -> None:
        """Fill solids near the gas with what the gas has there."""


@runtime_checkable
class Liquid(Faces, Points, Meeting, Protocol):
    """A fluid that particles carry, and that ends at a surface.

    Attributes:
        liquid_sources, liquid_sinks: Where it comes from and goes; they enter themselves.
        surface_forces: Forces of the surface; they enter themselves.
    """

    liquid_sources: list[Any]
    liquid_sinks: list[Any]
    surface_forces: list[Any]
    grid: Any
    band: Any
    account: Any
    input_points: Any
    overrides: Any

    @property
    def particles_per_axis(self) -> int:
        """Particles along the edge of a full voxel."""

    @property
    def jitter(self) -> float:
        """By how much start places differ from a regular lattice, of the distance there."""

    @property
    def particle_share(self) -> float:
        """Part of a voxel that one particle fills."""

    @property
    def particle_volume(self) -> float:
        """Liquid that one particle stands for [m^3]."""

    @property
    def falls_off_walls(self) -> bool:
        """Whether walls only push."""

    def need_viscosity(self) -> None:
        """Make room for the velocity after viscous stress."""

    def free_mobility(self) -> Array:
        """What a pressure gradient moves of each face, without drag."""

    def take_away(self, gone: NDArray[np.bool_], how: str) -> None:
        """Mask local particles [n] for removal, and account for them."""

    def tell_once(self, text: str) -> None:
        """Warn of something, unless that was said before."""
