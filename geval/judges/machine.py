"""How much of the machine this process may use: free memory and CPUs, containers included."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int | None:
    """Bytes that can be used without swapping; None where the system does not tell.

    The page cache counts as free: weights are mapped from their file and live in it.
    """
    candidates: list[int] = []
    for line in _lines(meminfo):
        if line.startswith("MemAvailable:"):
            candidates.append(int(line.split()[1]) * 1024)
    if not candidates:
        return None  # not Linux
    for limit, used, stat in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        most, now = _number(cgroup / limit), _number(cgroup / used)
        if most is not None and now is not None:
            cached = sum(
                int(line.split()[1])
                for line in _lines(cgroup / stat)
                if line.startswith(("inactive_file ", "active_file "))
            )
            candidates.append(max(0, most - now + cached))
    return min(candidates)


def cpu_limit(cgroup: Path = _CGROUP) -> int | None:
    """CPUs this process may use, where they are fewer than the machine has; else None."""
    everything = os.cpu_count() or 1
    usable = everything
    if hasattr(os, "sched_getaffinity"):
        usable = min(usable, len(os.sched_getaffinity(0)))
    quota = "".join(_lines(cgroup / "cpu.max")[:1]).split()
    if len(quota) == 2 and quota[0].isdigit() and int(quota[1]) > 0:
        usable = min(usable, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, usable) if usable < everything else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii", "replace").splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)[:1]).strip()
    return int(text) if text.isdigit() else None
