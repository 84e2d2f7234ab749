"""Materials of the gallery: hair, skin, grass, smoke and fire, drops, liquids, glass, rock."""

# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import bpy

from loki_vfx.bridges.blender.compat import use_nodes

Color = tuple[float, float, float]


class _Nodes:
    """The nodes of a new material."""

    def __init__(self, name: str) -> None:
        self.material = bpy.data.materials.new(name)
        use_nodes(self.material)
        self.tree = self.material.node_tree
        self.tree.nodes.clear()
        self.output = self.tree.nodes.new("ShaderNodeOutputMaterial")

    def add(self, kind: str, **values: Any) -> Any:
        """Add a node; values are set on its inputs, `base_color` on "Base Color"."""
        node = self.tree.nodes.new(f"ShaderNode{kind}")
        sockets = {socket.name.lower().replace(" ", "_"): socket for socket in node.inputs}
        for name, value in values.items():
            is_color = sockets[name].type == "RGBA"
            sockets[name].default_value = (*value, 1.0) if is_color else value
        return node

    def attribute(self, name: str) -> Any:
        """Add a node that reads a channel."""
        node = self.add("Attribute")
        node.attribute_name = name
        return node

    def link(self, start: Any, end: Any) -> None:
        """Lead the first output of a node, or an output, to an input."""
        self.tree.links.new(start.outputs[0] if hasattr(start, "outputs") else start, end)

    def math(self, operation: str, first: Any, second: Any) -> Any:
        """Add a node that calculates with outputs or numbers."""
        node = self.add("Math")
        node.operation = operation
        for socket, given in zip(node.inputs, (first, second), strict=False):
            if isinstance(given, (int, float)):
                socket.default_value = given
            else:
                self.link(given, socket)
        return node

    def ramp(self, factor: Any, stops: list[tuple[float, Color]]) -> Any:
        """Add a node that turns a number from 0 to 1 into a colour."""
        node = self.add("ValToRGB")
        elements = node.color_ramp.elements
        for _ in stops[2:]:
            elements.new(0.5)
        for element, (place, color) in zip(elements, stops, strict=True):
            element.position, element.color = place, (*color, 1.0)
        self.link(factor, node.inputs["Fac"])
        return node


def hair(melanin: float, redness: float, *, roughness: float = 0.25) -> Any:
    """Return hair by its pigment, 0 white to 1 black; no two strands are quite alike."""
    nodes = _Nodes("Hair")
    shader = nodes.add(
        "BsdfHairPrincipled",
        melanin=melanin,
        melanin_redness=redness,
        roughness=roughness,
        radial_roughness=0.35,
        random_color=0.4,
        random_roughness=0.3,
    )
    shader.parametrization = "MELANIN"
    nodes.link(nodes.add("HairInfo").outputs["Random"], shader.inputs["Random"])
    nodes.link(shader, nodes.output.inputs["Surface"])
    return nodes.material


def painted(*, roughness: float = 0.5, subsurface: float = 0.0) -> Any:
    """Return a surface with the colours of its channel "Cd"."""
    nodes = _Nodes("Painted")
    shader = nodes.add(
        "BsdfPrincipled", roughness=roughness, subsurface_weight=subsurface, subsurface_scale=0.006
    )
    nodes.link(nodes.attribute("Cd"), shader.inputs["Base Color"])
    nodes.link(shader, nodes.output.inputs["Surface"])
    return nodes.material


def plain(color: Color, *, roughness: float, metallic: float = 0.0, coat: float = 0.0) -> Any:
    """Return a surface of one colour."""
    nodes = _Nodes("Plain")
    shader = nodes.add(
        "BsdfPrincipled",
        base_color=color,
        roughness=roughness,
        metallic=metallic,
        coat_weight=coat,
    )
    nodes.link(shader, nodes.output.inputs["Surface"])
    return nodes.material


def blades() -> Any:
    """Return grass: the colours of "Cd", darker at the roots, with light shining through."""
    nodes = _Nodes("Grass")
    along = nodes.add("HairInfo").outputs["Intercept"]
    shade = nodes.ramp(along, [(0.0, (0.15, 0.15, 0.15)), (0.7, (1.0, 1.0, 1.0))])
    color = nodes.add("Mix")
    color.data_type, color.blend_type = "RGBA", "MULTIPLY"
    color.inputs["Factor"].default_value = 1.0
    nodes.link(nodes.attribute("Cd"), color.inputs[6])
    nodes.link(shade, color.inputs[7])
    front = nodes.add("BsdfPrincipled", roughness=0.45, specular_ior_level=0.4)
    through = nodes.add("BsdfTranslucent")
    both = nodes.add("MixShader", factor=0.4)
    for shader, place in ((front, 1), (through, 2)):
        nodes.link(color.outputs[2], shader.inputs[0])
        nodes.link(shader, both.inputs[place])
    nodes.link(both, nodes.output.inputs["Surface"])
    return nodes.material


