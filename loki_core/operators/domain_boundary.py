"""Domain Boundary: what a side of the domain box does to the gas.

    slip       a wall along which the gas glides
    no_slip    a wall that holds the gas; it may move along itself, as a belt does
    inflow     gas with a given velocity and given materials comes in (wind), or is sucked out
    open       ambient air: gas leaves and comes in as the pressure asks

Sides that no Behavior names are what `boundary_lower` and `boundary_upper` of the Solver Setup say;
a wall there holds the gas when a Viscosity Material acts on it, and lets it glide otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.grid_domain import FACES
from loki_core.errors import SetupError
from loki_core.objects.basics.capabilities import Faces
from loki_core.objects.gas.surroundings import INFLOW, NO_SLIP, OPEN, SLIP
from loki_core.operators.operator import Operator

SIDES = tuple(name.replace(" ", "_") for name in FACES)
CONDITIONS = {"slip": SLIP, "no_slip": NO_SLIP, "inflow": INFLOW, "open": OPEN}


class DomainBoundary(Behavior, kind="operator"):
    """Say what sides of the domain box do to the gas in the Group."""

    sides: tuple[str, ...] = parameter((), choices=(*SIDES, "all"), doc="Sides that it is about.")
    condition: str = parameter("no_slip", choices=tuple(CONDITIONS), doc="What they do.")
    velocity: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0),
        unit="m/s",
        is_spatial=True,
        doc="Of the wall, or of the gas that flows in.",
    )
    density: float = parameter(0.0, doc="Density channel of the gas that flows in.")
    temperature: float | None = parameter(
        None, unit="K", minimum=0.0, doc="Temperature of the gas that flows in; none is ambient."
    )

    def validate(self, place: str) -> None:
        """Check that a side is named."""
        if not self.sides:
            raise SetupError(f"{place}.sides is empty; name one of {', '.join(SIDES)}, all")


class DomainBoundaryAction(Operator[Faces], behavior=DomainBoundary):
    """Tells the Volume about its sides; it has no work of its own."""

    behavior: DomainBoundary
    settings: DomainBoundary

    def __init__(self, behavior: DomainBoundary, target: Faces) -> None:
        super().__init__(behavior, target)
        self._check_box()
        target.boundaries.append(self)

    def _check_box(self) -> None:
        domain = self.target.scope.domain
        for side in self._sides():
            limit = (domain.lower, domain.upper)[side % 2][side // 2]
            if not np.isfinite(limit):
                raise SetupError(
                    f"{self.target.scope.path}: DomainBoundary names {SIDES[side]}, but there is "
                    "no domain box; set domain_lower and domain_upper"
                )
            if domain.periodic[side // 2]:
                raise SetupError(f"DomainBoundary names {SIDES[side]}, but that axis is periodic")

    def _sides(self) -> list[int]:
        if "all" in self.behavior.sides:
            periodic = self.target.scope.domain.periodic
            return [side for side in range(6) if not periodic[side // 2]]
        return [SIDES.index(name) for name in self.behavior.sides]

    def apply(
        self,
        kinds: NDArray[np.int64],
        velocity: NDArray[np.float64],
        values: Mapping[str, list[float]],
    ) -> None:
        """Enter what this Behavior says: kinds [6], velocities [6, 3], materials by name [6]."""
        settings = self.settings
        for side in self._sides():
            kinds[side] = CONDITIONS[settings.condition]
            velocity[side] = settings.velocity
            if settings.condition == "inflow":
                given = {"density": settings.density, "temperature": settings.temperature}
                for name, value in given.items():
                    if name in values and value is not None:
                        values[name][side] = float(value)
