"""Hair dynamics of Blender: seconds of a frame of 5 substeps, in a process that has bpy.

`mantaflow.py` says which Python that is.

    python -m loki_vfx.benchmarks.peers.blender_hair 1000 --vertices 17
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from loki_vfx.benchmarks.peers.mantaflow import MARK, PeerError, python_with_bpy


def hair_frame(
    strands: int, *, vertices: int = 17, frames: int = 8, timeout: float = 900.0
) -> dict[str, Any]:
    """Return the figures of strands that fall: `frame_seconds` is the best frame's time.

    Args:
        strands: How many there are.
        vertices: Points of a strand.
        frames: How many are measured; two more come before them.
        timeout: When to give up [s].

    Raises:
        PeerError: bpy is not there, or the run failed.
    """
    case = {"strands": strands, "vertices": vertices, "frames": frames}
    script = Path(__file__).with_name("_blender_hair.py")
    words = [python_with_bpy(), str(script), json.dumps(case)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"Blender did not finish {case} in {timeout:g} s") from error
    told = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not told:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise PeerError(f"Blender failed with code {done.returncode} on {case}:\n{last}")
    figures = json.loads(told[-1].removeprefix(MARK))
    assert isinstance(figures, dict)
    return figures


def main() -> None:
    """Measure one case and print its figures."""
    parser = argparse.ArgumentParser(description="Measure a frame of Blender's hair dynamics.")
    parser.add_argument("strands", type=int)
    parser.add_argument("--vertices", type=int, default=17)
    parser.add_argument("--frames", type=int, default=8)
    given = vars(parser.parse_args())
    print(json.dumps(hair_frame(given.pop("strands"), **given), indent=1))


if __name__ == "__main__":
    main()
