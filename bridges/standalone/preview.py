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

from loki_core.data.curves import Curves
from loki_core.data.mesh import Mesh
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_vfx.bridges.standalone.curves_picture import color_channel, paint_curves, put_strands
from loki_vfx.bridges.standalone.mesh_picture import (
    check_color,
    draw_mesh,
    find_surfaces,
    point_values,
)
from loki_vfx.bridges.standalone.picture_stage import (
    BACKGROUND_HIGH,
    BACKGROUND_LOW,
    Stage,
    draw_ground,
    load_pyvista,
    outline_of,
    place_camera,
    stage_of,
)
from loki_vfx.bridges.standalone.volume_fields import density_channel, own_colors, tint_channel
from loki_vfx.bridges.standalone.volume_picture import (
    SHADOW_SIZE,
    Surfaces,
    lamp_view,
    paint_volumes,
    sort_volumes,
)


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
    load_pyvista()
    shown = seen(streams, color)
    if not shown:
        raise InputError("there is nothing to show: every Object of this frame is empty")
    check_color(shown, color)
    outline = np.concatenate([outline_of(stream, color) for stream in shown.values()])
    if len(outline) == 0:
        raise InputError("no position of this frame is finite; wtloki inspect shows more")
    picture.parent.mkdir(parents=True, exist_ok=True)
    temporary = picture.with_name(f".{picture.stem}.part.png")
    drawn = draw(shown, temporary, stage_of(outline, size), color=color, ground=ground)
    temporary.replace(picture)
    return drawn


def seen(streams: Mapping[str, Any], color: str | None) -> dict[str, Any]:
    """Return the streams that a picture shows; clear air only where there is nothing else."""
    shown = {path: stream for path, stream in streams.items() if sum(stream.counts().values())}
    if color is not None:
        return shown
    return {path: stream for path, stream in shown.items() if not _is_clear(stream)} or shown


def _is_clear(stream: Any) -> bool:
    """Whether a stream is air that carries no material."""
    return isinstance(stream, Voxels) and set(stream.channels) <= {"velocity", "pressure"}


def draw(
    streams: Mapping[str, Any], picture: Path, stage: Stage, *, color: str | None, ground: bool
) -> list[dict[str, Any]]:
    """Write a picture of streams as they are seen on a stage; return what each is coloured by."""
    if any(isinstance(stream, Voxels) and stream.channels for stream in streams.values()):
        return _draw_with_volumes(streams, picture, stage, color=color, ground=ground)
    if any(isinstance(stream, Curves) for stream in streams.values()):
        return _draw_with_curves(streams, picture, stage, color=color, ground=ground)
    return _draw_meshes(streams, picture, stage, color=color, ground=ground)


def _draw_meshes(
    streams: Mapping[str, Any], picture: Path, stage: Stage, *, color: str | None, ground: bool
) -> list[dict[str, Any]]:
    pyvista, size = load_pyvista(), list(stage.size)
    plotter = pyvista.Plotter(off_screen=True, window_size=size, lighting="three lights")
    try:
        plotter.set_background(BACKGROUND_LOW, top=BACKGROUND_HIGH)
        drawn = [
            {
                "object": path,
                "type": stream.type_name,
                "color": draw_mesh(plotter, stream, color, stage.bounds),
            }
            for path, stream in streams.items()
        ]
        place_camera(plotter, stage.view)
        if ground:
            draw_ground(plotter, stage)
            plotter.reset_camera_clipping_range()
        plotter.enable_anti_aliasing("ssaa")
        plotter.screenshot(str(picture))
    finally:
        plotter.close()
    return drawn


# -- with curves -------------------------------------------------------------------------------


def _draw_with_curves(
    streams: Mapping[str, Any], picture: Path, stage: Stage, *, color: str | None, ground: bool
) -> list[dict[str, Any]]:
    from PIL import Image

    curves = {path: one for path, one in streams.items() if isinstance(one, Curves)}
    surfaces, lamp_surfaces = _surfaces_for(streams, stage, color)
    pixels = paint_curves(
        curves,
        stage.view,
        stage.size,
        bounds=stage.bounds,
        values=_strand_values(curves, color),
        floor=stage.floor if ground else None,
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
    found = {path: point_values(stream, color)[1] for path, stream in curves.items()}
    return {path: values for path, values in found.items() if values is not None}


def _color_name(stream: Any, color: str | None) -> str | None:
    if isinstance(stream, Curves) and color is None:
        place = color_channel(stream)
        return place[1] if place else None
    if isinstance(stream, Voxels):
        return own_colors(stream)
    return point_values(stream, color)[0] if isinstance(stream, Mesh) else None


def _surfaces_for(
    streams: Mapping[str, Any], stage: Stage, color: str | None
) -> tuple[Surfaces | None, Surfaces | None]:
    """Return what eye and lamp see of meshes that pyvista draws; None where there are none."""
    meshes = {
        path: one
        for path, one in streams.items()
        if isinstance(one, Mesh) and not isinstance(one, Curves)
    }
    if not meshes:
        return None, None
    (width, height), bounds = stage.size, stage.bounds
    lamp = lamp_view(stage.view, bounds)
    return (
        find_surfaces(meshes, stage.view, (2 * width, 2 * height), color, bounds),
        find_surfaces(meshes, lamp, (SHADOW_SIZE,) * 2, color, bounds),
    )


# -- with volumes ------------------------------------------------------------------------------


def _draw_with_volumes(
    streams: Mapping[str, Any], picture: Path, stage: Stage, *, color: str | None, ground: bool
) -> list[dict[str, Any]]:
    from PIL import Image

    volumes = sort_volumes(streams)
    surfaces, lamp_surfaces = _surfaces_for(streams, stage, color)
    curves = {path: one for path, one in streams.items() if isinstance(one, Curves)}
    if curves:
        surfaces = surfaces or Surfaces.empty(2 * stage.size[1], 2 * stage.size[0])
        lamp_surfaces = lamp_surfaces or Surfaces.empty(SHADOW_SIZE, SHADOW_SIZE)
        put_strands(
            curves,
            stage.view,
            stage.size,
            bounds=stage.bounds,
            surfaces=surfaces,
            lamp_surfaces=lamp_surfaces,
            values=_strand_values(curves, color),
        )
    pixels = paint_volumes(
        volumes,
        stage.view,
        stage.size,
        bounds=stage.bounds,
        color=color,
        floor=stage.floor if ground else None,
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
