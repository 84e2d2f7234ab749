"""Solver Setup: the tree of Groups and Behaviors that says what is simulated.

    SolverSetup(
        "hair_in_wind",
        Group("Hair", CurvesObject(input="hair_curves"), BendingConstraint()),
        GravityForce(),
        substeps=4,
    )

A Behavior acts on all Objects in its Group and below. Nothing depends on the order in which
siblings are written: `walk()` visits them in a canonical order.

A path names a node below the root, `Hair/BendingConstraint`; messages put the root in front.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Self

from loki_core.behavior import KINDS, Behavior, check_name
from loki_core.errors import SetupError, did_you_mean
from loki_core.parameter import SWITCHES, show
from loki_core.solver_settings import SolverSettings

MAX_DEPTH = 64  # Groups inside Groups
MAX_NODES = 100_000  # Groups and Behaviors of one Solver Setup


class Placed(NamedTuple):
    """A node of the tree: its path, itself, and the Groups around it from the root inwards."""

    path: str
    node: Group | Behavior
    groups: tuple[Group, ...]

    @property
    def enabled(self) -> bool:
        """Whether the node and every Group around it are enabled."""
        return self.node.enabled and all(group.enabled for group in self.groups)


class Stream(NamedTuple):
    """An input stream that a Behavior needs."""

    name: str
    path: str
    parameter: str


class Group:
    """A scope in the tree: its Behaviors act on the Objects in it and below."""

    name: str
    children: tuple[Group | Behavior, ...]
    enabled: bool
    depth: int  # Groups from here to the deepest one below, this one included
    node_count: int  # this Group and everything below

    def __init__(self, name: str, *children: Group | Behavior, enabled: bool = True) -> None:
        self._fill(name, children, enabled=enabled, place=str(name)[:80])

    @classmethod
    def from_values(
        cls, name: str, children: tuple[Group | Behavior, ...], *, enabled: bool, place: str
    ) -> Self:
        """Return a new Group; messages call it `place` instead of by its name.

        Raises:
            SetupError: The name or a child is not valid.
        """
        group = object.__new__(cls)
        group._fill(name, children, enabled=enabled, place=place)
        return group

    def _fill(
        self, name: str, children: tuple[Group | Behavior, ...], *, enabled: bool, place: str
    ) -> None:
        check_name(name, "the name of a Group" if type(self) is Group else "a Solver Setup's name")
        if not isinstance(enabled, bool):
            raise SetupError(f"{place}.enabled = {show(enabled)} is not true or false")
        _check_children(children, place)
        groups = [child for child in children if isinstance(child, Group)]
        depth = 1 + max((group.depth for group in groups), default=0)
        node_count = 1 + len(children) + sum(group.node_count - 1 for group in groups)
        if depth > MAX_DEPTH:
            raise SetupError(f"{place} is more than {MAX_DEPTH} Groups deep")
        if node_count > MAX_NODES:
            raise SetupError(f"{place} has more than {MAX_NODES} Groups and Behaviors")
        vars(self).update(
            name=name,
            children=tuple(children),
            enabled=enabled,
            depth=depth,
            node_count=node_count,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"{type(self).__name__} {self.name} cannot be changed; use replace(), set() or "
            "with_enabled() of the Solver Setup, which return a new one"
        )

    @cached_property
    def child_names(self) -> tuple[str, ...]:
        """Name of each child in paths, in the order of writing.

        A Behavior without a name is called after its class. Several of one class are numbered
        in the order of their content, so that the order of writing has no say.
        """
        names = [child.name for child in self.children]
        taken = {name for name in names if name is not None}
        used: dict[str, int] = {}
        unnamed = [index for index, name in enumerate(names) if name is None]
        for index in sorted(unnamed, key=lambda index: _content_key(self.children[index])):
            base = label = type(self.children[index]).__name__
            number = used.get(base, 0) + 1
            while (label := base if number == 1 else f"{base}_{number}") in taken:
                number += 1
            used[base] = number
            names[index] = label
        return tuple(name for name in names if name is not None)

    @cached_property
    def named_children(self) -> Mapping[str, Group | Behavior]:
        """Children by their name in paths, in canonical order."""
        named = zip(self.child_names, self.children, strict=True)
        return dict(sorted(named, key=_canonical_key))

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form, children in the order of writing."""
        document: dict[str, Any] = {"group": self.name}
        if not self.enabled:
            document["enabled"] = False
        document["children"] = [child.to_document() for child in self.children]
        return document

    @cached_property
    def canonical_text(self) -> str:
        """The content as text that does not depend on the order of siblings."""
        document = self.to_document()
        del document["children"]
        texts = [
            child.canonical_text
            if isinstance(child, Group)
            else json.dumps(child.to_document(), sort_keys=True)
            for child in self.children
        ]
        return f"[{json.dumps(document, sort_keys=True)},[{','.join(sorted(texts))}]]"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Group):
            return NotImplemented
        return self.canonical_text == other.canonical_text

    def __hash__(self) -> int:
        return hash(self.canonical_text)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self.children)} children>"

    def __str__(self) -> str:
        """Draw the tree."""
        return "\n".join([_label(self.name, self), *_draw(self, "")])

    def with_children(
        self, children: tuple[Group | Behavior, ...], *, place: str | None = None
    ) -> Self:
        """Return the same Group with other children."""
        place = self.name if place is None else place
        return type(self).from_values(self.name, children, enabled=self.enabled, place=place)

    def _switched(self, enabled: bool) -> Self:
        return type(self).from_values(self.name, self.children, enabled=enabled, place=self.name)


