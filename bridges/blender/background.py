"""Background: a thread that does one thing after the other, so that Blender's own never waits.

Work touches no Blender data. What is to be done with its outcome is given along with it, and is
done in Blender's own thread, by `take_in`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple


class _Given(NamedTuple):
    work: Callable[[], Any]
    then: Callable[[Any], None] | None
    failed: Callable[[Exception], None] | None
    future: Future[Any]


class Background:
    """A thread that begins with its first work and does not keep Blender from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._given: SimpleQueue[_Given | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def do(
        self,
        work: Callable[[], Any],
        *,
        then: Callable[[Any], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> Future[Any]:
        """Do something after all that was given before; return at once.

        Args:
            then: Is called by `take_in` with what `work` has returned.
            failed: Is called by `take_in` with what `work` has raised.

        Returns:
            The outcome, for whoever must wait for it.
        """
        given = _Given(work, then, failed, Future())
        self._given.put(given)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return given.future

    @property
    def waiting(self) -> int:
        """How many works have not begun yet."""
        return self._given.qsize()

    def take_in(self) -> None:
        """Go on with what was done since the last time. Never waits."""
        while not self._outcomes.empty():
            self._outcomes.get()()

    def close(self) -> None:
        """End after all that was given; nothing may be given any more."""
        self._given.put(None)

    def stop(self) -> None:
        """End after what is being done now, and wait for that; the rest is not done."""
        with suppress(Empty):
            while (given := self._given.get_nowait()) is not None:
                given.future.cancel()
        self.close()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (given := self._given.get()) is not None:
            self._do(given)

    def _do(self, given: _Given) -> None:
        try:
            result = given.work()
        except Exception as error:  # whoever gave the work tells it, where users can see it
            if given.failed is not None:
                self._outcomes.put(partial(given.failed, error))
            given.future.set_exception(error)
            return
        if given.then is not None:
            self._outcomes.put(partial(given.then, result))
        given.future.set_result(result)
