"""Files that are asked for beside a run: found unwritable first, replaced whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from geval.errors import UsageError


def writable(path: Path, option: str) -> None:
    """Raises UsageError where a file cannot be written, before any work is done for it.

    The folder is made where it is missing; an existing file is left as it is.
    """
    try:
        if path.is_dir():
            raise UsageError(f"{option} names a folder, {str(path)!r}", hint="Name a file in it.")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            with path.open("ab"):
                return
        probe = path.parent / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        told = f"{option}: cannot write {str(path)!r}: {error.strerror or error}"
        raise UsageError(told) from None


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[TextIO]:
    """A file to write that takes the place of `path` once it is done; UTF-8, `\\n` lines.

    A pipe or device is written as it is. Raises UsageError where it cannot be written.
    """
    direct = path.exists() and not path.is_file()
    temporary = path if direct else path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n", errors="backslashreplace") as file:
            yield file
        if not direct:
            temporary.replace(path)
    except OSError as error:
        told = f"cannot be written: {error.strerror or error}"
        raise UsageError(told, where=str(path)) from None
    finally:
        if not direct:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
