"""Node types: what Loki adds to Houdini's menus, each with its interface, cook and help.

One type of node for each template, and a few that work with any graph. All are written in Python:
their sections hold a call into `loki_houdini`, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loki_graph.exposed_parameters import find_parameter, narrowed
from loki_graph.graph import Graph, NamedInput
from loki_graph.templates import Template
from loki_vfx.bridges.houdini import run_parms
from loki_vfx.bridges.houdini.declared_parms import declared_parms
from loki_vfx.bridges.houdini.dialog_script import Dialog, Folder, Parm, dialog_text
from loki_vfx.bridges.houdini.hda_directory import Asset, table_name
from loki_vfx.bridges.houdini.help_card import help_card

HERE = Path(__file__).parent
VERSION = "1.0"
TEMPLATE_PREFIX = "template_"


@dataclass(frozen=True)
class NodeType:
    """A type of node.

    Attributes:
        name: Between namespace and version: `solver` of `loki::solver::1.0`.
        summary: What it does, in one line.
        cook: The call in `loki_houdini.cook` that cooks it.
        body: More help, in Houdini's wiki markup.
    """

    name: str
    label: str
    summary: str
    cook: str
    items: tuple[Parm | Folder, ...]
    input_labels: tuple[str, ...] = ()
    least_inputs: int = 0
    table: str = "Sop"
    submenu: str = "Loki"
    body: str = ""

    @property
    def operator(self) -> str:
        """The whole name, such as `loki::solver::1.0`."""
        return f"loki::{self.name}::{VERSION}"

    @property
    def folder_name(self) -> str:
        """What its library is called."""
        return f"loki_{self.name}.hda"

    @property
    def has_run(self) -> bool:
        """Whether it simulates, and so has buttons."""
        return any(parm.type == "button" for parm in self.dialog().parms())

    def dialog(self) -> Dialog:
        """Return its interface."""
        return Dialog(self.operator, self.label, self.items, self.input_labels)

    def help_text(self) -> str:
        """Return its help card."""
        context = self.table.lower()
        return help_card(self.dialog(), context=context, summary=self.summary, body=self.body)

    def asset(self) -> Asset:
        """Return it as a digital asset."""
        sections = {
            "DialogScript": dialog_text(self.dialog()),
            "PythonCook": f"from loki_houdini import cook\ncook.{self.cook}\n",
            "TypePropertiesOptions": TYPE_PROPERTIES,
            "Help": self.help_text(),
            "Tools.shelf": _tool_text(self.table, self.submenu),
            "CreateScript": _create_script(self.operator, self.table),
            "IconSVG": (HERE / "package" / "icon.svg").read_text(encoding="utf-8"),
        }
        if self.has_run:
            sections["PythonModule"] = "from loki_houdini.cook import cancel, reset\n"
            sections["ExtraFileOptions"] = _MODULE_OPTIONS
        icon = f"opdef:/{table_name(self.operator, self.table)}?IconSVG"
        inputs = self.least_inputs, len(self.input_labels)
        return Asset(self.operator, self.label, self.table, icon, *inputs, sections)


def node_types() -> list[NodeType]:
    """Return all of them: those for any graph, and one for each template of Loki's own."""
    return [*general_types(), *map(template_type, run_parms.own_templates())]


def general_types() -> Iterator[NodeType]:
    """Yield the node types that work with any graph."""
    numbers = range(1, run_parms.MOST_INPUTS + 1)
    any_inputs = tuple(f"Input {number}" for number in numbers)
    scene = [*run_parms.scene_parms(), *run_parms.time_parms()]
    yield NodeType(
        "host_to_loki",
        "Loki Host to Loki",
        "Prepares geometry as a stream for a Loki Graph.",
        "cook_host_to_loki(hou.pwd())",
        tuple(run_parms.stream_parms()),
        ("Geometry",),
        least_inputs=1,
        body=_body("host_to_loki"),
    )
    yield NodeType(
        "graph",
        "Loki Graph",
        "Simulates a Loki Graph and gives all its outputs as streams.",
        "cook_graph(hou.pwd())",
        _run_tabs(scene, any_inputs),
        any_inputs,
        body=_body("graph"),
    )
    yield NodeType(
        "to_host",
        "Loki to Host",
        "Makes Houdini geometry of the streams of a Loki Graph.",
        "cook_to_host(hou.pwd())",
        (run_parms.output_parm(), run_parms.attributes_parm()),
        ("Loki Graph",),
        least_inputs=1,
        body=_body("to_host"),
    )
    yield NodeType(
        "solver",
        "Loki Solver",
        "Simulates geometry with a Loki Graph, a Solver Setup or a template.",
        "cook_solver(hou.pwd())",
        _run_tabs(
            [*scene, run_parms.output_parm(), run_parms.volumes_parm(), run_parms.move_parm()],
            any_inputs,
        ),
        any_inputs,
        body=_body("solver"),
    )
    yield NodeType(
        "dop_solver",
        "Loki Solver (Recipe)",
        "Tells how Loki simulates inside a DOP network.",
        "cook_dop(hou.pwd())",
        (),
        table="Dop",
        body=_body("dop_solver"),
    )


