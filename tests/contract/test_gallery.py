"""Scenes of the gallery: files are current, inputs complete, the super setup fits every scene."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from loki_core.pipeline.solver import Solver
from loki_core.setup_document import read_setup
from loki_vfx.bridges.standalone.gallery import example_names, find_example

#: Options that make scenes small without a change of their Solver Setup.
SMALL = {"strands": 20, "blades": 20, "strands_per_ply": 4, "vertices": 8}


def build_small(name: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    build = find_example(name).build
    known = inspect.signature(build).parameters
    return build(**{key: value for key, value in SMALL.items() if key in known}, **options)


@pytest.mark.parametrize("name", example_names())
def test_a_scene_and_its_file_are_the_same(name: str) -> None:
    setup, inputs = build_small(name)
    module = find_example(name)
    assert setup.name == name and module.FRAMES > 0 and module.__doc__
    written = read_setup(Path(str(module.__file__)).with_name(f"{name}.loki.json"))
    stale = f"{name}.loki.json is not current: python -m examples.write_setups {name}"
    assert written.digest() == setup.digest(), stale
    assert {stream.name for stream in setup.streams()} == set(inputs)


@pytest.mark.parametrize(
    ("scene", "objects", "inactive"),
    [
        ("hair", {"Hair/Strands", "Air/Gas"}, {"Sparks/Embers", "Air/Fan", "Air/Fire"}),
        ("smoke", {"Air/Gas"}, {"Hair/Strands", "Sparks/Embers", "Air/Fan", "Head"}),
        ("sparks", {"Sparks/Embers", "Air/Gas"}, {"Hair/Strands", "Head", "Air/Fire"}),
        ("all", {"Hair/Strands", "Sparks/Embers", "Air/Gas"}, set()),
    ],
)
def test_the_super_setup_fits_every_scene(
    scene: str, objects: set[str], inactive: set[str]
) -> None:
    setup, inputs = build_small("super_setup", scene=scene)
    whole, _ = build_small("super_setup")
    assert setup.digest() == whole.digest()  # a scene is its inputs alone
    solver = Solver(setup, inputs)
    idle = {one.path for one in solver.inactive}
    assert objects <= set(solver.objects) and inactive <= idle
    assert not objects & idle
    if scene == "all":
        assert not idle


def test_the_setup_file_of_a_scene_has_its_streams(tmp_path):
    """`wtloki run examples/NAME/NAME.loki.json` runs the scene; a copy elsewhere is only a file."""
    from loki_vfx.bridges.standalone.scene import load_scene

    module = find_example("grass")
    file = Path(str(module.__file__)).with_name("grass.loki.json")
    scene = load_scene(file, changes=("substeps=7",))
    assert set(scene.inputs) == set(module.build()[1]) and scene.frame_count == module.FRAMES
    assert scene.setup.settings.substeps == 7
    copy = tmp_path / "grass" / "grass.loki.json"
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    assert load_scene(copy).inputs == {}
