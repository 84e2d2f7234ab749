"""The expression language: refuse what is not in it, find the kind of everything.

A snippet is a small, typed subset of Python that runs once for each particle or voxel:

    speed = length(velocity)                    # a local variable: its kind is found, not written
    if age > 2.0:
        alive = False                           # a channel: assigning writes it
    velocity += dt * cross(vec3(0.0, 1.0, 0.0), position)
    for i in range(3):                          # constant bounds only
        velocity[i] *= 0.9

A channel, parameter or variable has one of four kinds: float, int, bool, vector. An int is taken
wherever a float is wanted; nothing else changes its kind by itself. The checker is one walk with a
branch for each construct that the language has; whatever has no branch is refused. Nothing is
evaluated, so a snippet from another machine can be checked safely.
"""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loki_core.errors import ExpressionError, UnknownNameError, did_you_mean
from loki_core.expressions.functions import FUNCTIONS, KINDS, Function, Kind
from loki_core.expressions.parse import parse_snippet

MAXIMUM_ITERATIONS = 100_000
MAXIMUM_RANGE_BOUND = 2**31
MAXIMUM_POWER = 63
LARGEST_INTEGER = 2**63 - 1

READ_ONLY_NAMES: dict[str, Kind] = {
    "dt": "float",  # length of the substep [s]
    "time": "float",  # time since the first frame [s]
    "frame": "int",
    "id": "int",  # of the particle, or of the voxel by its place
    "pi": "float",
}

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_REFUSED: dict[type[ast.AST], str] = {
    ast.Import: "imports are not allowed; the functions of the language are always there",
    ast.ImportFrom: "imports are not allowed; the functions of the language are always there",
    ast.Attribute: "attributes are not allowed; a component is written as position[0]",
    ast.While: "a loop needs a constant bound: for i in range(4)",
    ast.FunctionDef: "functions cannot be defined here",
    ast.Lambda: "functions cannot be defined here",
    ast.ClassDef: "classes cannot be defined here",
    ast.NamedExpr: "assign on a line of its own",
    ast.AnnAssign: "kinds are found from the value; write name = value",
    ast.Tuple: "assign one name at a time, and write vectors as vec3(x, y, z)",
    ast.List: "there are no lists; write vectors as vec3(x, y, z)",
    ast.ListComp: "there are no comprehensions; use for i in range(4)",
    ast.GeneratorExp: "there are no comprehensions; use for i in range(4)",
    ast.JoinedStr: "text is not allowed",
    ast.Starred: "write the arguments one by one",
    ast.Break: "a loop always runs to its end; use an if inside it",
    ast.Continue: "a loop always runs to its end; use an if inside it",
    ast.Return: "assign to a channel instead",
    ast.Expr: "a value on a line of its own does nothing; assign it to a name",
}


@dataclass(frozen=True)
class ChannelType:
    """What an expression may know of a channel: its kind, and whether it may be assigned."""

    kind: Kind
    writable: bool = True


@dataclass(frozen=True)
class CheckedExpression:
    """A snippet that is in the language, with the kind of every part of it."""

    source: str
    label: str
    reads: frozenset[str]  # channels whose old value matters; "id" too, when rand needs it
    writes: frozenset[str]
    parameters: tuple[str, ...]  # the parameters that are used, sorted
    channels: Mapping[str, Kind]  # the channels that are used
    variables: Mapping[str, Kind] = field(repr=False)
    tree: ast.Module = field(repr=False, compare=False)
    kinds: Mapping[ast.AST, Kind] = field(repr=False, compare=False)  # of values and targets


