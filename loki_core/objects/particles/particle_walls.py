"""Particle Walls: the sides of the box and the Colliders, as the particles of a fluid meet them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import GridDomain
from loki_core.kernels.particles.particle_walls import (
    FAR,
    add_wall_density,
    add_wall_push,
    distance_to_box,
    distance_to_field,
    meet_box,
    meet_field,
    pull_to_box,
    pull_to_field,
    sample_channel,
    stop_at_box,
    stop_at_field,
    stop_on_the_way,
)
from loki_core.kernels.particles.smoothing import Prototype
from loki_core.objects.colliders.body_collider import FRICTION, BodyCollider
from loki_core.objects.particles.neighbour_search import NeighbourSearch

Array = NDArray[Any]

#: Walls that one way may meet in turn, as in the corner of a box.
CORNER = 3


class ParticleWalls:
    """What stands around the particles of one search, from one substep.

    Args:
        domain: Whose sides may be walls.
        colliders: With fields at the end of the substep.
        spacing: Of particles, over their support.
        lattice: Sums over a filled neighbourhood.
        friction: Of the sides of the box, to each row of particles [count], or [1] to all.
    """

    def __init__(
        self,
        domain: GridDomain,
        colliders: Sequence[BodyCollider],
        *,
        spacing: float,
        lattice: Prototype,
        friction: Array,
    ) -> None:
        walls = [condition.kind == "wall" for condition in domain.boundaries]
        self.lower = np.where(walls[0::2], domain.relative_lower, -FAR)
        self.upper = np.where(walls[1::2], domain.relative_upper, FAR)
        self.has_box = any(walls)
        self.colliders = [one for one in colliders if one.field.volume.buckets.count]
        self.spacing, self.friction = spacing, friction
        self.norm, self.moment = lattice.norm, lattice.moment

    def look(
        self, search: NeighbourSearch, velocity: Array, moved: Array | None, dt: float
    ) -> None:
        """Find the particles near walls.

        Args:
            velocity: That brought rows here in the step [m/s], [count, 3].
            moved: What corrections have moved rows by since [m], [count, 3].
        """
        self.near: NDArray[np.int32] = np.empty(0, np.int32)
        if not self.has_box and not self.colliders:
            return
        own, packed = search.own, search.packed
        closest = np.full(len(own), FAR)
        if self.has_box:
            distance_to_box(packed, own, self.lower, self.upper, closest)
        for one in self.colliders:
            distance_to_field(*field_of(one), packed, own, closest)
        # Corrections within a step are a part of a spacing.
        self.near = own[closest < 1.5 * search.support[own]]
        rows = search.rows[self.near]
        self.start = packed[self.near, :3] - dt * velocity[rows].astype(np.float64)
        if moved is not None:
            self.start -= moved[rows]
        self.open = np.ones(len(self.near))
        self.gradient = np.zeros((len(self.near), 3))
        self.rub = self._friction_of(rows)
        self.drift = [dt * _velocity(one, packed, self.near) for one in self.colliders]
        self.rough = [_roughness(one, packed, self.near) for one in self.colliders]

    def catch(
        self, position: Array, velocity: Array, support: Array, moved: Array, dt: float
    ) -> bool:
        """Stop what has met a wall on its way here; returns whether any has.

        Args:
            position: Of rows at the end of their ways [m], [count, 3], which are changed.
            velocity: That brought them here [m/s], [count, 3].
            support: Reach of their kernels [m], [count].
            moved: What corrections have moved rows by since [m], [3, count], which is added to.
        """
        keep, caught = 0.5 * self.spacing, False

        def starts(rows: NDArray[np.int32]) -> Array:
            way = dt * velocity[rows].astype(np.float64) + moved[:, rows].T
            return np.asarray(position[rows] - way)

        every: NDArray[np.int32] = np.arange(len(position), dtype=np.int32)
        for one in self.colliders:
            way = np.linalg.norm(dt * velocity + moved.T, axis=1) + dt * one.speed
            near = rows_near(one, position, way, keep * support)
            if not len(near):
                continue
            start = starts(near)
            drift = drift_of(one, position, start, near, dt)
            rough = _roughness(one, position, near)
            given = (near, support, keep, rough, start, drift, position, moved)
            for _ in range(CORNER):
                stop_on_the_way(*field_of(one), *given)
            stop_at_field(*field_of(one), *given)
            caught = True
        if self.has_box:
            closest = np.full(len(position), FAR)
            distance_to_box(position, every, self.lower, self.upper, closest)
            near = every[closest < keep * support]
            stop_at_box(
                near, self.lower, self.upper, support, keep, self._friction_of(near), starts(near),
                position, moved,
            )  # fmt: skip
            caught |= len(near) > 0
        return caught

    def _friction_of(self, rows: Array) -> Array:
        """Coulomb's coefficient of the sides to some rows, [n] or [1]."""
        return self.friction if len(self.friction) == 1 else self.friction[rows]

    def add_density(self, search: NeighbourSearch, density: Array) -> None:
        """Measure the walls at the present positions, and count what they take as filled."""
        if not len(self.near):
            return
        meet_box(
            search.packed, self.near, self.lower, self.upper, search.support, self.spacing,
            self.norm, self.open, self.gradient,
        )  # fmt: skip
        for one in self.colliders:
            meet_field(
                *field_of(one), search.packed, self.near, search.support, self.spacing, self.norm,
                self.open, self.gradient,
            )  # fmt: skip
        add_wall_density(self.near, self.open, density)

    def add_push(self, multiplier: Array, applied: Array, shift: Array) -> None:
        """Add what the walls, as they were measured, push particles away by."""
        if len(self.near):
            add_wall_push(
                self.near, self.open, self.gradient, self.moment, multiplier, applied, shift
            )

    def gradient_by_place(self, search: NeighbourSearch) -> Array:
        """Gradient of the part that walls leave open, as measured, [places, 3]; [1, 3] if none."""
        near = len(self.near) > 0
        gradient: Array = np.zeros((search.places if near else 1, 3), search.packed.dtype)
        if near:
            gradient[self.near] = self.gradient
        return gradient

    def add_adhesion(
        self, search: NeighbourSearch, strength: float, weight: Array, change: Array
    ) -> None:
        """Add the pull of walls to change [4 places]."""
        if not len(self.near) or strength == 0.0:
            return
        given = (self.near, search.packed, search.support, self.norm)
        if self.has_box:
            pull_to_box(*given, self.lower, self.upper, strength, weight, change)
        for one in self.colliders:
            pull_to_field(*field_of(one), *given, strength, weight, change)

    def stop(self, search: NeighbourSearch, total: Array) -> None:
        """Push out what has come too near; what that moves is added to total [3, places]."""
        if not len(self.near):
            return
        keep = 0.5 * self.spacing
        for one, drift, rough in zip(self.colliders, self.drift, self.rough, strict=True):
            given = (
                self.near, search.support, keep, rough, self.start, drift, search.packed, total,
            )  # fmt: skip
            if one.settings.mode == "shell":  # where the distance does not tell the sides apart
                for _ in range(CORNER):
                    stop_on_the_way(*field_of(one), *given)
            stop_at_field(*field_of(one), *given)
        if self.has_box:
            stop_at_box(
                self.near, self.lower, self.upper, search.support, keep, self.rub, self.start,
                search.packed, total,
            )  # fmt: skip


