"""Explanation: the tree, the schedule and the origin of every value, as a plain document.

`wtloki explain` prints it; the schedule is the paper's Figure 8: which Task of which Behavior runs
at which Stage, and what it reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loki_core.behavior import Behavior
from loki_core.data.accessors import split_name
from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.voxels import Voxels
from loki_core.errors import LokiError
from loki_core.keyframes import Keyframes
from loki_core.parallel.comm import SERIAL
from loki_core.parameter import Parameter
from loki_core.pipeline.schedule import ScheduledTask
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.solver_setup import Group, SolverSetup
from loki_core.sparse_parameters import channel_names, resolve
from loki_core.wording import counted
from loki_vfx.bridges.standalone.scene import Scene, streams_at


def explain(scene: Scene) -> dict[str, Any]:
    """Return everything that `wtloki explain` shows.

    Streams that were not given are taken as empty ones, so that the schedule can be seen without
    them.
    """
    setup = scene.setup
    needed = {stream.name for stream in setup.streams()}
    behaviors = dict(setup.behaviors())
    empty = {
        one.name: behaviors[one.path].empty_stream(one.parameter)
        for one in setup.streams()
        if one.name not in scene.inputs and one.path in behaviors
    }
    inputs = {**scene.inputs, **empty}
    solver = Solver(setup, inputs, comm=SERIAL)
    return {
        "setup": setup.name,
        "graph": scene.description,
        "tree": str(setup),
        "inputs": [
            _explain_input(setup, name, scene) for name in sorted(needed | set(scene.inputs))
        ],
        "objects": {path: item.count() for path, item in solver.objects.items()},
        "bucket_size": solver.domain.bucket_size,
        "schedule": explain_schedule(solver),
        "inactive": list(_explain_inactive(setup, solver)),
        "exclusive": list(_explain_exclusive(setup)),
        "parameters": list(explain_parameters(setup, inputs)),
    }


def _explain_input(setup: SolverSetup, name: str, scene: Scene) -> dict[str, Any]:
    used_by = [f"{one.path}.{one.parameter}" for one in setup.streams() if one.name == name]
    found: dict[str, Any] = {"name": name, "used_by": used_by, "given": name in scene.inputs}
    if name in scene.inputs:
        stream = streams_at({name: scene.inputs[name]}, setup.settings.start_frame)[name]
        found |= {
            "type": stream.type_name,
            "counts": stream.counts(),
            "channels": stream.channel_names(),
            "animated": callable(scene.inputs[name]),
        }
    return found


def explain_schedule(solver: Solver) -> list[dict[str, Any]]:
    """Return every Stage that has Tasks, in execution order, with what its Tasks touch."""
    return [
        {
            "stage": stage.name,
            "loop": stage.loop,
            "user_facing": stage.user_facing,
            "doc": stage.doc,
            "tasks": [_explain_task(one, solver) for one in solver.schedule[stage]],
        }
        for stage in Stage
        if solver.schedule[stage]
    ]


def _explain_task(one: ScheduledTask, solver: Solver) -> dict[str, Any]:
    declared, data = one.task.declaration, one.owner.task_data
    # What a rank keeps for itself alone, such as distances around its bodies, moves without a word.
    moves = any(data[name].domain is solver.domain for name in declared.layout)
    touched = dict.fromkeys((*(split_name(name)[0] for name in declared.names()), *declared.layout))
    return {
        "behavior": one.owner.path,
        "task": one.task.name,
        "group": one.group,
        "kind": one.kind,
        "doc": one.task.doc,
        "data": {name: data[name].name for name in touched},
        "reads": list(declared.all_reads),
        "writes": list(declared.writes),
        "accumulates": list(declared.accumulates),
        "halo": declared.halo,
        "layout": list(declared.layout),
        "communicates": bool(declared.communicates or declared.halo or moves),
    }


def _explain_inactive(setup: SolverSetup, solver: Solver) -> Iterator[dict[str, str]]:
    for placed in setup.walk():
        if isinstance(placed.node, Behavior) and not placed.enabled:
            switch = placed.path
            if placed.node.enabled:  # then a Group around it is off
                off = next(group for group in placed.groups if not group.enabled)
                switch = f"Group {off.name}"
            yield {"path": placed.path, "reason": f"{switch} is disabled"}
    for one in solver.inactive:
        yield {"path": one.path, "reason": one.reason}


def _explain_exclusive(setup: SolverSetup) -> Iterator[dict[str, str]]:
    """Say for each Object which of several exclusive Behaviors acts on it."""
    families = {
        behavior.exclusive_family() for _, behavior in setup.behaviors() if behavior.exclusive
    }
    for family in sorted(families, key=lambda one: one.__name__):
        for path in setup.objects_below(""):
            winner = setup.nearest_exclusive(family, path)
            if winner is not None:
                yield {"object": path, "class": family.__name__, "winner": winner}


# -- values --------------------------------------------------------------------------------------


def explain_parameters(setup: SolverSetup, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Say of every parameter of every enabled Behavior where its value comes from."""
    streams = streams_at(inputs, setup.settings.start_frame)
    for path, behavior in setup.behaviors():
        reached = [path] if behavior.kind == "object" else setup.reach(path)
        for name, declared in behavior.parameters().items():
            value = getattr(behavior, name)
            yield {
                "behavior": path,
                "parameter": name,
                "value": declared.to_document(value),
                "unit": declared.unit,
                "origin": _plain_origin(value, declared),
                "overrides": list(_overrides(setup, behavior, declared, path, reached, streams)),
            }


