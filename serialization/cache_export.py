"""Frame caches as files that load without Loki: a USD stage, or VDB sequences.

    shot.usdc                       meshes, curves, points, and volumes that refer to
    shot_vdb/Wind_Air_0001.vdb      one file for each volume and frame

Everything is written into a hidden folder beside its place and renamed at the end, the stage last:
an export that fails or is stopped leaves what was there before. One frame is in memory at a time.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loki_core.data.mesh import Mesh
from loki_core.errors import InputError, did_you_mean
from loki_core.operating_system import flush_folder
from loki_vfx.serialization.atomic_file import replacing
from loki_vfx.serialization.frame_cache import FrameCacheReader
from loki_vfx.serialization.usd_geometry import left_out_channels
from loki_vfx.serialization.usd_names import UniqueNames
from loki_vfx.serialization.usd_stage import StageFacts, UsdStageWriter, check_usd
from loki_vfx.serialization.vdb_sequence import (
    grids_of,
    sequence_file,
    sequence_files,
    turned_to_z_up,
)

USD_SUFFIXES = (".usd", ".usdc", ".usda")
FORMATS = ("usd", "vdb")
UP_AXES = ("y", "z")
STAGE, STAGE_TEXT = "stage.usdc", "stage.usda"  # names on the way
_Z_UP = np.array([[1.0, 0, 0, 0], [0, 0, -1.0, 0], [0, 1.0, 0, 0], [0, 0, 0, 1.0]])

OnFrame = Callable[[int, int, int], None]
"""Called after each frame with the frame, how many are done, and how many there are."""


@dataclass(slots=True)
class ExportReport:
    """What was written.

    Attributes:
        target: The stage, or the folder of the sequences.
        frames: All frames, in order.
        objects: Object path -> its prims, or its sequence as `smoke_####.vdb`.
        files: How many, and `bytes` together.
        left_out: Channels that the format has no place for, "Object: channel (reason)".
    """

    target: str
    format: str
    frames: list[int] = field(default_factory=list)
    objects: dict[str, list[str]] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    left_out: list[str] = field(default_factory=list)


def export_frames(
    cache: str | Path,
    target: str | Path,
    *,
    file_format: str | None = None,
    frames: tuple[int, int] | None = None,
    objects: Sequence[str] = (),
    up: str = "y",
    compression: str = "zip",
    half: bool = False,
    overwrite: bool = False,
    on_frame: OnFrame | None = None,
) -> ExportReport:
    """Write frames of a cache as a USD stage, or its volumes as VDB sequences.

    Args:
        cache: Folder of a frame cache; it may still be written to.
        target: A .usd, .usdc or .usda file; for VDB a folder.
        file_format: "usd" or "vdb"; told by the target's suffix where not given.
        frames: First and last one; all whole frames by default.
        objects: Paths of Objects, or of Groups above them; all by default.
        up: The axis that is up in the files; Loki's own is "y".
        compression: Of VDB files: "zip", or "none" for larger files in less time.
        half: Whether real numbers in VDB files are half floats.
        overwrite: Replace files that are there.

    Raises:
        FormatError: The cache is none, or is damaged.
        InputError: Frames, Objects or target are not as they must be.
        LokiError: usd-core is not installed, or the disk refuses the file.
    """
    chosen = _checked_format(Path(target), file_format)
    if up not in UP_AXES:
        raise InputError(f'up = "{up}"{did_you_mean(up, UP_AXES)}')
    reader = FrameCacheReader(cache)
    numbers = _chosen_frames(reader, frames)
    types = _chosen_objects(reader, numbers, objects)
    if chosen == "vdb":
        types = _volumes_only(types, reader, objects)
    else:
        check_usd()
    job = _Job(reader, Path(target), chosen, up, numbers, types)
    job.vdb = {"compression": compression, "half": half}
    job.check_place(overwrite=overwrite)
    with job.staging() as folder:
        report = job.write(folder, on_frame)
        job.put_in_place(folder, report)
    return report


class _Job:
    """One export: what is read, and where its files go."""

    def __init__(
        self,
        reader: FrameCacheReader,
        target: Path,
        file_format: str,
        up: str,
        frames: list[int],
        types: dict[str, str],
    ) -> None:
        self.reader, self.target, self.format, self.up = reader, target, file_format, up
        self.frames, self.types = frames, types
        self.vdb: dict[str, Any] = {}  # how VDB files are written
        names = UniqueNames()
        volumes = [path for path, kind in types.items() if kind == "voxels"]
        self.stems = {path: names.of(path, path.replace("/", "_")) for path in volumes}
        # where files go, and the folder of sequences in there; some letters mean something to USD
        self.root = target if file_format == "vdb" else target.parent
        plain = re.sub(r"[^\w.-]", "_", target.stem)
        self.sequences = "." if file_format == "vdb" else f"{plain}_vdb"
        self.is_text = target.suffix.lower() == ".usda"

    def check_place(self, *, overwrite: bool) -> None:
        """Raise InputError where the target cannot become what it shall be, or is there already."""
        place = self.root / self.sequences
        if self.stems and place.exists() and not place.is_dir():
            raise InputError(f"{place} is a file; VDB sequences need a folder")
        if self.format == "usd" and self.target.is_dir():
            raise InputError(f"{self.target} is a folder; a USD stage is a file")
        there = [self.target] if self.format == "usd" and self.target.exists() else []
        there += self._earlier_files()
        if there and not overwrite:
            raise InputError(f"{there[0]} is there already; overwrite it, or choose another place")

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a hidden folder on the same disk; nothing of it stays."""
        prefix, suffix = f".{self.target.name}.", ".tmp"
        is_new = not self.root.exists()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for left in self.root.glob(f"{glob.escape(prefix)}????????{suffix}"):
                shutil.rmtree(left, ignore_errors=True)  # of an export that was killed
            folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=suffix, dir=self.root))
        except OSError as error:
            raise InputError(f"{self.target} cannot be written: {error.strerror}") from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if is_new and not any(self.root.iterdir()):
                self.root.rmdir()

    def write(self, folder: Path, on_frame: OnFrame | None) -> ExportReport:
        """Write all frames below `folder`."""
        report = ExportReport(str(self.target), self.format, self.frames)
        left_out: dict[str, None] = {}  # a set that keeps its order
        stage = self._stage(folder) if self.format == "usd" else None
        for done, frame in enumerate(self.frames, 1):
            for path in self.reader.objects(frame):
                if path in self.types:
                    missed = self._write_object(folder, stage, frame, path)
                    left_out |= dict.fromkeys(f"{path}: {channel}" for channel in missed)
            if stage is not None:
                stage.end_frame(frame)
            if on_frame is not None:
                on_frame(frame, done, len(self.frames))
        if stage is not None:
            report.objects = stage.close(text=folder / STAGE_TEXT if self.is_text else None)
        else:
            report.objects = {path: [f"{stem}_####.vdb"] for path, stem in self.stems.items()}
        report.left_out = list(left_out)
        return report

    def put_in_place(self, folder: Path, report: ExportReport) -> None:
        """Move what was written to where it belongs, the stage last."""
        written = sorted((folder / self.sequences).glob("*.vdb"))
        place = self.root / self.sequences
        if written:
            place.mkdir(exist_ok=True)
        stale = set(self._earlier_files()) - {place / path.name for path in written}
        for path in written:
            report.bytes += path.stat().st_size
            os.replace(path, place / path.name)
        for path in stale:
            path.unlink()
        if written:
            flush_folder(place)
        report.files = len(written)
        if self.format == "usd":
            staged = folder / (STAGE_TEXT if self.is_text else STAGE)
            report.bytes += staged.stat().st_size
            report.files += 1
            with replacing(self.target) as temporary:
                os.replace(staged, temporary)

    def _write_object(
        self, folder: Path, stage: UsdStageWriter | None, frame: int, path: str
    ) -> list[str]:
        """Write one Object at one frame; return the channels that were left out."""
        stream = self.reader.read(frame, path)
        if isinstance(stream, Mesh):
            assert stage is not None  # only volumes are chosen where there is none
            if self.up == "z":
                stream = stream.transformed(_Z_UP)
            stage.write(frame, path, stream)
            return left_out_channels(stream)
        grids = grids_of(turned_to_z_up(stream) if self.up == "z" else stream)
        file = f"{self.sequences}/{sequence_file(self.stems[path], frame)}"
        grids.write(folder / file, **self.vdb)
        if stage is not None:
            stage.write_volume(frame, path, grids.voxels, file=f"./{file}", classes=grids.classes)
        return []  # VDB has a place for every channel

    def _stage(self, folder: Path) -> UsdStageWriter:
        manifest = self.reader.manifest
        name = str(manifest.setup.get("name") or self.reader.folder.resolve().name)
        facts = StageFacts(name, manifest.setup_hash, manifest.fps, self.frames, self.up)
        return UsdStageWriter(folder / STAGE, facts)

    def _earlier_files(self) -> list[Path]:
        """Return the files of an earlier export into the same sequences."""
        place = self.root / self.sequences
        return [file for stem in self.stems.values() for file in sequence_files(place, stem)]


