"""Versions of Loki and of what changes its numbers, and a description of the machine."""

from __future__ import annotations

import os
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


def core_count() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> dict[str, int]:
    """Return total and available memory [bytes]; empty where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return {
            "total": int(lines["MemTotal"].split()[0]) * 1024,
            "available": int(lines["MemAvailable"].split()[0]) * 1024,
        }
    except (OSError, KeyError, ValueError):
        pages = getattr(os, "sysconf_names", {})
        if "SC_PHYS_PAGES" in pages and "SC_PAGE_SIZE" in pages:
            total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            return {"total": total, "available": total}
        return {}


def resident_bytes() -> int:
    """Return the memory that this process has in use [bytes]; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def machine_description() -> dict[str, Any]:
    """Return what a benchmark says of the machine that it ran on."""
    return {
        "processor": _processor_name(),
        "cores": core_count(),
        "memory_gb": round(memory_bytes().get("total", 0) / 1e9, 1),
        "system": platform.system(),
        "release": platform.release(),
        "versions": code_versions(),
    }


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the platform module knows as much as there is to know
    return platform.processor() or platform.machine()
