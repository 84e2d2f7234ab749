"""Eight trilinear samples at once, for a row of traces that stay close together.

Neighbouring voxels move nearly alike, so the ends of eight traces in a row, less their starts,
mostly lie within a voxel of each other. Then one common voxel m per lane has all stencils around
it: with d = place - m in [-1, 1), a linear sample along an axis is

    v[m] + max(d, 0) (v[m+1] - v[m]) + max(-d, 0) (v[m-1] - v[m])

and all loads are of eight voxels in a row. The machine has no quick way to load eight voxels from
eight places, which is why this is several times as fast as one sample after the other. LLVM makes
no such vectors by itself, since it cannot know that arrays do not overlap, so the functions are
written as vector code here. Without compilation they run as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loki_core.kernels.jit import LazyKernel

#: Samples taken together.
LANES = 8


class _Inlined(LazyKernel):
    """A device function whose code is always put where it is called.

    An array travels as seven numbers: a call with several of them costs more than a row's work.
    """

    def _make_dispatcher(self) -> Any:
        dispatcher = super()._make_dispatcher()
        if hasattr(dispatcher, "targetoptions"):  # not where kernels run as plain Python
            dispatcher.targetoptions["forceinline"] = True
        return dispatcher


def inlined(function: Callable[..., Any]) -> LazyKernel:
    """Compile a part of a kernel that works on one row and is called for each."""
    return _Inlined(function, parallel=False, strict=False)


class _RowFunction(LazyKernel):
    """A function on rows that writes its own vector code."""

    def __init__(self, function: Callable[..., Any], generate: Callable[..., Any]) -> None:
        super().__init__(function, parallel=False, strict=False)
        self.generate = generate

    def _make_dispatcher(self) -> Any:
        import numba

        config: Any = numba.config
        if config.DISABLE_JIT:
            return self.function
        from numba.core import types
        from numba.extending import intrinsic

        generate = self.generate

        def declare(
            _: Any, array: Any, place: Any, offsets: Any, rows: Any, at: Any, out: Any
        ) -> Any:
            signature = types.void(array, place, offsets, rows, at, out)

            def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                generate(_Rows(context, builder, signature, arguments))
                return context.get_dummy_value()

            return signature, make

        return intrinsic(declare)


class _Rows:
    """Vector code under construction: loads, stores and arithmetic of eight lanes."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        from llvmlite import ir

        self.ir, self.builder = ir, builder
        kinds = signature.args
        element = context.get_value_type(kinds[0].dtype)
        self.width = 4 if str(element) == "float" else 8
        self.element, self.vector = element, ir.VectorType(element, LANES)
        self.block = context.make_array(kinds[0])(context, builder, arguments[0]).data
        parts = [builder.extract_value(arguments[1], n) for n in range(4)]
        self.first, self.strides, self.to = parts[0], (parts[1], parts[2]), parts[3]
        self.offsets = [builder.extract_value(arguments[2], n) for n in range(3)]
        self.places = context.make_array(kinds[3])(context, builder, arguments[3]).data
        self.at = arguments[4]
        self.out = context.make_array(kinds[5])(context, builder, arguments[5]).data
        self.zero = ir.Constant(self.vector, [ir.Constant(element, 0.0)] * LANES)

    def load(self, data: Any, index: Any) -> Any:
        place = self.builder.gep(data, [index])
        place = self.builder.bitcast(place, self.vector.as_pointer())
        return self.builder.load(place, align=self.width)

    def store(self, value: Any, row: int) -> None:
        """Store to a row of `out`, which has eight numbers a row."""
        builder = self.builder
        index = builder.add(self.to, self.ir.Constant(self.ir.IntType(64), row * LANES))
        place = builder.bitcast(builder.gep(self.out, [index]), self.vector.as_pointer())
        builder.store(value, place, align=self.width)

    def displacement(self, axis: int) -> Any:
        """Places along an axis less the common voxel's; lanes count along z."""
        builder, ir = self.builder, self.ir
        length = ir.Constant(ir.IntType(64), axis * LANES)
        place = self.load(self.places, builder.add(self.at, length))
        single = builder.insert_element(
            ir.Constant(self.vector, ir.Undefined),
            self.offsets[axis],
            ir.Constant(ir.IntType(32), 0),
        )
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        origin = builder.shuffle_vector(single, single, mask)
        if axis == 2:
            lanes = [ir.Constant(self.element, float(lane)) for lane in range(LANES)]
            place = builder.fsub(place, ir.Constant(self.vector, lanes))
        return builder.fsub(place, origin)

    def triples(self) -> Any:
        """Nine triples of rows before, at and after the common voxel along z."""
        builder, ir = self.builder, self.ir
        one = ir.Constant(ir.IntType(64), 1)
        stride_x, stride_y = self.strides
        planes = [builder.sub(self.first, stride_x), self.first, builder.add(self.first, stride_x)]
        for plane in planes:
            rows = [builder.sub(plane, stride_y), plane, builder.add(plane, stride_y)]
            yield [
                [
                    self.load(self.block, index)
                    for index in (builder.sub(row, one), row, builder.add(row, one))
                ]
                for row in rows
            ]

    def blend(self, triple: Any, up: Any, down: Any) -> Any:
        """Linear value, from the parts of the way up and down."""
        builder, flags = self.builder, ("contract",)
        before, here, after = triple
        rise = builder.fmul(up, builder.fsub(after, here, flags), flags)
        fall = builder.fmul(down, builder.fsub(before, here, flags), flags)
        return builder.fadd(builder.fadd(here, rise, flags), fall, flags)

    def reduce(self, value: Any, choose: Callable[..., Any]) -> Any:
        """The value that wins against all lanes, in all lanes."""
        ir, step = self.ir, LANES // 2
        while step:
            lanes = [lane ^ step for lane in range(LANES)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes)
            value = choose(value, self.builder.shuffle_vector(value, value, mask))
            step //= 2
        return value

    def larger(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered(">", b, a), b, a)

    def smaller(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered("<", b, a), b, a)


