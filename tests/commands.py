"""The `wtloki` command as a process of its own, from a warm start where the system can fork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.ranks import interpreter

#: How tests start one that they have to stop or kill.
COMMAND = [sys.executable, "-m", "loki_vfx.bridges.standalone.command_line"]


def wtloki(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    words = [*interpreter(), __file__, *(str(one) for one in arguments)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


if __name__ == "__main__":
    from loki_vfx.bridges.standalone.command_line import main

    main()