def _checked_format(target: Path, file_format: str | None) -> str:
    suffix = target.suffix.lower()
    if file_format is None:
        if suffix not in USD_SUFFIXES:
            raise InputError(
                f"{target}: expected a file name that ends in {', '.join(USD_SUFFIXES)}, or the "
                "format vdb and a folder"
            )
        return "usd"
    if file_format not in FORMATS:
        raise InputError(f'unknown format "{file_format}"{did_you_mean(file_format, FORMATS)}')
    if file_format == "usd" and suffix not in USD_SUFFIXES:
        raise InputError(f"{target}: a USD file ends in {', '.join(USD_SUFFIXES)}")
    if file_format == "vdb" and suffix in USD_SUFFIXES:
        raise InputError(f"{target}: VDB sequences need a folder; this is the name of a USD file")
    return file_format


def _chosen_frames(reader: FrameCacheReader, frames: tuple[int, int] | None) -> list[int]:
    """Return the frames to write; all of those that were asked for have to be there."""
    there = reader.frames()
    if not there:
        raise InputError(f"{reader.folder} has no whole frame to export")
    if frames is None:
        return there
    first, last = frames
    if last < first:
        raise InputError(f"frames {first} to {last} end before they begin")
    chosen = [frame for frame in there if first <= frame <= last]
    absent = last - first + 1 - len(chosen)
    if absent:
        missing = next(frame for frame in range(first, last + 1) if frame not in chosen)
        raise InputError(
            f"{reader.folder} has no frame {missing} ({absent} of the frames {first} to {last} are "
            f"missing); frames there: {there[0]} to {there[-1]}"
        )
    return chosen


