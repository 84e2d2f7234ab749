"""Bakes through a real server and a real solver, as a user makes them: by operators."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bpy
import numpy as np
import pytest

from loki_vfx.bridges.blender import bakes, cache_files, panels
from loki_vfx.bridges.blender.baked_graph import frame_range
from loki_vfx.bridges.blender.clock import tick_all
from loki_vfx.bridges.blender.graph_tree import outputs_in
from loki_vfx.bridges.blender.messages import message_of
from loki_vfx.bridges.blender.operator_tools import solver_node
from loki_vfx.bridges.blender.out_of_date import has_changed
from loki_vfx.bridges.blender.scene_inputs import inputs_of
from loki_vfx.bridges.blender.scene_time import go_home
from loki_vfx.serialization.atomic_file import write_packed
from loki_vfx.serialization.frame_cache import FrameCacheReader
from tests.blender.baking import hair_of_few_strands, pump, set_exposed
from tests.blender.conftest import solver_program


@pytest.fixture
def hair(scene: Any, tmp_path: Path) -> Any:
    """Hair in wind on a ball, few strands, in a file that was saved."""
    return hair_of_few_strands(scene, str(tmp_path / "shot.blend"))


def positions_of(shown: Any) -> np.ndarray:
    """World positions of a hair object, in Loki's axes."""
    data = shown.data
    values = np.empty(3 * len(data.points), np.float32)
    data.attributes["position"].data.foreach_get("vector", values)
    x, y, z = values.reshape(-1, 3).T
    return np.stack([x, z, -y], axis=1)


def panel_texts(tree: Any, scene: Any) -> list[str]:
    """What the panel of a bake shows, drawn into a layout that writes it down."""
    texts: list[str] = []

    class Layout:
        def row(self, **options: Any) -> Any:
            return self

        column = row

        def operator(self, name: str, **options: Any) -> Any:
            return self

        def label(self, text: str = "", **options: Any) -> None:
            texts.append(text)

    panels._draw_start(Layout(), tree, SimpleNamespace(scene=scene), None)
    return texts


def target_of(tree: Any) -> Any:
    [node] = outputs_in(tree)
    return node.part.target


def run_alone(tree: Any, scene: Any, folder: Path, *, frames: str) -> FrameCacheReader:
    """Run the same graph and inputs by `wtloki run`."""
    folder.mkdir()
    file = folder / "graph.loki.json"
    assert bpy.ops.loki.save_graph(filepath=str(file)) == {"FINISHED"}
    words = [str(solver_program()), "run", str(file), "--frames", frames]
    words += ["--output", str(folder / "cache")]
    first = frame_range(tree, scene)[0]
    for name, one in inputs_of(tree, scene).items():
        if one.is_animated:
            last = frame_range(tree, scene)[1]
            for frame in range(first, last + 1):
                write_packed(folder / f"{name}.{frame:04d}.loki", one.at(frame))
            words += ["--input", f"{name}={folder / name}.####.loki"]
        else:
            write_packed(folder / f"{name}.loki", one.given(first))
            words += ["--input", f"{name}={folder / name}.loki"]
    go_home()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return FrameCacheReader(folder / "cache")


def test_a_bake_shows_the_frames_of_the_standalone_run(
    hair: Any, scene: Any, tmp_path: Path
) -> None:
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    assert cache_files.baked_frames(hair) == list(range(1, 11))
    assert (tmp_path / "loki_cache").is_dir()  # beside the file, so that it can be moved with it
    alone = run_alone(hair, scene, tmp_path / "alone", frames="1-10")
    [name] = alone.objects(10)
    for frame in (10, 3, 1):
        scene.frame_set(frame)
        expected = alone.read(frame, name).positions.astype(np.float32)
        assert np.array_equal(positions_of(target_of(hair)), expected), frame


def test_a_bake_on_two_ranks_shows_every_strand_in_its_place(hair: Any, scene: Any) -> None:
    """Strand i of the result grows where strand i of the groom does, whatever rank it is on."""
    scene.frame_end = 3
    hair.loki.ranks = 2
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    reader = cache_files.reader_of(hair)
    [name] = reader.objects(3)
    shares = [part["counts"]["primitive"] for part in reader.index(3)["objects"][name]]
    assert len(shares) == 2 and min(shares) > 0
    roots = []
    for frame in (1, 3):
        scene.frame_set(frame)
        data = target_of(hair).data
        first = [curve.first_point_index for curve in data.curves]
        roots.append(positions_of(target_of(hair))[first])
    hair.loki.ranks = 1
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    scene.frame_set(3)
    np.testing.assert_allclose(roots[0], roots[1], atol=1e-6)
    np.testing.assert_allclose(positions_of(target_of(hair))[first], roots[1], atol=1e-6)


