"""Faces of a liquid that points in it meet: those beside liquid cells, with the mass they move.

    M = rho h^3 sum_p w_p V_p / h^3       by the weights with which particles bring their momentum

and what follows them beyond the surface (kernels/liquid_face_mass). What a point gives to a face
changes its velocity by impulse / M, and comes to the particles as a whole: their momentum is the
sum of M u.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.liquid.liquid_extension import mark_known_faces
from loki_core.kernels.liquid.liquid_face_mass import add_following, share_following

if TYPE_CHECKING:
    from loki_core.objects.liquid.hybrid import Hybrid

Array = NDArray[Any]

LEAST_FILL = 0.05  # of rho h^3, below which points do not meet a face


class LiquidFaces(NamedTuple):
    """What points find of a liquid.

    Attributes:
        wet: Which faces they meet, 1 or 0, with ghosts.
        fill: Mass that moves with local faces, over rho h^3.
    """

    wet: Array
    fill: Array

    @classmethod
    def of(cls, liquid: Hybrid) -> LiquidFaces:
        """Those of the liquid as it is after PARTICLES_TO_GRID. Collective."""
        volume, neighbours = liquid.volume, liquid.volume.buckets.neighbours
        weight, fraction = volume.local("face_weight"), volume.local("open_fraction")
        volume.refresh("kind")
        kind = volume.with_ghosts("kind")
        none_is_loose = np.zeros_like(kind)
        layout: dict[str, Any] = {"components": 3, "resolution": liquid.resolution}
        with (
            volume.scratch("beside", np.uint8, location="face", **layout) as beside,
            volume.scratch("follow", location="face", **layout) as follow,
        ):
            known = volume.local(beside.name)
            mark_known_faces(kind, fraction, none_is_loose, neighbours, known)
            volume.mark_written(beside.name)
            volume.refresh(beside.name)
            part, fill = volume.local(follow.name), weight.copy()
            share_following(beside.values, weight, fraction, neighbours, part)
            volume.mark_written(follow.name)
            volume.refresh(follow.name)
            add_following(beside.values, follow.values, neighbours, fill)
            fill[fraction == 0.0] = 1.0  # what comes to these does not move them
            # Then the same room holds the faces that are met.
            part[:] = (known == 1) & ((weight > LEAST_FILL) | (fraction == 0.0))
            volume.mark_written(follow.name)
            volume.refresh(follow.name, corners=True)
            return cls(follow.values.copy(), fill)