def _chosen_objects(
    reader: FrameCacheReader, frames: list[int], wanted: Sequence[str]
) -> dict[str, str]:
    """Return the type of each Object in any of the frames, or of those in `wanted`."""
    types: dict[str, str] = {}
    for frame in frames:
        for path, entries in reader.index(frame)["objects"].items():
            found = str(entries[0]["type"])
            if types.setdefault(path, found) != found:
                raise InputError(
                    f'"{path}" is {found} in frame {frame}, and was {types[path]}; export apart '
                    "the frames before and after"
                )
    if not wanted:
        return dict(sorted(types.items()))
    chosen: dict[str, str] = {}
    for name in wanted:
        below = [path for path in types if path == name or path.startswith(f"{name}/")]
        if not below:
            hint = did_you_mean(name, types)
            raise InputError(f'{reader.folder} has no Object "{name}" in these frames{hint}')
        chosen |= {path: types[path] for path in below}
    return dict(sorted(chosen.items()))


def _volumes_only(
    types: dict[str, str], reader: FrameCacheReader, wanted: Sequence[str]
) -> dict[str, str]:
    """Return the volumes; an Object that was asked for by its path has to be one."""
    for path in wanted:
        if types.get(path, "voxels") != "voxels":
            raise InputError(f'"{path}" is {types[path]} and no volume; write it as USD')
    volumes = {path: kind for path, kind in types.items() if kind == "voxels"}
    if not volumes:
        raise InputError(
            f"{reader.folder} has no volume in these frames and Objects; write them as USD"
        )
    return volumes
