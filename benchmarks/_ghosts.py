"""Ghost traffic, counted twice: as declarations and topology foretell it, and as it is sent.

A Task, or a solve inside one, asks for so many layers of ghosts of some channels. From the Buckets
of all ranks, who owns them and the size of a voxel or particle, that is a number of bytes; it is
found here from the list of Buckets alone, with none of the plans by which data are exchanged. A
ledger of writes says which ghosts are stale: only those travel.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.particle_system import ParticleSystem
from loki_core.parallel.comm import Communicator

DIRECTIONS = np.array([d for d in product((-1, 0, 1), repeat=3) if any(d)])
COUNT_BYTES = 8  # of how many particles a Bucket has, which travels ahead of them


class GhostAudit:
    """Compares the two counts, from `watch` on; on this rank.

    Attributes:
        declared: Bytes that were asked for and stale.
        sent: Bytes that the communicator sent for it.
        requests: How often ghosts were asked for that anything travels for.
        wrong: How often the two counts of a request differ.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.declared = self.sent = self.requests = self.wrong = 0
        self._known: dict[tuple[int, str], tuple[Any, int, int, bool]] = {}
        self._borders: dict[int, tuple[Any, Any]] = {}
        self._laid_out: dict[int, int] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Count what passes through Discrete Volumes and Particle Systems."""
        hooks = [
            (DiscreteVolume, "post_ghosts", self._voxels_asked),
            (DiscreteVolume, "add_ghosts_to_owners", self._voxels_returned),
            (DiscreteVolume, "mark_written", self._written),
            (ParticleSystem, "post_ghosts", self._particles_asked),
            (ParticleSystem, "mark_written", self._written),
        ]
        kept = [(kind, name, getattr(kind, name)) for kind, name, _ in hooks]
        for kind, name, foretell in hooks:
            setattr(kind, name, self._counting(getattr(kind, name), foretell))
        try:
            yield
        finally:
            for kind, name, method in kept:
                setattr(kind, name, method)

    def _counting(self, method: Callable[..., Any], foretell: Callable[..., int]) -> Any:
        def counted(holder: Any, *arguments: Any, **keywords: Any) -> Any:
            if self.comm.size == 1:
                return method(holder, *arguments, **keywords)
            declared = foretell(holder, *arguments, **keywords)
            before = self.comm.bytes_sent
            result = method(holder, *arguments, **keywords)
            sent = self.comm.bytes_sent - before
            self.declared += declared
            self.sent += sent
            self.requests += sent > 0
            self.wrong += sent != declared
            return result

        return counted

    # -- what is stale -------------------------------------------------------------------------

    def _written(self, holder: Any, name: str) -> int:
        self._known.pop((id(holder), name), None)
        return 0

    def _is_stale(self, holder: Any, name: str, halo: int, corners: bool) -> bool:
        """Whether ghosts have to travel; from now on they are current."""
        channel, place = holder.channel(name), (id(holder), name)
        same, version, layers, has_corners = self._known.get(place, (None, -1, 0, False))
        is_same = same is not None and same() is channel and version == holder.layout_version
        if is_same and layers >= halo and (has_corners or not corners):
            return False
        self._known[place] = (weakref.ref(channel), holder.layout_version, halo, corners)
        return True

    # -- what a request comes to ---------------------------------------------------------------

    def _voxels_asked(
        self, volume: DiscreteVolume, names: Any, *, halo: int = 1, corners: bool = False
    ) -> int:
        total = 0
        for name in names:
            if self._is_stale(volume, name, halo, corners):
                channel = volume.channel(name)
                width = channel.components * channel.dtype.itemsize
                along = np.where(DIRECTIONS == 0, channel.resolution, halo).prod(axis=1)
                seen = self._border(volume)[0].sum(axis=0)
                faces = np.abs(DIRECTIONS).sum(axis=1) == 1
                total += width * int((along * seen)[slice(None) if corners else faces].sum())
        return total

    def _voxels_returned(self, volume: DiscreteVolume, name: str) -> int:
        """Whole Buckets of others that touch local ones."""
        return volume.channel(name).bytes_per_bucket * self._border(volume)[2]

    def _particles_asked(
        self, particles: ParticleSystem, names: Any, *, halo: int = 1, corners: bool = True
    ) -> int:
        """Particles of border Buckets, once for each rank around, and first their numbers."""
        copies = self._border(particles)[1]
        counts = np.diff(particles.offsets)[: len(copies)]
        total = 0
        if self._laid_out.get(id(particles)) != particles.layout_version:
            self._laid_out[id(particles)] = particles.layout_version
            total += COUNT_BYTES * int(copies.sum())
        for name in names:
            if self._is_stale(particles, name, halo, corners=True):
                total += particles.channel(name).bytes_per_particle * int((counts * copies).sum())
        return total

    def _border(self, holder: Any) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Where local Buckets meet other ranks'.

        Returns:
            Whether a foreign Bucket is there, [local, 26]; for how many ranks each local Bucket is
            a neighbour, [local]; foreign Buckets that touch local ones.
        """
        buckets = holder.buckets
        same, border = self._borders.get(id(holder), (None, None))
        if same is None or same() is not buckets:
            border = find_border(holder.domain, buckets.all_coords, self.comm.rank)
            self._borders[id(holder)] = (weakref.ref(buckets), border)
        assert border is not None
        return border


def find_border(
    domain: Any, coords: NDArray[np.int32], rank: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64], int]:
    """Where a rank's Buckets meet others', from the list of all Buckets; see `_border`.

    Args:
        domain: The Grid Domain, for its curve, its cuts and its periods.
        coords: Lattice coordinates of all Buckets of all ranks, of level 0, shape [n, 3].
        rank: Whose.
    """
    owners = np.searchsorted(domain.cuts[1:-1], domain.keys(coords), side="right")
    place = {tuple(one): int(owner) for one, owner in zip(coords.tolist(), owners, strict=True)}
    period = domain.period.tolist()
    local = coords[owners == rank]
    foreign = np.zeros((len(local), len(DIRECTIONS)), bool)
    copies = np.zeros(len(local), np.int64)
    touched = set()
    for row, one in enumerate(local.tolist()):
        ranks = set()
        for column, step in enumerate(DIRECTIONS.tolist()):
            beside = tuple(
                (a + b) % length if length else a + b
                for a, b, length in zip(one, step, period, strict=True)
            )
            owner = place.get(beside, rank)
            if owner != rank:
                foreign[row, column] = True
                ranks.add(owner)
                touched.add(beside)
        copies[row] = len(ranks)
    return foreign, copies, len(touched)
