"""Prefetch: ask for memory ahead of time, where a kernel knows what is next."""

from __future__ import annotations

from typing import Any

from loki_core.kernels.jit import LazyKernel


class _Prefetch(LazyKernel):
    """The machine's instruction that brings `array[index]` into the cache and waits for nothing."""

    def _make_dispatcher(self, **options: Any) -> Any:
        import numba

        config: Any = numba.config
        if config.DISABLE_JIT:
            return self.function
        from llvmlite import ir
        from numba.core import types
        from numba.extending import intrinsic

        def declare(_: Any, array: Any, index: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
                byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
                kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
                name = "llvm.prefetch.p0"
                function = builder.module.globals.get(name) or ir.Function(
                    builder.module, kind, name
                )
                place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
                builder.call(function, [place, word(0), word(3), word(1)])  # read, keep, data
                return context.get_dummy_value()

            return types.void(array, index), generate

        return intrinsic(declare)


def _no_prefetch(array: Any, index: Any) -> None:
    """Do nothing, where kernels run as plain Python."""


prefetch = _Prefetch(_no_prefetch, parallel=False, strict=False)
