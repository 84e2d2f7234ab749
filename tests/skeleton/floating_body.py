"""A body that the pressure moves, without any turning: the least that couples to a fluid."""

from __future__ import annotations

import numpy as np

from loki_core.constraints.pressure_system import flux_into


class FloatingBody:
    """Moves along the three axes with all faces around it.

    Args:
        fluid: It is told of the body.
        lower: Corner of the space in which nothing but the body is solid [m].
        upper: The other corner.
        mass: [kg].
    """

    def __init__(self, fluid, lower, upper, mass, velocity=(0.0, 0.0, 0.0)):
        self.fluid, self.lower, self.upper, self.mass = fluid, lower, upper, mass
        self.velocity = np.array(velocity, float)
        fluid.bodies.append(self)

    def _inside(self, shift):
        """Whether places of voxels of all Buckets are in the body's space, [b, r, r, r]."""
        buckets, r, h = self.fluid.volume.buckets, self.fluid.resolution, self.fluid.voxel_size
        cells = np.stack(np.meshgrid(*[np.arange(r)] * 3, indexing="ij"))
        corner = self.fluid.scope.domain.origin + buckets.coords * (r * h)
        place = corner[:, :, None, None, None] + h * (cells + shift[:, None, None, None])
        lower, upper = (np.asarray(c)[None, :, None, None, None] for c in (self.lower, self.upper))
        return np.all((place > lower) & (place < upper), axis=1)

    def velocity_modes(self):
        volume = self.fluid.volume
        modes = np.zeros((3, *volume.with_ghosts("velocity").shape), volume.dtype)
        for axis in range(3):
            modes[axis, :, axis] = self._inside(0.5 - 0.5 * np.eye(3)[axis])
        return modes

    def close_voxels(self):
        """Make all voxels of the body's space solid, and their faces closed."""
        volume = self.fluid.volume
        own = volume.buckets.local_count
        volume.local("kind")[:, 0][self._inside(np.full(3, 0.5))[:own]] = 0
        for axis in range(3):
            inside = self._inside(0.5 - 0.5 * np.eye(3)[axis])[:own]
            volume.local("open_fraction")[:, axis][inside] = 0.0
        for name in ("kind", "open_fraction"):
            volume.mark_written(name)
        self.fluid.remember_space()

    def mass_matrix(self):
        return self.mass * np.eye(3)

    def gain(self, change):
        self.velocity += change

    def write_velocity(self):
        """Let the grid know how fast the body is."""
        volume = self.fluid.volume
        own = self.velocity_modes()[:, : volume.buckets.local_count]
        volume.local("solid_velocity")[:] = np.tensordot(self.velocity, own, axes=1)
        volume.mark_written("solid_velocity")

    def displaced_mass(self):
        """Mass of fluid in the body's place as the grid has it: -sum p n dA for p = -y."""
        volume, r = self.fluid.volume, self.fluid.resolution
        rows = volume.buckets.local_coords[:, 1, None] * r + np.arange(r)
        height = np.broadcast_to(rows[:, None, :, None], (len(rows), r, r, r)).reshape(-1)
        flux = flux_into(self.fluid, None, self.velocity_modes()[1])
        return self.fluid.face_mass * float(np.sum(flux * height))


def announce(solver):
    """Let Tasks declare what bodies have made of them that came after the Solver was built."""
    solver.schedule = solver._schedule()
