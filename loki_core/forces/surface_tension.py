"""Surface Tension Force: a curved surface presses on the liquid below it.

    p = sigma kappa   at the surface, kappa = 2 / R for a ball   (Young 1805; Laplace 1806)

The pressure solve has p = 0 in the air, at a surface between cells (ghost fluid: Gibou et al. 2002;
Enright et al. 2003). What the pressure of the surface does beside it is this force on the faces
between liquid and air: where kappa is the same everywhere the two balance exactly, whatever the
shape of the cells. kernels/liquid/curvature.py has kappa.

Without that pressure the force is large and on single faces, which viscous stress must not see: in
a viscous liquid the pressure is solved for twice, before and after.

sigma may vary by particle; a face has the mean around it. That such a surface pulls along itself,
towards where sigma is larger (Marangoni), is left out.

It is explicit, so the shortest waves on the grid limit the step (Brackbill et al. 1992):

    dt <= sqrt(rho h^3 / (2 pi sigma))
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.kernels.gas.mac_grid import FLUID
from loki_core.kernels.liquid.curvature import (
    REACH,
    add_surface_force,
    blur_open,
    find_curvature,
    take_from_surface,
)
from loki_core.objects.basics.capabilities import Liquid
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]

BLURS = 4  # times (1, 2, 1) / 4, whose taps reach as far as the smallest Bucket is wide
TAPS = np.array([math.comb(2 * BLURS, t) for t in range(2 * BLURS + 1)]) / 4.0**BLURS


class SurfaceTensionForce(Behavior, kind="force", exclusive=True):
    """Let the surfaces of liquids in the Group pull themselves together."""

    coefficient: float = parameter(
        0.0728,
        unit="N/m",
        minimum=0.0,
        varies="vertex",
        doc="Surface tension; the default is water in air.",
    )


class SurfaceTensionAction(Action[Liquid], behavior=SurfaceTensionForce):
    """Adds the force of a liquid's surface to faces beside it."""

    cost = 0.4
    resolving = ("pull",)

    def __init__(self, behavior: SurfaceTensionForce, target: Liquid) -> None:
        super().__init__(behavior, target)
        target.need_force()
        target.surface_forces.append(self)
        self._has_warned = False

    def time_step_limit(self) -> float:
        """Time in which the shortest waves of the grid go from one voxel to the next."""
        found, _ = self.resolve("coefficient", np.float64)
        sigma = float(found.max(initial=0.0))
        if sigma == 0.0:
            return np.inf
        density, h = float(self.target.settings.density), float(self.target.voxel_size)
        return math.sqrt(density * h**3 / (2.0 * math.pi * sigma))

    @task(
        Stage.EVALUATE_FLUID_FORCES,
        reads=("volume.kind", "volume.filled", "volume.space"),
        accumulates=("volume.force",),
        halo=BLURS,
        corners=True,
        local_sums=True,
    )
    def pull(self, access: Access, step: Step) -> None:
        """Find the curvature, and push the faces at the surface."""
        found = self.on_voxels("coefficient")
        sigma = 1.0 if found.step else found.number
        if sigma == 0.0:
            return
        self._warn_of_long_step(step.dt)
        target, volume = self.target, self.target.volume
        neighbours = volume.buckets.neighbours
        with volume.scratch("curvature", resolution=target.resolution) as curvature:
            self._find_curvature(access["volume.filled"], curvature)
            nearness = target.grid.with_surface(np.ones_like(access["volume.force"]))
            force = access["volume.force"]
            pull = np.zeros_like(force) if found.step else force
            add_surface_force(
                access["volume.kind"], curvature.values, nearness, neighbours,
                sigma * float(target.voxel_size), pull,
            )  # fmt: skip
            if found.step:
                force += found.on_faces() * pull

    @task(
        Stage.BALANCE_SURFACE,
        reads=("volume.kind", "volume.open_fraction", "volume.velocity"),
        writes=("volume.velocity", "volume.pressure"),
        halo=1,
    )
    def balance(self, access: Access, step: Step) -> None:
        """Let pressure meet the tension before viscous stress could carry its force inwards."""
        if self.target.viscous and self.target.projector is not None:
            self.target.projector.project_first(step.dt)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """A projection moves more than the velocity."""
        stage, declaration = super().declare(name, stage, declaration)
        if name == "balance":
            writes = (*declaration.writes, *self.target.moved_by_pressure())
            reads = self.target.projection_reads()
            declaration = replace(declaration, writes=writes, local_reads=reads)
        return stage, declaration

    def _find_curvature(self, filled: Array, curvature: Any) -> None:
        """Fill a channel of cells with the curvature [1/voxel]. Collective."""
        volume, r = self.target.volume, self.target.resolution
        neighbours, taps = volume.buckets.neighbours, TAPS.astype(volume.dtype)
        with (
            volume.scratch("open", resolution=r) as weight,
            volume.scratch("blurred", resolution=r) as blurred,
            volume.scratch("smooth", resolution=r) as smooth,
        ):
            volume.local(weight.name)[:] = volume.local("space") == FLUID
            self._refresh(weight.name, BLURS)
            blur_open(filled, weight.values, neighbours, taps, blurred.values)
            self._refresh(blurred.name, BLURS)
            blur_open(blurred.values, weight.values, neighbours, taps, smooth.values)
            once, twice = volume.local(blurred.name), volume.local(smooth.name)
            twice[:] = 2.0 * once - twice
            self._refresh(smooth.name, REACH + 1)
            find_curvature(smooth.values, neighbours, blurred.values)
            self._refresh(blurred.name, REACH + 1)
            take_from_surface(smooth.values, blurred.values, neighbours, curvature.values)
            self._refresh(curvature.name, 1)

    def _refresh(self, name: str, halo: int) -> None:
        self.target.volume.mark_written(name)
        self.target.volume.refresh(name, halo=halo, corners=True)

    def _warn_of_long_step(self, dt: float) -> None:
        limit = self.time_step_limit()
        if dt > 1.001 * limit and not self._has_warned:
            self._has_warned = True
            self.warning = (
                f"a substep of {dt:.3g} s is longer than the {limit:.3g} s in which ripples cross "
                "a voxel, and the surface may get rough; turn adaptive_substeps on, or use more "
                "substeps"
            )
