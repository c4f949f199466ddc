"""Free memory and CPUs, from files as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from geval.judges.machine import cpu_limit, free_memory

GIB = 1 << 30


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".", 1)).write_text(content)
    return folder


def meminfo(tmp_path: Path, gib: int) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: 99999999 kB\nMemFree: 1 kB\nMemAvailable: {gib * GIB // 1024} kB\n")
    return path


def test_what_the_kernel_calls_available(tmp_path: Path) -> None:
    assert free_memory(meminfo(tmp_path, 8), tmp_path / "none") == 8 * GIB


def test_a_container_may_have_less(tmp_path: Path) -> None:
    group = write(
        tmp_path / "group",
        memory_max=f"{2 * GIB}\n",
        memory_current=f"{GIB}\n",
        memory_stat=f"anon {GIB // 2}\ninactive_file {GIB // 4}\nactive_file {GIB // 4}\n",
    )
    assert free_memory(meminfo(tmp_path, 8), group) == 2 * GIB - GIB // 2
    write(group, memory_max="max\n")
    assert free_memory(meminfo(tmp_path, 8), group) == 8 * GIB


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert free_memory(tmp_path / "none", tmp_path / "none") is None


def test_a_quota_of_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert cpu_limit(tmp_path / "none") is None
    assert cpu_limit(write(tmp_path / "group", cpu_max="max 100000\n")) is None
    assert cpu_limit(write(tmp_path / "group", cpu_max="250000 100000\n")) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert cpu_limit(tmp_path / "none") == 2
