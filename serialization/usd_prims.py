"""Prims of USD that follow an Object through time: geometry, and volumes in VDB files.

An Object that is not there at a frame, before it begins or after it ends, is invisible; its
arrays are empty then, for readers that do not look at visibility.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.data.channels import Array
from loki_core.data.voxels import VoxelChannel, Voxels
from loki_core.errors import InputError
from loki_vfx.serialization.usd_geometry import COLOR_CHANNELS, NOTHING, Geometry
from loki_vfx.serialization.usd_names import UniqueNames
from loki_vfx.serialization.usd_samples import SampledAttribute, usd_array, usd_type

_FIELD_TYPES = {"float32": "float", "bool": "bool", "int32": "int", "int64": "int64"}
_FIELD_CLASSES = {"level set": "levelSet", "fog volume": "fogVolume"}


class ObjectPrim:
    """What prims of both kinds share: they know at which frames their Object is there."""

    def __init__(self, prim: Any, schema: str, first: int) -> None:
        """Take a prim without a type, and the first frame of the stage."""
        prim.SetTypeName(schema)
        self.prim, self.path, self.first = prim, str(prim.GetPath()), first
        self.frame: int | None = None  # the last one at which the Object was there
        self._samples = {"visibility": SampledAttribute(prim.GetAttribute("visibility"))}
        self._names = UniqueNames()

    def end_frame(self, frame: int) -> None:
        """Note that the Object is not there, unless it was written."""
        if self.frame != frame:
            self._samples["visibility"].set("invisible", frame)
            self._leave(frame)

    def close(self) -> None:
        """Write what never changed."""
        for attribute in self._samples.values():
            attribute.close()

    def _appear(self, frame: int) -> None:
        if self.frame is None and frame > self.first:
            self._samples["visibility"].set("invisible", self.first)
        self._samples["visibility"].set("inherited", frame)
        self.frame = frame

    def _leave(self, frame: int) -> None:
        """Write what stands for an Object that is not there."""


class GeometryPrim(ObjectPrim):
    """A mesh, curves or points."""

    def __init__(self, prim: Any, geometry: Geometry, first: int, *, label: str) -> None:
        """Take the geometry of the first frame; `label` names the Object in errors."""
        super().__init__(prim, geometry.schema, first)
        self._label = label
        self._kinds: dict[str, tuple[str, int, str]] = {}
        for name, token in geometry.tokens.items():
            prim.GetAttribute(name).Set(token)

    def write(self, geometry: Geometry, frame: int) -> None:
        """Write all attributes; those that only other frames have are empty in this one."""
        self._appear(frame)
        given = dict(geometry.attributes)
        for name, value in geometry.primvars.items():
            given[f"primvars:{self._names.of(name, name)}"] = value
        for name, value in given.items():
            kind = (*usd_type(value), value.interpolation)
            if name not in self._kinds:
                self._kinds[name] = kind
                self._samples[name] = self._attribute(name)
                if frame > self.first:
                    self._samples[name].set(_nothing(name, value.array), self.first)
            elif kind != self._kinds[name]:
                raise InputError(
                    f'"{self._label}": {name} is {_words(kind)} in frame {frame}, and was '
                    f"{_words(self._kinds[name])}; USD has one type for all frames: export apart "
                    "the frames before and after"
                )
            self._samples[name].set(value.array, frame)
        self._empty(self._kinds.keys() - given.keys(), frame)

    def _leave(self, frame: int) -> None:
        self._empty(set(self._kinds), frame)

    def _empty(self, names: set[str], frame: int) -> None:
        for name in names:
            self._samples[name].set(_nothing(name, self._samples[name].value), frame)

    def _attribute(self, name: str) -> SampledAttribute:
        from pxr import Sdf, UsdGeom

        type_name, element_size, interpolation = self._kinds[name]
        if name.startswith("primvars:"):
            primvars = UsdGeom.PrimvarsAPI(self.prim)
            kind = getattr(Sdf.ValueTypeNames, type_name)
            attribute = primvars.CreatePrimvar(name, kind, interpolation, element_size).GetAttr()
        else:
            attribute = self.prim.GetAttribute(name)
            if interpolation:
                attribute.SetMetadata("interpolation", interpolation)
        return SampledAttribute(
            attribute,
            lambda array: usd_array(array, type_name),
            every_frame=name in ("velocities", "accelerations"),
        )


class VolumePrim(ObjectPrim):
    """A volume whose fields are grids of VDB files, one file for each frame."""

    def __init__(self, prim: Any, first: int) -> None:
        """Take a prim without a type, and the first frame of the stage."""
        super().__init__(prim, "Volume", first)
        extent = prim.GetAttribute("extent")
        self._samples["extent"] = SampledAttribute(
            extent, lambda array: usd_array(array, "Float3Array")
        )

    def write(self, voxels: Voxels, frame: int, *, file: str, classes: dict[str, str]) -> None:
        """Point every field to the file of this frame; `classes` are those of the grids."""
        self._appear(frame)
        bounds = voxels.bounds().astype(np.float32) if voxels.block_count else NOTHING
        self._samples["extent"].set(bounds, frame)
        for name, channel in voxels.channels.items():
            key = f"field:{name}"
            if key not in self._samples:
                self._samples[key] = self._field(name, channel, classes.get(name, "unknown"))
            self._samples[key].set(file, frame)

    def _field(self, name: str, channel: VoxelChannel, grid_class: str) -> SampledAttribute:
        """Make the prim of a grid, and return the attribute that says in which file it is."""
        from pxr import Sdf, UsdVol

        plain = self._names.of(name, name)
        field = UsdVol.OpenVDBAsset.Define(
            self.prim.GetStage(), self.prim.GetPath().AppendChild(plain)
        )
        kind = _FIELD_TYPES[channel.values.dtype.name]
        vector = channel.components == 3
        field.CreateFieldNameAttr(name)
        field.CreateFieldDataTypeAttr(f"{kind}3" if vector else kind)
        field.CreateFieldClassAttr(_FIELD_CLASSES.get(grid_class, "unknown"))
        if vector:
            field.CreateVectorDataRoleHintAttr("Color" if name in COLOR_CHANNELS else "Vector")
        UsdVol.Volume(self.prim).CreateFieldRelationship(plain, field.GetPath())
        return SampledAttribute(field.CreateFilePathAttr(), Sdf.AssetPath)


def _nothing(name: str, array: Array) -> Array:
    """Return the value of an attribute where its Object is not there."""
    return NOTHING if name == "extent" else array[:0]


def _words(kind: tuple[str, int, str]) -> str:
    type_name, element_size, interpolation = kind
    size = f" of {element_size}" if element_size > 1 else ""
    place = f" ({interpolation})" if interpolation else ""
    return f"{type_name}{size}{place}"
