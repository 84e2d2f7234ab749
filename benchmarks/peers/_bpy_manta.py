"""Mantaflow inside `bpy`, Blender as a Python module: scenes, a repair, a clock on its functions.

This file runs in the Python that has bpy; it needs nothing of Loki.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Places in CPython 3.11's PyTypeObject, 64 bit.
TP_FLAGS, TP_VERSION_TAG = 168, 384
TP_DICT, TP_BASES, TP_MRO, TP_CACHE, TP_SUBCLASSES = 264, 336, 344, 352, 360
HEAP_TYPE, READY = 1 << 9, 1 << 12

FRAMES_PER_SECOND = 24

Case = dict[str, Any]


def answer(measure: Callable[[Case], dict[str, Any]]) -> None:
    """Run the case that the command line names, print its figures and leave."""
    started = time.perf_counter()
    figures = measure(json.loads(sys.argv[1]))
    figures["peak_memory"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures["total_seconds"] = time.perf_counter() - started
    print("\nFIGURES " + json.dumps(figures), flush=True)
    sys.stderr.flush()
    os._exit(0)  # Mantaflow's static destructors abort otherwise


def bake(build: Callable[[Case, str], Any], case: Case) -> MantaClock:
    """Bake the domain that `build(case, folder)` makes in an empty scene; return the clock."""
    import bpy

    for one in list(bpy.data.objects):
        bpy.data.objects.remove(one)
    repair()
    clock = MantaClock()
    folder = tempfile.mkdtemp(prefix="mantaflow_")
    try:
        domain = build(case, folder)
        bpy.context.view_layer.objects.active = domain
        with bpy.context.temp_override(
            object=domain, active_object=domain, scene=bpy.context.scene
        ):
            bpy.ops.fluid.bake_data()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return clock


def cube_domain(kind: str, edge: float, resolution: int, frames: int, folder: str) -> Any:
    """Return a new domain object, a cube from the origin; `kind` is "GAS" or "LIQUID"."""
    import bpy

    scene = bpy.context.scene
    scene.render.fps = FRAMES_PER_SECOND
    scene.frame_start, scene.frame_end = 1, frames
    made = box("domain", (0.0, 0.0, 0.0), (edge, edge, edge))
    modifier = made.modifiers.new("F", "FLUID")
    modifier.fluid_type = "DOMAIN"
    domain = modifier.domain_settings
    domain.domain_type = kind
    domain.resolution_max = resolution
    domain.cache_directory = folder
    domain.cache_type = "MODULAR"
    domain.cache_frame_start, domain.cache_frame_end = 1, frames
    domain.use_adaptive_timesteps = False
    return made


def add_flow(made: Any, kind: str) -> Any:
    """Make a mesh object a source from the start, "SMOKE" or "LIQUID"; return its settings."""
    modifier = made.modifiers.new("F", "FLUID")
    modifier.fluid_type = "FLOW"
    flow = modifier.flow_settings
    flow.flow_type = kind
    flow.flow_behavior = "GEOMETRY"
    return flow


def box(name: str, lower: tuple[float, ...], upper: tuple[float, ...]) -> Any:
    """Return a new mesh object: the box between two corners [m]."""
    import bpy

    center = [(a + b) / 2 for a, b in zip(lower, upper, strict=True)]
    bpy.ops.mesh.primitive_cube_add(size=1.0, location=center)
    made = bpy.context.object
    made.scale = [b - a for a, b in zip(lower, upper, strict=True)]
    bpy.ops.object.transform_apply(location=False, rotation=False, scale=True)
    made.name = name
    return made


def repair() -> None:
    """Make Mantaflow usable in bpy as a module; Blender the program does not need it.

    bpy imports its inner module `manta` at start-up, before Mantaflow's class registry has joined
    the methods of base classes, so that every bake fails with "'LevelsetGrid' object has no
    attribute 'setConst'". Here the registry is made to build by evaluating a tiny domain, the
    static types are put back to "not ready", and the module is initialised once more. Nothing in
    the solver changes.

    Raises:
        RuntimeError: This is not CPython 3.11, or the repair did not help.
    """
    import bpy
    import manta

    if hasattr(manta.LevelsetGrid, "setConst"):
        return
    if sys.version_info[:2] != (3, 11) or sys.implementation.name != "cpython":
        raise RuntimeError(f"the repair of bpy's Mantaflow knows CPython 3.11 only: {sys.version}")
    _evaluate_tiny_domain()
    seen = {id(one) for one in (object, int, float, str, type, bool)}
    for one in list(vars(manta).values()):
        address = id(one)
        if address in seen or type(one) is not type:
            continue
        seen.add(address)
        flags = ctypes.c_ulong.from_address(address + TP_FLAGS)
        if flags.value & HEAP_TYPE:
            continue
        flags.value &= ~READY
        for place in (TP_DICT, TP_BASES, TP_MRO, TP_CACHE, TP_SUBCLASSES):
            ctypes.c_void_p.from_address(address + place).value = None
        ctypes.c_uint.from_address(address + TP_VERSION_TAG).value = 0
    library = ctypes.PyDLL(_library_of_bpy())
    library.PyInit_manta_main.restype = ctypes.py_object
    sys.modules["manta"] = library.PyInit_manta_main()
    if not hasattr(sys.modules["manta"].LevelsetGrid, "setConst"):
        raise RuntimeError(f"Mantaflow of bpy {bpy.app.version_string} could not be repaired")


def _library_of_bpy() -> str:
    # bpy.__file__ is a Python file inside the package, not the library that was loaded
    for folder in map(Path, sys.path):
        for library in (folder / "bpy" / "__init__.so", folder / "bpy" / "__init__.pyd"):
            if library.exists():
                return str(library)
    raise RuntimeError("the library of bpy is on no folder of sys.path")


def _evaluate_tiny_domain() -> None:
    import bpy

    scene = bpy.context.scene
    made = box("tiny", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    modifier = made.modifiers.new("F", "FLUID")
    modifier.fluid_type = "DOMAIN"
    domain = modifier.domain_settings
    domain.domain_type = "GAS"
    domain.resolution_max = 8
    domain.cache_type = "REPLAY"
    with tempfile.TemporaryDirectory() as folder:
        domain.cache_directory = folder
        error, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)  # this evaluation fails, with a traceback for each line
        scene.frame_set(1)
        scene.frame_set(2)
        os.dup2(error, 2)
        bpy.data.objects.remove(made)
        scene.frame_set(1)


class MantaClock:
    """A wall clock on every function of the `manta` module.

    Blender evaluates the fluid in whichever thread it likes, so that a profiler of one thread sees
    some steps only; Mantaflow's scripts do `from manta import *`, so functions that are wrapped
    before the domain is first evaluated are all seen.
    """

    def __init__(self) -> None:
        import manta

        self.calls: list[tuple[float, float, str, str]] = []  # start, seconds, name, first text
        self.grids: list[tuple[float, tuple[int, int, int]]] = []  # start, size of the solve
        self.particles: list[tuple[float, int]] = []  # start, how many there are
        for name, function in list(vars(manta).items()):
            if callable(function) and not isinstance(function, type) and name[0] != "_":
                setattr(manta, name, self._wrapped(name, function))

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            if name == "solvePressure":
                flags = named["flags"]
                size = (flags.getSizeX(), flags.getSizeY(), flags.getSizeZ())
                self.grids.append((time.perf_counter(), size))
            if name == "flipVelocityUpdate":
                self.particles.append((time.perf_counter(), named["parts"].pySize()))
            start = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                text = arguments[0] if arguments and isinstance(arguments[0], str) else ""
                self.calls.append((start, time.perf_counter() - start, name, text))

        return timed

    def messages(self, beginning: str) -> list[tuple[float, str]]:
        """Return Mantaflow's own messages that begin so, with when they came [s]."""
        told = ((start, text) for start, _, name, text in self.calls if name == "mantaMsg")
        return [(start, text) for start, text in told if text.startswith(beginning)]

    def steps(self) -> list[tuple[float, float]]:
        """Return when each solver step ended, and its own time [s]."""
        return [(end, float(text.split()[2])) for end, text in self.messages("--- Step")]

    def seconds_by_function(self, since: float, until: float) -> dict[str, float]:
        """Return the time of each function [s] between two moments, largest first."""
        total: dict[str, float] = {}
        for start, seconds, name, _ in self.calls:
            if since <= start <= until and name != "mantaMsg":
                total[name] = total.get(name, 0.0) + seconds
        return dict(sorted(total.items(), key=lambda item: -item[1]))
