"""Image files that a page can carry: JPEG pictures and WebP clips, of bounded size."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

LARGEST_STILL, LARGEST_CLIP = 400_000, 1_500_000  # bytes
FADE = 8  # pictures
QUALITIES = (92, 88, 84, 80, 75, 70, 60, 50, 40)


def write_still(source: Path, target: Path) -> None:
    """Write a picture as a JPEG of the best quality that fits."""
    with Image.open(source) as image:
        plain = image.convert("RGB")
    for quality in QUALITIES:
        plain.save(target, quality=quality, optimize=True, progressive=True)
        if target.stat().st_size <= LARGEST_STILL:
            return


def write_clip(sources: Sequence[Path], target: Path, *, rate: float) -> None:
    """Write pictures as an endless WebP animation of the best quality that fits."""
    images = _without_jump([Image.open(source).convert("RGB") for source in sources])
    for quality in QUALITIES:
        images[0].save(
            target, save_all=True, append_images=images[1:], duration=round(1000.0 / rate), loop=0,
            quality=quality, method=4,
        )  # fmt: skip
        if target.stat().st_size <= LARGEST_CLIP:
            return


def _without_jump(images: list[Image.Image]) -> list[Image.Image]:
    """Return pictures of which the last ones fade into those before the first."""
    fade = min(FADE, len(images) // 3)
    last = [
        Image.blend(late, early, (k + 1.0) / (fade + 1.0))
        for k, (late, early) in enumerate(zip(images[-fade:], images[:fade], strict=True))
    ]
    return [*images[fade:-fade], *last]