def _generate_sample(rows: _Rows) -> None:
    ways = []
    for axis in range(3):
        d = rows.displacement(axis)
        up, negative = rows.larger(rows.zero, d), rows.builder.fsub(rows.zero, d)
        ways.append((up, rows.larger(rows.zero, negative)))
    planes = []
    for plane in rows.triples():
        lines = [rows.blend(line, *ways[2]) for line in plane]
        planes.append(rows.blend(lines, *ways[1]))
    rows.store(rows.blend(planes, *ways[0]), 0)


def _generate_bounds(rows: _Rows) -> None:
    below = [
        rows.builder.fcmp_ordered("<", rows.displacement(axis), rows.zero) for axis in range(3)
    ]
    planes = []
    for plane in rows.triples():
        lines = [_extremes(rows, [(v, v) for v in line], below[2]) for line in plane]
        planes.append(_extremes(rows, lines, below[1]))
    low, high = _extremes(rows, planes, below[0])
    rows.store(low, 0)
    rows.store(high, 1)


def _generate_spread(rows: _Rows) -> None:
    for axis in range(3):
        d = rows.displacement(axis)
        rows.store(rows.reduce(d, rows.smaller), 2 * axis)
        rows.store(rows.reduce(d, rows.larger), 2 * axis + 1)


def _extremes(rows: _Rows, triple: Any, below: Any) -> tuple[Any, Any]:
    """Least and greatest of the middle and the one neighbour that belongs to the stencil."""
    before, here, after = triple
    select = rows.builder.select
    low = rows.smaller(here[0], select(below, before[0], after[0]))
    high = rows.larger(here[1], select(below, before[1], after[1]))
    return low, high


def _sample_eight(block: Any, place: Any, offsets: Any, places: Any, at: Any, out: Any) -> None:
    """Fill eight places of `out` with samples around a row of voxels.

    Args: block, flat; place: (first voxel, stride along x, along y, where to write), unsigned;
    offsets: (x, y, z) of the first voxel in the numbers of `places`, which holds eight x, eight y,
    eight z from `at` on.
    """
    for lane in range(LANES):
        cube, ways = _cube(block, place, offsets, places, at, lane)
        for way in ways:
            up, down = max(way, 0), max(-way, 0)
            cube = cube[1] + up * (cube[2] - cube[1]) + down * (cube[0] - cube[1])
        out[int(place[3]) + lane] = cube


def _bounds_eight(block: Any, place: Any, offsets: Any, places: Any, at: Any, out: Any) -> None:
    """Fill eight places with the least, and eight more with the greatest voxels of stencils."""
    for lane in range(LANES):
        cube, ways = _cube(block, place, offsets, places, at, lane)
        for way in ways:
            cube = cube[[0, 1]] if way < 0 else cube[[1, 2]]
            cube = np.moveaxis(cube, 0, -1)
        to = int(place[3]) + lane
        out[to], out[to + LANES] = cube.min(), cube.max()


def _spread_eight(block: Any, place: Any, offsets: Any, places: Any, at: Any, out: Any) -> None:
    """Fill eight places each with the least and the greatest displacement, for three axes."""
    for axis in range(3):
        first = int(at) + axis * LANES
        ways = places[first : first + LANES] - offsets[axis]
        if axis == 2:
            ways = ways - np.arange(LANES, dtype=places.dtype)
        to = int(place[3]) + 2 * axis * LANES
        out[to : to + LANES], out[to + LANES : to + 2 * LANES] = ways.min(), ways.max()


def _cube(block: Any, place: Any, offsets: Any, places: Any, at: Any, lane: int) -> Any:
    """The 27 voxels around a lane's common voxel, and the displacement from it."""
    first, stride_x, stride_y = (int(n) for n in place[:3])
    near = np.arange(-1, 2)
    index = first + lane + near[:, None, None] * stride_x + near[None, :, None] * stride_y + near
    ways = [places[int(at) + axis * LANES + lane] - offsets[axis] for axis in range(3)]
    ways[2] = ways[2] - block.dtype.type(lane)
    return block[index], ways


sample_eight = _RowFunction(_sample_eight, _generate_sample)
bounds_eight = _RowFunction(_bounds_eight, _generate_bounds)
spread_eight = _RowFunction(_spread_eight, _generate_spread)
