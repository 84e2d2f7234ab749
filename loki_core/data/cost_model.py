"""Cost model: what Buckets weigh in the load balance, from counts and stored costs alone.

    weight of a Bucket = its elements times the cost of one, and the Bucket's own cost

The unit is the work on one voxel of smoke in one substep, pressure included: 0.72 microseconds on
one core of the machine that docs/benchmarks.md describes. Whoever owns elements says next to its
code what they cost: `cost` of an Object is that of a particle, vertex or voxel, `cost` of an Action
is what it adds for each element that it acts on. All of these were measured with one thread, as the
time of the owner's Tasks over elements and substeps (`wtloki bench ranks` repeats it). They are
stored, so that every run of a scene is cut alike, on any machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.data.accessors import ChannelData
from loki_core.data.particle_system import ParticleSystem

#: Of a Bucket, whatever is in it: 0.3 microseconds, from particles in Buckets of 50 and of 8.
BUCKET_COST = 0.4


def bucket_costs(holder: ChannelData, element_cost: float) -> NDArray[np.float64]:
    """Weight of each local Bucket of a Particle System or Discrete Volume, shape [local]."""
    count = holder.buckets.local_count
    if isinstance(holder, ParticleSystem):
        elements = np.diff(holder.offsets)[:count].astype(np.float64)
    else:
        voxels = max((c.resolution**3 for c in holder.channels.values()), default=0)
        elements = np.full(count, float(voxels))
    weights: NDArray[np.float64] = element_cost * elements + BUCKET_COST
    return weights
