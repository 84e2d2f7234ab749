"""Frame keeper: frames that another machine has sent are written into the cache here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loki_vfx.serialization.frame_cache import FrameCacheWriter, Manifest


class FrameKeeper:
    """Writes frames into the cache of a bake; used in one thread.

    Args:
        folder: Of the bake.
        earlier: The frames that are there: "none" stay, "all" stay, or those before a frame.
    """

    def __init__(self, folder: Path, earlier: str | int) -> None:
        self._folder = folder
        self._earlier = earlier
        self._writer: FrameCacheWriter | None = None  # made for the first frame

    def keep(self, frame: Any) -> None:
        """Write a frame of the live client, whole or not at all."""
        if self._writer is None:
            self._writer = FrameCacheWriter(
                self._folder / "cache",
                Manifest(self._folder.name),
                overwrite=self._earlier == "none",
                resume=self._earlier != "none",
                rewind=self._earlier if isinstance(self._earlier, int) else None,
            )
        self._writer.write_frame(frame.number, frame.streams(), statistics=frame.statistics)
