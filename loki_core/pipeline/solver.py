"""Solver: a Solver Setup brought to life on this rank.

    solver = Solver(setup, {"seeds": Points(positions)})
    solver.run(48)
    positions = solver.read("Sparks/ParticleObject", "position")

It creates the Grid Domain, the Objects and the Actions, builds the schedule, and drives the
timeline. It knows no file and
no socket: whoever wants frames on disk adds an observer and asks for `output`, `state` or
    `statistics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior
from loki_core.data.accessors import checks_access
from loki_core.data.parts import in_input_order
from loki_core.errors import (
    Cancelled,
    DivergenceError,
    InputError,
    LokiError,
    RankFailure,
    SetupError,
    did_you_mean,
)
from loki_core.objects.basics.capabilities import Bodies
from loki_core.objects.basics.object import Object, Scope
from loki_core.objects.solids.solid_system import SolidSystem
from loki_core.parallel.comm import Communicator, world
from loki_core.parallel.observed import ObservedCommunicator
from loki_core.pipeline.action import Action
from loki_core.pipeline.balancing import LoadBalancer
from loki_core.pipeline.domain import make_domain
from loki_core.pipeline.schedule import Schedule, ScheduledTask, build_schedule
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step
from loki_core.pipeline.timeline import Timeline
from loki_core.solver_setup import Group, SolverSetup

#: A stream, or a function of the frame that returns one.
Input = Any
Observer = Callable[["Solver", Step], None]


@dataclass(frozen=True)
class Inactive:
    """A Behavior that finds nothing to act on, and why; `explain` shows it."""

    path: str
    reason: str


@dataclass(frozen=True)
class Taken:
    """Stands for the stream of a frame that nobody needs whole any more."""

    name: str


class Solver:
    """Objects and Actions of a Solver Setup, stepped along the timeline. Collective throughout.

    Args:
        setup: What is simulated.
        inputs: Streams by name, each a mesh, Points or Voxels, or a function `frame -> stream` if
            animated.
        comm: The ranks; those of the MPI job if there is one, else this process alone.
        threads: Threads of this rank; all cores if None.
    """

    def __init__(
        self,
        setup: SolverSetup,
        inputs: Mapping[str, Input] | None = None,
        *,
        comm: Communicator | None = None,
        threads: int | None = None,
    ) -> None:
        setup.check_references()
        self.setup = setup
        self.settings = setup.settings
        self.comm = world() if comm is None else comm
        by_timings = self.settings.balance_weights == "timings"
        self._checks = checks_access()
        if by_timings or self._checks:
            self.comm = ObservedCommunicator(self.comm)
        if threads is not None:
            from loki_core.kernels.jit import set_thread_count

            set_thread_count(threads)
        self._given = dict(inputs or {})
        self.timeline = Timeline(self.settings, self.settings.start_frame)
        self.inputs = self._streams_at(self.settings.start_frame)
        self.domain = make_domain(setup, self.inputs, self.comm)
        self.objects: dict[str, Object] = {}
        self._objects_of: dict[str, list[Object]] = {}  # by the Behavior's path
        self.actions: dict[str, list[Action[Any]]] = {}
        self.inactive: list[Inactive] = []
        self.warnings: list[str] = []
        self._observers: dict[Stage, list[Observer]] = {}
        self._task_observers: list[Callable[[str], None]] = []
        self._cancelled = False
        self._create()
        acting = (action for some in self.actions.values() for action in some)
        self.balancer = LoadBalancer(self.domain, self.objects, acting, by_timings=by_timings)
        self._warn_of_idle_inputs()
        self.schedule: Schedule = {}
        self._ingest()

    # -- running ---------------------------------------------------------------------------

    @property
    def frame(self) -> int:
        """The frame that the state is at."""
        return self.timeline.frame

    @property
    def time(self) -> float:
        """Time of the state [s]."""
        return self.timeline.time

    def run(self, frames: int) -> None:
        """Compute this many frames."""
        if frames < 0:
            raise InputError(f"run({frames}): the number of frames cannot be negative")
        for _ in range(frames):
            self.advance_frame()

    def advance_frame(self) -> None:
        """Compute the next frame."""
        self.timeline.advance_frame(self)

    def cancel(self) -> None:
        """Stop at the end of the running Task; safe to call from a signal handler or thread."""
        self._cancelled = True

    def observe(self, stage: Stage | str, observer: Observer) -> None:
        """Call `observer(solver, step)` at the end of a Stage: probes, outputs, progress.

        Observers of SUBSTEP_END are called when the substep has passed its checks, so one that is
        undone and tried again is seen once.
        """
        if isinstance(stage, str):
            names = Stage.__members__
            if stage not in names:
                raise SetupError(f'there is no Stage "{stage}"{did_you_mean(stage, names)}')
            stage = Stage[stage]
        self._observers.setdefault(stage, []).append(observer)

    def observe_tasks(self, observer: Callable[[str], None]) -> None:
        """Call `observer(label)` before each Task, for progress displays."""
        self._task_observers.append(observer)

    def warn(self, message: str) -> None:
        """Keep a warning; whoever runs the Solver shows them."""
        self.warnings.append(message)

    def run_stage(self, stage: Stage, step: Step) -> None:
        """Run all Tasks of a Stage in their order (Algorithm 1), then the observers."""
        if stage is Stage.FRAME_BEGIN:
            self._update_inputs(step.frame)
        if stage in (Stage.FRAME_BEGIN, Stage.SUBSTEP_BEGIN):
            self._update_settings(step.time)
        if stage is Stage.SUBSTEP_BEGIN:
            self.balancer.begin_substep()
        if stage is Stage.BALANCE_LOAD:
            self.balancer.look(step.substep, self.settings.balance_every)
        for scheduled in self.schedule[stage]:
            for observer in self._task_observers:
                observer(scheduled.label)
            with scheduled.statistics.measure(self.comm), self.balancer.measure(scheduled.owner):
                error = self._run_task(scheduled, step)
            scheduled.statistics.iterations += scheduled.owner.iterations
            scheduled.owner.iterations = 0
            if scheduled.owner.warning:
                self.warn(f"frame {step.frame}, {scheduled.label}: {scheduled.owner.warning}")
                scheduled.owner.warning = ""
            self._agree(error, may_stop=stage.loop in ("substep", "newton"))
        if stage is Stage.CHECK_STATE:
            self._check_state()
        if stage is not Stage.SUBSTEP_END:
            self._call_observers(stage, step)

    def accept_substep(self, step: Step) -> None:
        """Call the observers of SUBSTEP_END: only substeps that stay are seen."""
        self.balancer.accept_substep()
        self._call_observers(Stage.SUBSTEP_END, step)

    def _call_observers(self, stage: Stage, step: Step) -> None:
        for callback in self._observers.get(stage, ()):
            callback(self, step)

    def balance(self) -> None:
        """Cut the curve by the present cost of Buckets and move data, whatever that costs."""
        self.balancer.balance(self.timeline.substep)

    def _run_task(self, scheduled: ScheduledTask, step: Step) -> LokiError | None:
        """Run one Task; returns an error that all ranks can still agree on."""
        access = scheduled.access()
        try:
            access.begin()
            with scheduled.notes().taken(self.comm) if self._checks else nullcontext():
                scheduled.task.run(access, step)
            access.end()
        except LokiError as error:
            if self.comm.size > 1 and scheduled.speaks and not error.together:
                # The others may wait inside the Task for what this rank will not send any more.
                message = f"{scheduled.label}: {error}"
                raise RankFailure(message, exit_code=error.exit_code) from error
            return error
        return None

    def _agree(self, error: LokiError | None, *, may_stop: bool) -> None:
        """Raise on all ranks what any of them met, or stop all if any was asked to."""
        stops = self._cancelled and may_stop
        if not self.comm.any(error is not None or stops):
            return
        self.comm.raise_together(error)
        self._cancelled = False
        raise Cancelled(f"stopped on request in frame {self.frame + 1}")

    def _check_state(self) -> None:
        error: LokiError | None = None
        for path, item in self.objects.items():
            problem = item.check_state()
            if problem is not None:
                error = DivergenceError(f"{self.setup.place(path)}: {problem}")
                break
        self.comm.raise_together(error)

    def time_step_limit(self) -> float:
        """Longest substep that all Objects allow [s]."""
        limit = min((item.time_step_limit() for item in self.objects.values()), default=np.inf)
        return -self.comm.maximum(-limit)

    def newton_change(self) -> float:
        """Largest relative Newton correction of any Object."""
        if self.settings.newton_iterations == 1:
            return 0.0
        changes = [item.newton_change() for item in self.objects.values()]
        if self.solids is not None:
            changes.append(self.solids.newton_change())
        return self.comm.maximum(max(changes, default=0.0))

    def overshoots(self) -> bool:
        """Whether the last Newton correction was too large for any Object to be linear."""
        if self.solids is None or self.settings.newton_iterations > 1:
            return False
        return self.comm.any(any(item.overshoots() for item in self.objects.values()))

    # -- building --------------------------------------------------------------------------

    def _streams_at(self, frame: int) -> dict[str, Any]:
        streams = {}
        for name, given in self._given.items():
            stream = given(frame) if callable(given) else given
            if not hasattr(stream, "validate"):
                raise InputError(
                    f'input "{name}" is a {type(stream).__name__}, not a stream; '
                    "wrap an array of positions as Points(array)"
                )
            stream.validate(f'input "{name}"')
            streams[name] = stream
        return streams

    def _create(self) -> None:
        self._system = SolidSystem(self.comm)
        self._absent = {
            placed.path: placed.node
            for placed in self.setup.walk()
            if isinstance(placed.node, Behavior)
            and placed.node.kind == "object"
            and not placed.enabled
        }
        for path, behavior in self.setup.behaviors():
            if behavior.kind == "object":
                self._create_one(path, behavior, [])
        for item in self.objects.values():
            if isinstance(item, Bodies):
                item.join()
        actions = [one for one in self.setup.behaviors() if one[1].kind != "object"]
        # Constraints first: they say which Objects join the solids. And what makes a fluid of
        # particles, before Colliders ask.
        for path, behavior in sorted(
            actions, key=lambda one: not (one[1].kind == "constraint" or one[1].shapes_objects)
        ):
            reached = [item for p in self.setup.reach(path) for item in self._objects_of.get(p, ())]
            self._create_one(path, behavior, reached)
        order = {path: number for number, (path, _) in enumerate(self.setup.behaviors())}
        self.inactive.sort(key=lambda one: order[one.path])
        self.solids = self._system if self._system.solids else None

    def _warn_of_idle_inputs(self) -> None:
        """Say what was given in vain: usually a name that is not quite right."""
        for name in self.setup.idle_streams(self._given):
            hint = did_you_mean(name, {stream.name for stream in self.setup.streams()})
            self.warn(f'input "{name}": no enabled Behavior uses it{hint}')
        if not self.objects:
            reasons = "; ".join(f"{one.path}: {one.reason}" for one in self.inactive)
            self.warn(f"no Object is active, so nothing is simulated ({reasons})")

    def _create_one(self, path: str, behavior: Behavior, objects: list[Any]) -> None:
        scope = Scope(
            path, objects, self.inputs, self.domain, self.settings, self.objects, self._system,
            self._absent,
        )  # fmt: skip
        # What might be an Object's name as well is for the Behavior to miss.
        kinds = behavior.parameters()
        missing = [
            one.name
            for one in self.setup.streams()
            if one.path == path and one.name not in self.inputs
            if kinds[one.parameter].kind == "stream"
        ]
        if missing:
            self.inactive.append(Inactive(path, f'there is no input stream "{missing[0]}"'))
            if behavior.kind == "object":
                self._absent[path] = behavior
            return
        created = behavior.create(scope)
        if not created:
            self.inactive.append(Inactive(path, "nothing in its Group to act on"))
        made = [item for item in created if isinstance(item, Object)]
        for number, item in enumerate(made):
            item.path = path if len(made) == 1 else f"{path}[{number}]"
            self.objects[item.path] = item
        self._objects_of[path] = made
        for item in created:
            if not isinstance(item, Object):
                item.path = path if len(created) == 1 else f"{path}[{item.place}]"
                self.actions.setdefault(path, []).append(item)

    def _schedule(self) -> Schedule:
        groups: list[tuple[str, list[Object], list[Any]]] = []
        for placed in self.setup.walk():
            if not isinstance(placed.node, Group):
                continue
            inside = [path for path, _ in self.setup.behaviors() if _parent(path) == placed.path]
            objects = [one for path in inside for one in self._objects_of.get(path, ())]
            actions: list[Any] = [one for path in inside for one in self.actions.get(path, ())]
            if self.solids is not None and not groups:  # what joins all Groups is the root's
                actions.append(self.solids)
            groups.append((placed.path, objects, actions))
        return build_schedule(groups)

    def _ingest(self) -> None:
        self._update_settings(self.time)
        for item in self.objects.values():
            item.ingest()
        for path, behavior in self.setup.behaviors():
            targets = [action.target for action in self.actions.get(path, ())]
            for item in (*self._objects_of.get(path, ()), *targets):
                item.refuse_narrow_channels(behavior, label=self.setup.place(path))
                item.follow_overrides(behavior)
        if self.comm.size > 1:
            self.balance()
        self.schedule = self._schedule()  # only now: ingestion brought the users' channels
        step = self.timeline.step(self.settings.frame_duration)
        self.run_stage(Stage.INGEST, step)
        self.run_stage(Stage.MAKE_SURFACES, step)
        self._let_inputs_go()

    def _update_settings(self, time: float) -> None:
        rate, start = self.settings.frames_per_second, self.settings.start_frame
        for path, behavior in self.setup.behaviors():
            now = behavior.at(time, frames_per_second=rate, start_frame=start)
            for item in self._objects_of.get(path, ()):
                item.update(now, time)
            for action in self.actions.get(path, ()):
                action.update(now, time)

    def _update_inputs(self, frame: int) -> None:
        if any(callable(given) for given in self._given.values()):
            self.inputs = self._streams_at(frame)
            for item in self.objects.values():
                item.update_input(self.inputs)
                item.follow_input()
            self._let_inputs_go()

    def _let_inputs_go(self) -> None:
        """Drop streams whose Objects have taken what they need; most of a groom is one rank's."""
        for name in self.inputs:
            readers = [
                path
                for path, behavior in self.setup.behaviors()
                for parameter, value in behavior.values().items()
                if value == name or (isinstance(value, tuple) and name in value)
                if not self._is_taken(path, parameter)
            ]
            if not readers and callable(self._given[name]):
                self.inputs[name] = Taken(name)

    def _is_taken(self, path: str, parameter: str) -> bool:
        """Whether all that an Object needs of a stream is with the Object."""
        made = self._objects_of.get(path, ())
        return parameter == "input" and bool(made) and all(one.lets_input_go for one in made)

    # -- reading and writing ---------------------------------------------------------------

    def object(self, path: str) -> Object:
        """The Object at a path of the tree."""
        if path not in self.objects:
            raise InputError(
                f'{self.setup.name} has no Object "{path}"{did_you_mean(path, self.objects)}'
            )
        return self.objects[path]

    def read(self, path: str, channel: str) -> NDArray[Any]:
        """A channel of an Object, whole and the same on every rank: world space, ordered by id."""
        local_ids, local_values = self.object(path).read(channel)
        ids = np.concatenate(self.comm.all_gather(np.ascontiguousarray(local_ids)))
        flat = self.comm.all_gather(np.ascontiguousarray(local_values).reshape(-1))
        values = np.concatenate(flat).reshape(-1, *local_values.shape[1:])
        return values[np.argsort(ids, kind="stable")]

    def write(self, path: str, channel: str, values: NDArray[Any]) -> None:
        """Set a channel of an Object from a whole array, ordered by id: initial fields."""
        self.object(path).write(channel, values)

    def outputs(self) -> dict[str, Any]:
        """Every Object, this rank's part in the input's order, as streams in world space."""
        return {path: in_input_order(item.output()) for path, item in self.objects.items()}

    def counts(self) -> dict[str, int]:
        """Elements of every Object over all ranks."""
        return {path: self.comm.total(item.count()) for path, item in self.objects.items()}

    def statistics(self) -> list[dict[str, Any]]:
        """Cost of every Task so far on this rank, in schedule order."""
        return [
            scheduled.statistics.to_document()
            for stage in Stage
            for scheduled in self.schedule[stage]
        ]

    def balances(self) -> list[dict[str, Any]]:
        """Every look at the load balance in this process, the last thousand, oldest first.

        Imbalance is the weight of the heaviest rank over the mean, before and after; the document
        of each is a `BalanceReport`. One rank alone has none.
        """
        return self.balancer.to_documents()

    def exchanges(self) -> dict[str, dict[str, Any]]:
        """What every coupling has exchanged so far, over all ranks, and what is missing."""
        return {
            action.path: action.exchange.to_document()
            for some in self.actions.values()
            for action in some
            if action.exchange is not None
        }

    def accounts(self) -> dict[str, dict[str, float]]:
        """Where the volume of every liquid came from and went, over all ranks [m^3]. Collective."""
        found = {path: item.account_document() for path, item in self.objects.items()}
        return {path: document for path, document in found.items() if document is not None}

    # -- the whole state -------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that changes the numbers, this rank's part, as plain documents and arrays."""
        return {
            "timeline": self.timeline.state(),
            "domain": {
                "cuts": self.domain.cuts.copy(),
                "origin": self.domain.origin.copy(),
                "bucket_size": self.domain.bucket_size,
            },
            "objects": {path: _owner_state(item) for path, item in self.objects.items()},
            "actions": {
                action.path: action.state() for some in self.actions.values() for action in some
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the same Solver Setup; its parts may come from other ranks.

        With the same number of ranks the run continues bit for bit; otherwise the data are cut
        anew.
        """
        domain = state["domain"]
        same_ranks = len(domain["cuts"]) == len(self.domain.cuts)
        self.timeline.restore(state["timeline"])
        # Stored positions are relative to this origin, whatever the inputs look like by now.
        self.domain.origin = np.array(domain["origin"], dtype=np.float64)
        self.domain.bucket_size = float(domain["bucket_size"])
        if same_ranks:
            self.domain.cuts = np.array(domain["cuts"], dtype=np.uint64)
        known = set(state["objects"])
        if known != set(self.objects):
            raise InputError(
                f"the state has Objects {sorted(known)}, the setup has {sorted(self.objects)}"
            )
        for path, item in self.objects.items():
            own = state["objects"][path]
            for name, holder in item.data.items():
                holder.restore(own["data"][name])
            item.restore(own["own"])
            item.overrides.restore(own.get("overrides", {}))
        for some in self.actions.values():
            for action in some:
                action.restore(state["actions"].get(action.path, {}))
        if not same_ranks:
            self.balance()
        if self.timeline.frame_begun:
            self._update_inputs(self.frame + 1)
        self._update_settings(self.time)

    def snapshot(self) -> dict[str, Any]:
        """State before a substep, for `roll_back`."""
        return self.state()

    def roll_back(self, snapshot: Mapping[str, Any]) -> None:
        """Undo a substep."""
        position = self.timeline.state()
        self.restore(snapshot)
        self.timeline.restore(position)


def _owner_state(item: Object) -> dict[str, Any]:
    data = {name: holder.state() for name, holder in item.data.items()}
    return {"data": data, "own": item.state(), "overrides": item.overrides.state()}


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
