"""Embedded points: places on Objects, with a frame, that Actions see instead of unknowns.

    (x, F) = phi(q),    dC/dq = dC/dx dx/dq + dC/dF dF/dq        (paper, 6.1 and 6.2)

A Constraint between any two kinds of geometry needs only that: places, frames, and the chain rule
back to the unknowns. Carriers are named by id, so they may live on any rank; the plan of who asks
whom is made once per layout.

    OwnPoints        vertices or particles as they are        3 unknowns   F does not turn
    EdgePoints       on an edge of a rod                      7            F: the material frame
    FacePoints       on a triangle                            9            F: first edge, normal
    WeightedPoints   carried by k points                      3 k          F = sum x_k (grad w_k)^T
    HostPoints       on host geometry (host_geometry.py)      0            F is prescribed
    LocalPoints      carried by k of this rank, by row        3 k          F does not turn

Frames of the first three kinds turn only: dF = dphi x F, and `chain` takes derivatives by the turn.
That of weighted points stretches too, and `chain` takes derivatives by its nine entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from loki_core.data.particle_directory import GatherPlan, ParticleDirectory
from loki_core.errors import InputError
from loki_core.kernels.solids.attachments import chain_to_edges, edge_axes
from loki_core.objects.solids.unknowns import POSITION, TWIST

if TYPE_CHECKING:
    from loki_core.objects.basics.capabilities import Edges, SolvedPoints

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]


class EmbeddedPoints(Protocol):
    """Places with frames that follow unknowns.

    Attributes:
        width: Unknowns that each depends on.
    """

    width: int

    def numbers(self, first_row: int) -> Int64:
        """Their unknowns among those of all ranks, [n, width]. Collective.

        Args:
            first_row: Number of this rank's first.
        """

    def follow(self) -> None:
        """Find the carriers again where they changed rows; their ids stay. Collective."""

    def locate(self) -> tuple[Float, Float]:
        """Places [n, 3] and frames [n, 3, 3] as the carriers are now. Collective.

        Rows of a rigid frame are its axes; a frame that stretches is dx/dX.
        """

    def carry(self, values: Float) -> Float:
        """A quantity of the carriers' local points [count, ...] at the places. Collective."""

    def chain(
        self, by_place: Float, by_frame: Float, sign: float, gradient: Float, first: int
    ) -> None:
        """Write derivatives by the unknowns, from the column `first` on, at the last `locate`.

        Args:
            by_place: dC/dx, [n, m, 3].
            by_frame: dC/dphi [n, m, 3] of rigid frames; dC/dF [n, m, 3, 3] of others.
            sign: Of the place in C.
            gradient: [n, m, d], written.
            first: Column.
        """


class CarriedPoints:
    """Points that are weighted means of others, on any rank.

    Args:
        item: The Object.
        ids: Of the carriers, [n, k].
        weights: Their shares, [n, k]; rows sum to 1.
    """

    def __init__(self, item: SolvedPoints, ids: Int64, weights: Float) -> None:
        if ids.shape != weights.shape or ids.ndim != 2:
            raise InputError(f"embedding: ids {ids.shape} and weights {weights.shape} do not match")
        if not np.allclose(weights.sum(axis=1), 1.0, rtol=0.0, atol=1e-12):
            row = int(np.argmax(np.abs(weights.sum(axis=1) - 1.0)))
            raise InputError(f"embedding: weights[{row}] = {weights[row]} do not sum to 1")
        self.item, self.ids = item, np.ascontiguousarray(ids, np.int64)
        self.weights = np.ascontiguousarray(weights, np.float64)
        self.width = 3 * ids.shape[1]
        self._made: GatherPlan | None = None

    @property
    def count(self) -> int:
        """Points of this rank."""
        return len(self.ids)

    @property
    def _plan(self) -> GatherPlan:
        """Who asks whom; making it is collective."""
        if self._made is None:
            self._made = ParticleDirectory(self.item.particles).plan(self.ids.reshape(-1))
        return self._made

    def follow(self) -> None:
        """Find the carriers again where they changed rows."""
        made = self._made
        if made is not None and made.layout_version != self.item.particles.layout_version:
            self._made = ParticleDirectory(self.item.particles).plan(self.ids.reshape(-1))

    def numbers(self, first_row: int) -> Int64:
        """Unknowns of all carriers of each point, one after the other."""
        own = first_row + self.item.unknowns.joint(POSITION)
        return self._plan.gather(own).reshape(self.count, self.width)

    def carry(self, values: Float) -> Float:
        """The weighted mean of a quantity."""
        carried = self._carried(values)
        mixed: Float = np.einsum("nk,nk...->n...", self.weights, carried)
        return mixed

    def _carried(self, values: Float) -> Float:
        return self._plan.gather(values).reshape(*self.ids.shape, *values.shape[1:])

    def pull_back(self, forces: Float, target: Float) -> None:
        """Add J^T f of forces on the points [n, 3] to the carriers' local values. Collective."""
        shared = self.weights[:, :, None] * forces[:, None, :]
        self._plan.scatter_add(shared.reshape(-1, forces.shape[1]), target)


