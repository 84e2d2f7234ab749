"""Threads of the library behind numpy's dense algebra: one, while we call it.

Its own threads would spin for a while after every call and take cores from other ranks and from
kernels: with two ranks on two cores a pressure solve took three times as long.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any


@functools.cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Let dense algebra inside use the calling thread alone."""
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited
