"""The stage: an empty scene with world, lights, camera and the settings of Cycles.

Places are given as in Loki, in metres with Y up, and turned here.
"""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bpy
from mathutils import Vector

from loki_vfx.bridges.blender.axes import Axes, turn_to_host
from loki_vfx.bridges.blender.compat import use_nodes

AXES = Axes()
Place = Sequence[float]
Color = tuple[float, float, float]


def empty_scene() -> Any:
    """Return the scene of a new file without anything in it."""
    bpy.ops.wm.read_factory_settings(use_empty=True)
    scene = bpy.context.scene
    scene.render.engine = "CYCLES"
    scene.cycles.device = "CPU"
    scene.cycles.use_adaptive_sampling = True
    scene.cycles.use_denoising = True
    scene.cycles.denoiser = "OPENIMAGEDENOISE"
    scene.cycles.denoising_input_passes = "RGB_ALBEDO_NORMAL"
    scene.cycles.sample_clamp_indirect = 6.0
    scene.cycles.caustics_reflective = scene.cycles.caustics_refractive = False
    scene.cycles.volume_biased = True  # marched: quicker, and smooth with few samples
    scene.cycles.volume_step_rate = 1.5
    scene.cycles.volume_max_steps = 256
    for kind, bounces in (("max", 5), ("diffuse", 2), ("glossy", 3), ("transmission", 4)):
        setattr(scene.cycles, f"{kind}_bounces", bounces)
    scene.view_settings.view_transform = "AgX"
    scene.view_settings.look = "AgX - Medium High Contrast"
    scene.render.use_persistent_data = True
    return scene


def set_world(scene: Any, top: Color, bottom: Color, *, strength: float = 1.0) -> None:
    """Let light come from a sky that runs from a colour below to another above."""
    world = bpy.data.worlds.new("World")
    scene.world = world
    use_nodes(world)
    tree = world.node_tree
    background = tree.nodes["Background"]
    background.inputs["Strength"].default_value = strength
    place = tree.nodes.new("ShaderNodeTexCoord")
    split = tree.nodes.new("ShaderNodeSeparateXYZ")
    ramp = tree.nodes.new("ShaderNodeValToRGB")
    ramp.color_ramp.elements[0].color = (*bottom, 1.0)
    ramp.color_ramp.elements[1].color = (*top, 1.0)
    shift = tree.nodes.new("ShaderNodeMapRange")
    shift.inputs["From Min"].default_value = -0.2
    shift.inputs["From Max"].default_value = 0.7
    tree.links.new(place.outputs["Generated"], split.inputs[0])
    tree.links.new(split.outputs["Z"], shift.inputs["Value"])
    tree.links.new(shift.outputs["Result"], ramp.inputs["Fac"])
    tree.links.new(ramp.outputs["Color"], background.inputs["Color"])


def add_camera(
    scene: Any,
    place: Place,
    looks_at: Place,
    *,
    lens: float = 50.0,
    stop: float = 0.0,
    focus: Place | None = None,
) -> Any:
    """Add the camera.

    Args:
        place: Where it stands [m].
        looks_at: What is in the middle of the picture [m].
        lens: Focal length [mm] on a 36 mm sensor.
        stop: f-number of the lens; 0 has everything sharp.
        focus: What is sharp [m]; None is what it looks at.
    """
    data = bpy.data.cameras.new("Camera")
    data.lens = lens
    data.clip_start = 0.01
    camera = bpy.data.objects.new("Camera", data)
    _aim(camera, place, looks_at)
    if stop > 0.0:
        data.dof.use_dof = True
        data.dof.aperture_fstop = stop
        sharp = Vector(turn_to_host(looks_at if focus is None else focus))
        data.dof.focus_distance = (sharp - camera.location).length
    scene.collection.objects.link(camera)
    scene.camera = camera
    return camera


def add_lamp(
    scene: Any,
    place: Place,
    looks_at: Place,
    *,
    power: float,
    size: float,
    color: Color = (1.0, 1.0, 1.0),
) -> Any:
    """Add a square area light [m] of some power [W]."""
    data = bpy.data.lights.new("Lamp", "AREA")
    data.energy, data.size, data.color = power, size, color
    lamp = bpy.data.objects.new("Lamp", data)
    _aim(lamp, place, looks_at)
    scene.collection.objects.link(lamp)
    return lamp


