"""The frame cache: one folder per simulation, one file per frame and Object.

    manifest.json                     setup, its hash, units, fps, versions, frames, Objects
    frames/000012.json                index of a frame: Object -> files, checksums, counts
    frames/<object>/000012.loki       the stream of one Object, compressed and checksummed
    frames/<object>/000012.1of4.loki  the same where ranks wrote their own parts

Every file is written atomically, and a frame counts only when its index is there, which is
renamed into place last: a killed run leaves whole frames and nothing else that counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from loki_core.data.mesh import STREAM_TYPES, Stream
from loki_core.data.parts import join_parts
from loki_core.errors import FormatError, InputError, MissingFileError, did_you_mean
from loki_core.operating_system import flush_folder
from loki_vfx.serialization.atomic_file import (
    packed_digest,
    read_json,
    read_packed,
    remove_leftovers,
    write_json,
    write_packed,
)
from loki_vfx.serialization.codec import DEFAULT_LIMITS, Limits

CACHE_FORMAT, CACHE_VERSION = "loki frame cache", 1
MAX_FRAME = 10_000_000
MAX_PARTS = 65_536
MAX_PATH = 4096
NAME_LENGTH = 150  # of a folder; file systems allow 255 bytes
_PLAIN_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_INDEX_NAME = re.compile(r"(-?\d{5,8})\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class Manifest:
    """What a cache is of: everything but the frames themselves."""

    setup_hash: str
    setup: dict[str, Any] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    fps: float = 24.0
    start_frame: int = 1
    code_versions: dict[str, str] = field(default_factory=dict)
    frames: dict[str, str] = field(default_factory=dict)  # frame -> checksum of its index
    objects: dict[str, Any] = field(default_factory=dict)  # path -> type, channels, counts
    earlier_setups: list[Any] = field(default_factory=list)  # hashes that a resumed run replaced


class Part(NamedTuple):
    """Which share of an Object's stream one rank writes."""

    rank: int
    parts: int


def safe_name(object_path: str) -> str:
    """Return a folder name for an Object's path: one path, one name, on every file system.

    Small letters, digits, `_` and `-` stay; a capital becomes `+` and its small letter, since some
    file systems do not tell them apart; `/` becomes `=`; anything else the `%xx` of its UTF-8
    bytes. Names of up to four letters end in `~`, very long ones in `~` and a hash of the path.
    """
    if not isinstance(object_path, str) or not 0 < len(object_path) <= MAX_PATH:
        raise InputError(f"Object path {str(object_path)[:80]!r}: expected 1 to {MAX_PATH} letters")
    letters = []
    for letter in object_path:
        if letter in _PLAIN_LETTERS:
            letters.append(letter)
        elif "A" <= letter <= "Z":
            letters.append("+" + letter.lower())
        elif letter == "/":
            letters.append("=")
        else:
            letters += [f"%{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass")]
    name = "".join(letters)
    if len(name) <= NAME_LENGTH:
        # Windows reserves con, nul, com1 ...: none of them is longer than four letters
        return f"{name}~" if len(name) <= 4 else name
    digest = blake2b(object_path.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[:NAME_LENGTH]}~{digest}"


