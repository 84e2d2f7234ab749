"""Grid Domain: the shared map of space into Buckets, and who owns each of them.

Space is a lattice of cubic Buckets (level, i, j, k); a Bucket of level l is 2^l times as large.
Buckets are ordered along a Hilbert or Morton curve, and each rank owns one run of that curve, so
the owner of any Bucket, present or not, follows from `cuts` alone.

Positions are stored relative to `origin`, a float64 world offset that lies on the lattice near the
data: a scene far from the world's origin loses nothing in single precision. The lattice starts at
the lower side of the box, if there is one. Axes may be periodic (the box is then a whole number of
Buckets); a box that is not periodic may end anywhere inside a Bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loki_core.data.load_balance import propose_cuts
from loki_core.errors import InputError, SetupError
from loki_core.kernels.basics.space_filling_curve import bucket_keys, cell_keys
from loki_core.parallel.comm import SERIAL, Communicator

BUCKET_BITS = 18  # per axis; sort cells, 8 a Bucket and axis, have 21
CELL_KEY_BITS = 9  # that the key of a sort cell has after its Bucket's
HALF_RANGE = 1 << (BUCKET_BITS - 1)
MAXIMUM_LEVEL = 15

#: Entry of a neighbour table where the lattice goes on but no Bucket is stored.
EMPTY = -1
#: Entry of a neighbour table where the neighbouring space is covered by Buckets one level finer.
FINER = -8
#: Names of the six faces of the domain box; the neighbour entry of face f is -2 - f.
FACES = ("x lower", "x upper", "y lower", "y upper", "z lower", "z upper")


@dataclass(frozen=True)
class BoundaryCondition:
    """What lies beyond a face of the domain box.

    Attributes:
        kind: "open", "wall", "inflow" or "periodic".
        velocity: Velocity on the outer face [m/s]: the wall's own, or the inflow's.
    """

    kind: str = "open"
    velocity: tuple[float, float, float] = (0.0, 0.0, 0.0)


BOUNDARY_KINDS = ("open", "wall", "inflow", "periodic")


def neighbour_code(face: int) -> int:
    """Negative neighbour entry that stands for a face of the domain box (0..5)."""
    return -2 - face


def owners_by(cuts: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Ranks whose run of the curve has these keys: rank r's are in [cuts[r], cuts[r + 1])."""
    return np.searchsorted(cuts[1:-1], keys, side="right").astype(np.int32)


