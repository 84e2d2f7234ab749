"""Make a kernel of a checked expression: it compiles once and is found on disk afterwards.

The source is stored in the kernel cache under the hash of its content, because numba caches only
what comes from a file. What is executed is always the text made here, never what was found there.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from loki_core.errors import InputError, LokiError, did_you_mean
from loki_core.expressions.functions import Kind
from loki_core.expressions.generate import generate_source
from loki_core.expressions.language import CheckedExpression
from loki_core.kernels import jit
from loki_core.kernels.basics.random import random_key
from loki_core.kernels.kernel_cache import cache_directory
from loki_core.operating_system import belongs_to_another, rights_of_others

_DTYPES: Mapping[
    Kind, tuple[str, str]
] = {  # numpy's letters for the kind, and the words for people
    "float": ("f", "float32 or float64"),
    "vector": ("f", "float32 or float64"),
    "int": ("iu", "an integer type"),
    "bool": ("bu", "bool or uint8"),
}


class CompiledExpression:
    """A kernel over particles; numba is imported and the kernel compiled at the first call."""

    def __init__(self, checked: CheckedExpression, run: Callable[..., Any]) -> None:
        self.checked = checked
        self._run = run

    def __call__(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        dt: float,
        time: float,
        frame: int,
        substep: int,
        seed: int,
        parameters: Mapping[str, float] | None = None,
        count: int,
    ) -> None:
        """Run the expression on the first `count` elements; written channels change in place.

        Args:
            arrays: Channels that are read or written, by name: [n, 3] for vectors, [n] for the
                others, C-contiguous, n at least `count`; `id` too, when it is among the reads.
            dt: Length of the substep [s].
            time: Time since the first frame [s].
            frame: Frame number.
            substep: Substep of the frame; `rand` differs between substeps.
            seed: Seed of the Solver Setup.
            parameters: Value of every parameter that the expression uses; others are ignored.
            count: Number of elements.
        """
        checked = self.checked
        values = self._parameter_values(parameters or {})
        given = [self._array(arrays, name, count) for name in checked.channels]
        if count == 0:
            return
        key = random_key(seed, frame, substep)
        self._run(int(count), float(dt), float(time), int(frame), key, *given, *values)

    def warm_up(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Compile for the types of these arrays, on one zero element, and change nothing."""
        one = {n: np.zeros((1, *arrays[n].shape[1:]), arrays[n].dtype) for n in arrays}
        parameters = dict.fromkeys(self.checked.parameters, 0.0)
        self(one, dt=0.0, time=0.0, frame=0, substep=0, seed=0, parameters=parameters, count=1)

    def _parameter_values(self, parameters: Mapping[str, float]) -> list[float]:
        for name in self.checked.parameters:
            if name not in parameters:
                raise InputError(
                    f'{self.checked.label}: no value for parameter "{name}"'
                    f"{did_you_mean(name, parameters)}"
                )
        return [float(parameters[name]) for name in self.checked.parameters]

    def _array(self, arrays: Mapping[str, np.ndarray], name: str, count: int) -> np.ndarray:
        """Find a channel and make sure that the kernel cannot reach outside of it."""
        where = f'{self.checked.label}: channel "{name}"'
        if name not in arrays:
            raise InputError(f"{where} is missing{did_you_mean(name, arrays)}")
        array, kind = arrays[name], self.checked.channels[name]
        letters, words = _DTYPES[kind]
        if array.dtype.kind not in letters or array.dtype.itemsize not in (1, 2, 4, 8):
            raise InputError(f"{where} is {array.dtype}, but a {kind} channel is {words}")
        tail = (3,) if kind == "vector" else ()
        if array.ndim != 1 + len(tail) or array.shape[1:] != tail or not 0 <= count <= len(array):
            wanted = f"at least [{count}, 3]" if tail else f"at least [{count}]"
            raise InputError(f"{where} has the shape {list(array.shape)}, but needs {wanted}")
        if not array.flags.c_contiguous or not array.dtype.isnative:
            raise InputError(f"{where} is not C-contiguous in native byte order; copy it first")
        if name in self.checked.writes and not array.flags.writeable:
            raise InputError(f"{where} is written by the expression, but the array is read-only")
        return array


def compile_expression(checked: CheckedExpression) -> CompiledExpression:
    """Make the kernel of a checked expression; equal kernels are made once in a process."""
    source = generate_source(checked)
    digest = hashlib.sha256(source.encode()).hexdigest()[:32]
    if digest not in _modules:
        _modules[digest] = _load_module(source, digest)
    return CompiledExpression(checked, _modules[digest].run_expression)


_modules: dict[str, types.ModuleType] = {}


def _load_module(source: str, digest: str) -> types.ModuleType:
    """Execute generated source under the name of its file in the kernel cache."""
    name = f"loki_expression_{digest}"
    path = f"<{name}>"
    if jit.FLAGS["cache"]:
        path = str(_store_source(source, cache_directory() / "expressions" / f"{name}.py"))
    module = types.ModuleType(name)
    sys.modules[name] = module  # numba looks it up there when it reads its cache
    module.__file__ = path
    # The text from memory, not the file's: whoever can write to the folder cannot have it executed.
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def _store_source(source: str, path: Path) -> Path:
    """Write the file, whole or not at all, unless it is already there with this very content."""
    expected = source.encode()
    try:
        _make_private_folder(path.parent)
        if not path.is_file() or path.read_bytes() != expected:
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(expected)
                # numba trusts its cache while time and size stay: equal content has an equal time,
                # so that processes which write it at once do not make each other compile again.
                os.utime(temporary, (0, 0))
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        found = path.read_bytes()
    except OSError as error:
        raise LokiError(
            f"the kernel cache {path.parent} cannot be used: {error}; "
            "set LOKI_CACHE_DIR to a folder that you can write to"
        ) from error
    if found != expected:
        raise LokiError(
            f"{path} does not hold what was written to it; delete the folder, "
            "or set LOKI_CACHE_DIR to a folder that only you can write to"
        )
    return path


def _make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter, or make sure that it is one."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if belongs_to_another(status):
        raise PermissionError(f"{folder} belongs to another user (uid {status.st_uid})")
    if rights_of_others(status):
        folder.chmod(0o700)
