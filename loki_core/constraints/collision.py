"""Collision Constraint: solids stay outside of colliders, and rub against them (paper, 6.3).

Particles and droplets bounce off them (`constraints/particle_contacts.py`). For what has edges:

Implicit penalties at the contacts that `contact_detection.py` finds, with n the normal, h the step
and u the collider's velocity:

    C = (separation, t_1 . s, t_2 . s),     s = tangential part of  x - x_start - h u

    normal       T = k separation                 while the contact pushes
    friction     T = min(k, mu N / |s'|) s        it sticks where that is k

s' is the slide that is expected: the slope is the secant of Coulomb's law, so it is positive and
friction never pushes a point back. The normal force N is that of the last solve. What is expected
is at first the motion that Forces and friction would bring, since a step that sees no contact
falls through the surface by h^2 g, and then what the last solve found: a contact that pushed goes
on to, and one that sticks by more than mu N breaks loose with T = mu N (primal-dual active set,
Alart & Curnier 1991). Solves are repeated within a Newton iteration until no contact pulls.

Contacts change in every step, but they couple only the two ends of edges: the matrix has room for
all of them from the start, so its pattern stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.constraints.constraint import Constraint
from loki_core.constraints.contact_detection import (
    Contacts,
    contact_points,
    detect,
    measure,
)
from loki_core.constraints.elements import Elements
from loki_core.data.accessors import Access, Declaration
from loki_core.kernels.solids.constraint_assembly import (
    predict_tension,
    scatter_elements,
    scatter_forces,
)
from loki_core.kernels.solids.coupling_assembly import add_to_rows
from loki_core.objects.basics.capabilities import Edges, SolvedPoints
from loki_core.objects.basics.object import Scope
from loki_core.objects.colliders.body_collider import MeetsColliders, colliders_of
from loki_core.objects.solids.embedded_points import LocalPoints
from loki_core.objects.solids.unknowns import POSITION
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

#: Automatic stiffness over that of inertia, m / h^2: a point at rest sinks in by h^2 g over this.
STIFFENING = 1.0e4
#: Channel: normal force [N], tension of what sticks [N, three], and age up to `OLD` steps.
MEMORY = "contact"
OLD = 2.0
LEAVES = 4.0  # times the depth at rest: above the surface by more, a contact is over


class CollisionConstraint(Behavior, kind="constraint", exclusive=True, varies="vertex"):
    """Let the Colliders of the Group stop the solids and particles in it."""

    stiffness: float | None = parameter(
        None,
        unit="N/m",
        minimum=0.0,
        doc="Force of a contact over its depth; none suits mass and step.",
    )
    friction_coefficient: float = parameter(
        0.3,
        minimum=0.0,
        doc="Largest friction over the normal force (Coulomb's law), where a Collider has no "
        "friction of its own.",
    )
    restitution: float = parameter(
        0.0,
        minimum=0.0,
        maximum=1.0,
        doc="Speed of particles and droplets after an impact over that before it; solids do not "
        "bounce.",
    )
    thickness: float = parameter(
        0.0, unit="m", minimum=0.0, doc="Distance that is kept beyond the points' own radius."
    )
    edge_samples: int = parameter(
        1, minimum=0, maximum=64, doc="Points of every edge at which contacts are looked for."
    )
    passes: int = parameter(
        4,
        minimum=0,
        maximum=100,
        doc="Most times that a solve is repeated because contacts let go, begin or break loose.",
    )

    def create(self, scope: Scope) -> list[Any]:
        """Make what suits each Object: impulses for particles, contacts of the joint system."""
        from loki_core.constraints.particle_contacts import ParticleContacts

        kinds = (ParticleContacts, CollisionAction)
        first = ((item, [kind for kind in kinds if kind.acts_on(item)]) for item in scope.objects)
        return [fitting[0](self, item) for item, fitting in first if fitting]


class CollisionAction(MeetsColliders, Constraint[SolvedPoints], behavior=CollisionConstraint):
    """Adds contact forces and their stiffness.

    Attributes:
        points: Where contacts may be.
        met: Where they are looked at in this step.
        contacts: What is known of these.
        active: Which of them push, shape [n].
        normal_force: Of each [N], shape [n].

    A vertex and the points of its edges share what presses on it; before the first solve tells how,
    they do so evenly.
    """

    behavior: CollisionConstraint
    settings: CollisionConstraint
    cost = 7.5  # with contacts on a part of the points
    meeting = ("find_contacts", "accumulate")
    components = 3
    is_contact = True
    has_multipliers = False
    has_damping = False
    has_friction = False  # of Dahl's kind

    points: LocalPoints
    met: LocalPoints
    contacts: Contacts
    _points_of: tuple[int, int] = (-1, -1)  # version of the system, layout of the points
    _told_at = -1

    def __init__(self, behavior: CollisionConstraint, target: SolvedPoints) -> None:
        target.join()
        super().__init__(behavior, target)
        target.particles.add_channel(MEMORY, np.float64, (5,))
        samples = int(behavior.edge_samples)
        self._remembers_edges = samples > 0 and isinstance(target, Edges)
        if self._remembers_edges:
            target.data["edges"].add_channel(MEMORY, np.float64, (samples, 5))

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the colliders, where contacts are found and measured, and what is remembered."""
        if name == "remember":  # friction of Dahl's kind, which contacts have not
            return stage, declaration
        stage, declaration = super().declare(name, stage, declaration)
        reads = list(declaration.reads)
        by_body = self.target.kept_by == "body"
        if name == "find_contacts":
            reads += [*self._memories, *(["particles.pinned"] if by_body else [])]
        return stage, replace(declaration, reads=tuple(reads))

    @property
    def _memories(self) -> tuple[str, ...]:
        edges = (f"edges.{MEMORY}",) if self._remembers_edges else ()
        return (f"particles.{MEMORY}", *edges)

    @property
    def scatter_touches(self) -> tuple[str, ...]:
        """Contacts are of own points alone."""
        return ("solids.fixed",)

    def joint_declaration(self, name: str) -> Declaration:
        """Every solve tells what the next step should know."""
        if name in ("solve", "respond"):
            return Declaration(writes=self._memories)
        searches = self.target.scope.settings.newton_iterations > 1
        return Declaration(reads=("particles.position",) if name == "move" and searches else ())

    # -- elements --------------------------------------------------------------------------

    def find_elements(self) -> Elements:
        """All edges: whatever a contact may couple."""
        solid = self.target
        if not isinstance(solid, Edges):
            runs = np.zeros(solid.unknowns.bodies + 1, np.int64)
            return Elements(runs, np.zeros((0, 6), np.int32), np.zeros((0, 2), np.int64))
        ends = solid.edge_vertices
        dofs = solid.unknowns.joint(POSITION, ends).reshape(len(ends), 6).astype(np.int32)
        return Elements(solid.edge_offsets, dofs, ends)

    @task(Stage.EMIT_CONSTRAINTS)
    def emit(self, access: Access, step: Step) -> None:
        """Find where contacts may be, where bodies changed or points changed rows."""
        version, layout = self.target.system.version, self.target.particles.layout_version
        if self.elements_version != version:
            self.elements = self.find_elements()
            self.elements_version = version
        if self._points_of != (version, layout):
            found = contact_points(self.target, int(self.behavior.edge_samples))
            self.points, self._row, self._place = found
            self._points_of = (version, layout)

    def _thickness(self) -> Float:
        """Distance that vertices keep [m]."""
        whole: Float = self.target.particles.local("radius").copy()
        whole += self.resolve("thickness", np.float64).values
        return whole

    @task(Stage.INGEST, reads=("particles.radius",), communicates=True)
    def prepare(self, access: Access, step: Step) -> None:
        """Tell colliders how far contacts reach."""
        self._tell_reach()

    @task(Stage.NUMBER_SOLIDS, reads=("particles.radius",), communicates=True)
    def follow(self, access: Access, step: Step) -> None:
        """Tell them again where points may have come."""
        if self._told_at != self.target.particles.layout_version:
            self._tell_reach()

    def _tell_reach(self) -> None:
        self._told_at = self.target.particles.layout_version
        largest = float(np.max(self._thickness(), initial=0.0))
        reach = self.target.system.comm.maximum(largest)
        for collider in colliders_of(self.target):
            collider.need(reach)

    # -- detection -------------------------------------------------------------------------

    @task(
        Stage.DETECT_CONTACTS,
        reads=(
            "particles.position",
            "particles.start_position",
            "particles.radius",
            "particles.mass",
        ),
    )
    def find_contacts(self, access: Access, step: Step) -> None:
        """Find the points that may touch a collider in this step."""
        points, colliders = self.points, colliders_of(self.target)
        # An edge that leaves what holds it, such as a hair's root, may begin inside.
        held = self.target.held_points()[points.rows].any(axis=1)
        free = np.flatnonzero(~held)
        points = points.chosen(free)
        position = points.carry(access["particles.position"])
        self._start = points.carry(access["particles.start_position"])
        thickness = points.carry(self._thickness())
        found = detect(colliders, position, self._start, thickness)
        self._start, position = self._start[found.site], position[found.site]
        self.met = points.chosen(found.site)
        found.site = free[found.site]
        self.contacts = found
        self._prepare_contacts(step.dt)
        self._mu = self._friction_at(position)

    def _friction_at(self, position: Float) -> Float:
        """Coulomb's coefficient of the contacts [n]: the Collider's own, or the Constraint's."""
        friction = self._at_contacts("friction_coefficient")
        for number, one in enumerate(colliders_of(self.target)):
            rows = np.flatnonzero(self.contacts.collider == number)
            friction[rows] = one.friction_at(friction[rows], self._start[rows], position[rows])
        return friction

    def _prepare_contacts(self, dt: float) -> None:
        solid, n = self.target, self.contacts.count
        self._dt = dt
        body = solid.unknowns.body_of(POSITION)[self.met.rows[:, 0]]
        bodies = np.arange(solid.unknowns.bodies + 1)
        self._runs = np.searchsorted(body, bodies).astype(np.int64)
        self._dofs = self.met.numbers(0).astype(np.int32)
        self._mass = self.met.carry(solid.particles.local("mass"))
        self._share = self._mass / (1.0 + float(self._place.max(initial=-1) + 1))
        is_given = self.is_given("stiffness")
        self.k = self._at_contacts("stiffness") if is_given else STIFFENING * self._mass / dt**2
        self.value, self.tension, self.slope = (np.zeros((n, 3)) for _ in range(3))
        self.gradient = np.zeros((n, 3, 6))
        self._axes = np.zeros((n, 3, 3))
        self.active = np.zeros(n, bool)
        memory = self._recall()
        self.normal_force, self._sticking = memory[:, 0].copy(), memory[:, 1:4].copy()
        self._age = memory[:, 4].copy()

    def _at_contacts(self, name: str) -> Float:
        """A parameter at the contacts [n]."""
        values, step = self.resolve(name, np.float64)
        return self.met.carry(values) if step else np.full(self.met.count, values[0])

    def _recall(self) -> Float:
        """Normal force and sticking tension that the last step's contacts had, [n, 5]."""
        site, data = self.contacts.site, self.target.data
        memory = np.zeros((len(site), 5))
        row, place = self._row[site], self._place[site]
        at_vertex = place < 0
        memory[at_vertex] = data["particles"].local(MEMORY)[row[at_vertex]]
        if not np.all(at_vertex):
            memory[~at_vertex] = data["edges"].local(MEMORY)[row[~at_vertex], place[~at_vertex]]
        return memory

    def keep(self) -> None:
        """Write what the next step should know."""
        site, data = self.contacts.site, self.target.data
        age = np.where(self.normal_force > 0.0, np.minimum(self._age + 1.0, OLD), 0.0)
        memory = np.column_stack((self.normal_force, self._sticking, age))
        row, place = self._row[site], self._place[site]
        at_vertex = place < 0
        data["particles"].local(MEMORY)[:] = 0.0
        data["particles"].local(MEMORY)[row[at_vertex]] = memory[at_vertex]
        if self._remembers_edges:
            data["edges"].local(MEMORY)[:] = 0.0
            data["edges"].local(MEMORY)[row[~at_vertex], place[~at_vertex]] = memory[~at_vertex]

    # -- response --------------------------------------------------------------------------

    @task(
        Stage.EVALUATE_CONSTRAINTS,
        reads=("particles.position", "particles.force"),
    )
    def accumulate(self, access: Access, step: Step) -> None:
        """Add contact forces and stiffness to the joint system."""
        contacts = self.contacts
        if contacts.count:
            position = self.met.carry(access["particles.position"])
            measure(colliders_of(self.target), contacts, position, self._start)
            slide = self._slide(position, step.dt)
            self._position = position
            if step.newton == 0:
                pull = self.met.carry(access["particles.force"]) / self._mass[:, None]
                self._expect(slide, step.dt**2 * pull)
            else:
                self._reconsider(slide)
            self._gap, self._slid = contacts.separation, slide
            self._respond_to()
        self._scatter(1.0)

    def _scatter(self, sign: float) -> None:
        """Add what contacts do to the joint system, or take it back."""
        system = self.target.system
        if self.coupled is not None:
            indptr, indices, data = system.couplings.rows
            add_to_rows(
                self._dofs, self.gradient, sign * self.tension, sign * self.slope, system.fixed,
                indptr, indices, system.rhs, data,
            )  # fmt: skip
            return
        scatter_elements(
            self._runs, self._dofs, self.gradient, sign * self.tension, sign * self.slope,
            system.fixed, system.row, system.rhs, system.values,
        )  # fmt: skip

    def add_forces(self, fixed: NDArray[np.uint8], out: Float) -> None:
        """Add the forces of contacts, which are not the elements that the matrix has room for."""
        scatter_forces(self._runs, self._dofs, self.gradient, self.tension, fixed, out)

    def _slide(self, position: Float, dt: float) -> Float:
        """Motion across the normal, relative to the collider, since the start of the step."""
        normal = self.contacts.normal
        moved = position - self._start - dt * self.contacts.velocity
        along = np.einsum("na,na->n", normal, moved)
        across: Float = moved - along[:, None] * normal
        return across

    def _expect(self, slide: Float, fall: Float) -> None:
        """Which contacts will push and how they slide, if Forces move points by `fall`."""
        normal, gap = self.contacts.normal, self.contacts.separation
        down = np.einsum("na,na->n", normal, fall)
        per_force = self._dt**2 / self._mass
        depth = np.maximum(-(gap + down), 0.0)
        # A contact at rest leaves its depth by rounding; it is not to fall anew for that.
        self.active = gap + np.minimum(down, 0.0) < LEAVES * self.normal_force / self.k
        # The force of an impact ends with it.
        former = np.where(self._age < OLD, 0.0, self.normal_force * per_force)
        self._pressure = np.where(
            former > 0.0, self.normal_force, depth * self._share / self._dt**2
        )
        across = slide + fall - down[:, None] * normal
        # What is left of the slide when friction has acted: nothing, if that holds the point.
        left = np.linalg.norm(across, axis=1) - self._mu * np.maximum(depth, former)
        self._hold(left)

    def _reconsider(self, slide: Float) -> None:
        """Which contacts push and how they slide, after what the last solve found."""
        gap = self.contacts.separation
        pushed = self.active & (self.normal_force > 0.0)
        self.active = (pushed & np.isfinite(gap)) | (gap < 0.0)  # no way in, no contact
        fresh = self._share / self._dt**2 * np.maximum(-gap, 0.0)
        found = np.where(self.normal_force > 0.0, self.normal_force, fresh)
        self._pressure = 0.5 * (self._pressure + found)  # else impacts would ring on
        self._hold(np.linalg.norm(slide, axis=1))

    def _hold(self, size: Float) -> None:
        """Slope of friction for slides of this size; negative sizes stick."""
        self._limit = np.where(self.active, self._mu * self._pressure, 0.0)
        most = np.where(self.active & (self._mu > 0.0), self.k, 0.0)
        self._grip = np.minimum(self._limit / np.maximum(size, 1e-200), most)
        held = np.linalg.norm(self._sticking, axis=1)
        self._breaks = self.active & (held > self._limit * (1.0 + 1e-6))

    def _respond_to(self) -> None:
        """Fill C, its gradient, tension and slope."""
        normal = self.contacts.normal
        self._first = first = _across(normal, self._sticking)
        axes = self._axes
        axes[:, 0], axes[:, 1], axes[:, 2] = normal, first, np.cross(normal, first)
        self.met.chain(axes, axes, 1.0, self.gradient, 0)
        self.value[:, 0] = np.where(self.active, self._gap, 0.0)
        self.value[:, 1:] = np.einsum("nma,na->nm", axes[:, 1:], self._slid)
        self.slope[:, 0] = np.where(self.active, self.k, 0.0)
        self.slope[:, 1:] = np.where(self._breaks, 0.0, self._grip)[:, None]
        self.tension[:] = self.slope * self.value
        self.tension[self._breaks, 1] = self._limit[self._breaks]
        self._before = self.value.copy()

    def take_solution(self, change: Float) -> None:
        """Keep the forces and places that the solve found."""
        if self.contacts.count:
            solved = np.empty_like(self.tension)
            predict_tension(self._dofs, self.gradient, self.tension, self.slope, change, solved)
            self.normal_force = np.where(self.active, np.maximum(-solved[:, 0], 0.0), 0.0)
            self._pulls = self.active & (solved[:, 0] > 0.0)
            sticks = self.active & ~self._breaks & (self._grip >= self.k)
            force = np.einsum("nm,nma->na", solved[:, 1:], self._axes[:, 1:])
            self._sticking = np.where(sticks[:, None], force, 0.0)
            moved = np.einsum("nmd,nd->nm", self.gradient, change[self._dofs])
            self._gap_after = self._gap + moved[:, 0]
            self._slid_after = self._slid + np.einsum("nm,nma->na", moved[:, 1:], self._axes[:, 1:])
        self.keep()

    @property
    def passes(self) -> int:
        """How often a solve may be corrected."""
        return int(self.settings.passes)

    def is_wrong(self) -> bool:
        """Whether contacts pull, begin, or stick by more than friction can hold, on this rank."""
        if self.contacts.count == 0:
            return False
        enters = ~self.active & (self._gap_after < 0.0)
        held = np.linalg.norm(self._sticking, axis=1)
        breaks = held > self._mu * self.normal_force * (1.0 + 1e-3)
        return bool(np.any(self._pulls | enters | breaks))

    def revise(self) -> None:
        """Let go what pulls, hold what enters; friction goes by the forces of the last solve."""
        self._scatter(-1.0)
        if self.contacts.count:
            self._reply()
        self._scatter(1.0)

    def _reply(self) -> None:
        self.active = (self.active & ~self._pulls) | (~self.active & (self._gap_after < 0.0))
        fresh = self._share / self._dt**2 * np.maximum(-self._gap_after, 0.0)
        self._pressure = np.where(self.normal_force > 0.0, self.normal_force, fresh)
        size = np.linalg.norm(self._slid_after, axis=1)
        back = np.einsum("na,na->n", self._slid_after, self._first) < 0.0
        self._hold(np.where(self._breaks & back, 0.0, size))
        self._respond_to()

    def energies(self, dt: float) -> Float:
        """Energy of contacts and work of friction, as the last evaluation saw them.

        What pushes, and which way, stays so within a Newton step; the next one asks again.
        """
        contacts = self.contacts
        if contacts.count == 0:
            return np.zeros(0)
        position = self.met.carry(self.target.particles.local("position"))
        moved = position - self._position
        value = self._before + np.einsum("nma,na->nm", self._axes, moved)
        energy: Float = 0.5 * np.einsum("nm,nm,nm->n", self.slope, value, value)
        energy[self._breaks] += (self._limit * value[:, 1])[self._breaks]
        return energy

    def rounding(self, sizes: Float) -> Float:
        if self.contacts.count == 0:
            return np.zeros(0)
        size = np.abs(self._position).sum(axis=1)
        pull = np.abs(self.tension) + np.finfo(np.float64).eps * self.slope * size[:, None]
        energy: Float = pull.sum(axis=1) * size
        return energy


def _across(normal: Float, wanted: Float) -> Float:
    """Unit vectors across normals [n, 3], along the wanted ones where those have such a part."""
    across = wanted - np.einsum("na,na->n", normal, wanted)[:, None] * normal
    size = np.linalg.norm(across, axis=1)
    # Where nothing is wanted: the axis that the normal is farthest from.
    axis = np.eye(3)[np.argmin(np.abs(normal), axis=1)]
    other = axis - np.einsum("na,na->n", normal, axis)[:, None] * normal
    other /= np.maximum(np.linalg.norm(other, axis=1), 1e-30)[:, None]
    good = size > 1e-9 * np.maximum(np.linalg.norm(wanted, axis=1), 1e-300)
    found: Float = np.where(good[:, None], across / np.maximum(size, 1e-300)[:, None], other)
    return found
