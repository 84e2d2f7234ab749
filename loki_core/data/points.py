"""Points: a bare stream of particles, with channels on points and on the whole."""

from __future__ import annotations

from typing import ClassVar

from loki_core.data.mesh import Mesh


class Points(Mesh):
    """Particles in world space; there are no vertices and no primitives."""

    type_name: ClassVar[str] = "points"

    __slots__ = ()
