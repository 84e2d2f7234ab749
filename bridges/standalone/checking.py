"""Checking: everything that would go wrong in a run, found without running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from loki_core.behavior import Behavior, registry
from loki_core.constraints.collision import CollisionConstraint
from loki_core.data.mesh import Mesh
from loki_core.data.particle_system import ParticleSystem
from loki_core.data.voxels import Voxels
from loki_core.errors import LokiError, did_you_mean
from loki_core.keyframes import Keyframes
from loki_core.objects.basics.capabilities import Bodies, Joints, LooseParticles
from loki_core.objects.basics.object import Object
from loki_core.objects.colliders.collider import Collider
from loki_core.operating_system import memory_bytes
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from loki_core.sparse_parameters import channel_names
from loki_core.wording import counted, noun
from loki_vfx.bridges.standalone.explanation import explain_parameters, object_stream
from loki_vfx.bridges.standalone.scene import Scene, input_names, streams_at

if TYPE_CHECKING:
    from loki_graph import Graph

#: The state, the copy that a substep is rolled back to, and what a frame writes.
MEMORY_COPIES = 3.0


class Finding(NamedTuple):
    """Something that would go wrong ("error") or may be a mistake ("warning")."""

    severity: str
    place: str
    message: str


def check_scene(scene: Scene, *, frames: int) -> list[Finding]:
    """Return what is wrong with a scene, errors first.

    Args:
        scene: The Solver Setup and its inputs.
        frames: How many frames will run, for the memory estimate of endless emitters.
    """
    setup = scene.setup
    findings = check_declarations(scene)
    streams: dict[str, Any] = {}
    for name, given in scene.inputs.items():
        try:
            streams |= streams_at({name: given}, setup.settings.start_frame)
        except LokiError as error:
            findings.append(Finding("error", f'input "{name}"', str(error)))
    for name, stream in streams.items():
        findings += _check_stream(name, stream)
    findings += _check_channels(setup, streams)
    findings += _check_overrides(setup, streams)
    findings += _check_painted(setup, streams)
    findings += _check_domain_box(setup, streams)
    missing = [stream for stream in setup.streams() if stream.name not in scene.inputs]
    told = {f'input "{stream.name}"' for stream in missing}
    # what a missing `input` would bring is not known; any other missing stream can be stood in for
    complete = all(stream.parameter != "input" for stream in missing)
    if complete and not any(one.severity == "error" and one.place not in told for one in findings):
        behaviors = dict(setup.behaviors())
        empty = {one.name: behaviors[one.path].empty_stream(one.parameter) for one in missing}
        idle = setup.idle_streams(streams)  # which was said by name
        used = {name: stream for name, stream in streams.items() if name not in idle}
        findings += _check_solver(setup, {**used, **empty}, frames=frames)
    return sorted(findings, key=lambda one: one.severity != "error")


def check_inputs(document: SolverSetup | Graph, inputs: Iterable[str]) -> Iterator[Finding]:
    """Check the names under which inputs are given."""
    known = input_names(document)
    for name in inputs:
        if name not in known:
            text = f'{document.name} has no input "{name[:80]}"{did_you_mean(name, known)}'
            yield Finding("error", f'input "{name}"', text)


def check_declarations(scene: Scene) -> list[Finding]:
    """Return what is wrong with the tree and the names of its streams; no data are looked at."""
    return [*_check_tree(scene.setup), *_check_missing(scene), *_check_streams(scene)]


def _check_missing(scene: Scene) -> Iterator[Finding]:
    for name in scene.missing:
        text = f'input "{name}" is not given: an empty stream stands in; a run needs --input '
        yield Finding("warning", f'input "{name}"', f"{text}{name}=PATH")


def _check_tree(setup: SolverSetup) -> Iterator[Finding]:
    """Check references to Objects and exclusive Behaviors, each for itself."""
    for path, behavior in setup.behaviors():
        for name, declared in behavior.parameters().items():
            value = getattr(behavior, name)
            if declared.kind != "object_reference" or not value:
                continue
            for reference in (value,) if isinstance(value, str) else value:
                place = f"{setup.place(path)}.{name}"
                try:
                    setup.resolve_object(reference, place=place)
                except LokiError as error:
                    yield Finding("error", place, str(error))
        try:
            setup.reach(path)
        except LokiError as error:
            yield Finding("error", setup.place(path), str(error))


def _check_streams(scene: Scene) -> Iterator[Finding]:
    setup, is_graph = scene.setup, scene.document is not None
    there = {*scene.inputs, *(name for lost in scene.missing.values() for name in lost)}
    needed: dict[str, list[str]] = {}
    for stream in setup.streams():
        needed.setdefault(stream.name, []).append(f"{stream.path}.{stream.parameter}")
    starved = {one.path for one in setup.streams() if one.name not in there}
    objects = setup.objects_below("")
    nothing_left = all(path in starved for path in objects)
    if not objects:
        yield Finding("error", setup.name, "there is no enabled Object: nothing is simulated")
    for name, users in needed.items():
        if name in there:
            continue
        feeds_object = any(user.rpartition(".")[0] in objects for user in users)
        severity = "error" if nothing_left and feeds_object else "warning"
        lack = "connected in the graph" if is_graph else "given"
        remedy = "connect it" if is_graph else f"add --input {name}=PATH"
        they = f"{noun(len(users), 'it')} {noun(len(users), 'is')} inactive"
        text = f'input stream "{name}" of {", ".join(users)} is not {lack}, so {they}; {remedy}'
        yield Finding(severity, f'input "{name}"', text)
    disabled = {one.name: one.path for one in setup.all_streams()}
    for name in setup.idle_streams(scene.inputs):
        text = f'input "{name}": no enabled Behavior uses it{did_you_mean(name, needed)}'
        if name in disabled:
            text = f'input "{name}" is given for {disabled[name]}, which is disabled'
        yield Finding("warning", f'input "{name}"', text)


def _check_stream(name: str, stream: Any) -> Iterator[Finding]:
    label = f'input "{name}"'
    for severity, message in stream.check(label):
        yield Finding(severity, label, message)
    if not isinstance(stream, Mesh):
        return
    for location, channels in stream.channels.items():
        for channel, values in channels.items():
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
                text = (
                    f'{location} channel "{channel}"[{int(np.argmax(bad))}] = '
                    f"{values[int(np.argmax(bad))].tolist()} "
                    f"({counted(int(bad.sum()), 'such element')}); "
                    "expected finite numbers"
                )
                yield Finding("error", label, f"{label}: {text}")


def _check_channels(setup: SolverSetup, streams: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that voxel streams have the channels that parameters of kind "channel" name."""
    for path, behavior in setup.behaviors():
        for name, declared in behavior.parameters().items():
            source = _stream_of_channel(behavior, name) if declared.kind == "channel" else None
            stream = None if source is None else streams.get(source)
            place = f"{setup.place(path)}.{name}"
            wanted = getattr(behavior, name)
            if stream is None or not wanted:
                continue
            if not isinstance(stream, Voxels):
                text = f'input "{source}" is {stream.type_name}; voxels are expected'
                yield Finding("error", place, f"{place}: {text}")
            elif wanted not in stream.channels:
                text = f'input "{source}" has no channel "{wanted}"'
                hint = did_you_mean(wanted, stream.channels)
                yield Finding("error", place, f"{place}: {text}{hint}")


