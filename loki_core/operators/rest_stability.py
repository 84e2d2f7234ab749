"""Rest Stability: whether a balanced strand stays balanced, and how stiff it has to be for that.

A rest shape can hold any load, but an upright hair that is too long for its stiffness buckles from
it all the same. An equilibrium is stable where the derivative of forces is,

    K = -df/dx  positive definite,     K(s) = K + (s - 1) K_bend

with K_bend the material part G^T k G of bending. A bending stiffness s k needs another rest shape
for the same moments, and all other terms of K depend on moments alone; so the least s with a
definite K(s) is what makes the same shape stable (compare Derouet-Jourdan et al. 2013).

K is found by central differences of forces. Unknowns that are farther apart than an element is wide
do not see each other, so one difference serves many of them. Closed strands are left alone. What
holds a strand to others adds its stiffness, as if their ends did not move.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.objects.basics.capabilities import Joints
from loki_core.objects.solids.unknowns import POSITION
from loki_core.operators.rest_problem import RestProblem, RestTerm, undisturbed

Float = NDArray[np.float64]

REACH = 10  # unknowns of a strand that act on each other are at most this far apart
STEP = 1.0e-5  # of differences: of an edge's length, or rad
SLOWEST = 5.0  # 1/s: growth that is slow enough to be left alone, and hides in rounding
MARGIN = 1.1  # of the stiffness that is just enough
FACTORS = 1.15 ** np.arange(1, 67)  # up to 10^4


def stabilize(problem: RestProblem) -> tuple[int, float, int]:
    """Stiffen the bending of strands whose balance is not stable, on this rank.

    The rest shape has to be balanced before, and anew after.

    Returns:
        How many were stiffened, the largest factor, and how many no factor helps.
    """
    terms = [term for term in problem.terms if term.adjustable and term.constraint.can_stiffen]
    strands = _strands(problem)
    bodies = strands.unknowns.bodies
    if not terms or bodies == 0:
        return 0, 1.0, 0
    band = _difference(problem)
    factors, hopeless = np.ones(bodies), 0
    for body in np.flatnonzero(strands.closed == 0):
        begin, end = problem.range_of(int(body))
        free = problem.fixed[begin:end] == 0
        whole = _dense(band[begin:end]) + problem.joined_block(int(body))
        whole = whole[np.ix_(free, free)]
        slow = SLOWEST**2 * np.diag(problem.mass[begin:end][free])
        if _is_definite(whole + slow):
            continue
        bending = np.zeros_like(whole)
        for term in terms:
            bending += _material(term, int(body), begin, end)[np.ix_(free, free)]
        for factor in FACTORS:
            if _is_definite(whole + slow + (factor - 1.0) * bending):
                factors[body] = MARGIN * factor
                break
        else:
            hopeless += 1
    if np.any(factors > 1.0):
        terms[0].constraint.stiffen(factors)  # the bending of a strand, whoever brings it
    return int(np.count_nonzero(factors > 1.0)), float(factors.max()), hopeless


def _strands(problem: RestProblem) -> Joints:
    """The solid of the problem, whose bodies are strands."""
    strands = problem.target
    assert isinstance(strands, Joints)
    return strands


def _difference(problem: RestProblem) -> Float:
    """-df/dx in bands: entry [i, REACH + d] is that of unknowns i and i + d."""
    target, size = _strands(problem), problem.system.size
    spacing = 2 * REACH + 1
    step = np.full(size, STEP)
    length = np.full(target.particles.count, np.inf)
    for side in range(2):
        np.minimum.at(length, target.edge_vertices[:, side], target.edges.local("length"))
    step[target.unknowns.joint(POSITION)] = STEP * length[:, None]
    place = np.zeros(size, np.int64)  # within the body
    place[problem.own] = np.arange(len(problem.own)) - np.repeat(
        target.unknowns.body_start[:-1], np.diff(target.unknowns.body_start)
    )
    band = np.zeros((size, spacing))
    for color in range(spacing):
        moved = np.where((place % spacing == color) & (problem.fixed == 0), step, 0.0)
        sides = []
        for sign in (1.0, -1.0):
            with undisturbed(target):
                problem.displace(sign * moved)
                sides.append(problem.force())
        change = sides[1] - sides[0]
        # The unknown of this color that each row sees, if its strand has one there.
        shift = (color - place + REACH) % spacing - REACH
        column = np.arange(size) + shift
        good = (column >= 0) & (column < size)
        good[good] &= place[column[good]] == place[good] + shift[good]
        rows = np.flatnonzero(good)
        divisor = 2.0 * np.where(moved[column[rows]] > 0.0, moved[column[rows]], np.inf)
        band[rows, shift[rows] + REACH] = change[rows] / divisor
    problem.force()  # values and gradients of the present state again
    return band


def _dense(band: Float) -> Float:
    """The symmetric part of one body's bands as a matrix."""
    count = len(band)
    whole = np.zeros((count, count))
    for d in range(-REACH, REACH + 1):
        rows = np.arange(max(0, -d), min(count, count - d))
        whole[rows, rows + d] = band[rows, REACH + d]
    return 0.5 * (whole + whole.T)


def _material(term: RestTerm, body: int, begin: int, end: int) -> Float:
    """G^T k G of a term in one body, dense."""
    rows = slice(*term.elements.runs[body : body + 2])
    dofs, gradient = term.elements.dofs[rows] - begin, term.gradient[rows]
    parts = np.einsum("nma,nm,nmb->nab", gradient, term.k[rows], gradient)
    whole = np.zeros((end - begin, end - begin))
    np.add.at(whole, (dofs[:, :, None], dofs[:, None, :]), parts)
    return whole


def _is_definite(matrix: Float) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def describe(found: tuple[int, float, int], strands: int) -> str:
    """What the user should know of it, or nothing."""
    stiffened, largest, hopeless = found
    parts = []
    if stiffened:
        parts.append(
            f"{stiffened} of {strands} strands would buckle under their own load; their bending "
            f"is stiffer now, up to {largest:.3g} times"
        )
    if hopeless:
        parts.append(f"{hopeless} of {strands} strands cannot be held in this shape")
    return "; ".join(parts)
