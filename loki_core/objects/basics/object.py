"""Object: something in space that is simulated forward in time.

An Object keeps its own state consistent: it ingests its input, advances its data, and says what it
    looks like. Its data
are Particle Systems and Discrete Volumes; what acts on it, Forces, Constraints and Operators, sees
only those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loki_core.behavior import Behavior
from loki_core.data.cost_model import bucket_costs
from loki_core.data.grid_domain import GridDomain
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import InputError, SetupError
from loki_core.objects.basics.override_channels import OverrideChannels, override_names
from loki_core.objects.basics.point_channels import PointChannels
from loki_core.pipeline.task import TaskOwner, Weights
from loki_core.solver_settings import SolverSettings
from loki_core.sparse_parameters import Resolved, channel_names, resolve


@dataclass
class Scope:
    """What a Behavior sees when it creates its Objects and Actions.

    Attributes:
        path: Place of the Behavior in the tree.
        objects: Objects in its Group and below (for Actions), in canonical order.
        inputs: Streams by name, as they are at the current time.
        domain: The Grid Domain of the Solver Setup.
        settings: Settings of the Solver Setup.
        others: All Objects of the Solver Setup by path, complete once all are created.
        solids: The joint system, which Objects may join.
        absent: Declarations of Objects that are disabled, or have no input, by path.
    """

    path: str
    objects: list[Any]
    inputs: Mapping[str, Any]
    domain: GridDomain
    settings: SolverSettings
    others: Mapping[str, Any] = field(default_factory=dict)
    solids: Any = None
    absent: Mapping[str, Any] = field(default_factory=dict)

    def offering(self, capability: Any) -> list[Any]:
        """The Objects in reach that have a capability (`objects/basics/capabilities.py`)."""
        return [item for item in self.objects if isinstance(item, capability)]

    def narrowed(self, capability: Any) -> Scope:
        """The same with those Objects alone in reach."""
        return replace(self, objects=self.offering(capability))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of bulk particles and voxels."""
        return np.dtype(np.float32 if self.settings.precision == "single" else np.float64)


