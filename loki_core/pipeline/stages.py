"""Stages, in execution order: the time integrator's contents page.

User-facing Stages are stable names at which expressions may run; developer-facing ones may be
added, renamed or reordered here, and nowhere else. A Stage belongs to a loop of the timeline: it
runs once ("setup"), per frame, per substep, or per Newton iteration.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class StageInfo(NamedTuple):
    """What is known of a Stage: its loop, whether users see it, and its one-line meaning."""

    loop: str
    user_facing: bool
    doc: str


def _user(loop: str, doc: str) -> StageInfo:
    return StageInfo(loop, True, doc)


def _developer(loop: str, doc: str) -> StageInfo:
    return StageInfo(loop, False, doc)


class Stage(Enum):
    """A named place on the timeline. Members stand in execution order."""

    INGEST = _user("setup", "once, and when inputs change topology")
    FRAME_BEGIN = _user("frame", "animated inputs and parameters")

    SUBSTEP_BEGIN = _user("substep", "dt is chosen: a fixed count, or adaptive")
    REBUCKET = _developer("substep", "particles find their Buckets and ranks")
    ADAPT_TOPOLOGY = _developer("substep", "volumes create and remove Buckets")
    BALANCE_LOAD = _developer("substep", "Buckets move between ranks")
    NUMBER_SOLIDS = _developer("substep", "solids' unknowns are numbered where bodies changed")
    UPDATE_COLLIDERS = _developer("substep", "colliders at t and t + dt")
    UPDATE_BOUNDARIES = _developer("substep", "walls and colliders become open fractions of faces")
    EMIT = _developer("substep", "sources add to volumes")

    GROUP_ENTER = _user("substep", "particles arrive from other Groups")

    PRE_SOLVE = _user("substep", "the state at t is complete")
    EMIT_CONSTRAINTS = _developer("substep", "constraints find their elements and values at t")
    RESET_ACCUMULATORS = _developer(
        "substep", "start values of the step are kept, sums are cleared"
    )
    PARTICLES_TO_GRID = _developer("substep", "particles' mass and momentum go to the grid")
    ADVECT_MOMENTUM = _developer("substep", "volumes' velocities carry themselves along")
    DETECT_CONTACTS = _developer("substep", "contacts are found, constraints emitted")

    UPDATE_SOLIDS = _user("newton", "a Newton iteration of the solids begins")
    RESET_FORCES = _developer("newton", "forces and Jacobians are cleared")
    SORT_POINTS = _developer("newton", "points find the Buckets of the fluids around them")
    EVALUATE_FORCES = _developer("newton", "Forces add f and df/dx")
    EVALUATE_CONSTRAINTS = _developer("newton", "Constraints add their terms")
    ASSEMBLE_SOLIDS = _developer("newton", "inertia and forces join the solids' linear system")
    FIND_REST_SHAPES = _developer("newton", "rest shapes are found that carry the forces")
    SOLVE_SOLIDS = _developer("newton", "the linear system gives the correction")
    RESPOND_TO_CONTACTS = _developer("newton", "hard contacts correct the correction")
    MOVE_ITERATE = _developer("newton", "positions follow the corrected velocities")

    UPDATE_FLUIDS = _user("newton", "the fluids' solves begin, solids fixed")
    TRANSFER_SOLIDS_TO_GRID = _developer(
        "newton", "solids' velocities, inertia and drag go to the grid"
    )
    EVALUATE_FLUID_FORCES = _developer("newton", "Forces add f and df/dx on the faces of volumes")
    APPLY_FLUID_FORCES = _developer("newton", "u* by operator splitting, implicit in drag")
    BALANCE_SURFACE = _developer(
        "newton", "a first pressure meets surface tension, where viscous stress comes next"
    )
    SOLVE_VISCOSITY = _developer("newton", "viscous stress")
    SOLVE_PRESSURE = _developer("newton", "incompressibility")
    FEED_BACK_TO_SOLIDS = _developer("newton", "fluid forces return to the solids")

    ADVECT = _user("substep", "velocities at t + dt are known")
    REMEMBER_CONSTRAINTS = _developer("substep", "constraints keep what the next step begins with")
    GRID_TO_PARTICLES = _developer("substep", "grid velocities return to particles")
    MEET_COLLIDERS = _developer("substep", "ways of particles end or turn at Colliders")
    MOVE_PARTICLES = _developer("substep", "particles move and age, walls hold them")
    ADVECT_VOLUMES = _developer("substep", "volumes move")
    SOLVE_SECONDARIES = _developer("substep", "SPH, PBF and droplets")
    EMIT_PARTICLES = _developer(
        "substep", "particles born in the substep appear, as old as they are"
    )

    GROUP_EXIT = _user("substep", "particles leave for other Groups")

    SUBSTEP_END = _user("substep", "the state at t + dt is complete")
    REMOVE_DEAD = _developer("substep", "dead particles are masked; compaction comes with REBUCKET")
    CHECK_STATE = _developer("substep", "non-finite and implausible states are refused")

    MAKE_SURFACES = _developer("frame", "surfaces are made of liquids, after INGEST too")
    FRAME_END = _user("frame", "outputs and checkpoints")

    @property
    def loop(self) -> str:
        """The loop that the Stage belongs to: "setup", "frame", "substep" or "newton"."""
        return self.value.loop

    @property
    def user_facing(self) -> bool:
        """Whether users may run expressions here."""
        return self.value.user_facing

    @property
    def doc(self) -> str:
        """What happens here, in one line."""
        return self.value.doc

    @property
    def order(self) -> int:
        """Place in execution order, from 0."""
        return _ORDER[self.name]


_ORDER = {stage.name: number for number, stage in enumerate(Stage)}

SUBSTEP_BEFORE_NEWTON = tuple(
    stage for stage in Stage if stage.loop == "substep" and stage.order < Stage.UPDATE_SOLIDS.order
)
NEWTON = tuple(stage for stage in Stage if stage.loop == "newton")
NEWTON_SOLIDS = tuple(stage for stage in NEWTON if stage.order < Stage.UPDATE_FLUIDS.order)
NEWTON_FLUIDS = tuple(stage for stage in NEWTON if stage.order >= Stage.UPDATE_FLUIDS.order)
SUBSTEP_AFTER_NEWTON = tuple(
    stage for stage in Stage if stage.loop == "substep" and stage.order > Stage.UPDATE_SOLIDS.order
)
USER_STAGES = tuple(stage.name for stage in Stage if stage.user_facing)
