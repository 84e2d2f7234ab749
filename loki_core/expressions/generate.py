"""Write the module that runs a checked expression.

The generated module holds two functions: `run_block`, the snippet in a loop over one block of
particles, and `run_expression`, which hands blocks to threads. Blocks have a fixed size, so that
the code which meets an element does not depend on the number of threads, and `run_block` has no
fast-math, so that it does not depend on the place in the block either. Vectors are three scalars.
Arithmetic is done in float64 and int64 whatever the precision of the channels: loads widen, stores
round. Whole numbers wrap around at 64 bits. Both sides of a choice may be computed, which costs
time and nothing else, since no value can fail. Nothing of the user's text is copied except checked
names and the values of numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loki_core.expressions.functions import FUNCTIONS, Function, Kind
from loki_core.expressions.language import READ_ONLY_NAMES, CheckedExpression

BLOCK_SIZE = 1024
SCALARS = ("dt", "time", "frame", "key")

_HEADER = '''"""Generated from a Loki expression and named by the hash of its content."""

import math

import numpy as np

from loki_core.kernels.jit import parallel_kernel, prange, strict_kernel
from loki_core.kernels.basics.noise import curl_noise3, noise3
from loki_core.kernels.basics.random import uniform

'''
_ZERO: Mapping[Kind, str] = {"float": "0.0", "int": "0", "bool": "False", "vector": "0.0"}
_SIGNS: Mapping[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.And: "and",
    ast.Or: "or",
}


@dataclass(frozen=True)
class _Value:
    """The text of a value: one part, or three for a vector."""

    kind: Kind
    parts: tuple[str, ...]


class _Generator:
    """Write the body of the loop, one line of text at a time."""

    def __init__(self, checked: CheckedExpression) -> None:
        self.checked = checked
        self.kinds = checked.kinds
        self.lines: list[str] = []
        self.indent = 2
        self.temporaries = 0
        self.loops: list[str] = []

    def body(self) -> list[str]:
        """Lines of the loop over one block: load, the snippet, store."""
        checked = self.checked
        for name, kind in checked.channels.items():
            for axis, part in enumerate(_parts(name, kind)):
                place = f"array_{name}[i, {axis}]" if kind == "vector" else f"array_{name}[i]"
                if name not in checked.reads:
                    loaded = _ZERO[kind]
                elif kind == "bool":
                    loaded = f"{place} != 0"
                else:
                    loaded = f"np.{'int64' if kind == 'int' else 'float64'}({place})"
                self._line(f"{part} = {loaded}")
        for name, kind in checked.variables.items():
            for part in _parts(name, kind):
                self._line(f"{part} = {_ZERO[kind]}")
        self._block(checked.tree.body)
        for name in sorted(checked.writes):
            kind = checked.channels[name]
            for axis, part in enumerate(_parts(name, kind)):
                place = f"array_{name}[i, {axis}]" if kind == "vector" else f"array_{name}[i]"
                self._line(f"{place} = {part}")
        return self.lines or ["        pass"]

    # -- statements --------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _inner(self, statements: Sequence[ast.stmt]) -> None:
        self.indent += 1
        before = len(self.lines)
        self._block(statements)
        if len(self.lines) == before:
            self._line("pass")
        self.indent -= 1

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target]):
                self._assign(target, self._value(node.value))
            case ast.AugAssign():
                self._assign(node.target, self._binary(node, node.target, node.value))
            case ast.If():
                self._line(f"if {self._scalar(node.test)}:")
                self._inner(node.body)
                if node.orelse:
                    self._line("else:")
                    self._inner(node.orelse)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=arguments)):
                bounds = ", ".join(self._scalar(argument) for argument in arguments)
                self._line(f"for loop_{name} in range({bounds}):")
                self.loops.append(name)
                self._inner(node.body)
                self.loops.pop()
            case ast.Pass():
                pass
            case _:
                raise AssertionError(f"{type(node).__name__} passed the checker")

    def _assign(self, target: ast.expr, value: _Value) -> None:
        match target:
            case ast.Name(id=name):
                kind = self.kinds[target]
                parts = self._as(value, kind).parts
                if kind == "vector":  # all components are read before the first is written
                    parts = tuple(self._name_value(part) for part in parts)
                for part, text in zip(_parts(name, kind), parts, strict=True):
                    self._line(f"{part} = {text}")
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                parts = _parts(name, "vector")
                text = self._as(value, "float").parts[0]
                if isinstance(index, ast.Constant) and isinstance(index.value, int):
                    self._line(f"{parts[index.value]} = {text}")
                    return
                text, chosen = self._once(text), self._once(self._scalar(index))
                for axis, part in enumerate(parts):
                    self._line(f"{part} = {text} if {chosen} == {axis} else {part}")
            case _:
                raise AssertionError(f"{type(target).__name__} passed the checker")

    # -- expressions -------------------------------------------------------------------------------

    def _name_value(self, text: str) -> str:
        self.temporaries += 1
        self._line(f"t{self.temporaries} = {text}")
        return f"t{self.temporaries}"

    def _once(self, text: str) -> str:
        """Text that may be repeated without repeating the work."""
        return text if text.isidentifier() or _is_literal(text) else self._name_value(text)

    def _scalar(self, node: ast.expr) -> str:
        return self._value(node).parts[0]

    def _as(self, value: _Value, kind: Kind) -> _Value:
        if value.kind == kind:
            return value
        if kind == "vector":  # a number among vectors stands for all three components
            part = self._once(self._as(value, "float").parts[0])
            return _Value("vector", (part, part, part))
        if value.kind == "int" and kind == "float":
            text = value.parts[0]
            return _Value("float", (f"{text}.0" if text.isdigit() else f"np.float64({text})",))
        raise AssertionError(f"{value.kind} as {kind} passed the checker")

    def _value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value=value):
                return _Value(_constant_kind(value), (repr(value),))
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.UnaryOp(op=ast.Not()):
                return _Value("bool", (f"(not {self._scalar(node.operand)})",))
            case ast.UnaryOp(op=op):
                operand = self._value(node.operand)
                if isinstance(op, ast.UAdd):
                    return operand
                return _Value(operand.kind, tuple(f"(-{part})" for part in operand.parts))
            case ast.BinOp():
                return self._binary(node, node.left, node.right)
            case ast.BoolOp():
                sign = f" {_SIGNS[type(node.op)]} "
                return _Value("bool", (f"({sign.join(self._scalar(v) for v in node.values)})",))
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                kind, test = self.kinds[node], self._once(self._scalar(node.test))
                yes, no = (
                    self._as(self._value(node.body), kind),
                    self._as(self._value(node.orelse), kind),
                )
                pairs = zip(yes.parts, no.parts, strict=True)
                return _Value(kind, tuple(f"({a} if {test} else {b})" for a, b in pairs))
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                x, y, z = _parts(name, "vector")
                if isinstance(index, ast.Constant) and isinstance(index.value, int):
                    return _Value("float", ((x, y, z)[index.value],))
                chosen = self._once(self._scalar(index))
                return _Value(
                    "float", (f"({x} if {chosen} == 0 else {y} if {chosen} == 1 else {z})",)
                )
            case ast.Call(func=ast.Name(id=name)):
                return self._call(
                    FUNCTIONS[name], [self._value(argument) for argument in node.args]
                )
            case _:
                raise AssertionError(f"{type(node).__name__} passed the checker")

    def _name(self, node: ast.expr, name: str) -> _Value:
        if name in self.loops:
            return _Value("int", (f"loop_{name}",))
        if name in self.checked.parameters:
            return _Value("float", (f"parameter_{name}",))
        if name == "pi":
            return _Value("float", ("math.pi",))
        kind = self.kinds[node]
        if name in READ_ONLY_NAMES and name != "id":
            return _Value(kind, (name,))
        return _Value(kind, _parts(name, kind))

    def _binary(self, node: ast.BinOp | ast.AugAssign, first: ast.expr, second: ast.expr) -> _Value:
        kind, sign = self.kinds[node], _SIGNS[type(node.op)]
        left, right = self._value(first), self._value(second)
        whole = sign == "**" and isinstance(second, ast.Constant) and right.kind == "int"
        if kind != "int":
            left = self._as(left, kind)
            right = right if whole else self._as(right, kind)  # x ** 2 stays x * x
        pairs = zip(left.parts, right.parts, strict=True)
        return _Value(kind, tuple(f"({a} {sign} {b})" for a, b in pairs))

    def _compare(self, node: ast.Compare) -> _Value:
        values = [self._value(operand) for operand in (node.left, *node.comparators)]
        mixed = any(value.kind == "float" for value in values)
        kind: Kind = "float" if mixed else values[0].kind
        texts = [self._as(value, kind).parts[0] for value in values]
        texts[1:-1] = [self._once(text) for text in texts[1:-1]]
        tests = [
            f"{a} {_SIGNS[type(op)]} {b}"
            for op, a, b in zip(node.ops, texts, texts[1:], strict=False)
        ]
        return _Value("bool", (f"({' and '.join(tests)})",))

    # -- functions ---------------------------------------------------------------------------------

    def _call(self, function: Function, values: Sequence[_Value]) -> _Value:
        if function.formula:
            return self._by_formula(function, values)
        rule = _RULES[function.name]
        parts = [self._once(part) for value in values for part in value.parts]
        if function.takes == "numbers":
            parts = [self._as(value, "float").parts[0] for value in values]
        if function.takes == "scalars":
            return rule(self, [values[0].kind, *parts])
        return rule(self, parts)

    def _by_formula(self, function: Function, values: Sequence[_Value]) -> _Value:
        whole = function.gives == "same" and all(value.kind == "int" for value in values)
        vector = any(value.kind == "vector" for value in values)
        kind: Kind = "vector" if vector else "int" if whole else "float"
        rows = [[self._once(part) for part in self._as(value, kind).parts] for value in values]
        parts = []
        for arguments in zip(*rows, strict=True):
            wanted = len(function.arguments)
            text = function.formula[0].format(*arguments)
            for further in arguments[wanted:]:  # min and max of many: two at a time
                text = function.formula[0].format(self._once(text), further)
            for formula in function.formula[1:]:
                text = formula.format(self._once(text))
            parts.append(text)
        return _Value(kind, tuple(parts))

    def _vec3(self, p: Sequence[str]) -> _Value:
        return _Value("vector", tuple(p))

    def _dot(self, p: Sequence[str]) -> _Value:
        return _Value("float", (f"({p[0]} * {p[3]} + {p[1]} * {p[4]} + {p[2]} * {p[5]})",))

    def _length(self, p: Sequence[str]) -> _Value:
        return _Value("float", (f"np.sqrt({self._dot([*p, *p]).parts[0]})",))

    def _normalize(self, p: Sequence[str]) -> _Value:
        length = self._once(self._length(p).parts[0])
        divisor = self._once(f"({length} if {length} != 0.0 else 1.0)")
        return _Value("vector", tuple(f"({part} / {divisor})" for part in p))

    def _cross(self, p: Sequence[str]) -> _Value:
        pairs = ((1, 2), (2, 0), (0, 1))
        return _Value(
            "vector", tuple(f"({p[a]} * {p[b + 3]} - {p[b]} * {p[a + 3]})" for a, b in pairs)
        )

    def _to_float(self, p: Sequence[str]) -> _Value:
        kind, text = p
        return _Value(
            "float", (f"(1.0 if {text} else 0.0)" if kind == "bool" else f"np.float64({text})",)
        )

    def _to_int(self, p: Sequence[str]) -> _Value:
        kind, text = p
        if kind == "int":
            return _Value("int", (text,))
        if kind == "bool":
            return _Value("int", (f"(1 if {text} else 0)",))
        # A cast of what int64 cannot hold is undefined, so the value is brought into range first.
        limited = self._once(f"np.minimum(np.maximum({text}, -9.2e18), 9.2e18)")
        return _Value("int", (f"np.int64({limited} if {limited} == {limited} else 0.0)",))

    def _to_bool(self, p: Sequence[str]) -> _Value:
        kind, text = p
        return _Value("bool", (text if kind == "bool" else f"({text} != 0)",))

    def _rand(self, p: Sequence[str]) -> _Value:
        return _Value("float", (f"uniform(key, {_parts('id', 'int')[0]}, np.int64({p[0]}))",))

    def _noise(self, p: Sequence[str]) -> _Value:
        return _Value("float", (f"noise3({', '.join(p)})",))

    def _curlnoise(self, p: Sequence[str]) -> _Value:
        result = self._name_value(f"curl_noise3({', '.join(p)})")
        return _Value("vector", tuple(f"{result}[{axis}]" for axis in range(3)))


_RULES: Mapping[str, Callable[[_Generator, Sequence[str]], _Value]] = {
    "vec3": _Generator._vec3,
    "dot": _Generator._dot,
    "length": _Generator._length,
    "normalize": _Generator._normalize,
    "cross": _Generator._cross,
    "float": _Generator._to_float,
    "int": _Generator._to_int,
    "bool": _Generator._to_bool,
    "rand": _Generator._rand,
    "noise": _Generator._noise,
    "curlnoise": _Generator._curlnoise,
}


def _parts(name: str, kind: Kind) -> tuple[str, ...]:
    """Names of the scalars that hold a variable; the prefixes keep all sorts of names apart."""
    return (f"x_{name}", f"y_{name}", f"z_{name}") if kind == "vector" else (f"value_{name}",)


def _constant_kind(value: object) -> Kind:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"


def _is_literal(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() or text == "math.pi"


def generate_source(checked: CheckedExpression) -> str:
    """Write the module that runs a checked expression."""
    arrays = [f"array_{name}" for name in checked.channels]
    parameters = [f"parameter_{name}" for name in checked.parameters]
    arguments = ", ".join([*SCALARS, *arrays, *parameters])
    body = "\n".join(_Generator(checked).body())
    return (
        f"{_HEADER}\n@strict_kernel\ndef run_block(start, stop, {arguments}):\n"
        f"    for i in range(start, stop):\n{body}\n\n\n"
        f"@parallel_kernel\ndef run_expression(count, {arguments}):\n"
        f"    for block in prange((count + {BLOCK_SIZE - 1}) // {BLOCK_SIZE}):\n"
        f"        start = block * {BLOCK_SIZE}\n"
        f"        run_block(start, min(start + {BLOCK_SIZE}, count), {arguments})\n"
    )
