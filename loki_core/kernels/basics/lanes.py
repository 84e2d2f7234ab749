"""Lanes: eight numbers that are computed as one, in the vector registers of the machine.

    x = lanes_at(xs, first)          eight neighbouring values of an array
    d = x - xs[j]                    arithmetic with lanes or with one number for all of them
    total = total + at_least(one - d * d, zero)
    store_lanes(sums, first, total)

What LLVM makes of a loop by itself depends on what it can prove; here the lanes are spelt out, and
a loop carries them in registers. They are float32 or float64, as the array is that they come from.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from loki_core.kernels.jit import LazyKernel, inlined

__all__ = [
    "LANES",
    "append_lanes",
    "at_least",
    "at_most",
    "bits_below",
    "lanes_at",
    "lanes_of",
    "lanes_where_below",
    "same_lanes",
    "square_root",
    "store_lanes",
    "store_lanes_of",
    "sum_of_lanes",
    "vectors_of_cluster",
]

LANES = 8


class _Primitive(LazyKernel):
    """An operation on lanes; `make` returns numba's intrinsic."""

    def __init__(self, function: Callable[..., Any], make: Callable[[], Any]) -> None:
        super().__init__(function, parallel=False, strict=False, cached=False)
        self._make = make

    def _make_dispatcher(self, **options: Any) -> Any:
        import numba

        config: Any = numba.config
        return self.function if config.DISABLE_JIT else self._make()


@cache
def _lanes_type() -> Any:
    """The numba type of lanes, with its arithmetic."""
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic, models, overload, register_model

    class Lanes(types.Type):
        def __init__(self, kind: Any) -> None:
            self.kind = kind
            super().__init__(name=f"Lanes({kind})")

    class _Model(models.PrimitiveModel):
        def __init__(self, manager: Any, front: Any) -> None:
            width = ir.FloatType() if front.kind == types.float32 else ir.DoubleType()
            super().__init__(manager, front, ir.VectorType(width, LANES))

    register_model(Lanes)(_Model)
    for symbol, instruction in (
        (operator.add, "fadd"),
        (operator.sub, "fsub"),
        (operator.mul, "fmul"),
        (operator.truediv, "fdiv"),
    ):
        _add_operator(Lanes, symbol, instruction, intrinsic, overload)
    return Lanes


def _add_operator(lanes: Any, symbol: Any, instruction: str, intrinsic: Any, overload: Any) -> None:
    """Let an operator take lanes on either side, and numbers on the other."""
    from numba.core import types

    def declare(_: Any, left: Any, right: Any) -> Any:
        kind = left if isinstance(left, lanes) else right

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values = [
                value if isinstance(given, lanes) else _spread(context, builder, value, given, kind)
                for value, given in zip(arguments, signature.args, strict=True)
            ]
            return getattr(builder, instruction)(*values)

        return kind(left, right), generate

    compute = intrinsic(declare)

    def operate(left: Any, right: Any) -> Any:
        found = [isinstance(one, lanes) for one in (left, right)]
        numbers = [isinstance(one, (lanes, types.Number)) for one in (left, right)]
        if not (any(found) and all(numbers)) or (all(found) and left != right):
            return None

        def both(left: Any, right: Any) -> Any:
            return compute(left, right)

        return both

    overload(symbol)(operate)


