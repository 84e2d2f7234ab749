"""`wtloki explain`: the tree, the schedule, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from loki_vfx.bridges.standalone.options import (
    file_argument,
    machine_options,
    print_json,
    scene_options,
)

_LOOP_WORDS = {
    "setup": "once",
    "frame": "each frame",
    "substep": "each substep",
    "newton": "each Newton iteration",
}
_LOOP_DEPTH = {"setup": 0, "frame": 0, "substep": 1, "newton": 2}


@click.command("explain")
@file_argument
@scene_options
@click.option("--parameters", is_flag=True, help="Show the origin of every parameter's value.")
@machine_options
def command(
    file: Path,
    *,
    inputs: tuple[str, ...],
    changes: tuple[str, ...],
    extensions: tuple[str, ...],
    parameters: bool,
    as_json: bool,
) -> None:
    """Show the tree of a Solver Setup or Loki Graph, and its schedule: Tasks by Stage.

    Empty streams stand in for missing inputs. Give inputs to see the channels that override
    parameters.
    """
    from loki_vfx.bridges.standalone.explanation import explain
    from loki_vfx.bridges.standalone.scene import load_scene

    scene = load_scene(file, inputs=inputs, changes=changes, extensions=extensions, stand_in=True)
    document = explain(scene)
    if as_json:
        print_json(document)
        return
    for line in _lines(document, parameters=parameters):
        click.echo(line)


def _lines(document: dict[str, Any], *, parameters: bool) -> Iterator[str]:
    if document["graph"]:
        yield document["graph"]
        yield ""
    yield document["tree"]
    yield ""
    if document["inputs"]:
        yield "Inputs"
        for one in document["inputs"]:
            yield f"  {_input_line(one)}"
        yield ""
    yield from _schedule_lines(document["schedule"])
    if document["inactive"]:
        yield ""
        yield "Inactive"
        for one in document["inactive"]:
            yield f"  {one['path']}: {one['reason']}"
    if document["exclusive"]:
        yield ""
        yield "Exclusive: the one in the nearest Group acts"
        for one in document["exclusive"]:
            yield f"  {one['object']}: {one['winner']} ({one['class']})"
    shown = [one for one in document["parameters"] if parameters or one["overrides"]]
    if shown:
        yield ""
        yield "Parameters" if parameters else "Parameters that channels override"
        for one in shown:
            yield from _parameter_lines(one)


def _input_line(one: dict[str, Any]) -> str:
    from loki_core.wording import counted

    used = ", ".join(one["used_by"]) or "nobody"
    if not one["given"]:
        return f"{one['name']}: not given; an empty stream stands in (used by {used})"
    counts = ", ".join(counted(count, word) for word, count in one["counts"].items() if count)
    names = [name for names in one["channels"].values() for name in names]
    channels = f", channels {', '.join(names)}" if names else ""
    animated = ", animated" if one["animated"] else ""
    return f"{one['name']}: {one['type']}, {counts or 'empty'}{channels}{animated} (used by {used})"


def _schedule_lines(schedule: list[dict[str, Any]]) -> Iterator[str]:
    yield "Schedule"
    loop = None
    for stage in schedule:
        indent = "  " * (1 + _LOOP_DEPTH[stage["loop"]])
        if stage["loop"] != loop:
            loop = stage["loop"]
            yield f"{indent}-- {_LOOP_WORDS[loop]} --"
        if not stage["user_facing"]:
            indent += "    "
        yield f"{indent}{stage['stage']}  ({stage['doc']})"
        for task in stage["tasks"]:
            yield f"{indent}  {task['behavior']}.{task['task']}  {_touches(task)}".rstrip()


def _touches(task: dict[str, Any]) -> str:
    parts = [f"{word} {_channels(task, word)}" for word in ("reads", "writes", "accumulates")
             if task[word]]  # fmt: skip
    if task["layout"]:
        parts.append(f"moves {', '.join(_shown(task, name) for name in task['layout'])}")
    if task["halo"]:
        parts.append(f"halo {task['halo']}")
    if task["communicates"]:
        parts.append("speaks to other ranks")
    return "; ".join(parts)


def _channels(task: dict[str, Any], word: str) -> str:
    """Channels by the data that have them: "particles (position, velocity), edges (length)"."""
    by_data: dict[str, list[str]] = {}
    for name in task[word]:
        data, _, channel = name.partition(".")
        by_data.setdefault(_shown(task, data), []).append(channel)
    return ", ".join(f"{data} ({', '.join(channels)})" for data, channels in by_data.items())


def _shown(task: dict[str, Any], data: str) -> str:
    """Data by the name that says most: numbered ones are called as messages call them."""
    return str(task["data"][data]) if data[-1].isdigit() else data


def _parameter_lines(one: dict[str, Any]) -> Iterator[str]:
    unit = f" {one['unit']}" if one["unit"] else ""
    value = one["value"]
    if isinstance(value, str) and "\n" in value:
        value = f"{len(value.splitlines())} lines"
    yield f"  {one['behavior']}.{one['parameter']} = {value}{unit}  ({one['origin']})"
    for override in one["overrides"]:
        if override["error"]:
            yield f"      {override['object']}: {override['error']}"
            continue
        spread = ""
        if "minimum" in override:
            spread = f", {override['minimum']:g} to {override['maximum']:g}{unit}"
        count = "one value" if override["count"] == 1 else f"{override['count']:,} values"
        yield f"      {override['object']}: {override['origin']}, {count}{spread}"
