"""Names that every reader of USD and VDB accepts: ASCII letters, digits and `_`, each used once.

USD itself takes other letters since version 24.03; readers older than that refuse the whole file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable


def plain_name(text: str) -> str:
    """Return `text` as an identifier: accents are dropped, other odd letters become `_`."""
    letters = unicodedata.normalize("NFKD", text)
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    name = re.sub(r"[^A-Za-z0-9_]", "_", bare) or "_"
    return f"_{name}" if name[0].isdigit() else name


class UniqueNames:
    """Gives every key a name of its own, and the same name whenever it is asked again."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._names: dict[Hashable, str] = {}
        self._taken = set(reserved)

    def of(self, key: Hashable, wanted: str) -> str:
        """Return the name of `key`: `wanted` in plain letters, with a number where it is taken."""
        if key not in self._names:
            name = stem = plain_name(wanted)
            number = 1
            while name in self._taken:
                name, number = f"{stem}_{number}", number + 1
            self._taken.add(name)
            self._names[key] = name
        return self._names[key]


class PrimPaths:
    """Places Objects in USD's tree: `Hair/CurvesObject` is `/root/Hair/CurvesObject`.

    A Group and an Object of one name are told apart, so that no geometry lies below another.
    """

    def __init__(self, root: str) -> None:
        self.root = f"/{plain_name(root)}"
        self._children: dict[str, UniqueNames] = {}

    def groups(self, object_path: str) -> list[str]:
        """Return the prim paths of the Groups above an Object, the outermost first."""
        paths = [self.root]
        for name in object_path.split("/")[:-1]:
            paths.append(self._child(paths[-1], "group", name))
        return paths[1:]

    def object(self, object_path: str, part: str = "") -> str:
        """Return the prim path of an Object, or of a named part of it."""
        parent = [self.root, *self.groups(object_path)][-1]
        name = object_path.rpartition("/")[2]
        return self._child(parent, f"part {part}", f"{name}_{part}" if part else name, key=name)

    def _child(self, parent: str, kind: str, wanted: str, *, key: str | None = None) -> str:
        names = self._children.setdefault(parent, UniqueNames())
        return f"{parent}/{names.of((kind, key or wanted), wanted)}"