class OwnPoints(CarriedPoints):
    """Vertices or particles as they are; their frame is the world's.

    Args:
        item: The Object.
        ids: Of the points, [n].
    """

    def __init__(self, item: SolvedPoints, ids: Int64) -> None:
        super().__init__(item, ids[:, None], np.ones((len(ids), 1)))

    def locate(self) -> tuple[Float, Float]:
        """Places as they are, and axes that do not turn."""
        places = self.carry(self.item.particles.local("position"))
        return places, np.broadcast_to(np.eye(3), (self.count, 3, 3)).copy()

    def carry(self, values: Float) -> Float:
        """The quantity itself, to the last bit."""
        return self._plan.gather(values)

    def chain(
        self, by_place: Float, by_frame: Float, sign: float, gradient: Float, first: int
    ) -> None:
        """Dx = dq."""
        gradient[:, :, first : first + 3] = sign * by_place


class EdgePoints(CarriedPoints):
    """Points on edges of rods, with the material frame of the edge; unknowns x_a, theta, x_b.

    Args:
        item: The Object.
        edges: Ids of the edges, [n].
        ids: Of their ends, [n, 2].
        weights: Shares of the ends, [n, 2].
    """

    def __init__(self, item: Edges, edges: Int64, ids: Int64, weights: Float) -> None:
        super().__init__(item, ids, weights)
        self.width, self._edges, self._of_edges = 7, edges, item.edges
        self._second = np.ascontiguousarray(weights[:, 1])
        self._made_of_edges: GatherPlan | None = None

    @property
    def _edge_plan(self) -> GatherPlan:
        if self._made_of_edges is None:
            self._made_of_edges = ParticleDirectory(self._of_edges).plan(self._edges)
        return self._made_of_edges

    def follow(self) -> None:
        """Edges change rows with their ends."""
        before = self._made
        super().follow()
        if self._made is not before:
            self._made_of_edges = ParticleDirectory(self._of_edges).plan(self._edges)

    def numbers(self, first_row: int) -> Int64:
        """One end, the angle, the other end."""
        unknowns = self.item.unknowns
        ends = self._plan.gather(first_row + unknowns.joint(POSITION)).reshape(-1, 2, 3)
        angles = self._edge_plan.gather(first_row + unknowns.joint(TWIST))
        return np.concatenate((ends[:, 0], angles, ends[:, 1]), axis=1)

    def locate(self) -> tuple[Float, Float]:
        """Places and material frames as the rods are now."""
        edges = self._of_edges
        place = self.carry(self.item.particles.local("position"))
        names = ("tangent", "reference", "angle", "length")
        found = self._edge_plan.gather(np.column_stack([edges.local(name) for name in names]))
        self._tangent = np.ascontiguousarray(found[:, 0:3])
        reference = np.ascontiguousarray(found[:, 3:6])
        length = found[:, 7]
        self._inverse_length = np.divide(1.0, length, out=np.zeros(len(length)), where=length > 0.0)
        axes = np.empty((len(found), 3, 3))
        edge_axes(self._tangent, reference, np.ascontiguousarray(found[:, 6]), axes)
        return place, axes

    def chain(
        self, by_place: Float, by_frame: Float, sign: float, gradient: Float, first: int
    ) -> None:
        """The ends move the place and bend the frame, the angle spins it."""
        chain_to_edges(
            by_place, by_frame, sign, self._second, self._tangent, self._inverse_length, gradient,
            first,
        )  # fmt: skip


class FacePoints(CarriedPoints):
    """Points on triangles; axes: t along the first edge e, b = n x t, and the normal n.

    With the second edge at (p, q) along t and b, changes d of the corners turn the frame by

        t . dphi = n . (d_2 - d_0) / q - p n . (d_1 - d_0) / (q |e|)
        b . dphi = -n . (d_1 - d_0) / |e|,     n . dphi = b . (d_1 - d_0) / |e|

    Args:
        item: The Object.
        ids: Of the corners, [n, 3].
        weights: Their shares, [n, 3].
    """

    def locate(self) -> tuple[Float, Float]:
        """Places and frames of the triangles as they are now."""
        corners = self._carried(self.item.particles.local("position"))
        first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
        along = np.linalg.norm(first, axis=1)
        area = np.cross(first, second)
        twice = np.linalg.norm(area, axis=1)
        flat = (twice <= 0.0) | (along <= 0.0)
        if np.any(flat):
            row = int(np.argmax(flat))
            raise InputError(
                f"{self.item.path}: the triangle of points {self.ids[row].tolist()} has no area, "
                "so what is attached to it has no frame"
            )
        t, n = first / along[:, None], area / twice[:, None]
        b = np.cross(n, t)
        self._axes = np.stack((t, b, n), axis=1)
        self._inverse = 1.0 / along
        height = np.einsum("na,na->n", second, b)
        self._by_second = n / height[:, None]
        slope = np.einsum("na,na->n", second, t) / height
        self._by_first = -(slope * self._inverse)[:, None] * n
        place: Float = np.einsum("nk,nka->na", self.weights, corners)
        return place, self._axes

    def chain(
        self, by_place: Float, by_frame: Float, sign: float, gradient: Float, first: int
    ) -> None:
        """Each corner moves the place by its share, and turns the frame."""
        spin = np.einsum("nmi,nai->nma", by_frame, self._axes)  # along t, b, n
        b, n = self._axes[:, None, 1], self._axes[:, None, 2]
        inverse = self._inverse[:, None, None]
        second = spin[:, :, :1] * self._by_second[:, None]
        one = spin[:, :, :1] * self._by_first[:, None]
        one += inverse * (spin[:, :, 2:] * b - spin[:, :, 1:2] * n)
        for corner, turned in enumerate((-one - second, one, second)):
            share = (sign * self.weights[:, corner])[:, None, None]
            column = first + 3 * corner
            gradient[:, :, column : column + 3] = share * by_place + turned


