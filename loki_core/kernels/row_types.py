"""Rows as a type of numba: eight numbers that live in one vector register.

Imported when a kernel that uses `rows` compiles, never by a host that only declares. Operators work
lane by lane; a plain number beside a row stands for eight of it. Only "contract" of fast-math is
set, so that differences of equal numbers are zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.extending import intrinsic, lower_builtin, lower_cast, register_model
from numba.core.typing.templates import AbstractTemplate, infer_global, signature

LANES = 8
FLAGS = ("contract",)
COUNTER = ir.IntType(32)


class RowType(types.Type):
    """Eight numbers of one dtype."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Row({dtype})")


class MaskType(types.Type):
    """Eight truth values."""

    def __init__(self) -> None:
        super().__init__(name="RowMask")


MASK = MaskType()


@register_model(RowType)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        element = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(element, LANES))


@register_model(MaskType)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.VectorType(ir.IntType(1), LANES))


@lower_cast(types.Number, RowType)  # type: ignore[untyped-decorator]
def _repeat(context: Any, builder: Any, kind: Any, row: Any, value: Any) -> Any:
    value = context.cast(builder, value, kind, row.dtype)
    vector = context.get_value_type(row)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, COUNTER(0))
    everywhere = ir.Constant(ir.VectorType(COUNTER, LANES), [0] * LANES)
    return builder.shuffle_vector(single, single, everywhere)


