"""Run: a folder with everything a scoring produced.

    manifest.json    what was judged, by what, with which settings; counts and tokens
    results.jsonl    one line per sample and criterion, appended as it comes, and an overall line
    replies.jsonl    messages and reply of every call: any number can be traced to its prompt

A folder belongs to one key: template, judge, settings and data. A killed run continues from what
its results hold; a sample counts as done when its overall line is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from geval.errors import RunError
from geval.judges.base import Reply, Request
from geval.judges.records import dumps, reply_to_record
from geval.result import OVERALL
from geval.runs.lines import compact, cut_torn_line, result_lines
from geval.runs.tally import Tally

if TYPE_CHECKING:
    import pandas

RESULTS, REPLIES, MANIFEST = "results.jsonl", "replies.jsonl", "manifest.json"

_PARTS = {"template": dict, "judges": list, "settings": dict, "data": dict}


def identity_key(identity: Mapping[str, Any]) -> str:
    """Hash of what a run is about: equal keys continue each other."""
    canonical = json.dumps(identity, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def write_atomic(path: Path, text: str) -> None:
    """Replace a file whole: a reader sees the old content or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class Run:
    """A run folder, open for reading; `Writer` appends to it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        try:
            self.manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{str(folder)!r} is no run folder: it has no {MANIFEST}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"cannot be read: {error}", where=str(path)) from None
        told = self.manifest if isinstance(self.manifest, dict) else {}
        lost = [name for name, kind in _PARTS.items() if not isinstance(told.get(name), kind)]
        if lost:
            raise RunError(
                f"is no manifest of a run: {', '.join(lost)} is missing or of another kind",
                where=str(path),
                hint="Restore the file as geval wrote it.",
            )

    @property
    def summary(self) -> dict[str, Any]:
        """Counts, means and tokens: `overall`, `criteria`, `failures`, `methods`, `usage`."""
        tally = Tally.of_run(self.manifest)
        for record in self.results():
            tally.add(record)
        return tally.to_dict()

    def results(self) -> Iterator[dict[str, Any]]:
        """The result lines, streamed in the order they were written."""
        for _, record in result_lines(self.folder / RESULTS):
            yield record

    def to_records(self) -> list[dict[str, Any]]:
        """All result lines: one dict per sample and criterion."""
        return list(self.results())

    def to_pandas(self) -> pandas.DataFrame:
        """One row per sample: id, a score and reason column per criterion, overall, coverage.

        Needs pandas. Scores are in units of their scale, `overall` on 0..1; unscored is NaN.
        """
        import pandas

        return pandas.DataFrame(table_rows(self.results()))

    def __repr__(self) -> str:
        counts = self.manifest.get("summary", {}).get("overall", {})
        return (
            f"Run({str(self.folder)!r}, scored={counts.get('scored')}, mean={counts.get('mean')})"
        )


def table_rows(results: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Result lines turned to one dict per sample, in the order of the samples' source rows.

    Per criterion: the score in units of its scale, `_sd`, `_se`, `_status`, `_reason`; then
    `overall` (on 0..1), `status`, `coverage` (the least of the criteria's), `capped`, `error`, and
    `numbers_unmatched` (texts of figures) where the check found any.
    """
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    order: dict[tuple[str, int], tuple[int, int]] = {}
    for record in results:
        key = (record["id"], record["repeat"])
        row = rows.setdefault(key, {"id": record["id"], "repeat": record["repeat"]})
        order.setdefault(key, (record["source"].get("order", len(order)), record["repeat"]))
        name = record["criterion"]
        error = record["error"]["message"] if record["error"] else None
        if name == OVERALL:
            row[OVERALL] = record["score"]
            row["status"] = record["status"]
            row["coverage"] = record["coverage"]
            row["capped"] = any(w.startswith("capped_by_") for w in record["warnings"])
            row["error"] = row.pop("_why", None) or error
            if record.get("numbers_unmatched"):
                row["numbers_unmatched"] = record["numbers_unmatched"]
        else:
            row[name] = record["score"]
            row[f"{name}_sd"] = record["sd"]
            row[f"{name}_se"] = record.get("se")
            row[f"{name}_status"] = record["status"]
            row[f"{name}_reason"] = record["reason"]
            if error and "_why" not in row:
                row["_why"] = f"{name}: {error}"
    return [rows[key] for key in sorted(rows, key=lambda k: order[k])]


