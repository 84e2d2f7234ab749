"""Host streams: the data that the application around a graph gives to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loki_core.errors import GraphError, did_you_mean


class HostStreams:
    """Named streams: one for all frames, a function of the frame, or one for each frame.

    A stream is taken as it is; tell the graph of a change by setting it again, since arrays that
    were changed in place cannot be noticed.
    """

    def __init__(self, streams: Mapping[str, Any] | None = None) -> None:
        self._static: dict[str, Any] = {}
        self._functions: dict[str, Callable[[int], Any]] = {}
        self._frames: dict[str, dict[int, Any]] = {}
        self._versions: dict[str, int] = {}
        for name, stream in (streams or {}).items():
            self.set(name, stream)

    def set(self, name: str, stream: Any, *, frame: int | None = None) -> None:
        """Give a stream, or a function `frame -> stream`; with a frame, the stream of that one.

        A frame that was not there before leaves what was computed valid; anything else that
        changes the input makes solvers that read it start again.
        """
        if frame is None:
            self._frames.pop(name, None)
            self._static.pop(name, None)
            self._functions.pop(name, None)
            (self._functions if callable(stream) else self._static)[name] = stream
            self._versions[name] = self._versions.get(name, 0) + 1
            return
        replaced = name in self._static or name in self._functions
        self._static.pop(name, None)
        self._functions.pop(name, None)
        frames = self._frames.setdefault(name, {})
        if replaced or frame in frames or name not in self._versions:
            self._versions[name] = self._versions.get(name, 0) + 1
        frames[frame] = stream

    def drop_frames(self, before: int) -> None:
        """Forget the streams of single frames before a frame, to free their memory."""
        for name, frames in self._frames.items():
            self._frames[name] = {f: s for f, s in frames.items() if f >= before}

    def names(self) -> list[str]:
        """Return the names of all streams that were given."""
        return sorted({*self._static, *self._functions, *self._frames})

    def version(self, name: str) -> int:
        """Return a number that grows when the stream is replaced; 0 if it was never given."""
        return self._versions.get(name, 0)

    def is_animated(self, name: str) -> bool:
        """Return whether the stream may differ from frame to frame."""
        return name in self._functions or name in self._frames

    def stream(self, name: str, frame: int, *, place: str) -> Any:
        """Return a stream at a frame.

        Raises:
            GraphError: The host did not give it.
        """
        if name in self._static:
            return self._static[name]
        if name in self._functions:
            return self._functions[name](frame)
        if name not in self._frames:
            hint = did_you_mean(name, self.names())
            raise GraphError(f'{place}: the host gave no stream "{name[:80]}"{hint}')
        frames = self._frames[name]
        if frame not in frames:
            known = f"{min(frames)} to {max(frames)}" if frames else "none"
            raise GraphError(
                f'{place}: the host gave no stream "{name[:80]}" for frame {frame}; frames '
                f"there: {known}"
            )
        return frames[frame]
