"""Rows as a type of numba: eight numbers that live in one vector register.

All of it is defined when the first kernel that uses `rows` compiles, because a host that only
declares has no numba. Operators work lane by lane; a plain number beside a row stands for eight of
it. Only "contract" of fast-math is set, so that differences of equal numbers are zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

LANES = 8
FLAGS = ("contract",)
COMPARISONS = (
    (operator.lt, "<"),
    (operator.gt, ">"),
    (operator.le, "<="),
    (operator.ge, ">="),
    (operator.eq, "=="),
)


@cache
def row_functions() -> dict[str, Any]:
    """Functions on rows by name, for numba."""
    _define_operators()
    return {**_memory_functions(), **_lane_functions(), **_choices(), **_reductions()}


@cache
def _kinds() -> tuple[Any, Any]:
    """The type of rows, to be called with a type of numbers, and that of masks."""
    from llvmlite import ir
    from numba.core import types
    from numba.core.datamodel import models
    from numba.core.extending import lower_cast, register_model

    class RowType(types.Type):
        """Eight numbers of one dtype."""

        def __init__(self, dtype: Any) -> None:
            self.dtype = dtype
            super().__init__(name=f"Row({dtype})")

    class MaskType(types.Type):
        """Eight truth values."""

        def __init__(self) -> None:
            super().__init__(name="RowMask")

    @register_model(RowType)
    class RowModel(models.PrimitiveModel):
        def __init__(self, manager: Any, kind: Any) -> None:
            element = manager.lookup(kind.dtype).get_value_type()
            super().__init__(manager, kind, ir.VectorType(element, LANES))

    @register_model(MaskType)
    class MaskModel(models.PrimitiveModel):
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, ir.VectorType(ir.IntType(1), LANES))

    @lower_cast(types.Number, RowType)  # type: ignore[untyped-decorator]
    def repeat(context: Any, builder: Any, kind: Any, row: Any, value: Any) -> Any:
        value = context.cast(builder, value, kind, row.dtype)
        vector = context.get_value_type(row)
        single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _counter(0))
        return builder.shuffle_vector(single, single, _order([0] * LANES))

    return RowType, MaskType()


def _counter(value: int) -> Any:
    from llvmlite import ir

    return ir.Constant(ir.IntType(32), value)


def _order(numbers: list[int]) -> Any:
    """Lanes of two rows that a shuffle takes."""
    from llvmlite import ir

    return ir.Constant(ir.VectorType(ir.IntType(32), LANES), numbers)


def _wide() -> Any:
    """Eight whole numbers of 32 bits, between floats and shorter ones."""
    from llvmlite import ir

    return ir.VectorType(ir.IntType(32), LANES)


# -- operators ---------------------------------------------------------------------------------


def _define_operators() -> None:
    _define_binary(operator.add, False, lambda b, x, y: b.fadd(x, y, flags=FLAGS))
    _define_binary(operator.sub, False, lambda b, x, y: b.fsub(x, y, flags=FLAGS))
    _define_binary(operator.mul, False, lambda b, x, y: b.fmul(x, y, flags=FLAGS))
    _define_binary(operator.truediv, False, lambda b, x, y: b.fdiv(x, y, flags=FLAGS))
    for sign, word in COMPARISONS:
        _define_binary(sign, True, lambda b, x, y, word=word: b.fcmp_ordered(word, x, y))
    _define_and()


def _define_binary(sign: Any, makes_mask: bool, make: Callable[..., Any]) -> None:
    """Give rows, or a row and a number, an operator."""
    from numba.core.extending import lower_builtin
    from numba.core.typing.templates import AbstractTemplate, infer_global, signature

    row_type, mask = _kinds()

    @infer_global(sign)
    class Operator(AbstractTemplate):
        def generic(self, arguments: Any, keywords: Any) -> Any:
            rows = [one for one in arguments if isinstance(one, row_type)]
            if len(arguments) != 2 or not rows or (len(rows) == 2 and rows[0] != rows[1]):
                return None
            return signature(mask if makes_mask else rows[0], rows[0], rows[0])

    @lower_builtin(sign, row_type, row_type)  # type: ignore[untyped-decorator]
    def lower(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return make(builder, *arguments)


def _define_and() -> None:
    from numba.core.extending import lower_builtin
    from numba.core.typing.templates import AbstractTemplate, infer_global, signature

    _, mask = _kinds()

    @infer_global(operator.and_)
    class And(AbstractTemplate):
        def generic(self, arguments: Any, keywords: Any) -> Any:
            return signature(mask, mask, mask) if tuple(arguments) == (mask, mask) else None

    @lower_builtin(operator.and_, type(mask), type(mask))  # type: ignore[untyped-decorator]
    def lower(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.and_(*arguments)


# -- functions; what they do is said in `rows` -------------------------------------------------


def _memory_functions() -> dict[str, Any]:
    from llvmlite import ir
    from numba.core import types
    from numba.core.extending import intrinsic

    row_type, _ = _kinds()

    def place(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        """Pointer to eight numbers of a contiguous array."""
        values, at = kinds.args[:2]
        data = context.make_array(values)(context, builder, arguments[0]).data
        index = context.cast(builder, arguments[1], at, types.intp)
        vector = ir.VectorType(context.get_value_type(values.dtype), LANES)
        return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

    @intrinsic
    def load(typing: Any, values: Any, at: Any) -> Any:
        def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
            pointer = place(context, builder, kinds, arguments)
            return builder.load(pointer, align=values.dtype.bitwidth // 8)

        return row_type(values.dtype)(values, at), make

    @intrinsic
    def store(typing: Any, values: Any, at: Any, row: Any) -> Any:
        def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
            value = arguments[2]
            if isinstance(values.dtype, types.Integer):
                narrow = ir.VectorType(context.get_value_type(values.dtype), LANES)
                value = builder.trunc(builder.fptosi(value, _wide()), narrow)
            pointer = place(context, builder, kinds, arguments)
            builder.store(value, pointer, align=values.dtype.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(values, at, row), make

    return {"load": load, "store": store}


def _lane_functions() -> dict[str, Any]:
    from numba.core import types
    from numba.core.extending import intrinsic

    row_type, _ = _kinds()

    @intrinsic
    def put(typing: Any, row: Any, number: Any, value: Any) -> Any:
        def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
            index = context.cast(builder, arguments[1], number, types.intp)
            return builder.insert_element(arguments[0], arguments[2], index)

        return row(row, number, row.dtype), make

    @intrinsic
    def lane(typing: Any, row: Any, number: Any) -> Any:
        def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
            index = context.cast(builder, arguments[1], number, types.intp)
            return builder.extract_element(arguments[0], index)

        return row.dtype(row, number), make

    @intrinsic
    def repeated(typing: Any, value: Any) -> Any:
        row = row_type(value)
        return row(row), lambda context, builder, kinds, arguments: arguments[0]

    @intrinsic(prefer_literal=True)
    def joined(typing: Any, row: Any, other: Any, count: Any) -> Any:
        if not isinstance(count, types.IntegerLiteral):
            return None
        order = _order([LANES - count.literal_value + number for number in range(LANES)])
        return row(row, other, count), lambda c, builder, k, arguments: builder.shuffle_vector(
            arguments[0], arguments[1], order
        )

    @intrinsic
    def numbers(typing: Any, row: Any, like: Any) -> Any:
        target, source = row_type(like), row.dtype

        def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
            kind, value = context.get_value_type(target), arguments[0]
            if source in types.integer_domain:
                extend = builder.sext if source.signed else builder.zext
                return builder.sitofp(extend(value, _wide()), kind)
            if source.bitwidth == like.bitwidth:
                return value
            wider = source.bitwidth < like.bitwidth
            return builder.fpext(value, kind) if wider else builder.fptrunc(value, kind)

        return target(row, like), make

    return {"put": put, "lane": lane, "repeated": repeated, "joined": joined, "numbers": numbers}


def _choices() -> dict[str, Any]:
    from llvmlite import ir
    from numba.core import types
    from numba.core.extending import intrinsic

    row_type, _ = _kinds()

    @intrinsic
    def cut(typing: Any, row: Any) -> Any:
        def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
            return builder.sitofp(
                builder.fptosi(arguments[0], _wide()), context.get_value_type(row)
            )  # fmt: skip

        return row(row), make

    @intrinsic
    def choose(typing: Any, mask: Any, row: Any, other: Any) -> Any:
        kind = row if isinstance(row, row_type) else other
        return kind(mask, kind, kind), lambda c, b, s, arguments: b.select(*arguments)

    @intrinsic
    def bits(typing: Any, mask: Any) -> Any:
        def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
            return builder.zext(builder.bitcast(arguments[0], ir.IntType(8)), ir.IntType(32))

        return types.uint32(mask), make

    def extreme(word: str) -> Any:
        @intrinsic
        def pick(typing: Any, a: Any, b: Any) -> Any:
            kind = a if isinstance(a, row_type) else b
            return kind(kind, kind), lambda c, builder, s, pair: _better(builder, word, *pair)

        return pick

    return {
        "cut": cut,
        "choose": choose,
        "bits": bits,
        "larger": extreme(">"),
        "smaller": extreme("<"),
    }


def _better(builder: Any, word: str, a: Any, b: Any) -> Any:
    """A where b is not a number, the better one otherwise."""
    return builder.select(builder.fcmp_ordered(word, b, a), b, a)


def _reductions() -> dict[str, Any]:
    from numba.core.extending import intrinsic

    def reduction(join: Callable[..., Any]) -> Any:
        @intrinsic
        def reduce(typing: Any, row: Any) -> Any:
            def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
                value, step = arguments[0], LANES // 2
                while step:
                    swap = _order([number ^ step for number in range(LANES)])
                    value = join(builder, value, builder.shuffle_vector(value, value, swap))
                    step //= 2
                return builder.extract_element(value, _counter(0))

            return row.dtype(row), make

        return reduce

    return {
        "greatest": reduction(lambda builder, a, b: _better(builder, ">", a, b)),
        "least": reduction(lambda builder, a, b: _better(builder, "<", a, b)),
        "total": reduction(lambda builder, a, b: builder.fadd(a, b, flags=FLAGS)),
    }
