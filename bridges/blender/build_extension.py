"""Build the Blender extension: one zip for each platform and Python of Blender.

    python bridges/blender/build_extension.py --output dist

The add-on's own modules lie at the root of the zip; Loki itself, pyzmq, msgpack, psutil and zstd
travel in it as the wheels that they are. Loki needs no compiler and no numba there: hosts use its
declarations, its graph and its client alone.
"""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
LARGEST = 4_000_000
OURS = (Path(__file__).name, "blender_manifest.toml")  # not copied as they are
REQUIREMENTS = ("pyzmq", "msgpack", "psutil", "backports.zstd")


class Blender(NamedTuple):
    """Versions of Blender that share a Python."""

    python: str
    first: str
    behind_last: str | None


BLENDERS = (Blender("3.11", "4.5.0", "5.1.0"), Blender("3.13", "5.1.0", None))

PLATFORMS = {
    "linux-x64": ("manylinux_2_28_x86_64", "manylinux_2_26_x86_64", "manylinux2014_x86_64"),
    "windows-x64": ("win_amd64",),
    "macos-arm64": ("macosx_11_0_arm64", "macosx_10_15_universal2"),
}


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PROJECT / "dist")
    parser.add_argument("--platform", choices=PLATFORMS, action="append")
    parser.add_argument("--python", choices=[one.python for one in BLENDERS], action="append")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        own = own_wheel(Path(folder))
        for blender in BLENDERS:
            for platform in given.platform or PLATFORMS:
                if given.python and blender.python not in given.python:
                    continue
                print(build(given.output, blender, platform, own))


def own_wheel(folder: Path) -> Path:
    """Build the wheel of Loki and return its path."""
    _pip("wheel", str(PROJECT), "--no-deps", "--wheel-dir", str(folder))
    return next(folder.glob("loki_vfx-*.whl"))


def build(output: Path, blender: Blender, platform: str, own: Path) -> Path:
    """Write the zip of one platform and Python; return its path."""
    version = own.name.split("-")[1]
    tag = "py" + blender.python.replace(".", "")
    target = output / f"loki-{version}-{platform.replace('-', '_')}-{tag}.zip"
    with tempfile.TemporaryDirectory() as folder:
        wheels = [own, *_wheels(Path(folder), blender, platform)]
        manifest = manifest_text(version, blender, platform, [wheel.name for wheel in wheels])
        tomllib.loads(manifest)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("blender_manifest.toml", manifest)
            for path in sorted([*HERE.glob("*.py"), HERE / "LICENSE"]):
                if path.name not in OURS:
                    made.write(path, path.name)
            for wheel in wheels:
                made.write(wheel, f"wheels/{wheel.name}")
    size = target.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{target} has {size} bytes; at most {LARGEST} are allowed")
    return target


def manifest_text(version: str, blender: Blender, platform: str, wheels: list[str]) -> str:
    """Return the manifest with what differs from zip to zip."""
    lines = [f'version = "{version}"', f'blender_version_min = "{blender.first}"']
    if blender.behind_last is not None:
        lines.append(f'blender_version_max = "{blender.behind_last}"')
    lines.append(f'platforms = ["{platform}"]')
    lines.append("wheels = [" + ", ".join(f'"./wheels/{name}"' for name in wheels) + "]")
    text = (HERE / "blender_manifest.toml").read_text(encoding="utf-8")
    body, table, rest = text.partition("\n[permissions]")
    kept = [line for line in body.splitlines() if not line.startswith("#")]
    return "\n".join([*kept, *lines]) + "\n" + table + rest


def _wheels(folder: Path, blender: Blender, platform: str) -> list[Path]:
    """Fetch the wheels of what the client needs, unchanged, from the package index."""
    words = ["--only-binary", ":all:", "--no-deps", "--python-version", blender.python]
    for one in PLATFORMS[platform]:
        words += ["--platform", one]
    _pip("download", *words, "--dest", str(folder), *_requirements())
    return sorted(folder.glob("*.whl"))


def _requirements() -> list[str]:
    """Return the versions that the project itself asks for."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [one for one in project["dependencies"] if one.startswith(REQUIREMENTS)]
    assert len(found) == len(REQUIREMENTS)
    return found


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
