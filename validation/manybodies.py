"""The manybodies preconditioner on hair clumps: iterations must not depend on the rods' stiffness.

200 straight rods of n vertices in random directions, each vertex of mass m, joined by 10,000
contact springs of stiffness k = m / h^2 along random normals, between random vertices of different
rods:

    A = M / h^2 + s k K_rod + k sum n n^T,     s = 1e2 ... 1e8

K_rod is the linear rod of unit segments: stretching (t . du)^2, bending |d^2 u|^2 and twisting
(d theta)^2, each with stiffness s k. Forces are random. (Without the contact springs the factors
alone would be the solution, and nothing would be measured.)

Iterations are those to a residual of 1e-8. From s = 1e8 on rounding leaves a true residual above
that, which is why it is reported. Jacobi-CG is stopped after 25 times as many iterations, so its
ratio is a lower bound. The solution that is compared with the direct one, at s = 1e2, 1e5 and 1e8,
is iterated on with a tolerance of 1e-12.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.algebra.skyline import envelope_of
from loki_core.linear_solvers.body_system import BodySystem
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.linear_solvers.manybodies import Manybodies

from ._report import result

Array = NDArray[Any]

CASE = "manybodies"
RODS, SPRINGS = 200, 10_000
STIFFNESSES = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8)  # of k
COMPARED = (1e2, 1e5, 1e8)  # with a direct solve
TOLERANCE = 1e-8


def run() -> list[dict[str, Any]]:
    """Rods of 15 and 30 vertices over all stiffnesses."""
    results = []
    for vertices in (15, 30):
        found = [solve(vertices, stiffness) for stiffness in STIFFNESSES]
        counts = [one[0] for one in found]
        name = f"{vertices} vertices"
        for stiffness, one in zip(STIFFNESSES, found, strict=True):
            results.append(result(CASE, f"iterations, {name}, {stiffness:.0e} k", one[0], None))
        results += [
            result(
                CASE,
                f"iterations, most over fewest, {name}",
                max(counts) / min(counts),
                1.0,
                production=1.3,
                best=1.3,
            ),
            result(
                CASE,
                f"iterations of Jacobi-CG over manybodies, at least, {name}",
                min(one[1] for one in found),
                None,
                production=10.0,
                best=10.0,
                lower_is_better=False,
            ),
            result(
                CASE,
                f"difference from the direct solve, largest, {name}",
                max(one[2] for one in found if one[2] is not None),
                0.0,
                production=1e-8,
                best=1e-8,
            ),
            result(
                CASE, f"true residual, largest, {name}", max(one[3] for one in found), TOLERANCE
            ),
        ]
    return results


def solve(vertices: int, stiffness: float) -> tuple[int, float, float | None, float]:
    """Iterations, how many times more Jacobi-CG takes, difference from direct, true residual."""
    clumps = Clumps(vertices, stiffness)
    system = clumps.system
    b = np.random.default_rng(1).standard_normal(system.size)
    solver, x = Manybodies(), np.zeros(system.size)
    solver.prepare(system)
    report = solver.solve(b, x, tol=TOLERANCE)
    iterations = report.iterations
    plain = ConjugateGradient()
    plain.prepare(system)
    most = 25 * iterations  # enough to see; it would take many more
    jacobi = plain.solve(b, np.zeros(system.size), tol=TOLERANCE, max_iterations=most).iterations
    difference = None
    if stiffness in COMPARED:
        solver.solve(b, x, tol=1e-12, max_iterations=2 * iterations)
        exact = clumps.direct_solution(b)
        difference = float(np.linalg.norm(x - exact) / np.linalg.norm(exact))
    return iterations, jacobi / iterations, difference, report.residual


class Clumps:
    """Rods joined by springs, in units of m / h^2 and of the segments' length.

    Attributes:
        system: The linear system.
        at: First unknown of both ends of each spring, [springs, 2].
        normals: Directions of the springs, [springs, 3].
    """

    def __init__(
        self, vertices: int, stiffness: float, *, rods: int = RODS, springs: int = SPRINGS
    ) -> None:
        rng = np.random.default_rng(0)
        size = 4 * vertices - 1
        self.rods = np.stack(
            [np.eye(size) + stiffness * rod_stiffness(vertices, t) for t in _directions(rng, rods)]
        )
        bodies = np.stack([rng.permutation(rods)[:2] for _ in range(springs)])
        self.at = size * bodies + 4 * rng.integers(vertices, size=(springs, 2))
        self.normals = _directions(rng, springs)
        self.system = self._assembled()

    def _assembled(self) -> BodySystem:
        rods, size = self.rods.shape[:2]
        unknown = np.arange(size)
        reach = np.where(unknown % 4 < 3, 2, 1)  # bending joins vertices two apart
        first = 4 * np.maximum(unknown // 4 - reach, 0)
        body_start = np.arange(rods + 1, dtype=np.int64) * size
        firsts = (body_start[:-1, None] + first).ravel()
        row, _ = envelope_of(body_start, firsts)
        kept = (unknown[:, None] >= unknown) & (unknown >= first[:, None])
        values = self.rods[:, kept].ravel()
        block = np.einsum("si,sj->sij", self.normals, self.normals)
        i, j = np.meshgrid(np.arange(3), np.arange(3), indexing="ij")
        one, two = self.at[:, 0, None, None], self.at[:, 1, None, None]
        for end in (one, two):  # what a spring adds to its own vertices belongs to the bodies
            below = np.broadcast_to(i >= j, block.shape)
            np.add.at(values, row[(end + i)[below]] + (end + j)[below], block[below])
        rows = np.concatenate((one + i, two + i)).ravel()
        columns = np.concatenate((two + j, one + j)).ravel()
        order = np.lexsort((columns, rows))
        indptr = np.zeros(rods * size + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows, minlength=rods * size), out=indptr[1:])
        data = -np.concatenate((block, block)).ravel()[order]
        couplings = indptr, columns[order].astype(np.int32), data
        return BodySystem(body_start, firsts, row, values, couplings)

    def direct_solution(self, b: Array) -> Array:
        """Solve with dense factors only, by the formula of Sherman, Morrison and Woodbury.

        With B the rods alone and a column w of W for each spring, A = B + W W^T and
        A^-1 b = B^-1 (b - W (1 + W^T B^-1 W)^-1 W^T B^-1 b). A sparse factorisation fills up
        nearly as much, as the springs join rods at random.
        """
        dense = importlib.import_module("scipy.linalg")
        rods, size = self.rods.shape[:2]
        inverses = np.linalg.inv(self.rods)
        springs = len(self.normals)
        matrix = np.eye(springs)
        body, place = self.at // size, self.at % size
        for rod in range(rods):
            spring, end = np.nonzero(body == rod)
            ends = np.zeros((size, len(spring)))
            sign = np.where(end == 0, 1.0, -1.0)[:, None]
            ends[place[spring, end][:, None] + np.arange(3), np.arange(len(spring))[:, None]] = (
                sign * self.normals[spring]
            )
            matrix[np.ix_(spring, spring)] += ends.T @ inverses[rod] @ ends
        factors = dense.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

        def rods_solved(force: Array) -> Array:
            return np.einsum("rij,rj->ri", inverses, force.reshape(rods, size)).ravel()

        three = np.arange(3)
        x, product = np.zeros_like(b), np.empty_like(b)
        for _ in range(3):  # the first solves, the others refine
            self.system.multiply(x, product)
            rest = b - product
            loose = rods_solved(rest)
            stretched = loose[self.at[:, 0, None] + three] - loose[self.at[:, 1, None] + three]
            tension = dense.cho_solve(factors, (stretched * self.normals).sum(axis=1))
            pull = tension[:, None] * self.normals
            np.subtract.at(rest, self.at[:, 0, None] + three, pull)
            np.add.at(rest, self.at[:, 1, None] + three, pull)
            x += rods_solved(rest)
        return x


def rod_stiffness(vertices: int, direction: Array) -> Array:
    """Matrix of one straight rod with unit stiffnesses, [4 n - 1, 4 n - 1]."""
    difference = np.diff(np.eye(vertices), axis=0)
    second = np.diff(difference, axis=0)
    stretch = np.einsum("ij,a,b->iajb", difference.T @ difference, direction, direction)
    bend = np.einsum("ij,ab->iajb", second.T @ second, np.eye(3))
    matrix = np.zeros((vertices, 4, vertices, 4))
    matrix[:, :3, :, :3] = stretch + bend
    twist = np.diff(np.eye(vertices - 1), axis=0)
    matrix[:-1, 3, :-1, 3] = twist.T @ twist
    found: Array = matrix.reshape(4 * vertices, 4 * vertices)[:-1, :-1]
    return found


def _directions(rng: np.random.Generator, count: int) -> Array:
    found = rng.standard_normal((count, 3))
    unit: Array = found / np.linalg.norm(found, axis=1)[:, None]
    return unit
