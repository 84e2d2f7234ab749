"""Body Collider: the Signed Distance of a collider around the bodies of one Object.

Bodies are owned whole, wherever in space they are, while fields are stored by Bucket. The mesh of a
collider is whole on every rank, and what a Bucket holds depends on the mesh alone: so every rank
measures the Buckets around its own bodies by itself, and samples need no other rank.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.data.accessors import Access, Declaration
from loki_core.data.discrete_volume import RESOLUTIONS, DiscreteVolume
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.errors import SetupError
from loki_core.kernels.buckets.bucket_hash import pack_buckets, unpack_buckets
from loki_core.kernels.particles.lagrangian_step import largest_speed
from loki_core.objects.basics.capabilities import Capability, SolvedPoints
from loki_core.objects.basics.object import Scope
from loki_core.objects.colliders.collider import Collider, ColliderField
from loki_core.objects.colliders.signed_distance import SignedDistance
from loki_core.operators.operator import Operator
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, TaskOwner, task

Float = NDArray[np.float64]

#: Voxels on either side of the surface in which the distance is known.
BAND = 6.0
#: Painted channel of a Collider's mesh that says how rough it is.
FRICTION = "friction"
#: Voxels of a shell's thickness from which on the distance tells its sides apart.
TIGHT = 1.25
COARSEST = 2  # cells along a Bucket
LONGEST_WAY = 64  # Buckets that a point passes in a substep, of which the field knows


class BodyCollider(Operator[SolvedPoints]):
    """A collider as one solid meets it.

    Attributes:
        reach: Distance from the surface at which contacts may begin [m]; whoever asks sets it.
        is_used: Whether anything asks.
        is_tight: Whether a shell must have two sides that the grid tells apart.
    """

    behavior: Collider
    settings: Collider

    def __init__(self, behavior: Collider, target: SolvedPoints, scope: Scope) -> None:
        super().__init__(behavior, target)
        self.reach = 0.0
        self.is_used = self.is_tight = False
        self._scope = scope
        self._mesh: _LocalField | None = None
        colliders_of(target).append(self)

    @classmethod
    def acts_on(cls, item: Capability) -> bool:
        """Bodies meet colliders by contacts; so do particles where a Constraint asks.

        Particles that are a fluid look at the distance themselves.
        """
        return isinstance(item, SolvedPoints) and (
            item.is_joined or item.fluid is not None or item.contacts is not None
        )

    def need(self, reach: float, *, is_tight: bool = False) -> None:
        """Ask for distances up to this one [m], and that shells are tight to what presses."""
        self.is_used = True
        self.is_tight |= is_tight
        self.reach = max(self.reach, reach)

    @property
    def field(self) -> SignedDistance:
        """Distance and velocity of the solid's surface around the bodies of this rank."""
        assert self._mesh is not None
        return self._mesh.field

    @property
    def volume(self) -> DiscreteVolume:
        """Its voxels."""
        return self._local().volume

    @property
    def task_data(self) -> dict[str, Any]:
        """Those of the target, and the field."""
        return super().task_data | {"collider": self.volume}

    @property
    def speed(self) -> float:
        """How fast the solid's points are, at most [m/s]."""
        return self._local().speed

    def covers(self, position: Float) -> NDArray[np.bool_]:
        """Which positions [n, 3] relative to the domain's origin are in the solid."""
        return self._local().covers(position)

    def friction_at(self, otherwise: Float, *places: Float) -> Float:
        """Coulomb's coefficient of the surface at some places, [n].

        Args:
            otherwise: Of who meets it, where the Collider has none of its own, [n].
            places: Where they may meet it [n, 3] m, relative to the domain's origin. Of several
                that are near the surface the last counts.
        """
        given = self.settings.friction
        rough = otherwise.copy() if given is None else np.full(len(otherwise), float(given))
        if FRICTION in self.field.channels:
            for position in places:
                found = self.field.sample(position)
                is_near = found.primitive >= 0
                rough[is_near] = np.maximum(found.channels[FRICTION][is_near, 0], 0.0)
        return rough

    def _local(self) -> _LocalField:
        if self._mesh is None:
            scope = replace(self._scope, domain=alone(self.target.scope.domain))
            self._mesh = _LocalField(
                self.behavior, scope, resolution=self._resolution(), targets=[self.target]
            )
            self._mesh.box = self.target.scope.domain
        mesh, domain = self._mesh, self.target.scope.domain
        mesh.scope.inputs = self.target.scope.inputs
        mesh.scope.domain.origin = domain.origin  # a restart may have moved it
        mesh.settings = self.settings
        mesh.path = self.path
        return mesh

    def _resolution(self) -> int:
        """Cells along a Bucket in which the distance is measured."""
        cell, size = self.settings.cell_size, self.target.scope.domain.bucket_size
        if cell is None:
            asks = self.target.fluid or self.target.contacts
            return 8 if asks is None else int(asks.collider_resolution())
        fits = [one for one in RESOLUTIONS if size / one <= (1.0 + 1e-9) * float(cell)]
        if not fits:
            raise SetupError(
                f"{self.path}.cell_size = {float(cell):g} m is below {size / RESOLUTIONS[-1]:g} m, "
                f"the smallest cell in Buckets of {size:g} m; enlarge it, or set a smaller "
                "bucket_size"
            )
        return max(fits[0], COARSEST)

    @task(Stage.INGEST)
    def take_mesh(self, access: Access, step: Step) -> None:
        """Keep the mesh of the start frame, from which the motion begins."""
        self._local().take_mesh(self.target.scope.settings.start_frame)

    @task(
        Stage.UPDATE_COLLIDERS,
        reads=("particles.position", "particles.velocity"),
        layout=("collider",),
    )
    def measure(self, access: Access, step: Step) -> None:
        """Measure the distance to the mesh at the end of the substep."""
        mesh = self._local()
        if self.is_used:
            mesh.widen(self.reach)
            mesh.dt = step.dt
            mesh.is_tight = self.is_tight
            mesh.reach_beyond()
            mesh.update_field(access, step)
        else:
            mesh.take_mesh(step.frame)

    def state(self) -> dict[str, Any]:
        return {**self._local().state(), "reach": self.reach}

    def restore(self, state: dict[str, Any]) -> None:
        if state:
            self.reach = float(state.get("reach", self.reach))
            self._local().restore(state)


