"""Mesh picture: what pyvista draws of points, lines and faces, lit or as colours and normals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.body import Body
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError, did_you_mean
from loki_vfx.bridges.standalone.picture_stage import load_pyvista, place_camera
from loki_vfx.bridges.standalone.volume_fields import COLOR_CHANNELS
from loki_vfx.bridges.standalone.volume_picture import Surfaces, View

COLOR_MAP = "inferno"
SURFACE_COLOR, LINE_COLOR, POINT_COLOR = "#9db4cf", "#e8c38a", "#7fb2ff"
#: Radii of points over the extent of what is drawn: at least, at most, and as far as few points are
#: drawn larger than they are.
SMALLEST_POINT, LARGEST_POINT = 0.0012, 0.05
KNOWN_SIZE, UNKNOWN_SIZE = 0.003, 0.02


# -- colours -----------------------------------------------------------------------------------


def check_color(streams: Mapping[str, Any], color: str | None) -> None:
    """Raise InputError if no stream has the channel."""
    known = (
        {"speed"} if any(_velocity(stream) is not None for stream in streams.values()) else set()
    )
    for stream in streams.values():
        known.update(*stream.channel_names().values())
    if color is not None and color not in known:
        raise InputError(
            f'no Object of this frame has a channel "{color}"{did_you_mean(color, known)}'
        )


def _velocity(stream: Any) -> NDArray[Any] | None:
    if not isinstance(stream, Mesh) or "velocity" not in stream.channels["point"]:
        return None
    velocity = stream.channels["point"]["velocity"]
    return velocity if velocity.ndim == 2 else None


def point_values(stream: Mesh, color: str | None) -> tuple[str | None, NDArray[Any] | None]:
    """Return what points are coloured by: a channel, or their speed where nothing is asked for."""
    channels = stream.channels["point"]
    own = _own_colors(stream)
    if color is None and own is not None:
        return own, None
    if color is not None and color in channels:
        values = np.asarray(channels[color], dtype=np.float64)
        return color, values if values.ndim == 1 else _lengths(values)
    velocity = _velocity(stream)
    if velocity is not None and color in (None, "speed"):
        return "speed", _lengths(velocity)
    return None, None


def _own_colors(stream: Mesh) -> str | None:
    """The channel of linear colours that a surface brings with it."""
    if not isinstance(stream, Surface | Body):
        return None
    for name in COLOR_CHANNELS:
        colors = stream.channels["point"].get(name)
        if colors is not None and colors.shape[1:] == (3,) and colors.dtype.kind == "f":
            return name
    return None


def _displayed(colors: NDArray[Any]) -> NDArray[np.uint8]:
    """Return linear colours as 8 bits for a screen."""
    bright = np.clip(np.nan_to_num(colors), 0.0, 1.0) ** (1.0 / 2.2)
    return np.asarray(np.rint(255.0 * bright), dtype=np.uint8)


def _lengths(values: NDArray[Any]) -> NDArray[Any]:
    flat = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    return np.asarray(np.linalg.norm(flat, axis=1))


def _range(values: NDArray[Any]) -> tuple[float, float]:
    """Return the colour range; a few outliers must not turn everything else dark."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return 0.0, 1.0
    low, high = (float(v) for v in np.percentile(finite, (1.0, 99.0)))
    return (low, high) if high > low else (low - 0.5, low + 0.5)


# -- lit ---------------------------------------------------------------------------------------


def draw_mesh(plotter: Any, stream: Any, color: str | None, bounds: NDArray[Any]) -> str | None:
    """Draw a stream, and return what it is coloured by."""
    if isinstance(stream, Voxels):
        return None  # without a channel there is nothing to see
    name, values = point_values(stream, color)
    if isinstance(stream, Surface | Body):
        _draw_faces(plotter, stream, values)
    elif isinstance(stream, Wireframe):
        _draw_lines(plotter, stream, values, bounds)
    else:
        _draw_points(plotter, stream, values, bounds)
    return name


