"""What differs between systems stands in one file, and does what it says as far as one can try."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from loki_core import operating_system
from loki_vfx.bridges.live.process_tree import ProcessTree
from loki_vfx.bridges.live.segments import SegmentReader, SegmentWriter
from loki_vfx.bridges.standalone.folder_lock import FolderLock

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("loki_core", "loki_graph", "serialization", "bridges", "examples", "validation")
ONE_PLACE = ROOT / "loki_core" / "operating_system.py"
OF_ONE_SYSTEM = re.compile(
    r"/proc\b|/dev/shm|get_?e?uid\b|st_uid|SIGKILL|SIGHUP|SIGUSR|\bfcntl\b|\bmsvcrt\b"
    r"|import resource\b|os\.name\b|sys\.platform|start_new_session|posix_fallocate|mallopt|killpg"
    r"|os\.fork|os\.uname"
)
# A file of Houdini's TOPs needs no Loki beside it, and may ask for itself.
APART = {ROOT / "bridges" / "houdini" / "pdg" / "loki_wedge.py"}


def test_only_one_file_asks_for_the_system():
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    files += (ROOT / "benchmarks").glob("*.py")  # peers run in programs of their own
    assert ONE_PLACE in files and len(files) > 500
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        if path not in APART and path != ONE_PLACE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OF_ONE_SYSTEM.search(line) and "belongs to another user" not in line
    ]
    assert not found, "\n".join(found)


SLEEPER = "import time; time.sleep(600)"
PARENT = (
    "import subprocess, sys; "
    f"subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]); print('ready', flush=True); {SLEEPER}"
)


def test_a_tree_of_processes_ends_with_those_that_lost_their_parent():
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    tree = ProcessTree(process.pid)
    both = tree.alive()
    assert len(both) == 2 and process.pid in both
    assert tree.resident_bytes() > 1_000_000
    process.kill()
    process.wait()
    (orphan,) = tree.alive()
    assert operating_system.is_running(orphan)
    tree.kill()
    assert tree.wait_gone(30.0)
    assert not operating_system.is_running(orphan)
    process.stdout.close()


def test_a_process_is_known_by_its_number_and_its_start():
    own = operating_system.started_at(os.getpid())
    assert own is not None and abs(own - time.time()) < 86_400.0
    assert operating_system.is_same_start(own, operating_system.started_at(os.getpid()))
    assert not operating_system.is_same_start(own, own - 60.0)
    assert not operating_system.is_same_start(None, None)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert operating_system.started_at(child.pid) is None


def test_a_wish_to_stop_reaches_a_process_on_its_own():
    program = "import time; print('ready', flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        **operating_system.on_its_own(),
    )
    assert process.stdout is not None
    process.stdout.readline()
    operating_system.ask_to_stop(process)
    code = process.wait(30.0)
    process.stdout.close()
    assert operating_system.signal_that_ended(code) == "SIGTERM"
    assert "memory" in operating_system.signal_that_ended(-signal.SIGKILL)
    assert operating_system.signal_that_ended(3) == ""


def test_replacing_waits_for_a_reader_where_the_system_wants_it(tmp_path, monkeypatch):
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    refusals = [PermissionError(13, "open elsewhere"), PermissionError(13, "open elsewhere")]
    replace = os.replace

    def refuse_twice(source, target):
        if refusals:
            raise refusals.pop()
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_twice)
    with pytest.raises(PermissionError):  # here nobody's reading stands in the way
        operating_system.replace_file(tmp_path / "new", tmp_path / "old")
    monkeypatch.setattr(operating_system, "IS_WINDOWS", True)
    operating_system.replace_file(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "new" and not refusals


def test_a_segment_that_is_mapped_elsewhere_grows_under_another_name(tmp_path, monkeypatch):
    writer, reader = SegmentWriter(tmp_path, 1), SegmentReader(tmp_path)
    first, sizes = writer.write([b"small"])
    (held,) = reader.parts(first, sizes)
    writer.free(first)
    unlink = Path.unlink

    def refuse(path, missing_ok=False):
        if path.name == first:
            raise PermissionError(13, "mapped by another process")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    large = bytes(range(256)) * 400
    second, sizes = writer.write([large])
    assert second != first and not writer.has_free
    assert bytes(reader.parts(second, sizes)[0]) == large
    assert bytes(held) == b"small"
    writer.free(second)
    assert writer.has_free and writer.write([b"again"])[0] == second


def test_last_words_wait_for_their_reader_but_not_for_ever():
    if operating_system.IS_WINDOWS:
        pytest.skip("pipes cannot be asked here")
    reader, writer = os.pipe()
    os.write(writer, b"the cause")
    begun = time.monotonic()
    operating_system.wait_until_read(writer, 0.2)
    assert time.monotonic() - begun >= 0.2  # nobody reads
    heard = []
    thread = threading.Timer(0.2, lambda: heard.append(os.read(reader, 100)))
    thread.start()
    operating_system.wait_until_read(writer, 600.0)
    thread.join()
    assert heard == [b"the cause"]
    for handle in (reader, writer):
        os.close(handle)


def test_a_file_has_no_reader_to_wait_for(tmp_path):
    with (tmp_path / "log").open("w") as log:
        log.write("the cause")
        log.flush()
        operating_system.wait_until_read(log.fileno(), 600.0)


def test_a_folder_is_held_by_one_process(tmp_path):
    program = (
        "import sys; from pathlib import Path\n"
        "from loki_core.errors import InputError\n"
        "from loki_vfx.bridges.standalone.folder_lock import FolderLock\n"
        "try:\n"
        "    with FolderLock(Path(sys.argv[1])): print('got it')\n"
        "except InputError as error: print(error)\n"
    )

    def other():
        words = [sys.executable, "-c", program, str(tmp_path)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    with FolderLock(tmp_path):
        assert "is being written by another run" in other()
    assert "got it" in other()
