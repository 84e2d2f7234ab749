"""Solver settings: what belongs to a Solver Setup as a whole."""

from __future__ import annotations

from loki_core.behavior import Declaration, parameter
from loki_core.errors import SetupError
from loki_core.parameter import show

BOUNDARIES = ("open", "wall", "periodic")
_AXES = ("x", "y", "z")


class SolverSettings(Declaration):
    """What belongs to the Solver Setup as a whole."""

    precision: str = parameter(
        "single", choices=("single", "double"), doc="Storage of bulk particles and voxels."
    )
    bucket_size: float | None = parameter(
        None, unit="m", minimum=1.0e-6, doc="Edge of a Bucket; none chooses it from the Objects."
    )
    curve: str = parameter(
        "hilbert", choices=("hilbert", "morton"), doc="Space-filling curve that orders Buckets."
    )
    frames_per_second: float = parameter(
        24.0, unit="1/s", minimum=0.01, maximum=1.0e5, doc="Frames in one second."
    )
    start_frame: int = parameter(
        1, minimum=-1_000_000, maximum=1_000_000, doc="The frame at time zero."
    )
    substeps: int = parameter(
        1, minimum=1, maximum=100_000, doc="Substeps of a frame; the fewest when adaptive."
    )
    adaptive_substeps: bool = parameter(
        False, doc="Let speed, forces and contacts choose the number of substeps."
    )
    max_substeps: int = parameter(
        64, minimum=1, maximum=100_000, doc="Most substeps of a frame when adaptive."
    )
    courant_number: float = parameter(
        1.0,
        minimum=1.0e-3,
        maximum=100.0,
        doc="Voxels, or Buckets without voxels, that anything may cross in a substep.",
    )
    newton_iterations: int = parameter(
        1,
        minimum=1,
        maximum=10_000,
        doc="Most Newton iterations of a substep; with 1, solids that turn too far get some more.",
    )
    newton_tolerance: float = parameter(
        1.0e-4,
        minimum=0.0,
        maximum=1.0,
        doc="Relative velocity correction that ends the Newton loop.",
    )
    retries: int = parameter(
        3, minimum=0, maximum=30, doc="How often a bad substep is halved and tried again."
    )
    domain_lower: tuple[float, float, float] | None = parameter(
        None, unit="m", doc="Lower corner of the domain box; none is unbounded."
    )
    domain_upper: tuple[float, float, float] | None = parameter(
        None, unit="m", doc="Upper corner of the domain box; none is unbounded."
    )
    boundary_lower: tuple[str, str, str] = parameter(
        ("open", "open", "open"), choices=BOUNDARIES, doc="Lower sides of the box along x, y, z."
    )
    boundary_upper: tuple[str, str, str] = parameter(
        ("open", "open", "open"), choices=BOUNDARIES, doc="Upper sides of the box along x, y, z."
    )
    random_seed: int = parameter(
        0, minimum=0, maximum=2**63 - 1, doc="Seed of everything that is drawn at random."
    )
    checkpoint_every: int = parameter(
        0,
        minimum=0,
        maximum=1_000_000,
        doc="Frames between checkpoints; 0 leaves it to whoever runs the setup.",
    )
    balance_every: int = parameter(
        20,
        minimum=0,
        maximum=1_000_000,
        doc="Substeps between looks at the load, after which data move if that pays; 0 never.",
    )
    balance_weights: str = parameter(
        "model",
        choices=("model", "timings"),
        doc="What Buckets weigh: a stored cost model, reproducible; or measured times, with which "
        "two runs are the same to a tolerance only.",
    )
    maximum_speed: float = parameter(
        1.0e5, unit="m/s", minimum=1.0e-6, doc="A state beyond this is implausible: rolled back."
    )

    def validate(self, place: str) -> None:
        """Check the domain box and its sides against each other."""
        for name, value in self.values().items():
            if hasattr(value, "interpolation"):
                raise SetupError(f"{place}.{name} belongs to the whole run and takes no keyframes")
        lower, upper = self.domain_lower, self.domain_upper
        if (lower is None) != (upper is None):
            missing = "domain_lower" if lower is None else "domain_upper"
            raise SetupError(f"{place}.{missing} is missing; a domain box has both corners")
        for axis, name in enumerate(_AXES):
            if lower is not None and upper is not None and not lower[axis] < upper[axis]:
                raise SetupError(
                    f"{place}.domain_upper = {show(upper)} m is not above "
                    f"domain_lower = {show(lower)} m along {name}"
                )
            sides = self.boundary_lower[axis], self.boundary_upper[axis]
            if sides.count("periodic") == 1:
                raise SetupError(
                    f"{place}: the {name} axis is periodic on one side only; set both "
                    f"boundary_lower and boundary_upper to periodic"
                )
            if sides != ("open", "open") and lower is None:
                kind = next(side for side in sides if side != "open")
                raise SetupError(
                    f"{place}: a {kind} boundary along {name} needs a domain box; "
                    "set domain_lower and domain_upper"
                )
        if self.adaptive_substeps and self.max_substeps < self.substeps:
            raise SetupError(
                f"{place}.max_substeps = {self.max_substeps} is below substeps = {self.substeps}"
            )

    @property
    def frame_duration(self) -> float:
        """Length of a frame [s]."""
        return 1.0 / self.frames_per_second

    def time_of_frame(self, frame: float) -> float:
        """Return the time [s] at the start of a frame."""
        return (frame - self.start_frame) / self.frames_per_second
