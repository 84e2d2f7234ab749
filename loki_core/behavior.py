"""Behavior: the declaration of something that is simulated, and the registry of them all.

A Behavior is data, an immutable record of parameters; the Object or Action that it creates is
code. Defining a subclass registers it:

    class GravityForce(Behavior, kind="force"):
        \"\"\"Pull every Object in the Group along one constant acceleration.\"\"\"

        acceleration: tuple[float, float, float] = parameter((0.0, -9.81, 0.0), unit="m/s^2")
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    dataclass_transform,
    get_args,
)

from loki_core.errors import LokiError, SetupError, did_you_mean
from loki_core.keyframes import Keyframes
from loki_core.parameter import Parameter, Varies, parameter

if TYPE_CHECKING:
    from loki_core.objects.basics.capabilities import Capability

__all__ = [
    "Behavior",
    "BehaviorKind",
    "Declaration",
    "action_class_for",
    "check_name",
    "find_behavior",
    "isolated_registry",
    "load_builtin_behaviors",
    "load_extensions",
    "parameter",
    "register_action",
    "registry",
]

BehaviorKind = Literal["object", "force", "constraint", "operator", "expression"]
KINDS: tuple[str, ...] = get_args(BehaviorKind)
BUILTIN_PACKAGES = ("objects", "forces", "constraints", "operators")
MAX_NAME = 128

_NAME = re.compile(r"\w(?:[\w \-]*[\w\-])?")


def _declared_parameters(cls: type[Declaration]) -> dict[str, Parameter]:
    """Return the inherited parameters, with those that the class itself declares or re-defaults."""
    declared = dict(cls._parameters)
    annotations = inspect.get_annotations(cls)
    for name, annotation in annotations.items():
        is_class_variable = str(annotation).removeprefix("typing.").startswith("ClassVar")
        is_known = is_class_variable or name in declared or name in cls._own_fields
        if not is_known and not isinstance(vars(cls).get(name), Parameter):
            raise SetupError(f"{cls.__name__}.{name} is annotated but not given by parameter(...)")
    for name, value in list(vars(cls).items()):
        place = f"{cls.__name__}.{name}"
        if isinstance(value, Parameter):
            if name not in annotations:
                raise SetupError(f"{place} = parameter(...) needs a type annotation")
            if name not in declared and any(hasattr(base, name) for base in cls.__mro__[1:]):
                raise SetupError(f"{place}: every Behavior has this name already; choose another")
            declared[name] = value.declared(
                name, annotations[name], owner=cls.__name__, varies=cls.varies
            )
        elif name in declared:  # a plain value: the same parameter with another default
            default = declared[name].check(value, place)
            declared[name] = dataclasses.replace(declared[name], default=default)
            setattr(cls, name, default)
    return {name: dataclasses.replace(p, owner=cls.__name__) for name, p in declared.items()}


# Parameters are given positionally, `parameter(0.0, ...)`, so `parameter` is not named as a field
# specifier: type checkers then see an ordinary default, and GravityForce() needs no argument.
@dataclass_transform(kw_only_default=True, frozen_default=True)
class Declaration:
    """An immutable record whose fields are declared by `parameter(...)`."""

    _parameters: ClassVar[Mapping[str, Parameter]] = MappingProxyType({})
    _own_fields: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # fields, no parameters
    varies: ClassVar[Varies] = "no"  # how far float parameters vary that do not say

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls._parameters = MappingProxyType(_declared_parameters(cls))
        for name in inspect.get_annotations(cls):
            if name in cls._parameters:
                setattr(cls, name, dataclasses.field(default=cls._parameters[name].default))
        dataclasses.dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)(cls)
        keyword = inspect.Parameter.KEYWORD_ONLY  # for editors and help()
        signature = [
            inspect.Parameter(name, keyword, default=default)
            for name, default in [
                *cls._own_fields.items(),
                *((name, p.default) for name, p in cls._parameters.items()),
            ]
        ]
        cls.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]

    def __init__(self, *arguments: Any, **values: Any) -> None:
        if arguments:
            name = type(self).__name__
            example = next(iter(type(self)._parameters), "name")
            raise SetupError(f"{name} takes parameters by name only, {name}({example}=...)")
        self._fill(values, place=type(self).__name__)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], *, place: str) -> Self:
        """Return a new record; messages call it `place` instead of by its class.

        Raises:
            SetupError: A name is unknown or a value is not valid.
        """
        record = object.__new__(cls)
        record._fill(dict(values), place=place)
        return record

    def _fill(self, values: dict[str, Any], *, place: str) -> None:
        known = type(self)._parameters
        self._fill_own(values, place=place)
        for name in values:
            if name not in known:
                hint = did_you_mean(str(name)[:80], known)
                raise SetupError(f'{place} has no parameter "{str(name)[:80]}"{hint}')
        for name, declared in known.items():
            value = declared.default
            if name in values:
                value = declared.check(values[name], f"{place}.{name}")
            object.__setattr__(self, name, value)
        self.validate(place)

    def _fill_own(self, values: dict[str, Any], *, place: str) -> None:
        """Take what is no parameter out of the values; a hook of Behavior."""

    def validate(self, place: str) -> None:
        """Check parameters against each other; override where they depend on one another.

        Raises:
            SetupError: The message begins with `place`, the record's path or class.
        """

    @classmethod
    def parameters(cls) -> Mapping[str, Parameter]:
        """Return the declared parameters by name, in the order of declaration."""
        return cls._parameters

    def values(self) -> dict[str, Any]:
        """Return every parameter's value by name."""
        return {name: getattr(self, name) for name in self._parameters}

    def changed_values(self) -> dict[str, Any]:
        """Return the values that are not the default."""
        declared = self._parameters
        return {n: v for n, v in self.values().items() if not _same(v, declared[n].default)}

    def is_animated(self) -> bool:
        """Return whether any value has keyframes."""
        return any(isinstance(value, Keyframes) for value in self.values().values())

    def at(self, time: float, *, frames_per_second: float = 24.0, start_frame: int = 1) -> Self:
        """Return the record with keyframes evaluated at a time [s]; itself if there are none."""
        if not self.is_animated():
            return self
        copy = object.__new__(type(self))
        for name, value in vars(self).items():
            if isinstance(value, Keyframes):
                value = value.at(time, frames_per_second=frames_per_second, start_frame=start_frame)
            object.__setattr__(copy, name, value)
        return copy

    def replace(self, **values: Any) -> Self:
        """Return a copy with other values."""
        return type(self)(**{**self._content(), **values})

    def parameters_document(self) -> dict[str, Any]:
        """Return the values that are not the default, in JSON form."""
        declared = self._parameters
        return {n: declared[n].to_document(v) for n, v in self.changed_values().items()}

    def _content(self) -> dict[str, Any]:
        return self.values()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Declaration):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash((type(self).__name__, tuple(self._content().items())))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._shown().items())
        return f"{type(self).__name__}({shown})"

    def _shown(self) -> dict[str, Any]:
        return self.changed_values()