class Writer:
    """Appends to a run folder; at most one process at a time.

    Raises RunError where the folder cannot be written, belongs to another key, or is in use.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, Any], *, force_new: bool = False
    ) -> None:
        self.folder = folder
        self.identity = dict(identity)
        self.done: set[tuple[str, int]] = set()
        self.tally = Tally.of_run(self.identity)
        self._locked: TextIO | None = None
        self._prepare(force_new)
        # Without a buffer: what a full disk refused is not tried again when the file is closed.
        self._results = (folder / RESULTS).open("ab", buffering=0)
        self._replies = (folder / REPLIES).open("ab", buffering=0)

    def _prepare(self, force_new: bool) -> None:
        folder = self.folder
        if folder.is_file():
            raise RunError(
                f"--out names a file, {str(folder)!r}; a run is a folder",
                hint="Name a folder. `geval export RUN --to csv` writes one file of a run.",
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".probe.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise RunError(
                f"cannot write to the run folder {str(folder)!r}: {error.strerror or error}",
                hint="Name another one with --out DIR.",
            ) from None
        self._lock()
        for left in (*folder.glob(".*.tmp"), *folder.glob(".probe.*")):  # of a killed process
            left.unlink(missing_ok=True)
        manifest = folder / MANIFEST
        others = [p.name for p in folder.iterdir() if not p.name.startswith(".")]
        if manifest.exists():
            self._continue(force_new)
        elif RESULTS in others:
            raise RunError(
                f"the folder {str(folder)!r} holds results without their {MANIFEST}",
                hint="Name a new folder with --out DIR.",
            )
        elif others and set(others) - {RESULTS, REPLIES, "report.html"}:
            raise RunError(
                f"the folder {str(folder)!r} holds other files ({', '.join(sorted(others)[:3])})",
                hint="Name an empty or new folder with --out DIR.",
            )
        if not manifest.exists():
            self.manifest: dict[str, Any] = {
                **self.identity,
                "key": identity_key(self.identity),
                "status": "running",
                "started": _now(),
                "ended": None,
                "seconds": 0.0,
            }
            self._write_manifest()

    def _lock(self) -> None:
        """Held until the process ends, however it ends."""
        self._locked = (self.folder / ".lock").open("a")
        try:
            import fcntl

            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows: two writers are not told apart
            pass
        except OSError:
            self._locked.close()
            raise RunError(
                f"another process is writing to {str(self.folder)!r}",
                hint="Wait for it, or name another folder with --out DIR.",
            ) from None

    def _continue(self, force_new: bool) -> None:
        old = Run(self.folder).manifest
        changed = [
            name
            for name, value in self.identity.items()
            if name not in ("geval",)
            and old.get(name) != json.loads(json.dumps(value, default=str))
        ]
        if changed and not force_new:
            told = "; ".join(_difference(n, old.get(n), self.identity[n]) for n in changed)
            raise RunError(
                f"the run in {str(self.folder)!r} is another one: {told}",
                hint="Name another folder with --out DIR, or start over with --force-new.",
            )
        if changed or force_new:
            stamp = self._free_stamp()
            for name in (RESULTS, REPLIES, MANIFEST):
                path = self.folder / name
                if path.exists():
                    path.rename(self.folder / f".{stamp}-{name}")
            return
        self.manifest = {**old, "status": "running", "ended": None}
        self._compact()

    def _free_stamp(self) -> str:
        """A time no earlier backup has: starting over twice in a second loses nothing."""
        now = time.strftime("%Y%m%d-%H%M%S")
        stamps = [now, *(f"{now}-{number}" for number in range(2, 1000))]
        return next(s for s in stamps if not any(self.folder.glob(f".{s}-*.json*")))

    def _compact(self) -> None:
        """Drop torn lines and what is to be judged again: rows without overall, retryable ones."""
        results, replies = self.folder / RESULTS, self.folder / REPLIES
        if results.exists():
            self.done = compact(results, self.tally.add)
        if replies.exists():
            cut_torn_line(replies)

    def revisions(self, judges: int) -> list[str | None]:
        """What each judge called itself in an earlier sitting, None where that is not known."""
        known = self.manifest.get("revisions") or []
        return list(known) if len(known) == judges else [None] * judges

    def sample(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Append the result lines of one sample, at once."""
        _append(self._results, "".join(dumps(record) + "\n" for record in records))
        for record in records:
            self.tally.add(record)

    def reply(self, request: Request, reply: Reply, answers: Sequence[int | None]) -> None:
        """Append a judge's reply with its messages."""
        _append(self._replies, dumps(reply_to_record(request, reply, answers)) + "\n")

    def close(
        self,
        status: str,
        *,
        seconds: float = 0.0,
        paid: Mapping[str, Any] | None = None,
        revisions: Sequence[str | None] = (),
    ) -> Run:
        """Write the manifest with counts, tokens and what was paid, and release the folder."""
        self._results.close()
        self._replies.close()
        before = self.manifest.get("paid") or {}
        self.manifest |= {
            "status": status,
            "ended": _now(),
            "seconds": round(self.manifest.get("seconds", 0.0) + seconds, 3),
            "summary": self.tally.to_dict(),
            "paid": {k: _added(before.get(k, 0), v) for k, v in (paid or {}).items()},
            "revisions": list(revisions) or self.manifest.get("revisions"),
        }
        self._write_manifest()
        if self._locked:
            with contextlib.suppress(OSError):
                self._locked.close()
        return Run(self.folder)

    def _write_manifest(self) -> None:
        text = json.dumps(self.manifest, ensure_ascii=False, indent=2, default=str)
        write_atomic(self.folder / MANIFEST, text + "\n")


