"""Liquid Mesh: a mesh in which the particles of a liquid come or go; sources and sinks build on it.

It is placed relative to the domain's origin, and placed anew when the stream gives another mesh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from loki_core.data.body import Body
from loki_core.data.surface import Surface
from loki_core.errors import InputError
from loki_core.objects.basics.capabilities import Points
from loki_core.operators.operator import Operator

if TYPE_CHECKING:
    from loki_core.operators.liquid_sink import LiquidSink
    from loki_core.operators.liquid_source import LiquidSource

Array = NDArray[Any]


LiquidTarget = TypeVar("LiquidTarget", bound=Points)


def no_faces() -> Surface:
    """A mesh that holds nothing."""
    return Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))


class LiquidMesh(Operator[LiquidTarget]):
    """A mesh in one liquid."""

    behavior: LiquidSource | LiquidSink

    def __init__(self, behavior: LiquidSource | LiquidSink, target: LiquidTarget) -> None:
        super().__init__(behavior, target)
        self._placed: tuple[Any, Any, Any] | None = None  # of a mesh, about an origin

    @property
    def label(self) -> str:
        """What messages call the mesh."""
        return f'{self.path or type(self.behavior).__name__}: source "{self.behavior.source}"'

    #: How far from its faces the mesh acts [m].
    reach = 0.0

    @property
    def mesh(self) -> Any:
        """The mesh as it is now.

        Raises:
            InputError: It is another type of stream.
        """
        name = self.behavior.source
        assert name is not None  # or there is no Action
        mesh = self.target.scope.inputs[name]
        if not isinstance(mesh, (Surface, Body)):
            raise InputError(f"{self.label} is a {type(mesh).__name__}; a closed mesh is expected")
        return mesh

    def placed(self) -> Any:
        """The mesh's triangles relative to the domain's origin; kept while it is the same."""
        from loki_core.objects.colliders.triangles import Triangles

        mesh, domain = self.mesh, self.target.scope.domain
        known = self._placed
        if known is not None and known[0] is mesh and np.array_equal(known[1], domain.origin):
            return known[2]
        place = domain.to_relative(mesh.positions)
        placed = Triangles.of(mesh, label=self.label).at(place, label=self.label)
        self._placed = (mesh, domain.origin.copy(), placed)
        return placed

    def near(self, placed: Any, margin: float) -> NDArray[np.bool_]:
        """Which local particles are in Buckets that the mesh reaches, shape [n].

        Args:
            margin: How far outside places may lie that are moved at random [m].
        """
        particles, size = self.target.particles, self.target.scope.domain.bucket_size
        corners = placed.tree.corners.reshape(-1, 3)
        reach = self.reach + margin
        lower = np.floor((corners.min(axis=0) - reach) / size)
        upper = np.floor((corners.max(axis=0) + reach) / size)
        coords = particles.buckets.local_coords
        chosen = np.all((coords >= lower) & (coords <= upper), axis=1)
        counts = np.diff(particles.offsets[: len(coords) + 1])
        return np.repeat(chosen, counts)


class SourceMesh(LiquidMesh[LiquidTarget]):
    """A mesh that one liquid comes out of.

    Attributes:
        debt: Volume that is due [m^3], where a flux is given.
    """

    behavior: LiquidSource

    def __init__(self, behavior: LiquidSource, target: LiquidTarget) -> None:
        super().__init__(behavior, target)
        self.debt = 0.0
        if behavior.channels:
            from loki_core.objects.particles.mesh_to_particles import make_room

            make_room(target.particles, self.mesh, behavior.channels, label=self.label)

    #: Thickness of the thinnest shell [m].
    thinnest: float

    @property
    def shell(self) -> float | None:
        """Thickness of the shell [m], if it is one."""
        if self.behavior.mode != "shell":
            return None
        return max(float(self.of_mesh("thickness")), self.thinnest)

    def of_mesh(self, name: str) -> Any:
        """A parameter that holds for all of the mesh, [c] or one number."""
        from loki_core.objects.particles.source_parameters import of_source

        return of_source(self.behavior, name, self.mesh, item=self.target, label=self.label)

    def at_places(self, name: str, nearest: Any, count: int) -> Array:
        """A parameter at places on the mesh, [n] or [n, c]; [1] or [1, c] where it is the same."""
        from loki_core.objects.particles.source_parameters import resolve_on_source

        return resolve_on_source(
            self.behavior, name, self.mesh, nearest.carried, count, item=self.target,
            label=self.label,
        ).values  # fmt: skip

    @property
    def speed(self) -> float:
        """How fast new particles are, at most [m/s]; steps are short enough for the first, too."""
        from loki_core.objects.particles.mesh_to_particles import channels_of
        from loki_core.objects.particles.source_parameters import largest_on_source

        given = sum(
            largest_on_source(self.behavior, name, self.mesh, item=self.target, label=self.label)
            for name in ("velocity", "normal_velocity")
        )
        _, own = channels_of(self.mesh).get("velocity", ("", np.zeros((0, 3))))
        return given + float(np.linalg.norm(own, axis=-1).max(initial=0.0))

    def carried(self, place: Array, placed: Any) -> dict[str, Array]:
        """Velocity of new particles at places [n, 3], and the mesh's channels that they have."""
        from loki_core.objects.particles.mesh_to_particles import Nearest

        mesh, whole, along = self.mesh, self.of_mesh("velocity"), self.of_mesh("normal_velocity")
        velocity = np.tile(whole, (len(place), 1))
        if not len(place) or not (along or any(mesh.channels.values())):
            return {"velocity": velocity}
        nearest = Nearest(placed, place)
        values = nearest.channels(mesh, self.target.particles, label=self.label)
        velocity[:] = self.at_places("velocity", nearest, len(place))
        velocity += values.pop("velocity", np.zeros(3))
        speeds = self.at_places("normal_velocity", nearest, len(place))
        if np.any(speeds):
            velocity += speeds[:, None] * nearest.normals()
        return {**values, "velocity": velocity}

    def within_flux(self, count: int, volume: float, dt: float, pause: float = 0.0) -> int:
        """How many of `count` particles of a volume [m^3] the flux lets out in a step.

        Args:
            pause: Time from one layer of places to the next [s].
        """
        from loki_core.objects.particles.source_parameters import says

        if not says(self.behavior, "flux", self.mesh, item=self.target):
            return count
        flux = float(self.of_mesh("flux"))
        self.debt += flux * dt
        count = min(int(self.debt / volume + 1e-9), count)
        # What finds no room now comes later, but not all at once.
        self.debt = min(self.debt - count * volume, flux * max(dt, pause) + volume)
        return count

    def state(self) -> dict[str, Any]:
        """What is due."""
        return {"debt": self.debt}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self.debt = float(state.get("debt", 0.0))
