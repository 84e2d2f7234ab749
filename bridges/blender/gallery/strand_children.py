"""Strand children: many strands for the eye between the few that were simulated.

A child is a mix of three simulated strands that lie near each other at the start, and goes a little
its own way. Which ones, and how much of each, never changes, so children move as
their parents do.
"""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loki_core.data.curves import Curves

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

NEIGHBOURS = 8  # strands that a child's other parents are chosen from
FINER = 3  # pieces that each piece of a strand is drawn in
COMPARED = 8  # places along strands at which it counts how near they are


@dataclass(frozen=True)
class Children:
    """What children are made of.

    Attributes:
        parents: The three strands of each, shape [children, 3].
        weights: How much of each, shape [children, 3].
        astray: Where each goes at its tip beyond that [m], shape [children, 3].
        radius: Of every child, from root to tip [m].
    """

    parents: Indices
    weights: Floats
    astray: Floats
    radius: tuple[float, float]

    @classmethod
    def between(
        cls, start: Curves, count: int, *, astray: float, radius: tuple[float, float], seed: int = 0
    ) -> Children:
        """Choose parents among strands of equal length in points, as they are at the start."""
        from scipy.spatial import cKDTree

        strands = _strands(start)
        random = np.random.default_rng(seed)
        places = np.linspace(0, strands.shape[1] - 1, COMPARED).astype(np.int64)
        shapes = strands[:, places].reshape(len(strands), -1)
        _, near = cKDTree(shapes).query(shapes, k=min(NEIGHBOURS, len(strands)))
        first = np.arange(count) % len(strands)
        others = near[first[:, None], random.integers(0, near.shape[1], (count, 2))]
        weights = random.dirichlet((1.0, 1.0, 1.0), count)
        # a few hairs are much further astray than most
        reach = astray * np.exp(0.8 * random.standard_normal((count, 1)))
        way = reach * random.standard_normal((count, 3))
        return cls(np.column_stack((first, others)), weights, way, radius)

    def of(self, strands: Curves) -> Curves:
        """Return the children of strands at some time."""
        parents = _finer(_strands(strands))
        mixed = np.einsum("np,npvc->nvc", self.weights, parents[self.parents])
        along = np.linspace(0.0, 1.0, mixed.shape[1])
        mixed += along[:, None] ** 1.5 * self.astray[:, None]
        children = Curves.from_strands(mixed.astype(np.float32))
        radius = np.interp(along, (0.0, 0.4, 1.0), (self.radius[0], self.radius[0], self.radius[1]))
        children.set_channel("point", "radius", np.tile(radius, len(mixed)).astype(np.float32))
        return children


def _finer(strands: Floats) -> Floats:
    """Return strands with more points, on smooth curves through those that are there."""
    from scipy.interpolate import CubicSpline

    count = strands.shape[1]
    places = np.linspace(0.0, count - 1.0, FINER * (count - 1) + 1)
    return np.asarray(CubicSpline(np.arange(count), strands, axis=1)(places))


def _strands(curves: Curves) -> Floats:
    points = curves.positions.astype(np.float64)
    return points.reshape(curves.primitive_count, -1, 3)