def _draw_points(
    plotter: Any, stream: Mesh, values: NDArray[Any] | None, bounds: NDArray[Any]
) -> None:
    pyvista = load_pyvista()
    cloud = pyvista.PolyData(np.asarray(stream.positions, dtype=np.float32))
    radius = drawn_radius(stream, bounds)
    options: dict[str, Any] = {"color": POINT_COLOR}
    if values is not None:
        cloud["values"] = values.astype(np.float32)
        options = {"scalars": "values", "cmap": COLOR_MAP, "clim": _glow_range(values)}
    for scale, opacity in ((3.0, 0.035), (0.9, 0.5)):  # a halo, then the ball
        plotter.add_mesh(
            cloud.copy(),
            style="points_gaussian",
            emissive=True,
            opacity=opacity,
            show_scalar_bar=False,
            **options,
        )
        plotter.mapper.scale_factor = scale * radius


def _glow_range(values: NDArray[Any]) -> tuple[float, float]:
    low, high = _range(values)
    # the darkest fifth of the colour map vanishes before a dark background
    return low - 0.35 * (high - low), high


def drawn_radius(stream: Mesh, bounds: NDArray[Any]) -> float:
    """Return a radius [m] that can be seen: the points' own, or a small part of the picture."""
    extent = float(np.max(bounds[1] - bounds[0])) or 1.0
    radius = stream.channels["point"].get("radius")
    own = float(np.median(radius)) if radius is not None and radius.size else 0.0
    crowd = extent / max(8.0, 6.0 * np.sqrt(stream.point_count))
    # Points that know their size are drawn larger only as far as it takes to see them.
    crowd = min(crowd, (KNOWN_SIZE if own > 0.0 else UNKNOWN_SIZE) * extent)
    return float(np.clip(max(own, crowd), SMALLEST_POINT * extent, LARGEST_POINT * extent))


def _draw_lines(
    plotter: Any, stream: Mesh, values: NDArray[Any] | None, bounds: NDArray[Any]
) -> None:
    lines = _line_mesh(stream, values)
    options: dict[str, Any] = {"color": LINE_COLOR}
    if values is not None:
        options = {"scalars": "values", "cmap": COLOR_MAP, "clim": _glow_range(values)}
    plotter.add_mesh(
        lines, line_width=2.0, render_lines_as_tubes=True, show_scalar_bar=False, **options
    )


def _line_mesh(stream: Mesh, values: NDArray[Any] | None) -> Any:
    edges = np.asarray(stream.edges(), dtype=np.int64)
    cells = np.column_stack((np.full(len(edges), 2), edges)).ravel()
    lines = load_pyvista().PolyData(np.asarray(stream.positions, dtype=np.float64), lines=cells)
    if values is not None:
        lines["values"] = values
    return lines


def _draw_faces(plotter: Any, stream: Surface | Body, values: NDArray[Any] | None) -> None:
    mesh = _face_mesh(stream, values)
    options: dict[str, Any] = {"color": SURFACE_COLOR}
    if values is not None:
        options = {"scalars": "values", "cmap": COLOR_MAP, "clim": _range(values)}
    elif "own" in mesh.point_data:
        options = {"scalars": "own", "rgb": True}
    plotter.add_mesh(
        mesh,
        smooth_shading=True,
        split_sharp_edges=True,
        specular=0.35,
        specular_power=18.0,
        ambient=0.12,
        show_scalar_bar=False,
        **options,
    )


def _face_mesh(stream: Surface | Body, values: NDArray[Any] | None) -> Any:
    triangles = stream.triangles() if isinstance(stream, Surface) else stream.boundary_faces()
    faces = np.column_stack((np.full(len(triangles), 3), triangles)).astype(np.int64)
    mesh = load_pyvista().PolyData(np.asarray(stream.positions, dtype=np.float64), faces.ravel())
    if values is not None:
        mesh["values"] = values
    elif (own := _own_colors(stream)) is not None:
        mesh["own"] = _displayed(stream.channels["point"][own])
    return mesh


