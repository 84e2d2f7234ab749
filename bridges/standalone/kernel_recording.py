"""Kernel Recording: which kernels are called on behalf of which Behaviors, for the Kernel Book.

The scenes of the gallery run for some frames, and small ones of what these do not have
(`recording_scenes.py`). A call is taken for that of the innermost Object, Action or Behavior on the
stack whose module declares Behaviors. What runs for all, such as the joint system of solids, is
taken to be needed by every Object that is there in all the scenes that call it, or in most of
them, until each of these scenes has an Object that needs it.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from loki_core.behavior import registry
from loki_core.errors import FormatError
from loki_core.kernels.jit import LazyKernel
from loki_core.kernels.kernel_book import Entry
from loki_core.kernels.signatures import read_signature, signature_text
from loki_core.parallel.comm import SERIAL
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup

FRAMES = "3"


class KernelRecording:
    """Watches all kernels while its block runs."""

    def __init__(self) -> None:
        self._declaring = {one.__module__ for one in registry().values()}
        self.needed: dict[str, set[Entry]] = defaultdict(set)
        self.without_owner: set[Entry] = set()

    def __enter__(self) -> KernelRecording:
        self._call: Callable[..., Any] = LazyKernel.__call__

        def call_and_note(kernel: LazyKernel, *arguments: Any) -> Any:
            self._note(kernel, arguments)
            return self._call(kernel, *arguments)

        LazyKernel.__call__ = call_and_note  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *exception: object) -> None:
        LazyKernel.__call__ = self._call  # type: ignore[method-assign]

    def _note(self, kernel: LazyKernel, arguments: tuple[Any, ...]) -> None:
        import numba

        typeof: Any = numba.typeof

        name = f"{kernel.__module__}.{kernel.__name__}"
        entry = Entry(name, tuple(signature_text(typeof(one) for one in arguments)))
        if not kernel.cached or not name.startswith("loki_core.") or entry.find() is not kernel:
            return  # a formula, or an expression of a user
        try:
            read_signature(entry.signature)
        except FormatError:
            return  # a view that somebody may not write to; the kernel compiles when it is called
        owner = self._owner()
        (self.without_owner if owner is None else self.needed[owner]).add(entry)

    def _owner(self) -> str | None:
        frame: Any = sys._getframe(2)
        while frame is not None:
            module = type(frame.f_locals.get("self")).__module__
            if module in self._declaring:
                return module
            frame = frame.f_back
        return None


def record(examples: Iterable[str], progress: Callable[[str], None]) -> dict[str, set[Entry]]:
    """Run scenes for a few frames, and return what each module needs.

    Args:
        examples: Scenes of the gallery that run beside the small ones.
        progress: Is told the name of each scene.
    """
    from loki_vfx.bridges.standalone.recording_scenes import SCENES

    runs = {name: functools.partial(_run_example, name) for name in examples}
    runs |= {name: functools.partial(_run_scene, build) for name, build in SCENES.items()}
    needed: dict[str, set[Entry]] = defaultdict(set)
    callers: dict[Entry, list[set[str]]] = defaultdict(list)
    for name, run in runs.items():
        progress(name)
        with KernelRecording() as recording:
            setup = run()
        objects = {type(one).__module__ for _, one in setup.behaviors() if one.kind == "object"}
        for module, entries in recording.needed.items():
            needed[module] |= entries
        for entry in recording.without_owner:
            callers[entry].append(objects)
    for entry, scenes in callers.items():
        for module in owners(scenes):
            needed[module].add(entry)
    return dict(needed)


def owners(scenes: Iterable[set[str]]) -> set[str]:
    """Return who needs what some scenes call, of the modules of their Objects."""
    found: set[str] = set()
    left = [modules for modules in scenes if modules]
    while left:
        counts = Counter(module for modules in left for module in modules)
        most = max(counts.values())
        found |= {module for module, count in counts.items() if count == most}
        left = [modules for modules in left if not modules & found]
    return found


def _run_example(name: str) -> SolverSetup:
    from loki_vfx.bridges.standalone.run_request import RunRequest

    with tempfile.TemporaryDirectory() as folder:
        request = RunRequest(output=str(Path(folder) / "out"), example=name, frames=FRAMES)
        runner = request.runner(listener=lambda event: None, comm=SERIAL)
        runner.run()
    return runner.setup


def _run_scene(build: Callable[[], tuple[SolverSetup, dict[str, Any]]]) -> SolverSetup:
    setup, inputs = build()
    solver = Solver(setup, inputs, comm=SERIAL)
    solver.run(int(FRAMES) - 1)
    solver.outputs()
    return setup
