"""Preview: a picture of streams, made with pyvista without a window.

Points are soft glowing balls, surfaces and bodies are shaded. Where there are curves, all of it is
put together by curves_picture, which lights them as hair; where there are voxels, by
volume_picture: rays march through the smoke, and what pyvista draws stands in it. Colours come from
one channel; all Objects share the camera.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridges.standalone.curves_picture import color_channel, paint_curves, put_strands
from bridges.standalone.volume_fields import (
    density_channel,
    occupied_corners,
    own_colors,
    tint_channel,
)
from bridges.standalone.volume_picture import (
    SHADOW_SIZE,
    Surfaces,
    View,
    lamp_view,
    paint_volumes,
    sort_volumes,
)
from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError, LokiError, did_you_mean

BACKGROUND_LOW, BACKGROUND_HIGH = "#0a0d14", "#1f2a3c"
GROUND = (30, 39, 54)
COLOR_MAP = "inferno"
SURFACE_COLOR, LINE_COLOR, POINT_COLOR = "#9db4cf", "#e8c38a", "#7fb2ff"
ELEVATION = np.radians(14.0)
OWN_COLORS = "Cd"  # channel of linear colours that surfaces bring with them
AZIMUTH = np.radians(35.0)
VIEW_ANGLE = 30.0  # degrees, of the picture's height
MARGIN = 0.1  # of the picture, on each side
#: Radii of points over the extent of what is drawn: at least, at most, and as far as few points are
#: drawn larger than they are.
SMALLEST_POINT, LARGEST_POINT = 0.0012, 0.05
KNOWN_SIZE, UNKNOWN_SIZE = 0.003, 0.02
MAX_OUTLINE = 20_000  # points of a stream that the camera looks at


def render(
    streams: Mapping[str, Any],
    picture: Path,
    *,
    color: str | None = None,
    size: tuple[int, int] = (1280, 960),
    ground: bool = True,
) -> list[dict[str, Any]]:
    """Write a picture of all streams and return what each was coloured by.

    Raises:
        LokiError: pyvista is not installed.
        InputError: There is nothing to show, or no Object has the channel.
    """
    _pyvista()
    shown = {path: stream for path, stream in streams.items() if sum(stream.counts().values())}
    if not shown:
        raise InputError("there is nothing to show: every Object of this frame is empty")
    if color is None:  # clear air is seen only where there is nothing else
        seen = {path: stream for path, stream in shown.items() if not _is_clear(stream)}
        shown = seen or shown
    _check_color(shown, color)
    outline = np.concatenate([_outline(stream, color) for stream in shown.values()])
    if len(outline) == 0:
        raise InputError("no position of this frame is finite; wtloki inspect shows more")
    bounds = np.array([outline.min(axis=0), outline.max(axis=0)])
    if not np.any(bounds[1] > bounds[0]):
        bounds += np.array([[-0.5], [0.5]])
        outline = bounds
    view = _view(outline, size)
    picture.parent.mkdir(parents=True, exist_ok=True)
    temporary = picture.with_name(f".{picture.stem}.part.png")
    draw = _draw_meshes
    if _has_volumes(shown):
        draw = _draw_with_volumes
    elif any(isinstance(stream, Curves) for stream in shown.values()):
        draw = _draw_with_curves
    drawn = draw(shown, temporary, color=color, size=size, ground=ground, view=view, bounds=bounds)
    temporary.replace(picture)
    return drawn


def _draw_meshes(
    streams: Mapping[str, Any],
    picture: Path,
    *,
    color: str | None,
    size: tuple[int, int],
    ground: bool,
    view: View,
    bounds: NDArray[Any],
) -> list[dict[str, Any]]:
    plotter = _pyvista().Plotter(off_screen=True, window_size=list(size), lighting="three lights")
    try:
        plotter.set_background(BACKGROUND_LOW, top=BACKGROUND_HIGH)
        drawn = [
            {
                "object": path,
                "type": stream.type_name,
                "color": _draw(plotter, stream, color, bounds),
            }
            for path, stream in streams.items()
        ]
        _place_camera(plotter, view)
        if ground:
            _draw_ground(plotter, bounds)
            plotter.reset_camera_clipping_range()
        plotter.enable_anti_aliasing("ssaa")
        plotter.screenshot(str(picture))
    finally:
        plotter.close()
    return drawn


def _pyvista() -> Any:
    try:
        import pyvista
    except ImportError as error:
        raise LokiError(
            "pictures need pyvista, which is not installed: pip install 'loki-vfx[preview]'"
        ) from error
    from vtkmodules.vtkCommonCore import vtkLogger

    # without a screen VTK looks for one first, and warns before it draws in memory
    vtkLogger.SetStderrVerbosity(vtkLogger.VERBOSITY_ERROR)
    return pyvista


# -- colours -----------------------------------------------------------------------------------


def _check_color(streams: Mapping[str, Any], color: str | None) -> None:
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


def _point_values(stream: Mesh, color: str | None) -> tuple[str | None, NDArray[Any] | None]:
    """Return what points are coloured by: a channel, or their speed where nothing is asked for."""
    channels = stream.channels["point"]
    if color is None and _has_own_colors(stream):
        return OWN_COLORS, None
    if color is not None and color in channels:
        values = np.asarray(channels[color], dtype=np.float64)
        return color, values if values.ndim == 1 else _lengths(values)
    velocity = _velocity(stream)
    if velocity is not None and color in (None, "speed"):
        return "speed", _lengths(velocity)
    return None, None


def _has_own_colors(stream: Mesh) -> bool:
    colors = stream.channels["point"].get(OWN_COLORS)
    faces = isinstance(stream, Surface | Body)
    return faces and colors is not None and colors.shape[1:] == (3,) and colors.dtype.kind == "f"


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


# -- what is drawn -----------------------------------------------------------------------------


def _draw(plotter: Any, stream: Any, color: str | None, bounds: NDArray[Any]) -> str | None:
    if isinstance(stream, Voxels):
        return None  # without a channel there is nothing to see
    name, values = _point_values(stream, color)
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
    pyvista = _pyvista()
    cloud = pyvista.PolyData(np.asarray(stream.positions, dtype=np.float32))
    radius = _drawn_radius(stream, bounds)
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


def _drawn_radius(stream: Mesh, bounds: NDArray[Any]) -> float:
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
    lines = _pyvista().PolyData(np.asarray(stream.positions, dtype=np.float64), lines=cells)
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
    mesh = _pyvista().PolyData(np.asarray(stream.positions, dtype=np.float64), faces.ravel())
    if values is not None:
        mesh["values"] = values
    elif _has_own_colors(stream):
        mesh["own"] = _displayed(stream.channels["point"][OWN_COLORS])
    return mesh


# -- with curves -------------------------------------------------------------------------------


def _draw_with_curves(
    streams: Mapping[str, Any],
    picture: Path,
    *,
    color: str | None,
    size: tuple[int, int],
    ground: bool,
    view: View,
    bounds: NDArray[Any],
) -> list[dict[str, Any]]:
    from PIL import Image

    curves = {path: one for path, one in streams.items() if isinstance(one, Curves)}
    surfaces, lamp_surfaces = _surfaces_for(streams, view, size, color, bounds)
    extent = float(np.max(bounds[1] - bounds[0]))
    pixels = paint_curves(
        curves,
        view,
        size,
        bounds=bounds,
        values=_strand_values(curves, color),
        floor=bounds[0][1] - 0.01 * extent if ground else None,
        surfaces=surfaces,
        lamp_surfaces=lamp_surfaces,
    )
    Image.fromarray(pixels).save(picture)
    return [
        {"object": path, "type": stream.type_name, "color": _color_name(stream, color)}
        for path, stream in streams.items()
    ]


def _strand_values(curves: Mapping[str, Curves], color: str | None) -> dict[str, NDArray[Any]]:
    """Return what strands are coloured by, where it is asked for: else they look like hair."""
    if color is None:
        return {}
    found = {path: _point_values(stream, color)[1] for path, stream in curves.items()}
    return {path: values for path, values in found.items() if values is not None}


def _color_name(stream: Any, color: str | None) -> str | None:
    if isinstance(stream, Curves) and color is None:
        place = color_channel(stream)
        return place[1] if place else None
    if isinstance(stream, Voxels):
        return own_colors(stream)
    return _point_values(stream, color)[0] if isinstance(stream, Mesh) else None


def _surfaces_for(
    streams: Mapping[str, Any],
    view: View,
    size: tuple[int, int],
    color: str | None,
    bounds: NDArray[Any],
) -> tuple[Surfaces | None, Surfaces | None]:
    """Return what eye and lamp see of meshes that pyvista draws; None where there are none."""
    meshes = {
        path: one
        for path, one in streams.items()
        if isinstance(one, Mesh) and not isinstance(one, Curves)
    }
    if not meshes:
        return None, None
    width, height = size
    return (
        _find_surfaces(meshes, view, (2 * width, 2 * height), color, bounds),
        _find_surfaces(meshes, lamp_view(view, bounds), (SHADOW_SIZE,) * 2, color, bounds),
    )


# -- with volumes ------------------------------------------------------------------------------


def _is_clear(stream: Any) -> bool:
    """Whether a stream is air that carries no material."""
    return isinstance(stream, Voxels) and set(stream.channels) <= {"velocity", "pressure"}


def _has_volumes(streams: Mapping[str, Any]) -> bool:
    return any(isinstance(stream, Voxels) and stream.channels for stream in streams.values())


def _draw_with_volumes(
    streams: Mapping[str, Any],
    picture: Path,
    *,
    color: str | None,
    size: tuple[int, int],
    ground: bool,
    view: View,
    bounds: NDArray[Any],
) -> list[dict[str, Any]]:
    from PIL import Image

    volumes = sort_volumes(streams)
    surfaces, lamp_surfaces = _surfaces_for(streams, view, size, color, bounds)
    curves = {path: one for path, one in streams.items() if isinstance(one, Curves)}
    if curves:
        surfaces = surfaces or Surfaces.empty(2 * size[1], 2 * size[0])
        lamp_surfaces = lamp_surfaces or Surfaces.empty(SHADOW_SIZE, SHADOW_SIZE)
        put_strands(
            curves,
            view,
            size,
            bounds=bounds,
            surfaces=surfaces,
            lamp_surfaces=lamp_surfaces,
            values=_strand_values(curves, color),
        )
    extent = float(np.max(bounds[1] - bounds[0]))
    pixels = paint_volumes(
        volumes,
        view,
        size,
        bounds=bounds,
        color=color,
        floor=bounds[0][1] - 0.01 * extent if ground else None,
        surfaces=surfaces,
        lamp_surfaces=lamp_surfaces,
    )
    Image.fromarray(pixels).save(picture)
    tint = tint_channel(list(volumes.smoke.values()), color)
    shown: list[dict[str, Any]] = []
    for path, stream in streams.items():
        name: str | None = None
        if path in volumes.smoke:
            name = tint if tint in stream.channels else density_channel(stream, color)
        else:
            name = _color_name(stream, color)
        shown.append({"object": path, "type": stream.type_name, "color": name})
    return shown


def _find_surfaces(
    meshes: Mapping[str, Mesh],
    view: View,
    size: tuple[int, int],
    color: str | None,
    bounds: NDArray[Any],
) -> Surfaces:
    """Return what pyvista sees of meshes: depth, and colours and normals in two passes."""
    images, depth = [], np.empty(0)
    for is_normal in (False, True):
        plotter = _pyvista().Plotter(off_screen=True, window_size=list(size), lighting=None)
        try:
            plotter.set_background("black")
            for stream in meshes.values():
                _draw_unlit(plotter, stream, color, bounds, is_normal)
            _place_camera(plotter, view)
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
    pyvista = _pyvista()
    values = _point_values(stream, color)[1]
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
        pixels = plotter.window_size[1] * 2.0 * _drawn_radius(stream, bounds) / across
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


# -- the stage ---------------------------------------------------------------------------------


def _outline(stream: Any, color: str | None) -> NDArray[np.float64]:
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


def _draw_ground(plotter: Any, bounds: NDArray[Any]) -> None:
    """Draw a disc that fades into the background; the camera is in its place already.

    It is opaque, in the colours that a translucent one would have: a translucent one would be drawn
    over glowing points that stand before it.
    """
    pyvista = _pyvista()
    extent = float(np.max(bounds[1] - bounds[0]))
    center = np.array([*(0.5 * (bounds[0] + bounds[1]))])
    center[1] = bounds[0][1] - 0.01 * extent
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


def _view(outline: NDArray[Any], size: tuple[int, int]) -> View:
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


def _place_camera(plotter: Any, view: View) -> None:
    camera = plotter.camera
    camera.position = view.position.tolist()
    camera.focal_point = (view.position + view.forward).tolist()
    camera.up = view.upward.tolist()
    camera.view_angle = VIEW_ANGLE
    if view.wide > 0.0:
        camera.parallel_projection = True
        camera.parallel_scale = view.wide
    plotter.reset_camera_clipping_range()
