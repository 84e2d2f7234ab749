"""Work in another thread, whose outcome is taken in when Blender has time."""

from __future__ import annotations

import threading

from loki_vfx.bridges.blender.background import Background


def test_works_are_done_in_order_and_outcomes_taken_in_here() -> None:
    worker, threads, outcomes = Background("test"), [], []
    for number in range(5):

        def work(number: int = number) -> int:
            threads.append(threading.current_thread())
            return 10 // (number - 3)

        last = worker.do(work, then=outcomes.append, failed=lambda e: outcomes.append(str(e)))
    assert last.result(10.0) == 10
    assert outcomes == []
    worker.take_in()
    assert outcomes == [-4, -5, -10, "integer division or modulo by zero", 10]
    assert len(set(threads)) == 1 and threading.current_thread() not in threads
    worker.close()


def test_stop_drops_what_has_not_begun() -> None:
    worker, begun, gate = Background("test"), threading.Event(), threading.Event()
    done: list[int] = []

    def first() -> None:
        begun.set()
        gate.wait(10.0)
        done.append(1)

    worker.do(first)
    rest = [worker.do(lambda: done.append(2)) for _ in range(3)]
    assert begun.wait(10.0) and worker.waiting == 3
    threading.Timer(0.1, gate.set).start()
    worker.stop()
    assert done == [1] and all(one.cancelled() for one in rest)


def test_a_thread_that_never_began_is_stopped_too() -> None:
    worker = Background("test")
    worker.stop()
    worker.take_in()
