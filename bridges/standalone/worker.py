"""One rank of an MPI job: `mpiexec -n N python -m loki_vfx.bridges.standalone.worker REQUEST`.

Rank 0 tells events as JSON lines. When its standard input ends, the launcher wants the job to
stop, or is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from loki_core.errors import Cancelled
from loki_core.parallel.comm import world
from loki_vfx.bridges.standalone.events import JsonReporter
from loki_vfx.bridges.standalone.failures import describe_failure
from loki_vfx.bridges.standalone.run_request import RunRequest

SECONDS_BETWEEN_RANKS = 0.2


def main() -> int:
    """Run this rank's share of a request and return the exit code."""
    comm = world()
    try:
        from loki_vfx.bridges.standalone.run_command import stop_on_signals

        request = RunRequest.from_json(sys.argv[1])
        runner = request.runner(listener=JsonReporter(), comm=comm)
        if comm.rank == 0:
            _watch_launcher(runner.cancel)
        with stop_on_signals(runner.cancel):
            runner.run()
    except Cancelled:
        return 0  # all ranks are here together, and the launcher knows from the event
    except BaseException as error:
        failure = describe_failure(error)
        event = {
            "event": "error",
            "error": failure.kind,
            "message": failure.message,
            "exit_code": failure.exit_code,
        }
        # When all ranks fail together one after the other speaks: mpiexec may mix lines that come
        # at once, and the first abort cuts the others off.
        time.sleep(min(SECONDS_BETWEEN_RANKS * comm.rank, 2.0))
        sys.stderr.write(f"rank {comm.rank} of {comm.size}:\n{traceback.format_exc()}")
        sys.stderr.flush()
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
        time.sleep(SECONDS_BETWEEN_RANKS / 2)  # for mpiexec to pass the line on
        # the other ranks may be waiting for this one: end them too
        comm.abort(failure.exit_code)
    return 0


def _watch_launcher(stop: Callable[[], None]) -> None:
    def watch() -> None:
        while os.read(0, 4096):
            continue
        stop()

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
