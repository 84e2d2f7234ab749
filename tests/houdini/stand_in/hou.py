"""A stand-in for Houdini's `hou`: only what the bridge calls, and as its published types say.

Geometry is kept by Loki's own reader of the geometry format; nodes cook a Python function, with a
copy of their first input as geometry, and hold it read-only otherwise, as Houdini does. mypy's
stubtest compares this file with the published stub (`tests/houdini/test_stand_in.py`).
"""

from __future__ import annotations

import copy

import numpy as np

from loki_vfx.serialization.houdini_files import read_bytes, write_bytes
from loki_vfx.serialization.houdini_geometry import POLYLINE as _POLYLINE
from loki_vfx.serialization.houdini_geometry import VDB as _VDB
from loki_vfx.serialization.houdini_geometry import Attribute as _Values
from loki_vfx.serialization.houdini_geometry import Geometry as _Geometry
from loki_vfx.serialization.houdini_json import encode_binary
from loki_vfx.serialization.houdini_packed import concatenated
from loki_vfx.serialization.houdini_writer import document_of
from loki_vfx.serialization.vdb_grid import joined
from loki_vfx.serialization.volumes import read_grids

_state = {"frame": 1.0, "fps": 24.0, "pwd": [], "progress": [], "interrupt_after": None}


class Error(Exception):
    def __init__(self, *args):
        super().__init__(*args)

    def instanceMessage(self):
        return str(self.args[0]) if self.args else ""


class OperationFailed(Error): ...


class OperationInterrupted(Error): ...


class GeometryPermissionError(Error): ...


class NodeError(Error): ...


class NodeWarning(Error): ...


class EnumValue:
    def __init__(self, *args, **kwargs):
        self._name = args[0] if args else ""

    def __eq__(self, other):
        return isinstance(other, EnumValue) and self._name == other._name

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self._name)

    def __lt__(self, other):
        return self._name < other._name

    def name(self):
        return self._name


class attribType:
    Point = EnumValue("Point")
    Prim = EnumValue("Prim")
    Vertex = EnumValue("Vertex")
    Global = EnumValue("Global")


class attribScope:
    Public = EnumValue("Public")
    Private = EnumValue("Private")


class attribData:
    Int = EnumValue("Int")
    Float = EnumValue("Float")
    String = EnumValue("String")


class severityType:
    Message = EnumValue("Message")
    Warning = EnumValue("Warning")
    Error = EnumValue("Error")


class numericData:
    Float16 = EnumValue("float16")
    Float32 = EnumValue("float32")
    Float64 = EnumValue("float64")
    Int8 = EnumValue("int8")
    UInt8 = EnumValue("uint8")
    Int16 = EnumValue("int16")
    Int32 = EnumValue("int32")
    Int64 = EnumValue("int64")


class vdbData:
    Boolean = EnumValue("Boolean")
    Float = EnumValue("Float")
    Int = EnumValue("Int")
    Vector3 = EnumValue("Vector3")


class Vector3:
    def __init__(self, x=0.0, y=0.0, z=0.0):
        self._values = (x, y, z)

    def __getitem__(self, index):
        return self._values[index]

    def __len__(self):
        return 3


class BoundingBox:
    def __init__(self, bbox_or_xmin=0.0, ymin=0.0, zmin=0.0, xmax=0.0, ymax=0.0, zmax=0.0):
        self._ends = (bbox_or_xmin, ymin, zmin, xmax, ymax, zmax)

    def minvec(self):
        return Vector3(*self._ends[:3])

    def maxvec(self):
        return Vector3(*self._ends[3:])


class Prim:
    def __init__(self, *args, **kwargs):
        self._kept, self._number = args

    def number(self):
        return self._number

    def attribValue(self, attrib):
        return self._kept.attributes["primitive"][attrib].as_texts()[self._number]


