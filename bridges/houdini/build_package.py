"""Build the Houdini package: a folder and a zip that go into Houdini's `packages` folder.

    python bridges/houdini/build_package.py --output dist

    loki.json                      tells Houdini where the rest lies
    loki/otls/*.hda                node types, as text
    loki/python3.11libs            loki_houdini, Loki without its solver's libraries, pyzmq,
                                   msgpack, psutil, zstd
    loki/help, toolbar, python_panels

Houdini's Python brings numpy. Every node type is checked; with a problem in any nothing is built
to the end. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
if str(PROJECT) not in sys.path:  # run as a file, from anywhere
    sys.path.insert(0, str(PROJECT))

from loki_vfx.bridges.houdini.hda_directory import validate, write  # noqa: E402
from loki_vfx.bridges.houdini.help_card import card_name  # noqa: E402
from loki_vfx.bridges.houdini.node_types import node_types  # noqa: E402

NAME = "loki_houdini"
PYTHON = "3.11"  # of Houdini 20.5 and 21
LIBRARIES = f"python{PYTHON}libs"
REQUIREMENTS = ("pyzmq", "msgpack", "psutil", "backports.zstd")
OWN_PACKAGES = ("loki_core", "loki_graph", "loki_vfx.serialization", "loki_vfx.bridges")
LEFT_OUT = ("loki_vfx.bridges.blender", "loki_vfx.bridges.houdini.loki_houdini")
DATA = (".json", ".py", ".typed")
EARLIEST = (1980, 1, 1, 0, 0, 0)  # that a zip can say of its files
FOLDERS = ("toolbar", "python_panels")

PLATFORMS = {
    "linux-x64": ("manylinux_2_28_x86_64", "manylinux_2_26_x86_64", "manylinux2014_x86_64"),
    "windows-x64": ("win_amd64",),
    "macos-arm64": ("macosx_11_0_arm64", "macosx_10_15_universal2"),
}
_SYSTEMS = {"Linux": "linux-x64", "Windows": "windows-x64", "Darwin": "macos-arm64"}


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=PROJECT / "dist")
    parser.add_argument("--platform", choices=PLATFORMS, default=_SYSTEMS.get(platform.system()))
    parser.add_argument(
        "--without-wheels",
        action="store_true",
        help="leave pyzmq, msgpack, psutil and zstd to Houdini's Python",
    )
    given = parser.parse_args()
    system = None if given.without_wheels else given.platform
    problems, made = build(given.output, system)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        raise SystemExit(1)
    print(made)


def build(output: Path, system: str | None) -> tuple[list[str], Path]:
    """Assemble the package and zip it; return what is wrong with it, and the zip.

    Args:
        output: Where the folder and the zip go; a folder of an earlier build is replaced.
        system: One of PLATFORMS; None leaves out what is built for a system.
    """
    folder = output / NAME
    shutil.rmtree(folder, ignore_errors=True)
    inside = folder / "loki"
    inside.mkdir(parents=True)
    shutil.copyfile(HERE / "package" / "loki.json", folder / "loki.json")
    shutil.copyfile(PROJECT / "LICENSE", inside / "LICENSE")
    problems = write_node_types(inside)
    for name in FOLDERS:
        if (HERE / name).is_dir():
            _copy(HERE / name, inside / name)
    libraries = inside / LIBRARIES
    _copy(HERE / NAME, libraries / NAME)
    _copy(HERE / "pdg", libraries)
    for package in own_packages():
        _copy_package(package, libraries)
    for name in ("help", "package"):  # with which node types of one's own templates can be written
        _copy(HERE / name, libraries / "loki_vfx" / "bridges" / "houdini" / name)
    if system is not None:
        _unpack_wheels(libraries, system)
    problems += [f"{path.relative_to(folder)}: {one}" for path, one in _broken_files(folder)]
    target = (
        output / f"{NAME}-{_pyproject()['project']['version']}-{system or 'without-wheels'}.zip"
    )
    if not problems:
        _zip(folder, target)
    return problems, target


def write_node_types(inside: Path) -> list[str]:
    """Write all node types and their help; return what is wrong with them."""
    problems = []
    for one in node_types():
        folder = inside / "otls" / one.folder_name
        write(folder, one.asset())
        problems += validate(folder, is_ours=True)
        card = inside / "help" / "nodes" / one.table.lower() / card_name(one.operator)
        card.parent.mkdir(parents=True, exist_ok=True)
        card.write_bytes(one.help_text().encode("utf-8"))
    return problems


def own_packages() -> list[str]:
    """Return the packages of Loki that a host needs, as the project lists them."""
    listed: list[str] = _pyproject()["tool"]["setuptools"]["packages"]
    wanted = ("loki_vfx", *(one for one in listed if _is_within(one, OWN_PACKAGES)))
    return [one for one in wanted if not _is_within(one, LEFT_OUT)]


def _is_within(package: str, roots: tuple[str, ...]) -> bool:
    return any(f"{package}.".startswith(f"{root}.") for root in roots)


def _folder(package: str) -> Path:
    """Return where the modules of a package lie: packaging may place any beginning of its name."""
    placed: dict[str, str] = _pyproject()["tool"]["setuptools"]["package-dir"]
    parts = package.split(".")
    for length in range(len(parts), 0, -1):
        root = placed.get(".".join(parts[:length]))
        if root is not None:
            return PROJECT.joinpath(root, *parts[length:])
    return PROJECT.joinpath(*parts)


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))


def _copy(source: Path, target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)


def _copy_package(package: str, libraries: Path) -> None:
    """Copy the modules and data of a package, without the packages in it."""
    target = libraries.joinpath(*package.split("."))
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(_folder(package).iterdir()):
        if path.is_file() and path.suffix in DATA:
            shutil.copyfile(path, target / path.name)


def _unpack_wheels(libraries: Path, system: str) -> None:
    """Fetch the wheels of what the client needs from the package index, and unpack them."""
    words = ["--only-binary", ":all:", "--no-deps", "--python-version", PYTHON]
    for one in PLATFORMS[system]:
        words += ["--platform", one]
    wanted = [
        one for one in _pyproject()["project"]["dependencies"] if one.startswith(REQUIREMENTS)
    ]
    assert len(wanted) == len(REQUIREMENTS)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*pip, *words, "--dest", folder, *wanted], check=True)
        for wheel in sorted(Path(folder).glob("*.whl")):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(libraries)


def _broken_files(folder: Path) -> list[tuple[Path, str]]:
    """Return the shelves and panels that are not well-formed."""
    found = []
    for path in sorted([*folder.rglob("*.shelf"), *folder.rglob("*.pypanel")]):
        try:
            ElementTree.parse(path)
        except ElementTree.ParseError as error:
            found.append((path, str(error)))
    return found


def _zip(folder: Path, target: Path) -> None:
    """Zip a folder; the same files give the same bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            made.writestr(entry, path.read_bytes())


if __name__ == "__main__":
    main()
