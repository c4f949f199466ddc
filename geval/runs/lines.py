"""The lines of a run's files: read with their faults named, put in order before a run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from geval.errors import RunError
from geval.result import OVERALL

Key = tuple[str, int]
"""A sample's id and repeat."""

_NEEDED = ("id", "repeat", "criterion", "status", "score", "error", "warnings", "source")


def complete_lines(path: Path) -> Iterator[str]:
    """Lines of a file that end in a newline; a line torn by a killed process is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for line in file:
            if line.endswith("\n"):
                yield line


def result_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each complete line of a results file with its record.

    Raises RunError with the line that is none: files are changed by hand.
    """
    for number, line in enumerate(complete_lines(path), 1):
        try:
            record = json.loads(line)
            lost = [name for name in _NEEDED if name not in record]
        except (ValueError, TypeError, RecursionError):
            record, lost = None, []
        if not isinstance(record, dict) or lost:
            told = f"lacks {', '.join(lost)}" if lost else "is no result line"
            raise RunError(
                f"line {number} {told}",
                where=str(path),
                hint="Take that line out: its row is judged again when the run is continued.",
            )
        yield line, record


def compact(path: Path, keep: Callable[[Mapping[str, Any]], None]) -> set[Key]:
    """Leave one line per criterion of each sample that is done, and return those samples.

    Torn lines, samples without their overall line, those to be judged again and lines that stand
    there twice go. `keep` is handed each record that stays. The file is replaced whole.
    """
    done: set[Key] = set()
    for _, record in result_lines(path):
        if record["criterion"] == OVERALL:
            key = (record["id"], record["repeat"])
            if record["error"] and record["error"].get("retryable"):
                done.discard(key)
            else:
                done.add(key)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    finished: set[Key] = set()
    now: Key | None = None
    names: set[str] = set()
    with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for line, record in result_lines(path):
            key = (record["id"], record["repeat"])
            if key != now:
                now, names = key, set()
            if key not in done or key in finished or record["criterion"] in names:
                continue
            names.add(record["criterion"])
            if record["criterion"] == OVERALL:
                finished.add(key)
            file.write(line)
            keep(record)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return done


def cut_torn_line(path: Path) -> None:
    """Cut off what stands behind the last newline of a file."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        while size > 0:
            step = min(65536, size)
            file.seek(size - step)
            newline = file.read(step).rfind(b"\n")
            if newline >= 0:
                size = size - step + newline + 1
                break
            size -= step
        file.truncate(size)