class FrameCacheWriter:
    """Writes whole frames into a folder, from one process or from many ranks.

    With many ranks every rank makes a writer after rank 0 has made its own (a barrier between),
    calls `write_frame(..., part=(rank, parts))`, and after another barrier rank 0 alone calls
    `commit_frame`. Without parts `write_frame` commits by itself.
    """

    def __init__(
        self,
        folder: str | Path,
        manifest: Manifest,
        *,
        overwrite: bool = False,
        resume: bool = False,
        rewind: int | None = None,
        rank: int = 0,
    ) -> None:
        """Open `folder`, make it if needed; refuse one that holds another simulation.

        `overwrite` removes the frames of whatever simulation is there; `resume` keeps them and
        takes the new setup from here on, or from the frame `rewind` on: then that frame and all
        after it are removed.
        """
        self.folder = Path(folder)
        self.manifest = manifest
        self.rank = rank
        self.last_frame_bytes = 0  # what the last frame takes on the disk, its index apart
        if rank != 0:
            return
        if has_manifest(self.folder):
            if overwrite:
                self._remove_frames()
            else:
                self._continue(resume=resume, rewind=rewind)
        elif _index_files(self.folder):
            if not overwrite:
                raise InputError(
                    f"{self.folder} has frames and no manifest.json; choose another folder, or "
                    "overwrite it"
                )
            self._remove_frames()
        (self.folder / "frames").mkdir(parents=True, exist_ok=True)
        for place in [self.folder, *_frame_folders(self.folder)]:
            remove_leftovers(place)
        self._write_manifest()
        if rewind is not None:  # after it: a frame may be missing there, never here
            self._remove_from(rewind)

    def write_frame(
        self,
        frame: int,
        streams: Mapping[str, Stream],
        *,
        statistics: Mapping[str, Any] | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        """Write the streams of a frame by Object path, all of them or this rank's part."""
        share = Part(0, 1) if part is None else Part(*part)
        _check_frame(frame)
        if not (0 <= share.rank < share.parts <= MAX_PARTS):
            raise InputError(f"part {share.rank} of {share.parts} is not possible")
        # files change below: until they are whole the frame must not count
        _index_path(self.folder, frame).unlink(missing_ok=True)
        entries = {}
        for path, stream in streams.items():
            name = _data_file(path, frame, share)
            packed = write_packed(self.folder / "frames" / name, stream, compressed=True)
            entries[path] = {
                "type": stream.type_name,
                "file": name,
                "checksum": packed.digest,
                "bytes": packed.size,
                "plain_bytes": packed.plain_size,
                "counts": stream.counts(),
                "channels": stream.channel_names(),
                "part": share.rank,
            }
        write_json(_part_path(self.folder, frame, share), entries)
        if part is None:
            self.commit_frame(frame, statistics=statistics)

    def commit_frame(
        self, frame: int, *, parts: int = 1, statistics: Mapping[str, Any] | None = None
    ) -> None:
        """Make a frame count once all its parts are written; rank 0 calls this."""
        objects: dict[str, Any] = {}
        fragments = [_part_path(self.folder, frame, Part(rank, parts)) for rank in range(parts)]
        for rank, fragment in enumerate(fragments):
            if not fragment.exists():
                raise InputError(
                    f"frame {frame}: part {rank} of {parts} was not written; every rank calls "
                    "write_frame before rank 0 calls commit_frame"
                )
            content = read_json(fragment)[0]
            if not isinstance(content, dict):
                raise FormatError(f"{fragment} is not the index of a part")
            for path, entry in content.items():
                objects.setdefault(path, []).append(entry)
        index = {
            "format": CACHE_FORMAT,
            "version": CACHE_VERSION,
            "frame": frame,
            "objects": objects,
            "statistics": dict(statistics or {}),
        }
        if str(frame) in self.manifest.frames:  # written before, perhaps in other parts
            kept = {entry["file"] for entries in objects.values() for entry in entries}
            _remove_data(self.folder, frame, kept)
        self.manifest.frames[str(frame)] = write_json(_index_path(self.folder, frame), index)
        for path, entries in objects.items():
            self.manifest.objects[path] = _summary(entries)
        self.last_frame_bytes = sum(e["bytes"] for some in objects.values() for e in some)
        for fragment in fragments:
            fragment.unlink()
        self._write_manifest()

    def change_setup(self, changed: Manifest) -> None:
        """Take another setup from the next frame on, and note the one before; rank 0 calls this."""
        now = self.manifest
        note = {"setup_hash": now.setup_hash, "last_frame": max(map(int, now.frames), default=None)}
        now.earlier_setups = [*now.earlier_setups, note][-100:]
        now.setup_hash, now.setup = changed.setup_hash, changed.setup
        self._write_manifest()

    def close(self) -> None:
        """Write the manifest a last time; frames are on disk already."""
        if self.rank == 0:
            self._write_manifest()

    def __enter__(self) -> FrameCacheWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _continue(self, *, resume: bool, rewind: int | None) -> None:
        if not resume and not _index_files(self.folder):
            return  # a run that never came to a frame: its folder is taken over
        if not resume:
            refuse_other_simulation(self.folder, self.manifest)
        found = read_manifest(self.folder)
        # the folder is the truth: a killed run may have written frames after its manifest
        kept = {
            frame: path
            for frame, path in _index_files(self.folder).items()
            if rewind is None or frame < rewind
        }
        if found.setup_hash != self.manifest.setup_hash:
            note = {"setup_hash": found.setup_hash, "last_frame": max(kept, default=None)}
            found.earlier_setups = [*found.earlier_setups, note][-100:]
        self.manifest.objects = found.objects | self.manifest.objects
        self.manifest.earlier_setups = found.earlier_setups
        for frame, path in kept.items():
            self.manifest.frames[str(frame)] = read_json(path)[1]

    def _remove_from(self, first: int) -> None:
        """Remove frames, the last one first: whenever this is killed, no frame is missing."""
        for frame in sorted(_index_files(self.folder), reverse=True):
            if frame >= first:
                _remove_frame(self.folder, frame)

    def _remove_frames(self) -> None:
        for frame in _index_files(self.folder):
            _index_path(self.folder, frame).unlink()
        for folder in _frame_folders(self.folder):
            for path in [*folder.glob("*.loki"), *folder.glob("*of*.json")]:
                path.unlink()
            if folder.parent != self.folder and not any(folder.iterdir()):
                folder.rmdir()
        (self.folder / "manifest.json").unlink(missing_ok=True)

    def _write_manifest(self) -> None:
        document = {"format": CACHE_FORMAT, "version": CACHE_VERSION, **asdict(self.manifest)}
        write_json(self.folder / "manifest.json", document)


class FrameCacheReader:
    """Reads a frame cache; everything in it is checked, whoever wrote it."""

    def __init__(self, folder: str | Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        """Open a cache that was written, or is being written, in `folder`."""
        self.folder = Path(folder)
        self.limits = limits
        self.manifest = read_manifest(self.folder)

    def frames(self) -> list[int]:
        """Return the frames that are whole, in order, as they are on disk now."""
        return whole_frames(self.folder)

    def index(self, frame: int) -> dict[str, Any]:
        """Return the checked index of a frame."""
        path = _index_path(self.folder, frame)
        if not path.exists():
            frames = self.frames()
            known = f"{frames[0]} to {frames[-1]}" if frames else "none"
            raise InputError(f"{self.folder} has no frame {frame}; frames there: {known}")
        return _checked_index(read_json(path)[0], frame, path)

    def objects(self, frame: int) -> list[str]:
        """Return the paths of the Objects that a frame has."""
        return sorted(self.index(frame)["objects"])

    def sizes(self, frame: int) -> dict[str, tuple[int, int | None]]:
        """Return the bytes of each Object on the disk, and before compression where it is known."""
        found: dict[str, tuple[int, int | None]] = {}
        for path, entries in self.index(frame)["objects"].items():
            stored = sum(
                (self.folder / "frames" / entry["file"]).stat().st_size for entry in entries
            )
            plain = [entry.get("plain_bytes") for entry in entries]
            known = all(type(one) is int and one >= 0 for one in plain)
            found[path] = stored, sum(plain) if known else None
        return found

    def statistics(self, frame: int) -> dict[str, Any]:
        """Return what the solver noted about a frame."""
        return dict(self.index(frame)["statistics"])

    def read(self, frame: int, object_path: str) -> Any:
        """Return the stream of an Object; parts of ranks are joined in the input's order."""
        objects = self.index(frame)["objects"]
        if object_path not in objects:
            hint = did_you_mean(object_path, objects)
            raise InputError(f'frame {frame} of {self.folder} has no "{object_path}"{hint}')
        parts = []
        for entry in objects[object_path]:
            path = self.folder / "frames" / entry["file"]
            stream = read_packed(path, limits=self.limits, digest=entry["checksum"])
            if getattr(type(stream), "type_name", None) != entry["type"]:
                raise FormatError(f"{path} holds no {entry['type']}, as its index says")
            parts.append(stream)
        try:
            return join_parts(parts)
        except InputError as error:
            raise FormatError(f'frame {frame}, "{object_path}": {error}') from error

    def verify(self) -> list[str]:
        """Return what is missing, cut off or damaged; an empty list means that all is well."""
        problems = []
        found = _index_files(self.folder)
        for name in self.manifest.frames:
            if int(name) not in found:
                problems.append(f"frame {name} is in the manifest and not in the folder")
        for frame, path in sorted(found.items()):
            try:
                content, digest = read_json(path)
                objects = _checked_index(content, frame, path)["objects"]
            except FormatError as error:
                problems.append(f"frame {frame}: {error}")
                continue
            if self.manifest.frames.get(str(frame), digest) != digest:
                problems.append(f"frame {frame}: its index is not the one of the manifest")
            for entry in (entry for entries in objects.values() for entry in entries):
                file = self.folder / "frames" / entry["file"]
                try:
                    if packed_digest(file, limits=self.limits) != entry["checksum"]:
                        problems.append(f"frame {frame}: {file} is not the one of the index")
                except FormatError as error:
                    problems.append(f"frame {frame}: {error}")
        return problems


def whole_frames(folder: str | Path) -> list[int]:
    """Return the frames that are whole in a cache, or in a folder that may become one."""
    return sorted(_index_files(Path(folder)))


def has_manifest(folder: str | Path) -> bool:
    """Whether a folder has the manifest of a frame cache, whole or damaged.

    Raises:
        InputError: A manifest.json of something else is there, which nobody may write over.
    """
    path = Path(folder) / "manifest.json"
    if not path.exists():
        return False
    try:
        content = read_json(path)[0]
    except FormatError:
        return True  # damaged: only who overwrites it knows whose it was
    if not isinstance(content, dict) or content.get("format") != CACHE_FORMAT:
        raise InputError(f"{path} belongs to no frame cache; choose another folder")
    return True


def refuse_other_simulation(folder: str | Path, manifest: Manifest) -> None:
    """Refuse a cache of another simulation than that of the manifest.

    Raises:
        InputError: It is another; the message says what differs.
    """
    found = read_manifest(folder)
    if found.setup_hash != manifest.setup_hash:
        raise InputError(
            f"{folder} holds another simulation, of another setup or other inputs: its hash is "
            f"{found.setup_hash[:16]}, ours {manifest.setup_hash[:16]}"
            f"{_difference(found, manifest)}; choose another folder, resume from a checkpoint, or "
            "overwrite it"
        )


def read_manifest(folder: str | Path) -> Manifest:
    """Return the checked manifest of a cache; raise FormatError on anything else."""
    path = Path(folder) / "manifest.json"
    if not Path(folder).exists():
        raise MissingFileError(f"{folder} is not there")
    if not path.exists():
        raise FormatError(f"{folder} is no frame cache: it has no manifest.json")
    content = read_json(path)[0]
    _check_format(content, path)
    maps = ("setup", "units", "code_versions", "frames", "objects")
    shapes: dict[str, type | tuple[type, ...]] = dict.fromkeys(maps, dict)
    shapes |= {"setup_hash": str, "fps": (int, float), "start_frame": int, "earlier_setups": list}
    unknown = sorted(set(content) - set(shapes) - {"format", "version"})
    if unknown:
        raise FormatError(f'{path}: unknown field "{unknown[0]}"{did_you_mean(unknown[0], shapes)}')
    for name, kind in shapes.items():
        if name not in content or not isinstance(content[name], kind):
            raise FormatError(f'{path}: field "{name}" is missing or of the wrong type')
    if not 0.0 < content["fps"] <= 1.0e6:
        raise FormatError(f"{path}: fps = {content['fps']}; expected a positive number")
    for frame, digest in content["frames"].items():
        if not re.fullmatch(r"-?\d{1,8}", frame) or not _is_digest(digest):
            raise FormatError(f"{path}: frame {frame[:20]!r} is no number with a checksum")
    return Manifest(**{name: content[name] for name in shapes})


def _check_format(content: Any, path: Path) -> None:
    if not isinstance(content, dict) or content.get("format") != CACHE_FORMAT:
        raise FormatError(f"{path} belongs to no frame cache")
    version = content.get("version")
    if version != CACHE_VERSION:
        raise FormatError(
            f"{path} has frame cache version {str(version)[:20]}; this Loki reads version "
            f"{CACHE_VERSION}"
        )


def _checked_index(content: Any, frame: int, path: Path) -> dict[str, Any]:
    _check_format(content, path)
    objects, statistics = content.get("objects"), content.get("statistics")
    if content.get("frame") != frame or not isinstance(objects, dict):
        raise FormatError(f"{path} is not the index of frame {frame}")
    if not isinstance(statistics, dict):
        raise FormatError(f"{path} has no statistics")
    for object_path, entries in objects.items():
        place = f'{path}, "{object_path[:200]}"'
        if not 0 < len(object_path) <= MAX_PATH:
            raise FormatError(f"{place}: an Object path has 1 to {MAX_PATH} letters")
        if not isinstance(entries, list) or not 0 < len(entries) <= MAX_PARTS:
            raise FormatError(f"{place}: expected a list of parts")
        for entry in entries:
            if not isinstance(entry, dict) or str(entry.get("type")) not in STREAM_TYPES:
                raise FormatError(f"{place}: a part is no map with a known stream type")
            if not _is_digest(entry.get("checksum")):
                raise FormatError(f"{place}: a part has no checksum")
            # a file is never where the index says, only where it must be
            name = entry.get("file")
            stem = f"{safe_name(object_path)}/{frame:06d}"
            if not isinstance(name, str) or not re.fullmatch(
                re.escape(stem) + r"(\.\d{1,5}of\d{1,5})?\.loki", name
            ):
                raise FormatError(f"{place}: file {str(name)[:200]!r} is not of this Object")
    return dict(content)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _check_frame(frame: int) -> None:
    if type(frame) is not int or abs(frame) > MAX_FRAME:
        raise InputError(f"frame {frame!r}: expected a whole number up to {MAX_FRAME}")


def _index_path(folder: Path, frame: int) -> Path:
    _check_frame(frame)
    return folder / "frames" / f"{frame:06d}.json"


def _part_path(folder: Path, frame: int, part: Part) -> Path:
    return folder / "frames" / f"{frame:06d}.{part.rank}of{part.parts}.json"


def _data_file(object_path: str, frame: int, part: Part) -> str:
    suffix = "" if part.parts == 1 else f".{part.rank}of{part.parts}"
    return f"{safe_name(object_path)}/{frame:06d}{suffix}.loki"


def _index_files(folder: Path) -> dict[int, Path]:
    if not (folder / "frames").is_dir():
        return {}
    matches = ((_INDEX_NAME.fullmatch(path.name), path) for path in (folder / "frames").iterdir())
    found = {int(match[1]): path for match, path in matches if match}
    return {frame: path for frame, path in found.items() if path == _index_path(folder, frame)}


def _frame_folders(folder: Path) -> list[Path]:
    frames = folder / "frames"
    inside = (path for path in frames.glob("*") if path.is_dir() and not path.is_symlink())
    return [frames, *sorted(inside)]


def _remove_frame(folder: Path, frame: int) -> None:
    _index_path(folder, frame).unlink()  # first: from here on the frame does not count
    flush_folder(folder / "frames")
    _remove_data(folder, frame, set())


def _remove_data(folder: Path, frame: int, kept: set[str]) -> None:
    for place in _frame_folders(folder)[1:]:
        for path in place.glob(f"{frame:06d}.*loki"):
            if f"{place.name}/{path.name}" not in kept:
                path.unlink()


def _summary(entries: list[dict[str, Any]]) -> dict[str, Any]:
    counts: dict[str, int] = {}
    channels: dict[str, set[str]] = {}
    for entry in entries:
        for name, count in entry["counts"].items():
            counts[name] = counts.get(name, 0) + count
        for location, names in entry["channels"].items():
            channels.setdefault(location, set()).update(names)
    return {
        "type": entries[0]["type"],
        "counts": counts,
        "channels": {location: sorted(names) for location, names in channels.items()},
    }


def _difference(found: Manifest, wanted: Manifest) -> str:
    """Name the first settings in which two setups differ."""
    places: list[str] = []

    def walk(a: Any, b: Any, place: str) -> None:
        if len(places) >= 3 or a == b:
            return
        if isinstance(a, dict) and isinstance(b, dict):
            for key in sorted(a.keys() | b.keys(), key=str):
                walk(a.get(key), b.get(key), f"{place}.{key}" if place else str(key))
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                walk(x, y, f"{place}[{i}]")
        else:
            places.append(f"{place or 'setup'}: {str(a)[:40]} there, {str(b)[:40]} here")

    walk(found.setup, wanted.setup, "")
    return f" ({'; '.join(places)})" if places else ""