@dataclass
class Object(TaskOwner):
    """Base of all Objects.

    Attributes:
        behavior: The declaration, with keyframes.
        settings: The declaration with the values of the current time.
        details: Channels of the whole Object, from its input stream.
        overrides: Which channels of that stream override parameters, and what they held last.
        lets_input_go: Whether it has all that it needs of its `input` once a frame has begun.
        kept_by: What its data are owned by: "bucket", wherever that is; or "body", which is whole.
        element_cost: What an element costs in a substep, with all that acts on it; the Solver says.
    """

    kept_by = "bucket"
    cost = 1.0
    #: Channels that the methods for couplings read, by their names, for Tasks that call them.
    lets_input_go = False

    behavior: Behavior
    scope: Scope
    settings: Any = None
    details: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = self.behavior
        self.path = self.scope.path
        self.time = 0.0
        self.element_cost = self.cost
        self.overrides = OverrideChannels()

    @property
    def label(self) -> str:
        """What messages call the Object."""
        return self.path

    def update(self, settings: Behavior, time: float) -> None:
        """Take the parameter values of the current time [s]."""
        self.settings = settings
        self.time = time

    def update_input(self, inputs: Mapping[str, Any]) -> None:
        """Take the input streams of the current frame."""
        self.scope.inputs = inputs

    def ingest(self) -> None:
        """Build the start state from the input streams. Collective."""

    def output(self) -> Any:
        """What the Object looks like now, this rank's part, as a stream in world space."""
        raise SetupError(f"{type(self).__name__} is an Object and must define output()")

    def check_state(self) -> str | None:
        """What is wrong with the state on this rank, or None: non-finite or implausible values."""
        return None

    def time_step_limit(self) -> float:
        """Longest substep that the Object allows on this rank [s]."""
        return np.inf

    def overshoots(self) -> bool:
        """Whether the last Newton correction was too large to be linear; then more follow."""
        return False

    def newton_change(self) -> float:
        """Size of the last Newton correction relative to the tolerance's scale, on this rank."""
        return 0.0

    def count(self) -> int:
        """Elements on this rank, for progress reports."""
        return 0

    def read(self, channel: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Ids and values of this rank's elements; positions in world space."""
        raise InputError(f'{self.path} has no channel "{channel}" to read')

    def write(self, channel: str, values: NDArray[Any]) -> None:
        """Set a channel from an array over all elements, ordered by id. Collective."""
        raise InputError(f'{self.path} has no channel "{channel}" to write')

    def account_document(self) -> dict[str, float] | None:
        """Where its volume came from and went [m^3], if it keeps an account. Collective."""
        return None

    def occupied_buckets(self) -> NDArray[np.int32]:
        """Lattice coordinates of the Buckets that the Object is in here; any rank may own them."""
        parts = [holder.buckets.local_coords for holder in self.data.values()]
        return np.concatenate([np.empty((0, 3), np.int32), *parts])

    # -- sparse parameters -----------------------------------------------------------------

    def vertex_channels(self) -> Mapping[str, NDArray[Any]]:
        """Channels that may override parameters per vertex: the user's own."""
        return {}

    def overriding_stream(self) -> Any:
        """The input whose channels override parameters of this Object, if it has one."""
        return None

    def follow_overrides(self, behavior: Behavior) -> None:
        """Let what the input says about a Behavior's parameters follow it from now on."""
        stream = self.overriding_stream()
        if stream is not None:
            self.overrides.add(override_names(type(behavior)), stream)

    def follow_input(self) -> None:
        """Take what overrides parameters as the input of this frame has it. Collective."""
        stream = self.overriding_stream()
        if stream is None:
            return
        self.take_details(stream)
        changed = self.overrides.changes(stream)
        if any(changed.values()):
            self.take_overrides(stream, changed)

    def take_details(self, stream: Any) -> None:
        """Take what holds for the whole Object."""
        self.details = {name: one.copy() for name, one in stream.channels["detail"].items()}

    def now(self, behavior: Behavior) -> Behavior:
        """A Behavior with the values of the current time."""
        settings = self.scope.settings
        return behavior.at(
            self.time,
            frames_per_second=settings.frames_per_second,
            start_frame=settings.start_frame,
        )

    def take_overrides(self, stream: Any, changed: Mapping[str, list[str]]) -> None:
        """Take channels whose bytes have changed: names by place. Details are there already."""

    def resolve(self, behavior: Behavior, name: str, *, label: str, dtype: DTypeLike) -> Resolved:
        """A parameter as kernels read it, for every vertex of this Object."""
        vertices = self.vertex_channels()
        count = vertices.count if isinstance(vertices, PointChannels) else 0
        return resolve(
            behavior,
            name,
            behavior_label=label,
            channels=self.override_places(),
            counts={"vertex": count, "primitive": 0},
            time=self.time,
            dtype=dtype,
            frames_per_second=self.scope.settings.frames_per_second,
            start_frame=self.scope.settings.start_frame,
        )

    def of_object(self, behavior: Behavior, name: str, *, label: str) -> NDArray[np.float64]:
        """A parameter of the whole Object, whatever vertices say: of what is yet to come, say."""
        values, _ = resolve(
            behavior,
            name,
            behavior_label=label,
            channels={"detail": self.details},
            counts={},
            time=self.time,
            frames_per_second=self.scope.settings.frames_per_second,
            start_frame=self.scope.settings.start_frame,
        )
        whole: NDArray[np.float64] = values[0]
        return whole

    def overriding_channels(self, behavior: Behavior) -> tuple[str, ...]:
        """Vertex channels of this Object that override a parameter of the Behavior."""
        present = self.vertex_channels()
        names = [
            candidate
            for name, declared in behavior.parameters().items()
            if declared.varies == "vertex"
            for own in channel_names(type(behavior), name)
            for candidate in (own, f"{own}_scale")
        ]
        return tuple(name for name in dict.fromkeys(names) if name in present)

    def is_painted(self, behavior: Behavior, name: str) -> bool:
        """Whether the input replaces a parameter in any place, on every rank alike."""
        names = channel_names(type(behavior), name)
        return any(one in place for one in names for place in self.override_places().values())

    def override_places(self) -> dict[str, Mapping[str, NDArray[Any]]]:
        """Channels that may override parameters, from broad places to narrow ones."""
        return {"detail": self.details, "vertex": self.vertex_channels()}

    def painted_reads(self, behavior: Behavior) -> tuple[str, ...]:
        """The same as a Task declares them."""
        return tuple(f"particles.{name}" for name in self.overriding_channels(behavior))

    def refuse_narrow_channels(self, behavior: Behavior, *, label: str) -> None:
        """Refuse channels that would override a parameter where it may not vary."""
        places: list[tuple[str, Mapping[str, NDArray[Any]], tuple[str, ...]]] = [
            ("vertex", self.vertex_channels(), ("vertex",)),
            ("object", self.details, ("object", "primitive", "vertex")),
        ]
        for name, declared in behavior.parameters().items():
            own = channel_names(type(behavior), name)[0]  # a shared name may mean something else
            for place, present, allowed in places:
                found = next((c for c in (own, f"{own}_scale") if c in present), None)
                if found is not None and declared.varies not in allowed:
                    limit = "does not vary" if declared.varies == "no" else "does not vary so far"
                    raise SetupError(
                        f'{label}.{name} {limit}, but the {place} channel "{found}" of {self.path} '
                        "is there; remove or rename it"
                    )

    # -- load balance ----------------------------------------------------------------------

    def weights(self) -> Weights:
        """What the Object has here weighs in the load balance, by places on the curve.

        The places are keys of Buckets, or, where `kept_by` is "body", those that
        `GridDomain.home_keys` has for bodies. A place may come again.
        """
        keys, weights = [np.empty(0, np.uint64)], [np.empty(0)]
        for holder in self.data.values():
            keys.append(holder.buckets.keys)
            weights.append(bucket_costs(holder, self.element_cost))
        return np.concatenate(keys), np.concatenate(weights)

    def redistribute(self) -> None:
        """Move data to the owners that the domain's cuts name now. Collective."""
        for holder in self.data.values():
            if isinstance(holder, ParticleSystem):
                holder.rebucketize()
            else:
                holder.rebalance()  # type: ignore[attr-defined]