def _stream_of_channel(behavior: Behavior, name: str) -> str | None:
    """Return the stream that a channel parameter is about.

    By convention `channel` goes with `field`, and `mask_channel` with `mask`.
    """
    partner = "field" if name == "channel" else name.removesuffix("_channel")
    declared = behavior.parameters().get(partner)
    if declared is None or declared.kind != "stream":
        return None
    value = getattr(behavior, partner)
    return value if isinstance(value, str) else None


def _check_overrides(setup: SolverSetup, streams: Mapping[str, Any]) -> Iterator[Finding]:
    try:
        for one in explain_parameters(setup, streams):
            place = f"{setup.place(one['behavior'])}.{one['parameter']}"
            for override in one["overrides"]:
                if override["error"]:
                    yield Finding("error", place, override["error"])
    except LokiError:
        return  # scopes are wrong, which _check_tree has said


def _check_painted(setup: SolverSetup, streams: Mapping[str, Any]) -> Iterator[Finding]:
    """Say which channels have the name of a parameter, and so override nothing.

    Names of Objects' parameters are left out: many are channels that Objects take, as "velocity".
    """
    meant: dict[tuple[str, str], dict[str, None]] = {}
    objects = [kind for kind in registry().values() if kind.kind == "object"]
    taken = {name for kind in objects for name in kind.parameters()}
    for path, behavior in setup.behaviors():
        kind = type(behavior)
        try:
            reached = setup.reach(path)
        except LokiError:
            continue  # which _check_tree has said
        for name, declared in behavior.parameters().items():
            names = channel_names(kind, name)
            if declared.varies == "no" or name in names or name in taken:
                continue
            for item in reached:
                stream = object_stream(setup, item, streams)
                if isinstance(stream, Mesh) and any(
                    name in one for one in stream.channels.values()
                ):
                    meant.setdefault((item, name), {})[names[0]] = None
    for (item, name), names_meant in meant.items():
        whole = " or ".join(f'"{one}"' for one in names_meant)
        place = setup.place(item)
        text = f'{place}: its channel "{name}" overrides nothing; was {whole} meant?'
        yield Finding("warning", place, text)