class MeetsColliders(TaskOwner):
    """Base of Actions with Tasks that look at the fields of the Colliders that the target meets.

    Attributes:
        meeting: Names of these Tasks.
    """

    meeting: ClassVar[tuple[str, ...]] = ()
    target: SolvedPoints

    @property
    def task_data(self) -> dict[str, Any]:
        return super().task_data | fields_of(self.target)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        stage, declaration = super().declare(name, stage, declaration)
        if name in self.meeting:
            reads = (*declaration.reads, *field_reads(self.target))
            declaration = replace(declaration, reads=reads)
        return stage, declaration


class _LocalField(ColliderField):
    """A collider's field on this rank alone, around the Buckets that points are in.

    Attributes:
        dt: Length of the substep [s], in which points move on.
        box: The domain of all ranks, with its periodic sides. Within a step points go through
            those, so the field goes on beyond them, where images of the mesh stand.
        is_tight: Whether a shell must have two sides that the grid tells apart.
    """

    dt = 0.0
    is_tight = False
    box: GridDomain

    def _thickness(self) -> float:
        """As it is: contacts need no grid; but what presses must not come out on the other side."""
        thinnest = TIGHT * self.field.voxel_size if self.is_tight else 0.0
        return max(float(self.settings.thickness), thinnest)

    def _box(self) -> GridDomain:
        return self.box

    def _channel_names(self) -> tuple[str, ...]:
        """Whoever meets the surface asks how rough it is."""
        names = super()._channel_names()
        return names if FRICTION in names else (*names, f"{FRICTION}?")

    def take_mesh(self, frame: int) -> None:
        self._take_stream(frame)

    def widen(self, reach: float) -> None:
        """Let the distance be known well beyond this one, from the next measure on."""
        given = self.settings.domain_offset
        least = BAND * self.field.voxel_size if given is None else float(given)
        wanted = max(least, 2.0 * reach)
        if self.field.band < 0.999 * wanted:
            self.field = replace(self.field, band=wanted)
            self._built = None

    def reach_beyond(self) -> None:
        """Let there be images for all points that will be outside of a periodic box."""
        if not any(self.box.periodic):
            return
        coords, size = self._buckets_of_targets(), self.box.bucket_size
        first, last = self.box.bucket_range()
        outside = np.maximum(first - coords, coords + 1 - last)[:, np.array(self.box.periodic)]
        beyond = size * (1.0 + max(0, int(outside.max(initial=0))))
        if beyond != self._beyond:
            self._beyond, self._built = beyond, None

    def _layout(self) -> tuple[Any, ...]:
        return (self._buckets_of_targets().tobytes(),)

    def _buckets_of_targets(self) -> NDArray[np.int32]:
        """Buckets on the ways of all points in this substep."""
        domain, parts = self.scope.domain, [np.empty((0, 3), np.int32)]
        for item in self.targets:
            position = item.particles.local("position")
            speed = float(np.nan_to_num(largest_speed(item.particles.local("velocity"))))
            longest = self.dt * speed / domain.bucket_size
            if item.kept_by == "bucket" and longest < 0.5:  # those around are measured, too
                parts.append(item.particles.buckets.local_coords)
                continue
            way = self.dt * item.particles.local("velocity")
            count = min(int(np.ceil(longest)), LONGEST_WAY)
            for number in range(count + 1):
                places = position + number / max(count, 1) * way
                parts.append(domain.bucket_coordinates(places, label=item.path))
        return unpack_buckets(np.unique(pack_buckets(np.concatenate(parts))))


def resolution_for(domain: GridDomain, voxel_size: float) -> int:
    """Voxels along a Bucket, none larger than this one [m] if the finest are not."""
    wanted = max(8.0, domain.bucket_size / voxel_size - 1e-6)
    return next((one for one in RESOLUTIONS if one >= wanted), RESOLUTIONS[-1])


def colliders_of(target: SolvedPoints) -> list[BodyCollider]:
    """The colliders that a solid meets; they enter themselves."""
    found: list[BodyCollider] = target.body_colliders
    return found


def fields_of(target: SolvedPoints) -> dict[str, DiscreteVolume]:
    """Their voxels, by the names of Tasks that look at them."""
    return {f"collider{n}": one.volume for n, one in enumerate(colliders_of(target))}


def field_reads(target: SolvedPoints) -> tuple[str, ...]:
    """What a Task reads that samples them."""
    fields = fields_of(target).items()
    return tuple(f"{name}.{channel}" for name, one in fields for channel in one.channels)


def alone(domain: GridDomain) -> GridDomain:
    """The same map of space without sides, as one rank has it that owns all."""
    own = copy.copy(domain)
    own.comm = SERIAL
    own.lower, own.upper = np.full(3, -np.inf), np.full(3, np.inf)
    own.boundaries, own.periodic = (BoundaryCondition(),) * 6, (False, False, False)
    own.cuts = own._even_cuts()
    return own
