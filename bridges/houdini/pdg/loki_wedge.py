"""A wedge in TOPs: one work item for each variant of a Loki scene.

The body of a Python Processor's "Generate", with this folder on Houdini's Python path:

    import loki_wedge
    loki_wedge.generate(
        item_holder,
        scene="/shots/12/hair.loki.json",
        vary=["Hair/BendingConstraint.stiffness=1,10,100", "substeps=2,4"],
        output="/shots/12/hair_wedge",
        options=["--frames", "48"],
    )

`wtloki wedge --list --json` says what the variants are; each item runs its own with `--only`. After
a Wait for All, a second Python Processor with `generate_summary` and the same arguments makes the
contact sheet and the table.

Needs no Loki in Houdini's Python, only the `wtloki` command on the machine. There was no Houdini
where this was written, and so no `pdg` module: calls of the item holder and of work items are those
that SideFX documents for Houdini 19.5 and later (addWorkItem, setCommand, setIntAttrib,
setFloatAttrib, setStringAttrib, addExpectedOutputFile), and are tested against a stand-in. The
folder has no __init__.py: it must never be taken for Houdini's own `pdg`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

INDEX, VALUES, CACHE = "loki_index", "loki_values", "loki_cache"


def generate(
    item_holder: Any,
    *,
    scene: str,
    vary: Sequence[str],
    output: str,
    options: Sequence[str] = (),
    wtloki: str = "wtloki",
) -> list[Any]:
    """Add a work item for each variant, and return them.

    Args:
        item_holder: As "Generate" has it.
        scene: A Solver Setup or Loki Graph file.
        vary: What is varied, as `--vary` takes it.
        output: Folder of the wedge.
        options: Further options of `wtloki wedge`, such as --together, --set, --input.
        wtloki: The command, on the machines that cook.
    """
    words = wedge_words(scene=scene, vary=vary, output=output, options=options, wtloki=wtloki)
    return add_items(item_holder, list_variants(words), wtloki)


def generate_summary(
    item_holder: Any,
    *,
    scene: str,
    vary: Sequence[str],
    output: str,
    options: Sequence[str] = (),
    wtloki: str = "wtloki",
) -> Any:
    """Add the work item that makes the contact sheet and the table, and return it."""
    words = wedge_words(scene=scene, vary=vary, output=output, options=options, wtloki=wtloki)
    return add_summary_item(item_holder, list_variants(words), wtloki)


def wedge_words(
    *, scene: str, vary: Iterable[str], output: str, options: Sequence[str], wtloki: str
) -> list[str]:
    """Return the command line of the wedge."""
    words = [wtloki, "wedge", scene]
    for text in vary:
        words += ["--vary", text]
    return [*words, *options, "--output", output]


def list_variants(words: Sequence[str]) -> dict[str, Any]:
    """Ask `wtloki wedge` for its variants.

    Raises:
        RuntimeError: It refuses, and says why; the node shows it.
    """
    # Houdini's own Python must not leak into another one.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH")}
    try:
        done = subprocess.run(
            [*words, "--list", "--json"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    except OSError as error:
        raise RuntimeError(f"{words[0]} cannot be started: {error.strerror}") from error
    return read_list(done.stdout, done.stderr, done.returncode)


def read_list(printed: str, complaints: str, code: int) -> dict[str, Any]:
    """Return the list of variants that `wtloki wedge --list --json` printed.

    Raises:
        RuntimeError: It is an error, or no list.
    """
    lines = printed.strip().splitlines()
    try:
        document = json.loads(lines[-1]) if lines else {}
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    if code != 0 or document.get("event") != "variants":
        reason = document.get("message") or complaints.strip() or f"exit code {code}"
        raise RuntimeError(f"wtloki wedge: {reason}")
    return document


def add_items(item_holder: Any, listed: Mapping[str, Any], wtloki: str) -> list[Any]:
    """Add a work item for each variant of a list, and return them.

    Args:
        wtloki: The command, on the machines that cook.

    An item has its index, its values as one text and each as an attribute of its own, and the
    folder of its cache.
    """
    items = []
    for variant in listed["variants"]:
        item = item_holder.addWorkItem(index=variant["index"] - 1)
        item.setCommand(command_line(_called_as(wtloki, variant["command"])))
        item.setIntAttrib(INDEX, variant["index"])
        texts = [f"{target}={value}" for target, value in variant["values"].items()]
        item.setStringAttrib(VALUES, ", ".join(texts))
        item.setStringAttrib(CACHE, variant["folder"])
        names = attribute_names(variant["values"])
        for target, value in variant["values"].items():
            _set_value(item, names[target], value)
        # not owned: TOPs must not delete it behind Loki's back
        item.addExpectedOutputFile(f"{variant['folder']}/manifest.json", "file/json", False)
        items.append(item)
    return items


def add_summary_item(item_holder: Any, listed: Mapping[str, Any], wtloki: str) -> Any:
    """Add the work item that makes the contact sheet and the table of a list."""
    item = item_holder.addWorkItem(index=0)
    item.setCommand(command_line(_called_as(wtloki, listed["collect"])))
    item.addExpectedOutputFile(f"{listed['output']}/contact_sheet.png", "file/image", False)
    item.addExpectedOutputFile(f"{listed['output']}/wedge.csv", "file/csv", False)
    return item


def _called_as(wtloki: str, words: Sequence[str]) -> list[str]:
    """A command of the list, whose program is where it was listed, for another machine."""
    return [wtloki, *words[list(words).index("wedge") :]]


def attribute_names(targets: Iterable[str]) -> dict[str, str]:
    """Return names of attributes: the parameter's own, or the whole path where two are alike."""
    targets = list(targets)
    short = [target.rpartition(".")[2] for target in targets]
    return {
        target: re.sub(r"\W", "_", name if short.count(name) == 1 else target)
        for target, name in zip(targets, short)
    }


def command_line(words: Sequence[str]) -> str:
    """Return words as one line for the shell of this machine."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _set_value(item: Any, name: str, value: str) -> None:
    try:
        item.setFloatAttrib(name, float(value))
    except ValueError:
        item.setStringAttrib(name, value)
