"""Solver Setup node: a simulation inside a graph.

It has an input for each stream that the Solver Setup names, and an output for each Object. The
Solver Setup is part of the graph's document, or a `*.loki.json` file beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from loki_core.behavior import parameter
from loki_core.errors import GraphError, LokiError, did_you_mean
from loki_core.parameter import MAX_STRING, is_clean_text, show
from loki_core.solver_setup import SolverSetup
from loki_graph.node import Node, Values
from loki_graph.sockets import Socket
from loki_graph.solver_run import SolverRun

if TYPE_CHECKING:
    from loki_graph.evaluate import Context


class SolverSetupNode(Node):
    """Simulate a Solver Setup, frame after frame.

    `setup` is a SolverSetup, its document, or the path of its file relative to the graph.
    """

    pulls: ClassVar[bool] = True
    output_sockets: ClassVar[tuple[Socket, ...]] = ()
    _own_fields = MappingProxyType({"setup": None})

    setup: SolverSetup | str | None = None
    keep_frames: int = parameter(
        24, minimum=0, maximum=1_000_000, doc="Latest frames that stay in memory; 0 keeps all."
    )
    catch_up: bool = parameter(
        False, doc="Compute the frames in between when a later frame is asked for."
    )
    cache: str = parameter("", doc="Folder of a frame cache to write and to read; empty has none.")
    overwrite_cache: bool = parameter(
        False, doc="Replace the cache of another Solver Setup or of other inputs."
    )

    if TYPE_CHECKING:
        loaded_setup: ClassVar[Any]

    def _fill_own(self, values: dict[str, Any], *, place: str) -> None:
        given = values.pop("setup", None)
        loaded = None
        if isinstance(given, str):
            if not given or len(given) > MAX_STRING or not is_clean_text(given):
                raise GraphError(f"{place}.setup = {show(given)} is not the path of a file")
        elif isinstance(given, Mapping):
            given = loaded = _read_document(given, place=f"{place}.setup")
        elif isinstance(given, SolverSetup):
            loaded = given
        else:
            raise GraphError(
                f"{place}.setup is {show(given)}; give a Solver Setup or the path of its file"
            )
        object.__setattr__(self, "setup", given)
        object.__setattr__(self, "loaded_setup", loaded)

    def _content(self) -> dict[str, Any]:
        return {"setup": self.setup, **self.values()}

    def _shown(self) -> dict[str, Any]:
        return {"setup": self.setup, **self.changed_values()}

    def parameters_document(self) -> dict[str, Any]:
        """Return the setup and the values that are not the default, in JSON form."""
        setup = self.setup.to_document() if isinstance(self.setup, SolverSetup) else self.setup
        return {"setup": setup, **super().parameters_document()}

    def content(self) -> dict[str, Any]:
        """Return what results depend on: the setup, and not how frames are kept."""
        return {"setup": self.loaded_setup.digest() if self.loaded_setup else self.setup}

    def with_setup(self, setup: SolverSetup) -> Self:
        """Return the node with another Solver Setup, which is then part of the graph."""
        return self.replace(setup=setup)

    def is_open(self) -> bool:
        """Return whether the file of the Solver Setup was not read yet."""
        return self.loaded_setup is None

    def resolved(self, find: Callable[[str], Path], *, place: str) -> Self:
        """Return the node with the Solver Setup read from its file.

        Raises:
            LokiError: The file cannot be read, or is no Solver Setup.
        """
        if not isinstance(self.setup, str):
            return self
        from loki_core.setup_document import read_setup

        try:
            loaded = read_setup(find(self.setup))
        except GraphError:
            raise
        except LokiError as error:
            raise type(error)(f"{place}.setup: {error}") from None
        if loaded == self.loaded_setup:
            return self
        copy = self.replace()
        object.__setattr__(copy, "loaded_setup", loaded)
        return copy

    def inputs(self) -> Mapping[str, Socket]:
        """Return an input for each stream that the Solver Setup names."""
        if self.loaded_setup is None:
            return {}
        found: dict[str, Socket] = {}
        for stream in self.loaded_setup.streams():
            doc = f"{stream.parameter} of {stream.path}"
            found.setdefault(stream.name, Socket(stream.name, required=False, doc=doc))
        return found

    def outputs(self) -> Mapping[str, Socket]:
        """Return an output for each enabled Object, called by its path."""
        if self.loaded_setup is None:
            return {}
        return {path: Socket(path) for path in self.loaded_setup.objects_below("")}

    def missing_input(self, name: str) -> str:
        """Say which streams the Solver Setup names."""
        known = self.inputs()
        return did_you_mean(name, known) or "; its Solver Setup names no input stream"

    def varies_with_frame(self, context: Context) -> bool:
        """Say that a simulation moves on."""
        return True

    def run(self, context: Context) -> SolverRun:
        """Return the run under way; a new one where the setup or its inputs changed."""
        if self.loaded_setup is None:
            raise GraphError(f"{context.place}.setup = {show(self.setup)} was not read")
        recipe = context.recipe()
        run = context.memory.get("run")
        if not isinstance(run, SolverRun) or run.recipe != recipe:
            run = context.memory["run"] = SolverRun(self.loaded_setup, context, recipe)
        run.keep_frames, run.catch_up = self.keep_frames, self.catch_up
        run.cache = context.find(self.cache, "cache") if self.cache else None
        run.overwrite_cache = self.overwrite_cache
        return run

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the streams of all Objects at the frame, computing it if it is the next."""
        run = self.run(context)
        results = dict(run.outputs(context.whole_frame))
        return _Outputs(results, run=run, place=context.place)


class _Outputs(dict[str, Any]):
    """Streams by Object path; an Object without one says why."""

    def __init__(self, streams: Mapping[str, Any], *, run: SolverRun, place: str) -> None:
        super().__init__(streams)
        self._run = run
        self._place = place

    def __missing__(self, path: str) -> Any:
        reasons = {one.path: one.reason for one in self._run.solver.inactive}
        reason = reasons.get(path, "it is not in the frame cache")
        raise GraphError(f"{self._place}: Object {path} is inactive: {reason}")


def _read_document(document: Mapping[str, Any], *, place: str) -> SolverSetup:
    try:
        return SolverSetup.from_document(document, place)
    except LokiError as error:
        raise GraphError(str(error)) from None
