"""Run parms: what every node that simulates has, beside the parameters of its graph.

Their names begin with `loki_`, so that they never meet a name that a graph exposes.
"""

from __future__ import annotations

from collections.abc import Sequence

from loki_graph.sockets import SOCKET_TYPES
from loki_graph.templates import FOLDER, Template, templates
from loki_vfx.bridges.houdini.dialog_script import Expression, Folder, Parm, Range

MOST_INPUTS = 4
TABS = "loki_tabs"

SOURCE, FILE, TEMPLATE = "loki_source", "loki_file", "loki_template"
START, END, RESET, CANCEL = "loki_start", "loki_end", "loki_reset", "loki_cancel"
FRAME = "loki_frame"
OUTPUT, STREAM, KIND, ATTRIBUTES = "loki_output", "loki_stream", "loki_kind", "loki_attributes"
GROUP, VOLUMES, MOVE = "loki_group", "loki_volumes", "loki_move"
INPUT, ANIMATED = "loki_input", "loki_animated"  # followed by the number of the input, from 1 on
OVERRIDES, OVERRIDE = "loki_overrides", "loki_override"  # how many, and one of them
ENDPOINT, KEYS, CACHE = "loki_endpoint", "loki_keys", "loki_cache"
RANKS, THREADS = "loki_ranks", "loki_threads"


def own_templates() -> list[Template]:
    """Return the templates of Loki itself, not those of a user's own folders."""
    return [one for one in templates() if one.path.parent == FOLDER]


def tabs(*folders: tuple[str, Sequence[Parm | Folder]]) -> tuple[Folder, ...]:
    """Return tabs beside each other, in Houdini's way to name them."""
    names = [TABS, *(f"{TABS}_{number}" for number in range(1, len(folders)))]
    return tuple(Folder(name, label, tuple(items)) for name, (label, items) in zip(names, folders))


def scene_parms() -> list[Parm]:
    """Return what chooses a graph, a Solver Setup or a template."""
    found = own_templates()
    return [
        Parm(
            SOURCE,
            "Simulate",
            "string",
            ("template",),
            menu=(("template", "Template"), ("file", "File")),
            help="Whether a template that comes with Loki is simulated, or a file.",
        ),
        Parm(
            FILE,
            "File",
            "file",
            ("",),
            help="A Loki Graph or a Solver Setup, *.loki.json.",
            tags=(("filechooser_mode", "read"), ("filechooser_pattern", "*.json")),
            hide_when=f"{{ {SOURCE} != file }}",
        ),
        Parm(
            TEMPLATE,
            "Template",
            "string",
            (found[0].name,),
            menu=tuple((one.name, one.label) for one in found),
            help="A graph that is ready to be used.",
            hide_when=f"{{ {SOURCE} != template }}",
        ),
    ]


def time_parms() -> list[Parm]:
    """Return the frames that are simulated, and the buttons of the run."""
    bounds = Range(1, 240)
    return [
        Parm(
            START,
            "Start Frame",
            "integer",
            (Expression("$FSTART"),),
            bounds,
            help="The frame at which the simulation starts; inputs are as they are there.",
        ),
        Parm(
            END,
            "End Frame",
            "integer",
            (Expression("$FEND"),),
            bounds,
            help="The last frame; the solver computes ahead up to it.",
        ),
        Parm(
            FRAME,
            "Frame",
            "float",
            (Expression("$FF"),),
            bounds,
            help="The frame that is shown; by it Houdini knows that the node changes with time.",
            is_hidden=True,
        ),
        _button(RESET, "Resimulate", "Forget all frames and simulate anew.", joins_next=True),
        _button(CANCEL, "Cancel", "Stop the solver; the frames that are there stay."),
    ]


def input_parms(labels: Sequence[str], names: Sequence[str] = ()) -> list[Parm]:
    """Return what each geometry input gives, and to what.

    Args:
        labels: What people read, for each input.
        names: The streams of the graph that they are for, where it is known; nobody changes them.
    """
    found = []
    for number, label in enumerate(labels, 1):
        text = (
            "The Host Input of the graph, or the stream of the Solver Setup, that input "
            f"{number} of this node gives. Empty takes them in their order."
        )
        name = names[number - 1] if names else ""
        found.append(
            Parm(f"{INPUT}{number}", label, "string", (name,), help=text, is_hidden=bool(names))
        )
        found.append(
            Parm(
                f"{ANIMATED}{number}",
                f"{label} Moves",
                "toggle",
                ("1",),
                help="Whether the solver gets the input at every frame, or at the first only.",
            )
        )
    return found


