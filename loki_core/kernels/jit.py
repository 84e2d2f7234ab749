"""The five kernel decorators, and the only place where numba's flags are set.

    @kernel            a serial loop
    @parallel_kernel   a loop over many items that pays for threads
    @strict_kernel     no fast-math: reductions, compensated sums, residuals
    @device            a formula, called from kernels
    @inlined           one that is called in inner loops: its code is put where it is called

A decorated function is a small object that imports numba and compiles at its first call, so that a
host application can import every declaration without numba. At that moment the `@device` objects
and the `prange` that the function names are replaced by numba's own, recursively. All `@device`
functions live in a folder `kernels`, because a kernel's place on disk is a digest of its file and
of all it imports from such folders (`kernel_cache.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.metadata
import os
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from loki_core.kernels.kernel_cache import kept_by_content

FLAGS: dict[str, Any] = {
    "cache": os.environ.get("LOKI_KERNEL_CACHE", "1") != "0",
    "error_model": "numpy",  # 1/0 gives inf, as in numpy; the NaN check finds it
    "boundscheck": os.environ.get("LOKI_BOUNDS_CHECK", "0") == "1",
}
FAST_MATH = {"contract", "reassoc", "nsz", "arcp", "afn"}  # all but nnan, ninf: isnan must work

prange = range  # replaced by numba.prange when a kernel compiles

_kernels: list[LazyKernel] = []


class LazyKernel:
    """A function that becomes a numba dispatcher at its first call.

    Attributes:
        straight_line: Whether LLVM makes vectors of straight-line code in it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        parallel: bool,
        strict: bool,
        inline: bool = False,
        cached: bool = True,
    ) -> None:
        self.function = function
        self.inline = inline
        self.cached = cached
        self.straight_line = False
        self.parallel = parallel
        self.strict = strict
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self._dispatcher: Any = None
        self._embedded: Any = None
        _kernels.append(self)

    def __call__(self, *arguments: Any) -> Any:
        if self._dispatcher is None:
            self._dispatcher = self._make_dispatcher()
        if self.straight_line:
            with _straight_line_vectors():
                return self._dispatcher(*arguments)
        return self._dispatcher(*arguments)

    @property
    def dispatcher(self) -> Any:
        """The numba dispatcher, made on demand."""
        if self._dispatcher is None:
            self._dispatcher = self._make_dispatcher()
        return self._dispatcher

    def compile(self, signature: tuple[Any, ...]) -> None:
        """Compile for arguments of these numba types, and keep the result on the disk."""
        with _straight_line_vectors() if self.straight_line else contextlib.nullcontext():
            self.dispatcher.compile(signature)

    @property
    def embedded(self) -> Any:
        """The dispatcher for kernels that call this one.

        A formula is part of those: without the wrappers that Python and C would call, it compiles
        a fifth sooner.
        """
        if self.cached:
            return self.dispatcher
        if self._embedded is None:
            self._embedded = self._make_dispatcher(no_cpython_wrapper=True)
        return self._embedded

    def _make_dispatcher(self, **options: Any) -> Any:
        numba = _numba()
        source = self.function
        namespace = dict(source.__globals__)
        for name in _names_used(source.__code__):
            value = namespace.get(name)
            if isinstance(value, LazyKernel):
                namespace[name] = value.embedded
            elif value is prange:
                namespace[name] = numba.prange
        function = types.FunctionType(
            source.__code__, namespace, source.__name__, source.__defaults__, source.__closure__
        )
        function.__qualname__ = source.__qualname__
        function.__module__ = source.__module__
        function.__doc__ = source.__doc__
        fastmath = False if self.strict else FAST_MATH
        with kept_by_content(numba.config):
            return numba.njit(
                function,
                parallel=self.parallel,
                fastmath=fastmath,
                forceinline=self.inline,
                no_cfunc_wrapper=True,
                **(FLAGS if self.cached else {**FLAGS, "cache": False}),
                **options,
            )


def kernel(function: Callable[..., Any]) -> LazyKernel:
    """Compile a serial loop over arrays."""
    return LazyKernel(function, parallel=False, strict=False)


def parallel_kernel(function: Callable[..., Any]) -> LazyKernel:
    """Compile a loop over many items, written with `prange`, for all threads."""
    return LazyKernel(function, parallel=True, strict=False)


def straight_line(lazy: LazyKernel) -> LazyKernel:
    """Let LLVM make vectors of straight-line code in a kernel: numba has that off.

    Written above the kernel's own decorator, for bodies that spell out eight lanes.
    """
    lazy.straight_line = True
    return lazy


def strict_kernel(function: Callable[..., Any]) -> LazyKernel:
    """Compile without fast-math; threads are used where the function says `prange`."""
    return LazyKernel(function, parallel="prange" in _names_used(function.__code__), strict=True)


def device(function: Callable[..., Any]) -> LazyKernel:
    """Compile a formula that kernels call; mostly it is inlined by LLVM.

    It is part of the kernels that call it, so it needs no place in the cache of its own.
    """
    return LazyKernel(function, parallel=False, strict=False, cached=False)


def inlined(function: Callable[..., Any]) -> LazyKernel:
    """Compile a formula whose code is always put where it is called.

    An array travels as seven numbers: a call with several of them costs more than a row's work.
    """
    return LazyKernel(function, parallel=False, strict=False, inline=True, cached=False)


def compiled_kernels() -> dict[str, int]:
    """Kernels compiled afresh by this process (not read from the disk cache), with how often."""
    fresh = {}
    for lazy in _kernels:
        stats = getattr(lazy._dispatcher, "stats", None)
        misses = sum(stats.cache_misses.values()) if stats is not None else 0
        if misses:
            fresh[f"{lazy.__module__}.{lazy.__name__}"] = misses
    return fresh


def set_thread_count(count: int) -> None:
    """Use `count` threads in all parallel kernels from now on."""
    numba = _numba()
    numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))


def thread_count() -> int:
    """Threads that parallel kernels use now."""
    return int(_numba().get_num_threads())


@contextlib.contextmanager
def _straight_line_vectors() -> Iterator[None]:
    config = _numba().config
    before = config.SLP_VECTORIZE
    config.SLP_VECTORIZE = 1
    try:
        yield
    finally:
        config.SLP_VECTORIZE = before


def _names_used(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_used(constant)


def _numba() -> Any:
    try:
        numba: Any = importlib.import_module("numba")
    except ImportError as error:
        raise ImportError(
            "running a simulation needs numba, which is not installed in this Python; "
            "install it (pip install numba), or run the solver in another process with wtloki"
        ) from error
    _preload_tbb()
    return numba


@cache
def _preload_tbb() -> None:
    """Load the library of the tbb wheel, which lies where the loader does not look.

    Its scheduler lets waiting threads sleep. OpenMP's spin instead: with one busy neighbour on the
    machine a parallel loop of 10,000 particles takes milliseconds rather than microseconds.
    """
    try:
        files = importlib.metadata.files("tbb") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name.startswith("libtbb.so."):
            with contextlib.suppress(OSError):  # numba then takes another threading layer
                ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
