"""Bakes of the open file: they are started, followed, taken up and removed.

A graph is known by the number that Blender gives it until the file is closed, which undo does not
change.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bpy

from loki_core.errors import FormatError, InputError
from loki_graph.graph_document import graph_to_document
from loki_vfx.bridges.live.client import Client, Refused, Run
from loki_vfx.bridges.live.local_server import discovered
from loki_vfx.bridges.live.run_folder import ENDED, RunFolder

from . import cache_files, out_of_date
from .bake import Bake
from .bake_record import BakeRecord, is_own, read_record
from .baked_graph import check_complete, document_with_drivers, frame_range
from .compat import session_number
from .graph_tree import graphs
from .preferences import Wishes, wishes
from .scene_inputs import inputs_of
from .scene_time import go_home
from .solver_connection import connect_to, wishes_and_command

_bakes: dict[int, Bake] = {}


def bake_of(tree: Any) -> Bake | None:
    """Return the bake of a graph; None if there is none since the file was opened."""
    return _bakes.get(session_number(tree))


def all_bakes() -> Iterator[tuple[Any, Bake]]:
    """Yield graphs and their bakes; one whose graph was removed is cancelled and forgotten."""
    trees = {session_number(tree): tree for tree in graphs()}
    for number, bake in list(_bakes.items()):
        if number in trees:
            yield trees[number], bake
        else:
            bake.cancel()
            bake.close()
            _bakes.pop(number, None)


def forget_all() -> None:
    """Let go of all servers, when a file is closed; what runs goes on there."""
    for bake in _bakes.values():
        bake.close()
    _bakes.clear()


def _replace(tree: Any, bake: Bake) -> Bake:
    former = bake_of(tree)
    if former is not None:
        former.close()
    _bakes[bake.number] = bake
    out_of_date.note_edit(tree)
    return bake


# -- starting -------------------------------------------------------------------------------------


def start(tree: Any, scene: Any, *, from_frame: int | None = None) -> Bake:
    """Begin a bake.

    Args:
        from_frame: Keep the frames before this one, and go on from the last checkpoint before it.

    Raises:
        LokiError: The graph is not valid, an input has no object, or there is no solver.
    """
    _refuse_if_running(tree)
    frames = _frames_to_bake(tree, scene, from_frame)
    if not bpy.data.filepath and tree.loki.folder.startswith("//"):
        tree.loki.folder = str(cache_files.root_of(tree))  # found again when the file is saved
    wanted, command = wishes_and_command()
    if from_frame is not None:
        _check_server(tree, wanted)
    graph = document_with_drivers(tree, scene, frames)
    check_complete(graph)
    sources = inputs_of(tree, scene)
    try:
        inputs = {name: one.given(frames[0]) for name, one in sources.items()}
    finally:
        go_home()
    tree.loki.scene = scene
    if from_frame is None and not _may_replace(tree, wanted):
        taken = {one.loki.run for one in graphs()} | _folders(cache_files.root_of(tree))
        tree.loki.run = cache_files.run_name(tree, taken)
    options = _options(tree, frames, wanted)
    run_name = tree.loki.run
    earlier = "none" if from_frame is None else from_frame
    bake = _replace(tree, Bake(tree, scene, frames, earlier=earlier))
    bake.take_inputs(sources)
    record = BakeRecord.of(tree, frames, wanted.endpoint)

    def submit(client: Client) -> Run:
        if from_frame is not None:
            run = client.attach(run_name, after=from_frame - 1)
            run.rewind(from_frame, scene=graph, inputs=inputs, **options)
        else:
            if any(one["run"] == run_name for one in client.status(run_name)["runs"]):
                client.remove(run_name)
            run = client.submit(graph, inputs, run=run_name, **options)
        record.write(bake.folder / run_name)
        if wanted.endpoint:  # a server here has written it
            RunFolder(bake.folder, run_name).write_document(graph_to_document(graph))
        return run

    bake.begin(submit, wanted, command)
    return bake


def _refuse_if_running(tree: Any) -> None:
    bake = bake_of(tree)
    if bake is not None and not bake.is_over:
        raise InputError(f"{tree.name} is being baked; cancel that first")


def _frames_to_bake(tree: Any, scene: Any, from_frame: int | None) -> tuple[int, int]:
    """Return the first and the last frame; a bake that goes on has the first that it had."""
    first, last = frame_range(tree, scene)
    if last < first:
        raise InputError(f"the frame range {first} to {last} is empty")
    there = cache_files.baked_frames(tree)
    return (there[0] if from_frame is not None and there else first), last


def _may_replace(tree: Any, wanted: Wishes) -> bool:
    """Whether a new bake takes the place of the one that a graph names."""
    record = read_record(tree)
    return is_own(tree) and (record is None or record.server == wanted.endpoint)


def _check_server(tree: Any, wanted: Wishes) -> None:
    """See whether a bake can go on with the server of the preferences.

    Raises:
        InputError: It was begun on another one.
    """
    record = read_record(tree)
    if record is not None and record.server != wanted.endpoint:
        now = f"name {wanted.endpoint}" if wanted.endpoint else "name no server"
        raise InputError(
            f"{tree.name} was baked on {record.server or 'this machine'}, and the add-on's "
            f"preferences {now}: change them, or bake from the start"
        )


def _folders(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} if root.is_dir() else set()


def _options(tree: Any, frames: tuple[int, int], wanted: Wishes) -> dict[str, Any]:
    options: dict[str, Any] = {
        "frames": f"{frames[0]}-{frames[1]}",
        "ranks": tree.loki.ranks or wanted.ranks,
        "results": "frames" if wanted.endpoint else "manifest",
    }
    if tree.loki.threads:
        options["threads"] = tree.loki.threads
    if tree.loki.checkpoint_every:
        options["checkpoint_every"] = tree.loki.checkpoint_every
        options["keep_checkpoints"] = 10_000  # for bakes from any frame on
    return options


# -- taking up ------------------------------------------------------------------------------------


def resume(tree: Any, scene: Any) -> Bake:
    """Let the bake of a graph go on: after a pause, after it was stopped, or with more frames.

    Raises:
        LokiError: The graph was never baked, or there is no solver.
    """
    bake = bake_of(tree)
    if bake is not None and not bake.is_over:
        bake.resume()
        return bake
    there = cache_files.baked_frames(tree)
    if there and _has_grown(tree, scene):
        return start(tree, scene, from_frame=there[-1] + 1)
    return _attach(tree, scene, take_up=True)


def _has_grown(tree: Any, scene: Any) -> bool:
    """Whether more frames are wanted than the bake was asked for."""
    record = read_record(tree)
    if record is None or record.frames is None:
        return False
    return frame_range(tree, scene)[1] > record.frames[1]


def attach(tree: Any, scene: Any) -> Bake:
    """Follow a bake that runs already, of this file when it was open before.

    Raises:
        LokiError: The graph was never baked, or there is no solver.
    """
    return _attach(tree, scene, take_up=False)


def _attach(tree: Any, scene: Any, *, take_up: bool) -> Bake:
    if not tree.loki.run:
        raise InputError(f"{tree.name} was never baked")
    wanted, command = wishes_and_command()
    _check_server(tree, wanted)
    sources = inputs_of(tree, scene)
    functions = {name: one.at for name, one in sources.items() if one.is_animated}
    frames = cache_files.baked_frames(tree)
    bake = _replace(tree, Bake(tree, scene, frame_range(tree, scene), earlier="all"))
    bake.frame = frames[-1] if frames else None
    bake.take_inputs(sources)
    run_name = tree.loki.run

    def follow(client: Client) -> Run:
        run = client.attach(run_name, after=bake.frame, inputs=functions)
        bake.message = run.message
        if run.state not in ENDED:  # else its end is told after its last frame
            bake.state = run.state
        elif take_up:
            run.resume()
        return run

    bake.begin(follow, wanted, command)
    return bake


def has_more(tree: Any) -> bool:
    """Whether a server may have more of the bake of a graph, though nobody here follows it."""
    if bake_of(tree) is not None:
        return False
    return _runs_on_this_machine(tree) or _is_left_on_a_server(tree)


def _is_left_on_a_server(tree: Any) -> bool:
    """Whether frames were asked for that the server of the preferences has not sent yet."""
    record = read_record(tree)
    if record is None or not record.server or record.server != wishes().endpoint:
        return False
    there = cache_files.baked_frames(tree)
    return not there or record.frames is None or there[-1] < record.frames[1]


def _runs_on_this_machine(tree: Any) -> bool:
    folder = cache_files.run_folder(tree)
    if folder is None or not folder.is_dir() or discovered(folder.parent) is None:
        return False
    try:
        return RunFolder(folder.parent, folder.name).read_record().state not in ENDED
    except FormatError:
        return False


# -- removing -------------------------------------------------------------------------------------


def remove(tree: Any) -> None:
    """Forget a bake and remove all its files.

    Raises:
        LokiError: It is still running, or its server does not remove it.
    """
    _refuse_if_running(tree)
    folder = cache_files.run_folder(tree)
    if folder is not None and is_own(tree):
        _remove_on_server(tree, folder)
        if (folder / "cache" / "manifest.json").is_file():
            shutil.rmtree(folder)
    bake = bake_of(tree)
    if bake is not None:
        bake.close()
        del _bakes[bake.number]
    tree.loki.run = ""


def _remove_on_server(tree: Any, folder: Path) -> None:
    """Let the server that knows a run forget it, with its files."""
    record = read_record(tree)
    server = "" if record is None else record.server
    if server not in ("", wishes().endpoint):
        return  # the preferences name another one by now
    if not server and discovered(folder.parent) is None:
        return
    client = connect_to(folder.parent, replace(wishes(), endpoint=server), [])
    try:
        client.remove(folder.name)
    except Refused as error:
        if error.code != "unknown_run":
            raise
    finally:
        client.close()