def _added(before: float | None, now: float | None) -> float | None:
    """The sum over the sittings of a run; unknown once one of them is."""
    return None if before is None or now is None else before + now


def _difference(name: str, old: Any, new: Any) -> str:
    new = json.loads(json.dumps(new, default=str))
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [k for k in {**old, **new} if old.get(k) != new.get(k)]
        return f"{name}: " + ", ".join(f"{k} was {old.get(k)!r}, is {new.get(k)!r}" for k in keys)
    return f"{name} was {old!r}, is {new!r}"


def _append(file: FileIO, text: str) -> None:
    """Write `text` at once. Raises RunError where the disk is full or gone."""
    rest = memoryview(text.encode("utf-8"))
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        raise RunError(
            f"cannot be written: {error.strerror or error}",
            where=str(file.name),
            hint="What was judged is kept. Make room; the same command continues the run.",
        ) from error


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


def new_folder(template: str, root: Path = Path("runs")) -> Path:
    """A folder name that does not exist yet: runs/<time>-<template>."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{template}"
    for number in range(1, 1000):
        path = root / (stem if number == 1 else f"{stem}-{number}")
        if not path.exists():
            return path
    raise RunError(f"no free run folder under {str(root)!r}")


def unfinished(
    identity: Mapping[str, Any], template: str, root: Path = Path("runs")
) -> Path | None:
    """The latest unfinished run of the same key, or None."""
    key = identity_key(identity)
    for path in sorted(root.glob(f"*-{template}*/{MANIFEST}"), reverse=True):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if manifest.get("key") == key and manifest.get("status") != "complete":
            return path.parent
    return None
