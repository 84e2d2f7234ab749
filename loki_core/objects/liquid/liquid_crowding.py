"""Crowds of particles, shaken apart.

Particles that a corner or a closing solid has pressed into one place move alike ever after: what
they sample is the same, so no flow and no density correction parts them, and their volume does not
show. Where a voxel has more than twice the particles that fill it, those that are too many are put
anywhere in it; the density correction then finds room for them. Nothing comes or goes: number,
volume and momentum are what they were.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from loki_core.pipeline.task import Step

if TYPE_CHECKING:
    from loki_core.objects.liquid.hybrid import Hybrid

CROWD = 2.0  # times what fills a voxel; well-mixed flows stay below it
EDGE = 0.02  # of a voxel that the new places keep from its faces


def shake_apart(liquid: Hybrid, step: Step) -> int:
    """Give particles that crowd other places in their voxels; returns how many were moved here.

    The particles are in their Buckets, and stay in them.
    """
    from loki_core.kernels.basics.emission import fill_uniforms
    from loki_core.kernels.basics.random import random_key
    from loki_core.kernels.liquid.liquid_crowding import find_crowded

    stream = zlib.crc32(f"{liquid.path}/crowding".encode())  # of random numbers
    particles, domain, h = liquid.particles, liquid.scope.domain, float(liquid.voxel_size)
    full, count = round(1.0 / liquid.particle_share), particles.buckets.local_count
    crowded = np.zeros(particles.count, bool)
    position = particles.local("position")
    find_crowded(
        position, particles.offsets, np.ascontiguousarray(particles.buckets.local_coords[:count]),
        domain.bucket_size, liquid.resolution, full, round(CROWD * full), crowded,
    )  # fmt: skip
    rows = np.flatnonzero(crowded)
    if len(rows):
        bucket = np.searchsorted(particles.offsets, rows, side="right") - 1
        corner = particles.buckets.local_coords[bucket] * domain.bucket_size
        uniforms = np.empty((len(rows), 3))
        fill_uniforms(
            random_key(step.seed, stream, step.substep), particles.local("id")[rows], uniforms
        )
        # In its Bucket, as it was sorted: the voxel on whose border it is may be the next one's.
        voxel = np.clip(np.floor((position[rows] - corner) / h), 0, liquid.resolution - 1)
        place = corner + (voxel + EDGE + (1.0 - 2.0 * EDGE) * uniforms) * h
        position[rows] = np.clip(place, domain.relative_lower, domain.relative_upper)
        particles.mark_written("position")
    return len(rows)
