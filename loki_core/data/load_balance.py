"""Load balance: cut the space-filling curve into parts of nearly equal weight, where that pays.

Buckets stand in curve order with a weight each. The cut minimises the heaviest part: a
bisection on the bound, where a greedy sweep tells whether `parts` runs of at most that weight can
hold everything. The heaviest part is then at most the mean plus one Bucket, and in practice much
nearer to the mean.

New cuts cost something: data travel, and all that was made for the old Buckets (tables, matrices,
plans) is made anew. `Prospect` compares this with what is gained until the curve may be cut again.
What is not owned by Bucket but by body is cut in the same way, by the finer keys of sort cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.parallel.comm import Communicator

#: Runs of Buckets that all ranks together tell of when the curve is cut, and one rank at least.
ALL_RUNS, FEWEST_RUNS = 1 << 16, 64
#: Of the weight of the heaviest part, to which it is made the least: some twenty sweeps.
PRECISION = 1.0e-6
#: What making everything anew costs, in substeps of the heaviest part; and what is left of that
#: where Buckets have come or gone, so that most of it is due anyway.
RENEWAL, RENEWAL_WHEN_DUE = 1.5, 0.25
#: What the journey of an element costs, in substeps of that element.
JOURNEY = 1.0


@dataclass(frozen=True)
class Prospect:
    """What new cuts promise; all in the unit of the weights, of one substep.

    Attributes:
        before: Weight of the heaviest part as it is.
        after: Weight of the heaviest part with the new cuts.
        mean: Weight of all over the number of parts.
        moved: The most that one part sends or receives.
    """

    before: float
    after: float
    mean: float
    moved: float

    def pays(self, substeps: float, *, is_due: bool = False) -> bool:
        """Whether so many substeps gain more than the change costs.

        Args:
            is_due: Whether Buckets have changed, so that much is made anew in any case.
        """
        renewal = RENEWAL_WHEN_DUE if is_due else RENEWAL
        return (self.before - self.after) * substeps > renewal * self.after + JOURNEY * self.moved

    @property
    def imbalance_before(self) -> float:
        """Heaviest part over the mean, as it is; 1 where there is nothing."""
        return self.before / self.mean if self.mean > 0.0 else 1.0

    @property
    def imbalance_after(self) -> float:
        """Heaviest part over the mean, with the new cuts."""
        return self.after / self.mean if self.mean > 0.0 else 1.0


def propose_cuts(
    comm: Communicator, keys: NDArray[np.uint64], weights: NDArray[np.float64], end: np.uint64
) -> NDArray[np.uint64] | None:
    """Keys [ranks + 1] that share the weights of all ranks evenly; None if there are none.

    Where there is much to share, ranks tell each other the weights of runs of it, so that what
    every rank gathers does not grow with the scene. Collective.

    Args:
        keys: Places on the curve that have weight here, ascending, each once; other ranks may have
            the same.
        weights: Cost of each of these.
        end: Where the curve ends.
    """
    runs = join_runs(keys, weights, max(FEWEST_RUNS, ALL_RUNS // comm.size))
    gathered = np.concatenate(comm.all_gather(np.ascontiguousarray(runs[0])))
    given = np.concatenate(comm.all_gather(np.ascontiguousarray(runs[1])))
    if gathered.size == 0:
        return None
    all_keys, places = np.unique(gathered, return_inverse=True)
    summed = np.bincount(places, given, minlength=len(all_keys))
    cuts = np.append(all_keys, end)[cut_by_weight(summed, comm.size)]
    cuts[0], cuts[-1] = 0, end
    return cuts


def foresee(
    comm: Communicator,
    present: NDArray[np.int32],
    future: NDArray[np.int32],
    weights: NDArray[np.float64],
) -> Prospect:
    """What comes of a change of ranks; sums are in rank order, so equal on all. Collective.

    Args:
        present: Rank that works on each of these weights now.
        future: Rank that would.
    """
    staying = np.where(present == future, weights, 0.0)
    columns = [
        np.bincount(ranks, values, minlength=comm.size).astype(np.float64)  # even of none
        for ranks, values in ((present, weights), (future, weights), (future, staying))
    ]
    told = np.stack(columns, axis=1)
    rows = comm.all_to_all([told[rank] for rank in range(comm.size)])
    before, after, stays = np.sum(np.reshape(rows, (comm.size, 3)), axis=0)
    most = np.array([before, after, max(before, after) - stays])
    heaviest = comm.all_reduce(most, "max")
    total = float(comm.all_reduce(np.array([before]), "sum")[0])
    return Prospect(float(heaviest[0]), float(heaviest[1]), total / comm.size, float(heaviest[2]))


def cut_by_weight(weights: NDArray[Any], parts: int) -> NDArray[np.int64]:
    """Return `parts + 1` indices into the curve-ordered Buckets; part p owns [cuts[p], cuts[p+1]).

    Args:
        weights: Cost of each Bucket in curve order, not negative, shape [bucket_count].
        parts: Number of ranks.
    """
    ends = np.concatenate(([0.0], np.cumsum(weights, dtype=np.float64)))
    total = ends[-1]
    if total == 0.0:
        return np.linspace(0, len(weights), parts + 1).astype(np.int64)
    low = max(total / parts, float(np.max(weights)))
    high = total / parts + float(np.max(weights))
    cuts = _sweep(ends, high, parts)
    while high - low > PRECISION * high:
        bound = 0.5 * (low + high)
        narrower = _sweep(ends, bound, parts)
        if narrower[-1] == len(weights):
            cuts, high = narrower, float(np.diff(ends[narrower]).max())  # which is not above it
        else:
            low = bound
    return cuts


def _sweep(ends: NDArray[np.float64], bound: float, parts: int) -> NDArray[np.int64]:
    """Fill parts in turn, each up to the bound; the last cut tells how far they reach."""
    cuts = np.zeros(parts + 1, dtype=np.int64)
    for part in range(parts):
        start = ends[cuts[part]]
        reach = np.searchsorted(ends, start + bound * (1.0 + 1e-12), side="right") - 1
        cuts[part + 1] = max(reach, cuts[part])
    return cuts


def join_runs(
    keys: NDArray[np.uint64], weights: NDArray[np.float64], most: int
) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """Join neighbours on the curve until at most `most` runs of about equal weight are left.

    Args:
        keys: Places on the curve, ascending, each once.
        weights: Cost of each, not negative.
        most: Number of runs, at least 1.

    Returns:
        Key of the first Bucket of each run, and the run's weight.
    """
    if len(keys) <= most:
        return keys, weights
    ends = np.cumsum(weights, dtype=np.float64)
    if ends[-1] == 0.0:
        ends = np.arange(1.0, len(keys) + 1.0)
    aims = ends[-1] * np.arange(1, most) / most
    first = np.unique(np.append(0, np.searchsorted(ends, aims, side="right")))
    first = first[first < len(keys)]
    return keys[first], np.add.reduceat(weights, first)


def maximum_over_mean(weights: NDArray[Any], cuts: NDArray[np.int64]) -> float:
    """Weight of the heaviest part over the mean weight of a part."""
    ends = np.concatenate(([0.0], np.cumsum(weights, dtype=np.float64)))
    loads = np.diff(ends[cuts])
    mean = float(loads.mean())
    return float(loads.max()) / mean if mean > 0.0 else 1.0
