"""A volume in a small box, whose Tasks tests run one by one on fields that they know."""

from __future__ import annotations

import numpy as np

from loki_core.objects.gas.volume import VolumeObject
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step
from loki_core.solver_setup import SolverSetup


class VolumeScene:
    """A Solver with one volume, "air", and its voxels as dense arrays [x, y, z] in world order."""

    def __init__(
        self, *behaviors, size=(2, 2, 2), h=0.125, sides="periodic", inputs=None, air=None,
        comm=None, lower=(0.0, 0.0, 0.0), **settings,
    ):  # fmt: skip
        upper = np.array(lower) + np.array(size) * 8 * h
        setup = SolverSetup(
            "scene",
            VolumeObject(name="air", voxel_size=h, region="box", **(air or {})),
            *behaviors,
            **{
                "precision": "double",
                "domain_lower": tuple(lower),
                "domain_upper": tuple(upper),
                "boundary_lower": (sides,) * 3,
                "boundary_upper": (sides,) * 3,
                **settings,
            },
        )
        self.h, self.size = h, size
        self.solver = Solver(setup, inputs, comm=comm)
        self.item = self.solver.object("air")
        self.volume = self.item.volume
        self.first = self.volume.buckets.all_coords.min(axis=0)
        self.run(Stage.UPDATE_BOUNDARIES)

    def run(self, stage, *, dt=0.01, time=0.0, seed=0):
        """Run all Tasks of a Stage."""
        step = Step(frame=1, time=time, dt=dt, seed=seed)
        self.solver.run_stage(stage, step)

    def forces(self, **step):
        """The dense force [3, x, y, z] that all Actions give."""
        self.run(Stage.RESET_FORCES, **step)
        self.run(Stage.EVALUATE_FLUID_FORCES, **step)
        return self.dense("force")

    def centres(self, axis=None):
        """World positions of cells, or of lower faces along an axis, [3, x, y, z]."""
        corner = self.first * self.solver.domain.bucket_size + self.solver.domain.origin
        shift = [0.0 if a == axis else 0.5 for a in range(3)]
        axes = [corner[a] + (np.arange(8 * self.size[a]) + shift[a]) * self.h for a in range(3)]
        return np.stack(np.meshgrid(*axes, indexing="ij"))

    def dense(self, channel):
        """A channel as one array [components, x, y, z]."""
        values = self.solver.read("air", channel)
        out = np.empty((values.shape[1], *(8 * n for n in self.size)), values.dtype)
        for coords, block in zip(self.volume.buckets.all_coords, values, strict=True):
            i, j, k = (coords - self.first) * 8
            out[:, i : i + 8, j : j + 8, k : k + 8] = block
        return out

    def fill(self, channel, dense):
        """Set a channel from a dense array [components, x, y, z]."""
        blocks = []
        for coords in self.volume.buckets.all_coords:
            i, j, k = (coords - self.first) * 8
            blocks.append(dense[:, i : i + 8, j : j + 8, k : k + 8])
        self.solver.write("air", channel, np.stack(blocks))

    def fill_velocity(self, function):
        """Set the velocity from function(position [3, ...]) -> [3, ...], at the faces."""
        self.fill("velocity", np.stack([function(self.centres(a))[a] for a in range(3)]))
