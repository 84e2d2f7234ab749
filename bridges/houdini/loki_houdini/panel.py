"""Panel: the runs of a server, their state, progress and log, while they go on.

A thread talks to the server, and the panel shows what it has heard: the user interface never
waits. A server is not started for this; where there is none, the panel says so and looks again.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loki_core.errors import LokiError
from loki_vfx.bridges.live.client import Client, Run
from loki_vfx.bridges.live.local_server import default_root, discovered
from loki_vfx.bridges.standalone.events import describe_event
from loki_vfx.bridges.standalone.run_table import RunUsage

SECONDS = 1.0
LOG_LINES = 500
COLUMNS = ("run", "state", "frame", "per frame", "left")


@dataclass(frozen=True)
class Aim:
    """Which server and which of its runs; without an endpoint, the server of a folder here."""

    endpoint: str = ""
    folder: Path = field(default_factory=default_root)
    run: str = ""


@dataclass(frozen=True)
class View:
    """What there is to show: a line on the server, a row for each run, the log of one."""

    line: str = "Looking for a server"
    rows: tuple[tuple[str, ...], ...] = ()
    log: tuple[str, ...] = ()


class RunWatch:
    """Follows a server in a thread of its own."""

    def __init__(self, aim: Aim, *, seconds: float = SECONDS) -> None:
        self.view = View()
        self._aim = aim
        self._seconds = seconds
        self._client: Client | None = None
        self._client_aim = aim
        self._run: Run | None = None
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._to_cancel: queue.SimpleQueue[Aim] = queue.SimpleQueue()
        self._ends = threading.Event()
        self._wakes = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loki panel", daemon=True)
        self._thread.start()

    def look_at(self, aim: Aim) -> None:
        """Watch another server, or the log of another run."""
        self._aim = aim
        self._wakes.set()

    def cancel(self) -> None:
        """Stop the run that is looked at now, also if another is when the thread hears of it."""
        self._to_cancel.put(self._aim)
        self._wakes.set()

    def stop(self, *unused: Any) -> None:
        """End the thread."""
        self._ends.set()
        self._wakes.set()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    # -- in the thread ---------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._ends.is_set():
            try:
                while not self._to_cancel.empty():
                    self._look(self._to_cancel.get())
                    if self._run is not None:
                        self._run.cancel()
                self.view = self._look(self._aim)
            except (LokiError, OSError, TimeoutError) as error:
                self._let_go()
                self.view = View(str(error))
            except Exception as error:  # a thread that ends silently would show old rows for ever
                self._let_go()
                self.view = View(f"this is a fault of the panel: {type(error).__name__}: {error}")
            self._wakes.wait(self._seconds)
            self._wakes.clear()
        self._let_go()

    def _look(self, aim: Aim) -> View:
        if (aim.endpoint, aim.folder) != (self._client_aim.endpoint, self._client_aim.folder):
            self._let_go()
        self._client_aim = aim
        found = {"endpoint": aim.endpoint} if aim.endpoint else discovered(aim.folder)
        if found is None:
            self._let_go()
            return View(f"No server runs for {aim.folder}")
        if self._client is None:
            self._client = Client(found["endpoint"], name="Houdini panel")
        status = self._client.status()
        self._follow(self._client, aim.run, {one["run"] for one in status["runs"]})
        rows = [_row(RunUsage.from_summary(one)) for one in status["runs"]]
        version, root = status["server"]["version"], status["server"]["root"]
        return View(f"Loki {version} on {root}", tuple(rows), tuple(self._log))

    def _follow(self, client: Client, name: str, known: set[str]) -> None:
        """Attach to the run whose log is wanted, without taking frames of it."""
        if self._run is not None and self._run.name not in known:
            self._run = None  # it was removed; one of that name may begin later
        if self._run is not None and self._run.name != name:
            self._run.detach()
            self._run = None
        if self._run is None:
            self._log.clear()
            if name in known:
                self._run = client.attach(name, credit=0)
                told = {"state": self._run.state, "message": self._run.message}
                self._log.extend(_log_lines("state", told))
        for event in self._run.poll() if self._run is not None else ():
            self._log.extend(_log_lines(event.kind, event.content))

    def _let_go(self) -> None:
        self._run = None
        self._log.clear()
        if self._client is not None:
            self._client.close()
            self._client = None


def _row(usage: RunUsage) -> tuple[str, ...]:
    return usage.row()[: len(COLUMNS)]


def _log_lines(kind: str, content: dict[str, Any]) -> list[str]:
    if kind == "state":
        message = content.get("message", "")
        return [f"{content['state']}: {message}" if message else str(content["state"])]
    if kind in ("data", "need", "end", "reconnected"):
        return []  # the state says it, or nobody need know
    return describe_event({"event": kind, **content})


def _scene_folder() -> Path:
    """Return where the nodes of this scene keep their runs."""
    try:
        import hou
    except ImportError:
        return default_root()
    return Path(hou.text.expandString("$HIP/loki"))


def create() -> Any:
    """Return the widget; Houdini calls it through the panel's interface."""
    try:
        from PySide6 import QtCore, QtWidgets
    except ImportError:  # builds with Qt 5
        from PySide2 import QtCore, QtWidgets  # type: ignore[no-redef]

    widget = QtWidgets.QWidget()
    layout = QtWidgets.QVBoxLayout(widget)
    endpoint = QtWidgets.QLineEdit()
    endpoint.setPlaceholderText("Server; empty is that of the folder")
    folder = QtWidgets.QLineEdit(str(_scene_folder()))
    line = QtWidgets.QLabel()
    line.setWordWrap(True)
    table = QtWidgets.QTableWidget(0, len(COLUMNS))
    table.setHorizontalHeaderLabels([one.capitalize() for one in COLUMNS])
    table.setSelectionBehavior(QtWidgets.QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QtWidgets.QAbstractItemView.SelectionMode.SingleSelection)
    table.setEditTriggers(QtWidgets.QAbstractItemView.EditTrigger.NoEditTriggers)
    table.horizontalHeader().setStretchLastSection(True)
    log = QtWidgets.QPlainTextEdit()
    log.setReadOnly(True)
    cancel = QtWidgets.QPushButton("Cancel Run")
    for part in (endpoint, folder, line, table, log, cancel):
        layout.addWidget(part)

    watch = RunWatch(Aim(folder=Path(folder.text())))

    chosen = [""]  # name of the run that is selected, in whichever row it is

    def choose() -> None:
        item = table.item(table.currentRow(), 0)
        chosen[0] = "" if item is None else str(item.text())
        aim()

    def aim() -> None:
        watch.look_at(Aim(endpoint.text().strip(), Path(folder.text()), chosen[0]))

    def refresh() -> None:
        view = watch.view
        line.setText(view.line)
        table.setRowCount(len(view.rows))
        for row, words in enumerate(view.rows):
            for column, word in enumerate(words):
                item = table.item(row, column)
                if item is None:
                    table.setItem(row, column, QtWidgets.QTableWidgetItem(word))
                elif item.text() != word:
                    item.setText(word)
        names = [words[0] for words in view.rows]
        if chosen[0] in names and table.currentRow() != names.index(chosen[0]):
            table.blockSignals(True)
            table.selectRow(names.index(chosen[0]))
            table.blockSignals(False)
        text = "\n".join(view.log)
        if log.toPlainText() != text:
            log.setPlainText(text)
            log.verticalScrollBar().setValue(log.verticalScrollBar().maximum())

    endpoint.editingFinished.connect(aim)
    folder.editingFinished.connect(aim)
    table.itemSelectionChanged.connect(choose)
    cancel.clicked.connect(lambda *unused: watch.cancel())
    widget.destroyed.connect(watch.stop)
    timer = QtCore.QTimer(widget)
    timer.timeout.connect(refresh)
    timer.start(int(1000 * SECONDS))
    refresh()
    return widget