# -- without light -----------------------------------------------------------------------------


def find_surfaces(
    meshes: Mapping[str, Mesh],
    view: View,
    size: tuple[int, int],
    color: str | None,
    bounds: NDArray[Any],
) -> Surfaces:
    """Return what pyvista sees of meshes: depth, and colours and normals in two passes."""
    images, depth = [], np.empty(0)
    for is_normal in (False, True):
        plotter = load_pyvista().Plotter(off_screen=True, window_size=list(size), lighting=None)
        try:
            plotter.set_background("black")
            for stream in meshes.values():
                _draw_unlit(plotter, stream, color, bounds, is_normal)
            place_camera(plotter, view)
            images.append(plotter.screenshot(return_img=True)[..., :3] / 255.0)
            depth = -np.asarray(plotter.get_image_depth(), dtype=np.float64)
        finally:
            plotter.close()
    nothing = ~np.isfinite(depth)
    width, height = size
    x = view.aspect * view.slope * ((2.0 * np.arange(width) + 1.0) / width - 1.0)
    y = view.slope * (1.0 - (2.0 * np.arange(height) + 1.0) / height)
    depth *= np.sqrt(1.0 + x[None, :] ** 2 + y[:, None] ** 2)
    depth[nothing] = 1e30
    colors, normals = images[0] ** 2.2, 2.0 * images[1] - 1.0
    normals[images[1].max(axis=2) == 0.0] = 0.0  # points and lines
    lengths = np.maximum(np.linalg.norm(normals, axis=2, keepdims=True), 1e-6)
    normals = np.where(lengths > 0.5, normals / lengths, 0.0)
    return Surfaces(*(np.ascontiguousarray(a, np.float32) for a in (depth, normals, colors)))


def _draw_unlit(
    plotter: Any, stream: Mesh, color: str | None, bounds: NDArray[Any], is_normal: bool
) -> None:
    """Draw a mesh in its plain colours, or its normals as colours; lines and points in black."""
    pyvista = load_pyvista()
    values = point_values(stream, color)[1]
    options: dict[str, Any] = {"lighting": False, "show_scalar_bar": False}
    if isinstance(stream, Surface | Body):
        drawn = _face_mesh(stream, values)
        if drawn.n_cells == 0:
            return
        if is_normal:
            drawn = drawn.compute_normals(cell_normals=False, split_vertices=True)
            shade = np.rint(127.5 + 127.5 * np.asarray(drawn.point_data["Normals"]))
            drawn["shade"] = shade.astype(np.uint8)
            plotter.add_mesh(drawn, scalars="shade", rgb=True, **options)
            return
        plain = SURFACE_COLOR
    elif isinstance(stream, Wireframe):
        drawn, plain = _line_mesh(stream, values), LINE_COLOR
        options["line_width"] = 3.0
    else:
        drawn, plain = pyvista.PolyData(np.asarray(stream.positions, dtype=np.float32)), POINT_COLOR
        if values is not None:
            drawn["values"] = values
        # as many pixels as a ball has whose distance is that of the middle
        across = float(np.max(bounds[1] - bounds[0]))
        pixels = plotter.window_size[1] * 2.0 * drawn_radius(stream, bounds) / across
        options |= {"render_points_as_spheres": True, "point_size": max(2.0, pixels)}
    if is_normal:
        plotter.add_mesh(drawn, color="black", **options)
    elif "own" in drawn.point_data:
        plotter.add_mesh(drawn, scalars="own", rgb=True, **options)
    elif values is None:
        plotter.add_mesh(drawn, color=plain, **options)
    else:
        span = _range(values)
        plotter.add_mesh(drawn, scalars="values", cmap=COLOR_MAP, clim=span, **options)
