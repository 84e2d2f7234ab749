"""Loki in Blender: the add-on. It holds the scene and a client; the solver is another process."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


def register() -> None:
    """Called by Blender when the add-on is enabled."""
    from . import registration

    registration.register()


def unregister() -> None:
    """Called by Blender when the add-on is disabled."""
    from . import registration

    registration.unregister()
