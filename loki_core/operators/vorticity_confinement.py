"""Vorticity Confinement Operator: give back the small rolls that a coarse grid loses.

    f = m epsilon h (N x omega),     N = grad|omega| / |grad|omega||

(Fedkiw, Stam and Jensen, SIGGRAPH 2001; paper, 6.4.) N points to the core of a vortex, so the force
pushes the fluid around it, the way that it turns. epsilon h falls with the voxel: the added motion
vanishes as the grid resolves more. It adds momentum of its own, art-directed and not physical: less
than epsilon h |omega| m on each face. epsilon may vary by voxel, and by particle of a liquid.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.kernels.gas.vorticity import HALO, accumulate_confinement
from loki_core.objects.basics.capabilities import Faces
from loki_core.objects.buckets.stream_on_voxels import StreamOnVoxels
from loki_core.operators.operator import Operator
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

#: Relative change of |omega| from voxel to voxel below which it counts as even.
EVEN = 0.01


class VorticityConfinementOperator(Behavior, kind="operator", varies="vertex"):
    """Strengthen the vortices of every volume in the Group."""

    strength: float = parameter(
        0.3, unit="1/s", minimum=0.0, doc="epsilon: how fast rolls of one voxel are strengthened."
    )
    mask: str | None = parameter(
        None, kind="stream", doc="Voxel stream whose scalar channel multiplies the strength."
    )
    mask_channel: str = parameter("mask", kind="channel", doc="Scalar channel of the mask stream.")


class VorticityConfinementAction(Operator[Faces], behavior=VorticityConfinementOperator):
    """Adds the confinement force to the faces of a volume."""

    settings: VorticityConfinementOperator
    cost = 0.09

    def __init__(self, behavior: VorticityConfinementOperator, target: Faces) -> None:
        super().__init__(behavior, target)
        target.need_force()
        self._streams = StreamOnVoxels(type(behavior).__name__)

    @task(
        Stage.EVALUATE_FLUID_FORCES,
        reads=("volume.velocity",),
        accumulates=("volume.force",),
        halo=HALO,
        corners=True,
        local_sums=True,
    )
    def confine(self, access: Access, step: Step) -> None:
        """Add the confinement force."""
        settings = self.settings
        found = self.on_voxels("strength")
        strength = 1.0 if found.step else found.number
        if strength == 0.0:
            return
        volume = access.of("volume")
        velocity, force = access["volume.velocity"], access["volume.force"]
        kind, r = velocity.dtype.type, velocity.shape[2]
        h = volume.voxel_size("velocity")
        even = np.ones((1, 3, r, r, r), velocity.dtype)
        has_walls = "volume.open_fraction" in access.declaration.reads
        weight, weight_step = even, 0
        if settings.mask is not None:
            weight, weight_step = (
                self._streams.on_faces(
                    self.target.scope, settings.mask, settings.mask_channel, volume=volume
                ),
                1,
            )
        if found.step:
            weight, weight_step = weight * found.on_faces(), 1
        mass = float(self.target.face_mass)
        accumulate_confinement(
            velocity,
            access["volume.open_fraction"] if has_walls else even,
            1 if has_walls else 0,
            volume.buckets.local_count,
            volume.buckets.neighbours,
            kind(1.0 / h),
            kind(strength * h * mass),
            kind(0.25),
            kind(EVEN),
            kind(np.finfo(kind).tiny),
            weight,
            weight_step,
            force,
        )

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Read the walls too, where the volume has any."""
        if "open_fraction" in self.target.data["volume"].channels:
            declaration = replace(declaration, reads=(*declaration.reads, "volume.open_fraction"))
        return super().declare(name, stage, declaration)
