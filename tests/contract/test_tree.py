"""Rules of the tree: an Action says what it needs of its target, and so never asks what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from loki_core.behavior import load_builtin_behaviors
from loki_core.objects.basics.object import Object

ROOT = Path(__file__).parent.parent.parent
CORE = ROOT / "loki_core"

#: Names of what Actions act on and are declared by, wherever they are handed around.
TYPED = {"target", "item", "behavior"}


def _modules(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    """Path and syntax of every module in some folders of loki_core, or in all of it."""
    for folder in [CORE / one for one in folders] or [CORE]:
        for path in sorted(folder.rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def _place(path: Path, node: ast.AST, found: str) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}: {found}"


def _listed(rule: str, offenders: Iterable[str]) -> str:
    return "\n".join([rule, *(f"  {one}" for one in offenders)])


def _says_any(annotation: ast.expr | None) -> bool:
    """Whether an annotation is Any, on its own, as text, qualified, or in a union."""
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "Any"
        case ast.Constant(value=str(text)):
            return _says_any(ast.parse(text, mode="eval").body)
        case ast.BinOp(left=left, right=right):
            return _says_any(left) or _says_any(right)
        case ast.Subscript(value=ast.Name(id="Optional" | "Union" | "ClassVar" | "Final")):
            inner = annotation.slice
            return any(map(_says_any, inner.elts if isinstance(inner, ast.Tuple) else [inner]))
    return False


def _annotated(tree: ast.Module) -> Iterator[tuple[str, ast.AST, ast.expr | None]]:
    """Names, nodes and annotations of parameters, attributes and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node, node.annotation
        elif isinstance(node, ast.AnnAssign):
            if isinstance(node.target, ast.Name):
                yield node.target.id, node, node.annotation
            elif isinstance(node.target, ast.Attribute):
                yield node.target.attr, node, node.annotation


def _calls(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """Calls of a function or method of this name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if getattr(called, "id", getattr(called, "attr", None)) == name:
                yield node


def _kinds_of_objects() -> set[tuple[str, str]]:
    """Module and name of every class of Objects that Loki brings."""
    load_builtin_behaviors()
    found: set[tuple[str, str]] = set()
    waiting = [Object]
    while waiting:
        below = waiting.pop().__subclasses__()
        waiting += below
        found |= {(one.__module__, one.__name__) for one in below}
    return {(module, name) for module, name in found if module.startswith("loki_core.")}


def test_what_actions_act_on_is_never_anything():
    offenders = [
        _place(path, node, f"{name}: Any")
        for path, tree in _modules()
        for name, node, annotation in _annotated(tree)
        if name in TYPED and _says_any(annotation)
    ]
    rule = "say by a capability or a Behavior what it is (objects/basics/capabilities.py):"
    assert not offenders, _listed(rule, offenders)


@pytest.mark.parametrize("folder", ["forces", "constraints", "operators", "objects"])
def test_nobody_asks_whether_a_name_happens_to_be_there(folder):
    offenders = [
        _place(path, call, ast.unparse(call))
        for path, tree in _modules(folder)
        for call in _calls(tree, "hasattr")
    ]
    rule = "ask for a capability by isinstance (objects/basics/capabilities.py):"
    assert not offenders, _listed(rule, offenders)


def test_how_many_numbers_a_point_has_is_said_in_one_place():
    offenders = [
        _place(path, call, ast.unparse(call))
        for path, tree in _modules()
        if path != CORE / "objects" / "solids" / "unknowns.py"
        for call in _calls(tree, "arange")
        if len(call.args) == 1 and isinstance(call.args[0], ast.Constant)
        if call.args[0].value == 3
    ]
    rule = "the unknowns of a point are counted in objects/solids/unknowns.py:"
    assert not offenders, _listed(rule, offenders)


def test_kinds_of_objects_are_known():
    kinds = _kinds_of_objects()
    assert ("loki_core.objects.liquid.hybrid", "Hybrid") in kinds
    assert ("loki_core.objects.solids.curves", "Rods") in kinds


@pytest.mark.parametrize("folder", ["forces", "constraints", "operators", "expressions"])
def test_no_action_names_a_kind_of_object(folder):
    """A class has to be imported before isinstance or anything else can name it."""
    kinds = _kinds_of_objects()
    names = {name for _, name in kinds}
    offenders = []
    for path, tree in _modules(folder):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                offenders += [
                    _place(path, node, f"from {node.module} import {alias.name}")
                    for alias in node.names
                    if (node.module, alias.name) in kinds
                ]
            elif isinstance(node, ast.Attribute) and node.attr in names:
                offenders.append(_place(path, node, ast.unparse(node)))
    rule = "ask for a capability instead (objects/basics/capabilities.py):"
    assert not offenders, _listed(rule, offenders)