def template_type(template: Template) -> NodeType:
    """Return the node type of a template, with what it exposes as parms."""
    graph = template.graph()
    inputs = tuple(_words(name) for name in input_names(graph))
    outputs = list(graph.outputs())
    shown = [run_parms.output_parm(outputs)] if len(outputs) > 1 else []
    rest = [*run_parms.time_parms(), *shown, run_parms.volumes_parm(), run_parms.move_parm()]
    return NodeType(
        f"{TEMPLATE_PREFIX}{template.name}",
        f"Loki {template.label}",
        template.doc,
        f'cook_template(hou.pwd(), "{template.name}")',
        _run_tabs(exposed_parms(graph), inputs, rest, input_names(graph)),
        inputs,
        submenu="Loki/Templates",
        body=_body("template"),
    )


def input_names(graph: Graph) -> list[str]:
    """Return the streams that the host gives, in the order in which the author put them."""
    named = [(k, node) for k, node in graph.nodes.items() if isinstance(node, NamedInput)]
    return list(dict.fromkeys(node.stream_name(name) for name, node in named))


def exposed_parms(graph: Graph) -> list[Parm]:
    """Return the parms of what a graph exposes, called as it is exposed."""
    found: list[Parm] = []
    for one in graph.exposed_declarations():
        _, _, declared, _ = find_parameter(one.target, graph.nodes, place=graph.name)
        narrow = narrowed(one, declared, place=graph.name)
        shown = replace(narrow, default=one.default)
        found += declared_parms(shown, name=one.name, label=one.label or one.name)
    return found


def _run_tabs(
    items: list[Parm],
    inputs: tuple[str, ...],
    rest: Sequence[Parm] = (),
    names: Sequence[str] = (),
) -> tuple[Folder, ...]:
    named = run_parms.input_parms(inputs, names)
    folders: list[tuple[str, Sequence[Parm | Folder]]] = [("Simulation", items)]
    for label, parms in (("Run", rest), ("Inputs", named)):
        if parms:
            folders.append((label, parms))
    folders.append(("Overrides", [run_parms.override_parms()]))
    folders.append(("Solver", run_parms.server_parms()))
    return run_parms.tabs(*folders)


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _body(name: str) -> str:
    return (HERE / "help" / f"{name}.txt").read_text(encoding="utf-8")


# -- sections that are the same, or nearly, for all ------------------------------------------------

TYPE_PROPERTIES = """\
CheckExternal := 1;
ContentsCompressionType := 1;
ForbidOutsideParms := 1;
GzipContents := 1;
LockContents := 1;
MakeDefault := 1;
ParmsFromVfl := 0;
PrefixDroppedParmLabel := 0;
PrefixDroppedParmName := 0;
SaveCachedCode := 0;
SaveIcon := 1;
SaveSpareParms := 0;
UnlockOnCreate := 0;
UseDSParms := 1;
"""

_MODULE_OPTIONS = (
    json.dumps(
        {
            "PythonModule/Cursor": {"type": "intarray", "value": [1, 1]},
            "PythonModule/IsExpr": {"type": "bool", "value": False},
            "PythonModule/IsPython": {"type": "bool", "value": True},
            "PythonModule/IsScript": {"type": "bool", "value": True},
            "PythonModule/Source": {"type": "string", "value": ""},
        },
        indent="\t",
    )
    + "\n"
)


def _create_script(operator: str, table: str) -> str:
    return f"""\
# Automatically generated script
\\set noalias = 1
#
#  Creation script for {operator} operator
#

if ( "$arg1" == "" ) then
    echo This script is intended as a creation script
    exit
endif

# Node $arg1 ({table_name(operator, table)})
opexprlanguage -s hscript $arg1
opuserdata -n '___Version___' -v '' $arg1
"""


def _tool_text(table: str, submenu: str) -> str:
    module = f"{table.lower()}toolutils"
    return f"""\
<?xml version="1.0" encoding="UTF-8"?>
<shelfDocument>
  <tool name="$HDA_DEFAULT_TOOL" label="$HDA_LABEL" icon="$HDA_ICON">
    <toolMenuContext name="viewer">
      <contextNetType>{table.upper()}</contextNetType>
    </toolMenuContext>
    <toolMenuContext name="network">
      <contextOpType>$HDA_TABLE_AND_NAME</contextOpType>
    </toolMenuContext>
    <toolSubmenu>{submenu}</toolSubmenu>
    <script scriptType="python"><![CDATA[import {module}

{module}.genericTool(kwargs, '$HDA_NAME')]]></script>
  </tool>
</shelfDocument>
"""
