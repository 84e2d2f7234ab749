"""The documentation is true: its code runs, its links lead somewhere, its commands exist."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
import types
from pathlib import Path

import pytest

from loki_core.behavior import isolated_registry, registry
from loki_core.kernels.kernel_cache import cache_directory
from loki_core.pipeline.stages import Stage
from loki_core.solver_setup import SolverSetup
from loki_graph.graph_document import graph_from_document
from loki_graph.node import isolated_node_registry, node_registry
from loki_vfx.bridges.standalone.command_line import COMMANDS, wtloki
from loki_vfx.bridges.standalone.reference import reference_pages

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
GENERATED = DOCS / "reference"
PAGES = [*sorted(p for p in DOCS.rglob("*.md") if GENERATED not in p.parents), ROOT / "README.md"]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

SKIPPED = "# not run"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _blocks(text: str, language: str) -> list[tuple[int, str]]:
    """Line number and text of each fenced block of a language."""
    return [
        (text.count("\n", 0, found.start(2)), found.group(2))
        for found in _FENCE.finditer(text)
        if found.group(1) == language
    ]


def _python_of(text: str) -> str:
    """All Python of a page as one module whose line numbers are those of the page."""
    lines = [""] * text.count("\n")
    for start, block in _blocks(text, "python"):
        if not block.startswith(SKIPPED):
            for number, line in enumerate(block.splitlines()):
                lines[start + number] = line
    return "\n".join(lines)


def _without_code(text: str) -> str:
    return _FENCE.sub("", text)


WITH_PYTHON = [page for page in PAGES if _python_of(page.read_text(encoding="utf-8")).strip()]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    source = _python_of(page.read_text(encoding="utf-8"))
    # Kernels are cached by the file that they stand in; a stable one compiles once.
    name = f"docs_{page.stem}_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    file = cache_directory() / "documentation" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("LOKI_CHECK_ACCESS", "1")
    monkeypatch.chdir(tmp_path)
    with isolated_registry(), isolated_node_registry():
        exec(compile(source, str(file), "exec"), vars(module))


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_resolve(page):
    for target in _LINK.findall(_without_code(page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if file.parent == GENERATED:
            assert file.name in reference_pages(), f"{page}: {target}"
            continue
        assert file.exists(), f"{page}: {target} leads nowhere"
        if anchor:
            headings = _HEADING.findall(_without_code(file.read_text(encoding="utf-8")))
            assert anchor in {_anchor(heading) for heading in headings}, f"{page}: {target}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_documents_in_json_blocks_are_valid(page):
    for line, block in _blocks(page.read_text(encoding="utf-8"), "json"):
        document = json.loads(block)
        if document.get("loki") == "solver_setup":
            SolverSetup.from_document(document, f"{page.name}:{line}")
        elif document.get("loki") == "graph":
            graph_from_document(document, source=f"{page.name}:{line}")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_in_shell_blocks_exist(page):
    for line, block in _blocks(page.read_text(encoding="utf-8"), "sh"):
        for text in block.splitlines():
            words = shlex.split(text, comments=True)
            if "wtloki" not in words:
                continue
            name, *arguments = words[words.index("wtloki") + 1 :]
            if name == "--version":
                continue
            assert name in COMMANDS, f"{page}:{line}: wtloki {name}"
            command = wtloki.get_command(None, name)
            while arguments and arguments[0] in getattr(command, "commands", {}):
                command = command.commands[arguments.pop(0)]
            known = {o for parameter in command.params for o in parameter.opts} | {"--help"}
            for word in arguments:
                option = word.partition("=")[0]
                assert not option.startswith("--") or option in known, f"{page}:{line}: {word}"


def test_lines_are_short():
    for page in PAGES:
        if page.name == "README.md":
            continue
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            is_table = line.startswith("|")  # a row of a table cannot be broken
            assert is_table or len(line) <= 120, f"{page}:{number} has {len(line)} columns"


def test_every_page_is_on_the_map():
    linked = {
        (DOCS / target.partition("#")[0]).resolve()
        for target in _LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    }
    for page in PAGES:
        assert page.name in ("index.md", "README.md") or page in linked, f"{page} is not in index"


def test_every_behavior_and_node_is_in_the_reference():
    pages = reference_pages()
    for name, behavior in registry().items():
        assert f"### {name}\n" in pages["behaviors.md"]
        for parameter in behavior.parameters():
            assert f"| `{parameter}` |" in pages["behaviors.md"], f"{name}.{parameter}"
    for name in node_registry():
        assert f"## {name}\n" in pages["nodes.md"]


def test_every_stage_is_on_the_pipeline_page_in_its_order():
    text = (DOCS / "concepts" / "pipeline.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \**`(\w+)`\** \|", text, re.MULTILINE)
    assert rows == [stage.name for stage in Stage]


def test_the_reference_is_that_of_the_declarations():
    from loki_vfx.bridges.standalone.reference import reference_pages

    for name, text in reference_pages().items():
        page = ROOT / "docs" / "reference" / name
        assert page.read_text() == text, f"{name} is old; run `make reference`"