def _plain_origin(value: Any, declared: Parameter) -> str:
    if isinstance(value, Keyframes):
        return counted(len(value.times), "keyframe")
    return "default" if value == declared.default else "Behavior value"


def _overrides(
    setup: SolverSetup,
    behavior: Behavior,
    declared: Parameter,
    path: str,
    reached: Iterable[str],
    streams: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Say which streams override a parameter: inputs of Objects, and the source of an emitter."""
    if declared.varies == "no":
        return
    names = channel_names(type(behavior), declared.name)
    for target in reached:
        stream = object_stream(setup, target, streams)
        found = _override(setup, behavior, declared, path, target, stream, names)
        if found:
            yield found
    source = streams.get(str(getattr(behavior, "source", None)))
    found = _override(setup, behavior, declared, path, path, source, names[:1])
    if found:
        yield found


def _override(
    setup: SolverSetup,
    behavior: Behavior,
    declared: Parameter,
    path: str,
    target: str,
    stream: Any,
    names: tuple[str, ...],
) -> dict[str, Any] | None:
    """Return which channels of a stream override a parameter, and how many values."""
    wanted = {*names, *(f"{name}_scale" for name in names)}
    channels = _channels_of(stream, wanted)
    if not any(channels.values()):
        return None
    found: dict[str, Any] = {"object": target}
    painted = any(name in place for name in names for place in channels.values())
    is_derived = getattr(behavior, declared.name) is None and not painted
    if is_derived:  # what is painted are factors of a value that other parameters give
        behavior = behavior.replace(**{declared.name: 1.0})
    try:
        resolved = resolve(
            behavior,
            declared.name,
            behavior_label=setup.place(path),
            channels=channels,
            counts=_counts_of(stream),
            target=_narrowest(channels, stream),
            primitive_of_vertex=stream.curve_of_point() if isinstance(stream, Curves) else None,
        )
    except LokiError as error:
        return {**found, "origin": "", "count": 0, "error": str(error)}
    count = len(resolved.values) if resolved.step else 1
    origin = resolved.origin
    if is_derived:
        origin = origin.replace("Behavior value", "derived value")
    found |= {"origin": origin, "count": count, "error": None}
    if resolved.values.size:
        found |= {"minimum": float(resolved.values.min()), "maximum": float(resolved.values.max())}
    return found


def _channels_of(stream: Any, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """Channels of these names by where they are."""
    if isinstance(stream, Voxels):
        present = stream.channels.items()
        return {"voxel": {n: one.values.reshape(-1) for n, one in present if n in wanted}}
    if not isinstance(stream, Mesh):
        return {}
    return {
        place: {
            name: values for name, values in stream.channels[location].items() if name in wanted
        }
        for place, location in (
            ("detail", "detail"),
            ("primitive", "primitive"),
            ("vertex", "point"),
        )
    }


def _counts_of(stream: Any) -> dict[str, int]:
    if isinstance(stream, Voxels):
        return {"voxel": stream.voxel_count}
    return {"vertex": stream.point_count, "primitive": stream.primitive_count}


def _narrowest(channels: Mapping[str, Mapping[str, Any]], stream: Any) -> Any:
    """Where values are told: at points, but on faces of a source where only these have any."""
    if channels.get("voxel"):
        return "voxel"
    alone = bool(channels.get("primitive")) and not channels.get("vertex")
    return "primitive" if alone and not isinstance(stream, Curves) else "vertex"


def object_stream(setup: SolverSetup, path: str, streams: Mapping[str, Any]) -> Any:
    """Return the input stream whose elements become an Object, or None."""
    node = setup.get(path)
    if isinstance(node, Group):
        return None
    declared = node.parameters().get("input")
    if declared is None or declared.kind != "stream":
        return None
    return streams.get(str(getattr(node, "input", None)))
