"""A scene: a Solver Setup with its input streams, from files or from the gallery."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from loki_core.behavior import Behavior
from loki_core.errors import InputError, SetupError, did_you_mean
from loki_core.parameter import Parameter
from loki_core.solver_setup import SolverSetup
from loki_core.wording import noun
from loki_vfx.bridges.standalone.failures import UsageError
from loki_vfx.bridges.standalone.gallery import example_of_file, find_example
from loki_vfx.bridges.standalone.input_files import Input, read_inputs

if TYPE_CHECKING:
    from loki_graph import Graph

DEFAULT_FRAMES = 24
_RANGE = re.compile(r"(-?\d{1,8})-(-?\d{1,8})")


class AfterSolver(Protocol):
    """Turns the Objects of a frame, by path, into what is written.

    Attributes:
        paths: Objects that it needs.
        only_passes_on: Whether a part of an Object goes through as it is.
    """

    paths: tuple[str, ...]
    only_passes_on: bool

    def __call__(self, frame: int, objects: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Scene:
    """What is simulated, and what goes in.

    Attributes:
        setup: The Solver Setup, with the changes of the command line.
        inputs: Streams by name, or functions of the frame.
        frame_count: How many frames the scene suggests, the start frame included.
        document: What the cache says it is of: a graph's document, or None for the setup's.
        after: Turns a frame's Objects into what is written; None writes the Objects.
        description: Of the graph around the Solver Setup, for people; empty without one.
        missing: Inputs that the graph around the Solver Setup needs and that are not given, each
            with the streams of the Solver Setup that need it.
    """

    setup: SolverSetup
    inputs: dict[str, Input] = field(default_factory=dict)
    frame_count: int = DEFAULT_FRAMES
    document: dict[str, Any] | None = None
    after: AfterSolver | None = None
    description: str = ""
    missing: Mapping[str, frozenset[str]] = field(default_factory=dict)


def load_scene(
    file: Path,
    *,
    inputs: Sequence[str] = (),
    changes: Sequence[str] = (),
    extensions: Sequence[str] = (),
    stand_in: bool = False,
) -> Scene:
    """Read a Solver Setup or Loki Graph file and its input streams.

    A Solver Setup of the gallery has the gallery's streams, where none are given. With `stand_in`
    a graph may lack inputs: the scene then has no streams where they lead to.

    Raises:
        LokiError: A file, an input or a change is not valid.
    """
    load_all_extensions(extensions)
    document, given = read_document(file, changes), read_inputs(inputs)
    refuse_unknown_inputs(document, given)
    scene = scene_of_file(file, document, given, stand_in=stand_in)
    if scene.missing and not stand_in:
        options = " ".join(f"--input {name}=PATH" for name in scene.missing)
        which = " and ".join(f'"{name}"' for name in scene.missing)
        raise InputError(
            f"{file} needs the {noun(len(scene.missing), 'input')} {which}; add {options}"
        )
    return scene


def scene_of_file(
    file: Path, document: SolverSetup | Graph, inputs: Mapping[str, Input], *, stand_in: bool
) -> Scene:
    """Return the scene of what a file holds, with the gallery's streams if it is of the gallery."""
    name = example_of_file(file)
    if name is not None and isinstance(document, SolverSetup):
        scene = build_example(name, {})
        return replace(scene, setup=document, inputs={**scene.inputs, **inputs})
    return make_scene(document, inputs, folder=file.parent, stand_in=stand_in)


def refuse_unknown_inputs(document: SolverSetup | Graph, inputs: Iterable[str]) -> None:
    """Refuse names that no part of a document asks for; a disabled part counts as well.

    Raises:
        InputError: There is such a name; the message has the nearest one.
    """
    known = input_names(document)
    for name in inputs:
        if name not in known:
            raise InputError(
                f'{document.name} has no input "{name[:80]}"{did_you_mean(name, known)}'
            )


def input_names(document: SolverSetup | Graph) -> set[str]:
    """Return the names of all inputs that a document knows, enabled or not."""
    if isinstance(document, SolverSetup):
        return {stream.name for stream in document.all_streams()}
    from loki_vfx.bridges.standalone.graph_scene import host_input_names

    return set(host_input_names(document).values())


def build_example(name: str, options: Mapping[str, Any]) -> Scene:
    """Build a scene of the gallery."""
    module = find_example(name)
    setup, inputs = module.build(**options)
    return Scene(setup, inputs, int(getattr(module, "FRAMES", DEFAULT_FRAMES)))


