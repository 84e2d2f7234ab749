"""Versions of Loki and of what changes its numbers, and a description of the machine."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

#: Packages that are named in caches and benchmark results.
NUMERIC_PACKAGES = ("numpy", "numba", "scipy")


def loki_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return metadata.version("loki-vfx")
    except metadata.PackageNotFoundError:
        return "0 (not installed)"


def code_versions() -> dict[str, str]:
    """Return the versions that a cache notes down: Loki, Python and the numeric packages."""
    versions = {"loki-vfx": loki_version(), "python": platform.python_version()}
    for name in NUMERIC_PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def machine_description() -> dict[str, Any]:
    """Return what a benchmark says of the machine that it ran on."""
    from loki_core.operating_system import core_count, memory_bytes, processor_name

    return {
        "processor": processor_name(),
        "cores": core_count(),
        "memory_gb": round(memory_bytes()["total"] / 1e9, 1),
        "system": platform.system(),
        "release": platform.release(),
        "versions": code_versions(),
    }
