"""Solver run: the Solver behind a Solver Setup node, and the frames that are known of it.

A simulation goes forward only. The next frame is computed; earlier ones come from memory or from a
frame cache; anything else is refused with what must run first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loki_core.errors import GraphError
from loki_core.solver_setup import SolverSetup

if TYPE_CHECKING:
    from loki_core.pipeline.solver import Solver
    from loki_graph.evaluate import Context
    from loki_vfx.serialization.frame_cache import FrameCacheReader, FrameCacheWriter


class SolverRun:
    """A simulation under way.

    Args:
        setup: What is simulated.
        context: Of the node; its inputs are pulled through it.
        recipe: Content key of setup and inputs: another one means another run.
    """

    def __init__(self, setup: SolverSetup, context: Context, recipe: str) -> None:
        self.setup = setup
        self.context = context
        self.recipe = recipe
        self.keep_frames = 0
        self.catch_up = False
        self.cache: Path | None = None
        self.overwrite_cache = False
        self._kept: OrderedDict[int, Mapping[str, Any]] = OrderedDict()
        self._writer: FrameCacheWriter | None = None

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Streams by name; functions of the frame where they are animated."""
        start = self.setup.settings.start_frame
        names = sorted({stream.name for stream in self.setup.streams()})
        found: dict[str, Any] = {}
        for name in names:
            if not self.context.is_connected(name):
                continue
            if self.context.varies(name):
                found[name] = self._puller(name)
            else:
                found[name] = self.context.pull(name, start)
        return found

    def _puller(self, name: str) -> Callable[[int], Any]:
        return lambda frame: self.context.pull(name, frame)

    @cached_property
    def solver(self) -> Solver:
        """The Solver, made when it is first needed."""
        from loki_core.pipeline.solver import Solver

        context = self.context
        solver = Solver(self.setup, self.inputs, comm=context.comm, threads=context.threads)
        if self.cache is not None and solver.comm.size > 1:
            raise GraphError(
                f"{context.place}.cache is for a run of one rank, and there are "
                f"{solver.comm.size}; a distributed run is cached by wtloki run"
            )
        self._keep(solver.frame, self._outputs(solver))
        return solver

    def cancel(self) -> None:
        """Ask the Solver to stop, if there is one."""
        if "solver" in vars(self):
            self.solver.cancel()

    def outputs(self, frame: int) -> Mapping[str, Any]:
        """Return the streams of a frame by Object path.

        Raises:
            GraphError: The frame is neither known nor the next one.
        """
        start = self.setup.settings.start_frame
        if frame < start:
            raise GraphError(
                f"{self.context.place} has no frame {frame}; it starts at frame {start}"
            )
        known = self._known(frame)
        if known is not None:
            return known
        if frame > self.solver.frame + 1 and not self.catch_up:
            last, first = frame - 1, self.solver.frame + 1
            missing = f"frame {last}" if first == last else f"frames {first} to {last}"
            raise GraphError(
                f"{self.context.place}: frame {frame} needs {missing} first; run them in order, "
                "switch catch_up on, or read a cache"
            )
        if frame <= self.solver.frame and frame not in self._kept:
            kept = f"{min(self._kept)} to {max(self._kept)}" if self._kept else "none"
            raise GraphError(
                f"{self.context.place}: frame {frame} is no longer in memory (kept: {kept}) and "
                f"the solver is at frame {self.solver.frame}; raise keep_frames, give a cache, or "
                "start again"
            )
        self.advance(frame)
        return self._kept[frame]

    def advance(self, frame: int, *, each_frame: Callable[[int], None] | None = None) -> None:
        """Compute frames in their order, up to and with a frame."""
        while self.solver.frame < frame:
            self.solver.advance_frame()
            self._keep(self.solver.frame, self._outputs(self.solver))
            if each_frame is not None:
                each_frame(self.solver.frame)

    @staticmethod
    def _outputs(solver: Solver) -> Mapping[str, Any]:
        """Whole Objects on every rank, for the nodes after the Solver Setup. Collective."""
        from loki_vfx.serialization.rank_parts import share_streams

        return share_streams(solver.comm, solver.outputs())

    def _known(self, frame: int) -> Mapping[str, Any] | None:
        if frame in self._kept:
            return self._kept[frame]
        reader = self._reader()
        if reader is None or frame not in reader.frames():
            return None
        return {path: reader.read(frame, path) for path in reader.objects(frame)}

    def _keep(self, frame: int, streams: Mapping[str, Any]) -> None:
        self._kept[frame] = streams
        self._kept.move_to_end(frame)
        while self.keep_frames and len(self._kept) > self.keep_frames:
            self._kept.popitem(last=False)
        if self.cache is not None:
            self._open_writer(self.cache).write_frame(frame, streams)

    # -- the cache on disk ----------------------------------------------------------------------

    @cached_property
    def content_hash(self) -> str:
        """Digest of the setup and of the inputs at the start frame, the same in every process."""
        digest = hashlib.sha256(self.setup.digest().encode("ascii"))
        start = self.setup.settings.start_frame
        for name, given in sorted(self.inputs.items()):
            digest.update(f"\0{name}\0{callable(given)}\0".encode())
            _add_document(digest, (given(start) if callable(given) else given).to_document())
        return digest.hexdigest()

    def _reader(self) -> FrameCacheReader | None:
        if self.cache is None or not (self.cache / "manifest.json").exists():
            return None
        from loki_vfx.serialization.frame_cache import FrameCacheReader

        reader = FrameCacheReader(self.cache)
        if reader.manifest.setup_hash == self.content_hash:
            return reader
        if self.overwrite_cache:
            return None
        raise GraphError(
            f"{self.context.place}.cache: {self.cache} holds another simulation, of another "
            "Solver Setup or inputs; choose another folder, or switch overwrite_cache on"
        )

    def _open_writer(self, folder: Path) -> FrameCacheWriter:
        if self._writer is None:
            from loki_vfx.serialization.frame_cache import FrameCacheWriter, Manifest

            settings = self.setup.settings
            manifest = Manifest(
                setup_hash=self.content_hash,
                setup=self.setup.to_document(),
                units={"length": "m", "mass": "kg", "time": "s", "temperature": "K"},
                fps=settings.frames_per_second,
                start_frame=settings.start_frame,
            )
            same = not self.overwrite_cache or self._reader() is not None
            self._writer = FrameCacheWriter(folder, manifest, overwrite=not same)
        return self._writer


def _add_document(digest: Any, value: Any) -> None:
    """Add plain values and arrays to a digest, in an order that does not depend on the process."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            digest.update(f"\0{key}\0".encode())
            _add_document(digest, value[key])
    elif hasattr(value, "tobytes"):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(value.tobytes())
    else:
        digest.update(repr(value).encode("utf-8"))