def smoke(
    density: float, *, color: Color = (0.8, 0.8, 0.8), glow: float = 0.0, glow_from: float = 400.0
) -> Any:
    """Return smoke of the channel "density", that glows where "temperature" [K] is high.

    Args:
        density: Extinction [1/m] where the channel is one.
        color: What is scattered of light.
        glow: Strength of the glow 100 K above where it begins.
        glow_from: Temperature [K] at which it begins.
    """
    nodes = _Nodes("Smoke")
    shader = nodes.add("VolumePrincipled", color=color, anisotropy=0.25)
    thick = nodes.math("MULTIPLY", nodes.attribute("density").outputs["Fac"], density)
    nodes.link(thick, shader.inputs["Density"])
    if glow > 0.0:
        heat = nodes.attribute("temperature").outputs["Fac"]
        excess = nodes.math("MULTIPLY", nodes.math("SUBTRACT", heat, glow_from), 0.01)
        part = nodes.math("MAXIMUM", excess, 0.0)
        tint = nodes.ramp(
            nodes.math("MULTIPLY", part, 0.4),
            [(0.0, (1.0, 0.05, 0.004)), (0.5, (1.0, 0.17, 0.015)), (1.0, (1.0, 0.45, 0.10))],
        )
        nodes.link(tint, shader.inputs["Emission Color"])
        strength = nodes.math("MULTIPLY", nodes.math("POWER", part, 1.8), glow)
        nodes.link(strength, shader.inputs["Emission Strength"])
    nodes.link(shader, nodes.output.inputs["Volume"])
    return nodes.material


def embers(channel: str, *, strength: float) -> Any:
    """Return drops that glow by a channel from 0, nearly dark, to 1, white-hot."""
    nodes = _Nodes("Embers")
    heat = nodes.attribute(channel).outputs["Fac"]
    tint = nodes.ramp(
        heat,
        [(0.0, (0.35, 0.01, 0.004)), (0.45, (1.0, 0.07, 0.008)), (0.8, (1.0, 0.28, 0.03)),
         (1.0, (1.0, 0.62, 0.22))],
    )  # fmt: skip
    light = nodes.add("Emission")
    nodes.link(tint, light.inputs["Color"])
    bright = nodes.math("MULTIPLY", nodes.math("POWER", heat, 1.5), strength)
    nodes.link(bright, light.inputs["Strength"])
    nodes.link(light, nodes.output.inputs["Surface"])
    return nodes.material


def water(*, color: Color = (0.9, 0.97, 1.0), foam: float = 0.0) -> Any:
    """Return water.

    Args:
        color: What is left of light at each of its surfaces.
        foam: Part of light that these scatter, as where it is full of air.
    """
    nodes = _Nodes("Water")
    clear = nodes.add(
        "BsdfPrincipled", base_color=color, roughness=0.02, ior=1.33, transmission_weight=1.0
    )
    white = nodes.add("BsdfPrincipled", base_color=(0.85, 0.9, 0.92), roughness=0.6)
    both = nodes.add("MixShader", factor=foam)
    for shader, place in ((clear, 1), (white, 2)):
        nodes.link(shader, both.inputs[place])
    nodes.link(both, nodes.output.inputs["Surface"])
    return nodes.material


def rock(color: Color) -> Any:
    """Return rough stone: a colour with spots, and dents."""
    nodes = _Nodes("Rock")
    noise = nodes.add("TexNoise", scale=3.0, detail=8.0, roughness=0.65)
    dark, light = ((part * color[0], part * color[1], part * color[2]) for part in (0.45, 1.35))
    shader = nodes.add("BsdfPrincipled", roughness=0.8)
    nodes.link(nodes.ramp(noise, [(0.3, dark), (0.7, light)]), shader.inputs["Base Color"])
    dents = nodes.add("Bump", strength=0.8, distance=0.12)
    nodes.link(noise, dents.inputs["Height"])
    nodes.link(dents, shader.inputs["Normal"])
    nodes.link(shader, nodes.output.inputs["Surface"])
    return nodes.material


def honey() -> Any:
    """Return honey: clear, and amber where it is centimetres thick."""
    nodes = _Nodes("Honey")
    shader = nodes.add(
        "BsdfPrincipled",
        base_color=(1.0, 0.93, 0.6),
        roughness=0.03,
        ior=1.49,
        transmission_weight=1.0,
    )
    inside = nodes.add("VolumeAbsorption", color=(1.0, 0.68, 0.06), density=170.0)
    nodes.link(shader, nodes.output.inputs["Surface"])
    nodes.link(inside, nodes.output.inputs["Volume"])
    return nodes.material


def wine() -> Any:
    """Return red wine: clear where it is thin, dark in a glass."""
    nodes = _Nodes("Wine")
    shader = nodes.add(
        "BsdfPrincipled",
        base_color=(1.0, 0.75, 0.75),
        roughness=0.0,
        ior=1.34,
        transmission_weight=1.0,
    )
    inside = nodes.add("VolumeAbsorption", color=(0.62, 0.03, 0.06), density=140.0)
    nodes.link(shader, nodes.output.inputs["Surface"])
    nodes.link(inside, nodes.output.inputs["Volume"])
    return nodes.material


def glass() -> Any:
    """Return clear glass."""
    nodes = _Nodes("Glass")
    shader = nodes.add(
        "BsdfPrincipled",
        base_color=(1.0, 1.0, 1.0),
        roughness=0.0,
        ior=1.45,
        transmission_weight=1.0,
    )
    nodes.link(shader, nodes.output.inputs["Surface"])
    return nodes.material


def mist() -> Any:
    """Return small drops: white where light comes through them."""
    nodes = _Nodes("Mist")
    front = nodes.add("BsdfDiffuse", color=(0.85, 0.92, 1.0))
    through = nodes.add("BsdfTranslucent", color=(0.9, 0.95, 1.0))
    both = nodes.add("MixShader", factor=0.7)
    for shader, place in ((front, 1), (through, 2)):
        nodes.link(shader, both.inputs[place])
    nodes.link(both, nodes.output.inputs["Surface"])
    return nodes.material
