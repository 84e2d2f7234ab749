"""Folder Lock: two runs never write into one folder.

The lock belongs to the process and vanishes with it, however it ends; the empty file may stay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loki_core.errors import InputError

LOCK_NAME = ".lock"


class FolderLock:
    """Hold a folder for this process while the block runs; make the folder if needed."""

    def __init__(self, folder: Path, *, enabled: bool = True) -> None:
        self.folder = folder
        self.enabled = enabled
        self._lock: Any = None

    def __enter__(self) -> FolderLock:
        if not self.enabled:
            return self
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; choose a folder for the output")
        self.folder.mkdir(parents=True, exist_ok=True)
        import filelock

        self._lock = filelock.FileLock(self.folder / LOCK_NAME, timeout=0)
        try:
            self._lock.acquire()
        except filelock.Timeout:
            self._lock = None
            raise InputError(
                f"{self.folder} is being written by another run; wait for it, stop it, or "
                "choose another folder"
            ) from None
        return self

    def __exit__(self, *exception: object) -> None:
        if self._lock is not None:
            self._lock.release()
