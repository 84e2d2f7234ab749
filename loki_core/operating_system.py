"""What differs between Linux, macOS and Windows: all of it, and nowhere else.

Owners of files, shared memory, how processes are told to stop, and what the machine has. Each
function says what it promises on every system; `psutil` answers where Python itself does not.
"""

from __future__ import annotations

import ctypes
import getpass
import os
import platform
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

IS_WINDOWS = sys.platform == "win32"
IS_LINUX = sys.platform == "linux"

#: Wishes to stop: Ctrl-C, the farm's or the desktop's, and Windows' Ctrl-Break.
STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)
)
#: How long a file may stay open elsewhere before replacing it fails [s]; Windows forbids it.
SECONDS_TO_REPLACE = 2.0
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # glibc's mallopt


# -- files and their owners ----------------------------------------------------------------------


def current_user() -> str:
    """Return what tells this user's folders from those of others."""
    return getpass.getuser() if IS_WINDOWS else str(os.getuid())


def belongs_to_another(found: os.stat_result) -> bool:
    """Whether a file is somebody else's.

    Windows does not say it here. There a user's folders are private by the rights that they
    inherit, so nothing is asked.
    """
    return not IS_WINDOWS and found.st_uid != os.getuid()


def rights_of_others(found: os.stat_result) -> int:
    """Return the permission bits that a file gives to anybody but its owner; none on Windows."""
    return 0 if IS_WINDOWS else stat.S_IMODE(found.st_mode) & 0o077


def replace_file(source: Path, target: Path) -> None:
    """Let a file take the place of another at once.

    Windows refuses that while somebody has the other one open; readers let go of it soon.
    """
    end = time.monotonic() + SECONDS_TO_REPLACE
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if not IS_WINDOWS or time.monotonic() > end:
                raise
            time.sleep(0.01)


def flush_folder(folder: Path) -> None:
    """Make renames and removals in `folder` outlast a power cut."""
    if IS_WINDOWS:
        return  # it cannot open folders; its renames are flushed by the file system
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def shared_memory_folder() -> Path:
    """Return where files that processes share as memory belong: memory itself on Linux."""
    shared = Path("/dev/shm")
    if IS_LINUX and shared.is_dir() and os.access(shared, os.W_OK):
        return shared
    return Path(tempfile.gettempdir())


def reserve_space(handle: int, size: int) -> None:
    """Give an open file a size [bytes]; where the system can, its space is taken now.

    Writing into memory that cannot be had would end the process.
    """
    if IS_LINUX:
        os.posix_fallocate(handle, 0, size)
    else:
        os.ftruncate(handle, size)


def short_folder() -> Path:
    """Return a folder with a short path: sockets' paths are limited to about 100 letters."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and len(runtime) < 60 and os.access(runtime, os.W_OK):
        return Path(runtime)
    return Path(tempfile.gettempdir() if IS_WINDOWS else "/tmp")


# -- processes -------------------------------------------------------------------------------------


def program_beside_python(name: str) -> Path:
    """Return where pip puts a program for this Python."""
    return Path(sys.executable).parent / (f"{name}.exe" if IS_WINDOWS else name)


def on_its_own() -> dict[str, Any]:
    """Return Popen's arguments for a process that our terminal's Ctrl-C does not reach."""
    if IS_WINDOWS:
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"start_new_session": True}


def ask_to_stop(process: subprocess.Popen[Any]) -> None:
    """Send a wish to stop to a process; on Windows to one that was started `on_its_own`."""
    process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))


def signal_that_ended(code: int) -> str:
    """Return in words by which signal a process ended, by its exit code; "" if by none."""
    if code >= 0:
        return ""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
    return f"{name}; perhaps there was not enough memory" if name == "SIGKILL" else name


def wait_until_read(handle: int, seconds: float) -> None:
    """Wait until the reader of a pipe has taken all that was written into it, but not for ever.

    Asks on Linux and macOS; elsewhere, and where the handle is no pipe, it returns at once.
    """
    if IS_WINDOWS or not stat.S_ISFIFO(os.fstat(handle).st_mode):
        return
    import fcntl
    import termios

    end = time.monotonic() + seconds
    waiting = bytes(4)
    while time.monotonic() < end:
        waiting = fcntl.ioctl(handle, termios.FIONREAD, waiting)
        if int.from_bytes(waiting, sys.byteorder) == 0:
            return
        time.sleep(0.01)


def started_at(pid: int) -> float | None:
    """Return when a process was started [s since 1970]; None if it is not there.

    The clock of a machine may be set meanwhile: compare with `is_same_start`.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time())
    except psutil.Error:
        return None


def is_same_start(one: object, other: object) -> bool:
    """Whether two answers of `started_at` are of one process: numbers are given out again."""
    if not isinstance(one, float) or not isinstance(other, float):
        return False
    return abs(one - other) < 2.0


def is_running(pid: int) -> bool:
    """Whether there is a process of this number."""
    return started_at(pid) is not None


# -- the machine -----------------------------------------------------------------------------------


def core_count() -> int:
    """Return the number of cores that this process may use."""
    if IS_LINUX:
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> dict[str, int]:
    """Return total and available memory [bytes]."""
    import psutil

    memory = psutil.virtual_memory()
    return {"total": int(memory.total), "available": int(memory.available)}


def resident_bytes(pid: int | None = None) -> int:
    """Return the memory that a process, or this one, has in use [bytes]."""
    import psutil

    return int(psutil.Process(pid).memory_info().rss)


def peak_resident_bytes() -> int:
    """Return the most memory that this process has had in use since it began, or since `forget`."""
    import psutil

    if IS_LINUX:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    if IS_WINDOWS:
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def forget_peak_resident_bytes() -> None:
    """Let the peak of memory begin anew.

    Raises:
        NotImplementedError: This system cannot; Linux can.
    """
    if not IS_LINUX:
        raise NotImplementedError("only Linux forgets the peak of a process's memory")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def processor_name() -> str:
    """Return what the maker calls the processor."""
    if IS_LINUX:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def keep_freed_memory() -> None:
    """Let the C library keep some memory that is freed, for the next message.

    Otherwise each large message is received into new pages, and making those takes longer than
    filling them: 35 ms against 15 for 48 MB. Only Linux's C library has such a setting.
    """
    if not IS_LINUX:
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # musl has none
        for option, value in ((ARENA_MAX, 1), (MMAP_THRESHOLD, 1 << 25), (TRIM_THRESHOLD, 1 << 28)):
            library.mallopt(option, value)
