"""Make pictures of the gallery: simulate, show in Blender, render with Cycles.

    python -m loki_vfx.bridges.blender.gallery [NAME ...] [--no-clip] [--again]

A simulation that is there, of the same Solver Setup, is used again.
"""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import argparse
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from loki_vfx.bridges.standalone.gallery import find_example
from loki_vfx.bridges.standalone.scene import streams_at
from loki_vfx.serialization.frame_cache import FrameCacheReader, read_manifest, whole_frames

from . import stage
from .image_files import write_clip, write_still
from .picture import Frame, Picture

PROJECT = Path(__file__).resolve().parents[3]
CACHES = PROJECT / "output" / "gallery"
PICTURES = PROJECT / "docs" / "images" / "gallery"
STILL, CLIP = (1280, 720), (400, 225)


def main() -> None:
    """Make what the command line asks for."""
    known = picture_names()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--no-clip", action="store_true", help="Render the stills alone.")
    parser.add_argument("--again", action="store_true", help="Simulate what is there already.")
    given = parser.parse_args()
    for name in given.names or known:
        if name not in known:
            parser.error(f"there is no picture {name}; there are {', '.join(known)}")
        make(name, clip=not given.no_clip, again=given.again)


def picture_names() -> list[str]:
    """Return the names of all pictures: the modules here that hold one."""
    package = __package__ or ""
    names = [one.name for one in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return [n for n in names if n != "__main__" and hasattr(_module(package, n), "PICTURE")]


def make(name: str, *, clip: bool, again: bool) -> None:
    """Simulate a scene and render its picture and its clip."""
    picture: Picture = _module(__package__ or "", name).PICTURE
    folder = simulate(name, picture, again=again)
    _, inputs = find_example(name).build(**picture.options)
    reader = FrameCacheReader(folder)
    scene = stage.empty_scene()
    show = picture.dress(scene)

    def render(number: int, size: tuple[int, int], samples: int) -> Path:
        objects = {path: reader.read(number, path) for path in reader.objects(number)}
        scene.frame_set(number)
        show(Frame(number, {**streams_at(inputs, number), **objects}, folder / "vdb"))
        path = folder / "pictures" / f"{size[0]}_{number:04d}.png"
        stage.render(scene, path, size=size, samples=samples)
        return path

    PICTURES.mkdir(parents=True, exist_ok=True)
    write_still(render(picture.still, STILL, picture.samples[0]), PICTURES / f"{name}.jpg")
    if clip:
        first, last, step = picture.clip
        frames = [render(n, CLIP, picture.samples[1]) for n in range(first, last + 1, step)]
        write_clip(frames, PICTURES / f"{name}.webp", rate=24.0 / step)


def simulate(name: str, picture: Picture, *, again: bool) -> Path:
    """Return the cache of a scene, made if it is not there or is of another Solver Setup."""
    folder, last = CACHES / name, max(picture.still, picture.clip[1])
    setup, _ = find_example(name).build(**picture.options)
    is_there = not again and last in whole_frames(folder)
    if is_there and read_manifest(folder).setup == setup.to_document():
        return folder
    words = [
        "-m",
        "loki_vfx.bridges.standalone.command_line",
        "example",
        name,
        "--frames",
        str(last),
    ]
    for key, value in picture.options.items():
        words += ["--option", f"{key}={value}"]
    words += ["--output", str(folder), "--overwrite"]
    subprocess.run([sys.executable, *words], check=True)
    return folder


def _module(package: str, name: str) -> Any:
    return importlib.import_module(f"{package}.{name}")


if __name__ == "__main__":
    main()
