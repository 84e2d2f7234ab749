"""Body Particles: a Particle System whose particles belong to bodies, and stay in their order.

    order    by body, and in it by id; a body is one run of rows
    owner    all particles of a body are on one rank, wherever in space they are

The unknowns of solids are owned by body (a strand, a mesh island), so that a direct solve per body
is local and matrix patterns last. What other Objects need by Bucket, such as a wind that hair
drags along, is an embedded Particle System, made from this one (`objects/basics/boundary.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loki_core.data import notes
from loki_core.data.grid_domain import GridDomain
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import SetupError
from loki_core.parallel.comm import Pending


class BodyParticles(ParticleSystem):
    """Particles of one kind (vertices, edges) of all bodies of this rank.

    Args:
        domain: The shared Grid Domain.
        name: What messages call it.
        dtype: Solids are always float64.
    """

    def __init__(self, domain: GridDomain, *, name: str, dtype: DTypeLike = np.float64) -> None:
        super().__init__(domain, name=name, dtype=dtype)
        self.add_channel("body", np.int64, default=-1)

    def rebucketize(self) -> None:
        """Put particles in the order of bodies and ids; where they are does not matter here."""
        if notes.running is not None:
            notes.running.note_layout(self)
        ids, body = self.local("id"), self.local("body")
        is_next = (body[1:] > body[:-1]) | ((body[1:] == body[:-1]) & (ids[1:] >= ids[:-1]))
        if self._removed is not None or not np.all(is_next):
            keep = (
                np.arange(self.count) if self._removed is None else np.flatnonzero(~self._removed)
            )
            self._reorder(keep[np.lexsort((ids[keep], body[keep]))].astype(np.uint32))
            self._removed = None
        self._ghosts_laid_out = True
        self._shrink()
        self.layout_version += 1

    def settle(self, owners: NDArray[np.int64]) -> None:
        """Move particles to these ranks, shape [count]; whole bodies go together. Collective."""
        if notes.running is not None:
            notes.running.note_layout(self)
        comm = self.domain.comm
        if comm.any(bool(np.any(owners != comm.rank))):
            rows = [np.flatnonzero(owners == rank) for rank in range(comm.size)]
            arrived = {}
            for name, channel in self.channels.items():
                values = channel.values
                received = comm.all_to_all([values[part].reshape(-1) for part in rows])
                arrived[name] = np.concatenate(received).reshape(-1, *channel.shape)
            self.count = self.ghost_count = 0
            self._removed = None
            self._reserve(len(arrived["id"]))
            self.count = len(arrived["id"])
            for name, channel in self.channels.items():
                channel.values[: self.count] = arrived[name]
        self.rebucketize()

    def body_offsets(self) -> NDArray[np.int64]:
        """First row of each local body, and the end, shape [bodies + 1]."""
        bodies = self.local("body")
        starts = np.flatnonzero(np.append(True, bodies[1:] != bodies[:-1])[: self.count])
        return np.append(starts, self.count).astype(np.int64)

    def occupied_buckets(self) -> NDArray[np.int32]:
        """Lattice coordinates of the Buckets that particles are in; any rank may own them."""
        coords = self.domain.bucket_coordinates(self.local("position"), label=self.name)
        return np.unique(coords, axis=0).astype(np.int32)

    def home_keys(self) -> NDArray[np.uint64]:
        """Curve place of each local body's first particle, which says where it is owned."""
        first = self.body_offsets()[:-1]
        return self.domain.home_keys(self.local("position")[first], label=self.name)

    def post_ghosts(self, names: object, *, halo: int = 1, corners: bool = True) -> Pending | None:
        """Bodies have no ghosts: neighbours in space are not neighbours in a body."""
        if self.domain.comm.size > 1:
            raise SetupError(
                f"{self.name}: particles of bodies have no ghosts; read them by id, or through "
                "their boundary particles"
            )
        return None
