"""The folder of a study: one process at a time, what it is about, where it stands.

OUT/NAME.LOCALE.jinja       the template to use
OUT/candidate/...           the best candidate, where the test did not show that it is better
OUT/report.html
OUT/study/study.json        what the study is about, and how to continue it
OUT/study/ledger.jsonl      every request, once
OUT/study/replies.sqlite    every reply
OUT/study/optuna.journal    the trials, for Optuna's own tools
OUT/study/progress.json     where it stands
OUT/study/result.json       how it ended
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from geval.errors import RunError
from geval.runs.run import write_atomic

INSIDE = "study"


class Folder:
    """A study's folder. `open` locks it for this process."""

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.inside = self.out / INSIDE
        self._lock: IO[str] | None = None

    def path(self, name: str) -> Path:
        """A file of the study."""
        return self.inside / name

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the study. Raises RunError where there is none."""
        path = self.path(name)
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            what = (
                "is not finished: it has no result yet"
                if name == "result.json"
                else (f"is no study: it has no {INSIDE}/{name}")
            )
            raise RunError(f"{str(self.out)!r} {what}") from None
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {path}: {error}") from None
        return found

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a JSON file of the study whole."""
        text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
        write_atomic(self.path(name), text + "\n")

    def open(
        self, identity: Mapping[str, Any], command: Mapping[str, Any], *, force_new: bool
    ) -> bool:
        """Lock the folder and say whether an earlier sitting is continued.

        Raises RunError where another process has it, where it cannot be written, or where it
        holds a study of something else.
        """
        if self.out.is_file():
            raise RunError(f"--out names a file, {str(self.out)!r}; a study is a folder")
        try:
            self.inside.mkdir(parents=True, exist_ok=True)
            self._lock = (self.inside / ".lock").open("a")
        except OSError as error:
            raise RunError(
                f"cannot write to the study folder {str(self.out)!r}: {error.strerror or error}",
                hint="Name another one with --out DIR.",
            ) from None
        self._take()
        canonical = json.loads(json.dumps(identity, default=str))
        before = self.path("study.json")
        continued = before.exists()
        if continued:
            old = self.read("study.json")["identity"]
            changed = [k for k in canonical if old.get(k) != canonical[k]]
            if changed and not force_new:
                told = "; ".join(f"{k} was {_short(old.get(k))}, now {_short(canonical[k])}"
                                 for k in changed)  # fmt: skip
                self.close()
                raise RunError(
                    f"the study in {str(self.out)!r} is another one: {told}",
                    hint="Name another folder with --out DIR, or start over with --force-new.",
                )
        if force_new:
            for path in self.inside.iterdir():
                if path.name != ".lock" and path.is_file():
                    path.unlink()
            continued = False
        self.path("optuna.journal").unlink(missing_ok=True)
        self.path("optuna.journal.lock").unlink(missing_ok=True)
        self.write("study.json", {"identity": canonical, "command": dict(command)})
        return continued

    def _take(self) -> None:
        assert self._lock is not None
        try:
            import fcntl

            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            import msvcrt

            try:
                msvcrt.locking(self._lock.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
            except OSError:
                self._refuse()
        except OSError:
            self._refuse()

    def _refuse(self) -> None:
        assert self._lock is not None
        self._lock.close()
        self._lock = None
        raise RunError(
            f"another process is working on the study in {str(self.out)!r}",
            hint="Wait for it, or name another folder with --out DIR.",
        ) from None

    def busy(self) -> bool:
        """Whether a process is working on it now."""
        try:
            import fcntl

            with self.path(".lock").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (ImportError, FileNotFoundError):
            return False
        except OSError:
            return True
        return False

    def close(self) -> None:
        """Let other processes have it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def default_out(name: str, locale: str) -> Path:
    """Where a study goes that names no folder; the same command finds it again."""
    return Path("tuned") / f"{name}.{locale}"