class VDB(Prim):
    """Of a grid that was read from a file; values are asked of a dense box."""

    def _grid(self):
        return self._kept.vdbs[self._number]

    def _active(self):
        """The box of voxels that are not background, and all values around it."""
        grid, voxels = self._grid(), joined([self._grid()])
        dense, first = voxels.to_dense(grid.name), voxels.first_voxel()
        active = np.argwhere((dense != grid.background).any(axis=0))
        return dense, first, active

    def activeVoxelCount(self):
        return len(self._active()[2])

    def activeVoxelBoundingBox(self):
        _, first, active = self._active()
        low, high = first + active.min(axis=0), first + active.max(axis=0) + 1
        return BoundingBox(*low.astype(float), *high.astype(float))

    def voxelSize(self):
        return Vector3(*[self._grid().voxel_size] * 3)

    def indexToPos(self, index):
        grid = self._grid()
        return Vector3(*(grid.origin + grid.voxel_size * (np.array(index) + 0.5)))

    def intrinsicValue(self, intrinsic_name):
        grid = self._grid()
        if intrinsic_name == "background":
            components = grid.values.shape[1]
            return grid.background if components == 1 else (grid.background,) * components
        if intrinsic_name == "vdb_class":
            return "staggered" if grid.location == "face" else "unknown"
        raise OperationFailed(f"Invalid intrinsic: {intrinsic_name}")

    def dataType(self):
        values = self._grid().values
        kinds = {"f": vdbData.Float, "i": vdbData.Int, "b": vdbData.Boolean}
        return vdbData.Vector3 if values.shape[1] == 3 else kinds[values.dtype.kind]

    def _range(self, range):
        """Values of a box, [voxels, components], x the fastest."""
        dense, first, _ = self._active()
        low, high = (np.array([int(e) for e in ends]) - first for ends in _ends_of(range))
        x, y, z = (slice(a, b) for a, b in zip(low, high))
        return dense[:, x, y, z].transpose(3, 2, 1, 0).reshape(-1, len(dense))

    def voxelRangeAsBool(self, range):
        return tuple(self._range(range)[:, 0].tolist())

    voxelRangeAsFloat = voxelRangeAsInt = voxelRangeAsBool

    def voxelRangeAsVector3(self, range):
        return tuple(Vector3(*row) for row in self._range(range).tolist())


def _ends_of(box):
    return tuple(box.minvec()), tuple(box.maxvec())


class Attrib:
    def __init__(self, *args, **kwargs):
        self._name, self._values = args

    def name(self):
        return self._name

    def size(self):
        return int(np.prod(self._values.values.shape[1:]))

    def dataType(self):
        if self._values.texts is not None:
            return attribData.String
        return attribData.Float if self._values.values.dtype.kind == "f" else attribData.Int


