"""Baked graph: what a bake of a graph computes now, and over which frames."""

from __future__ import annotations

from typing import Any

from .graph_exchange import graph_of, sample_drivers


def frame_range(tree: Any, scene: Any) -> tuple[int, int]:
    """Return the first and the last frame of a bake."""
    if tree.loki.use_scene_range:
        return scene.frame_start, scene.frame_end
    return tree.loki.frame_start, tree.loki.frame_end


def rate_of(scene: Any) -> float:
    """Return the frames per second of a scene."""
    return float(scene.render.fps / scene.render.fps_base)


def document_of(tree: Any, scene: Any, frames: tuple[int, int] | None = None) -> Any:
    """Return the Loki Graph that a bake would compute now, values with drivers apart."""
    frames = frames or frame_range(tree, scene)
    return graph_of(tree, frames=frames, frames_per_second=rate_of(scene))


def document_with_drivers(tree: Any, scene: Any, frames: tuple[int, int] | None = None) -> Any:
    """Return the Loki Graph that a bake would compute now; the scene steps through all frames."""
    frames = frames or frame_range(tree, scene)
    driven = sample_drivers(tree, scene, frames)
    return graph_of(tree, frames=frames, frames_per_second=rate_of(scene), driven=driven)
