"""Attachment Constraint: hold points of two geometries together, of whatever kind (paper, 6.3).

    C^0 = A^T d - (L, 0, 0) - s       d = x_source - x_target
    C^k = A^T F_source,k - a_k - s    k = 1, 2, 3
    2 S = diag(k_N, k_T, k_T, b_1, b_1, b_1, b_2, b_2, b_2, b_3, b_3, b_3)

s is nothing, but for pairs that have to carry a load from the start (`SagFreeStart`). A is the
target's frame, turned once so that its first axis is along d when the pair is emitted;
with flexibility xi it follows d (kernels/solids/attachments.py has the formula and its gradient).
So

    xi = 0    keeps the source where it was in the target's frame; k_N along d, k_T across
    xi = 1    keeps the distance alone, k_T is without effect
    b_k > 0   keeps the k-th axis of the source's frame in A, for instance against twist at a root

Under tension T the term T xi (2 - xi) (I - d d^T / |d|^2) / |d| is added to the stiffness, the
second derivative of a_0 . d. Where the rest length is nothing there is no direction to follow: A is
the target's frame then, and k_T goes from its own value at xi = 0 to k_N at xi = 1, which is the
same energy. Damping acts on all of C, friction on C^0 alone, as a force. Which points are attached
is found in `attachment_emission.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.constraints.attachment_emission import (
    Geometry,
    Spots,
    attached_points,
    find_pairs,
    geometry_of,
)
from loki_core.constraints.constraint import ConstraintBehavior
from loki_core.constraints.joining import JoiningConstraint
from loki_core.constraints.shared_rows import Copies, Table, send_rows
from loki_core.data.accessors import ChannelData, Declaration, split_name
from loki_core.data.particle_directory import ParticleDirectory
from loki_core.errors import InputError, SetupError, did_you_mean
from loki_core.kernels.solids.attachments import (
    attachment_gradients,
    evaluate_attachments,
    transverse_rows,
)
from loki_core.objects.basics.capabilities import Capability, SolvedPoints
from loki_core.objects.basics.object import Scope
from loki_core.objects.solids.embedded_points import EmbeddedPoints
from loki_core.objects.solids.host_geometry import HostGeometry, HostPoints
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]

EMISSIONS = ("explicit", "closest", "within_range")
NO_LENGTH = 1e-6  # of a Bucket: points that are nearer have no distance
SIDES = ("source", "target")
FRAME = ("tangent", "length", "reference", "angle")  # channels of edges that give one


class AttachmentConstraint(ConstraintBehavior):
    """Attach points of one Object to another, or to host geometry."""

    source: str | None = parameter(
        None,
        kind="stream_or_object",
        doc="Object whose points are attached, by path; or an input stream.",
    )
    target: str | None = parameter(
        None,
        kind="stream_or_object",
        doc="Object they are attached to, by path; or an input stream, which may move.",
    )
    emission: str = parameter(
        "closest",
        choices=EMISSIONS,
        doc="Given pairs, or source points by nearness; those with channel attached = 0 do not.",
    )
    range: float | None = parameter(
        None,
        unit="m",
        minimum=0.0,
        varies="no",
        doc="Largest distance of points that are attached.",
    )
    every_step: bool = parameter(
        False, doc="Look for pairs at each step; those that stay keep their rest values."
    )
    pairs: str | None = parameter(
        None,
        kind="stream",
        doc="Explicit pairs: a Wireframe from source to target, or channels source_id, target_id.",
    )
    flexibility: float = parameter(
        0.0,
        minimum=0.0,
        maximum=1.0,
        doc="0 keeps the place in the target's frame, 1 only the distance.",
    )
    rest_length: float | None = parameter(
        None, unit="m", minimum=0.0, doc="Distance without stress; none is that at emission."
    )
    stiffness: float = parameter(
        100.0, unit="N/m", minimum=0.0, doc="Force over change of distance."
    )
    tangential_stiffness: float | None = parameter(
        None, unit="N/m", minimum=0.0, doc="Force over displacement across; none is stiffness."
    )
    orientation_stiffness: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0),
        unit="N*m",
        minimum=0.0,
        doc="Moment over turn of the source's three axes; the first is a strand's tangent.",
    )

    def validate(self, place: str) -> None:
        """Each kind of emission needs its own."""
        super().validate(place)
        if self.emission == "explicit" and self.pairs is None:
            raise SetupError(f'{place}.emission = "explicit" needs pairs, the name of a stream')
        if self.emission == "within_range" and self.range is None:
            raise SetupError(f'{place}.emission = "within_range" needs a range')
        itself = self.source is not None and self.source == self.target
        if self.emission == "closest" and self.range is None and itself:
            raise SetupError(f"{place} attaches {self.source} to itself, which needs a range")

    def create(self, scope: Scope) -> list[Any]:
        """Make the Action, once source and target are named."""
        if self.source is None or self.target is None:
            return []
        if any(_is_absent(scope, getattr(self, side)) for side in SIDES):
            return []
        found = [_find(scope, side, getattr(self, side)) for side in SIDES]
        if all(item is None for item in found):
            raise SetupError(
                f"{scope.path}: source and target are both input streams; one of them has to be "
                "an Object"
            )
        return [AttachmentAction(self, *found)]


def _is_absent(scope: Scope, name: str) -> bool:
    """Whether the Object of a path, or all of a Group, are turned off or have no input."""
    inside = f"{name}/"
    there = any(path == name or path.startswith(inside) for path in scope.others)
    off = any(path == name or path.startswith(inside) for path in scope.absent)
    return off and not there and name not in scope.inputs


def _find(scope: Scope, side: str, name: str) -> Any:
    """The Object of a path, or of a Group that has one; None for an input stream."""
    below = [item for path, item in scope.others.items() if path.startswith(f"{name}/")]
    item = scope.others.get(name, below[0] if len(below) == 1 else None)
    if item is None:
        if name in scope.inputs:
            return None
        known = (*scope.others, *scope.inputs)
        raise SetupError(
            f'{scope.path}.{side} = "{name}" is neither an Object nor an input stream'
            f"{did_you_mean(name, known)}"
        )
    if not isinstance(item, SolvedPoints):
        raise SetupError(
            f'{scope.path}.{side} = "{name}" is a {type(item).__name__}; points of Curves and '
            "Particle Objects and of input streams can be attached"
        )
    return item


class AttachmentAction(JoiningConstraint, behavior=AttachmentConstraint):
    """Emits the pairs, and adds their energy.

    Attributes:
        table: Pairs that touch bodies of this rank, ordered by number: places on both sides, rest
            length, frames and shift. Whoever has the source, or else the target, owns a pair.
    """

    behavior: AttachmentConstraint
    settings: AttachmentConstraint
    components = 12
    rubbing = 3
    carries = True

    def __init__(
        self,
        behavior: AttachmentConstraint,
        source: SolvedPoints | None,
        target: SolvedPoints | None,
    ) -> None:
        self.items = (source, target)
        for item in self.items:
            if item is not None:
                item.join()
        held = source if source is not None else target
        assert held is not None, "one of the two is an Object"
        super().__init__(behavior, held)
        self.reads = self._of_both("particles.position", *(f"edges.{name}" for name in FRAME))
        self.stiffness_reads = (*self._of_both("particles.id", "edges.id"), *self.reads)
        self.hosts = tuple(
            None if item is not None else self._host(str(name))
            for item, name in zip(self.items, (behavior.source, behavior.target), strict=True)
        )
        self.table: Table = {}
        self._next_number = 0  # of the next pair that is found, the same on every rank
        self.ends: list[EmbeddedPoints] = []
        self._on_hosts: list[HostPoints | None] = [None, None]  # of the pairs on a stream

    def _host(self, name: str) -> HostGeometry:
        kind = type(self.behavior).__name__
        return HostGeometry(self.target, name, label=f'{kind}: input "{name}"')

    def update(self, settings: Behavior, time: float) -> None:
        """Take the values of the current time; particles have no axes that could be held."""
        super().update(settings, time)
        source, held = self.items[0], self.settings.orientation_stiffness
        if source is not None and not source.has_frames and any(value > 0.0 for value in held):
            raise SetupError(
                f"{self.path}.orientation_stiffness = {tuple(held)} N*m holds the axes of the "
                f"source, but {source.path} has particles, which have none; use (0, 0, 0), or "
                "make it the target"
            )

    # -- what is touched -------------------------------------------------------------------

    @property
    def data(self) -> dict[str, ChannelData]:
        """Those of both Objects."""
        data = dict(self.target.data)
        other = self.items[1]
        if other is not None and other is not self.target:
            data |= {f"other_{name}": holder for name, holder in other.data.items()}
        return data

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the group of points that take part."""
        stage, declaration = super().declare(name, stage, declaration)
        if name == "emit":
            groups = self._of_both("particles.attached")
            declaration = replace(declaration, reads=(*declaration.reads, *groups))
        return stage, declaration

    def _of_both(self, *names: str) -> tuple[str, ...]:
        """Channels of both Objects, of each those that it has."""
        found = []
        for prefix in ("", "other_"):
            for name in names:
                data_name, channel = split_name(name)
                holder = self.data.get(prefix + data_name)
                if holder is not None and channel in holder.channels:
                    found.append(prefix + name)
        return tuple(found)

    # -- emission --------------------------------------------------------------------------

    @property
    def is_changing(self) -> bool:
        """Where pairs are looked for in every step."""
        return bool(self.behavior.every_step)

    def begin_step(self, step: Step) -> None:
        """Look for pairs, the first time or always; host geometry stands at the step's start."""
        places = [None if host is None else host.at(step, end=False) for host in self.hosts]
        self._settle()
        if not self.table or bool(self.settings.every_step):
            self._emit_pairs(places)
        self._move_hosts(places)
        if self._renewed_for == (self.target.system.version, self.emission):
            for end in self.ends:
                end.follow()

    def _settle(self) -> None:
        """Let pairs follow their bodies to other ranks; particles that died take theirs along.

        Collective.
        """
        if self.table and self._renewed_for[0] != self.target.system.version:
            self._spread(self._owned_rows())

    def _owned_rows(self) -> Table:
        """The pairs that this rank owns, with all that they remember."""
        mine = self._is_mine
        rows = {name: values[mine] for name, values in self.table.items()}
        return {
            **rows,
            "tension": self.held_tension[mine],
            "friction": self.held_friction[mine],
        }

    def _spread(self, rows: Table) -> None:
        """Take pairs, each of which one rank has, to all ranks that they touch. Collective."""
        comm = self.target.scope.domain.comm
        ranks = np.full((2, len(rows["number"])), -1)
        for side, item in enumerate(self.items):
            if item is not None:
                corner = np.ascontiguousarray(rows[f"{SIDES[side]}_corners"][:, 0])
                ranks[side] = ParticleDirectory(item.particles).owners(corner)
        alive = np.all([ranks[s] >= 0 for s in range(2) if self.items[s] is not None], axis=0)
        there = [np.flatnonzero(alive & np.any(ranks == rank, axis=0)) for rank in range(comm.size)]
        arrived = send_rows(comm, rows, there)
        order = np.argsort(arrived["number"], kind="stable")
        arrived = {name: values[order] for name, values in arrived.items()}
        tension, friction = arrived.pop("tension"), arrived.pop("friction")
        self._take_table(arrived)
        self.held_tension[:], self.held_friction[:] = tension, friction

    def end_step(self, step: Step) -> None:
        self._move_hosts([None if host is None else host.at(step, end=True) for host in self.hosts])

    def _move_hosts(self, places: list[Float | None]) -> None:
        for points, place in zip(self._on_hosts, places, strict=True):
            if points is not None and place is not None:
                points.move(place)

    def _geometry(self, side: int, places: list[Float | None]) -> Geometry:
        item, host = self.items[side], self.hosts[side]
        if item is not None:
            return geometry_of(item)
        assert host is not None
        attached = attached_points(host.stream, label=host.label)
        place = places[side]
        assert place is not None
        return Geometry(place, host.primitives, None, attached)

    def _emit_pairs(self, places: list[Float | None]) -> None:
        """Find the pairs; new ones are at rest as they are. Collective."""
        settings, first = self.settings, not self.table
        geometries = [self._geometry(side, places) for side in range(2)]
        scope, pairs = self.target.scope, None
        if settings.emission == "explicit" and settings.pairs is not None:
            pairs = scope.inputs[settings.pairs]
        found = find_pairs(
            *geometries,
            emission=settings.emission,
            reach=None if settings.range is None else float(settings.range),
            pairs=pairs,
            domain=scope.domain,
            same=self.items[0] is self.items[1],
            label=f'{self.path}: input "{settings.pairs}"',
            complete=not settings.every_step,
        )
        if first and found[0].count == 0:
            self.warning = self._why_nothing()
        gone, fresh = self._matched(found, geometries)
        if not first and len(fresh) == 0 and len(gone) == 0:
            return
        numbers = self._next_number + np.arange(len(fresh))
        self._next_number += len(fresh)
        mine = self._begins_here(found, geometries, fresh)
        rows = self._new_pairs([spots[fresh[mine]] for spots in found], geometries, places)
        rows["number"] = numbers[mine]
        if not first:
            old = self._owned_rows()
            kept = ~np.isin(old["number"], gone)
            rows = {
                name: np.concatenate((values[kept], rows[name])) for name, values in old.items()
            }
        self._spread(rows)

    def _begins_here(
        self, found: tuple[Spots, Spots], geometries: list[Geometry], fresh: Int64
    ) -> Int64:
        """Which of the fresh pairs this rank owns."""
        side = self._owning_side
        geometry, primitive = geometries[side], found[side].primitive[fresh]
        corner = geometry.named(geometry.primitives[primitive][:, 0])
        return np.flatnonzero(np.isin(corner, self.target.particles.local("id")))

    @property
    def _owning_side(self) -> int:
        """The side of the target, which is the source unless that is a stream."""
        return 0 if self.items[0] is not None else 1

    def _why_nothing(self) -> str:
        settings = self.settings
        within = "" if settings.range is None else f" within {float(settings.range):g} m"
        return (
            f"nothing of {settings.source} is attached to {settings.target}: there is no pair of "
            f"points{within}"
        )

    def _matched(
        self, found: tuple[Spots, Spots], geometries: list[Geometry]
    ) -> tuple[Int64, Int64]:
        """Numbers of pairs that are not found again, and found ones that are new. Collective."""
        one, two = (g.named(spots.primitive) for g, spots in zip(geometries, found, strict=True))
        keys = _pair_keys(one, found[0].weights, two)
        if not self.table:
            return np.empty(0, np.int64), np.arange(len(keys))
        table, mine, comm = self.table, self._is_mine, self.target.scope.domain.comm
        own = _pair_keys(
            table["source_primitive"][mine], table["source_weights"][mine],
            table["target_primitive"][mine],
        )  # fmt: skip
        old, numbers = (
            np.concatenate(comm.all_gather(np.ascontiguousarray(one)))
            for one in (own, table["number"][mine])
        )
        return numbers[~np.isin(old, keys)], np.flatnonzero(~np.isin(keys, old))

    def _new_pairs(
        self, spots: list[Spots], geometries: list[Geometry], places: list[Float | None]
    ) -> dict[str, Any]:
        """Columns of the table for pairs that were not there before. Collective."""
        count = spots[0].count
        new: dict[str, Any] = {}
        for side, name in enumerate(SIDES):
            geometry, primitive = geometries[side], spots[side].primitive
            new[f"{name}_primitive"] = geometry.named(primitive)
            new[f"{name}_corners"] = geometry.named(geometry.primitives[primitive])
            new[f"{name}_weights"] = spots[side].weights
            new[f"{name}_tangent"] = np.zeros((count, 3))
            new[f"{name}_director"] = np.zeros((count, 3))
        ends = [self._embed(side, new) for side in range(2)]
        for one, place in zip(ends, places, strict=True):
            if place is not None:
                one.move(place)
        (source, source_axes), (target, axes) = (one.locate() for one in ends)
        for name in SIDES:  # axes are carried along from the first step on
            new[f"{name}_tangent"][:] = new[f"{name}_director"][:] = 0.0
        turn, length = _rest_frames(source - target, axes, self._least)
        frame = np.einsum("nij,nja->nia", turn, axes)
        new["turn"], new["length"] = turn, length
        new["has_length"] = length > self._least
        new["rest"] = np.einsum("nka,nia->nki", source_axes, frame)
        new["tension"] = np.zeros((count, self.components))
        new["friction"] = np.zeros((count, self.rubbing))
        new["shift"] = np.zeros((count, self.components))
        return new

    def _take_table(self, table: Table) -> None:
        """Let these pairs be those that touch this rank."""
        self.table = table
        self.emission += 1
        self.forget(len(table["number"]))
        here = self._pairs_here()
        self._is_mine = here[0 if self.items[0] is not None else 1]
        self._on_hosts = [
            self._embed(side, table) if self.items[side] is None else None for side in range(2)
        ]

    def _embed(self, side: int, table: Table) -> Any:
        """Points of pairs on one side; collective for Objects."""
        name, item = SIDES[side], self.items[side]

        def column(kind: str) -> Any:
            return table[f"{name}_{kind}"]

        corners, weights = column("corners"), column("weights")
        if item is None:
            return HostPoints(corners, weights, column("tangent"), column("director"))
        return item.embed(column("primitive"), corners, weights)

    # -- elements --------------------------------------------------------------------------

    def find_joined(self) -> None:
        """Take the pairs that have a side on this rank."""
        table = self.table
        self.numbers, self.is_owner = table["number"], self._is_mine
        self.copies = self._find_copies()
        self.ends = [
            on_host if on_host is not None else self._embed(side, table)
            for side, on_host in enumerate(self._on_hosts)
        ]
        row = self.target.system.first_row
        self.global_dofs = np.concatenate([one.numbers(row) for one in self.ends], axis=1)
        names = ("turn", "length", "rest", "has_length", "shift")
        self._turn, self._length, self._rest, self._has_length, self._shift = (
            np.ascontiguousarray(table[name]) for name in names
        )

    def _find_copies(self) -> Copies:
        """Ask who owns the pairs that only end here. Collective."""
        particles = self.target.particles
        corner = self.table[f"{SIDES[self._owning_side]}_corners"][~self.is_owner, 0]
        owners = ParticleDirectory(particles).owners(np.ascontiguousarray(corner))
        return Copies(particles.domain.comm, self.numbers, self.is_owner, owners)

    def _pairs_here(self) -> NDArray[np.bool_]:
        """Which pairs have their source, and their target, on this rank, [2, count]."""
        here = np.zeros((2, len(self.table["length"])), bool)
        for side, item in enumerate(self.items):
            if item is not None:
                corner = self.table[f"{SIDES[side]}_corners"][:, 0]
                here[side] = np.isin(corner, item.particles.local("id"))
        return here

    def find_parameters(self) -> None:
        """Resolve what C depends on, too: xi, and lengths where they are given. Collective."""
        self._flexibility = self.of_elements("flexibility")[0]
        if self.is_given("rest_length"):
            self._length[:] = self.of_elements("rest_length")[0]
            self._has_length[:] = self._length > self._least
        super().find_parameters()  # the stiffness depends on both

    @property
    def _least(self) -> float:
        """Distance below which points are at one place [m]."""
        return NO_LENGTH * self.target.scope.domain.bucket_size

    def _flexibilities(self) -> Float:
        """Flexibility of each element: without a length there is no direction to follow."""
        return np.where(self._has_length, self._flexibility, 0.0)

    def evaluate_only(self, value: Float) -> None:
        """Write C. Collective."""
        (source, source_axes), (target, target_axes) = (one.locate() for one in self.ends)
        evaluate_attachments(
            source, source_axes, target, target_axes, self._turn, self._length, self._rest,
            self._flexibilities(), value,
        )  # fmt: skip
        value -= self._shift

    def evaluate(self, value: Float, gradient: Float) -> None:
        """Write C and its gradient. Collective."""
        (source, source_axes), (target, target_axes) = (one.locate() for one in self.ends)
        flexibility = self._flexibilities()
        evaluate_attachments(
            source, source_axes, target, target_axes, self._turn, self._length, self._rest,
            flexibility, value,
        )  # fmt: skip
        value -= self._shift
        by_place, by_source, by_target = (np.empty((*value.shape, 3)) for _ in range(3))
        attachment_gradients(
            source, source_axes, target, target_axes, self._turn, flexibility, by_place,
            by_source, by_target,
        )  # fmt: skip
        self._chain(by_place, by_source, by_target, gradient)
        self._places = source, target

    def _chain(self, by_place: Float, by_source: Float, by_target: Float, gradient: Float) -> None:
        one, two = self.ends
        one.chain(by_place, by_source, 1.0, gradient, 0)
        two.chain(by_place, by_target, -1.0, gradient, one.width)

    def geometric_stiffness(self, tension: Float) -> tuple[Float, Float] | None:
        """Stiffness across a taut attachment that may swing."""
        xi = self._flexibilities()
        if not xi.any():
            return None
        count = len(xi)
        across, inverse = np.empty((count, 3, 3)), np.empty(count)
        transverse_rows(*self._places, across, inverse)
        rows, still = np.empty((count, 3, self.gradient.shape[2])), np.zeros((count, 3, 3))
        self._chain(across, still, still, rows)
        weight = np.maximum(tension[:, 0], 0.0) * inverse * xi * (2.0 - xi)
        return rows, np.repeat(weight[:, None], 3, axis=1)

    def stiffness(self) -> tuple[Float, int]:
        """Along d, across it, and of the three axes. Collective."""
        normal = across = self.of_elements("stiffness")[0]
        if self.is_given("tangential_stiffness"):
            across = self.of_elements("tangential_stiffness")[0]
        blend = np.where(self._has_length, 0.0, self._flexibility)
        k = np.empty((len(self.numbers), self.components))
        k[:, 0] = normal
        k[:, 1:3] = (across + blend * (normal - across))[:, None]
        k[:, 3:] = np.repeat(self.of_elements("orientation_stiffness")[0], 3, axis=1)
        return k, 1

    def carried(self, values: Float) -> Float:
        """What the points of the source have, or those of the target if that is host geometry."""
        return self.ends[0 if self.items[0] is not None else 1].carry(values)

    # -- loads from the start ----------------------------------------------------------------

    def is_at(self, item: Capability) -> bool:
        return any(one is item for one in self.items)

    def to_start(self, step: Step) -> None:
        self._move_hosts(
            [None if host is None else host.at(step, end=False) for host in self.hosts]
        )

    def shift(self) -> Float:
        return self._shift.copy()

    def set_shift(self, shift: Float) -> None:
        self._shift[:] = self.from_owners(shift)
        self.table["shift"][:] = self._shift

    # -- state -----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Pairs of this rank, what they remember, and where host geometry is."""
        state: dict[str, Any] = {
            "hosts": {n: h.state() for n, h in zip(SIDES, self.hosts, strict=True) if h is not None}
        }
        if self.table:
            state["elements"] = self._owned_rows()
            state["next_number"] = self._next_number
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Take such a state back."""
        self.table = {}
        self._renewed_for = (-1, -1)
        for name, host in zip(SIDES, self.hosts, strict=True):
            if host is not None and name in state.get("hosts", {}):
                host.restore(state["hosts"][name])
        if "table" in state:
            raise InputError(
                f"{self.path}: the state is of an earlier version of Loki, which kept attached "
                "pairs in another way; start the run again"
            )
        if "elements" in state:
            rows = {name: np.array(one) for name, one in state["elements"].items()}
            rows.setdefault("shift", np.zeros((len(rows["number"]), self.components)))
            self._next_number = int(state["next_number"])
            tension, friction = rows.pop("tension"), rows.pop("friction")
            self._take_table(rows)
            self.held_tension[:], self.held_friction[:] = tension, friction
            self._is_mine = np.ones(len(self._is_mine), bool)  # until they find their ranks


def _pair_keys(source: Int64, weights: Float, target: Int64) -> Int64:
    """One number for each pair: source primitive and corner, and target primitive."""
    corner = np.argmax(weights, axis=1) if len(weights) else np.empty(0, np.int64)
    keys: Int64 = (source * 3 + corner) * (1 << 31) + target
    return keys


def _rest_frames(d: Float, axes: Float, least: float) -> tuple[Float, Float]:
    """Rotations [n, 3, 3] that bring the first axis along d, in the frame; and |d|, or 0.

    The axes of the attachment are rows, in coordinates of the frame whose axes are [n, 3, 3].
    """
    count = len(d)
    length = np.linalg.norm(d, axis=1)
    good = length > least
    local = np.einsum("nia,na->ni", axes, d)
    first = np.where(good[:, None], local / np.where(good, length, 1.0)[:, None], np.eye(3)[0])
    helper = np.eye(3)[np.argmin(np.abs(first), axis=1)]
    second = np.cross(helper, first)
    second /= np.linalg.norm(second, axis=1)[:, None]
    turn = np.stack((first, second, np.cross(first, second)), axis=1)
    turn[~good] = np.eye(3)
    return turn.reshape(count, 3, 3), np.where(good, length, 0.0)