def _declare_operator(sign: Any, makes_mask: bool, make: Callable[..., Any]) -> None:
    """Give rows, or a row and a number, a binary operator."""

    @infer_global(sign)
    class _Operator(AbstractTemplate):
        def generic(self, arguments: Any, keywords: Any) -> Any:
            rows = [one for one in arguments if isinstance(one, RowType)]
            if len(arguments) != 2 or not rows or (len(rows) == 2 and rows[0] != rows[1]):
                return None
            return signature(MASK if makes_mask else rows[0], rows[0], rows[0])

    @lower_builtin(sign, RowType, RowType)  # type: ignore[untyped-decorator]
    def _lower(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return make(builder, *arguments)


_declare_operator(operator.add, False, lambda b, x, y: b.fadd(x, y, flags=FLAGS))
_declare_operator(operator.sub, False, lambda b, x, y: b.fsub(x, y, flags=FLAGS))
_declare_operator(operator.mul, False, lambda b, x, y: b.fmul(x, y, flags=FLAGS))
_declare_operator(operator.truediv, False, lambda b, x, y: b.fdiv(x, y, flags=FLAGS))
for _sign, _word in (
    (operator.lt, "<"),
    (operator.gt, ">"),
    (operator.le, "<="),
    (operator.ge, ">="),
    (operator.eq, "=="),
):
    _declare_operator(_sign, True, lambda b, x, y, word=_word: b.fcmp_ordered(word, x, y))


@infer_global(operator.and_)
class _And(AbstractTemplate):
    def generic(self, arguments: Any, keywords: Any) -> Any:
        return signature(MASK, MASK, MASK) if tuple(arguments) == (MASK, MASK) else None


@lower_builtin(operator.and_, MaskType, MaskType)  # type: ignore[untyped-decorator]
def _both(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
    return builder.and_(*arguments)


def _place(context: Any, builder: Any, kind: Any, array: Any, index_kind: Any, index: Any) -> Any:
    """Pointer to eight numbers of a contiguous array."""
    data = context.make_array(kind)(context, builder, array).data
    index = context.cast(builder, index, index_kind, types.intp)
    vector = ir.VectorType(context.get_value_type(kind.dtype), LANES)
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@intrinsic
def load(typing: Any, values: Any, at: Any) -> Any:
    """Eight numbers from values[at] on."""

    def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        place = _place(context, builder, values, arguments[0], at, arguments[1])
        return builder.load(place, align=values.dtype.bitwidth // 8)

    return RowType(values.dtype)(values, at), make


@intrinsic
def store(typing: Any, values: Any, at: Any, row: Any) -> Any:
    """Write eight numbers from values[at] on."""

    def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        place = _place(context, builder, values, arguments[0], at, arguments[1])
        value = arguments[2]
        if isinstance(values.dtype, types.Integer):
            value = builder.fptosi(value, ir.VectorType(COUNTER, LANES))
            narrow = ir.VectorType(context.get_value_type(values.dtype), LANES)
            value = builder.trunc(value, narrow)
        builder.store(value, place, align=values.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(values, at, row), make


@intrinsic
def put(typing: Any, row: Any, number: Any, value: Any) -> Any:
    """The row with another number in one lane."""

    def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        index = context.cast(builder, arguments[1], number, types.intp)
        return builder.insert_element(arguments[0], arguments[2], index)

    return row(row, number, row.dtype), make


@intrinsic
def repeated(typing: Any, value: Any) -> Any:
    """A row of eight times the same number."""
    row = RowType(value)
    return row(row), lambda context, builder, kinds, arguments: arguments[0]


@intrinsic(prefer_literal=True)
def joined(typing: Any, row: Any, other: Any, count: Any) -> Any:
    """The last `count` numbers of a row, then the first ones of another; `count` is a constant."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    order = [LANES - count.literal_value + number for number in range(LANES)]

    def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        mask = ir.Constant(ir.VectorType(COUNTER, LANES), order)
        return builder.shuffle_vector(arguments[0], arguments[1], mask)

    return row(row, other, count), make


@intrinsic
def lane(typing: Any, row: Any, number: Any) -> Any:
    """One number of a row."""

    def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        index = context.cast(builder, arguments[1], number, types.intp)
        return builder.extract_element(arguments[0], index)

    return row.dtype(row, number), make


@intrinsic
def numbers(typing: Any, row: Any, like: Any) -> Any:
    """A row, of small whole numbers or of others, as a row of the type of `like`."""
    target = RowType(like)

    def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        kind, value, source = context.get_value_type(target), arguments[0], row.dtype
        if source in types.integer_domain:
            extend = builder.sext if source.signed else builder.zext
            return builder.sitofp(extend(value, ir.VectorType(COUNTER, LANES)), kind)
        if source.bitwidth == like.bitwidth:
            return value
        wider = source.bitwidth < like.bitwidth
        return builder.fpext(value, kind) if wider else builder.fptrunc(value, kind)

    return target(row, like), make


@intrinsic
def total(typing: Any, row: Any) -> Any:
    """Sum of the eight numbers, in one order always."""

    def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        value, step = arguments[0], LANES // 2
        while step:
            order = [number ^ step for number in range(LANES)]
            swap = ir.Constant(ir.VectorType(COUNTER, LANES), order)
            other = builder.shuffle_vector(value, value, swap)
            value = builder.fadd(value, other, flags=FLAGS)
            step //= 2
        return builder.extract_element(value, COUNTER(0))

    return row.dtype(row), make


@intrinsic
def cut(typing: Any, row: Any) -> Any:
    """Numbers without their fractions."""

    def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        whole = builder.fptosi(arguments[0], ir.VectorType(COUNTER, LANES))
        return builder.sitofp(whole, context.get_value_type(row))

    return row(row), make


@intrinsic
def choose(typing: Any, mask: Any, row: Any, other: Any) -> Any:
    """`row` where the mask is true, else `other`; one of the two may be a number."""
    kind = row if isinstance(row, RowType) else other
    return kind(mask, kind, kind), lambda c, b, s, arguments: b.select(*arguments)


def _extreme(word: str) -> Any:
    """Make the function that keeps a where b is not a number, and the better one otherwise."""

    @intrinsic
    def pick(typing: Any, a: Any, b: Any) -> Any:
        kind = a if isinstance(a, RowType) else b

        def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
            return _better(builder, word, *arguments)

        return kind(kind, kind), make

    return pick


def _better(builder: Any, word: str, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(word, b, a), b, a)


def _reduction(word: str) -> Any:
    """Make the function that returns the number which wins against all others of a row."""

    @intrinsic
    def reduce(typing: Any, row: Any) -> Any:
        def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
            value, step = arguments[0], LANES // 2
            while step:
                order = [number ^ step for number in range(LANES)]
                swap = ir.Constant(ir.VectorType(COUNTER, LANES), order)
                value = _better(builder, word, value, builder.shuffle_vector(value, value, swap))
                step //= 2
            return builder.extract_element(value, COUNTER(0))

        return row.dtype(row), make

    return reduce


larger, smaller = _extreme(">"), _extreme("<")
greatest, least = _reduction(">"), _reduction("<")


@intrinsic
def bits(typing: Any, mask: Any) -> Any:
    """The mask as a whole number, lane 0 in the lowest bit."""

    def make(context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
        return builder.zext(builder.bitcast(arguments[0], ir.IntType(8)), COUNTER)

    return types.uint32(mask), make