def output_parm(outputs: Sequence[str] = ()) -> Parm:
    """Return which output of the graph the node gives; a menu where the outputs are known."""
    text = "The output of the graph, or the Object of the Solver Setup, that is shown."
    if outputs:
        menu = (("", "All"), *((one, one.replace("_", " ").capitalize()) for one in outputs))
        return Parm(OUTPUT, "Output", "string", ("",), menu=menu, help=text)
    return Parm(OUTPUT, "Output", "string", ("",), help=f"{text} Empty shows all.")


def override_parms() -> Folder:
    """Return changes to anything in the scene, as the command line writes them."""
    one = Parm(
        f"{OVERRIDE}#",
        "Override #",
        "string",
        ("",),
        help="Such as Hair/BendingConstraint.stiffness=2e-9, or an exposed name=value.",
    )
    tags = (("multistartoffset", "1"),)
    return Folder(OVERRIDES, "Overrides", (one,), "multiparm", tags)


def server_parms() -> list[Parm]:
    """Return where and how it is computed."""
    return [
        Parm(
            ENDPOINT,
            "Server",
            "string",
            ("",),
            help="Where a solver listens, tcp://host:port. Empty starts one on this machine.",
        ),
        Parm(
            KEYS,
            "Keys",
            "directory",
            ("",),
            help="Folder of the keys for a server elsewhere. Empty is that of the user.",
            disable_when=f'{{ {ENDPOINT} == "" }}',
        ),
        Parm(
            CACHE,
            "Cache Folder",
            "directory",
            ("$HIP/loki",),
            help="Where frames are kept: runs of a solver on this machine, and copies of what a "
            "server elsewhere has computed.",
        ),
        Parm(
            RANKS,
            "Processes",
            "integer",
            ("0",),
            Range(0, 16, True),
            help="Processes that share the simulation. 0 leaves it to the server.",
        ),
        Parm(
            THREADS,
            "Threads",
            "integer",
            ("0",),
            Range(0, 64, True),
            help="Threads of each process. 0 shares the cores out.",
        ),
    ]


def stream_parms() -> list[Parm]:
    """Return how geometry becomes a stream of Loki."""
    return [
        Parm(
            STREAM,
            "Stream",
            "string",
            ("",),
            help="The Host Input that the geometry is for. Empty is the name of this node.",
        ),
        Parm(
            KIND,
            "As",
            "string",
            ("any",),
            menu=tuple((one, "Automatic" if one == "any" else one.title()) for one in SOCKET_TYPES),
            help="What Loki makes of it. Automatic looks at the primitives.",
        ),
        Parm(GROUP, "Group", "string", ("",), help="Primitives or points to take; empty is all."),
        attributes_parm(),
    ]


def attributes_parm() -> Parm:
    """Return which channels go through."""
    text = "Attributes that go through, as a pattern such as * ^uv."
    return Parm(ATTRIBUTES, "Attributes", "string", ("*",), help=text)


def volumes_parm() -> Parm:
    """Return what voxels become."""
    return Parm(
        VOLUMES,
        "Volumes",
        "string",
        ("vdb",),
        menu=(("vdb", "VDB"), ("volume", "Volume")),
        help="Whether voxels become VDBs, which stay sparse, or Houdini's dense volumes.",
    )


def move_parm() -> Parm:
    """Return whether the first input is moved instead of replaced."""
    return Parm(
        MOVE,
        "Move Points of First Input",
        "toggle",
        ("0",),
        help="Keep the geometry of the first input, with all that Houdini knows of it, and give "
        "its points the positions and attributes of the result, which has as many.",
    )


def _button(name: str, label: str, text: str, *, joins_next: bool = False) -> Parm:
    call = f"hou.phm().{name.removeprefix('loki_')}(kwargs['node'])"
    tags = (("script_callback", call), ("script_callback_language", "python"))
    return Parm(name, label, "button", ("0",), help=text, tags=tags, joins_next=joins_next)
