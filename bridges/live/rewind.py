"""Rewind: what a client asks for that wants frames computed anew, and whether that is possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loki_core.errors import InputError
from loki_core.solver_setup import SolverSetup
from loki_vfx.bridges.live.protocol import Message, ProtocolError, read_document
from loki_vfx.bridges.live.run_folder import RunOptions, RunRecord, checked_input_names
from loki_vfx.bridges.live.scene_document import parse_scene
from loki_vfx.bridges.standalone.scene import frame_range
from loki_vfx.serialization.checkpoint_file import checkpoints_before
from loki_vfx.serialization.frame_cache import whole_frames

FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "document": (dict, type(None)),
    "inputs": list,
    "options": dict,
}


@dataclass(frozen=True)
class Rewind:
    """A request to compute a frame and all after it anew.

    Attributes:
        frame: The first of them.
        document: The scene from now on; None keeps the present one.
        inputs: Names of inputs that come anew.
        options: Of the run from now on.
        session, version: Who asks, and since when its inputs count.
    """

    frame: int
    document: dict[str, Any] | None
    inputs: list[str]
    options: RunOptions
    session: bytes
    version: int

    @classmethod
    def of_message(cls, message: Message, record: RunRecord) -> Rewind:
        """Read what came from outside, for a run.

        Raises:
            LokiError: It is not valid, or does not fit the run.
        """
        asked = read_document(message.payload)
        if not isinstance(asked, dict) or set(asked) != set(FIELDS):
            raise ProtocolError("malformed", f"a rewind has {', '.join(FIELDS)}")
        for name, shape in FIELDS.items():
            if not isinstance(asked[name], shape):
                raise ProtocolError("malformed", f"rewind: {name} is a {type(asked[name])}")
        inputs = checked_input_names(asked["inputs"])
        for name in inputs:
            if name not in record.inputs and name not in record.animated:
                raise ProtocolError(
                    "unknown_input", f'run {record.name} has no input "{name[:80]}"'
                )
        if asked["document"] is not None and record.request is not None:
            raise InputError(f"run {record.name} was submitted with its files; change them there")
        options = RunOptions.from_document(record.options.__dict__ | asked["options"])
        if not options.keep_frames or not record.options.keep_frames:
            raise InputError(f"run {record.name} is not kept, so there is nothing to go back to")
        frame, version = message.content["frame"], message.content["version"]
        return cls(frame, asked["document"], inputs, options, message.session, version)

    def check(self, record: RunRecord, folder: Path, cache: Path) -> None:
        """See whether the run has the frame, and whether the new scene is one.

        Raises:
            LokiError: It has not, or it is not.
        """
        if self.document is not None:
            scene = parse_scene(self.document, folder)
            if isinstance(scene, SolverSetup):
                frame_range(self.options.frames, scene, suggested=1)
        frames = whole_frames(cache)
        if not frames:
            raise InputError(f"run {record.name} has no frame yet; remove it, and submit it anew")
        if not frames[0] <= self.frame <= frames[-1] + 1:
            raise InputError(
                f"run {record.name} has frames {frames[0]} to {frames[-1]}; it can be rewound to "
                f"one of them, or to the next, and not to frame {self.frame}"
            )


def goes_on_from(cache: Path, frame: int) -> int | None:
    """Return the frame of the checkpoint that leads to a frame; None for the start."""
    found = checkpoints_before(cache, frame)
    return found[-1] if found else None