class Geometry:
    def __init__(self, *args, **kwargs):
        self._kept = _Geometry()
        self._is_writable = True

    def _write(self):
        if not self._is_writable:
            raise GeometryPermissionError("Geometry is read-only.")

    def _points(self, name):
        if name not in self._kept.attributes["point"]:
            raise OperationFailed(f"Invalid attribute name: {name}")
        return self._kept.attributes["point"][name]

    def data(self):
        if not self._kept.vdbs:
            return write_bytes(self._kept)
        return b"".join(encode_binary(_document_with_vdbs(self._kept)))

    def load(self, data):
        self._write()
        self._kept = read_bytes(data)

    def loadFromFile(self, file_name):
        """Of VDBs alone."""
        self._write()
        grids = read_grids(file_name)
        self._kept = kept = _Geometry(point_count=len(grids))
        kept.set_primitives(_VDB, np.ones(len(grids), np.int64), np.arange(len(grids)))
        kept.vdbs = dict(enumerate(grids))
        places = np.zeros((len(grids), 3), np.float32)
        kept.attributes["point"]["P"] = _Values(places, "point")
        names = [grid.name for grid in grids]
        kept.attributes["primitive"]["name"] = _Values(
            np.arange(len(grids)).astype("i4"), "", names
        )

    def prim(self, index):
        return VDB(self._kept, index) if index in self._kept.vdbs else Prim(self._kept, index)

    def prims(self):
        return tuple(self.prim(index) for index in range(len(self._kept.kinds)))

    def findPrimAttrib(self, name, scope=attribScope.Public):
        found = self._kept.attributes["primitive"].get(name)
        return None if found is None else Attrib(name, found)

    def merge(self, geometry, clone_data_ids=False, prims=None):
        self._write()
        self._kept = concatenated([self._kept, geometry._kept])

    def clear(self):
        self._write()
        self._kept = _Geometry()

    def freeze(self, read_only=False, clone_data_ids=False):
        made = Geometry()
        made._kept = copy.deepcopy(self._kept)
        made._is_writable = not read_only
        return made

    def pointCount(self):
        return self._kept.point_count

    def findPointAttrib(self, name, scope=attribScope.Public):
        found = self._kept.attributes["point"].get(name)
        return None if found is None else Attrib(name, found)

    def findGlobalAttrib(self, name, scope=attribScope.Public):
        found = self._kept.attributes["detail"].get(name)
        return None if found is None else Attrib(name, found)

    def attribValue(self, name_or_attrib):
        name = name_or_attrib if isinstance(name_or_attrib, str) else name_or_attrib.name()
        if name not in self._kept.attributes["detail"]:
            raise OperationFailed(f"Invalid attribute name: {name}")
        found = self._kept.attributes["detail"][name]
        if found.texts is not None:
            return found.as_texts()[0]
        values = found.values.reshape(-1).tolist()
        return values[0] if len(values) == 1 else tuple(values)

    def addAttrib(
        self, type, name, default_value, transform_as_normal=False, create_local_variable=True
    ):
        self._write()
        owner = {"Point": "point", "Prim": "primitive", "Vertex": "vertex", "Global": "detail"}
        place = owner[type.name()]
        count = self._kept.count(place)
        if isinstance(default_value, str):
            made = _Values(np.zeros(count, np.int32), "", [default_value])
        else:
            value = np.atleast_1d(np.asarray(default_value))
            kind = np.float32 if value.dtype.kind == "f" else np.int32
            many = np.tile(value.astype(kind), (count, 1))
            made = _Values(many[:, 0].copy() if len(value) == 1 else many)
        self._kept.attributes[place][name] = made
        return Attrib(name, made)

    def pointIntAttribValuesAsString(self, name, int_type=numericData.Int32):
        values = self._points(name).values
        return np.ascontiguousarray(values, int_type.name()).tobytes()

    def setPointFloatAttribValuesFromString(self, name, values, float_type=numericData.Float32):
        self._set_points(name, np.frombuffer(values, float_type.name()))

    def setPointIntAttribValuesFromString(self, name, values, int_type=numericData.Int32):
        self._set_points(name, np.frombuffer(values, int_type.name()))

    def _set_points(self, name, values):
        self._write()
        kept = self._points(name)
        if values.size != kept.values.size:
            raise OperationFailed("Incorrect attribute value sequence size.")
        kept.values = values.reshape(kept.values.shape).astype(kept.values.dtype)

    def setPointStringAttribValues(self, name, values):
        self._write()
        kept = self._points(name)
        if len(values) != self.pointCount():
            raise OperationFailed("Incorrect attribute value sequence size.")
        texts = list(dict.fromkeys(values))
        kept.texts = texts
        kept.values = np.array([texts.index(one) for one in values], np.int32)


def _document_with_vdbs(kept):
    """A document in which VDBs are primitives of their own, as Houdini writes them."""
    is_vdb = kept.kinds == _VDB
    bare = copy.copy(kept)
    bare.kinds = np.where(is_vdb, _POLYLINE, kept.kinds)
    document = document_of(bare)
    place = document.index("primitives") + 1
    written, number = [], 0
    for head, values in document[place]:
        if head != ["type", "c_r"]:
            written.append([head, values])
            number += values[values.index("n_p") + 1] if "n_p" in values else 1
            continue
        vertex = values[1]
        for _ in range(values[3]):
            size = int(kept.offsets[number + 1] - kept.offsets[number])
            vertices = list(range(vertex, vertex + size))
            if is_vdb[number]:
                written.append([["type", "VDB"], ["vertex", vertices[0], "vdb", [0, "VDB "]]])
            else:
                written.append([["type", "PolygonCurve"], ["vertex", vertices]])
            vertex, number = vertex + size, number + 1
    document[place] = written
    return document


class Parm:
    def __init__(self, *args, **kwargs):
        self._name, self._value = args

    def name(self):
        return self._name

    def eval(self):
        return self._value(_state["frame"]) if callable(self._value) else self._value

    def evalAsString(self):
        return str(self.eval())

    def evalAsInt(self):
        return int(self.eval())

    def evalAsFloat(self):
        return float(self.eval())

    def isTimeDependent(self):
        return callable(self._value)

    def set(self, value, language=None, follow_parm_reference=True):
        self._value = value


class ParmTuple:
    def __init__(self, *args, **kwargs):
        self._parms = args

    def evalAsFloats(self):
        return tuple(parm.evalAsFloat() for parm in self._parms)


class NodeType:
    def __init__(self, *args, **kwargs):
        self._name = args[0]

    def name(self):
        return self._name


class NetworkItem:
    def __init__(self, *args, **kwargs): ...

    def path(self):
        return f"/obj/geo1/{self._name}"

    def name(self):
        return self._name

    def sessionId(self):
        return id(self)


