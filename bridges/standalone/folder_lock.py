"""Folder Lock: two runs never write into one folder.

The lock belongs to the process and vanishes with it, however it ends; the empty file may stay.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from loki_core.errors import InputError

LOCK_NAME = ".lock"


class FolderLock:
    """Hold a folder for this process while the block runs; make the folder if needed."""

    def __init__(self, folder: Path, *, enabled: bool = True) -> None:
        self.folder = folder
        self.enabled = enabled
        self._file: Any = None

    def __enter__(self) -> FolderLock:
        if not self.enabled:
            return self
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; choose a folder for the output")
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.name == "posix":
            import fcntl

            self._file = (self.folder / LOCK_NAME).open("w")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise InputError(
                    f"{self.folder} is being written by another run; wait for it, stop it, or "
                    "choose another folder"
                ) from None
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()