class SolverSetup(Group):
    """The root Group, with the settings of the whole; see SolverSettings for the keywords."""

    settings: SolverSettings

    def __init__(
        self, name: str, *children: Group | Behavior, enabled: bool = True, **settings: Any
    ) -> None:
        super().__init__(name, *children, enabled=enabled)
        own = SolverSettings.from_values(settings, place=name)
        object.__setattr__(self, "settings", own)

    @classmethod
    def from_values(
        cls,
        name: str,
        children: tuple[Group | Behavior, ...],
        *,
        enabled: bool,
        place: str,
        settings: SolverSettings | None = None,
    ) -> Self:
        """Return a new Solver Setup; messages call it `place` instead of by its name."""
        setup = super().from_values(name, children, enabled=enabled, place=place)
        object.__setattr__(setup, "settings", settings or SolverSettings())
        return setup

    def with_settings(self, settings: SolverSettings) -> Self:
        """Return the same tree with other settings."""
        return self.from_values(
            self.name, self.children, enabled=self.enabled, place=self.name, settings=settings
        )

    def with_children(
        self, children: tuple[Group | Behavior, ...], *, place: str | None = None
    ) -> Self:
        """Return the same settings with other children."""
        return super().with_children(children, place=place).with_settings(self.settings)

    def _switched(self, enabled: bool) -> Self:
        return super()._switched(enabled).with_settings(self.settings)

    # -- finding --------------------------------------------------------------------------------

    @cached_property
    def _index(self) -> dict[str, Placed]:
        return {placed.path: placed for placed in _walk(self, "", ())}

    def walk(self) -> Iterator[Placed]:
        """Visit (path, node, groups around it), the root first, in canonical order.

        Inside a Group come its Behaviors by kind, class and name, then its Groups by name.
        """
        return iter(self._index.values())

    def behaviors(self) -> Iterator[tuple[str, Behavior]]:
        """Visit the path and Behavior of everything that is enabled, in canonical order."""
        for placed in self.walk():
            if isinstance(placed.node, Behavior) and placed.enabled:
                yield placed.path, placed.node

    def find(self, path: str) -> Placed:
        """Return the node at a path, with the Groups around it; an empty path is the root.

        The Solver Setup's own name may stand in front.

        Raises:
            SetupError: There is none; the message names the nearest sibling.
        """
        path = str(path).strip("/")
        if path in self._index:
            return self._index[path]
        steps = [step for step in path.split("/") if step]
        if steps and steps[0] == self.name and self.name not in self.named_children:
            steps = steps[1:]
        node: Group | Behavior = self
        place = self.name
        for step in steps:
            known = node.named_children if isinstance(node, Group) else {}
            if step not in known:
                raise SetupError(f'{place} has no "{step[:80]}"{did_you_mean(step[:80], known)}')
            node, place = known[step], f"{place}/{step}"
        return self._index["/".join(steps)]

    def get(self, path: str) -> Group | Behavior:
        """Return the Group or Behavior at a path.

        Raises:
            SetupError: There is none; the message names the nearest sibling.
        """
        return self.find(path).node

    def place(self, path: str) -> str:
        """Return what messages call a path: the Solver Setup's name in front."""
        return f"{self.name}/{path}" if path else self.name

    # -- scopes ---------------------------------------------------------------------------------

    def objects_below(self, group_path: str) -> list[str]:
        """Return the paths of the enabled Objects in a Group and below."""
        group = self.find(group_path).path
        return [
            path
            for path, behavior in self.behaviors()
            if behavior.kind == "object" and (not group or path.startswith(group + "/"))
        ]

    def reach(self, path: str) -> list[str]:
        """Return the paths of the Objects that a Behavior acts on.

        These are the enabled Objects in its Group and below, without those that a nearer
        Behavior of the same exclusive class takes. A disabled Behavior reaches nothing.

        Raises:
            SetupError: There is no such path, or two exclusive Behaviors share a Group.
        """
        placed = self.find(path)
        if not placed.enabled:
            return []
        if isinstance(placed.node, Group):
            return self.objects_below(placed.path)
        objects = self.objects_below(_parent(placed.path))
        if not placed.node.exclusive:
            return objects
        family = placed.node.exclusive_family()
        return [item for item in objects if self.nearest_exclusive(family, item) == placed.path]

    def nearest_exclusive(self, behavior_class: type[Behavior], object_path: str) -> str | None:
        """Return the path of the one Behavior of an exclusive class that acts on an Object.

        Raises:
            SetupError: There is no such Object, or two such Behaviors share the nearest Group.
        """
        groups = [""]
        for step in _parent(self.find(object_path).path).split("/"):
            groups.append(f"{groups[-1]}/{step}".strip("/"))
        best: dict[int, list[str]] = {}
        for path, behavior in self.behaviors():
            if isinstance(behavior, behavior_class) and _parent(path) in groups:
                best.setdefault(len(_steps(path)), []).append(path)
        if not best:
            return None
        nearest = best[max(best)]
        if len(nearest) > 1:
            raise SetupError(
                f"{self.place(nearest[0])} and {self.place(nearest[1])} both want "
                f"{self.place(object_path)}; only one {behavior_class.__name__} may be in a Group"
            )
        return nearest[0]

    def streams(self) -> list[Stream]:
        """Return the input streams that enabled Behaviors need, and who needs them."""
        return [Stream(*one) for one in self._references("stream", self.behaviors())]

    def all_streams(self) -> list[Stream]:
        """Return the input streams that Behaviors name, enabled or not, and who names them."""
        placed = ((one.path, one.node) for one in self.walk() if isinstance(one.node, Behavior))
        return [Stream(*one) for one in self._references("stream", placed)]

    def idle_streams(self, given: Iterable[str]) -> list[str]:
        """Return the names of given streams that no enabled Behavior asks for."""
        return sorted(set(given) - {stream.name for stream in self.streams()})

    def _references(
        self, kind: str, behaviors: Iterable[tuple[str, Behavior]]
    ) -> Iterator[tuple[str, str, str]]:
        kinds = (kind, "stream_or_object") if kind == "stream" else (kind,)
        for path, behavior in behaviors:
            for name, declared in behavior.parameters().items():
                value = getattr(behavior, name)
                if declared.kind not in kinds or not value:
                    continue
                for item in (value,) if isinstance(value, str) else value:
                    if declared.kind == kind or not self._names_objects(item):
                        yield item, path, name

    def _names_objects(self, text: str) -> bool:
        """Whether a text is the path of an Object, or of a Group that has some, enabled or not."""
        return any(
            one.path == text or one.path.startswith(f"{text}/")
            for one in self.walk()
            if isinstance(one.node, Behavior) and one.node.kind == "object"
        )

    def resolve_object(self, reference: str, *, place: str = "") -> str:
        """Return the path of the Object that a text names: its path, or its Group's.

        Raises:
            SetupError: There is no such path, or it does not stand for one Object.
        """
        prefix = f'{place} = "{reference[:80]}": ' if place else ""
        try:
            placed = self.find(reference)
        except SetupError as error:
            raise SetupError(f"{prefix}{error}") from None
        if isinstance(placed.node, Behavior):
            if placed.node.kind != "object":
                raise SetupError(
                    f"{prefix}{self.place(placed.path)} is a {placed.node.kind}, not an Object"
                )
            return placed.path
        below = placed.path + "/" if placed.path else ""
        found = [
            other.path
            for other in self.walk()
            if isinstance(other.node, Behavior)
            and other.node.kind == "object"
            and other.path.startswith(below)
        ]
        if len(found) != 1:
            several = ", ".join(found[:6]) if found else "none"
            raise SetupError(
                f"{prefix}Group {self.place(placed.path)} does not hold exactly one Object "
                f"({several}); name the Object itself"
            )
        return found[0]

    def check_references(self) -> None:
        """Check that every reference to an Object names one.

        Raises:
            SetupError: A reference leads nowhere; the message names the nearest node.
        """
        for reference, path, name in self._references("object_reference", self.behaviors()):
            self.resolve_object(reference, place=f"{self.place(path)}.{name}")

    # -- changing -------------------------------------------------------------------------------

    def replace(self, path: str, **parameters: Any) -> SolverSetup:
        """Return a new Solver Setup with other parameters of one Behavior, or settings.

        Raises:
            SetupError: The path, a name or a value is not valid.
        """
        placed = self.find(path)
        place = self.place(placed.path)
        if isinstance(placed.node, SolverSetup):
            values = {**self.settings.values(), **parameters}
            return self.with_settings(SolverSettings.from_values(values, place=place))
        if isinstance(placed.node, Group):
            raise SetupError(f"{place} is a Group and has no parameters; name one of its Behaviors")
        behavior = placed.node
        values = {
            "name": behavior.name,
            "enabled": behavior.enabled,
            **behavior.values(),
            **parameters,
        }
        return self._swap(placed, type(behavior).from_values(values, place=place))

    def with_enabled(self, path: str, enabled: bool) -> SolverSetup:
        """Return a new Solver Setup with one Group or Behavior enabled or disabled."""
        placed = self.find(path)
        if isinstance(placed.node, SolverSetup):
            return self._switched(enabled)
        if isinstance(placed.node, Group):
            return self._swap(placed, placed.node._switched(enabled))
        return self.replace(path, enabled=enabled)

    def set(self, target: str, value: Any) -> SolverSetup:
        """Return a new Solver Setup with `Group/Behavior.parameter` set to a value or a text.

        A target without a dot is one of the settings; `.enabled` switches a Group or Behavior.

        Raises:
            SetupError: The path, the parameter or the value is not valid.
        """
        path, _, name = target.strip().rpartition(".")
        if "/" in name:
            raise SetupError(f'"{target[:80]}" names no parameter; write {name[:80]}.parameter')
        placed = self.find(path)
        place = f"{self.place(placed.path)}.{name}"
        if name == "enabled":
            enabled = SWITCHES.get(value.strip().lower()) if isinstance(value, str) else value
            if not isinstance(enabled, bool):
                raise SetupError(f"{place} = {show(value)} is not true or false")
            return self.with_enabled(placed.path, enabled)
        known: Mapping[str, Any] = {}
        if isinstance(placed.node, SolverSetup):
            known = SolverSettings.parameters()
        elif isinstance(placed.node, Behavior):
            known = placed.node.parameters()
        if name in known and isinstance(value, str):
            value = known[name].from_text(value, place)
        return self.replace(placed.path, **{name: value})

    def at(self, time: float) -> SolverSetup:
        """Return the Solver Setup with keyframes evaluated at a time [s]; itself without any."""
        rate, start = self.settings.frames_per_second, self.settings.start_frame

        def resolve(node: Group | Behavior) -> Group | Behavior:
            if isinstance(node, Behavior):
                return node.at(time, frames_per_second=rate, start_frame=start)
            return _map_children(node, resolve)

        setup = _map_children(self, resolve)
        assert isinstance(setup, SolverSetup)
        return setup

    def _swap(self, placed: Placed, new: Group | Behavior) -> SolverSetup:
        """Return the tree with one node exchanged, the Groups around it rebuilt."""
        steps = _steps(placed.path)
        for depth in range(len(steps) - 1, -1, -1):
            group = placed.groups[depth]
            children = list(group.children)
            children[group.child_names.index(steps[depth])] = new
            new = group.with_children(tuple(children), place=self.place("/".join(steps[:depth])))
        assert isinstance(new, SolverSetup)
        return new

    # -- documents ------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form, with the values that are not the default."""
        from loki_core.setup_document import SCHEMA_VERSION  # it reads what this file writes

        document: dict[str, Any] = {
            "loki": "solver_setup",
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
        }
        if not self.enabled:
            document["enabled"] = False
        settings = self.settings.parameters_document()
        if settings:
            document["settings"] = settings
        document["children"] = [child.to_document() for child in self.children]
        return document

    def to_json(self) -> str:
        """Return the text of a `*.loki.json` file."""
        from loki_core.setup_document import format_json

        return format_json(self.to_document()) + "\n"

    @classmethod
    def from_document(cls, document: Any, source: str = "") -> SolverSetup:
        """Read the JSON form; messages begin with the source, such as a file name.

        Raises:
            LokiError: The document is not a valid Solver Setup.
        """
        from loki_core.setup_document import setup_from_document

        return setup_from_document(document, source=source)

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "") -> SolverSetup:
        """Read the text of a `*.loki.json` file.

        Raises:
            LokiError: The text is not JSON, or not a valid Solver Setup.
        """
        from loki_core.setup_document import parse_json, setup_from_document

        return setup_from_document(parse_json(text, source=source), source=source)

    def digest(self) -> str:
        """Return the SHA-256 of the content; the order of siblings has no part in it."""
        return hashlib.sha256(self.canonical_text.encode("utf-8")).hexdigest()


