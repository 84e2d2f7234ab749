"""A USD stage that is written frame by frame, through `usd-core`.

Prims are made when their Object is first seen. Values go to the disk on the way, so that memory
holds a frame or two and never the whole shot.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loki_core.data.mesh import Mesh
from loki_core.data.voxels import Voxels
from loki_core.errors import DiskFullError, LokiError
from loki_vfx.serialization.usd_geometry import geometry_of
from loki_vfx.serialization.usd_names import PrimPaths
from loki_vfx.serialization.usd_prims import GeometryPrim, VolumePrim

FLUSH_BYTES = 1 << 26  # of values in memory before they go to the disk
INSTALL = "USD files need usd-core: pip install usd-core"


def check_usd() -> None:
    """Raise LokiError where the USD library is not installed."""
    try:
        import pxr  # noqa: F401
    except ImportError as error:
        raise LokiError(INSTALL) from error


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What a stage says of itself.

    Attributes:
        name: Of the simulation; the root prim is called after it.
        setup_hash: Of the Solver Setup and its inputs.
        fps: Frames in a second; a time code is a frame.
        frames: All frames that will be written, in order.
        up: "y" or "z", as the streams that are written have it.
    """

    name: str
    setup_hash: str
    fps: float
    frames: Sequence[int]
    up: str = "y"


class UsdStageWriter:
    """Writes a new .usdc file.

    For every frame call `write` or `write_volume` for each Object that is there, then `end_frame`;
    after the last frame, `close`.
    """

    def __init__(self, path: Path, facts: StageFacts) -> None:
        """Open a file that is not there yet, in a folder that is.

        Raises:
            LokiError: usd-core is not installed, or the file cannot be written.
        """
        check_usd()
        from pxr import Sdf, Usd, UsdGeom

        self._file, self._facts = path, facts
        self._paths = PrimPaths(facts.name)
        self._prims: dict[tuple[str, str], Any] = {}
        self._pending = 0
        with _telling(path):
            self._layer = Sdf.Layer.CreateNew(str(path))
        self._layer.comment = f"Simulated with Loki: {facts.name}"
        self._layer.customLayerData = {
            "loki": {"setup": facts.name, "setup_hash": facts.setup_hash}
        }
        self._stage = stage = Usd.Stage.Open(self._layer)
        UsdGeom.SetStageUpAxis(stage, facts.up.upper())
        UsdGeom.SetStageMetersPerUnit(stage, 1.0)
        stage.SetTimeCodesPerSecond(facts.fps)
        stage.SetFramesPerSecond(facts.fps)
        stage.SetStartTimeCode(facts.frames[0])
        stage.SetEndTimeCode(facts.frames[-1])
        stage.SetDefaultPrim(UsdGeom.Xform.Define(stage, self._paths.root).GetPrim())

    def write(self, frame: int, object_path: str, mesh: Mesh) -> None:
        """Write an Object's mesh at a frame."""
        for part, geometry in geometry_of(mesh).items():
            prim = self._prims.get((object_path, part))
            if prim is None:
                place, first = self._place(object_path, part), self._facts.frames[0]
                prim = GeometryPrim(place, geometry, first, label=object_path)
                self._prims[object_path, part] = prim
            prim.write(geometry, frame)
            self._pending += geometry.byte_count()

    def write_volume(
        self, frame: int, object_path: str, voxels: Voxels, *, file: str, classes: dict[str, str]
    ) -> None:
        """Say in which VDB file, relative to the stage, an Object's grids are at a frame."""
        prim = self._prims.get((object_path, ""))
        if prim is None:
            prim = VolumePrim(self._place(object_path, ""), self._facts.frames[0])
            self._prims[object_path, ""] = prim
        prim.write(voxels, frame, file=file, classes=classes)

    def end_frame(self, frame: int) -> None:
        """Note which Objects are not there, and let go of memory."""
        for prim in self._prims.values():
            prim.end_frame(frame)
        if self._pending > FLUSH_BYTES:
            with _telling(self._file):
                self._layer.Save()
            self._pending = 0

    def close(self, *, text: Path | None = None) -> dict[str, list[str]]:
        """Write the rest, let go of the file, and return the prims of each Object.

        Where `text` is given, everything is written there too, as .usda.
        """
        found: dict[str, list[str]] = {}
        for (object_path, _), prim in self._prims.items():
            prim.close()
            found.setdefault(object_path, []).append(prim.path)
        with _telling(self._file):
            self._layer.Save()
        if text is not None:
            with _telling(text):
                self._layer.Export(str(text))
        self._prims.clear()
        del self._stage, self._layer
        return found

    def _place(self, object_path: str, part: str) -> Any:
        """Return a new prim for an Object, below those of its Groups."""
        from pxr import UsdGeom

        for path in self._paths.groups(object_path):
            UsdGeom.Xform.Define(self._stage, path)
        prim = self._stage.DefinePrim(self._paths.object(object_path, part))
        prim.SetCustomDataByKey("loki:path", object_path)
        return prim


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Turn what USD says of a file that it cannot write into one clear line."""
    from pxr import Tf

    try:
        yield
    except Tf.ErrorException as error:
        lines = [line.partition(" : ")[2].strip("'") for line in str(error).splitlines()]
        reason = next((line for line in lines if line), "unknown reason")
        if os.strerror(errno.ENOSPC) in reason:
            raise DiskFullError(
                "no room on the disk for the USD stage; make room, and export again"
            ) from error
        raise LokiError(f"{path} cannot be written as USD: {reason}") from error
