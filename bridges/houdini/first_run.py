"""First run: what only Houdini itself can say of Loki's part in it, as a report.

    hython first_run.py --output report.json

Every check passes, fails, or is not possible here, and the report says why; none stops the others.
The report is written before each check too: one that ends Houdini itself is left as "began". The
exit code is 1 if a check failed. FIRST_RUN.md says what to do with it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent

PASS, FAIL, NOT_POSSIBLE, BEGAN = "pass", "fail", "not possible here", "began"
MODULES = (
    "loki_houdini.first_run_checks",
    "loki_vfx.bridges.houdini.loki_houdini.first_run_checks",
)
"""Where the checks lie: in Houdini's package, and in the project."""

LONGEST_WHY = 4000


def main(words: Sequence[str] | None = None) -> int:
    """Run the checks, and return the exit code."""
    parser = argparse.ArgumentParser(description="Check Loki in Houdini.")
    parser.add_argument("--output", type=Path, default=Path("loki_first_run.json"))
    parser.add_argument("--only", default="", metavar="TEXT", help="checks whose name has this")
    parser.add_argument("--template", default="fountain", help="which is simulated")
    parser.add_argument("--wtloki", default="", metavar="PATH", help="the command, if not on PATH")
    parser.add_argument("--list", action="store_true", help="name the checks and end")
    given = parser.parse_args(words)
    if str(PROJECT) not in sys.path:  # run as a file, from anywhere
        sys.path.append(str(PROJECT))
    report = Report(given.output)
    try:
        checks: Any = importlib.import_module(_found(MODULES))
    except Exception as error:
        report.add("Loki is imported", partial(_raise, error))
        report.tell()
        return report.code()
    report.head |= checks.versions()
    folder = Path(tempfile.mkdtemp(prefix="loki_first_run_"))
    command = (given.wtloki,) if given.wtloki else ()
    place = checks.Place(folder, template=given.template, command=command)
    for check in checks.checks():
        if given.only.lower() not in check.name.lower():
            continue
        if given.list:
            print(check.name)
        else:
            report.add(check.name, partial(check.run, place))
    if not given.list:
        report.add("what was begun here ends", place.close)
        report.tell()
    shutil.rmtree(folder, ignore_errors=True)
    return report.code()


class Report:
    """Results of checks, on the disk and on the screen as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head: dict[str, Any] = {
            "loki_first_run": 1,
            "platform": platform.platform(),
            "python": platform.python_version(),
        }
        self.checks: list[dict[str, Any]] = []

    def add(self, name: str, run: Callable[[], str]) -> None:
        """Run a check, and keep what it says."""
        entry: dict[str, Any] = {"name": name, "result": BEGAN, "why": ""}
        self.checks.append(entry)
        self.write()
        began = time.perf_counter()
        try:
            entry["why"], entry["result"] = run(), PASS
        except Exception as error:
            told = getattr(error, "result", None)  # a check has said it, or it went wrong
            entry["result"] = told or FAIL
            entry["why"] = (str(error) if told else _words(error))[:LONGEST_WHY]
            if not told:
                lines = traceback.format_exception(error)
                entry["traceback"] = "".join(lines)[-LONGEST_WHY:]
        entry["seconds"] = round(time.perf_counter() - began, 3)
        self.write()
        print(f"{entry['result']:18} {name}: {entry['why'].partition(chr(10))[0]}", flush=True)

    def counts(self) -> dict[str, int]:
        """Return how many checks have each result."""
        found: dict[str, int] = {PASS: 0, FAIL: 0, NOT_POSSIBLE: 0}
        for check in self.checks:
            found[check["result"]] = found.get(check["result"], 0) + 1
        return found

    def write(self) -> None:
        """Write the report as it is now."""
        document = self.head | {"counts": self.counts(), "checks": self.checks}
        text = json.dumps(document, indent=2, ensure_ascii=False)
        self.path.write_text(text + "\n", encoding="utf-8")

    def tell(self) -> None:
        """Print the counts."""
        self.write()
        counts = ", ".join(f"{count} {result}" for result, count in self.counts().items())
        print(f"{counts}; the report is {self.path}")

    def code(self) -> int:
        """Return the exit code."""
        return int(self.counts()[FAIL] > 0)


def _found(names: Sequence[str]) -> str:
    """The first of several modules whose package is there."""
    for name in names:
        try:
            importlib.import_module(name.rpartition(".")[0])
        except ImportError:
            continue
        return name
    return names[-1]


def _words(error: Exception) -> str:
    """An error as it is told; those of Houdini have words of their own."""
    own = getattr(error, "instanceMessage", None)
    return f"{type(error).__name__}: {own() if own is not None else error}"


def _raise(error: Exception) -> str:
    raise error


if __name__ == "__main__":
    raise SystemExit(main())
