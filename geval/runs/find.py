"""Which run is meant: a path, the bare name of a folder under ./runs, or `last`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from geval.errors import RunError, nearest
from geval.runs.run import MANIFEST, REPLIES, RESULTS, Run

ROOT = Path("runs")
"""Where `geval score` puts runs."""
LAST = "last"
_INSIDE = {MANIFEST, RESULTS, REPLIES, "report.html"}


def find_run(name: str | Path, root: Path = ROOT) -> Path:
    """The folder of the run that `name` means.

    A path comes first (a file of a run means its folder), then a name under `root`; `last` is the
    run under `root` that was started last. Raises RunError with the nearest names.
    """
    text = str(name)
    if text == LAST:
        return _last(root)
    path = Path(name)
    try:
        if path.name in _INSIDE and path.is_file():
            path = path.parent
        if path.is_dir() and (path / MANIFEST).exists():
            return path
        beside = root / path
        if path.name == text and beside.is_dir() and (beside / MANIFEST).exists():
            return beside
        found = path.is_dir()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise RunError(f"there is no run {text[:80]!r}: {error}") from None
    if found:
        inside = _others([p.name for p in run_folders(path)], f"under {text}")
        raise RunError(
            f"{text!r} is no run folder: it has no {MANIFEST}", hint=inside or _known(text, root)
        )
    raise RunError(f"there is no run {text!r}", hint=_known(text, root))


def open_run(name: str | Path, root: Path = ROOT) -> Run:
    """The run that `name` means, open for reading."""
    return Run(find_run(name, root))


def run_folders(root: Path) -> Iterator[Path]:
    """The run folders right under `root`, by name; names with a dot before them are no runs."""
    if root.is_dir():
        for path in sorted(root.iterdir()):
            if not path.name.startswith(".") and (path / MANIFEST).is_file():
                yield path


def started(folder: Path) -> tuple[str, str]:
    """By what runs are put in order: the time of the start in UTC, then the name.

    A manifest without one counts by the time its file was changed.
    """
    from datetime import UTC, datetime

    path = folder / MANIFEST
    try:
        told = json.loads(path.read_text(encoding="utf-8"))["started"]
        when = datetime.fromisoformat(told).astimezone(UTC)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        try:
            when = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except (OSError, OverflowError, ValueError):
            return "", folder.name
    return when.isoformat(), folder.name


def _last(root: Path) -> Path:
    found = max(run_folders(root), key=started, default=None)
    if found is None:
        raise RunError(
            f"there is no last run: {str(root)!r} holds none",
            hint="`geval score` makes one; a run elsewhere is named by its path.",
        )
    return found


def _known(text: str, root: Path) -> str:
    names = [p.name for p in sorted(run_folders(root), key=started, reverse=True)]
    if not names:
        return f"{str(root)!r} holds no runs; name the path of a run folder."
    close = nearest(Path(text).name, names)
    if close.startswith("Did you mean"):
        return f"{close.partition('? ')[0]}? `geval runs` lists all."
    return _others(names, f"under {root}") or ""


def _others(names: list[str], where: str) -> str | None:
    if not names:
        return None
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"Runs {where}: {', '.join(names[:5])}{more}. `geval runs` lists them."
