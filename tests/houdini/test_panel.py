"""The panel: what it hears of a real server, and its widget where there is Qt."""

from __future__ import annotations

import os
import time

import pytest

from loki_vfx.bridges.houdini.loki_houdini import panel
from loki_vfx.bridges.houdini.loki_houdini.panel import Aim, RunWatch
from loki_vfx.bridges.live.client import connect
from tests.live.live_scenes import seeds, sparks

LONGEST = 60.0  # after which something is wrong [s]


@pytest.fixture
def client(folder):
    with connect(root=folder) as made:
        yield made


@pytest.fixture
def watch(folder):
    made = RunWatch(Aim(folder=folder), seconds=0.01)
    yield made
    made.stop()
    made.join()


def until(watch, is_so):
    """What the panel shows when it is so."""
    end = time.monotonic() + LONGEST
    while not is_so(view := watch.view):
        assert time.monotonic() < end, view
        time.sleep(0.01)
    return view


def state(view, run):
    return {row[0]: row[1] for row in view.rows}.get(run)


def test_runs_and_their_logs_are_shown(folder, client, watch):
    watch.look_at(Aim(folder=folder, run="short"))
    run = client.submit(sparks(), {"seeds": seeds(30)}, run="short", frames="1-4")
    assert [frame.number for frame in run.frames()] == [1, 2, 3, 4]
    view = until(watch, lambda view: state(view, "short") == "finished" and view.log)
    assert str(folder) in view.line and view.line.startswith("Loki ")
    (row,) = [row for row in view.rows if row[0] == "short"]
    assert len(row) == len(panel.COLUMNS) and "4" in row[2]
    assert view.log[-1].startswith("finished")


def test_the_run_that_is_looked_at_is_cancelled_and_no_other(folder, client, watch):
    options = {"frames": "1-100000", "results": "manifest"}
    client.submit(sparks(), {"seeds": seeds(20)}, run="long", **options)
    watch.cancel()  # nothing is chosen
    watch.look_at(Aim(folder=folder, run="long"))
    until(watch, lambda view: state(view, "long") == "running" and view.log)
    watch.cancel()
    watch.look_at(Aim(folder=folder, run="other"))  # before the thread has heard of it
    view = until(watch, lambda view: state(view, "long") == "cancelled")
    watch.look_at(Aim(folder=folder, run="long"))
    assert [row[0] for row in view.rows if row[1] == "running"] == []
    until(watch, lambda view: any(line.startswith("cancelled") for line in view.log))
    watch.look_at(Aim(folder=folder, run="none"))
    until(watch, lambda view: view.log == ())


def test_another_folder_or_server_is_looked_at(folder, client, watch, tmp_path):
    until(watch, lambda view: str(folder) in view.line and view.line.startswith("Loki"))
    watch.look_at(Aim(folder=tmp_path))
    view = until(watch, lambda view: str(tmp_path) in view.line)
    assert view == panel.View(f"No server runs for {tmp_path}")
    watch.look_at(Aim(endpoint="tcp://127.0.0.1:1", folder=folder))
    until(watch, lambda view: "token cannot be read" in view.line)
    watch.look_at(Aim(endpoint=client.endpoint, folder=tmp_path))
    until(watch, lambda view: str(folder) in view.line)


def test_the_log_has_words_for_people():
    assert panel._log_lines("state", {"state": "running"}) == ["running"]
    assert panel._log_lines("state", {"state": "failed", "message": "no room"}) == [
        "failed: no room"
    ]
    assert panel._log_lines("end", {"state": "finished"}) == []
    assert panel._log_lines("warning", {"message": "it is steep"}) == ["warning: it is steep"]


def test_the_widget_shows_what_the_watch_has_heard(folder, client, monkeypatch):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6 import QtWidgets

    application = QtWidgets.QApplication.instance() or QtWidgets.QApplication([])
    monkeypatch.setattr(panel, "_scene_folder", lambda: folder)
    client.submit(sparks(), {"seeds": seeds(10)}, run="shown", frames="1-2")
    widget = panel.create()
    table = widget.findChild(QtWidgets.QTableWidget)
    end = time.monotonic() + LONGEST
    while table.rowCount() == 0 and time.monotonic() < end:
        application.processEvents()
        time.sleep(0.01)
    names = {table.item(row, 0).text() for row in range(table.rowCount())}
    assert "shown" in names
    widget.deleteLater()
