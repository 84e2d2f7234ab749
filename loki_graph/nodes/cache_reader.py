"""Cache reader: an Object's stream from a frame cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loki_core.behavior import parameter
from loki_core.errors import InputError
from loki_graph.node import Node, Values

if TYPE_CHECKING:
    from loki_graph.evaluate import Context
    from loki_vfx.serialization.frame_cache import FrameCacheReader


class CacheReader(Node):
    """Read the stream of an Object from the frame cache that a simulation left."""

    folder: str = parameter("", doc="Folder of the frame cache, relative to the graph's.")
    object: str = parameter("", doc="Path of the Object; empty if the cache has only one.")
    frame_offset: int = parameter(0, doc="Added to the frame to get the cache's frame.")

    def varies_with_frame(self, context: Context) -> bool:
        """Say that every frame has a file of its own."""
        return True

    def stamp(self, context: Context) -> Any:
        """Return the state of the frame's index file, so that a new run is noticed."""
        folder = context.find(self.folder, "folder")
        if context.frame is None:
            return str(folder)
        index = folder / "frames" / f"{context.frame + self.frame_offset:06d}.json"
        found = index.stat() if index.exists() else None
        return [str(index), found and found.st_mtime_ns, found and found.st_size]

    def evaluate(self, context: Context, inputs: Values) -> Values:
        """Return the stream of the frame."""
        from loki_vfx.serialization.frame_cache import FrameCacheReader

        reader = FrameCacheReader(context.find(self.folder, "folder"))
        frame = context.whole_frame + self.frame_offset
        return {"out": reader.read(frame, self.object or _only_object(reader, frame))}


def _only_object(reader: FrameCacheReader, frame: int) -> str:
    objects = reader.objects(frame)
    if len(objects) != 1:
        known = ", ".join(objects[:12]) or "none"
        raise InputError(f"frame {frame} of {reader.folder} has several Objects: {known}; name one")
    return objects[0]