class Behavior(Declaration):
    """The base of everything that a Solver Setup is made of.

    Class keywords:
        abstract: A base for other Behaviors, not registered itself.
        kind: "object", "force", "constraint", "operator" or "expression"; inherited.
        exclusive: Of several that reach an Object, only the one in the nearest Group acts.
        varies: How far float parameters vary that it declares and that do not say, such as
            "vertex"; "no" at first, and inherited. What a base has declared stays as it was there.

    Attributes:
        shapes_objects: Whether others must know that it acts on an Object before they do.
    """

    shapes_objects: ClassVar[bool] = False
    kind: ClassVar[str] = "operator"
    exclusive: ClassVar[bool] = False
    abstract: ClassVar[bool] = True
    _own_fields = MappingProxyType({"name": None, "enabled": True})

    name: str | None = None
    enabled: bool = True

    def __init_subclass__(
        cls,
        *,
        abstract: bool = False,
        kind: BehaviorKind | None = None,
        exclusive: bool | None = None,
        varies: Varies | None = None,
        **keywords: Any,
    ) -> None:
        if kind is not None:
            if kind not in KINDS:
                hint = did_you_mean(str(kind), KINDS)
                raise SetupError(f"{cls.__name__}: kind={kind!r} is not known{hint}")
            cls.kind = kind
        elif cls.kind not in KINDS:
            hint = did_you_mean(str(cls.kind), KINDS)
            raise SetupError(f"{cls.__name__}: kind={cls.kind!r} is not known{hint}")
        if exclusive is not None:
            cls.exclusive = exclusive
        if varies is not None:
            if varies not in get_args(Varies):
                hint = did_you_mean(str(varies), get_args(Varies))
                raise SetupError(f"{cls.__name__}: varies={varies!r} is not known{hint}")
            cls.varies = varies
        cls.abstract = abstract
        super().__init_subclass__(**keywords)
        if not abstract:
            _register(cls)

    def _fill_own(self, values: dict[str, Any], *, place: str) -> None:
        if type(self).abstract:
            raise SetupError(f"{type(self).__name__} is a base for Behaviors, not one itself")
        name, enabled = values.pop("name", None), values.pop("enabled", True)
        if name is not None:
            check_name(name, f"{place}.name")
        if not isinstance(enabled, bool):
            raise SetupError(f"{place}.enabled = {str(enabled)[:40]} is not true or false")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "enabled", enabled)

    def create(self, scope: Any) -> list[Any]:
        """Return what runs: by default one Action for each Object in scope that it acts on.

        An empty list means that the Behavior is inactive in this scene.
        """
        action_class = action_class_for(type(self))
        made = [action_class(self, item) for item in scope.objects if action_class.acts_on(item)]
        for one in made:
            one.peers = made
        return made

    def empty_stream(self, parameter_name: str) -> Any:
        """Return a stream of the right type with nothing in it, for whoever has none to give."""
        from loki_core.data.points import Points

        return Points([])

    def bucket_size_hint(self, inputs: Mapping[str, Any]) -> float | None:
        """Return the Bucket size [m] that suits the Behavior's data, or None if any will do."""
        return None

    def voxel_size_hint(self) -> float | None:
        """Return the edge of the Behavior's voxels [m], or None if it has none."""
        return None

    @classmethod
    def exclusive_family(cls) -> type[Behavior]:
        """Return the base whose subclasses exclude each other; the class itself by default."""
        bases = [base for base in cls.__mro__ if issubclass(base, Behavior) and base.exclusive]
        return bases[-1] if bases else cls

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form, with the values that are not the default."""
        document: dict[str, Any] = {"behavior": type(self).__name__}
        if self.name is not None:
            document["name"] = self.name
        if not self.enabled:
            document["enabled"] = False
        parameters = self.parameters_document()
        if parameters:
            document["parameters"] = parameters
        return document

    def _content(self) -> dict[str, Any]:
        return {"name": self.name, "enabled": self.enabled, **self.values()}

    def _shown(self) -> dict[str, Any]:
        own: dict[str, Any] = {} if self.name is None else {"name": self.name}
        if not self.enabled:
            own["enabled"] = False
        return {**own, **self.changed_values()}


def check_name(name: Any, place: str) -> None:
    """Check the name of a Group or Behavior, a step of a path in the tree.

    Raises:
        SetupError: It is not made of letters, digits, `_`, `-` and inner spaces.
    """
    if not isinstance(name, str):
        raise SetupError(f"{place} = {str(name)[:40]!r} is not a text")
    if len(name) > MAX_NAME:
        raise SetupError(f"{place} is {len(name)} characters long; at most {MAX_NAME} are allowed")
    if not _NAME.fullmatch(name):
        shown = name.encode("unicode_escape").decode("ascii")
        raise SetupError(f'{place} = "{shown}" is not a name; use letters, digits, "_", "-", " "')


def _same(value: Any, default: Any) -> bool:
    # 1 == True and -0.0 == 0.0 in Python, and they are not the same in a document
    return bool(value == default) and repr(value) == repr(default)


# -- the registry -------------------------------------------------------------------------------


class ActionClass(Protocol):
    """What runs for a Behavior on one Object."""

    def __call__(self, behavior: Behavior, item: Capability, /) -> Any:
        """Make the Action of a Behavior for one Object."""

    def acts_on(self, item: Capability, /) -> bool:
        """Return whether the Action has anything to do on an Object."""


_behaviors: dict[str, type[Behavior]] = {}
_actions: dict[type[Behavior], Any] = {}
_loading: set[str] = set()  # "builtin" once the declarations were imported


def _register(cls: type[Behavior]) -> None:
    known = _behaviors.get(cls.__name__)
    if known is not None:
        ours = (cls.__module__, cls.__qualname__)
        theirs = (known.__module__, known.__qualname__)
        if ours != theirs:  # the same address twice is a module that was reloaded
            files = [
                getattr(sys.modules.get(one), "__file__", None) for one in (theirs[0], ours[0])
            ]
            remedy = "rename one of them"
            if files[0] is not None and files[0] == files[1]:
                remedy = f"both are {files[0]}, imported by two names; import it by one"
            raise SetupError(
                f"two Behaviors are named {cls.__name__}: {theirs[0]}.{theirs[1]} and "
                f"{ours[0]}.{ours[1]}; {remedy}"
            )
    _behaviors[cls.__name__] = cls


def registry() -> Mapping[str, type[Behavior]]:
    """Return every registered Behavior by name, sorted; built-in ones and extensions loaded."""
    load_builtin_behaviors()
    return MappingProxyType(dict(sorted(_behaviors.items())))


def find_behavior(name: str) -> type[Behavior]:
    """Return the Behavior of a name.

    Raises:
        SetupError: There is none; the message gives the nearest name.
    """
    load_builtin_behaviors()
    if name in _behaviors:
        return _behaviors[name]
    raise SetupError(f'there is no Behavior "{name[:80]}"{did_you_mean(name[:80], _behaviors)}')


def register_action(behavior_class: type[Behavior], action_class: Any) -> None:
    """Make an Action class the one that runs for a Behavior class.

    Raises:
        SetupError: Another Action class has that Behavior already.
    """
    known = _actions.get(behavior_class)
    if known is not None and (known.__module__, known.__qualname__) != (
        action_class.__module__,
        action_class.__qualname__,
    ):
        raise SetupError(
            f"{behavior_class.__name__} has two Actions, {known.__qualname__} and "
            f"{action_class.__qualname__}; override create() to make several"
        )
    _actions[behavior_class] = action_class


def action_class_for(behavior_class: type[Behavior]) -> Any:
    """Return the Action class of a Behavior class, or of its nearest base that has one.

    Raises:
        SetupError: No Action was defined.
    """
    for base in behavior_class.__mro__:
        if base in _actions:
            return _actions[base]
    raise SetupError(
        f"{behavior_class.__name__} has no Action; define one with "
        f"behavior={behavior_class.__name__}, or override its create(scope)"
    )


@contextlib.contextmanager
def isolated_registry(*extra: type[Behavior]) -> Iterator[list[type[Behavior]]]:
    """Register some Behaviors for a while, and forget them and all new ones afterwards.

    The list that is yielded holds, after the block, the Behaviors that were defined inside it.
    """
    load_builtin_behaviors()
    behaviors, actions = dict(_behaviors), dict(_actions)
    defined: list[type[Behavior]] = []
    try:
        for behavior in extra:
            _register(behavior)
        yield defined
    finally:
        defined.extend(b for n, b in _behaviors.items() if behaviors.get(n) is not b)
        for current, before in ((_behaviors, behaviors), (_actions, actions)):
            current.clear()
            current.update(before)  # type: ignore[arg-type]  # each from its own copy


# -- loading ------------------------------------------------------------------------------------


def load_builtin_behaviors() -> None:
    """Import every module that declares built-in Behaviors, and LOKI_EXTENSIONS, once."""
    if "builtin" in _loading:
        return
    _loading.add("builtin")  # first, since a declaration may itself ask for the registry
    try:
        for package_name in BUILTIN_PACKAGES:
            full_name = f"loki_core.{package_name}"
            if importlib.util.find_spec(full_name) is None:
                continue
            package = importlib.import_module(full_name)
            for module in pkgutil.walk_packages(package.__path__, full_name + "."):
                importlib.import_module(module.name)
        folders = os.environ.get("LOKI_EXTENSIONS", "")
        load_extensions([folder for folder in folders.split(os.pathsep) if folder])
    except BaseException:
        _loading.discard("builtin")  # so that the next call tells the same error
        raise


def load_extensions(places: str | Path | Iterable[str | Path]) -> list[type[Behavior]]:
    """Import the Python files of some folders, or single files; return their Behaviors.

    A file is imported once. Files whose name begins with `_` are left to be imported by others.

    Raises:
        SetupError: A place does not exist, or a file fails to import.
    """
    places = [places] if isinstance(places, (str, Path)) else list(places)
    found: list[type[Behavior]] = []
    for place in places:
        path = Path(place).expanduser()
        if path.is_dir():
            files = sorted(path.glob("[!_]*.py"))
        elif path.is_file() and path.suffix == ".py":
            files = [path]
        else:
            raise SetupError(f'extension "{path}" is neither a folder nor a Python file')
        for file in files:
            found += _load_extension(file.resolve())
    return found


def _load_extension(file: Path) -> list[type[Behavior]]:
    digest = hashlib.sha256(str(file).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    # the digest keeps two files of one name apart
    name = f"loki_extension_{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}_{digest}"
    if name not in sys.modules:
        specification = importlib.util.spec_from_file_location(name, file)
        if specification is None or specification.loader is None:
            raise SetupError(f'extension "{file}" cannot be imported')
        module = importlib.util.module_from_spec(specification)
        sys.modules[name] = module
        before = dict(_behaviors), dict(_actions)
        try:
            specification.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            for current, saved in zip((_behaviors, _actions), before, strict=True):
                current.clear()  # type: ignore[attr-defined]  # both are dictionaries
                current.update(saved)  # type: ignore[attr-defined]
            kind = "" if isinstance(error, LokiError) else f"{type(error).__name__}: "
            line = _line_in(file, error)
            raise SetupError(f'extension "{file}"{line} fails: {kind}{error}') from error
    return [b for b in _behaviors.values() if b.__module__ == name]


def _line_in(file: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f", line {error.lineno},"
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f", line {line},"