def read_document(file: Path, changes: Sequence[str] = ()) -> SolverSetup | Graph:
    """Return the Solver Setup or Loki Graph of a `*.loki.json` file, with changes applied."""
    from loki_graph import load_document_file

    document = load_document_file(file)
    if isinstance(document, SolverSetup):
        return apply_changes(document, changes)
    from loki_vfx.bridges.standalone.graph_scene import change_graph

    return change_graph(document, changes)


def make_scene(
    document: SolverSetup | Graph,
    inputs: Mapping[str, Input],
    *,
    folder: Path,
    confined: bool = False,
    stand_in: bool = False,
) -> Scene:
    """Return the scene of a document and its streams.

    Paths in a graph are relative to the folder; if `confined` they cannot leave it.
    """
    if isinstance(document, SolverSetup):
        return Scene(document, dict(inputs))
    from loki_vfx.bridges.standalone.graph_scene import graph_scene

    return graph_scene(document, inputs, folder=folder, confined=confined, stand_in=stand_in)


def load_all_extensions(extensions: Sequence[str]) -> None:
    """Import the Behaviors of extension folders."""
    from loki_core.behavior import load_builtin_behaviors, load_extensions

    load_builtin_behaviors()
    load_extensions(extensions)


def apply_changes(setup: SolverSetup, changes: Sequence[str]) -> SolverSetup:
    """Return the Solver Setup with `Group/Behavior.parameter=value` texts applied.

    Changes of one Behavior, or of the settings, are made at once, since some values are valid only
    together: the two corners of a domain box.
    """
    together: dict[str, dict[str, Any]] = {}
    for text in changes:
        target, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not target:
            raise UsageError(
                f'--set "{text[:120]}" is not of the form Group/Behavior.parameter=value'
            )
        path, _, name = target.rpartition(".")
        declared = _declared(setup, path).get(name)
        if declared is None and not path and name != "enabled":
            raise SetupError(f'{setup.name} has no setting "{name}"{_hint(setup, name)}')
        if declared is None:  # a switch, or a mistake that `set` has words for
            setup = setup.set(target, value)
            continue
        place = f"{setup.place(path)}.{name}"
        together.setdefault(path, {})[name] = declared.from_text(value, place)
    for path, values in together.items():
        setup = setup.replace(path, **values)
    return setup


def _hint(setup: SolverSetup, name: str) -> str:
    """Return where a plain name may have been meant: in a Behavior, or as a setting."""
    near = nearest_target(setup, name)
    if near is not None:
        return f'; did you mean "{near}"?'
    hint = did_you_mean(name, setup.settings.parameters())
    return f"{hint}; a parameter is written Group/Behavior.parameter"


def nearest_target(setup: SolverSetup, name: str, exposed: Iterable[str] = ()) -> str | None:
    """Return what `--set` may mean by a name, or None if nothing is like it.

    Args:
        exposed: Names that a graph around the Solver Setup gives to parameters.
    """
    held = {
        parameter: f"{path}.{parameter}"
        for path, one in reversed(list(setup.behaviors()))  # of several the first
        for parameter in one.parameters()
    }
    known = {**held, **{one: one for one in (*setup.settings.parameters(), *exposed)}}
    near = difflib.get_close_matches(name, known, n=1)
    return known[near[0]] if near else None


def _declared(setup: SolverSetup, path: str) -> Mapping[str, Parameter]:
    node = setup.find(path).node
    if isinstance(node, SolverSetup):
        return setup.settings.parameters()
    return node.parameters() if isinstance(node, Behavior) else {}


def frame_range(text: str | None, setup: SolverSetup, *, suggested: int) -> tuple[int, int]:
    """Return first and last frame of `N` frames from the start frame on, or of `A-B`.

    The start frame is the state at time zero; it is a frame like the others.
    """
    start = setup.settings.start_frame
    if text is None:
        return start, start + suggested - 1
    text = text.strip()
    if text.isascii() and text.isdigit():
        if not 0 < int(text) <= 10_000_000:
            raise UsageError(f'--frames "{text}": expected 1 to 10,000,000 frames')
        return start, start + int(text) - 1
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(
            f'--frames "{text}" is neither a number of frames nor a range such as 1-48'
        )
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise UsageError(f'--frames "{text}" ends before it begins')
    if first < start:
        raise InputError(
            f'--frames "{text}" begins before {setup.name}.start_frame = {start}; '
            f"begin at {start}, or set start_frame"
        )
    return first, last


def streams_at(inputs: Mapping[str, Input], frame: int) -> dict[str, Any]:
    """Return every stream as it is at a frame."""
    return {name: given(frame) if callable(given) else given for name, given in inputs.items()}