class GridDomain:
    """Map of space into Buckets, shared by all data of a Solver Setup.

    Args:
        bucket_size: Edge of a level-0 Bucket [m].
        near: World position that the data lie around [m]; the origin is snapped to the lattice near
            it.
        curve: "hilbert" or "morton".
        lower: Lower corner of the domain box [m] or None; components may be infinite.
        upper: Upper corner of the domain box [m] or None.
        boundaries: Six conditions in the order of `FACES`.
        comm: The ranks that share the domain.
    """

    def __init__(
        self,
        bucket_size: float,
        *,
        near: ArrayLike = (0.0, 0.0, 0.0),
        curve: str = "hilbert",
        lower: Sequence[float] | None = None,
        upper: Sequence[float] | None = None,
        boundaries: Sequence[BoundaryCondition] | None = None,
        comm: Communicator = SERIAL,
    ) -> None:
        if not (np.isfinite(bucket_size) and bucket_size > 0.0):
            raise SetupError(f"Grid Domain: bucket_size = {bucket_size} m must be positive")
        if curve not in ("hilbert", "morton"):
            raise SetupError(f'Grid Domain: curve = "{curve}" is neither "hilbert" nor "morton"')
        self.bucket_size = float(bucket_size)
        self.curve = curve
        self.comm = comm
        self.lower = np.full(3, -np.inf) if lower is None else np.array(lower, dtype=np.float64)
        self.upper = np.full(3, np.inf) if upper is None else np.array(upper, dtype=np.float64)
        self.boundaries = tuple(boundaries) if boundaries else (BoundaryCondition(),) * 6
        self._check_box()
        self.periodic = tuple(self.boundaries[2 * axis].kind == "periodic" for axis in range(3))
        self._check_periodic_axes()
        # Where there is a box the lattice starts at its lower side, so that walls lie on faces of
        # voxels; elsewhere at the world's origin.
        anchor = np.where(np.isfinite(self.lower), self.lower, 0.0)
        steps = np.round((np.asarray(near, dtype=np.float64) - anchor) / self.bucket_size)
        steps = np.where(self.periodic, 0.0, steps)
        self.origin: NDArray[np.float64] = anchor + steps * self.bucket_size
        #: Finest Bucket keys at which the curve is cut: rank r owns keys in [cuts[r], cuts[r+1]).
        self.cuts = self._even_cuts()
        #: The same for bodies, by keys of sort cells; they need not be where their Bucket is.
        self.body_cuts = self.cuts << np.uint64(CELL_KEY_BITS)

    # -- the box ---------------------------------------------------------------------------

    def _check_box(self) -> None:
        if len(self.boundaries) != 6:
            raise SetupError(
                f"Grid Domain: 6 boundary conditions expected, {len(self.boundaries)} given"
            )
        for face, condition in enumerate(self.boundaries):
            if condition.kind not in BOUNDARY_KINDS:
                raise SetupError(
                    f'Grid Domain: boundary at {FACES[face]} is "{condition.kind}"; '
                    f"known: {', '.join(BOUNDARY_KINDS)}"
                )
        for axis in range(3):
            if not self.lower[axis] < self.upper[axis]:
                raise SetupError(
                    f"Grid Domain: the box is empty along {'xyz'[axis]}: "
                    f"lower {self.lower[axis]} m, upper {self.upper[axis]} m"
                )

    def _check_periodic_axes(self) -> None:
        for axis in range(3):
            kinds = {self.boundaries[2 * axis].kind, self.boundaries[2 * axis + 1].kind}
            if "periodic" not in kinds:
                continue
            name = "xyz"[axis]
            if kinds != {"periodic"}:
                raise SetupError(
                    f"Grid Domain: axis {name} is periodic on one side only; set both sides"
                )
            length = self.upper[axis] - self.lower[axis]
            if not np.isfinite(length):
                raise SetupError(
                    f"Grid Domain: axis {name} is periodic but the box has no end there"
                )
            count = round(length / self.bucket_size)
            if count < 1 or abs(count * self.bucket_size - length) > 1e-9 * length:
                near = sorted({length / max(1, count + step) for step in (-1, 0, 1)})
                raise SetupError(
                    f"Grid Domain: the periodic axis {name} is {length:g} m long, no whole number "
                    f"of Buckets of {self.bucket_size:g} m; nearest Bucket sizes: "
                    + ", ".join(f"{size:.9g} m" for size in near)
                )

    @property
    def period(self) -> NDArray[np.int32]:
        """Buckets along each periodic axis at level 0, and 0 for axes that are not periodic."""
        length = np.where(self.periodic, self.upper - self.lower, 0.0)
        return np.round(length / self.bucket_size).astype(np.int32)

    @property
    def reach(self) -> float:
        """Distance from the origin [m] within which every position has a key."""
        return (HALF_RANGE - 1) * self.bucket_size

    @property
    def relative_lower(self) -> NDArray[np.float64]:
        """Lower corner of the box relative to `origin` [m]; may be infinite."""
        return self.lower - self.origin

    @property
    def relative_upper(self) -> NDArray[np.float64]:
        """Upper corner of the box relative to `origin` [m]; may be infinite."""
        return self.upper - self.origin

    def bucket_range(self, level: int = 0) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Lattice range [first, last) of Buckets that the box touches, within the key range."""
        size = self.bucket_size * 2.0**level
        half = HALF_RANGE >> level
        # A box that ends on a lattice line but for round-off does not reach into the next Bucket.
        first = np.floor(self.relative_lower / size + 1e-9)
        last = np.ceil(self.relative_upper / size - 1e-9)
        limits = np.clip([first, last], -half, half)
        return limits[0].astype(np.int32), limits[1].astype(np.int32)

    def to_world(self, relative: NDArray[Any]) -> NDArray[np.float64]:
        """World positions [m] of positions relative to the origin, in float64."""
        return np.asarray(relative, dtype=np.float64) + self.origin

    def to_relative(self, world: NDArray[Any]) -> NDArray[np.float64]:
        """Positions relative to the origin [m] of world positions, in float64."""
        return np.asarray(world, dtype=np.float64) - self.origin

    def bucket_coordinates(
        self, relative: NDArray[Any], *, label: str = "position"
    ) -> NDArray[np.int32]:
        """Level-0 lattice coordinates of the Buckets that hold positions relative to the origin."""
        lattice = np.floor(np.asarray(relative, dtype=np.float64) / self.bucket_size)
        bad = ~np.all(np.isfinite(lattice) & (np.abs(lattice) < HALF_RANGE - 1), axis=-1)
        if np.any(bad):
            index = int(np.argmax(bad))
            raise InputError(
                f"{label}[{index}] = {np.asarray(relative)[index]} m from the domain's origin "
                f"{self.origin} m is not finite or farther than {self.reach:g} m: move it "
                f"nearer, or enlarge bucket_size ({self.bucket_size:g} m)"
            )
        return self.wrap(lattice.astype(np.int32))

    def wrap(self, coords: NDArray[np.int32], level: int = 0) -> NDArray[np.int32]:
        """Bring lattice coordinates back into the box along periodic axes."""
        period = self.period >> level
        wrapped = coords.copy()
        for axis in np.flatnonzero(period):
            wrapped[:, axis] %= period[axis]
        return wrapped

    # -- ownership -------------------------------------------------------------------------

    def keys(
        self, coords: NDArray[np.int32], levels: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint64]:
        """Places of Buckets on the curve, as keys of the finest level."""
        if levels is None:
            return bucket_keys(coords, self.curve)[0]
        # The prefix of a fine key is the coarse key, so a coarse Bucket starts where its first
        # child does.
        shift = levels.astype(np.int32)
        fine = (coords << shift[:, None]).astype(np.int32)
        prefix = np.uint64(3) * levels.astype(np.uint64)
        keys: NDArray[np.uint64] = (bucket_keys(fine, self.curve)[0] >> prefix) << prefix
        return keys

    def home_keys(self, relative: NDArray[Any], *, label: str) -> NDArray[np.uint64]:
        """Places on the curve of the sort cells of positions [m]: finer than those of Buckets."""
        self.bucket_coordinates(relative, label=label)  # which refuses what is out of range
        cells = np.floor(np.asarray(relative, np.float64) * (8.0 / self.bucket_size))
        for axis in np.flatnonzero(self.period):
            cells[:, axis] %= 8 * self.period[axis]
        return cell_keys(cells.astype(np.int32), self.curve)

    def owners(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Ranks that own the Buckets with these keys, whether they are stored or not."""
        return owners_by(self.cuts, keys)

    def body_owners(self, home_keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Ranks that bodies belong to which begin at these places; see `home_keys`."""
        return owners_by(self.body_cuts, home_keys)

    def balance(self, keys: NDArray[np.uint64], weights: NDArray[np.float64]) -> bool:
        """Cut the curve anew by weight; returns whether the cuts changed. Collective.

        Args:
            keys: This rank's Bucket keys in curve order.
            weights: Cost of each of these Buckets.
        """
        cuts = propose_cuts(self.comm, keys, weights, self.cuts[-1])
        if cuts is None or np.array_equal(cuts, self.cuts):
            return False
        self.cuts = cuts
        return True

    @property
    def _key_end(self) -> np.uint64:
        return np.uint64(1 << (3 * BUCKET_BITS))

    def _even_cuts(self) -> NDArray[np.uint64]:
        return np.array(
            [(int(self._key_end) * rank) // self.comm.size for rank in range(self.comm.size + 1)],
            dtype=np.uint64,
        )
