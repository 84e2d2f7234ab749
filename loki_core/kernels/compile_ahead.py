"""Compile Ahead: fill the kernel cache by several processes at once.

    python -m loki_core.kernels.compile_ahead < entries

Kernels of one file share formulas, so they are compiled by one process. Each process says when a
kernel is done, and leaves it on the disk, where the run that waits for it finds it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence

from loki_core.errors import LokiError
from loki_core.kernels.kernel_book import Entry
from loki_core.kernels.signatures import read_signature

#: How much longer a parallel kernel takes than a plain one, to share the work fairly.
PARALLEL_COST = 3


def compile_ahead(
    entries: Sequence[Entry], processes: int, progress: Callable[[int, int], None]
) -> None:
    """Compile kernels by so many processes.

    Args:
        entries: What to compile.
        processes: How many at once.
        progress: Called with how many are done, and how many there are.

    Raises:
        LokiError: A process failed; what the others have compiled is kept.
    """
    done, failures, lock = 0, [], threading.Lock()

    def follow(process: subprocess.Popen[str], share: Sequence[Entry]) -> None:
        nonlocal done
        assert process.stdin is not None and process.stdout is not None
        with process:
            process.stdin.write(json.dumps(share))
            process.stdin.close()
            said = []
            for line in process.stdout:
                if line.startswith("done "):
                    with lock:
                        done += 1
                        progress(done, len(entries))
                else:
                    said.append(line)
        if process.returncode != 0:
            failures.append("".join(said[-20:]))

    followers = []
    for share in shares(entries, processes):
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        followers.append(threading.Thread(target=follow, args=(process, share)))
        followers[-1].start()
    for follower in followers:
        follower.join()
    if failures:
        raise LokiError(f"kernels could not be compiled:\n{failures[0]}")


def shares(entries: Sequence[Entry], count: int) -> list[list[Entry]]:
    """Divide kernels into parts of like cost, file by file, the costly files first."""
    files: dict[str, list[Entry]] = defaultdict(list)
    costs: dict[str, int] = defaultdict(int)
    for entry in entries:
        kernel = entry.find()
        if kernel is None:
            continue
        file = entry.kernel.rpartition(".")[0]
        files[file].append(entry)
        size = len(kernel.function.__code__.co_code)
        costs[file] += size * (PARALLEL_COST if kernel.parallel else 1)
    parts: list[list[Entry]] = [[] for _ in range(count)]
    weights = [0] * count
    for file in sorted(files, key=lambda name: (-costs[name], name)):
        lightest = weights.index(min(weights))
        parts[lightest] += files[file]
        weights[lightest] += costs[file]
    return [part for part in parts if part]


def main() -> None:
    """Compile what standard input lists; one that fails does not keep the others from it."""
    failed = False
    for kernel, signature in json.load(sys.stdin):
        entry = Entry(kernel, tuple(signature))
        found = entry.find()
        try:
            if found is not None:
                found.compile(read_signature(entry.signature))
        except Exception as error:  # numba has many kinds; the kernel's first call tells more
            failed = True
            print(f"{kernel}: {error}", flush=True)
            continue
        print("done", kernel, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