def test_roots_follow_a_head_that_moves_and_the_clock_stays(
    hair: Any, scene: Any, tmp_path: Path
) -> None:
    head = bpy.data.objects["Head"]
    for frame, angle in ((1, 0.0), (6, 1.0)):
        head.rotation_euler.z = angle
        head.keyframe_insert("rotation_euler", frame=frame)
    hair.loki.live_preview = False
    scene.frame_end = 6
    scene.frame_set(4)
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    assert scene.frame_current == 4
    alone = run_alone(hair, scene, tmp_path / "alone", frames="1-6")
    [name] = alone.objects(6)
    scene.frame_set(6)
    shown = positions_of(target_of(hair))
    assert np.array_equal(shown, alone.read(6, name).positions.astype(np.float32))
    scene.frame_set(1)
    assert np.abs(positions_of(target_of(hair)) - shown).max() > 0.05


def test_cancel_in_the_middle_and_resume(hair: Any, scene: Any) -> None:
    scene.frame_end = 400
    bpy.ops.loki.bake()
    bake = bakes.bake_of(hair)
    pump(lambda: bake.frame is not None and bake.frame >= 2)
    bpy.ops.loki.cancel()
    pump(lambda: bake.is_over)
    assert bake.state == "cancelled"
    frames = cache_files.baked_frames(hair)
    assert frames == list(range(1, len(frames) + 1)) and len(frames) < 400
    bpy.ops.loki.resume()
    bake = bakes.bake_of(hair)
    pump(lambda: (bake.frame or 0) >= frames[-1] + 2)
    bpy.ops.loki.pause()
    pump(lambda: bake.state == "paused")
    bpy.ops.loki.cancel()
    pump(lambda: bake.is_over)


def test_resume_goes_on_to_an_end_that_was_moved(hair: Any, scene: Any, tmp_path: Path) -> None:
    scene.frame_end = 3
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    scene.frame_start, scene.frame_end = 2, 6  # the bake still begins where it began
    bpy.ops.loki.resume()
    bake = bakes.bake_of(hair)
    pump(lambda: bake.is_over)
    assert bake.state == "finished"
    assert cache_files.baked_frames(hair) == [1, 2, 3, 4, 5, 6]
    scene.frame_start = 1
    alone = run_alone(hair, scene, tmp_path / "alone", frames="1-6")
    [name] = alone.objects(6)
    scene.frame_set(6)
    expected = alone.read(6, name).positions.astype(np.float32)
    assert np.array_equal(positions_of(target_of(hair)), expected)


def worker_of(tree: Any) -> int:
    """Return the process of the solver: the child of the server that runs the bake."""
    folder = str(cache_files.run_folder(tree))
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "loki_vfx.bridges.live.worker" in words and folder in words:
            return int(path.parent.name)
    raise AssertionError("no solver runs")


def test_a_killed_solver_is_a_pause_and_a_killed_server_a_message(hair: Any, scene: Any) -> None:
    scene.frame_end = 60
    bpy.ops.loki.bake()
    bake = bakes.bake_of(hair)
    pump(lambda: bake.frame is not None and bake.frame >= 3)
    os.kill(worker_of(hair), signal.SIGKILL)
    pump(lambda: bake.frame >= 10)
    os.kill(bake.client.status()["server"]["pid"], signal.SIGKILL)
    pump(lambda: any("gone" in line.text for line in bake.log))
    pump(lambda: bake.is_over)  # another server was started, and took the bake up
    assert bake.state == "finished"
    assert cache_files.baked_frames(hair) == list(range(1, 61))


def test_a_bake_from_a_frame_on_keeps_what_is_before(hair: Any, scene: Any) -> None:
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    scene.frame_set(5)
    early = positions_of(target_of(hair))
    scene.frame_set(10)
    late = positions_of(target_of(hair))
    set_exposed(hair, wind=(20.0, 0.0, 0.0))
    assert has_changed(hair, scene)
    assert bpy.ops.loki.bake(wait=True, from_frame=7) == {"FINISHED"}
    scene.frame_set(5)
    assert np.array_equal(positions_of(target_of(hair)), early)
    scene.frame_set(10)
    assert np.abs(positions_of(target_of(hair)) - late).max() > 1e-3


