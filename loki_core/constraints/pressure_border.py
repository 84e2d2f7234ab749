"""What couples to the pressure through a few unknowns: pockets of air, and bodies that it moves.

A pocket has one pressure Q, and what flows through its surface is nothing:

    sum_f w m (Q - q) = -sum_f s w u*                          over the faces between air and liquid

A body has generalised velocities V, with which the solid part 1 - w of faces moves, u_solid = N V.
The pressure does work on it by the flux that leaves cells for it, so (Batty et al. 2007)

    A q + J^T (V - V*) = b,     M (V - V*) = rho h^3 J q,     J^T = sum_f s (1 - w) N

which is A + rho h^3 J^T M^-1 J, the strong coupling. Both are borders of the system
(`linear_solvers/bordered.py`).

A body is whatever adds itself to the fluid's `bodies`. It has been brought to the grid like any
solid, with V*, and offers

    velocity_modes()     N on faces with ghosts, shape [m, b, 3, r, r, r], 0 but around the body
    mass_matrix()        M, shape [m, m], the same on all ranks
    gain(change)         takes V - V*, shape [m]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.constraints.pressure_system import flux_into
from loki_core.kernels.liquid.air_pockets import fill_pocket_columns
from loki_core.linear_solvers.bordered import Border, BorderedSolve
from loki_core.linear_solvers.fluid_solve import FluidSolve
from loki_core.linear_solvers.system import Vector
from loki_core.objects.basics.capabilities import Faces
from loki_core.objects.liquid.air_pockets import air_as_fluid, find_pockets

Array = NDArray[Any]
BOUNDED_STEPS = 4  # corrections after walls let go, at most


class PressureBorder:
    """The pockets and bodies of one projection. Made collectively.

    Args:
        target: The fluid.
        mobility: Of its faces with ghosts.
        traps_air: Whether there are pockets.

    Attributes:
        pocket_pressures: q of the pockets [m/s], the largest pocket first.
    """

    def __init__(self, target: Faces, mobility: Array | None, *, traps_air: bool) -> None:
        self._target = target
        self._pocket, self._pockets = np.zeros(0, np.int32), 0
        parts = []
        if traps_air and mobility is not None:
            self._pocket, self._pockets = find_pockets(target)
            if self._pockets:
                parts.append(self._of_pockets(mobility))
        self._modes = [body.velocity_modes() for body in target.bodies]
        parts += [self._of_body(*pair) for pair in zip(target.bodies, self._modes, strict=True)]
        self._border = Border.joined(parts) if parts else None
        self._solve: BorderedSolve | None = None
        self._disagrees = 0.0  # what bounds and border left, of what they began with
        self.pocket_pressures = np.zeros(self._pockets)

    @property
    def is_empty(self) -> bool:
        """Whether nothing couples, which is the same on all ranks."""
        return self._border is None

    def _of_pockets(self, mobility: Array) -> Border:
        volume, comm = self._target.volume, self._target.volume.domain.comm
        r = self._target.resolution
        columns = np.zeros((self._pockets, len(self._pocket)))
        with volume.scratch("pocket", np.int32, resolution=r) as pocket:
            volume.local(pocket.name).reshape(-1)[:] = self._pocket
            volume.mark_written(pocket.name)
            volume.refresh(pocket.name)
            fill_pocket_columns(
                volume.with_ghosts("kind"), pocket.values, volume.with_ghosts("open_fraction"),
                mobility, volume.buckets.neighbours, columns,
            )  # fmt: skip
        flux = flux_into(self._target, air_as_fluid(volume.with_ghosts("kind")), None)
        into = np.bincount(self._pocket, flux, minlength=self._pockets + 1)[1:]
        surface = comm.all_reduce(columns.sum(axis=1), "sum")
        return Border(-columns, np.diag(surface), comm.all_reduce(into, "sum"))

    def _of_body(self, body: Any, modes: Array) -> Border:
        target = self._target
        columns = np.array([-flux_into(target, None, mode) for mode in modes])
        mass = np.asarray(body.mass_matrix(), np.float64) / target.face_mass
        return Border(columns, -mass, np.zeros(len(mass)))

    # -- the solve -------------------------------------------------------------------------

    def complete(self, solve: FluidSolve, b: Vector, q: Vector, **limits: Any) -> None:
        """Turn a solution of A q = b into that of all; A q = b holds for what b becomes."""
        assert self._border is not None
        self._solve = BorderedSolve(solve, self._border, **limits)
        self._solve.complete(b, q)

    def complete_bounded(
        self, b: Vector, q: Vector, let_go: Callable[[Vector, Vector, float], None], *, tol: float
    ) -> None:
        """Let walls go, and what couples follow, until both agree.

        Walls let go where the pressure is below that of all air: what comes in must come from it.
        """
        solve = self._solve
        assert solve is not None
        errors: list[float] = []
        for _ in range(BOUNDED_STEPS):
            least = min(0.0, solve.y[: self._pockets].min(initial=0.0))
            let_go(b, q, least)
            errors.append(solve.correct(b, q))
            if errors[-1] <= tol * errors[0]:
                return
        self._disagrees = errors[-1] / errors[0]

    @property
    def warning(self) -> str:
        """What went wrong, or nothing."""
        said = "" if self._solve is None else self._solve.warning
        if self._disagrees:
            more = f"walls that let go and air or bodies still differ by {self._disagrees:.2g}"
            said = f"{said}; {more}" if said else more
        return said

    def complete_displacement(self, b: Vector, q: Vector) -> None:
        """The same as `complete` for a displacement: pockets keep their volume, bodies stay."""
        if self._solve is not None and self._pockets:
            self._solve.complete(b, q, first=self._pockets, rhs=np.zeros(len(self._solve.y)))
            self._fill_pockets(q)

    def _fill_pockets(self, q: Vector) -> None:
        if self._pockets and self._solve is not None:
            inside = self._pocket > 0
            q[inside] = self._solve.y[self._pocket[inside] - 1]

    def fill_pockets(self, q: Vector) -> None:
        """Write the pressure of pockets to their cells."""
        self._fill_pockets(q)
        if self._solve is not None:
            self.pocket_pressures = self._solve.y[: self._pockets].copy()

    def write_pockets(self, pressure: Array, scale: float) -> None:
        """Write their pressure [Pa] to the cells of pockets; `scale` makes one of q."""
        inside = self._pocket > 0
        if self._pockets:
            pressure[inside] = scale * self.pocket_pressures[self._pocket[inside] - 1]

    def move_bodies(self) -> None:
        """Hand bodies what they gained, and let the grid know."""
        if not self._modes or self._solve is None:
            return
        volume, start = self._target.volume, self._pockets
        for body, modes in zip(self._target.bodies, self._modes, strict=True):
            change = self._solve.y[start : start + len(modes)]
            start += len(modes)
            body.gain(change)
            own = modes[:, : volume.buckets.local_count]
            volume.local("solid_velocity")[:] += np.tensordot(change, own, axes=1)
        volume.mark_written("solid_velocity")
        self._target.hold_known_faces()