class WeightedPoints(CarriedPoints):
    """Points carried by k others, with the deformation gradient F = sum_k x_k (grad w_k)^T.

    Lattices, tetrahedra and quadrature points: J = w_k I, dF_ia = grad w_ka dx_ki, all constant.

    Args:
        item: The Object.
        ids: Of the carriers, [n, k].
        weights: Their shares, [n, k].
        gradients: Of the shares by the place at rest [1/m], [n, k, 3]; rows sum to 0. None where
            there is no F: then the frame is the world's.
    """

    def __init__(
        self, item: SolvedPoints, ids: Int64, weights: Float, gradients: Float | None = None
    ) -> None:
        super().__init__(item, ids, weights)
        self.gradients = gradients

    def locate(self) -> tuple[Float, Float]:
        """Places and deformation gradients."""
        carriers = self._carried(self.item.particles.local("position"))
        place: Float = np.einsum("nk,nka->na", self.weights, carriers)
        if self.gradients is None:
            return place, np.broadcast_to(np.eye(3), (self.count, 3, 3)).copy()
        return place, np.einsum("nki,nka->nia", carriers, self.gradients)

    def chain(
        self, by_place: Float, by_frame: Float, sign: float, gradient: Float, first: int
    ) -> None:
        """Each carrier moves the place by its share, and F by the gradient of it."""
        count, m = by_place.shape[:2]
        moved = sign * np.einsum("nk,nmi->nmki", self.weights, by_place)
        if self.gradients is not None:
            moved += np.einsum("nka,nmia->nmki", self.gradients, by_frame)
        gradient[:, :, first : first + self.width] = moved.reshape(count, m, self.width)


class LocalPoints:
    """Places that points of this rank carry, known by their rows, so that nobody is asked.

    Found anew where points change rows; contacts may be at such places.

    Args:
        item: The Object.
        rows: Of the carriers, [n, k].
        weights: Their shares, [n, k].
    """

    def __init__(self, item: SolvedPoints, rows: Int64, weights: Float) -> None:
        self.item, self.rows, self.weights = item, rows, weights
        self.width = 3 * rows.shape[1]

    @property
    def count(self) -> int:
        """Places of this rank."""
        return len(self.rows)

    def chosen(self, which: Int64) -> LocalPoints:
        """Some of them."""
        return LocalPoints(self.item, self.rows[which], self.weights[which])

    def follow(self) -> None:
        """Rows are as they were."""

    def numbers(self, first_row: int) -> Int64:
        """Unknowns of all carriers of each place, one after the other."""
        unknowns = self.item.unknowns.joint(POSITION, self.rows)
        return first_row + unknowns.reshape(self.count, self.width).astype(np.int64)

    def locate(self) -> tuple[Float, Float]:
        """Places, and axes that do not turn."""
        places = self.carry(self.item.particles.local("position"))
        return places, np.broadcast_to(np.eye(3), (self.count, 3, 3)).copy()

    def carry(self, values: Float) -> Float:
        """The weighted mean of a quantity of points [points, ...]."""
        shares = self.weights.reshape(*self.weights.shape, *(1,) * (values.ndim - 1))
        mixed: Float = shares[:, 0] * values[self.rows[:, 0]]
        for carrier in range(1, self.rows.shape[1]):
            mixed += shares[:, carrier] * values[self.rows[:, carrier]]
        return mixed

    def chain(
        self, by_place: Float, by_frame: Float, sign: float, gradient: Float, first: int
    ) -> None:
        """Each carrier moves the place by its share."""
        for carrier in range(self.rows.shape[1]):
            share = (sign * self.weights[:, carrier])[:, None, None]
            column = first + 3 * carrier
            gradient[:, :, column : column + 3] = share * by_place
