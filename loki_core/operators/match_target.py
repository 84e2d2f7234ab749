"""Match Target: solids come to rest in a given shape, though Forces pull at them.

    f(x_target, p) = 0                     the sag-free problem at the target's shape
    dx/dp = -[df/dx]^-1 df/dp              implicit function theorem (paper, 6.3)

The first gives the rest parameters p at once where they are as many as the unknowns. Where they are
not, because only some Constraints may change or bounds are met, Gauss-Newton iterations follow:
the equilibrium x(p) is found, and p takes the step that moves it closest to the target. Of all such
steps that of least energy is taken. df/dx is the matrix that the solid's own Newton iteration has.
Loads are those at the start of the run, wherever the solid is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.data.curves import Curves
from loki_core.errors import InputError
from loki_core.objects.basics.capabilities import Joints
from loki_core.objects.solids.unknowns import POSITION
from loki_core.operators.operator import Operator
from loki_core.operators.rest_problem import (
    RestProblem,
    adjustable_constraints,
    external_load,
    refuse_unknown_names,
    take_new_rest,
    to_start,
    undisturbed,
    with_rest_channels,
)
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Float = NDArray[np.float64]

#: Directions of p that move the equilibrium by less than this part of the most mobile one's are
#: left alone.
TRUNCATION = 1.0e-7
HALVINGS = 6


class MatchTarget(Behavior, kind="operator"):
    """Change the rest shape of the strands in the Group so that they hang as the target does."""

    target: str = parameter(
        "target",
        kind="stream",
        doc="Curves as they should be at rest, with the points of the input.",
    )
    iterations: int = parameter(
        4, minimum=0, maximum=100, doc="Gauss-Newton iterations after the direct solution."
    )
    tolerance: float = parameter(
        1.0e-5, minimum=0.0, doc="Distance from the target at which iterations end, of its size."
    )
    regularization: float = parameter(
        1.0e-3,
        unit="1/s",
        minimum=0.0,
        doc="Modes slower than this rate are left alone; larger values change rest shapes less.",
    )
    constraints: tuple[str, ...] = parameter(
        (), doc="Constraints whose rest parameters may change; all that have some if empty."
    )


class MatchTargetAction(Operator[Joints], behavior=MatchTarget):
    """Finds rest parameters in the first substep, when Forces are known.

    Attributes:
        distances: Largest distance of the equilibrium from the target [m], of the direct solution
            and after each iteration, on this rank.
    """

    behavior: MatchTarget
    settings: MatchTarget

    def __init__(self, behavior: MatchTarget, target: Joints) -> None:
        super().__init__(behavior, target)
        self.distances: list[float] = []

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the rest channels, which only the target's Constraints know."""
        refuse_unknown_names(self.target, self.behavior.constraints, label=self.path)
        stage, declaration = super().declare(name, stage, declaration)
        return stage, with_rest_channels(self.target, declaration)

    @task(
        Stage.FIND_REST_SHAPES,
        reads=("particles.force", "particles.id"),
    )
    def match(self, access: Access, step: Step) -> None:
        """Find the rest parameters whose equilibrium is the target."""
        if step.substep != 0 or step.newton != 0:
            return
        target, settings = self.target, self.settings
        before = [one.rest_parameters() for one in adjustable_constraints(target)]
        wanted = self._wanted()
        with undisturbed(target):
            to_start(target)
            problem = RestProblem(
                target,
                external_load(target, access["particles.force"]),
                regularization=float(settings.regularization),
                names=settings.constraints,
            )
            wanted = np.where(problem.is_point(), self._as_unknowns(problem, wanted), 0.0)
            free = problem.is_point()
            problem.displace(np.where(free, wanted - problem.places(), 0.0))
            problem.balance()
            self._improve(problem, wanted, free)
        take_new_rest(target, before, step.dt)

    def _wanted(self) -> Float:
        """Places of the local points in the target, relative to the domain's origin [m]."""
        target, name = self.target, self.behavior.target
        stream = target.scope.inputs[name]
        label = f'{self.path}: target "{name}"'
        if not isinstance(stream, Curves):
            raise InputError(f"{label} is a {type(stream).__name__}; curves are expected")
        if not np.array_equal(stream.offsets, target.topology.offsets):
            raise InputError(
                f"{label} has {stream.primitive_count} curves of {stream.point_count} points, "
                f"{target.path} has {target.topology.primitive_count} of "
                f"{target.topology.point_count}; they must be the same curves"
            )
        places = stream.positions[target.particles.local("id")]
        relative: Float = target.scope.domain.to_relative(places)
        return relative

    @staticmethod
    def _as_unknowns(problem: RestProblem, places: Float) -> Float:
        vector = np.zeros(problem.system.size)
        vector[problem.target.unknowns.joint(POSITION)] = places
        return vector

    # -- Gauss-Newton iterations -----------------------------------------------------------

    def _improve(self, problem: RestProblem, wanted: Float, free: NDArray[np.bool_]) -> None:
        """Move the equilibrium towards the target, as far as that goes."""

        def misfit() -> Float:
            """Distances of the equilibrium from the target, as unknowns [m]."""
            problem.settle()
            apart: Float = np.where(free, problem.places() - wanted, 0.0)
            return apart

        size = float(np.ptp(wanted[free])) if np.any(free) else 0.0
        apart = misfit()
        self.distances = [float(np.abs(apart).max(initial=0.0))]
        for _ in range(int(self.settings.iterations)):
            if self.distances[-1] <= float(self.settings.tolerance) * size:
                return
            better = self._search(problem, apart, misfit)
            if better is None:
                return
            apart = better
            self.distances.append(float(np.abs(apart).max(initial=0.0)))

    def _search(self, problem: RestProblem, apart: Float, misfit: Any) -> Float | None:
        """Take a Gauss-Newton step of p, or a part of it; None where no part of it helps."""
        changes = self._step(problem, apart)
        chosen = [term for term in problem.terms if term.adjustable]
        start = [term.constraint.rest_parameters() for term in chosen]
        fraction = 1.0
        for _ in range(HALVINGS):
            for term, old, change in zip(chosen, start, changes, strict=True):
                term.constraint.set_rest_parameters(old + fraction * change)
            after: Float = misfit()
            if float(after @ after) < float(apart @ apart):
                return after
            fraction *= 0.5
        for term, old in zip(chosen, start, strict=True):
            term.constraint.set_rest_parameters(old)
        return None

    def _step(self, problem: RestProblem, apart: Float) -> list[Float]:
        """Least-squares change of each adjustable Constraint's p, body by body."""
        problem.force()
        solve = problem.solver(problem.matrix(geometric=True))
        chosen = [term for term in problem.terms if term.adjustable]
        changes = [np.zeros_like(term.value) for term in chosen]
        bodies = self.target.unknowns.bodies
        by_rest = [problem.force_by_rest(body) for body in range(bodies)]
        moved = [np.zeros_like(one) for one in by_rest]
        # One solve moves the equilibria of all bodies by their next parameter.
        for column in range(max((one.shape[1] for one in by_rest), default=0)):
            right = np.zeros(problem.system.size)
            for body, one in enumerate(by_rest):
                if column < one.shape[1]:
                    begin, end = problem.range_of(body)
                    right[begin:end] = one[:, column]
            found = solve(right)
            for body, one in enumerate(moved):
                if column < one.shape[1]:
                    begin, end = problem.range_of(body)
                    one[:, column] = found[begin:end]
        free = problem.is_point()
        for body, derivative in enumerate(moved):
            begin, end = problem.range_of(body)
            rows = free[begin:end]
            runs = [term.elements.runs[body : body + 2] for term in chosen]
            k = np.concatenate(
                [np.zeros(0)]
                + [term.k[a:b].reshape(-1) for term, (a, b) in zip(chosen, runs, strict=True)]
            )
            scale = 1.0 / np.sqrt(np.where(k > 0.0, k, 1.0))
            best = np.linalg.lstsq(
                derivative[rows] * scale, -apart[begin:end][rows], rcond=TRUNCATION
            )[0]
            best = best * scale
            at = 0
            for change, (a, b) in zip(changes, runs, strict=True):
                count = change[a:b].size
                change[a:b] = best[at : at + count].reshape(b - a, -1)
                at += count
        return changes
