"""Inspection: what is in a frame cache, a checkpoint, a volume, a mesh or a setup file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.mesh import Mesh
from loki_core.errors import FormatError, InputError, MissingFileError
from loki_vfx.bridges.standalone.input_files import SUFFIXES, read_stream


def inspect_path(path: Path, *, frame: int | None = None, verify: bool = False) -> dict[str, Any]:
    """Return what is at a path; `problems` lists what `verify` found damaged.

    Raises:
        InputError: There is nothing that Loki knows.
        FormatError: It is damaged so that it cannot be shown.
    """
    if not path.exists():
        raise MissingFileError(f"{path} is not there")
    if path.is_dir():
        if (path / "manifest.json").exists():
            return _inspect_cache(path, frame, verify=verify)
        if (path / "index.json").exists():
            return _inspect_checkpoint(path, verify=verify)
        if (path / "checkpoints").is_dir():
            return {"kind": "run without frames", **_inspect_trail(path, verify=verify)}
        raise InputError(f"{path} is neither a frame cache nor a checkpoint")
    if path.name == "manifest.json":
        return _inspect_cache(path.parent, frame, verify=verify)
    if path.name.endswith(".json"):
        return _inspect_setup(path)
    if path.suffix.lower() == ".loki" and path.name.startswith("rank_"):
        return _inspect_rank_file(path)
    if path.name.lower().endswith(SUFFIXES):
        stream = read_stream(path)
        return {"kind": "stream", "path": str(path), **describe_stream(stream), "problems": []}
    raise InputError(f"{path} is of a kind that Loki does not know; known: {', '.join(SUFFIXES)}")


def describe_stream(stream: Any) -> dict[str, Any]:
    """Return type, counts, bounds, and the smallest and largest value of every channel."""
    bounds = stream.bounds()
    empty = not np.all(np.isfinite(bounds))
    channels: list[dict[str, Any]] = []
    if isinstance(stream, Mesh):
        channels.append(_describe_channel("point", "position", stream.positions))
        for location, named in stream.channels.items():
            channels += [_describe_channel(location, n, named[n]) for n in sorted(named)]
    else:
        for name, channel in sorted(stream.channels.items()):
            moved = np.moveaxis(channel.values, 1, -1)
            channels.append(_describe_channel(channel.location, name, moved, batch=4))
    return {
        "type": stream.type_name,
        "counts": stream.counts(),
        "bounds": None if empty else bounds.tolist(),
        "channels": channels,
    }


def _describe_channel(
    location: str, name: str, values: NDArray[Any], *, batch: int = 1
) -> dict[str, Any]:
    """Describe a channel; the first `batch` axes count elements, the others components."""
    found: dict[str, Any] = {
        "location": location,
        "name": name,
        "dtype": str(values.dtype),
        "components": int(np.prod(values.shape[batch:], dtype=np.int64)),
        "minimum": None,
        "maximum": None,
        "not_finite": 0,
    }
    if values.size == 0:
        return found
    flat = values.reshape(-1)
    if flat.dtype.kind == "f":
        finite = np.isfinite(flat)
        found["not_finite"] = int(flat.size - np.count_nonzero(finite))
        flat = flat[finite]
    if flat.size:
        found |= {"minimum": flat.min().item(), "maximum": flat.max().item()}
    return found


def _inspect_cache(folder: Path, frame: int | None, *, verify: bool) -> dict[str, Any]:
    from loki_vfx.serialization.frame_cache import FrameCacheReader

    reader = FrameCacheReader(folder)
    frames, manifest = reader.frames(), reader.manifest
    found: dict[str, Any] = {
        "kind": "frame cache",
        "path": str(folder),
        "setup": manifest.setup.get("name"),
        "setup_hash": manifest.setup_hash,
        "fps": manifest.fps,
        "start_frame": manifest.start_frame,
        "frames": frames,
        "units": manifest.units,
        "code_versions": manifest.code_versions,
        "earlier_setups": len(manifest.earlier_setups),
        "bytes": sum(path.stat().st_size for path in (folder / "frames").rglob("*.loki")),
        "frame": None,
        "objects": {},
        "statistics": {},
    }
    problems = reader.verify() if verify else []
    if frames or frame is not None:
        shown = frames[-1] if frame is None else frame
        try:
            streams = {path: reader.read(shown, path) for path in reader.objects(shown)}
            objects = {path: describe_stream(stream) for path, stream in streams.items()}
            for path, (stored, plain) in reader.sizes(shown).items():
                objects[path] |= {"bytes": stored, "plain_bytes": plain}
            found |= {
                "frame": shown,
                "objects": objects,
                "statistics": reader.statistics(shown),
            }
        except FormatError as error:
            if not verify:
                raise
            problems.append(f"frame {shown}: {error}")
    trail = _inspect_trail(folder, verify=verify)
    return {**found, **trail, "problems": list(dict.fromkeys([*problems, *trail["problems"]]))}


def _inspect_trail(folder: Path, *, verify: bool) -> dict[str, Any]:
    from loki_vfx.serialization.checkpoint_file import checkpoint_frames, open_checkpoint

    frames = checkpoint_frames(folder)
    problems = []
    for frame in frames if verify else ():
        try:
            open_checkpoint(folder, frame)
        except FormatError as error:
            problems.append(f"checkpoint of frame {frame}: {error}")
    return {"checkpoints": frames, "problems": problems}


def _inspect_checkpoint(folder: Path, *, verify: bool) -> dict[str, Any]:
    from loki_vfx.serialization.checkpoint_file import open_checkpoint

    if folder.parent.name != "checkpoints" or not folder.name.lstrip("-").isdigit():
        raise InputError(f"{folder} is no checkpoint; they are RUN/checkpoints/FRAME")
    checkpoint = open_checkpoint(folder.parent.parent, int(folder.name))
    state = checkpoint.read(0)
    return {
        "kind": "checkpoint",
        "path": str(folder),
        "frame": checkpoint.frame,
        "ranks": checkpoint.ranks,
        "notes": checkpoint.notes,
        "timeline": state.get("timeline", {}),
        "objects": sorted(state.get("objects", {})),
        "bytes": sum(path.stat().st_size for path in folder.glob("rank_*.loki")),
        "problems": [],
    }


def _inspect_rank_file(path: Path) -> dict[str, Any]:
    from loki_vfx.serialization.checkpoint_file import read_checkpoint

    state = read_checkpoint(path)
    return {
        "kind": "checkpoint of one rank",
        "path": str(path),
        "timeline": state.get("timeline", {}),
        "objects": sorted(state.get("objects", {})),
        "bytes": path.stat().st_size,
        "problems": [],
    }


def _inspect_setup(path: Path) -> dict[str, Any]:
    from loki_core.solver_setup import SolverSetup
    from loki_vfx.bridges.standalone.scene import read_document

    setup = read_document(path)
    if not isinstance(setup, SolverSetup):
        return {
            "kind": "Loki Graph",
            "path": str(path),
            "graph": setup.name,
            "tree": str(setup),
            "nodes": len(setup.nodes),
            "streams": setup.host_inputs(),
            "outputs": sorted(setup.outputs()),
            "exposed": [one.name for one in setup.exposed_declarations()],
            "problems": [],
        }
    behaviors: dict[str, int] = {}
    for _, behavior in setup.behaviors():
        behaviors[type(behavior).__name__] = behaviors.get(type(behavior).__name__, 0) + 1
    return {
        "kind": "Solver Setup",
        "path": str(path),
        "setup": setup.name,
        "setup_hash": setup.digest(),
        "tree": str(setup),
        "behaviors": behaviors,
        "streams": sorted({stream.name for stream in setup.streams()}),
        "settings": json.loads(json.dumps(setup.settings.parameters_document())),
        "problems": [],
    }
