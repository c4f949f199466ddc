"""The runs of a folder, newest first, each told in a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from geval.errors import RunError
from geval.result import OVERALL
from geval.runs.find import run_folders, started
from geval.runs.run import Run
from geval.runs.tally import Tally

State = Literal["complete", "running", "interrupted", "damaged"]


@dataclass(frozen=True, slots=True)
class Listed:
    """One run. `rows` counts repeats; `mean` is on 0..1; `fault` says why a run is damaged."""

    name: str
    folder: str
    started: str | None = None
    template: str | None = None
    locale: str | None = None
    judge: str | None = None
    scored: int | None = None
    done: int | None = None
    rows: int | None = None
    mean: float | None = None
    status: State = "damaged"
    rescored_from: str | None = None
    fault: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return asdict(self)


def runs_in(root: Path) -> list[Listed]:
    """The runs right under `root` (or `root` itself), newest first.

    A run that cannot be read is listed as damaged. Raises RunError where there is no such folder.
    """
    if not root.is_dir():
        raise RunError(
            f"there is no folder {str(root)!r}",
            hint="`geval score` puts runs into ./runs; `geval runs FOLDER` lists another folder.",
        )
    folders = sorted(run_folders(root), key=started, reverse=True)
    if not folders and (root / "manifest.json").is_file():
        folders = [root]
    return [_listed(folder) for folder in folders]


def status_of(run: Run) -> State:
    """What became of a run: one that is not complete and that nobody writes was interrupted."""
    if run.manifest.get("status") == "complete":
        return "complete"
    return "running" if is_written(run.folder) else "interrupted"


def is_written(folder: Path) -> bool:
    """Whether a process is writing to a run folder now (never known on Windows)."""
    try:
        import fcntl

        with (folder / ".lock").open() as file:
            # A shared lock: two readers that look at once do not take each other for a writer.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


def counts_of(run: Run) -> dict[str, Any]:
    """The counts of a run's overall score: from its manifest, else from its result lines.

    Only a complete run's manifest holds the last word. Raises RunError for a damaged line.
    """
    if run.manifest.get("status") == "complete":
        summary = run.manifest.get("summary")
        counts = summary.get(OVERALL) if isinstance(summary, dict) else None
        if isinstance(counts, dict) and isinstance(counts.get("scored"), int):
            return counts
    return dict(tally_of(run).to_dict()[OVERALL])


def tally_of(run: Run) -> Tally:
    """Counts over the result lines, read as a stream. Raises RunError for a damaged line."""
    tally = Tally.of_run(run.manifest)
    for record in run.results():
        counted(run, tally, record)
    return tally


def counted(run: Run, tally: Tally, record: Mapping[str, Any]) -> None:
    """Count one result line. Raises RunError where it holds what geval does not write."""
    try:
        tally.add(record)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise damaged(run, record, error) from None


def damaged(run: Run, record: Mapping[str, Any], error: Exception) -> RunError:
    """What is told of a result line with a value of another kind than geval writes."""
    return RunError(
        f"row {record.get('id')!r}, criterion {record.get('criterion')!r}: a value is of another "
        f"kind than geval writes ({error})",
        where=str(run.folder / "results.jsonl"),
        hint="Restore the line as geval wrote it.",
    )


def _listed(folder: Path) -> Listed:
    try:
        run = Run(folder)
        return _of_run(run)
    except RunError as error:
        return Listed(folder.name, str(folder), fault=str(error).splitlines()[0])


def _of_run(run: Run) -> Listed:
    told, template = run.manifest, run.manifest["template"]
    rescored = told.get("rescored")
    known: dict[str, Any] = {
        "started": _text(told.get("started")),
        "template": _text(template.get("name")),
        "locale": _text(template.get("locale")),
        "judge": judges_of(told),
        "rows": rows_of(told),
        "rescored_from": _text(rescored.get("run")) if isinstance(rescored, dict) else None,
    }
    try:
        counts = counts_of(run)
    except RunError as error:
        fault = str(error).splitlines()[0]
        return Listed(run.folder.name or str(run.folder), str(run.folder), **known, fault=fault)
    mean = counts.get("mean")
    return Listed(
        run.folder.name or str(run.folder.resolve().name),
        str(run.folder),
        **known,
        scored=counts["scored"],
        done=sum(counts.get(s) or 0 for s in ("scored", "unscored", "not_applicable")),
        mean=mean if isinstance(mean, float | int) else None,
        status=status_of(run),
    )


def rows_of(manifest: Mapping[str, Any]) -> int | None:
    """Rows that a run has to judge, repeats counted; None where its manifest does not tell."""
    data, repeat = manifest["data"], manifest["settings"].get("repeat") or 1
    parts = (data.get("rows"), data.get("invalid") or 0, repeat)
    if not all(isinstance(n, int) for n in parts):
        return None
    return int((parts[0] + parts[1]) * parts[2])


def judges_of(manifest: Mapping[str, Any]) -> str:
    """The judges of a run by their specs."""
    return " + ".join(str(j.get("spec")) for j in manifest["judges"] if isinstance(j, dict))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