def _check_children(children: tuple[Any, ...], place: str) -> None:
    names: set[str] = set()
    for child in children:
        if isinstance(child, SolverSetup):
            raise SetupError(f"{place}: a Solver Setup is the root and cannot be inside a Group")
        if isinstance(child, type):
            raise SetupError(f"{place}: {child.__name__} is a class; write {child.__name__}()")
        if not isinstance(child, (Group, Behavior)):
            raise SetupError(f"{place}: {show(child)} is neither a Group nor a Behavior")
        if child.name is not None and child.name in names:
            raise SetupError(f'{place} has two children named "{child.name}"; rename one of them')
        if child.name is not None:
            names.add(child.name)


def _walk(node: Group | Behavior, path: str, groups: tuple[Group, ...]) -> Iterator[Placed]:
    yield Placed(path, node, groups)
    if isinstance(node, Group):
        for name, child in node.named_children.items():
            yield from _walk(child, f"{path}/{name}" if path else name, (*groups, node))


def _content_key(child: Group | Behavior) -> tuple[int, str, bool]:
    # the plainest gets the plain name; parameters count before the switch, since switching a
    # Behavior off must not exchange its name with another's
    assert isinstance(child, Behavior)
    parameters = child.parameters_document()
    return len(parameters), json.dumps(parameters, sort_keys=True), not child.enabled


