"""Line search: which part of a Newton correction lowers the incremental potential.

    Phi(x) = 1/2 |x - y|^2_M / h^2 + sum of Constraint energies - work of Forces

Its minimum is the end of a backward Euler step (Gast et al. 2015), so a correction that does not
lower it is halved until it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import DivergenceError
from loki_core.objects.solids.unknowns import POSITION
from loki_core.parallel.reduce import exact_sum

if TYPE_CHECKING:
    from loki_core.objects.solids.solid_system import SolidSystem

Kept = Sequence[tuple[NDArray[Any], NDArray[Any]]]  # arrays, and what they were

HALVINGS = 12  # of a Newton step before it is taken to lead nowhere
EPSILON = float(np.finfo(np.float64).eps)
ROUNDINGS = 8.0  # between an unknown and the potential, in epsilons


class LineSearch:
    """Moves all solids of a system by a part of its correction.

    Attributes:
        is_rounding: Whether what the last correction could gain was rounding.
    """

    def __init__(self, system: SolidSystem) -> None:
        self._system = system
        self.is_rounding = False

    def move(self, dt: float) -> float:
        """Halve the step until the potential falls; returns the part of it. Collective.

        A step that turns edges far would stretch them; where it does not help as it is, the same is
        tried with edges that keep their lengths, a curve with the same tangent.

        Raises:
            DivergenceError: On all ranks, where no part of the step lowers the potential.
        """
        self.is_rounding = False
        start = self._potential(dt)
        kept = [pair for item in self._system.solids for pair in item.iterate()]
        fraction, rounding = 1.0, -1.0
        for _ in range(HALVINGS):
            for turning in (False, True):
                work = self._try(fraction, dt, turning)
                after = self._potential(dt) - work
                if after <= start:
                    return fraction
                _take_back(kept)
                # Near the minimum the fall is smaller than the round-off of the potential itself.
                if rounding < 0.0:
                    rounding = self._rounding(abs(start))
                if after <= start + rounding + ROUNDINGS * EPSILON * abs(work):
                    self._try(fraction, dt, turning)
                    self.is_rounding = True
                    return fraction
            fraction *= 0.5
        raise self._failure(fraction, dt, kept)

    def _try(self, fraction: float, dt: float, turning: bool) -> float:
        """Move all solids by a part of the correction; returns the work of Forces [J]. Collective.

        Args:
            turning: Whether edges keep their lengths.
        """
        works = []
        for item in self._system.solids:
            change = self._system.change[item.unknowns.range]
            if turning:
                moved = item.displace_turning(change, fraction, dt)
            else:
                item.displace(change, fraction, dt)
                moved = fraction * item.unknowns.gather(change, POSITION)
            works.append(item.force_work(moved))
        return exact_sum(self._system.comm, np.array(works))

    def _potential(self, dt: float) -> float:
        parts = [item.inertial_energy(self._system.change, dt) for item in self._system.solids]
        parts += [constraint.energies(dt) for constraint in self._system.constraints]
        return exact_sum(self._system.comm, np.concatenate(parts)) if parts else 0.0

    def _rounding(self, energy: float) -> float:
        """By how much rounding may change the potential, which is this energy [J]. Collective.

        Unknowns are known to epsilon of their size, so a length far from the domain's origin is
        known less well than its own size says, and stiffness makes energy of that.
        """
        system = self._system
        sizes = np.zeros(system.size)
        for item in system.solids:
            item.fill_sizes(sizes[item.unknowns.range])
        extended = system.with_ghosts(sizes)
        parts = [np.array([item.inertial_rounding() for item in system.solids])]
        parts += [constraint.rounding(extended) for constraint in system.constraints]
        return ROUNDINGS * EPSILON * (energy + exact_sum(system.comm, np.concatenate(parts)))

    def _failure(self, fraction: float, dt: float, kept: Kept) -> DivergenceError:
        """Say which Constraint's energy rises most on a short way along the step. Collective."""
        before = self._energies(dt)
        self._try(fraction, dt, False)
        rises = self._energies(dt) - before
        _take_back(kept)
        solids = ", ".join(item.path for item in self._system.solids)
        text = f"{solids}: no part of the Newton step lowers the potential"
        if len(rises):
            worst = self._system.constraints[int(np.argmax(rises))].path
            text += f"; it is {worst} whose energy rises most"
        error = DivergenceError(text)
        error.together = True
        return error

    def _energies(self, dt: float) -> NDArray[np.float64]:
        """Energy of each Constraint over all ranks [J]. Collective."""
        system = self._system
        return np.array([exact_sum(system.comm, one.energies(dt)) for one in system.constraints])


def _take_back(kept: Kept) -> None:
    for now, before in kept:
        now[:] = before