def add_sun(
    scene: Any, direction: Place, *, strength: float, angle: float, color: Color = (1.0, 1.0, 1.0)
) -> Any:
    """Add a sun that shines along a direction; `angle` [rad] is how large it is in the sky."""
    data = bpy.data.lights.new("Sun", "SUN")
    data.energy, data.angle, data.color = strength, angle, color
    sun = bpy.data.objects.new("Sun", data)
    _aim(sun, (0.0, 0.0, 0.0), direction)
    scene.collection.objects.link(sun)
    return sun


def add_floor(scene: Any, height: float, material: Any, *, size: float = 60.0) -> Any:
    """Add a wide floor at a height [m]."""
    half = 0.5 * size
    mesh = bpy.data.meshes.new("Floor")
    corners = [(-half, -half, height), (half, -half, height), (half, half, height)]
    mesh.from_pydata([*corners, (-half, half, height)], [], [(0, 1, 2, 3)])
    mesh.materials.append(material)
    floor = bpy.data.objects.new("Floor", mesh)
    scene.collection.objects.link(floor)
    return floor


def use_material(shown: Any, material: Any) -> None:
    """Give an object its one material."""
    if shown.active_material != material:
        shown.data.materials.clear()
        shown.data.materials.append(material)


def add_bloom(scene: Any, *, strength: float, threshold: float = 1.0, size: float = 0.6) -> None:
    """Let bright places shine over their surroundings, as a lens does."""
    tree = bpy.data.node_groups.new("Bloom", "CompositorNodeTree")
    tree.interface.new_socket("Image", in_out="OUTPUT", socket_type="NodeSocketColor")
    layers = tree.nodes.new("CompositorNodeRLayers")
    glare = tree.nodes.new("CompositorNodeGlare")
    for name, value in (("Type", "Bloom"), ("Quality", "High"), ("Threshold", threshold)):
        glare.inputs[name].default_value = value
    glare.inputs["Strength"].default_value, glare.inputs["Size"].default_value = strength, size
    result = tree.nodes.new("NodeGroupOutput")
    tree.links.new(layers.outputs["Image"], glare.inputs["Image"])
    tree.links.new(glare.outputs["Image"], result.inputs[0])
    scene.compositing_node_group = tree


def smooth(shown: Any, *, levels: int = 0) -> None:
    """Shade a mesh without facets, and subdivide it for the render."""
    shown.data.shade_smooth()
    if levels and not shown.modifiers:
        modifier = shown.modifiers.new("Subdivision", "SUBSURF")
        modifier.levels = modifier.render_levels = levels


def let_light_in(shown: Any) -> None:
    """Let a glassy thing throw no shadow: what is in it is lit as if light went straight on."""
    shown.visible_shadow = False


def mirrored_tiles(
    scene: Any, shown: Sequence[Any], *, width: float, places: Sequence[Place]
) -> None:
    """Repeat objects of a square of some width [m], mirrored so that neighbours meet.

    Args:
        shown: The objects; copies share their data, and so follow it.
        places: Columns along x and rows along z, in widths, such as (0, -1).
    """
    for column, row in places:
        for one in shown:
            name = f"{one.name} {column} {row}"
            if name in scene.objects:
                continue
            tile = bpy.data.objects.new(name, one.data)
            tile.location = turn_to_host((column * width, 0.0, row * width))
            tile.scale = (1.0 - 2.0 * (column % 2), 1.0 - 2.0 * (row % 2), 1.0)
            scene.collection.objects.link(tile)


def render(scene: Any, path: Path, *, size: tuple[int, int], samples: int) -> None:
    """Render the scene into a PNG file."""
    scene.render.resolution_x, scene.render.resolution_y = size
    scene.render.resolution_percentage = 100
    scene.render.image_settings.file_format = "PNG"
    scene.render.image_settings.color_mode = "RGB"
    scene.render.filepath = str(path)
    scene.cycles.samples = samples
    scene.cycles.adaptive_threshold = 0.02
    path.parent.mkdir(parents=True, exist_ok=True)
    bpy.ops.render.render(write_still=True)


def _aim(thing: Any, place: Place, looks_at: Place) -> None:
    thing.location = turn_to_host(place)
    way = Vector(turn_to_host(looks_at)) - thing.location
    thing.rotation_mode = "QUATERNION"
    thing.rotation_quaternion = way.to_track_quat("-Z", "Y")
