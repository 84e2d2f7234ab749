"""Host geometry: input streams in motion, and points on them that Constraints can hold on to.

It is animated and has no unknowns. The frame of a point is that of its triangle (first edge,
normal), of its edge carried without twist, or for bare points the world's axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.curves import Curves
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError
from loki_core.kernels.solids.attachments import carry_directors
from loki_core.objects.basics.motion import PathInFrame, motion_samples
from loki_core.pipeline.task import Step

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]


def curve_edges(offsets: NDArray[Any], closed: NDArray[np.bool_]) -> Int64:
    """Points of every edge of curves, in the order of a Curves Object, shape [edges, 2]."""
    sizes = np.diff(offsets).astype(np.int64)
    counts = sizes - 1 + (closed & (sizes > 2))
    curve = np.repeat(np.arange(len(sizes)), counts)
    local = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    first = offsets[curve].astype(np.int64)
    return np.stack((first + local, first + (local + 1) % sizes[curve]), axis=1)


class HostGeometry:
    """An input stream in motion, between the frames as `objects/basics/motion.py` says.

    Args:
        owner: An Object, whose scope knows the inputs of the present frame.
        name: The stream.
        label: What messages call it.
    """

    def __init__(self, owner: Any, name: str, *, label: str) -> None:
        self.owner, self.name, self.label = owner, name, label
        self._frame = owner.scope.settings.start_frame
        self.stream = self._start_stream = owner.scope.inputs[name]
        self.primitives = host_primitives(self.stream, label=label)
        self.before = self.after = self._placed(self.stream.positions)

    def _placed(self, positions: NDArray[Any]) -> Float:
        places: Float = self.owner.scope.domain.to_relative(np.asarray(positions, np.float64))
        return places

    def at(self, step: Step, *, end: bool) -> Float:
        """Places of all points at the start or the end of a step, [points, 3]."""
        if step.frame != self._frame:
            self._frame = step.frame
            self.before = self.after
            stream = self.owner.scope.inputs[self.name]
            if stream is not self.stream:
                self._take(stream)
        settings = self.owner.scope.settings
        elapsed = step.time + (step.dt if end else 0.0) - settings.time_of_frame(step.frame - 1)
        path = PathInFrame(self.before, self.after, self._samples(), place=self._placed)
        before, after, part = path.piece(min(1.0, max(0.0, elapsed / settings.frame_duration)))
        places: Float = (1.0 - part) * before + part * after
        return places

    def _samples(self) -> list[NDArray[Any]]:
        stream = self.owner.scope.inputs[self.name]  # of this frame, after a restart too
        return [] if stream is self._start_stream else motion_samples(stream, label=self.label)

    def _take(self, stream: Any) -> None:
        primitives = host_primitives(stream, label=self.label)
        if stream.point_count != self.stream.point_count or not np.array_equal(
            primitives, self.primitives
        ):
            raise InputError(
                f"{self.label} has {stream.point_count} points and {len(primitives)} primitives "
                f"now, and {self.stream.point_count} and {len(self.primitives)} at the start, or "
                "joins them otherwise; it may move, but its topology may not change"
            )
        self.stream = stream
        self.after = self._placed(stream.positions)

    def state(self) -> dict[str, Any]:
        """What a restart needs."""
        return {"frame": self._frame, "before": self.before.copy(), "after": self.after.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take such a state back."""
        self._frame = int(state["frame"])
        self.before, self.after = np.array(state["before"]), np.array(state["after"])


def host_primitives(stream: Any, *, label: str) -> Int64:
    """Points of each primitive of a stream: triangles, edges or bare points, [m, 3, 2 or 1]."""
    if isinstance(stream, Surface):
        return stream.triangles().astype(np.int64).reshape(-1, 3)
    if isinstance(stream, Curves):
        return curve_edges(stream.offsets, stream.closed)
    if isinstance(stream, Wireframe):
        return stream.edge_points.astype(np.int64)
    if isinstance(stream, Points):
        return np.arange(stream.point_count, dtype=np.int64)[:, None]
    raise InputError(
        f"{label} is a {type(stream).__name__}; points are attached to Surface, Curves, Wireframe "
        "or Points"
    )


class HostPoints:
    """Points on primitives of host geometry.

    Args:
        corners: Points of the primitives, [n, k].
        weights: Their shares, [n, k].
        tangents, directors: Two axes of edges' frames as they were last, [n, 3]; zeros at first.
            They are kept up to date.
    """

    width = 0

    def __init__(self, corners: Int64, weights: Float, tangents: Float, directors: Float) -> None:
        self.corners, self.weights = corners, weights
        self._tangents, self._directors = tangents, directors
        self._found: tuple[Float, Float] = (np.zeros((0, 3)), np.zeros((0, 3, 3)))

    def numbers(self, first_row: int) -> Int64:
        """None."""
        return np.empty((len(self.corners), 0), np.int64)

    def follow(self) -> None:
        """Nothing changes rows."""

    def carry(self, values: Float) -> Float:
        """Nothing that Objects have reaches here."""
        raise InputError("points on host geometry carry no quantity of an Object")

    def move(self, places: Float) -> None:
        """Take the places of all points of the geometry, [points, 3]."""
        corners = places[self.corners]
        self._found = (np.einsum("nk,nka->na", self.weights, corners), self._axes(corners))

    def _axes(self, corners: Float) -> Float:
        count, k = self.corners.shape
        if k == 1:
            return np.broadcast_to(np.eye(3), (count, 3, 3)).copy()
        tangent = _unit(corners[:, 1] - corners[:, 0], np.array([1.0, 0.0, 0.0]))
        if k == 3:
            area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
            normal = _unit(area, _across(tangent))
            return np.stack((tangent, np.cross(normal, tangent), normal), axis=1)
        fresh = ~self._directors.any(axis=1)
        self._tangents[fresh], self._directors[fresh] = tangent[fresh], _across(tangent)[fresh]
        carry_directors(self._tangents, tangent, self._directors)
        self._tangents[:] = tangent
        along = np.einsum("na,na->n", self._directors, tangent)[:, None]
        self._directors[:] = _unit(self._directors - along * tangent, _across(tangent))
        second = np.cross(tangent, self._directors)
        return np.stack((tangent, self._directors, second), axis=1)

    def locate(self) -> tuple[Float, Float]:
        """Places [n, 3] and axes [n, 3, 3] at the last `move`."""
        return self._found

    def chain(
        self, by_place: Float, by_frame: Float, sign: float, gradient: Float, first: int
    ) -> None:
        """Nothing depends on unknowns."""


def _unit(vectors: Float, otherwise: Float) -> Float:
    """Unit vectors [n, 3]; others where there is no direction."""
    size = np.linalg.norm(vectors, axis=1)[:, None]
    good = size > 1e-100
    found: Float = np.where(good, vectors / np.where(good, size, 1.0), otherwise)
    return found


def _across(tangent: Float) -> Float:
    """Unit vectors across others [n, 3]: the axis that each is farthest from, made straight."""
    axis = np.eye(3)[np.argmin(np.abs(tangent), axis=1)]
    across = axis - tangent * np.einsum("na,na->n", axis, tangent)[:, None]
    found: Float = across / np.linalg.norm(across, axis=1)[:, None]
    return found