def rows_near(one: BodyCollider, position: Array, way: Array, gap: Array) -> NDArray[np.int32]:
    """Rows that may have met a Collider on their ways.

    Args:
        position: Of rows at the end of their ways [m], [count, 3].
        way: How long these are, seen from the Collider [m], [count].
        gap: How near to its surface rows come [m], [count].
    """
    every: NDArray[np.int32] = np.arange(len(position), dtype=np.int32)
    closest = np.full(len(position), FAR)
    distance_to_field(*field_of(one), position, every, closest)
    # A surface that the way has crossed is no farther than that; beyond the band it is not known
    # where they end, but it is on the way.
    crossed = (way > gap) & (closest < way + gap)
    crossed |= (closest >= FAR) & (way > one.field.band)
    return every[crossed | (closest < gap)]


def drift_of(
    one: BodyCollider, position: Array, start: Array, near: NDArray[np.int32], dt: float
) -> Array:
    """How far a Collider's surface moves in the step [n, 3] m.

    Where rows are, or where they began if the surface has passed them since.
    """
    drift = dt * _velocity(one, position, near)
    if one.speed > 0.0:
        every: NDArray[np.int32] = np.arange(len(near), dtype=np.int32)
        at_start = dt * _velocity(one, start.astype(position.dtype), every)
        drift = np.where(np.any(drift != 0.0, axis=1)[:, None], drift, at_start)
    return drift


def _velocity(one: BodyCollider, packed: Array, near: NDArray[np.int32]) -> Array:
    """Of a Collider's surface [m/s], [n, 3]."""
    velocity = np.empty((len(near), 3))
    _sample(one, "velocity", packed, near, velocity)
    return velocity


def _roughness(one: BodyCollider, packed: Array, near: NDArray[np.int32]) -> Array:
    """Coulomb's coefficient of a Collider's surface, [n]."""
    rough = np.full((len(near), 1), float(one.settings.friction or 0.0))
    if FRICTION in one.field.channels:
        _sample(one, FRICTION, packed, near, rough)
    return np.ascontiguousarray(rough[:, 0])


def _sample(one: BodyCollider, name: str, packed: Array, near: Array, sampled: Array) -> None:
    volume = one.field.volume
    sample_channel(
        *volume.buckets.table, volume.with_ghosts("primitive"), volume.with_ghosts(name),
        one.field.voxel_size, packed, near, sampled,
    )  # fmt: skip


def field_of(one: BodyCollider) -> tuple[Any, ...]:
    """The distance field of a collider as kernels read it."""
    volume = one.field.volume
    return (*volume.buckets.table, volume.with_ghosts("distance"), one.field.voxel_size)
