"""Empties: an object without geometry as one point, with its axes and its force field."""

from __future__ import annotations

import bpy
import numpy as np

from loki_core.data.points import Points

from .axes import Axes

PLAIN_TYPES = ("FLOAT", "INT", "BOOLEAN", "ENUM")


def empty_stream(evaluated: bpy.types.Object, axes: Axes) -> Points:
    """Return an evaluated empty.

    The point channels "x_axis", "y_axis" and "z_axis" are its own axes, as Blender names them, at
    the length that the object's scale gives them [m]; "size" is that of its display [m]. Settings
    of a force field are detail channels, "field_type", "field_strength" and so on, with distances
    in metres.
    """
    place = axes.to_loki(evaluated.matrix_world)
    points = Points(place.points(np.zeros((1, 3))))
    for name, axis in zip(("x_axis", "y_axis", "z_axis"), np.eye(3), strict=True):
        vector = place.vectors(axis[np.newaxis])
        points.set_channel("point", name, vector, transform="vector")
    size = place.length_scale * evaluated.empty_display_size
    points.set_channel("point", "size", np.array([size], np.float32))
    field = evaluated.field
    if field is not None and field.type != "NONE":
        for declared in field.bl_rna.properties:
            if declared.type in PLAIN_TYPES:
                value = getattr(field, declared.identifier)
                if declared.type == "FLOAT" and declared.unit == "LENGTH":
                    value *= axes.unit_scale
                points.set_channel("detail", f"field_{declared.identifier}", np.asarray(value))
    return points
