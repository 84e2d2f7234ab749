"""Load balance of a run: what ranks have to do, whether new cuts pay, and what came of them.

    weights    counts times the stored cost model; or those, scaled so that what this rank's Tasks
               took is what its Buckets weigh
    decision   the gain until the curve may be cut again against the cost of the change
    report     imbalance before and after, what moved, and how long it took

What is owned by Bucket and what is owned by body are cut apart: solids and fluids take turns within
a step, so a rank that has more of the one is not helped by less of the other.

With weights of the model the decision follows from the state alone, so that it is the same on all
ranks, in every run of a scene, and after a restart.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain, owners_by
from loki_core.data.load_balance import foresee, propose_cuts
from loki_core.objects.basics.object import Object
from loki_core.objects.solids.solid_system import SolidSystem
from loki_core.parallel.comm import Communicator
from loki_core.parallel.observed import ObservedCommunicator
from loki_core.pipeline.action import Action
from loki_core.pipeline.task import TaskOwner, Weights

#: Reports that are kept.
KEPT = 1000
#: How far a measured time may be from the mean of all ranks: on a rank that has little to do most
#: of it is the cost of doing anything at all, which its Buckets would not take elsewhere.
LARGEST_SCALE = 4.0


@dataclass(frozen=True)
class BalanceReport:
    """One look at the balance.

    Attributes:
        substep: Substeps done since the start of the run.
        of: "bucket" or "body": what the data are owned by.
        imbalance_before: Weight of the heaviest rank over the mean, as it was.
        imbalance_after: The same with the new cuts, whether they were taken or not.
        moved: Whether they were taken.
        places: Buckets, or places where bodies begin, that changed their rank, over all ranks.
        bytes: What all ranks sent for it.
        seconds: Time that it took on this rank, waiting included.
    """

    substep: int
    of: str
    imbalance_before: float
    imbalance_after: float
    moved: bool
    places: int
    bytes: int
    seconds: float


class LoadBalancer:
    """Cuts the curve and moves data. `look` and `balance` are collective.

    Args:
        domain: The Grid Domain, whose cuts it sets.
        objects: All Objects by path.
        actions: What acts on them.
        by_timings: Whether measured times scale the weights; the communicator is then observed.
    """

    def __init__(
        self,
        domain: GridDomain,
        objects: Mapping[str, Object],
        actions: Iterable[Action[Any]],
        *,
        by_timings: bool,
    ) -> None:
        self.domain = domain
        self.comm: Communicator = domain.comm
        self.objects = objects
        self.by_timings = by_timings
        self.reports: deque[BalanceReport] = deque(maxlen=KEPT)
        self._is_warm = False
        self._layouts: list[int] = []
        costs: dict[int, list[float]] = {id(item): [item.cost] for item in objects.values()}
        self._elsewhere: dict[str, Action[Any]] = {}
        for action in actions:
            costs.get(id(action.target), []).append(action.cost)
            if type(action).weights is not TaskOwner.weights:
                self._elsewhere[action.path] = action
        for item in objects.values():
            # Rounded once, whatever the order of the tree.
            item.element_cost = math.fsum(costs[id(item)])
        self._seconds = dict.fromkeys((*objects, *self._elsewhere), 0.0)

    def begin_substep(self) -> None:
        """Note which Buckets there are, to know whether volumes change theirs in this substep."""
        self._layouts = self._volume_layouts()

    def _volume_layouts(self) -> list[int]:
        holders = [holder for item in self.objects.values() for holder in item.data.values()]
        return [one.layout_version for one in holders if isinstance(one, DiscreteVolume)]

    def look(self, substep: int, every: int) -> None:
        """Balance every so many substeps, and where volumes have changed their Buckets.

        That is the moment: the matrices of a volume are made anew then in any case.
        """
        is_due = self._volume_layouts() != self._layouts
        if every and (is_due or substep % every == 0):
            self.balance(substep, over=every, is_due=is_due)

    def balance(self, substep: int, *, over: float | None = None, is_due: bool = False) -> None:
        """Cut the curve by the present cost of Buckets and bodies, and move data, if that pays.

        Args:
            substep: Where on the timeline, for the report.
            over: Substeps in which it has to pay; None moves whatever it costs.
            is_due: Whether volumes have changed their Buckets in this substep.
        """
        if self.comm.size == 1:
            return
        weighing: dict[str, TaskOwner] = {**self.objects, **self._elsewhere}
        weights = {path: one.weights() for path, one in weighing.items()}
        if self.by_timings:
            weights = self._scaled(weights)
        by_body = [path for path, item in self.objects.items() if item.kept_by == "body"]
        by_bucket = [path for path in weights if path not in by_body]
        for kind, paths in (("bucket", by_bucket), ("body", by_body)):
            if paths:
                of_kind = {path: weights[path] for path in paths}
                is_cheap = is_due and kind == "bucket"
                self._balance_kind(kind, of_kind, substep, over, is_cheap)
        self._forget_timings()

    def _balance_kind(
        self,
        kind: str,
        weights: Mapping[str, Weights],
        substep: int,
        over: float | None,
        is_due: bool,
    ) -> None:
        domain, comm = self.domain, self.comm
        start, sent = perf_counter(), comm.bytes_sent
        keys, summed = _joined(weights.values())
        cuts = propose_cuts(comm, keys, summed, _cuts_of(domain, kind)[-1])
        if cuts is None:
            return
        # A body stays on its rank while it travels, a Bucket is where the cuts say.
        is_here = np.full(len(keys), comm.rank, np.int32)
        present = domain.owners(keys) if kind == "bucket" else is_here
        prospect = foresee(comm, present, owners_by(cuts, keys), summed)
        moves = over is None or prospect.pays(over, is_due=is_due)
        items = [self.objects[path] for path in weights if path in self.objects]
        held = _joined(weights[item.path] for item in items)[0]
        leaving = int(np.count_nonzero(owners_by(cuts, held) != comm.rank)) if moves else 0
        if moves:
            if kind == "bucket":
                domain.cuts = cuts
            else:
                domain.body_cuts = cuts
            for item in items:
                item.redistribute()
        spent = np.array([leaving, comm.bytes_sent - sent], np.int64)
        places, size = comm.all_reduce(spent, "sum").tolist()
        report = BalanceReport(
            substep, kind, prospect.imbalance_before, prospect.imbalance_after, moves, places, size,
            perf_counter() - start,
        )  # fmt: skip
        self.reports.append(report)

    # -- timings ---------------------------------------------------------------------------

    @contextmanager
    def measure(self, owner: TaskOwner) -> Iterator[None]:
        """Count the time of a Task, without its waits for others, for the Objects it is about."""
        if not isinstance(self.comm, ObservedCommunicator):
            yield
            return
        start, waited = perf_counter(), self.comm.seconds
        try:
            yield
        finally:
            seconds = perf_counter() - start - (self.comm.seconds - waited)
            for path, share in self._shares(owner):
                self._seconds[path] += share * seconds

    def _shares(self, owner: TaskOwner) -> list[tuple[str, float]]:
        """Whose weight a Task of this owner is; several share it by what they weigh here."""
        if owner.path in self._elsewhere:
            return [(owner.path, 1.0)]
        about: Iterable[Any] = [owner.target if isinstance(owner, Action) else owner]
        if isinstance(owner, SolidSystem):
            about = owner.solids
        items = [item for item in about if isinstance(item, Object) and item.path in self._seconds]
        sizes = [item.element_cost * item.count() for item in items]
        total = sum(sizes)
        return [(item.path, size / total) for item, size in zip(items, sizes, strict=True) if total]

    def accept_substep(self) -> None:
        """Forget the first substep of this process: most of its time went into compiling."""
        if not self._is_warm:
            self._is_warm = True
            self._forget_timings()

    def _forget_timings(self) -> None:
        self._seconds = dict.fromkeys(self._seconds, 0.0)

    def _scaled(self, of_objects: dict[str, Weights]) -> dict[str, Weights]:
        """Weights in seconds, where anything was measured."""
        totals = np.array([weights.sum() for _, weights in of_objects.values()])
        seconds = np.array([self._seconds[path] for path in of_objects])
        sums = self.comm.all_reduce(np.array([totals, seconds]), "sum")
        if not sums[1].sum() > 0.0:
            return of_objects
        all_rates = sums[1].sum() / max(sums[0].sum(), 1e-300)
        mean = np.where(sums[1] > 0.0, sums[1] / np.maximum(sums[0], 1e-300), all_rates)
        own = np.where(totals > 0.0, seconds / np.maximum(totals, 1e-300), mean)
        rates = np.clip(own, mean / LARGEST_SCALE, mean * LARGEST_SCALE)
        is_elsewhere = np.array([path in self._elsewhere for path in of_objects])
        rates = np.where(is_elsewhere, mean, rates)  # measured here, weighed there
        return {
            path: (keys, rate * weights)
            for rate, (path, (keys, weights)) in zip(rates, of_objects.items(), strict=True)
        }

    def to_documents(self) -> list[dict[str, Any]]:
        """The reports, oldest first, as plain values for JSON."""
        return [asdict(report) for report in self.reports]


def _cuts_of(domain: GridDomain, kind: str) -> NDArray[np.uint64]:
    return domain.cuts if kind == "bucket" else domain.body_cuts


def _joined(given: Iterable[Weights]) -> Weights:
    """All places of several, ascending, each once, and the sums of what weighs there."""
    parts = list(given)
    keys = np.concatenate([np.empty(0, np.uint64), *(one for one, _ in parts)])
    weights = np.concatenate([np.empty(0), *(one for _, one in parts)])
    merged, places = np.unique(keys, return_inverse=True)
    return merged, np.bincount(places, weights, minlength=len(merged)).astype(np.float64)