def check_expression(
    source: str,
    *,
    channels: Mapping[str, ChannelType],
    parameters: Mapping[str, float] | None = None,
    label: str,
) -> CheckedExpression:
    """Check a snippet against the language and the channels that it may use.

    Args:
        source: The snippet. Common indentation is removed.
        channels: The channels of the Object, by name.
        parameters: The user's parameters; the names count here, the values are given at the run.
        label: Where the snippet stands, for messages: `dust/Swirl.expression`.

    Raises:
        ExpressionError: The snippet is not in the language. The message names the label, line,
            column, the offending text and the way out.
    """
    if not isinstance(source, str):
        raise ExpressionError(f"{label}: an expression is text, not {type(source).__name__}")
    source = textwrap.dedent(source.replace("\r\n", "\n").replace("\r", "\n"))
    tree = parse_snippet(source, label)
    names = _check_environment(channels, parameters or {}, label)
    checker = _Checker(source, label, channels=channels, parameters=names, tree=tree)
    return checker.check()


def _check_environment(
    channels: Mapping[str, ChannelType], parameters: Mapping[str, float], label: str
) -> frozenset[str]:
    for name, channel in channels.items():
        if channel.kind not in KINDS:
            raise ExpressionError(
                f'{label}: channel "{name}" has the kind "{channel.kind}"; '
                f"known: {', '.join(KINDS)}"
            )
    for name, value in parameters.items():
        if not isinstance(name, str) or not _NAME.match(name):
            raise ExpressionError(
                f"{label}: parameter {name!r} is not a plain name; use letters, digits and _"
            )
        if name in READ_ONLY_NAMES or name in channels:
            other = "a channel" if name in channels else "a name of the language"
            raise ExpressionError(
                f'{label}: parameter "{name}" is also {other}; rename the parameter'
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ExpressionError(f'{label}: parameter "{name}" = {value!r} is not a number')
    return frozenset(parameters)


Bounds = tuple[int, int]


class _Checker:
    """One walk over the tree: kinds, definite assignment, reads and writes."""

    def __init__(
        self,
        source: str,
        label: str,
        *,
        channels: Mapping[str, ChannelType],
        parameters: frozenset[str],
        tree: ast.Module,
    ) -> None:
        self.source = source
        self.label = label
        self.channels = channels
        self.parameters = parameters
        self.tree = tree
        self.kinds: dict[ast.AST, Kind] = {}
        self.bounds: dict[ast.expr, Bounds] = {}  # of int values, where they are known
        self.variables: dict[str, Kind] = {}
        self.first_assigned: dict[str, ast.expr] = {}
        self.assigned: set[str] = set()  # variables and channels that surely have a new value
        self.loops: dict[str, Bounds] = {}  # loop variables in scope
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.used: set[str] = set()

    def check(self) -> CheckedExpression:
        """Walk the whole snippet."""
        self._block(self.tree.body)
        self.reads |= self.writes - self.assigned  # written on some paths only: old values stay
        self._refuse_misspelt_channels()
        used_channels = (self.reads | self.writes) & (self.channels.keys() | {"id"})
        kinds = {n: self.channels[n].kind for n in used_channels if n != "id"}
        if "id" in used_channels:
            kinds["id"] = "int"
        return CheckedExpression(
            source=self.source,
            label=self.label,
            reads=frozenset(self.reads),
            writes=frozenset(self.writes),
            parameters=tuple(sorted(self.used & self.parameters)),
            channels=dict(sorted(kinds.items())),
            variables=dict(sorted(self.variables.items())),
            tree=self.tree,
            kinds=self.kinds,
        )

    # -- messages ----------------------------------------------------------------------------------

    def _refusal(
        self,
        node: ast.AST,
        message: str,
        *,
        show: bool = True,
        kind: type[ExpressionError] = ExpressionError,
    ) -> ExpressionError:
        line = getattr(node, "lineno", 1)
        text_before = self.source.splitlines()[line - 1 : line]
        offset = getattr(node, "col_offset", 0)  # in bytes
        before = text_before[0].encode()[:offset].decode(errors="replace") if text_before else ""
        shown = f'"{self._text(node)}": ' if show else ""
        place = f"line {line}, column {len(before) + 1}"
        return kind(f"{self.label}: {place}: {shown}{message}")

    def _text(self, node: ast.AST) -> str:
        text = " ".join((ast.get_source_segment(self.source, node) or "").split())
        return text if len(text) <= 60 else text[:57] + "..."

    def _refuse_misspelt_channels(self) -> None:
        writable = [name for name, channel in self.channels.items() if channel.writable]
        for name, node in self.first_assigned.items():
            near = difflib.get_close_matches(name, writable, n=1, cutoff=0.8)
            if name not in self.used and near:
                raise self._refusal(
                    node, f'variable "{name}" is never used; did you mean "{near[0]}"?', show=False
                )

    # -- statements --------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt]) -> int:
        """Check statements in order; return how many loop iterations they make."""
        return sum(self._statement(statement) for statement in statements)

    def _statement(self, node: ast.stmt) -> int:
        match node:
            case ast.Assign(targets=[target]):
                self._assign(target, node.value, self._kind(node.value))
            case ast.Assign():
                raise self._refusal(node, "assign one name at a time")
            case ast.AugAssign():
                # The tree marks the target as stored only; it is read first.
                old = self._kind(node.target)
                operands = (old, self._kind(node.value))
                self.kinds[node] = self._arithmetic(node, node.op, *operands, node.value)
                self._assign(node.target, node, self.kinds[node])
            case ast.If():
                return self._if(node)
            case ast.For():
                return self._for(node)
            case ast.Pass():
                pass
            case _:
                raise self._refused_construct(node)
        return 0

    def _refused_construct(self, node: ast.AST) -> ExpressionError:
        way_out = _REFUSED.get(
            type(node), f"{type(node).__name__} is not in the expression language"
        )
        return self._refusal(node, way_out)

    def _assign(self, target: ast.expr, value: ast.AST, kind: Kind) -> None:
        match target:
            case ast.Name(id=name):
                self._assign_name(target, name, value, kind)
            case ast.Subscript(value=ast.Name(id=name) as vector):
                self._kind(target)  # the vector must exist and the index be 0, 1 or 2
                if not _converts(kind, "float"):
                    raise self._refusal(value, f"a component is float, but this is {kind}")
                self._assign_name(vector, name, value, "vector")
            case _:
                raise self._refused_construct(target)

    def _assign_name(self, target: ast.expr, name: str, value: ast.AST, kind: Kind) -> None:
        if name in READ_ONLY_NAMES or name in self.parameters or name in self.loops:
            raise self._refusal(target, f'"{name}" is read-only; choose another name', show=False)
        self._check_name(target, name)
        if name in self.channels:
            channel = self.channels[name]
            if not channel.writable:
                raise self._refusal(target, f'channel "{name}" is read-only here', show=False)
            expected, what = channel.kind, f'channel "{name}"'
            self.writes.add(name)
        else:
            self.first_assigned.setdefault(name, target)
            expected = self.variables.setdefault(name, kind)
            line = self.first_assigned[name].lineno
            what = f'variable "{name}" (first assigned in line {line})'
        if not _converts(kind, expected):
            raise self._refusal(
                value, f"{what} is {expected}, but this is {kind}{_hint(kind, expected)}"
            )
        self.assigned.add(name)
        self.kinds[target] = expected

    def _if(self, node: ast.If) -> int:
        self._expect_bool(node.test)
        before = set(self.assigned)
        iterations = self._block(node.body)
        after_body, self.assigned = self.assigned, before
        iterations += self._block(node.orelse)
        self.assigned &= after_body
        return iterations

    def _for(self, node: ast.For) -> int:
        if not isinstance(node.target, ast.Name):
            raise self._refused_construct(node.target)
        name, target = node.target.id, node.target
        self._check_name(target, name)
        if node.orelse:
            raise self._refusal(node.orelse[0], "a loop has no else")
        taken = {*READ_ONLY_NAMES, *self.channels, *self.parameters, *self.variables, *self.loops}
        if name in taken:
            raise self._refusal(
                target, f'"{name}" is in use; choose another loop variable', show=False
            )
        steps = self._range(node.iter)
        before = set(self.assigned)
        if steps:
            self.loops[name] = (min(steps[0], steps[-1]), max(steps[0], steps[-1]))
        else:
            self.loops[name] = (steps.start, steps.start)
        inner = self._block(node.body)
        del self.loops[name]
        if not steps:
            self.assigned = before
        iterations = len(steps) * (1 + inner)
        if iterations > MAXIMUM_ITERATIONS:
            raise self._refusal(
                node.iter, f"{iterations} iterations in all are more than {MAXIMUM_ITERATIONS}"
            )
        return iterations

    def _range(self, node: ast.expr) -> range:
        match node:
            case ast.Call(func=ast.Name(id="range"), args=arguments, keywords=[]) if (
                1 <= len(arguments) <= 3
            ):
                pass
            case _:
                raise self._refusal(
                    node, "a loop runs over range(count), range(start, stop[, step]) only"
                )
        values = []
        for argument in arguments:
            self._kind(argument)
            low, high = self.bounds.get(argument, (0, 1))
            if low != high:
                raise self._refusal(argument, "the bounds of range are constant whole numbers")
            if abs(low) > MAXIMUM_RANGE_BOUND:
                raise self._refusal(argument, "the bounds of range are at most 2**31")
            values.append(low)
        if len(values) == 3 and values[2] == 0:
            raise self._refusal(arguments[2], "the step of range is not zero")
        return range(*values)

    # -- expressions -------------------------------------------------------------------------------

    def _kind(self, node: ast.expr) -> Kind:
        kind = self._find_kind(node)
        self.kinds[node] = kind
        return kind

    def _find_kind(self, node: ast.expr) -> Kind:
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BinOp():
                operands = self._kind(node.left), self._kind(node.right)
                kind = self._arithmetic(node, node.op, *operands, node.right)
                if kind == "int":
                    self._bound(node, self._interval(node))
                return kind
            case ast.BoolOp():
                for value in node.values:
                    self._expect_bool(value)
                return "bool"
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                self._expect_bool(node.test)
                return self._common(node, self._kind(node.body), self._kind(node.orelse))
            case ast.Subscript():
                return self._component(node)
            case ast.Call():
                return self._call(node)
            case _:
                raise self._refused_construct(node)

    def _constant(self, node: ast.Constant) -> Kind:
        value = node.value
        if isinstance(value, bool):
            return "bool"
        if isinstance(value, int):
            self._bound(node, (value, value))
            return "int"
        if isinstance(value, float):
            if value in (float("inf"), float("-inf")):
                raise self._refusal(node, "the number is too large for 64 bits")
            return "float"
        what = "text is" if isinstance(value, (str, bytes)) else f"{value!r} is"
        raise self._refusal(node, f"{what} not allowed; there are numbers, True and False")

    def _bound(self, node: ast.expr, bounds: Bounds | None) -> None:
        if bounds is None:
            return
        if max(abs(bounds[0]), abs(bounds[1])) <= LARGEST_INTEGER:
            self.bounds[node] = bounds
        elif bounds[0] == bounds[1]:
            raise self._refusal(node, "the number does not fit into 64 bits; write it as a float")

    def _check_name(self, node: ast.AST, name: str) -> None:
        if not _NAME.match(name):
            raise self._refusal(
                node,
                f'"{name}" is not a name of the language: use letters, digits and _',
                show=False,
            )
        if name in READ_ONLY_NAMES and name in self.channels and name != "id":
            raise self._refusal(
                node,
                f'"{name}" is a name of the language and a channel; rename the channel',
                show=False,
            )

    def _name(self, node: ast.Name, name: str) -> Kind:
        self._check_name(node, name)
        self.used.add(name)
        if name in self.loops:
            self.bounds[node] = self.loops[name]
            return "int"
        if name in READ_ONLY_NAMES:
            if name == "id":
                self.reads.add("id")
            return READ_ONLY_NAMES[name]
        if name in self.parameters:
            return "float"
        if name in self.channels:
            if name not in self.assigned:
                self.reads.add(name)
            return self.channels[name].kind
        if name in self.assigned:
            return self.variables[name]
        if name in self.variables:
            line = self.first_assigned[name].lineno
            raise self._refusal(
                node,
                f'variable "{name}" may have no value here: line {line} assigns it on some paths '
                "only; assign it before the if",
                show=False,
            )
        if name in FUNCTIONS:
            raise self._refusal(node, f"this is a function; call it: {FUNCTIONS[name].signature}")
        later = any(isinstance(n, ast.Name) and n.id == name for n in _targets(self.tree))
        known = {*READ_ONLY_NAMES, *self.parameters, *self.channels, *self.assigned, *self.loops}
        way_out = "; it is assigned further down" if later else did_you_mean(name, known)
        raise self._refusal(
            node, f'unknown name "{name}"{way_out}', show=False, kind=UnknownNameError
        )

    def _unary(self, node: ast.UnaryOp) -> Kind:
        kind = self._kind(node.operand)
        match node.op:
            case ast.Not():
                self._expect_bool(node.operand)
                return "bool"
            case ast.UAdd() | ast.USub():
                if kind == "bool":
                    raise self._refusal(node, "a bool has no sign; use float(...) or not")
                if node.operand in self.bounds:
                    low, high = self.bounds[node.operand]
                    negative = isinstance(node.op, ast.USub)
                    self._bound(node, (-high, -low) if negative else (low, high))
                return kind
            case _:
                raise self._refusal(node, "there are no operations on bits")

    def _arithmetic(
        self, node: ast.AST, op: ast.operator, left: Kind, right: Kind, exponent: ast.expr
    ) -> Kind:
        """Kind of `left op right`, by the rules of the language."""
        sign = _ARITHMETIC.get(type(op))
        if sign is None:
            raise self._refusal(node, "the operators are + - * / // % **")
        if "bool" in (left, right):
            raise self._refusal(
                node, f"{left} {sign} {right} has no meaning; use float(...), and, or"
            )
        if "vector" in (left, right):
            both = left == right == "vector"
            if (sign in "+-" and both) or sign == "*" or (sign == "/" and left == "vector"):
                return "vector"
            raise self._refusal(
                node,
                f"{left} {sign} {right} has no meaning; "
                "vectors know v + v, v - v, v * v, v * x, v / x",
            )
        if sign == "/" or "float" in (left, right):
            return "float"
        if sign == "**":
            low, high = self.bounds.get(exponent, (-1, -1))
            if low < 0 or low != high:
                return "float"  # as Python does for a negative exponent; otherwise unknown
            if high > MAXIMUM_POWER:
                raise self._refusal(
                    node, f"a power above {MAXIMUM_POWER} does not fit into 64 bits; use floats"
                )
        return "int"

    def _interval(self, node: ast.BinOp) -> Bounds | None:
        """Bounds of an int operation whose operands have known bounds."""
        left, right = self.bounds.get(node.left), self.bounds.get(node.right)
        if isinstance(node.op, ast.Mod):
            if right is None or right[0] <= 0:
                return None
            if left is None or left[0] != left[1] or right[0] != right[1]:
                return 0, right[1] - 1
            return left[0] % right[0], left[0] % right[0]
        if left is None or right is None:
            return None
        match node.op:
            case ast.Add():
                return left[0] + right[0], left[1] + right[1]
            case ast.Sub():
                return left[0] - right[1], left[1] - right[0]
            case ast.Mult():
                corners = [a * b for a in left for b in right]
                return min(corners), max(corners)
            case ast.FloorDiv() if right[0] > 0:
                corners = [a // b for a in left for b in right]
                return min(corners), max(corners)
            case ast.Pow() if left[0] == left[1]:
                return left[0] ** right[0], left[0] ** right[0]  # the exponent is at most 63
        return None

    def _compare(self, node: ast.Compare) -> Kind:
        kinds = [self._kind(operand) for operand in (node.left, *node.comparators)]
        for op, left, right in zip(node.ops, kinds, kinds[1:], strict=False):
            sign = _COMPARISONS.get(type(op))
            if sign is None:
                raise self._refusal(node, "the comparisons are < <= > >= == !=")
            if "vector" in (left, right):
                raise self._refusal(
                    node, "vectors cannot be compared; compare components or lengths"
                )
            if "bool" in (left, right) and (left != right or sign not in ("==", "!=")):
                raise self._refusal(node, f"{left} {sign} {right} cannot be compared")
        return "bool"

    def _expect_bool(self, node: ast.expr) -> None:
        kind = self._kind(node)
        if kind != "bool":
            way_out = "compare lengths" if kind == "vector" else "write x != 0"
            raise self._refusal(node, f"a condition is bool, but this is {kind}; {way_out}")

    def _common(self, node: ast.expr, left: Kind, right: Kind) -> Kind:
        if left == right:
            return left
        if {left, right} == {"int", "float"}:
            return "float"
        raise self._refusal(node, f"both sides need one kind, but they are {left} and {right}")

    def _component(self, node: ast.Subscript) -> Kind:
        if not isinstance(node.value, ast.Name) or self._kind(node.value) != "vector":
            raise self._refusal(node, "only a vector channel or variable has components")
        index = node.slice
        if isinstance(index, (ast.Slice, ast.Tuple)):
            raise self._refusal(node, "a component is one of [0], [1], [2]")
        kind = self._kind(index)
        low, high = self.bounds.get(index, (-1, -1))
        if kind != "int" or low < 0 or high > 2:
            raise self._refusal(
                node, "a component is [0], [1], [2], or a loop variable that stays within 0..2"
            )
        return "float"

    def _call(self, node: ast.Call) -> Kind:
        if not isinstance(node.func, ast.Name):
            raise self._refused_construct(node.func)
        function = FUNCTIONS.get(node.func.id)
        if function is None:
            if node.func.id == "range":
                raise self._refusal(node, "range stands only in for i in range(...)")
            name = node.func.id
            raise self._refusal(
                node, f'unknown function "{name}"{did_you_mean(name, FUNCTIONS)}', show=False
            )
        if node.keywords:
            raise self._refusal(node, f"arguments have no names here: {function.signature}")
        kinds = [self._kind(argument) for argument in node.args]
        wanted = len(function.arguments)
        if len(kinds) < wanted or (len(kinds) > wanted and not function.repeats):
            raise self._refusal(node, f"{len(kinds)} arguments, but it is {function.signature}")
        if function.name == "rand":
            self.reads.add("id")
        return self._call_kind(node, function, kinds)

    def _call_kind(self, node: ast.Call, function: Function, kinds: Sequence[Kind]) -> Kind:
        allowed: Mapping[str, tuple[Kind, ...]] = {
            "components": ("float", "int", "vector"),
            "numbers": ("float", "int"),
            "vectors": ("vector",),
            "integers": ("int",),
            "scalars": ("float", "int", "bool"),
        }
        for argument, kind in zip(node.args, kinds, strict=True):
            if kind not in allowed[function.takes]:
                wanted = " or ".join(allowed[function.takes])
                raise self._refusal(
                    argument, f"{function.signature} takes {wanted}, but this is {kind}"
                )
        if function.takes == "components" and "vector" in kinds:
            return "vector"
        if function.gives == "same":
            return "int" if all(kind == "int" for kind in kinds) else "float"
        return function.gives


def _converts(kind: Kind, expected: Kind) -> bool:
    return kind == expected or (kind == "int" and expected == "float")


def _hint(kind: Kind, expected: Kind) -> str:
    if "vector" in (kind, expected):
        return "; use vec3(x, y, z) or a component"
    if kind == "float" and expected == "int":
        return "; make the first value a float, or use int(...)"
    return f"; use {expected}(...)"


def _targets(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from node.targets
