"""Volume Object: a gas on a sparse staggered grid. Wind, smoke, anything that flows.

    du/dt + (u . grad) u = -grad p / rho + div(viscous stress) / rho + f / m,     div u = d
    dc/dt + (u . grad) c = sources                     for every material channel c

A substep splits the operators (Stam 1999): velocities carry themselves along, Forces bring them to
u*, the Viscosity and the Pressure Material correct u*, and the material channels follow the result.
So what is written at the end of a frame is free of divergence. With `reflection` the velocity is
carried along in two halves with a projection between them, after which it is reflected about the
divergence-free field (Zehnder, Narain & Thomaszewski 2018).

The mass of the gas is the same everywhere (`density`); what makes it rise or fall is a Buoyancy
Force. Pressure is measured against the ambient air's own: a uniform gravity is balanced by the
ambient hydrostatic pressure, so it moves the gas only where it is heavier or lighter than that air.

Buckets are made around emission, around other Objects, and within `padding` voxels of whatever
differs from the ambient air; those that hold nothing are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError, SetupError
from loki_core.kernels.gas.mac_grid import (
    blow_in,
    bucket_deviation,
    let_ambient_faces_flow,
    reset_cells,
)
from loki_core.objects.basics.capabilities import Gas
from loki_core.objects.basics.object import Scope
from loki_core.objects.gas.fluid import Fluid
from loki_core.objects.gas.surroundings import Surroundings
from loki_core.objects.gas.volume_input import sample_into
from loki_core.objects.gas.volume_occupancy import needed_regions
from loki_core.objects.gas.volume_topology import Regions, whole_box
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]

SCHEMES = ("semi_lagrangian", "maccormack", "bfecc", "cubic")
LIMITERS = ("none", "clamp", "revert", "conserve")
TRIM_EVERY = 8  # substeps after which Buckets that hold nothing are dropped
#: Channels that the Object makes itself and that nobody may carry along as a material.
OWN_CHANNELS = (
    "velocity",
    "pressure",
    "open_fraction",
    "solid_velocity",
    "solid_grip",
    "solid_distance",
    "kind",
    "force",
    "drag",
    "start_velocity",
    "divergence",
    "compliance",
    "solid_share",
    "solid_flux",
    "solid_give",
)


class VolumeObject(Behavior, kind="object"):
    """Simulate a gas: wind, smoke, any channels that it carries."""

    voxel_size: float = parameter(
        0.05, unit="m", minimum=1.0e-6, doc="Edge of a voxel; a Bucket is mostly eight of them."
    )
    input: str | None = parameter(
        None, kind="stream", doc="Voxel stream with the fields that are there from the start."
    )
    region: str = parameter(
        "sparse",
        choices=("sparse", "box"),
        doc="Buckets only where something is, or in the whole domain box.",
    )
    around: str | None = parameter(
        None,
        kind="stream_or_object",
        doc="Input stream or Object that Buckets are always kept around.",
    )
    padding: int = parameter(
        16,
        minimum=2,
        maximum=1024,
        doc="Voxels of air around what is simulated; made anew when half of them are used up.",
    )
    channels: tuple[str, ...] = parameter(
        ("density", "temperature"),
        doc='Materials that the gas carries, as "name" or "name:background".',
    )
    density: float = parameter(
        1.204, unit="kg/m^3", minimum=1.0e-9, doc="Mass of the gas in a volume; air at 20 degC."
    )
    ambient_density: float | None = parameter(
        None, unit="kg/m^3", minimum=0.0, doc="Of the air around; none is as heavy as the gas."
    )
    ambient_temperature: float = parameter(
        293.15, unit="K", minimum=1.0e-3, doc="Temperature of the air around."
    )
    ambient_velocity: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0),
        unit="m/s",
        is_spatial=True,
        doc="Velocity of the air around: wind that blows in; when it changes all air follows.",
    )
    velocity_scheme: str = parameter(
        "maccormack",
        choices=(*SCHEMES, "none"),
        doc="How the velocity is carried along; none keeps a given flow.",
    )
    velocity_limiter: str = parameter(
        "revert", choices=LIMITERS[:-1], doc="What keeps the velocity within what was there."
    )
    channel_scheme: str = parameter(
        "cubic", choices=SCHEMES, doc="How the materials are carried along."
    )
    channel_limiter: str = parameter(
        "conserve",
        choices=LIMITERS,
        doc="What keeps materials within what was there; conserve is for the scheme cubic.",
    )
    midpoint_pressure: bool = parameter(
        True, doc="Let pressure act at both ends of a trace, not at its end alone: second order."
    )
    reflection: bool = parameter(
        False, doc="Carry the velocity in two halves about a reflection: keeps its energy."
    )
    activity: float = parameter(
        1.0e-3,
        minimum=0.0,
        doc="Part of a material's largest deviation from the background, or of one, that is "
        "taken for nothing.",
    )

    def validate(self, place: str) -> None:
        """Check the form of `channels`, and that scheme and limiter suit each other."""
        if self.channel_limiter == "conserve" and self.channel_scheme != "cubic":
            raise SetupError(
                f'{place}.channel_limiter = "conserve" is for channel_scheme = "cubic"; '
                f'with "{self.channel_scheme}" use "clamp", "revert" or "none"'
            )
        for text in self.channels:
            name, _, background = text.partition(":")
            if not name.isidentifier() or name in OWN_CHANNELS:
                raise SetupError(f'{place}.channels: "{name}" cannot be the name of a material')
            try:
                good = background == "" or np.isfinite(float(background))
            except ValueError:
                good = False
            if not good:
                raise SetupError(f'{place}.channels: "{text}" is not "name" or "name:number"')

    def voxel_size_hint(self) -> float | None:
        """Buckets suit the voxels."""
        return float(self.voxel_size)

    def create(self, scope: Scope) -> list[Any]:
        """Make the Object."""
        return [Volume(self, scope)]


class Volume(Fluid, Gas):
    """The gas of one Volume Object.

    Attributes:
        emissions: Actions that want Buckets around their source; they add themselves.
    """

    behavior: VolumeObject
    cost = 0.45  # of a voxel; with pressure it is 1, the unit of all costs

    def __post_init__(self) -> None:
        super().__post_init__()
        start = self.settings
        for text in self.behavior.channels:
            name, _, background = text.partition(":")
            default = start.ambient_temperature if name == "temperature" else 0.0
            self._add(name, background=float(background) if background else default)
        self.emissions: list[Any] = []
        self._wind = np.array(start.ambient_velocity, np.float64)  # that the air has followed
        if start.reflection:
            self.cost += 1.0  # the pressure is solved twice, once in the middle of advection

    @property
    def ambient_velocity(self) -> tuple[float, float, float]:
        """Wind."""
        wind: tuple[float, float, float] = self.settings.ambient_velocity
        return wind

    @property
    def ambient_temperature(self) -> float:
        """Of the air around [K]."""
        return float(self.settings.ambient_temperature)

    @property
    def ambient_density(self) -> float:
        """Of the air around [kg/m^3]; as heavy as the gas unless it is given."""
        given = self.settings.ambient_density
        return float(self.settings.density if given is None else given)

    @property
    def materials(self) -> tuple[str, ...]:
        """Channels that the gas carries along."""
        return tuple(
            name
            for name, channel in self.volume.channels.items()
            if name not in OWN_CHANNELS and channel.location == "cell" and channel.dtype.kind == "f"
        )

    def add_material(self, name: str, background: float = 0.0) -> None:
        """Carry one more channel along."""
        if name in OWN_CHANNELS:
            raise SetupError(f'{self.path}: "{name}" cannot be the name of a material')
        if name not in self.volume.channels:
            self._add(name, background=background)

    # -- start -----------------------------------------------------------------------------

    def ingest(self) -> None:
        """Make the first Buckets and sample the input's fields."""
        if self.keeps_start:
            self._add("start_velocity", components=3, derived=True)
        stream = None
        if self.behavior.input is not None:
            stream = self.scope.inputs[self.behavior.input]
            label = f'{self.path}: input "{self.behavior.input}"'
            if not isinstance(stream, Voxels):
                raise InputError(f"{label} is a {type(stream).__name__}; voxels are expected")
            for name, channel in stream.channels.items():
                if name not in OWN_CHANNELS and channel.components == 1:
                    self.add_material(name, float(channel.background))
        self.volume.set_buckets(self._wanted(stream))
        if stream is not None:
            for name in stream.channels:
                if name == "velocity" or name in self.materials:
                    sample_into(self.volume, name, stream, label=label)

    # -- an input in motion ----------------------------------------------------------------

    def overriding_stream(self) -> Any:
        return None if self.behavior.input is None else self.scope.inputs[self.behavior.input]

    def take_details(self, stream: Any) -> None:
        """Voxels have none."""

    def take_overrides(self, stream: Any, changed: Mapping[str, list[str]]) -> None:
        """Take materials that override parameters as the input has them now, in all Buckets.

        Raises:
            InputError: One was not there at the start, or is not there any more.
        """
        label = f'{self.path}: input "{self.behavior.input}"'
        for name in changed["voxel"]:
            if name not in stream.channels or name not in self.volume.channels:
                when = "no more" if name in self.volume.channels else "now, but not at the start"
                raise InputError(
                    f'{label} has the channel "{name}" {when}; it overrides a parameter, so its '
                    "values may change, but it may not come or go"
                )
            sample_into(self.volume, name, stream, label=label)

    def _wanted(self, stream: Voxels | None = None) -> NDArray[np.int32]:
        """Buckets that the volume should start with; any rank may name any."""
        if self.behavior.region == "box":
            return whole_box(self.scope.domain, self.path)
        return self._padded(needed_regions(self, stream))

    def _padded(self, needed: Regions, part: int = 1) -> NDArray[np.int32]:
        """Buckets within the padding, or a part of it."""
        voxels = int(self.settings.padding) // part
        return needed.padded(self.scope.domain, voxels, self.resolution)

    # -- Buckets and boundaries ------------------------------------------------------------

    @task(Stage.ADAPT_TOPOLOGY, layout=("volume",))
    def adapt(self, access: Access, step: Step) -> None:
        """Create Buckets where they are needed and drop those that hold nothing."""
        if self.behavior.region == "sparse":
            domain, needed = self.scope.domain, needed_regions(self, dt=step.dt)
            # Padding is made anew where half of it is used up, so that Buckets, and with them the
            # matrices, stay for several steps; now and then those that hold nothing go.
            least = self._padded(needed, 2)
            lacks = domain.comm.any(not self.volume.buckets.stored(least).all())
            is_empty = not domain.comm.any(len(needed.coords) > 0)
            if lacks or is_empty or step.substep % TRIM_EVERY == 0:
                self.volume.set_buckets(self._padded(needed))

    # -- the step --------------------------------------------------------------------------

    @property
    def task_data(self) -> dict[str, Any]:
        """And the points of bodies that Buckets are kept around."""
        around = self.scope.others.get(self.behavior.around or "")
        if around is None or around.kept_by != "body":
            return super().task_data
        return super().task_data | {"around": around.particles}

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the channels that are carried along."""
        has = self.volume.channels
        stage, declaration = super().declare(name, stage, declaration)
        extra: dict[str, tuple[str, ...]] = {
            "advect_momentum": ("start_velocity",),
            "advect_channels": self.materials,
        }
        writes = tuple(f"volume.{c}" for c in extra.get(name, ()) if c in has)
        reads: tuple[str, ...] = ()
        if name == "adapt" and "around" in self.task_data:
            reads = ("around.position",)
        if name == "advect_momentum" and self.colliders:
            reads = ("volume.solid_velocity", *(("volume.solid_grip",) if self.some_slip else ()))
        if name == "advect_momentum" and self.projector is not None:
            if self.behavior.reflection:  # which projects
                writes = (*writes, *self.moved_by_pressure())
                reads = (*reads, *self.projection_reads())
            elif self.behavior.midpoint_pressure:
                reads = (*reads, "volume.pressure")
        if name == "advect_channels" and not self.materials:  # nothing is carried
            declaration = replace(declaration, reads=(), halo=0)
        reads = tuple(one for one in dict.fromkeys(reads) if one not in writes)
        return stage, replace(declaration, writes=(*declaration.writes, *writes), local_reads=reads)

    @task(
        Stage.ADVECT_MOMENTUM,
        reads=("volume.kind", "volume.open_fraction"),
        writes=("volume.velocity",),
        halo=1,
    )
    def advect_momentum(self, access: Access, step: Step) -> None:
        """Carry the velocity along itself."""
        settings, volume = self.settings, self.volume
        if self.projector is not None:
            self.projector.begin_step(step.frame)
        if settings.velocity_scheme == "none":
            self._keep_start()
            return
        surroundings = self.surroundings()
        self._follow_wind()
        self.extend_into_solids(["velocity"])
        with volume.scratch(
            "advecting", components=3, resolution=self.resolution, location="face"
        ) as advecting:
            if settings.reflection and self.projector is not None:
                half = 0.5 * step.dt
                self._carry("velocity", half, surroundings)
                self._restore_known_faces(surroundings)
                advected = volume.local("velocity").copy()
                self.projector.project(half)
                self.warning = self.projector.report.warning
                projected = volume.local("velocity")
                # Reflected about the divergence-free field, in which it is carried on.
                volume.local(advecting.name)[:] = projected
                projected[:] = 2 * projected - advected
                self.extend_into_solids(["velocity", advecting.name])
                self._carry(advecting.name, half, surroundings)
            elif settings.midpoint_pressure and self.projector is not None:
                volume.local(advecting.name)[:] = volume.local("velocity")
                self.projector.push(0.5 * step.dt)
                self._carry(advecting.name, step.dt, surroundings)
                if self.viscous:
                    # Viscous stress then acts on nearly the final velocity, whose slip along walls
                    # the pressure does not spoil again (van Kan 1986).
                    self.projector.push(0.5 * step.dt)
            else:
                self._carry("velocity", step.dt, surroundings)
        self._restore_known_faces(surroundings)
        self._keep_start()

    def _follow_wind(self) -> None:
        """Let the ambient air blow in where Buckets end, and change its velocity everywhere.

        Air that gets faster far away is driven by a pressure gradient that acts here too.
        """
        wind = np.array(self.settings.ambient_velocity, np.float64)
        change, self._wind = wind - self._wind, wind
        if self.behavior.region != "sparse" or not (np.any(wind) or np.any(change)):
            return
        volume = self.volume
        volume.channel("velocity").background = tuple(wind.tolist())
        blow_in(
            volume.local("kind"), volume.local("open_fraction"), change, wind,
            volume.local("velocity"),
        )  # fmt: skip
        volume.mark_written("velocity")

    def _carry(self, advecting: str, dt: float, surroundings: Surroundings) -> None:
        """Carry the velocity along a face channel."""
        from loki_core.objects.gas.advection import advect

        self.volume.mark_written("velocity")
        self.volume.mark_written(advecting)
        advect(
            self.volume,
            ("velocity",),
            velocity=advecting,
            dt=dt,
            scheme=self.settings.velocity_scheme,
            limiter=self.settings.velocity_limiter,
            surroundings=surroundings,
        )

    def _keep_start(self) -> None:
        if self.keeps_start:
            self.volume.local("start_velocity")[:] = self.volume.local("velocity")

    def _restore_known_faces(self, surroundings: Surroundings) -> None:
        """Give faces of walls and solids their own velocity again."""
        self.hold_known_faces()
        self.let_ambient_faces_flow(surroundings)
        self.volume.mark_written("velocity")

    def let_ambient_faces_flow(self, surroundings: Surroundings | None = None) -> None:
        """Let the outermost faces of the ambient air follow the next ones inside."""
        around = self.surroundings() if surroundings is None else surroundings
        volume, buckets = self.volume, self.volume.buckets
        let_ambient_faces_flow(
            volume.with_ghosts("kind"), buckets.local_coords, around.lower, around.upper,
            buckets.neighbours, volume.local("velocity"),
        )  # fmt: skip

    def extend_into_solids(self, names: Sequence[str]) -> None:
        """Fill solid cells and faces near the gas with what the gas has there.

        Solids that hold the gas keep their own velocity.
        """
        if self.colliders and not self.some_slip:
            names = [name for name in names if self.volume.channel(name).location == "cell"]
        if self.colliders and names:
            from loki_core.objects.gas.extension import extend

            extend(self.volume, names, layers=3)

    def uniform_acceleration(self) -> NDArray[np.float64]:
        """What uniform forces do beyond the ambient air's hydrostatic pressure [m/s^2]."""
        return super().uniform_acceleration() * self.uniform_part

    @property
    def uniform_part(self) -> float:
        """What gas weighs beyond the ambient air that it displaces, over its own weight."""
        return 1.0 - self.ambient_density / float(self.settings.density)

    @task(Stage.ADVECT_VOLUMES, reads=("volume.velocity", "volume.kind"), halo=1)
    def advect_channels(self, access: Access, step: Step) -> None:
        """Carry the materials along."""
        from loki_core.objects.gas.advection import advect

        names, volume, settings = self.materials, self.volume, self.settings
        if not names:
            return
        self.extend_into_solids(names)
        advect(
            volume,
            names,
            velocity="velocity",
            dt=step.dt,
            scheme=settings.channel_scheme,
            limiter=settings.channel_limiter,
            surroundings=self.surroundings(),
        )
        if self.colliders:
            for name in names:
                background = np.array(volume.channel(name).background, self.scope.dtype)
                reset_cells(volume.local("kind"), background, volume.local(name))

    # -- checks and output -----------------------------------------------------------------

    def check_state(self) -> str | None:
        """First Bucket that is not finite, or faster than is plausible."""
        buckets = self.volume.buckets
        fast, limit = self.bucket_speeds(), float(self.scope.settings.maximum_speed)
        deviation = np.zeros(buckets.local_count)
        for name in self.materials:
            bucket_deviation(self.volume.local(name), 0.0, deviation)
        for what, size, bound in (
            ("velocity", fast, limit),
            ("a material", deviation, np.finfo(self.scope.dtype).max),
        ):
            bad = ~(size <= bound)
            if np.any(bad):
                b = int(np.argmax(bad))
                corner = buckets.local_coords[b] * self.scope.domain.bucket_size
                place = (corner + self.scope.domain.origin).tolist()
                found = f"{size[b]:.3g} m/s" if np.isfinite(size[b]) else "not finite"
                return f"{what} is {found} in the Bucket at {place} m (at most {bound:.3g})"
        return None

    def output(self) -> Voxels:
        """Velocity, pressure and materials in world space, this rank's Buckets."""
        return self.voxels(("velocity", "pressure", *self.materials))

    def state(self) -> dict[str, Any]:
        return {"wind": self._wind.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Forget what was derived from the Buckets; it is found again."""
        self._geometry = None
        self._wind = np.array(state["wind"], np.float64)