def test_a_file_that_was_saved_while_it_baked_opens_and_finds_its_frames(
    hair: Any, scene: Any, tmp_path: Path
) -> None:
    scene.frame_end = 400
    bpy.ops.loki.bake()
    bake = bakes.bake_of(hair)
    pump(lambda: bake.frame is not None and bake.frame >= 2)
    bpy.ops.wm.save_mainfile()
    bpy.ops.wm.open_mainfile(filepath=bpy.data.filepath)
    tree = bpy.context.scene.loki.graph
    bake = bakes.bake_of(tree)
    assert bake is not None  # it still runs, so it is followed
    before = bake.frame or 0
    pump(lambda: (bake.frame or 0) > before)
    bpy.ops.loki.cancel()
    pump(lambda: bake.is_over)
    bpy.ops.wm.save_mainfile()
    bpy.ops.wm.open_mainfile(filepath=bpy.data.filepath)
    tree = bpy.context.scene.loki.graph
    assert bakes.bake_of(tree) is None and len(cache_files.baked_frames(tree)) > 2
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "shot.blend").rename(elsewhere / "shot.blend")
    bpy.ops.wm.open_mainfile(filepath=str(elsewhere / "shot.blend"))
    assert "not in" in message_of(bpy.context.scene.loki.graph)
    (tmp_path / "loki_cache").rename(elsewhere / "loki_cache")
    bpy.ops.wm.open_mainfile(filepath=str(elsewhere / "shot.blend"))
    assert len(cache_files.baked_frames(bpy.context.scene.loki.graph)) > 2


def test_what_is_removed_while_it_bakes_does_no_harm(hair: Any, scene: Any) -> None:
    scene.frame_end = 400
    head = bpy.data.objects["Head"]
    head.keyframe_insert("location", frame=1)  # read at every frame
    bpy.ops.loki.bake()
    bake = bakes.bake_of(hair)
    pump(lambda: bake.frame is not None and bake.frame >= 2)
    bpy.ops.object.select_all(action="SELECT")
    bpy.ops.object.duplicate()
    bpy.data.objects.remove(target_of(hair))
    frame = bake.frame
    pump(lambda: bake.frame > frame)
    assert target_of(hair) is not None  # made anew
    bpy.data.objects.remove(head)
    pump(lambda: bake.is_over)
    assert any("was removed" in line.text and line.level == "error" for line in bake.log)


def test_a_graph_that_is_removed_ends_its_bake(hair: Any, scene: Any) -> None:
    scene.frame_end = 400
    bpy.ops.loki.bake()
    bake = bakes.bake_of(hair)
    pump(lambda: bake.frame is not None)
    bpy.data.node_groups.remove(hair)
    tick_all()
    assert list(bakes.all_bakes()) == []


def test_an_animation_that_is_rendered_waits_for_its_frames(
    hair: Any, scene: Any, tmp_path: Path
) -> None:
    bpy.data.objects["Head"].keyframe_insert("location", frame=1)  # its inputs are read meanwhile
    camera = bpy.data.objects.new("Camera", bpy.data.cameras.new("Camera"))
    scene.collection.objects.link(camera)
    scene.camera = camera
    scene.frame_end = 3
    scene.render.engine = "CYCLES"
    scene.cycles.samples = 1
    scene.render.resolution_x = scene.render.resolution_y = 16
    scene.render.filepath = str(tmp_path / "picture_")
    bpy.ops.loki.bake()
    bpy.ops.render.render(animation=True)
    assert cache_files.baked_frames(hair) == [1, 2, 3]
    assert len(list(tmp_path.glob("picture_*"))) == 3


def test_a_copied_graph_bakes_into_a_folder_of_its_own(hair: Any, scene: Any) -> None:
    scene.frame_end = 2
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    frames = cache_files.cache_folder(hair)
    assert frames is not None
    size = sum(path.stat().st_size for path in (frames / "frames").rglob("*.loki"))
    assert cache_files.baked_bytes(hair) == size > 0
    assert cache_files.size_words(size) in " ".join(panel_texts(hair, scene))
    copy = hair.copy()
    scene.loki.graph = copy
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    assert cache_files.cache_folder(copy) != frames
    assert cache_files.baked_frames(hair) == [1, 2]


def test_an_object_that_loki_did_not_make_is_not_overwritten(hair: Any, scene: Any) -> None:
    scene.frame_end = 2
    [node] = outputs_in(hair)
    node.part.target = bpy.data.objects["Head"]
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    assert len(bpy.data.objects["Head"].data.vertices) > 100
    assert "would be overwritten" in message_of(hair)


def test_another_scene_does_not_move_the_results(hair: Any, scene: Any) -> None:
    scene.frame_end = 3
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    scene.frame_set(2)
    shown = positions_of(target_of(hair))
    other = bpy.data.scenes.new("Other")
    other.unit_settings.scale_length = 0.01
    other.frame_set(3)
    assert np.array_equal(positions_of(target_of(hair)), shown)


