"""Sockets: where connections of a Loki Graph begin and end, and which types fit together.

any ── mesh ── points, curves, wireframe, surface, body
   └── voxels
"""

from __future__ import annotations

from dataclasses import dataclass

from loki_core.errors import GraphError, did_you_mean

PARENTS = {
    "any": "",
    "mesh": "any",
    "voxels": "any",
    "points": "mesh",
    "curves": "mesh",
    "wireframe": "mesh",
    "surface": "mesh",
    "body": "mesh",
}
"""Every socket type and the wider one that contains it."""

SOCKET_TYPES = tuple(PARENTS)


@dataclass(frozen=True)
class Socket:
    """One input or output of a node.

    Attributes:
        name: What connections call it.
        type: What goes through it; one of SOCKET_TYPES.
        many: Whether an input takes several connections, in their order.
        required: Whether an input must be connected before the node is evaluated.
        like: For an output, the input whose type it has.
        doc: One line for people.
    """

    name: str
    type: str = "any"
    many: bool = False
    required: bool = True
    like: str | None = None
    doc: str = ""

    def __post_init__(self) -> None:
        if self.type not in PARENTS:
            hint = did_you_mean(self.type, PARENTS)
            raise GraphError(f'socket "{self.name}" has the unknown type "{self.type}"{hint}')


def fits(given: str, expected: str) -> bool:
    """Return whether everything of type `given` is also of type `expected`."""
    while given:
        if given == expected:
            return True
        given = PARENTS.get(given, "")
    return False


def may_connect(given: str, expected: str) -> bool:
    """Return whether a connection can ever carry data that fits.

    A wide output, such as a mesh file, may feed a narrow input; what arrives is checked then.
    """
    return fits(given, expected) or fits(expected, given)


def common_type(types: list[str]) -> str:
    """Return the narrowest type that contains all of them; "any" for none."""
    if not types:
        return "any"
    common = types[0]
    while not all(fits(one, common) for one in types):
        common = PARENTS[common]
    return common
