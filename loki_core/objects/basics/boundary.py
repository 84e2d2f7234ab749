"""Boundary: an Object's points sorted by Bucket, for whoever meets them with voxels.

The points of solids are kept by body, those of particles move every step. A Boundary is a Particle
System of its own with a copy of their places, in the Buckets of a volume and on the ranks that own
them; values travel to and fro by a plan that is made once per substep.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.accessors import MultiAccessor
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import DivergenceError, InputError
from loki_core.kernels.gas.face_transfer import (
    count_reaching,
    faces_to_points,
    list_reaching,
    points_to_faces,
)
from loki_core.objects.basics.capabilities import Faces, Immersed
from loki_core.pipeline.task import Weights

Array = NDArray[Any]

#: What Tasks read of the points, which they name so, when they gather from faces and add to them.
POINTS = ("points.position",)


class Boundary:
    """Points of an Object in the Buckets of a volume.

    Attributes:
        points: The sorted copy.
        volume_rows: The volume's Bucket of each local Bucket of points, or negative.
        point_buckets: The points' Bucket around each local Bucket of the volume, [local, 27].
    """

    def __init__(self, carrier: ParticleSystem, volume: DiscreteVolume, *, name: str) -> None:
        self.carrier = carrier
        self.volume = volume
        self.points = ParticleSystem(carrier.domain, name=name, dtype=np.float64)
        self.points.add_channel("source_rank", np.int64)
        self.points.add_channel("source_row", np.int64)
        self._reaching: tuple[Array, Array] | None = None
        self._wet_faces: Array | None = None
        #: Part of each point that is in the fluid, along each axis, [n, 3]; None for all of it.
        self.wet: Array | None = None

    @classmethod
    def between(cls, target: Immersed, fluid: Faces) -> Boundary:
        """The one that all couplings of two Objects share."""
        shared: dict[int, Boundary] = fluid.boundaries_of_points
        if id(target) not in shared:
            name = f"{target.path} in {fluid.path}"
            shared[id(target)] = cls(target.data["particles"], fluid.volume, name=name)
        return shared[id(target)]

    def weights(self, cost: float) -> Weights:
        """What points weigh in the Buckets that they are in, and are worked on.

        Args:
            cost: Of a point (`data/cost_model.py`).
        """
        domain = self.carrier.domain
        places = domain.bucket_coordinates(self.carrier.local("position"), label=self.carrier.name)
        places = places[self.volume.buckets.stored(places)]
        keys, counts = np.unique(domain.keys(places), return_counts=True)
        return keys, cost * counts.astype(np.float64)

    def take(self) -> None:
        """Take the carrier's points as they are now. Collective.

        The fluid does so in each Newton iteration, for all couplings.
        """
        self._reaching = None
        points, comm = self.points, self.carrier.domain.comm
        points.count = points.ghost_count = 0
        rows = np.arange(self.carrier.count, dtype=np.int64)
        values = {
            "position": self.carrier.local("position").astype(np.float64),
            "source_row": rows,
            "source_rank": np.full(len(rows), comm.rank, np.int64),
        }
        points.append(values, ids=self.carrier.local("id"))
        buckets = self.volume.buckets
        points.track(buckets.local_coords)
        try:
            points.rebucketize()
        except InputError as error:  # points were in range when the step began
            failed = DivergenceError(str(error))
            failed.together = error.together
            raise failed from error
        source = points.local("source_rank")
        self._chosen = [np.flatnonzero(source == rank) for rank in range(comm.size)]
        row = points.local("source_row")
        self._rows = comm.all_to_all([row[chosen] for chosen in self._chosen])
        count = points.buckets.local_count
        self.volume_rows = points.buckets.index_in(buckets)[:count].astype(np.int32)
        self.volume_rows[self.volume_rows >= buckets.local_count] = -1
        sizes = np.diff(points.offsets[: count + 1])
        self._outside = np.repeat(self.volume_rows < 0, sizes)  # where there are no faces
        self.point_buckets = MultiAccessor(points, self.volume).particle_buckets

    def fetch(self, values: Array) -> Array:
        """Bring values of the sorted points [n, ...] to the carrier's rows. Collective."""
        comm, shape = self.carrier.domain.comm, values.shape[1:]
        if comm.size == 1:
            brought = np.empty_like(values)
            brought[self._rows[0]] = values
            return brought
        parts = comm.all_to_all([values[chosen].reshape(-1) for chosen in self._chosen])
        brought = np.empty((self.carrier.count, *shape), values.dtype)
        for rows, part in zip(self._rows, parts, strict=True):
            brought[rows] = part.reshape(-1, *shape)
        return brought

    def send(self, name: str, values: Array) -> None:
        """Bring values of the carrier's rows [n, ...] to a channel of the points. Collective."""
        comm, shape = self.carrier.domain.comm, values.shape[1:]
        if comm.size == 1:
            np.take(values, self._rows[0], axis=0, out=self.points.local(name))
            return
        parts = comm.all_to_all([values[rows].reshape(-1) for rows in self._rows])
        target = self.points.local(name)
        for chosen, part in zip(self._chosen, parts, strict=True):
            target[chosen] = part.reshape(-1, *shape)
        self.points.mark_written(name)

    def gather(self, faces: Array, background: Sequence[float] = (0.0, 0.0, 0.0)) -> Array:
        """Values at the carrier's points of faces with ghosts. Collective.

        Args:
            background: What faces are that no Bucket has.
        """
        return self._gather(faces, background, asks=False)[0]

    def gather_stored(
        self, faces: Array, background: Sequence[float] = (0.0, 0.0, 0.0)
    ) -> tuple[Array, Array]:
        """The same, and how much of the values comes from faces that Buckets have. Collective."""
        return self._gather(faces, background, asks=True)

    def _gather(
        self, faces: Array, background: Sequence[float], *, asks: bool
    ) -> tuple[Array, Array]:
        points, volume = self.points, self.volume
        values = np.zeros((points.count, 3))
        stored = np.zeros((points.count if asks else 1, 3))
        faces_to_points(
            points.local("position"), points.offsets, points.buckets.coords,
            volume.domain.bucket_size, self.volume_rows, volume.buckets.neighbours, faces,
            np.array(background, np.float64), values, stored, int(asks),
        )  # fmt: skip
        return self.fetch(values), self.fetch(stored) if asks else stored

    # -- where the fluid is not everywhere -------------------------------------------------

    def gather_open(self, faces: Array, is_open: Array) -> Array:
        """Mean of the faces with ghosts that are open (1 or 0) at the points. Collective."""
        return _divided(self.gather(faces * is_open), self.gather(is_open))

    def immerse(self, wet_faces: Array | None) -> None:
        """Let points meet these faces alone, 1 or 0, with ghosts; None for all. Collective."""
        self._wet_faces = wet_faces
        self.wet = None if wet_faces is None else self.gather(wet_faces)

    def gather_flow(self, faces: Array, background: Sequence[float]) -> tuple[Array, Array]:
        """Mean of the fluid's faces at the points, and how much of it is stored. Collective."""
        if self._wet_faces is None or self.wet is None:
            return self.gather_stored(faces, background)
        flow = self.gather(faces * self._wet_faces)
        return _divided(flow, self.wet), np.ones_like(flow)

    def splat_reaction(self, *pairs: tuple[Array, Array]) -> None:
        """Add values of points to the fluid's local faces: the transpose of `gather_flow`.

        The faces are all zero before. Collective.
        """
        if self._wet_faces is None or self.wet is None:
            self.splat(*pairs)
            return
        self.splat(*((_divided(given, self.wet), target) for given, target in pairs))
        local = self._wet_faces[: self.volume.buckets.local_count]
        for _, target in pairs:
            target *= local

    def near_rows(self) -> NDArray[np.int64]:
        """Local Buckets of the volume that the last splat reached."""
        assert self._reaching is not None
        counts = np.diff(self._reaching[0]).reshape(-1, 27)
        source = self.point_buckets[: self.volume.buckets.local_count]
        row, way = np.nonzero(source >= 0)  # below that are codes of sides of the box
        # Seen from the points' Bucket, the direction is the opposite one.
        reached = counts[source[row, way], 26 - way] > 0
        return np.unique(row[reached])

    def splat(self, *pairs: tuple[Array, Array]) -> None:
        """Add up to three values [n, 3] of the carrier's points to local faces. Collective.

        It is the transpose of `gather`.

        Args:
            pairs: Values, and the faces that they are added to.
        """
        points, volume = self.points, self.volume
        with ExitStack() as lent:
            names = []
            for number, (given, _) in enumerate(pairs):
                room = points.scratch(f"splat{number}", given.dtype, given.shape[1:])
                names.append(lent.enter_context(room))
                self.send(names[-1], given)
                points.local(names[-1])[self._outside] = 0.0  # they gather nothing either
            position, *values = self.with_neighbours("position", *names)
            if self._reaching is None:
                self._reaching = self._find_reaching(position, pairs[0][1].shape[2])
            faces = [target for _, target in pairs]
            spare = 3 - len(pairs)
            points_to_faces(
                position, *values, *(values[:1] * spare), len(pairs), *self._reaching,
                points.buckets.coords, volume.domain.bucket_size, volume.buckets.local,
                self.point_buckets, *faces, *(faces[:1] * spare),
            )  # fmt: skip

    def _find_reaching(self, position: Array, r: int) -> tuple[Array, Array]:
        """Which points of each Bucket reach the faces of each Bucket around it."""
        points, size = self.points, self.volume.domain.bucket_size
        offsets, coords = points.offsets, points.buckets.coords
        counts = np.empty((len(offsets) - 1, 27), np.int64)
        count_reaching(position, offsets, coords, size, r, counts)
        starts = np.append(0, np.cumsum(counts)).astype(np.int64)
        members = np.empty(int(starts[-1]), np.int32)
        list_reaching(position, offsets, coords, size, r, starts, members)
        return starts, members

    def with_neighbours(self, *names: str) -> list[Array]:
        """Channels of local points and those of neighbouring Buckets, current. Collective."""
        pending = self.points.post_ghosts(names)
        if pending is not None:
            pending.wait()
        return [self.points.with_ghosts(name) for name in names]


def _divided(values: Array, part: Array) -> Array:
    """Values over a part of them that there is, 0 where there is none."""
    divided: Array = np.divide(values, part, out=np.zeros_like(values), where=part > 0.0)
    return divided
