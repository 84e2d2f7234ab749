"""The Grid Domain of a Solver Setup: where it lies, and how large its Buckets are.

The Bucket size is the setting's; or 8 of the smallest voxels, where there are any; or the largest
of the other Behaviors' hints. A periodic axis is a whole number of Buckets, so Buckets may there be
of 4 or 16 voxels. The origin lies near the inputs, so that positions keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.errors import SetupError
from loki_core.parallel.comm import Communicator
from loki_core.solver_setup import SolverSetup

#: Least automatic Bucket of an unbounded scene [m]: 2^17 of them are more than a kilometre.
SMALLEST_BUCKET = 0.01
#: Bucket of a scene that says nothing of its size [m].
DEFAULT_BUCKET = 1.0


def make_domain(setup: SolverSetup, inputs: Mapping[str, Any], comm: Communicator) -> GridDomain:
    """Return the Grid Domain for a Solver Setup and its input streams."""
    settings = setup.settings
    lower, upper = _bounds(inputs, settings.domain_lower, settings.domain_upper)
    data_lower, data_upper = _bounds(inputs, None, None)
    near = 0.5 * (data_lower + data_upper) if inputs else 0.5 * (lower + upper)
    # What lies far outside of the box must not take the origin away with it.
    if settings.domain_lower is not None and settings.domain_upper is not None:
        near = np.clip(near, lower, upper)
    conditions = [
        BoundaryCondition(side[axis])
        for axis in range(3)
        for side in (settings.boundary_lower, settings.boundary_upper)
    ]
    return GridDomain(
        settings.bucket_size or _automatic_bucket_size(setup, inputs, upper - lower),
        near=near,
        curve=settings.curve,
        lower=settings.domain_lower,
        upper=settings.domain_upper,
        boundaries=conditions,
        comm=comm,
    )


def _automatic_bucket_size(
    setup: SolverSetup, inputs: Mapping[str, Any], extents: NDArray[np.float64]
) -> float:
    lengths = [
        float(extents[axis])
        for axis in range(3)
        if setup.settings.boundary_lower[axis] == "periodic"
    ]
    voxels = [behavior.voxel_size_hint() for _, behavior in setup.behaviors()]
    smallest = min((voxel for voxel in voxels if voxel is not None), default=None)
    if smallest is not None:
        return _whole_voxels(lengths, smallest)
    hints = [behavior.bucket_size_hint(inputs) for _, behavior in setup.behaviors()]
    extent = float(np.max(extents))
    size = max((hint for hint in hints if hint is not None), default=extent / 16.0)
    size = size if size > 0.0 else DEFAULT_BUCKET
    # Unbounded, particles may travel far: the keys must reach a kilometre at least.
    is_bounded = setup.settings.domain_lower is not None
    size = max(size, extent / 1e5 if is_bounded else SMALLEST_BUCKET)
    return _dividing_all(lengths, size) if lengths else size


def _whole_voxels(lengths: list[float], voxel: float) -> float:
    """Bucket of 8 voxels, or of the next number of which periodic axes are whole multiples."""
    for count in (8, 4, 16, 32):
        rests = [length / (count * voxel) for length in lengths]
        if all(abs(rest - round(rest)) < 1e-6 and round(rest) >= 1 for rest in rests):
            return lengths[0] / round(rests[0]) if lengths else count * voxel
    counts = [max(1, round(length / (4.0 * voxel))) for length in lengths]
    sizes = ", ".join(
        f"{length / (4 * count):.9g} m" for length, count in zip(lengths, counts, strict=True)
    )
    raise SetupError(
        f"periodic axes of {lengths} m are no whole number of Buckets of 4 voxels of "
        f"{voxel:.9g} m; nearest voxel sizes: {sizes}"
    )


def _dividing_all(lengths: list[float], wanted: float) -> float:
    """Bucket size near the wanted one of which all periodic lengths are whole multiples."""
    first = lengths[0]
    best = None
    for count in range(1, max(2, 8 * math.ceil(first / wanted))):
        size = first / count
        rests = [abs(length / size - round(length / size)) for length in lengths]
        fits = all(round(length / size) >= 1 for length in lengths) and max(rests) < 1e-9 * count
        if fits and (best is None or abs(size - wanted) < abs(best - wanted)):
            best = size
    if best is None:
        raise SetupError(
            f"no Bucket size near {wanted:g} m divides all periodic axes ({lengths} m); "
            "make their lengths commensurable, or set bucket_size"
        )
    return best


def _bounds(
    inputs: Mapping[str, Any], lower: Any, upper: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Box around all inputs, or the domain box where there is one."""
    if lower is not None and upper is not None:
        return np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)
    boxes = [stream.bounds() for stream in inputs.values() if sum(stream.counts().values())]
    if not boxes:
        return np.zeros(3), np.zeros(3)
    return np.min([b[0] for b in boxes], axis=0), np.max([b[1] for b in boxes], axis=0)
