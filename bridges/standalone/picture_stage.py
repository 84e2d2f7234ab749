"""Picture stage: where a picture is seen from, the box that holds what it shows, and the ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.errors import LokiError
from loki_vfx.bridges.standalone.volume_fields import density_channel, occupied_corners
from loki_vfx.bridges.standalone.volume_picture import View

BACKGROUND_LOW, BACKGROUND_HIGH = "#0a0d14", "#1f2a3c"
GROUND = (30, 39, 54)
ELEVATION = np.radians(14.0)
AZIMUTH = np.radians(35.0)
VIEW_ANGLE = 30.0  # degrees, of the picture's height
MARGIN = 0.1  # of the picture, on each side
MAX_OUTLINE = 20_000  # points of a stream that the camera looks at


@dataclass(frozen=True)
class Stage:
    """Where all is seen from, and the box that holds it, [2, 3]."""

    view: View
    bounds: NDArray[np.float64]
    size: tuple[int, int]  # of the picture [pixels]

    @property
    def extent(self) -> float:
        """Return the longest edge of the box [m]."""
        return float(np.max(self.bounds[1] - self.bounds[0]))

    @property
    def floor(self) -> float:
        """Return the height of the ground [m]."""
        return float(self.bounds[0][1] - 0.01 * self.extent)


def stage_of(outline: NDArray[np.float64], size: tuple[int, int]) -> Stage:
    """Return the stage on which points [n, 3] just fit into a picture."""
    bounds = np.array([outline.min(axis=0), outline.max(axis=0)])
    if not np.any(bounds[1] > bounds[0]):
        bounds += np.array([[-0.5], [0.5]])
        outline = bounds
    return Stage(_view_of(outline, size), bounds, size)


def load_pyvista() -> Any:
    """Return pyvista.

    Raises:
        LokiError: It is not installed.
    """
    try:
        import pyvista
    except ImportError as error:
        raise LokiError(
            "pictures need pyvista, which is not installed: pip install pyvista"
        ) from error
    from vtkmodules.vtkCommonCore import vtkLogger

    # without a screen VTK looks for one first, and warns before it draws in memory
    vtkLogger.SetStderrVerbosity(vtkLogger.VERBOSITY_ERROR)
    return pyvista


def outline_of(stream: Any, color: str | None) -> NDArray[np.float64]:
    """Return points [n, 3] that the picture must hold: some of the stream's, without outliers."""
    if isinstance(stream, Mesh):
        step = max(1, stream.point_count // MAX_OUTLINE)
        points = np.asarray(stream.positions[::step], dtype=np.float64)
        if isinstance(stream, Curves):  # steps can miss the tips, and they reach farthest
            tips = stream.positions[stream.offsets[1:] - 1]
            points = np.concatenate((points, tips[:: 1 + len(tips) // MAX_OUTLINE]))
        points = points[np.all(np.isfinite(points), axis=1)]
        if len(points) > 1000:
            cut = 0.02 if isinstance(stream, Curves) else 0.2  # few points are tips of strands
            low, high = np.percentile(points, (cut, 100.0 - cut), axis=0)
            points = np.clip(points, low, high)
        return points
    if not stream.channels:
        return np.asarray(stream.bounds())
    level_set = "distance" in stream.channels and "density" not in stream.channels
    return occupied_corners(stream, "distance" if level_set else density_channel(stream, color))


def draw_ground(plotter: Any, stage: Stage) -> None:
    """Draw a disc that fades into the background; the camera is in its place already.

    It is opaque, in the colours that a translucent one would have: a translucent one would be drawn
    over glowing points that stand before it.
    """
    pyvista = load_pyvista()
    extent, center = stage.extent, 0.5 * (stage.bounds[0] + stage.bounds[1])
    center[1] = stage.floor
    disc = pyvista.Disc(
        center=center, inner=0.0, outer=1.6 * extent, normal=(0.0, 1.0, 0.0), r_res=40, c_res=120
    )
    distance = np.linalg.norm(disc.points - center, axis=1)
    fade = (np.clip(1.0 - distance / (1.6 * extent), 0.0, 1.0) ** 1.5)[:, None]
    height = np.clip(_picture_height(plotter, disc.points), 0.0, 1.0)[:, None]
    low, high = (np.array(pyvista.Color(c).int_rgb) for c in (BACKGROUND_LOW, BACKGROUND_HIGH))
    behind = low + (high - low) * height
    colors = np.rint(behind + (np.array(GROUND) - behind) * fade).astype(np.uint8)
    plotter.add_mesh(disc, scalars=colors, rgb=True, lighting=False)


def _picture_height(plotter: Any, points: NDArray[Any]) -> NDArray[Any]:
    """Return how high points are in the picture: 0 at its lower edge, 1 at its upper."""
    camera = plotter.camera
    position, target = np.array(camera.position), np.array(camera.focal_point)
    forward = (target - position) / np.linalg.norm(target - position)
    right = np.cross(forward, (0.0, 1.0, 0.0))
    upward = np.cross(right / np.linalg.norm(right), forward)
    offset = np.asarray(points, dtype=np.float64) - position
    depth = np.maximum(offset @ forward, 1e-6)
    slope = np.tan(np.radians(0.5 * VIEW_ANGLE))
    return np.asarray(0.5 + 0.5 * (offset @ upward) / (depth * slope))


def _view_of(outline: NDArray[Any], size: tuple[int, int]) -> View:
    """Look from a little above, from where everything just fits into the picture."""
    backward = np.array(
        [
            np.cos(ELEVATION) * np.sin(AZIMUTH),
            np.sin(ELEVATION),
            np.cos(ELEVATION) * np.cos(AZIMUTH),
        ]
    )
    right = np.cross((0.0, 1.0, 0.0), backward)
    right /= np.linalg.norm(right)
    upward = np.cross(backward, right)
    whole = np.tan(np.radians(0.5 * VIEW_ANGLE))
    slope = whole * (1.0 - MARGIN)
    target = 0.5 * (outline.min(axis=0) + outline.max(axis=0))
    distance = 1.0
    for _ in range(4):  # the middle of what is seen depends on the distance, and that on the middle
        offset = outline - target
        depth = offset @ backward
        x, y = offset @ right, offset @ upward
        needed = np.maximum(np.abs(x) / (slope * size[0] / size[1]), np.abs(y) / slope)
        distance = float(np.max(needed + depth))
        seen = np.maximum(distance - depth, 1e-3 * distance)
        shift_x, shift_y = (0.5 * distance * (np.min(v / seen) + np.max(v / seen)) for v in (x, y))
        target = target + shift_x * right + shift_y * upward
    return View(
        position=target + distance * backward,
        right=right,
        upward=upward,
        forward=-backward,
        slope=float(whole),
        aspect=size[0] / size[1],
    )


def place_camera(plotter: Any, view: View) -> None:
    """Let a plotter look as a view says."""
    camera = plotter.camera
    camera.position = view.position.tolist()
    camera.focal_point = (view.position + view.forward).tolist()
    camera.up = view.upward.tolist()
    camera.view_angle = VIEW_ANGLE
    if view.wide > 0.0:
        camera.parallel_projection = True
        camera.parallel_scale = view.wide
    plotter.reset_camera_clipping_range()