class NetworkMovableItem(NetworkItem): ...


class Node(NetworkMovableItem):
    def type(self):
        return self._type

    def inputs(self):
        return tuple(self._inputs)

    def setInput(self, input_index, item_to_become_input, output_index=0):
        while len(self._inputs) <= input_index:
            self._inputs.append(None)
        self._inputs[input_index] = item_to_become_input


class OpNode(Node):
    def __init__(self, *args, **kwargs):
        """Args: name, name of the type, values of parms, what cooks it."""
        self._name, type_name, parms, self._cook = args
        self._type = NodeType(type_name)
        self._parms = {name: Parm(name, value) for name, value in parms.items()}
        self._inputs, self._callbacks = [], set()
        self._errors, self._warnings, self._messages = [], [], []

    def parm(self, parm_path):
        return self._parms.get(parm_path)

    def parmTuple(self, parm_path):
        found = [self._parms.get(parm_path + axis) for axis in "xyzw"]
        return ParmTuple(*[one for one in found if one is not None]) if found[0] else None

    def parms(self):
        return tuple(self._parms.values())

    def isTimeDependent(self, for_last_cook=False):
        own = any(parm.isTimeDependent() for parm in self._parms.values())
        return own or any(one is not None and one.isTimeDependent() for one in self._inputs)

    def addEventCallback(self, event_types, callback):
        self._callbacks.update({(one.name(), callback) for one in event_types})

    def destroy(self, disable_safety_checks=False):
        for name, callback in self._callbacks:
            if name == "BeingDeleted":
                callback(node=self, event_type=nodeEventType.BeingDeleted)

    def addWarning(self, message=None):
        self._warnings.append(message)

    def addMessage(self, message=None):
        self._messages.append(message)

    def errors(self):
        return tuple(self._errors)

    def warnings(self):
        return tuple(self._warnings)

    def messages(self):
        return tuple(self._messages)

    def cook(self, force=False, frame_range=()):
        for one in self._inputs:
            if one is not None:
                one.cook(force)
        first = self._inputs[0] if self._inputs else None
        self._errors, self._warnings, self._messages = [], [], []
        self._geometry = Geometry() if first is None else first.geometry().freeze()
        _state["pwd"].append(self)
        try:
            self._cook(self)
        except NodeError as error:
            self._errors.append(error.instanceMessage())
        except NodeWarning as warning:
            self._warnings.append(warning.instanceMessage())
        finally:
            _state["pwd"].pop()
            self._geometry._is_writable = False
        if self._errors:
            raise OperationFailed("The attempted operation failed.\n" + "\n".join(self._errors))


class SopNode(OpNode):
    def geometry(self, output_index=0):
        return self._geometry

    def inputGeometry(self, index):
        one = self._inputs[index] if index < len(self._inputs) else None
        return None if one is None else one.geometry()

    def inputGeometryAtFrame(self, frame, index):
        one = self._inputs[index] if index < len(self._inputs) else None
        if one is None:
            return None
        before = _state["frame"]
        _state["frame"] = frame
        try:
            one.cook()
            return one.geometry().freeze(read_only=True)
        finally:
            _state["frame"] = before
            one.cook()


class InterruptableOperation:
    def __init__(
        self, operation_name, long_operation_name=None, open_interrupt_dialog=False, timeout_ms=0
    ): ...

    def __enter__(self):
        return self

    def __exit__(self, type, value, traceback): ...

    def updateProgress(self, percentage=-1.0):
        _state["progress"].append(percentage)
        limit = _state["interrupt_after"]
        if limit is not None and len(_state["progress"]) >= limit:
            raise OperationInterrupted("Operation interrupted")

    def updateLongProgress(self, percentage=-1.0, long_op_status=None):
        self.updateProgress(percentage)


class nodeEventType:
    BeingDeleted = EnumValue("BeingDeleted")


class hipFileEventType:
    BeforeClear = EnumValue("BeforeClear")


class hipFile:
    @staticmethod
    def addEventCallback(callback): ...

    @staticmethod
    def path():
        return _state.get("hip", "/untitled.hip")


def pwd():
    return _state["pwd"][-1]


def frame(full_precision=False):
    return _state["frame"]


def setFrame(frame):
    _state["frame"] = float(frame)


def fps():
    return _state["fps"]


def isUIAvailable():
    return False


def applicationVersionString():
    return "20.5.278"


def expandString(str):
    import os

    return os.path.expandvars(str)
