"""Wedge folders: what is there of each variant, and what there is to do.

WEDGE/wedge_0001/               the frame cache of a variant, as `wtloki run` writes it
WEDGE/wedge_0001/variant.json   its values, and why it failed if it did
WEDGE/wedge_0001/run.log        what its runs said
WEDGE/wedge.json  wedge.csv     all variants and what they cost
WEDGE/contact_sheet.png         a picture of each
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from loki_core.errors import InputError, LokiError, SetupError
from loki_core.solver_setup import SolverSetup
from loki_graph import Graph, load_document_file
from loki_vfx.bridges.standalone.failures import Failure
from loki_vfx.bridges.standalone.run_request import RunRequest
from loki_vfx.bridges.standalone.runner import document_digest, input_digests
from loki_vfx.bridges.standalone.scene import Scene, apply_changes, frame_range, make_scene
from loki_vfx.bridges.standalone.wedge import Variant
from loki_vfx.serialization.atomic_file import read_json, write_json
from loki_vfx.serialization.frame_cache import read_manifest, whole_frames

WEDGE, TABLE, SHEET = "wedge.json", "wedge.csv", "contact_sheet.png"
VARIANT, LOG = "variant.json", "run.log"
#: Of a variant: nothing is there, some frames are, all are, or those of another simulation.
State = Literal["new", "partial", "complete", "changed"]


@dataclass(frozen=True)
class Plan:
    """A variant with its place, its frames, and what is there already."""

    variant: Variant
    folder: Path
    frames: tuple[int, int]
    state: State


class WedgeScene:
    """The scene of a wedge, read once for all its variants.

    Args:
        request: The run that all variants have in common, with absolute paths.
    """

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.base = request.scene()
        assert request.file is not None
        self._file = Path(request.file)
        self._document = load_document_file(self._file)
        self._inputs: dict[str, Any] | None = None
        self._digests: dict[int, dict[str, str]] = {}

    def check(self, variants: Iterable[Variant]) -> None:
        """Refuse variants that cannot be, and two that are the same.

        Raises:
            LokiError: A parameter or a value is not valid; the message names the variant.
        """
        first: dict[str, Variant] = {}
        for variant in variants:
            document = self._changed(variant)
            content = (
                document.digest()
                if isinstance(document, SolverSetup)
                else document_digest(document.to_document())
            )
            same = first.setdefault(content, variant)
            if same is not variant:
                raise SetupError(
                    f"{same.name} ({same}) and {variant.name} ({variant}) are the same simulation"
                )

    def takes(self, change: str) -> bool:
        """Whether a change is possible."""
        try:
            self._apply((*self.request.changes, change))
        except LokiError:
            return False
        return True

    def plan(self, variant: Variant, root: Path) -> Plan:
        """Look at what is there of a variant in a wedge folder."""
        scene = self._scene(variant)
        frames = frame_range(self.request.frames, scene.setup, suggested=scene.frame_count)
        folder = root / variant.name
        return Plan(variant, folder, frames, self._state(scene, folder, frames))

    def _state(self, scene: Scene, folder: Path, frames: tuple[int, int]) -> State:
        there = set(whole_frames(folder))
        if not there:
            return "new"
        if read_manifest(folder).setup_hash != self._digest(scene):
            return "changed"
        return "complete" if there.issuperset(range(frames[0], frames[1] + 1)) else "partial"

    def _digest(self, scene: Scene) -> str:
        """Return the hash that the Runner gives to a scene."""
        if scene.document is not None:
            start = scene.setup.settings.start_frame
            parts = document_digest(scene.document), input_digests(scene.inputs, start)
        else:  # all variants have the same inputs
            start = scene.setup.settings.start_frame
            if start not in self._digests:
                self._digests[start] = input_digests(scene.inputs, start)
            parts = scene.setup.digest(), self._digests[start]
        return document_digest({"setup": parts[0], "inputs": parts[1]})

    def _scene(self, variant: Variant) -> Scene:
        document = self._changed(variant)
        if isinstance(document, SolverSetup):
            return replace(self.base, setup=document)
        if self._inputs is None:
            from loki_vfx.bridges.standalone.input_files import read_inputs

            self._inputs = read_inputs(self.request.inputs)
        return make_scene(document, self._inputs, folder=self._file.parent)

    def _changed(self, variant: Variant) -> SolverSetup | Graph:
        try:
            return self._apply((*self.request.changes, *variant.changes))
        except LokiError as error:
            raise type(error)(f"{variant.name}: {error}") from error

    def _apply(self, changes: Sequence[str]) -> SolverSetup | Graph:
        if isinstance(self._document, SolverSetup):
            return apply_changes(self._document, changes)
        from loki_vfx.bridges.standalone.graph_scene import change_graph

        return change_graph(self._document, changes)


def variant_request(request: RunRequest, plan: Plan) -> RunRequest:
    """Return the run of a variant."""
    return replace(
        request,
        output=str(plan.folder),
        changes=(*request.changes, *plan.variant.changes),
        resume=plan.state == "partial",
        # a run that failed before its first frame leaves a manifest, perhaps of other values
        overwrite=plan.state == "changed" or (plan.state == "new" and plan.folder.exists()),
    )


def request_words(request: RunRequest) -> list[str]:
    """Return a scene and how to run it as words of a command line."""
    assert request.file is not None
    words = [request.file]
    for option, texts in (
        ("--input", request.inputs),
        ("--set", request.changes),
        ("--extensions", request.extensions),
    ):
        for text in texts:
            words += [option, text]
    keeps_other = request.keep_checkpoints != RunRequest.keep_checkpoints
    for option, value in (
        ("--frames", request.frames),
        ("--threads", request.threads),
        ("--checkpoint-every", request.checkpoint_every),
        ("--keep-checkpoints", request.keep_checkpoints if keeps_other else None),
    ):
        if value is not None:
            words += [option, str(value)]
    return words


def check_root(root: Path) -> None:
    """Refuse a folder that holds something else than a wedge.

    Raises:
        InputError: It does, or is a file.
    """
    if root.exists() and not root.is_dir():
        raise InputError(f"{root} is a file; choose a folder for the wedge with --output")
    is_wedge = (root / WEDGE).exists() or any(root.glob("wedge_*"))
    if root.is_dir() and any(root.iterdir()) and not is_wedge:
        raise InputError(f"{root} is no wedge folder, and not empty; choose another with --output")


def refuse_changed(plans: Sequence[Plan]) -> None:
    """Refuse to replace other simulations.

    Raises:
        InputError: There are frames of some.
    """
    changed = [plan for plan in plans if plan.state == "changed"]
    if not changed:
        return
    first = changed[0]
    there = values_there(first.folder)
    others = f" (and {len(changed) - 1} others do)" if len(changed) > 1 else ""
    if there in ({}, first.variant.values):
        what = "of another setup, or with other inputs"
    else:
        words = ", ".join(f"{target}={value}" for target, value in there.items())
        what = f"with {words}, not {first.variant}"
    raise InputError(
        f"{first.folder} holds another simulation, {what}{others}; choose another folder with "
        "--output, or replace it with --overwrite"
    )


def write_variant(request: RunRequest, plan: Plan, failure: Failure | None = None) -> None:
    """Note the values of a variant in its folder, and why it failed."""
    document: dict[str, Any] = {
        "index": plan.variant.index,
        "name": plan.variant.name,
        "values": plan.variant.values,
        "scene": request.file,
        "changes": list(request.changes),
        "inputs": list(request.inputs),
        "frames": list(plan.frames),
        "failure": None if failure is None else failure._asdict(),
    }
    write_json(plan.folder / VARIANT, document)


def values_there(folder: Path) -> dict[str, str]:
    """Return the values of the variant that a folder holds; empty if it does not say."""
    values = _read_variant(folder).get("values")
    return {str(k): str(v) for k, v in values.items()} if isinstance(values, dict) else {}


def failure_there(folder: Path) -> Failure | None:
    """Return why the last run of a variant failed; None if it did not."""
    found = _read_variant(folder).get("failure")
    if not isinstance(found, dict):
        return None
    return Failure(str(found.get("kind")), str(found.get("message")), found.get("exit_code") or 1)


def _read_variant(folder: Path) -> dict[str, Any]:
    path = folder / VARIANT
    document = read_json(path)[0] if path.exists() else {}
    return document if isinstance(document, dict) else {}


def leftover_variants(root: Path, count: int) -> list[str]:
    """Return the folders of variants that an earlier, larger wedge left."""
    numbers = {
        path.name: path.name.removeprefix("wedge_")
        for path in root.glob("wedge_*")
        if path.is_dir()
    }
    return sorted(name for name, text in numbers.items() if text.isdigit() and int(text) > count)


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan for machines."""
    return {
        **asdict(plan.variant),
        "name": plan.variant.name,
        "folder": str(plan.folder),
        "frames": list(plan.frames),
        "state": plan.state,
    }
