"""A lock between processes that the system lets go when its holder dies."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO

_PAUSE = 0.2  # seconds between two attempts; a blocking call would ignore Ctrl-C on some systems
_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


@contextmanager
def exclusive(path: Path, waiting: Callable[[], AbstractContextManager[object]]) -> Iterator[bool]:
    """Hold the lock file `path`; yields False where the file system knows no locks.

    `waiting()` is entered when another process holds it. The lock file stays: removing it would
    let a third process lock another file of the same name.
    """
    with path.open("a+b") as file, ExitStack() as told:
        first = True
        while True:
            try:
                _lock(file)
            except OSError as error:
                if error.errno not in _TAKEN:
                    yield False
                    return
                if first:
                    told.enter_context(waiting())
                    first = False
                time.sleep(_PAUSE)
            else:
                break
        told.close()
        try:
            yield True
        finally:
            _unlock(file)


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

    def _unlock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
