"""Scene time: a scene at another time for a while, to read what it is like then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bpy

_home: dict[str, float] = {}  # where the user was, by scene, while inputs are read


@contextmanager
def time_of(scene: Any, frame: int, subframe: float = 0.0, *, anew: bool = False) -> Iterator[None]:
    """Let a scene be at another time for a while; `go_home` brings the user back.

    Args:
        anew: Evaluate it even if it is at that time already.
    """
    if anew or (scene.frame_current, scene.frame_subframe) != (frame, subframe):
        _home.setdefault(scene.name, scene.frame_current_final)
        scene.frame_set(frame, subframe=subframe)
    yield


def is_away(scene: Any) -> bool:
    """Whether a scene stands at another time than its user chose, because inputs are read."""
    return scene.name in _home


def forget() -> None:
    """Forget where users were, since the scenes are others."""
    _home.clear()


def go_home() -> None:
    """Bring all scenes back to the time their users had chosen."""
    for name, time in list(_home.items()):
        scene = bpy.data.scenes.get(name)
        if scene is not None:
            frame = int(time // 1.0)
            scene.frame_set(frame, subframe=time - frame)
        del _home[name]  # only now: going back is no reason to show anything anew
