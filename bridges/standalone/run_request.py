"""Run Request: everything that a run needs, as plain values.

The command line fills one in; the ranks of an MPI job each get a copy as JSON, and load the scene
themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from loki_core.errors import FormatError, InputError
from loki_core.parallel.comm import Communicator
from loki_vfx.bridges.standalone.events import Listener
from loki_vfx.bridges.standalone.runner import Runner
from loki_vfx.bridges.standalone.scene import (
    Scene,
    apply_changes,
    build_example,
    frame_range,
    load_scene,
)


@dataclass(frozen=True)
class RunRequest:
    """What to run, from where, to where, and how.

    Attributes:
        file: A Solver Setup or Loki Graph file; None for an example.
        example: Name of a scene of the gallery, built with `example_options`.
        frames: `N` frames or `A-B`; None takes what the scene suggests.
    """

    output: str
    file: str | None = None
    example: str | None = None
    example_options: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    frames: str | None = None
    threads: int | None = None
    resume: bool = False
    overwrite: bool = False
    checkpoint_every: int | None = None
    keep_checkpoints: int = 3

    def to_json(self) -> str:
        """Return the request as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RunRequest:
        """Read such a text.

        Raises:
            FormatError: It is no run request.
        """
        try:
            document = json.loads(text)
        except ValueError as error:
            raise FormatError(f"a run request is JSON: {error}") from error
        known = {one.name for one in fields(cls)}
        if not isinstance(document, dict) or "output" not in document or set(document) - known:
            raise FormatError(f"a run request has the keys {', '.join(sorted(known))}")
        for name in ("inputs", "changes", "extensions"):
            document[name] = tuple(document.get(name, ()))
        return cls(**document)

    def scene(self) -> Scene:
        """Read or build the scene."""
        if self.example is not None:
            scene = build_example(self.example, self.example_options)
            setup = apply_changes(scene.setup, self.changes)
            return replace(scene, setup=setup)
        if self.file is None:
            raise InputError("a run request names a file or an example")
        return load_scene(
            Path(self.file),
            inputs=self.inputs,
            changes=self.changes,
            extensions=self.extensions,
        )

    def runner(self, *, listener: Listener, comm: Communicator | None = None) -> Runner:
        """Load the scene and return what runs it."""
        scene = self.scene()
        return Runner(
            scene.setup,
            scene.inputs,
            output=Path(self.output),
            frames=frame_range(self.frames, scene.setup, suggested=scene.frame_count),
            checkpoint_every=self.checkpoint_every,
            keep_checkpoints=self.keep_checkpoints,
            resume=self.resume,
            overwrite=self.overwrite,
            threads=self.threads,
            comm=comm,
            listener=listener,
            document=scene.document,
            after=scene.after,
        )
