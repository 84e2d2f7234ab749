"""The Kernel Book: what it says is there, and compiling ahead of a run."""

from __future__ import annotations

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

ROOT = Path(__file__).parents[2]


def test_the_book_names_kernels_and_behaviors_that_are_there():
    book = read_book()
    declaring = {one.__module__ for one in registry().values()}
    assert set(book) <= declaring
    entries = {entry for some in book.values() for entry in some}
    assert len(entries) > 200
    gone = sorted({entry.kernel for entry in entries if entry.find() is None})
    assert not gone, f"write the book anew with `wtloki warm --record`: {gone}"


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
