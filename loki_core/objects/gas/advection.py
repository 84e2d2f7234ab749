"""Advection of volume channels along a velocity field: traces of any length, on any rank.

    semi_lagrangian   phi'(x) = phi(x - dt u), trilinear                  (Stam 1999)
    cubic             the same with Catmull-Rom interpolation
    maccormack        hat = A phi, phi' = hat + (phi - A^-1 hat) / 2      (Selle et al. 2008)
    bfecc             phi' = A(phi + (phi - A^-1 A phi) / 2)              (Dupont & Liu 2003)

Limiters keep a result between the voxels that have a part in a sample at the end of its trace:
"clamp" brings it back
to the nearest bound, "revert" takes the semi-Lagrangian value instead, "conserve" (cubic only)
hands what "clamp" cuts off on to neighbours that have room for it. Nearly all traces stay in
the block around their Bucket (kernels.advection); the others are asked of the rank that owns the
Bucket where they end (the Loki paper, 7.4), by the same kernel whether that is this rank or
another, so that results do not depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume, VolumeChannel
from loki_core.errors import SetupError, did_you_mean
from loki_core.kernels.gas import advection as kernels
from loki_core.kernels.gas.advection import (
    BFECC,
    CELL,
    CONSERVED,
    LIMITED,
    MACCORMACK,
    NO_LIMIT,
    SAMPLE,
)
from loki_core.kernels.gas.advection_long import (
    count_escaped,
    find_anchors,
    list_escaped,
    sample_points,
)
from loki_core.kernels.gas.excess import excess_to_rates, hand_on
from loki_core.objects.gas.surroundings import Surroundings

Array = NDArray[Any]

SCHEMES = ("semi_lagrangian", "maccormack", "bfecc", "cubic")
LIMITERS = ("none", "clamp", "revert", "conserve")
BACKWARDS, FORWARDS = -1.0, 1.0

#: Components advected together: they share their traces, and scratch memory bounds their number.
TOGETHER = 4
BUCKETS_PER_RUN = 8
#: Edge of the largest block.
LARGEST_BLOCK = 40
#: Widest halo: steps to a stencil are noted in numbers below 40, twice as fine as a voxel.
FARTHEST = 8
#: Long traces that are asked for in one round.
ROUND = 1 << 18


def advect(
    volume: DiscreteVolume,
    names: Sequence[str],
    *,
    velocity: str = "velocity",
    dt: float,
    scheme: str = "maccormack",
    limiter: str = "clamp",
    surroundings: Surroundings | None = None,
    trace_order: int = 2,
    kind: str | None = None,
) -> None:
    """Carry channels along a velocity field for one time step, in place. Collective.

    Args:
        volume: Holds all the channels; its Buckets are of one level.
        names: Channels to advect: cell channels, or face channels, each component of which is
            traced from its own faces. All have the velocity's resolution.
        velocity: The face channel that advects [m/s]; it may be among `names`.
        dt: Time step [s].
        scheme: One of `SCHEMES`.
        limiter: One of `LIMITERS`.
        surroundings: What lies outside; by default what the domain's box says, with slip walls.
        trace_order: 1 (Euler), 2 (midpoint) or 3 (Ralston).
        kind: A uint8 cell channel; voxels of kind 0 are left as they are.
    """
    _check(volume, names, velocity, scheme, limiter, trace_order, kind)
    advector = _Advector(volume, velocity, dt, surroundings, trace_order, scheme == "cubic")
    for group in _groups(volume, names, velocity):
        advector.advect(group, scheme, LIMITERS.index(limiter), kind)


def _check(
    volume: DiscreteVolume,
    names: Sequence[str],
    velocity: str,
    scheme: str,
    limiter: str,
    trace_order: int,
    kind: str | None,
) -> None:
    place = f"{volume.name}: advection"
    if isinstance(names, str):
        raise SetupError(f'{place} of "{names}": give a sequence of channel names')
    for word, value, known in (("scheme", scheme, SCHEMES), ("limiter", limiter, LIMITERS)):
        if value not in known:
            raise SetupError(f'{place} {word} "{value}" is unknown{did_you_mean(value, known)}')
    if limiter == "conserve" and (
        scheme != "cubic" or any(volume.channel(name).location == "face" for name in names)
    ):
        raise SetupError(
            f'{place}: the limiter "conserve" is for cell channels with the scheme "cubic"; '
            f'for "{scheme}" use "clamp"'
        )
    if trace_order not in (1, 2, 3):
        raise SetupError(f"{place} trace_order = {trace_order} is none of 1, 2, 3")
    carrier = volume.channel(velocity)
    if carrier.location != "face":
        raise SetupError(f'{place} by "{velocity}", which is no face channel')
    if carrier.resolution < 4:
        raise SetupError(
            f'{place} by "{velocity}" of {carrier.resolution} voxels per Bucket edge; at least 4'
        )
    for name in names:
        channel = volume.channel(name)
        if (channel.resolution, channel.dtype) != (carrier.resolution, carrier.dtype):
            raise SetupError(
                f'{place} of "{name}" ({channel.resolution} voxels per Bucket edge, '
                f'{channel.dtype}) by "{velocity}" ({carrier.resolution}, {carrier.dtype}): '
                "resolution and type must be the same"
            )
    if kind is not None and volume.channel(kind).resolution != carrier.resolution:
        raise SetupError(f'{place}: "{kind}" has not the resolution of "{velocity}"')
    if np.any(volume.buckets.all_levels):
        raise SetupError(f"{place}: Buckets of several levels are not supported")


def _groups(volume: DiscreteVolume, names: Sequence[str], velocity: str) -> list[list[str]]:
    """Channels that are advected together; the velocity comes last, since all others need it."""
    groups: list[list[str]] = []
    cells = [name for name in dict.fromkeys(names) if volume.channel(name).location == "cell"]
    width = TOGETHER
    for name in cells:
        components = volume.channel(name).components
        if width + components > TOGETHER:
            groups.append([])
            width = 0
        groups[-1].append(name)
        width += components
    faces = [name for name in dict.fromkeys(names) if volume.channel(name).location == "face"]
    return groups + [[name] for name in sorted(faces, key=lambda name: name == velocity)]


class _Advector:
    """One velocity field and one time step; what all passes over the Buckets have in common."""

    def __init__(
        self,
        volume: DiscreteVolume,
        velocity: str,
        dt: float,
        surroundings: Surroundings | None,
        order: int,
        cubic: bool,
    ) -> None:
        self.volume, self.velocity, self.order, self.cubic = volume, velocity, order, cubic
        self.buckets = volume.buckets
        self.carrier = volume.channel(velocity)
        self.resolution = r = self.carrier.resolution
        self.number = self.carrier.dtype.type
        if surroundings is None:
            surroundings = Surroundings.of_domain(volume.domain, r)
        self.surroundings = surroundings
        self.box, self.walls = surroundings.planes(), surroundings.walls()
        self.period = volume.domain.period.astype(np.int64) * r
        self.factor = dt / volume.voxel_size(velocity)
        self.steps = np.arange(2 * LARGEST_BLOCK, dtype=self.carrier.dtype)
        self._choose_halos(dt)
        runs = max(1, -(-self.buckets.local_count // BUCKETS_PER_RUN))
        borders = np.arange(runs + 1, dtype=np.int64) * BUCKETS_PER_RUN
        self.borders = np.minimum(borders, self.buckets.local_count)

    def _choose_halos(self, dt: float) -> None:
        """Halo of each Bucket: as far as its own traces go, and a bit."""
        speed = np.zeros(self.buckets.local_count, self.carrier.dtype)
        kernels.fastest_component(self.volume.with_ghosts(self.velocity), speed)
        distance = np.minimum(speed.astype(np.float64) * abs(self.factor), 1e3)
        distance = np.where(np.isfinite(distance), distance, 1e3)
        # A trace starts on a face and reads half a voxel farther; velocities around are larger.
        margin, least = (1.75, 3) if self.cubic else (0.75, 2)
        r = self.resolution
        widest = min(r, FARTHEST, (LARGEST_BLOCK - r) // 2)
        halos = np.clip(np.ceil(distance + margin), least, widest)
        self.halos = halos.astype(np.int64)
        # Stencils of long traces reach three voxels from their anchor.
        most = self.volume.domain.comm.maximum(float(max(self.halos.max(initial=0), 3)))
        self.halo = int(most)

    # -- schemes ---------------------------------------------------------------------------

    def advect(self, names: Sequence[str], scheme: str, limiter: int, kind: str | None) -> None:
        """Advect channels of one location that share their traces."""
        volume = self.volume
        channels = [volume.channel(name) for name in names]
        self._refresh(self.velocity, *names)
        self.rules = self.surroundings.rules(channels)
        self.carrier_rules = self.surroundings.rules([self.carrier])
        self.backgrounds = np.array(
            [value for channel in channels for value in channel.background],
            dtype=self.carrier.dtype,
        )
        is_face = channels[0].location == "face"
        self.locations = np.array([0, 1, 2] if is_face else [CELL], dtype=np.int64)
        phi = self._together(channels)
        with self._scratch("advected", channels) as first, self._scratch("back", channels) as other:
            result = self._run_scheme(scheme, limiter, phi, first, other)
            self._store(result, channels, kind)
        for name in names:
            volume.mark_written(name)

    def _run_scheme(
        self, scheme: str, limiter: int, phi: Array, first: VolumeChannel, other: VolumeChannel
    ) -> Array:
        nothing = np.empty((0, 0, 0), np.uint16)
        shape = (self.buckets.local_count, len(self.locations), self.resolution**3)
        stencils = np.empty(shape, np.uint16) if limiter != NO_LIMIT else nothing
        if scheme in ("semi_lagrangian", "cubic"):
            action = SAMPLE if limiter == NO_LIMIT else LIMITED
            hat = phi
            if limiter == CONSERVED:
                hat = other.values
                hat[:] = 0.0
            self._pass(
                phi, phi, hat, first.values, BACKWARDS, action, limiter, stencils, self.cubic
            )  # fmt: skip
            if limiter == CONSERVED:
                return self._hand_on_excess(first, other)
            return first.values
        hat = first.values
        self._pass(phi, phi, phi, hat, BACKWARDS, SAMPLE, NO_LIMIT, stencils)
        self._refresh(first.name)
        if scheme == "maccormack":
            self._pass(hat, phi, hat, other.values, FORWARDS, MACCORMACK, limiter, stencils)
            return other.values
        self._pass(hat, phi, hat, other.values, FORWARDS, BFECC, NO_LIMIT, stencils)
        self._refresh(other.name)
        self._pass(other.values, phi, hat, hat, BACKWARDS, LIMITED, limiter, stencils)
        return hat

    def _hand_on_excess(self, limited: VolumeChannel, excess: VolumeChannel) -> Array:
        """Give what the limiter cut off to neighbours; returns the result. Collective."""
        neighbours = self.buckets.neighbours
        self._refresh(limited.name)
        excess_to_rates(limited.values, neighbours, excess.values)
        self.volume.mark_written(excess.name)
        self._refresh(excess.name)
        result = np.empty_like(limited.values)
        hand_on(limited.values, excess.values, neighbours, result)
        return result

    def _pass(
        self,
        source: Array,
        phi: Array,
        hat: Array,
        out: Array,
        way: float,
        action: int,
        limiter: int,
        stencils: Array,
        cubic: bool = False,
    ) -> None:
        """Trace all voxels one way and write what the action makes of the source there."""
        r, local = self.resolution, self.buckets.local_count
        mask = np.empty((local, len(self.locations), r * r), np.uint32)
        escaped = np.zeros(local, np.int64)
        velocity = self.volume.with_ghosts(self.velocity)
        limits = 1 if phi is velocity else (2 if phi is source else 0)
        factor = way * self.factor
        kernels.advect_buckets(
            velocity, source, phi, hat, self.buckets.neighbours, self.buckets.local_coords,
            self.halos, self.locations,
            (self.number(factor), self.order, int(cubic), action, limiter),
            self.box, self.walls, self.carrier_rules, self.rules, self.backgrounds, self.steps,
            self.number(0.5), self.borders, int(self.halos.max(initial=2)),
            (int(source is velocity), limits), out, stencils, mask, escaped,
        )  # fmt: skip
        if self.volume.domain.comm.any(bool(escaped.any())):
            arrays = (source, phi, hat, out)
            self._follow_long_traces(arrays, mask, factor, action, limiter, cubic)

    # -- traces that leave their block -----------------------------------------------------

    def _follow_long_traces(
        self,
        arrays: tuple[Array, Array, Array, Array],
        mask: NDArray[np.uint32],
        factor: float,
        action: int,
        limiter: int,
        cubic: bool,
    ) -> None:
        for place, location in enumerate(self.locations):
            voxels = _listed(mask[:, place])
            rounds = self.volume.domain.comm.maximum(-(-len(voxels) // ROUND))
            for n in range(int(rounds)):
                some = voxels[n * ROUND : (n + 1) * ROUND]
                self._answer_round(arrays, some, int(location), factor, action, limiter, cubic)

    def _answer_round(
        self,
        arrays: tuple[Array, Array, Array, Array],
        voxels: NDArray[np.int32],
        location: int,
        factor: float,
        action: int,
        limiter: int,
        cubic: bool,
    ) -> None:
        source, phi, hat, out = arrays
        bucket, place = voxels[:, 0], np.unravel_index(voxels[:, 1], (self.resolution,) * 3)
        starts = self.buckets.local_coords[bucket].astype(np.float64) * self.resolution
        starts += np.stack(place, axis=1) + 0.5
        if location != CELL:
            starts[:, location] -= 0.5
        components = np.array([location] if location != CELL else range(source.shape[1]), np.int64)
        ends = self._trace(starts, factor)
        where: Any = (bucket[:, None], components[None, :], *(p[:, None] for p in place))
        answer = self._ask(source, components, ends, cubic=cubic)
        value, known = answer[:, :, 0], answer
        if action == MACCORMACK:
            value = hat[where] + 0.5 * (phi[where] - value)
            if limiter != NO_LIMIT:
                known = self._ask(phi, components, self._trace(starts, -factor))
        elif action == BFECC:
            value = phi[where] + 0.5 * (phi[where] - value)
        elif action == LIMITED and limiter != NO_LIMIT and phi is not source:
            known = self._ask(phi, components, ends)
        if limiter != NO_LIMIT:
            limited = _limited(value, known, revert=limiter == kernels.REVERTED)
            if limiter == CONSERVED:  # what the block made of these traces is not true
                hat[where] = value - limited
            value = limited
        out[where] = value

    def _trace(self, starts: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
        """Ends of traces that may pass through other ranks' Buckets. Collective."""
        first = self._velocity_at(starts)
        if self.order == 1:
            return self._walled(starts + factor * first)
        second = self._velocity_at(self._walled(starts + 0.5 * factor * first))
        if self.order == 2:
            return self._walled(starts + factor * second)
        third = self._velocity_at(self._walled(starts + 0.75 * factor * second))
        mean = (2.0 * first + 3.0 * second + 4.0 * third) / 9.0
        return self._walled(starts + factor * mean)

    def _walled(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        # What is not finite must stay so: the voxel becomes NaN, and the check of states finds it.
        inside = np.clip(points, self.walls[0], self.walls[1])
        return np.where(np.isfinite(points), inside, np.nan)

    def _velocity_at(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        answer = self._ask(
            self.carrier.values, np.arange(self.carrier.components), points, carrier=True
        )
        return answer[:, :, 0].astype(np.float64)

    def _ask(
        self,
        values: Array,
        components: NDArray[np.int64],
        points: NDArray[np.float64],
        *,
        cubic: bool = False,
        carrier: bool = False,
    ) -> Array:
        """Samples, bounds and trilinear values [n, components, 4] at places. Collective.

        Each place is answered by the rank that owns its anchor.
        """
        comm, r = self.volume.domain.comm, self.resolution
        for axis in np.flatnonzero(self.period):
            length = float(self.period[axis])
            points[:, axis] -= np.floor(points[:, axis] / length) * length
        if comm.size == 1:
            return self._answer(values, components, points, cubic, carrier)
        found = np.empty(len(points), np.bool_)
        anchors = np.empty((len(points), 3), np.int32)
        find_anchors(points, r, self.period, self.buckets.table_of_all, found, anchors)
        owners = self.volume.domain.owners(self.volume.domain.keys(anchors))
        owners = np.where(found, owners, comm.rank)  # nobody has these
        chosen = [np.flatnonzero(owners == rank) for rank in range(comm.size)]
        asked = comm.all_to_all([points[rows].reshape(-1) for rows in chosen])
        counts = [len(part) // 3 for part in asked]
        here = np.concatenate(asked).reshape(-1, 3)
        answers = self._answer(values, components, here, cubic, carrier)
        parts = np.split(answers, np.cumsum(counts)[:-1])
        back = comm.all_to_all([part.reshape(-1) for part in parts])
        answer = np.empty((len(points), len(components), 4), values.dtype)
        for rows, part in zip(chosen, back, strict=True):
            answer[rows] = part.reshape(-1, len(components), 4)
        return answer

    def _answer(
        self,
        values: Array,
        components: NDArray[np.int64],
        points: NDArray[np.float64],
        cubic: bool,
        carrier: bool,
    ) -> Array:
        """Answer places whose anchors are local to this rank."""
        sampled = np.empty((len(points), len(components), 4), values.dtype)
        is_face = carrier or len(self.locations) == 3
        axes = components if is_face else np.full(len(components), -1)
        ambient = np.array(self.surroundings.ambient_velocity, values.dtype)
        sample_points(
            values, components, axes, points, int(cubic), self.resolution, self.period, self.box,
            self.carrier_rules if carrier else self.rules,
            ambient if is_face else self.backgrounds, *self.buckets.table, sampled,
        )  # fmt: skip
        return sampled

    # -- storage ---------------------------------------------------------------------------

    def _refresh(self, *names: str) -> None:
        """Make the ghosts of channels current, as far as any trace needs them. Collective."""
        self.volume.refresh(*dict.fromkeys(names), halo=self.halo, corners=True)

    def _together(self, channels: Sequence[VolumeChannel]) -> Array:
        """All components in one array; a channel alone is used where it lies."""
        values = [self.volume.with_ghosts(channel.name) for channel in channels]
        return values[0] if len(values) == 1 else np.concatenate(values, axis=1)

    def _scratch(
        self, name: str, channels: Sequence[VolumeChannel]
    ) -> AbstractContextManager[VolumeChannel]:
        """Room for all components of some channels, as long as a block."""
        return self.volume.scratch(
            name,
            self.carrier.dtype,
            components=sum(channel.components for channel in channels),
            resolution=self.resolution,
            location=channels[0].location,
        )

    def _store(self, result: Array, channels: Sequence[VolumeChannel], kind: str | None) -> None:
        kinds = np.empty((0, 1, 1, 1, 1), np.uint8)
        if kind is not None:
            kinds = self.volume.local(kind).view(np.uint8)
        first = 0
        for channel in channels:
            kernels.store_result(result, first, kinds, self.volume.local(channel.name))
            first += channel.components


def _listed(mask: NDArray[np.uint32]) -> NDArray[np.int32]:
    """Voxels whose bits are set, as (Bucket, voxel)."""
    mask = np.ascontiguousarray(mask)
    counts = np.empty(len(mask), np.int64)
    count_escaped(mask, counts)
    buckets = np.flatnonzero(counts)
    ends = np.cumsum(counts[buckets])
    voxels = np.empty((int(ends[-1]) if len(ends) else 0, 2), np.int32)
    list_escaped(mask, buckets, ends - counts[buckets], voxels)
    return voxels


def _limited(value: Array, known: Array, *, revert: bool) -> Array:
    """Values brought between their bounds; what is no number stays so."""
    low, high = known[:, :, 1], known[:, :, 2]
    if revert:
        value = np.where((value >= low) & (value <= high), value, known[:, :, 3])
    return np.clip(value, low, high)