def _check_domain_box(setup: SolverSetup, streams: Mapping[str, Any]) -> Iterator[Finding]:
    settings = setup.settings
    if settings.domain_lower is None or settings.domain_upper is None:
        return
    lower, upper = np.array(settings.domain_lower), np.array(settings.domain_upper)
    for path in setup.objects_below(""):
        stream = object_stream(setup, path, streams)
        if not isinstance(stream, Mesh) or stream.point_count == 0:
            continue
        outside = np.any((stream.positions < lower) | (stream.positions > upper), axis=1)
        count = int(outside.sum())
        if count:
            row = int(np.argmax(outside))
            place = setup.place(path)
            text = (
                f"{count} of {stream.point_count} points are outside the domain box "
                f"{lower.tolist()} to {upper.tolist()} m, the first is positions[{row}] = "
                f"{stream.positions[row].tolist()} m; enlarge the box or move the points"
            )
            severity = "error" if count == stream.point_count else "warning"
            yield Finding(severity, place, f"{place}: {text}")


def _check_solver(
    setup: SolverSetup, streams: Mapping[str, Any], *, frames: int
) -> Iterator[Finding]:
    """Build the Solver: expressions, Buckets, conflicts of Tasks; then estimate the memory."""
    available = memory_bytes()["available"]
    try:
        solver = Solver(setup, streams, comm=SERIAL)
    except LokiError as error:
        yield Finding("error", setup.name, str(error))
        return
    for message in solver.warnings:
        yield Finding("warning", setup.name, message)
    for one in solver.inactive:
        if not one.reason.startswith("there is no input stream"):  # said already
            yield Finding("warning", setup.place(one.path), f"{one.path} is inactive: {one.reason}")
    yield from _check_passing(setup, solver)
    needed = estimate_memory(solver, frames=frames)
    if available is not None and needed > 0.5 * available:
        text = (
            f"about {needed / 1e9:.1f} GB are needed and {available / 1e9:.1f} GB are available; "
            "use fewer particles, or more ranks on more machines"
        )
        yield Finding("error" if needed > available else "warning", setup.name, text)


def _check_passing(setup: SolverSetup, solver: Solver) -> Iterator[Finding]:
    """Say what goes through a Collider of its Group because nothing lets them meet."""
    for item in solver.objects.values():
        kind = None if _reaching(setup, item.path, CollisionConstraint) else _passing_kind(item)
        colliders = _reaching(setup, item.path, Collider) if kind else []
        if colliders:
            place, names = setup.place(item.path), ", ".join(map(setup.place, colliders))
            text = (
                f"its {kind} pass through {names}: no enabled Behavior lets them meet; add a "
                "CollisionConstraint to their Group"
            )
            yield Finding("warning", place, f"{place}: {text}")


def _passing_kind(item: Object) -> str | None:
    """What an Object is made of that meets Colliders by Collision Constraints alone, if it is."""
    if isinstance(item, LooseParticles) and item.fluid is None:
        return "particles" if item.droplets is None else "droplets"
    if isinstance(item, Bodies):
        return "strands" if isinstance(item, Joints) else "bodies"
    return None


def _reaching(setup: SolverSetup, path: str, kind: type[Behavior]) -> list[str]:
    """Paths of the enabled Behaviors of a class that reach an Object."""
    behaviors = setup.behaviors()
    return [p for p, one in behaviors if isinstance(one, kind) and path in setup.reach(p)]


def estimate_memory(solver: Solver, *, frames: int) -> float:
    """Return about how many bytes a run will need at its largest."""
    total = 0.0
    seconds = frames * solver.settings.frame_duration
    for item in solver.objects.values():
        emitted = _emitted(item.behavior, seconds)
        for holder in item.data.values():
            if isinstance(holder, ParticleSystem):
                size = sum(one.bytes_per_particle for one in holder.channels.values())
                total += size * (holder.count + emitted)
            else:
                total += sum(holder.memory().values())  # type: ignore[attr-defined]
    return MEMORY_COPIES * total


def _emitted(behavior: Behavior, seconds: float) -> float:
    """Return how many particles an emitter has alive at most; keyframes count with their peak."""
    rate, lifetime = _peak(behavior, "rate"), _peak(behavior, "lifetime")
    return (rate or 0.0) * (seconds if lifetime is None else min(seconds, lifetime))


def _peak(behavior: Behavior, name: str) -> float | None:
    value: Any = getattr(behavior, name, None)
    if isinstance(value, Keyframes):
        value = max(value.values)
    return None if value is None else float(value)