def test_an_undo_that_forgets_the_bake_does_no_harm(hair: Any, scene: Any) -> None:
    scene.frame_end = 400
    bpy.ops.loki.bake()
    bake = bakes.bake_of(hair)
    pump(lambda: bake.frame is not None)
    hair.loki.run = ""  # what undo does; without a window there is none
    frame = bake.frame
    pump(lambda: bake.frame > frame)
    assert hair.loki.run == bake.run_name and cache_files.baked_frames(hair)


def test_what_is_switched_off_or_out_of_range_is_said(hair: Any, scene: Any) -> None:
    set_exposed(hair, curl=10.0)
    with pytest.raises(RuntimeError, match="Curl = 10"):
        bpy.ops.loki.bake()
    set_exposed(hair, curl=0.0)
    bpy.data.objects["Head"].hide_viewport = True
    with pytest.raises(RuntimeError, match="disabled in viewports"):
        bpy.ops.loki.bake()


def test_the_bin_of_a_file_opened_again_leaves_nothing_behind(hair: Any, scene: Any) -> None:
    scene.frame_end = 2
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    bpy.ops.wm.save_mainfile()
    bpy.ops.wm.open_mainfile(filepath=bpy.data.filepath)
    tree = bpy.context.scene.loki.graph
    copy = tree.copy()
    bpy.context.scene.loki.graph = copy
    bpy.ops.loki.free()  # not its own
    assert copy.loki.run == "" and cache_files.baked_frames(tree) == [1, 2]
    bpy.context.scene.loki.graph = tree
    folder = cache_files.run_folder(tree)
    bpy.ops.loki.free()
    assert not folder.exists()
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}


def test_what_is_missing_is_said_before_anything_runs(scene: Any) -> None:
    bpy.ops.loki.add_template(template="hair_in_wind")
    tree = scene.loki.graph
    for node in tree.nodes:
        node.part.source = None
    with pytest.raises(RuntimeError, match="choose the object"):
        bpy.ops.loki.bake()
    assert bakes.bake_of(tree) is None


def test_a_graph_without_solver_objects_or_outputs_is_refused(hair: Any, scene: Any) -> None:
    [output] = outputs_in(hair)
    output.mute = True
    with pytest.raises(RuntimeError, match="has no Output"):
        bpy.ops.loki.bake()
    output.mute = False
    solver = solver_node(hair)
    for row in solver.part.rows:
        row.enabled = False
    solver.sync_sockets()
    with pytest.raises(RuntimeError, match="no Object that is switched on"):
        bpy.ops.loki.bake()
    hair.nodes.remove(solver)
    with pytest.raises(RuntimeError, match="has no Solver Setup"):
        bpy.ops.loki.bake()
    assert bakes.bake_of(hair) is None


def test_a_second_override_of_a_value_is_refused_with_words(hair: Any) -> None:
    bpy.context.view_layer.objects.active = bpy.data.objects["Head"]
    for channel in ("curves_radius", "collision_friction_coefficient"):
        assert bpy.ops.loki.override_add(channel=channel) == {"FINISHED"}
    with pytest.raises(RuntimeError, match=r"has a value of its own for .* already"):
        bpy.ops.loki.override_add(channel="curves_radius")
    settings = bpy.data.objects["Head"].loki
    assert len(settings.overrides) == 2 and settings.active == 0


def test_overrides_of_an_object_reach_the_solver(hair: Any, scene: Any) -> None:
    bpy.context.view_layer.objects.active = bpy.data.objects["Head"]
    assert bpy.ops.loki.paint_override(channel="curves_radius") == {"FINISHED"}
    assert bpy.ops.loki.override_add(channel="collision_friction_coefficient") == {"FINISHED"}
    bpy.data.objects["Head"].loki.overrides[0].value = 0.7
    [stream] = [one.given(1) for one in inputs_of(hair, scene).values()]
    assert stream.channels["detail"]["collision_friction_coefficient"] == pytest.approx([0.7])
    assert "curves_radius_scale" in stream.channels["point"]


@pytest.mark.parametrize("template", ["smoke_plume", "fountain"])
def test_other_templates_bake_and_show(scene: Any, tmp_path: Path, template: str) -> None:
    scene.frame_end = 3
    bpy.ops.loki.add_template(template=template)
    tree = scene.loki.graph
    bpy.ops.wm.save_as_mainfile(filepath=str(tmp_path / "shot.blend"))
    assert bpy.ops.loki.bake(wait=True) == {"FINISHED"}
    scene.frame_set(3)
    [node, *_] = outputs_in(tree)
    shown = node.part.target
    if template == "fountain":
        assert len(shown.data.vertices) > 0 and "velocity" in shown.data.attributes
    else:
        assert shown.type == "VOLUME" and shown.data.is_sequence
        shown.data.grids.load()
        assert shown.data.grids.is_loaded, shown.data.grids.error_message
