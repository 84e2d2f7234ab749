"""First run checks: questions that only Houdini can answer, each asked on its own.

A check returns what it saw; it raises CheckFailed with what is wrong, or NotPossible where `hou`,
or something else that it needs, is not there. `first_run.py` runs them.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hou
import numpy as np

import loki_core
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_vfx.bridges.houdini import run_parms as parms
from loki_vfx.bridges.houdini.dialog_script import TEXTS, Expression, Parm
from loki_vfx.bridges.houdini.hda_directory import write
from loki_vfx.bridges.houdini.node_types import TEMPLATE_PREFIX, NodeType, node_types
from loki_vfx.bridges.live.local_server import environment_for
from loki_vfx.serialization.digest import digest
from loki_vfx.serialization.frame_cache import FrameCacheReader
from loki_vfx.serialization.houdini_files import read_bytes, read_geometry, write_geometry
from loki_vfx.serialization.houdini_streams import geometry_of, stream_of

from . import contract_streams as contract
from .first_run_check import (
    TOLERANCE,
    Check,
    CheckFailed,
    NotPossible,
    Place,
    cooked,
    demand,
    has,
    made,
    made_sop,
    taken,
)
from .first_run_fields import scalar_vdb, vector_vdb, volume_node, volume_values
from .geometry_streams import move_points, write_streams

EARLIEST = (20, 5)
FRAMES = 3
FILES = (".bgeo", ".geo", ".bgeo.gz", ".bgeo.sc")


def checks() -> Iterator[Check]:
    """Yield all, in the order in which they build on each other."""
    types = node_types()
    makes = ("node", "nodeType", "hda.installFile", "Node.createNode")
    yield Check("Houdini and its licence", _houdini, ("licenseCategory", "applicationVersion"))
    yield Check("libraries of Loki", _libraries)
    yield Check("wtloki starts from Houdini", _starts)
    yield Check("node types are installed", functools.partial(_installed, types), makes)
    for one in types:
        yield Check(f"node {one.operator}", functools.partial(_as_declared, one), makes)
    for name in contract.TYPES:
        yield Check(f"stream there and back: {name}", functools.partial(_there_and_back, name))
    yield Check("points are moved by attribute calls", _moved)
    saved = ("Geometry.saveToFile", "Geometry.loadFromFile")
    for suffix in FILES:
        yield Check(f"files of Houdini: {suffix}", functools.partial(_theirs, suffix), saved)
        yield Check(f"files of Loki: {suffix}", functools.partial(_ours, suffix), saved)
    yield Check("winding of a Box", _box, (*makes, "Face", "Geometry.prims"))
    yield Check("packed geometry", _packed, makes)
    volumes = ("Volume", "BoundingBox", "Geometry.prims")
    yield Check("volume of a Volume SOP", volume_node, (*makes, *volumes))
    yield Check("voxels of a volume", volume_values, (*volumes, "Geometry.createVolume"))
    vdbs = ("VDB", "BoundingBox", "Geometry.prims", "Geometry.loadFromFile")
    yield Check("voxels as a VDB", scalar_vdb, vdbs)
    yield Check("vectors as a VDB", vector_vdb, (*vdbs, "VDB.samplev"))
    yield Check("a template is simulated", _template, makes)
    yield Check("the panel is known", _panel, ("pypanel.interfaceByName",))


def versions() -> dict[str, str]:
    """Return what a report begins with."""
    return {
        "houdini": hou.applicationVersionString() if has("licenseCategory") else "a stand-in",
        "hou": str(hou.__file__),
        "loki": loki_core.__version__,
        "numpy": np.__version__,
    }


# -- what is installed ----------------------------------------------------------------------------


def _houdini(place: Place) -> str:
    found = hou.applicationVersion()[:2]
    if tuple(found) < EARLIEST:
        raise CheckFailed(f"Houdini {found} is earlier than {EARLIEST}, which the package asks for")
    return f"{hou.applicationVersionString()}, {hou.licenseCategory().name()}"


def _libraries(place: Place) -> str:
    lacking = [one for one in ("numpy", "zmq", "msgpack") if importlib.util.find_spec(one) is None]
    if lacking:
        raise CheckFailed(f"Houdini's Python has no {', '.join(lacking)}; the package brings them")
    has_blosc = importlib.util.find_spec("blosc") is not None
    words = "with" if has_blosc else "without"
    return f"Loki {loki_core.__version__}, numpy {np.__version__}, {words} blosc"


def _starts(place: Place) -> str:
    words = [*place.wtloki(), "--version"]
    said = _call(words).strip()
    if loki_core.__version__ not in said:
        raise CheckFailed(f"{words[0]} is {said}, and here is Loki {loki_core.__version__}")
    return f"{said} at {words[0]}"


# -- nodes ----------------------------------------------------------------------------------------


def _installed(types: Sequence[NodeType], place: Place) -> str:
    """Types that Houdini has not loaded are written and installed."""
    installed = 0
    for one in types:
        if _type_of(one) is None:
            folder = place.folder / "otls" / one.folder_name
            write(folder, one.asset())
            hou.hda.installFile(str(folder))
            installed += 1
    demand([f"{one.operator} is not known after it" for one in types if _type_of(one) is None])
    return f"{len(types) - installed} were there, {installed} were installed for this run"


def _type_of(one: NodeType) -> hou.NodeType | None:
    category = hou.dopNodeTypeCategory() if one.table == "Dop" else hou.sopNodeTypeCategory()
    return hou.nodeType(category, one.operator)


def _as_declared(one: NodeType, place: Place) -> str:
    node = made(place, one.operator, one.table)
    if not isinstance(node, hou.OpNode):
        raise CheckFailed(f"it is a {type(node).__name__}")
    problems: list[str] = []
    inputs = node.type().minNumInputs(), node.type().maxNumInputs()
    wanted = one.least_inputs, len(one.input_labels)
    if one.table == "Sop" and inputs != wanted:
        problems.append(f"it takes {inputs} inputs; expected {wanted}")
    count = node.parm(parms.OVERRIDES)
    if count is not None:
        count.set(1)
    declared = list(one.dialog().parms())
    for parm in declared:
        problems += parm_problems(node, parm)
    demand(problems)
    return f"{len(declared)} parms as declared"


def parm_problems(node: hou.OpNode, declared: Parm) -> list[str]:
    """Return in words how a parm of a node differs from its declaration."""
    problems: list[str] = []
    defaults = declared.default or ("",)
    for name, default in zip(declared.component_names(), defaults):
        parm = node.parm(name.replace("#", "1"))
        if parm is None:
            problems.append(f"{name} is not there")
        elif declared.type != "button":
            problems += _value_problems(parm, declared, default)
    return problems


def _value_problems(parm: hou.Parm, declared: Parm, default: str | Expression) -> list[str]:
    name = parm.name()
    if isinstance(default, Expression):
        found: str = parm.expression()
        return [] if found == default.text else [f"{name} computes {found}, not {default.text}"]
    if declared.menu:
        tokens = tuple(token for token, _ in declared.menu)
        if parm.menuItems() != tokens:
            return [f"{name} offers {parm.menuItems()}; expected {tokens}"]
    if declared.type in TEXTS:
        found = parm.unexpandedString()
        return [] if found == default else [f'{name} is "{found}" by default, not "{default}"']
    value = parm.evalAsFloat()
    if not math.isclose(value, float(default), rel_tol=1e-12, abs_tol=0.0):
        return [f"{name} is {value!r} by default, not {default}"]
    template = parm.parmTemplate()
    if declared.range is not None and isinstance(
        template, (hou.FloatParmTemplate, hou.IntParmTemplate)
    ):
        ends = template.minValue(), template.maxValue()
        wanted = declared.range.low, declared.range.high
        if not np.allclose(ends, wanted, rtol=1e-6, atol=0.0):
            return [f"{name} runs from {ends[0]} to {ends[1]}; expected {wanted}"]
    return []


# -- geometry -------------------------------------------------------------------------------------


def _give(stream: Any) -> hou.Geometry:
    geometry = hou.Geometry()
    demand(write_streams(geometry, {"out": stream}, single=False))
    return geometry


def _there_and_back(name: str, place: Place) -> str:
    if name in contract.SINGLE:
        demand(contract.changed_there_and_back(name, _give, taken))
    expected = contract.dressed(name)
    again = taken(_give(contract.dressed(name)))
    demand(contract.differences(expected, contract.common(again, expected)))
    return f"digest {digest(expected)}"


def _moved(place: Place) -> str:
    moved = contract.dressed("surface")
    moved.positions = moved.positions + 1.0
    geometry = _give(contract.dressed("surface"))
    move_points(geometry, moved, single=False)
    demand(contract.differences(moved, contract.common(taken(geometry), moved)))
    return f"{geometry.pointCount()} points"


def _path(place: Place, suffix: str) -> Path:
    if suffix.endswith(".sc") and importlib.util.find_spec("blosc") is None:
        raise NotPossible("Houdini's Python has no blosc, without which Loki reads no .sc files")
    return place.folder / f"geometry{suffix}"


def _theirs(suffix: str, place: Place) -> str:
    path = _path(place, suffix)
    for name in contract.TYPES:
        expected = contract.dressed(name)
        _give(expected).saveToFile(str(path))
        again = stream_of(read_geometry(path))
        found = contract.differences(expected, contract.common(again, expected))
        demand([f"{name}: {one}" for one in found])
    return f"{len(contract.TYPES)} streams, written by Houdini and read by Loki"


def _ours(suffix: str, place: Place) -> str:
    path = _path(place, suffix)
    for name in contract.TYPES:
        expected = contract.dressed(name)
        write_geometry(path, geometry_of(expected))
        geometry = hou.Geometry()
        geometry.loadFromFile(str(path))
        found = contract.differences(expected, contract.common(taken(geometry), expected))
        demand([f"{name}: {one}" for one in found])
    return f"{len(contract.TYPES)} streams, written by Loki and read by Houdini"


def _box(place: Place) -> str:
    geometry = cooked(made_sop(place, "box"))
    surface = taken(geometry)
    demand(outside_problems(surface))
    normals = [prim.normal() for prim in geometry.prims() if isinstance(prim, hou.Face)]
    theirs = np.array([[normal[axis] for axis in range(3)] for normal in normals])
    ours = surface.area_vectors()
    inward = int(np.sum(np.einsum("fi,fi->f", theirs, ours) <= 0.0))
    if len(theirs) != len(ours) or inward:
        raise CheckFailed(f"{inward} of {len(ours)} faces look away from Houdini's own normals")
    return f"{len(ours)} faces look outwards, as Houdini's normals do"


def outside_problems(surface: Any) -> list[str]:
    """Return in words what is wrong with a box around the origin whose faces look outwards."""
    if not isinstance(surface, Surface):
        return [f"it became {type(surface).__name__}, not a Surface"]
    areas = surface.area_vectors()
    corners = surface.positions[surface.face_vertices].astype(np.float64)
    centres = np.add.reduceat(corners, surface.face_offsets[:-1]) / surface.face_sizes()[:, None]
    inward = int(np.sum(np.einsum("fi,fi->f", areas, centres) <= 0.0))
    return [f"{inward} of {len(areas)} faces look inwards"] if inward else []


def _packed(place: Place) -> str:
    """What Loki makes of packed geometry is what an Unpack SOP makes of it."""
    source = made_sop(place, "box")
    packed = made_sop(place, "pack", source)
    moved = made_sop(place, "xform", packed)
    moved.setParms({"tx": 2.0, "ry": 30.0, "scale": 1.5})
    theirs = taken(cooked(made_sop(place, "unpack", moved)))
    ours = stream_of(read_bytes(cooked(moved).data()))
    if type(ours) is not type(theirs) or ours.positions.shape != theirs.positions.shape:
        raise CheckFailed(f"{type(ours).__name__} of {ours.point_count} points")
    farthest = float(np.abs(ours.positions - theirs.positions).max())
    if farthest > TOLERANCE:
        raise CheckFailed(f"points are up to {farthest} m from where Houdini unpacks them")
    return f"{ours.point_count} points, at most {farthest} m from Houdini's"


# -- a simulation ---------------------------------------------------------------------------------


def _template(place: Place) -> str:
    place.wtloki()  # or it is not possible
    operator = f"loki::{TEMPLATE_PREFIX}{place.template}::1.0"
    node = made_sop(place, operator)
    wanted: dict[str, int | str] = {
        parms.CACHE: str(place.runs),
        parms.START: 1,
        parms.END: FRAMES,
    }
    for name, value in wanted.items():
        parm = node.parm(name)
        if parm is None:
            raise CheckFailed(f"the node has no {name}")
        parm.deleteAllKeyframes()
        parm.set(value)
    return simulated(node, place)


def simulated(node: hou.SopNode, place: Place) -> str:
    """Cook a template's node at every frame, and compare with `wtloki run`; returns what was seen.

    Args:
        node: Whose runs lie in the folder of the place, with the template's own inputs.

    Raises:
        CheckFailed: A frame differs.
    """
    told: dict[int, Any] = {}
    for frame in range(1, FRAMES + 1):
        hou.setFrame(frame)
        told[frame] = cooked(node).freeze()
    folders = [path.parent for path in place.runs.glob("*/cache")]
    if len(folders) != 1:
        raise CheckFailed(f"{len(folders)} runs lie in the folder; expected one")
    cached = FrameCacheReader(folders[0] / "cache")
    alone = FrameCacheReader(_standalone(place))
    for frame, geometry in told.items():
        names = list(cached.objects(frame))
        if names != list(alone.objects(frame)):
            raise CheckFailed(f"frame {frame} has {names}; alone {list(alone.objects(frame))}")
        for name in names:
            exact, other = cached.read(frame, name), alone.read(frame, name)
            if digest(exact) != digest(other):
                raise CheckFailed(f"frame {frame} of {name} is not that of wtloki run")
        if len(names) == 1 and not isinstance(exact := cached.read(frame, names[0]), Voxels):
            expected = stream_of(geometry_of(exact, single=True))
            found = contract.differences(expected, taken(geometry))
            demand([f"frame {frame}: {one}" for one in found])
    return f"{FRAMES} frames, the same as those of wtloki run"


def _standalone(place: Place) -> Path:
    """The cache of the same template, without a host or a server."""
    scene, output = place.folder / "alone.loki.json", place.folder / "alone"
    _call([*place.wtloki(), "new", str(scene), "--template", place.template])
    words = [*place.wtloki(), "run", str(scene), "--frames", f"1-{FRAMES}"]
    for path in sorted(place.folder.glob("alone_*")):
        words += ["--input", f"{path.stem.removeprefix('alone_')}={path}"]
    _call([*words, "--output", str(output)])
    return output


def _call(words: Sequence[str]) -> str:
    """What a command says; in the environment in which nodes start a server."""
    environment = environment_for(words[0])
    done = subprocess.run(list(words), capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise CheckFailed(f"{' '.join(words)} ends with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def _panel(place: Place) -> str:
    if not hou.isUIAvailable():
        raise NotPossible("there is no user interface: open the panel by hand")
    if hou.pypanel.interfaceByName("loki_runs") is None:
        raise CheckFailed("there is no interface loki_runs: the package is not loaded")
    return "loki_runs"