def _canonical_key(item: tuple[str, Group | Behavior]) -> tuple[int, str, str]:
    name, child = item
    if isinstance(child, Group):
        return len(KINDS), "", name
    return KINDS.index(child.kind), type(child).__name__, name


def _map_children(group: Group, function: Callable[[Group | Behavior], Group | Behavior]) -> Group:
    children = tuple(function(child) for child in group.children)
    if all(new is old for new, old in zip(children, group.children, strict=True)):
        return group
    return group.with_children(children)


def _steps(path: str) -> list[str]:
    return path.split("/") if path else []


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _label(name: str, node: Group | Behavior) -> str:
    text = name
    if isinstance(node, SolverSetup):
        values = node.settings.changed_values()
    else:
        values = node.changed_values() if isinstance(node, Behavior) else {}
    if isinstance(node, Behavior) and node.name is not None and node.name != type(node).__name__:
        text += f": {type(node).__name__}"
    if values:
        text += "  " + ", ".join(f"{key}={show(value)}" for key, value in values.items())
    return text if node.enabled else text + "  (disabled)"


def _draw(group: Group, indent: str) -> Iterator[str]:
    for index, (name, child) in enumerate(zip(group.child_names, group.children, strict=True)):
        is_last = index == len(group.children) - 1
        yield f"{indent}{'└── ' if is_last else '├── '}{_label(name, child)}"
        if isinstance(child, Group):
            yield from _draw(child, indent + ("    " if is_last else "│   "))