def _spread(context: Any, builder: Any, value: Any, given: Any, kind: Any) -> Any:
    """One number in all lanes."""
    from llvmlite import ir

    number = context.cast(builder, value, given, kind.kind)
    vector = context.get_value_type(kind)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def _vector_pointer(context: Any, builder: Any, array: Any, value: Any, index: Any) -> Any:
    """Where lanes lie in a one-dimensional array, as a pointer to them."""
    data = context.make_array(array)(context, builder, value).data
    vector = context.get_value_type(_lanes_type()(array.dtype))
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _make_lanes_at() -> Any:
    from numba.extending import intrinsic

    lanes = _lanes_type()

    def declare(_: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = _vector_pointer(context, builder, signature.args[0], *arguments)
            return builder.load(place, align=array.dtype.bitwidth // 8)

        return lanes(array.dtype)(array, index), generate

    return intrinsic(declare)


def _make_store_lanes() -> Any:
    from numba.core import types
    from numba.extending import intrinsic

    def declare(_: Any, array: Any, index: Any, values: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = _vector_pointer(context, builder, signature.args[0], *arguments[:2])
            builder.store(arguments[2], place, align=array.dtype.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(array, index, values), generate

    return intrinsic(declare)


def _make_lanes_of() -> Any:
    from llvmlite import ir
    from numba.extending import intrinsic

    lanes = _lanes_type()

    def declare(_: Any, array: Any, index: Any, stride: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value, place, step = arguments
            data = context.make_array(array)(context, builder, value).data
            vector = context.get_value_type(lanes(array.dtype))
            values: Any = ir.Constant(vector, ir.Undefined)
            for lane in range(LANES):
                loaded = builder.load(builder.gep(data, [place]))
                values = builder.insert_element(values, loaded, ir.IntType(32)(lane))
                place = builder.add(place, step)
            return values

        return lanes(array.dtype)(array, index, index), generate

    return intrinsic(declare)


def _make_store_lanes_of() -> Any:
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    def declare(_: Any, array: Any, index: Any, stride: Any, values: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value, place, step, given = arguments
            data = context.make_array(array)(context, builder, value).data
            for lane in range(LANES):
                number = builder.extract_element(given, ir.IntType(32)(lane))
                builder.store(number, builder.gep(data, [place]))
                place = builder.add(place, step)
            return context.get_dummy_value()

        return types.void(array, index, index, values), generate

    return intrinsic(declare)


def _make_bits_below() -> Any:
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    lanes = _lanes_type()

    def declare(_: Any, values: Any, limit: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            bound = arguments[1]
            if not isinstance(signature.args[1], lanes):
                bound = _spread(context, builder, bound, signature.args[1], values)
            below = builder.fcmp_ordered("<=", arguments[0], bound)
            return builder.zext(builder.bitcast(below, ir.IntType(LANES)), ir.IntType(64))

        return types.uint64(values, limit), generate

    return intrinsic(declare)


def _make_append_lanes() -> Any:
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    def declare(_: Any, array: Any, index: Any, start: Any, bits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value, place, start, bits = arguments
            word = ir.IntType(32)
            vector, mask = ir.VectorType(word, LANES), ir.VectorType(ir.IntType(1), LANES)
            undefined = ir.Constant(vector, ir.Undefined)
            number = builder.trunc(start, word)
            first = builder.insert_element(undefined, number, word(0))
            same = builder.shuffle_vector(first, undefined, ir.Constant(vector, [0] * LANES))
            numbers = builder.add(same, ir.Constant(vector, list(range(LANES))))
            chosen = builder.bitcast(builder.trunc(bits, ir.IntType(LANES)), mask)
            name = f"llvm.experimental.vector.compress.v{LANES}i32"
            compress = builder.module.globals.get(name) or ir.Function(
                builder.module, ir.FunctionType(vector, [vector, mask, vector]), name
            )
            packed = builder.call(compress, [numbers, chosen, undefined])
            data = context.make_array(array)(context, builder, value).data
            builder.store(
                packed,
                builder.bitcast(builder.gep(data, [place]), vector.as_pointer()),
                align=4,
            )
            return builder.ctpop(bits)

        return types.int64(array, types.int64, types.int64, types.uint64), generate

    return intrinsic(declare)


def _make_same_lanes() -> Any:
    from numba.extending import intrinsic

    lanes = _lanes_type()

    def declare(_: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _spread(context, builder, arguments[0], signature.args[0], signature.return_type)

        return lanes(value)(value), generate

    return intrinsic(declare)


def _make_square_root() -> Any:
    from llvmlite import ir
    from numba.extending import intrinsic

    def declare(_: Any, values: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = context.get_value_type(values)
            name = f"llvm.sqrt.v{LANES}f{values.kind.bitwidth}"
            function = builder.module.globals.get(name) or ir.Function(
                builder.module, ir.FunctionType(kind, [kind]), name
            )
            return builder.call(function, arguments)

        return values(values), generate

    return intrinsic(declare)


def _make_choice(relation: str) -> Callable[[], Any]:
    """The larger, or the smaller, of each lane and of a bound."""

    def make() -> Any:
        from numba.extending import intrinsic

        lanes = _lanes_type()

        def declare(_: Any, values: Any, bound: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                limit = arguments[1]
                if not isinstance(signature.args[1], lanes):
                    limit = _spread(context, builder, limit, signature.args[1], values)
                chosen = builder.fcmp_ordered(relation, arguments[0], limit)
                return builder.select(chosen, arguments[0], limit)

            return values(values, bound), generate

        return intrinsic(declare)

    return make


def _make_where_below() -> Any:
    from numba.extending import intrinsic

    lanes = _lanes_type()

    def declare(_: Any, values: Any, limit: Any, below: Any, otherwise: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = [
                value if isinstance(one, lanes) else _spread(context, builder, value, one, values)
                for value, one in zip(arguments, signature.args, strict=True)
            ]
            return builder.select(builder.fcmp_ordered("<", given[0], given[1]), *given[2:])

        return values(values, limit, below, otherwise), generate

    return intrinsic(declare)


def _make_sum_of_lanes() -> Any:
    from llvmlite import ir
    from numba.extending import intrinsic

    def declare(_: Any, values: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            # by halves, in an order that is always the same
            rest, width = arguments[0], LANES
            while width > 1:
                width //= 2
                mask = ir.VectorType(ir.IntType(32), width)
                low, high = list(range(width)), list(range(width, 2 * width))
                undefined = ir.Constant(rest.type, ir.Undefined)
                rest = builder.fadd(
                    builder.shuffle_vector(rest, undefined, ir.Constant(mask, low)),
                    builder.shuffle_vector(rest, undefined, ir.Constant(mask, high)),
                )
            return builder.extract_element(rest, ir.IntType(32)(0))

        return values.kind(values), generate

    return intrinsic(declare)


def _lanes_at(array: Any, index: Any) -> Any:
    """`array[index : index + 8]`; all of them must be there."""
    return array[index : index + LANES].copy()


def _store_lanes(array: Any, index: Any, values: Any) -> None:
    """Set `array[index : index + 8]`."""
    array[index : index + LANES] = values


def _lanes_of(array: Any, index: Any, stride: Any) -> Any:
    """`array[index : index + 8 * stride : stride]`."""
    return array[index : index + LANES * stride : stride].copy()


def _store_lanes_of(array: Any, index: Any, stride: Any, values: Any) -> None:
    """Set `array[index : index + 8 * stride : stride]`."""
    array[index : index + LANES * stride : stride] = values


def _bits_below(values: Any, limit: Any) -> Any:
    """A bit for each lane that is at most the limit, the first lane's lowest."""
    return np.uint64(sum(1 << lane for lane, value in enumerate(values) if value <= limit))


def _append_lanes(array: Any, index: Any, start: Any, bits: Any) -> Any:
    """Write the numbers start + lane of lanes whose bit is set; returns how many there are.

    Seven more numbers from `index` on may be overwritten with anything.
    """
    chosen = [start + lane for lane in range(LANES) if int(bits) >> lane & 1]
    array[index : index + len(chosen)] = chosen
    return len(chosen)


def _same_lanes(value: Any) -> Any:
    """One number in all lanes."""
    return np.full(LANES, value)


def _square_root(values: Any) -> Any:
    """Square root of each lane."""
    return np.sqrt(values)


def _at_least(values: Any, bound: Any) -> Any:
    """Each lane, or the bound where that is larger (or the lane is no number)."""
    return np.where(values > bound, values, bound)


def _at_most(values: Any, bound: Any) -> Any:
    """Each lane, or the bound where that is smaller (or the lane is no number)."""
    return np.where(values < bound, values, bound)


def _lanes_where_below(values: Any, limit: Any, below: Any, otherwise: Any) -> Any:
    """`below` in lanes whose value is below the limit, else `otherwise`."""
    return np.where(values < limit, below, otherwise)


def _sum_of_lanes(values: Any) -> Any:
    """Sum over the lanes, by halves."""
    while len(values) > 1:
        values = values[: len(values) // 2] + values[len(values) // 2 :]
    return values[0]


lanes_at = _Primitive(_lanes_at, _make_lanes_at)
store_lanes = _Primitive(_store_lanes, _make_store_lanes)
lanes_of = _Primitive(_lanes_of, _make_lanes_of)
store_lanes_of = _Primitive(_store_lanes_of, _make_store_lanes_of)
bits_below = _Primitive(_bits_below, _make_bits_below)
append_lanes = _Primitive(_append_lanes, _make_append_lanes)
same_lanes = _Primitive(_same_lanes, _make_same_lanes)
square_root = _Primitive(_square_root, _make_square_root)
at_least = _Primitive(_at_least, _make_choice(">"))
at_most = _Primitive(_at_most, _make_choice("<"))
lanes_where_below = _Primitive(_lanes_where_below, _make_where_below)
sum_of_lanes = _Primitive(_sum_of_lanes, _make_sum_of_lanes)


@inlined
def vectors_of_cluster(values, i):
    """The first three of four values [4 places] at eight places from `i` on, as lanes."""
    return (
        lanes_of(values, 4 * i, 4),
        lanes_of(values, 4 * i + 1, 4),
        lanes_of(values, 4 * i + 2, 4),
    )
