"""Result objects: the objects that show results, and their place in the scene."""

from __future__ import annotations

from typing import Any

import bpy
import mathutils
import numpy as np

from loki_core.errors import InputError

from .axes import Matrix

RESULT = "loki_result"
"""The custom property of objects that Loki has made, and may therefore write to."""


def is_result(one: Any) -> bool:
    """Whether an object was made to show results."""
    return RESULT in one


def result_object(name: str, kind: str, target: Any, collection: Any) -> Any:
    """Return an object of type `kind`: the target, what replaces it, or a new one.

    Raises:
        InputError: The target cannot be written to now.
    """
    if target is not None and not is_result(target):
        raise InputError(
            f'object "{target.name}" shows no result of Loki and would be overwritten: clear the '
            "Output's object, and a new one is made"
        )
    if target is not None and target.type == kind:
        if target.mode == "EDIT":
            raise InputError(f'object "{target.name}" is being edited: leave edit mode first')
        if not target.data.is_editable:
            raise InputError(f'object "{target.name}" is linked from a library: make it local')
        if not target.users_collection:  # deleted in the scene, and kept by the Output
            (collection or bpy.context.collection).objects.link(target)
        return target
    blocks = {
        "MESH": bpy.data.meshes, "CURVES": bpy.data.hair_curves, "VOLUME": bpy.data.volumes
    }[kind]  # fmt: skip
    made = bpy.data.objects.new(name, blocks.new(name))
    made[RESULT] = True
    if target is None:
        (collection or bpy.context.collection).objects.link(made)
        return made
    _replace(target, made)
    return made


def _replace(old: Any, new: Any) -> None:
    """Put a new object in the place of an old one, which cannot change its type, and remove it."""
    for slot in old.material_slots:
        new.data.materials.append(slot.material)
    new.parent, new.parent_type, new.parent_bone = old.parent, old.parent_type, old.parent_bone
    new.matrix_parent_inverse = old.matrix_parent_inverse
    new.matrix_basis = old.matrix_basis
    new.hide_render, new.hide_viewport = old.hide_render, old.hide_viewport
    for key, value in old.items():
        new[key] = value
    name, data = old.name, old.data
    old.user_remap(new)
    bpy.data.objects.remove(old)
    new.name = name
    if data is not None and data.users == 0:
        bpy.data.batch_remove([data])


def stand(holder: Any, matrix: Matrix) -> None:
    """Give an object without a parent its place in the world."""
    if holder.parent is None and not np.array_equal(np.array(holder.matrix_basis), matrix):
        holder.matrix_basis = mathutils.Matrix(matrix.tolist())
