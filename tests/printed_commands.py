"""The commands that the documentation shows: collected, made small, and what each one needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from loki_vfx.bridges.standalone.command_line import COMMANDS, wtloki

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "reference" not in p.parts),
    ROOT / "bridges" / "houdini" / "FIRST_RUN.md",
]
#: Languages of fenced blocks that hold commands; PowerShell is what Windows has.
SHELLS = ("sh", "powershell")
#: First words of commands: a line that begins with one stands in a block of a shell.
PROGRAMS = {"wtloki", "pip", "make", "python", "py", "hython", "blender", "sbatch", "srun", "git"}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:wtloki|pip|make) [^`\n]+)`")
_SETTING = re.compile(r"([A-Z_]+)=(.*)")


@dataclass
class Command:
    """A command of a page: its words, and variables that stand in front of it."""

    place: str
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        return Path(self.words[0]).name or self.words[0]


def blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, language and text of each fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        yield text.count("\n", 0, found.start(2)) + 1, found.group(1), found.group(2)


def commands(page: Path) -> list[Command]:
    """All commands in the shell blocks of a page, in their order."""
    found = []
    for start, language, block in blocks(page):
        for number, line in enumerate(block.splitlines() if language in SHELLS else ()):
            line = line.replace("\\", "/") if language == "powershell" else line
            words = shlex.split(re.sub(r"(^|\s)# .*", "", line).partition(" > ")[0])
            environment = {}
            while words and (setting := _SETTING.fullmatch(words[0])):
                environment[setting[1]] = setting[2]
                words.pop(0)
            if words:
                place = f"{page.relative_to(ROOT)}:{start + number}"
                found.append(Command(place, words, environment))
    return found


def inline_commands(page: Path) -> list[Command]:
    """Commands in the running text of a page."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    place = str(page.relative_to(ROOT))
    return [Command(place, shlex.split(one)) for one in _INLINE.findall(text)]


def nested_commands(command: Command) -> Iterator[list[str]]:
    """The words after each `wtloki` in a command, also inside the quotes of another program's."""
    for index, word in enumerate(command.words):
        if word == "wtloki":
            yield command.words[index + 1 :]
        elif " wtloki " in f" {word}" and " " in word:
            yield from nested_commands(Command(command.place, shlex.split(word)))


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The declaration of a command, and the words that are left for it."""
    name, *rest = words
    assert name in COMMANDS, f"there is no command wtloki {name}"
    found = wtloki.get_command(None, name)
    while rest and rest[0] in getattr(found, "commands", {}):
        found = found.commands[rest.pop(0)]
    return found, rest


def check_options(words: list[str], *, place: str) -> None:
    """Assert that a command and its options are declared; values may be placeholders."""
    if not words or words[0].startswith("-"):
        assert all(word in ("--help", "-h", "--version") for word in words), f"{place}: {words}"
        return
    found, rest = find_command(words)
    known = {
        one for parameter in found.params for one in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in rest:
        option = word.partition("=")[0]
        declared = not option.startswith("--") or option in known | {"--help"}
        assert declared, f"{place}: wtloki {words[0]} has no {option}"


def parse(words: list[str], *, place: str) -> None:
    """Assert that a whole command line is one that the program takes."""
    found, rest = find_command(words)
    try:
        found.make_context(words[0], rest, resilient_parsing=False)
    except click.exceptions.Exit:
        return
    except click.ClickException as error:
        raise AssertionError(f"{place}: {' '.join(words)}: {error.format_message()}") from error


def made_small(words: list[str]) -> list[str]:
    """The same command with two frames, one rank, and small pictures."""
    small = {"--ranks": "1", "--nodes": "1", "--threads": "1", "--jobs": "1"}
    words = list(words)
    for index, word in enumerate(words[:-1]):
        if word == "--frames":
            first = words[index + 1].partition("-")[0] if "-" in words[index + 1] else ""
            words[index + 1] = f"{first}-{int(first) + 1}" if first else "2"
        words[index + 1] = small.get(word, words[index + 1])
    if words[0] in ("run", "example") and "--frames" not in words and "--list" not in words:
        words += ["--frames", "1"]
    if words[0] == "preview":
        words += ["--size", "64x48"]
    if words[0] == "wedge" and "--collect" not in words:
        words.append("--list")  # runs of variants: tests/contract/test_wtloki_wedge.py
    return words
