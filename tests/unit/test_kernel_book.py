"""The Kernel Book: what it says is there, and compiling ahead of a run."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loki_core.behavior import registry
from loki_core.errors import FormatError
from loki_core.kernels.compile_ahead import shares
from loki_core.kernels.kernel_book import Entry, entries_for, read_book
from loki_core.kernels.signatures import read_signature, signature_text
from loki_core.pipeline.solver import Solver
from loki_vfx.bridges.standalone.gallery import example_names
from loki_vfx.bridges.standalone.kernel_recording import owners
from loki_vfx.bridges.standalone.recording_scenes import SCENES
from loki_vfx.bridges.standalone.scene import read_document

ROOT = Path(__file__).parents[2]
#: Modules of Behaviors that call no kernels of their own, and why.
WITHOUT_KERNELS = {
    "loki_core.operators.domain_boundary": "the kernels of the fluid ask what each side does",
    "loki_core.operators.particle_expression": "its kernels are made of what a user writes",
}


def test_the_book_names_kernels_and_behaviors_that_are_there():
    book = read_book()
    declaring = {one.__module__ for one in registry().values()}
    assert set(book) <= declaring
    entries = {entry for some in book.values() for entry in some}
    assert len(entries) > 200
    gone = sorted({entry.kernel for entry in entries if entry.find() is None})
    assert not gone, f"write the book anew with `wtloki warm --record`: {gone}"


def test_the_book_calls_kernels_as_they_are_now():
    entries = {entry for some in read_book().values() for entry in some}
    other = sorted(
        entry.kernel
        for entry in entries
        if len(entry.signature) != len(inspect.signature(entry.find().function).parameters)
    )
    assert not other, f"write the book anew with `wtloki warm --record`: {other}"


def own_behaviors() -> dict[str, str]:
    """Loki's Behaviors by name, with their modules."""
    modules = {name: one.__module__ for name, one in registry().items()}
    return {name: one for name, one in modules.items() if one.startswith("loki_core.")}


def test_every_behavior_is_in_the_book():
    book, modules = set(read_book()), set(own_behaviors().values())
    lacking = sorted(modules - book - set(WITHOUT_KERNELS))
    remedy = "run `wtloki warm --record`, or give a reason in WITHOUT_KERNELS"
    assert not lacking, f"{remedy}: {', '.join(lacking)}"
    assert set(WITHOUT_KERNELS) <= modules - book


def test_what_is_recorded_has_every_behavior():
    """At least once, in an example or in a small scene."""
    files = [ROOT / "examples" / name / f"{name}.loki.json" for name in example_names()]
    setups = [read_document(file) for file in files] + [build()[0] for build in SCENES.values()]
    recorded = {type(one).__name__ for setup in setups for _, one in setup.behaviors()}
    lacking = set(own_behaviors()) - recorded
    assert not lacking, f"add them to bridges/standalone/recording_scenes.py: {sorted(lacking)}"


@pytest.mark.parametrize("name", SCENES)
def test_every_part_of_a_recorded_scene_acts(name):
    solver = Solver(*SCENES[name]())
    assert not solver.inactive and not solver.warnings
    assert all(item.count() > 0 for item in solver.objects.values())


@pytest.mark.parametrize(
    ("scenes", "found"),
    [
        ([{"hair", "wind"}, {"hair"}], {"hair"}),
        ([{"hair", "wind"}], {"hair", "wind"}),  # nothing tells which of them
        ([{"hair"}, {"hair", "wind"}, {"cloth"}], {"hair", "cloth"}),
        ([set()], set()),
    ],
)
def test_what_runs_for_all_is_needed_by_who_is_there_whenever_it_runs(scenes, found):
    assert owners(scenes) == found


def test_a_setup_needs_what_its_behaviors_need():
    gravity, curves = "loki_core.forces.gravity", "loki_core.objects.solids.curves"
    assert set(entries_for([gravity])) < set(entries_for([gravity, curves]))
    assert not any("liquid" in entry.kernel for entry in entries_for([gravity, curves]))


@pytest.mark.parametrize(
    "text",
    [
        ["array(float64, 2d, C)", "int64", "bool"],
        ["UniTuple(int64 x 2)", "Tuple(array(int8, 2d, C), UniTuple(float32 x 3), uint64)"],
    ],
)
def test_a_signature_comes_back(text):
    assert signature_text(read_signature(text)) == text


@pytest.mark.parametrize("text", ["os.system", "array(object, 1d, C)", "Tuple()", "array(int64)"])
def test_what_is_no_type_of_a_kernel_is_refused(text):
    with pytest.raises(FormatError, match="no type that a kernel takes"):
        read_signature([text])


def test_work_is_divided_by_file_and_cost():
    entries = entries_for({one.__module__ for one in registry().values()})
    parts = shares(entries, 3)
    assert sorted(entry for part in parts for entry in part) == sorted(entries)
    files = [{entry.kernel.rpartition(".")[0] for entry in part} for part in parts]
    assert not files[0] & files[1] and not files[0] & files[2] and not files[1] & files[2]
    assert shares(entries, 3) == parts


KERNEL = """
from loki_core.kernels.jit import kernel

@kernel
def twice(values):
    for i in range(values.shape[0]):
        values[i] *= 2.0
"""
PROGRAM = """
import numpy as np
from loki_core.kernels.compile_ahead import compile_ahead
from loki_core.kernels.jit import compiled_kernels
from loki_core.kernels.kernel_book import Entry, missing
entry = Entry("own_kernels.twice", ("array(float64, 1d, C)",))
gone = Entry("own_kernels.gone", ("int64",))
print(missing([entry, gone]) == [entry])
told = []
compile_ahead([entry], 2, lambda done, of: told.append((done, of)))
print(told)
from own_kernels import twice
twice(np.ones(3))
print(len(compiled_kernels()))
"""


def test_what_is_compiled_ahead_is_found_by_the_run(tmp_path):
    (tmp_path / "own_kernels.py").write_text(KERNEL)
    environment = {
        **os.environ,
        "LOKI_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
    }
    for name in ("NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT", "LOKI_KERNEL_CACHE"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:3] == ["True", "[(1, 1)]", "0"], done.stderr


def test_a_kernel_that_cannot_be_compiled_is_told_and_the_others_compile(tmp_path):
    (tmp_path / "own_kernels.py").write_text(KERNEL)
    words = [sys.executable, "-m", "loki_core.kernels.compile_ahead"]
    good = Entry("own_kernels.twice", ("array(float64, 1d, C)",))
    entries = [Entry("own_kernels.twice", ("int64", "int64")), good]
    environment = {**os.environ, "LOKI_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        words, input=json.dumps(entries), env=environment, capture_output=True, text=True
    )
    told = done.stdout.splitlines()
    assert done.returncode == 1
    assert told[0].startswith("own_kernels.twice: ") and told[-1] == "done own_kernels.twice"
