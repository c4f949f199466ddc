"""A run as one HTML file for people: charts, the lowest rows, a table to search, the settings.

The file opens offline and loads nothing. Texts from data are escaped, or stand as JSON that the
page's own script puts in as text; the page's policy lets no other script run.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from geval.errors import RunError
from geval.locale import report_words
from geval.report import parts
from geval.report.collect import MOST_ROWS, Collector
from geval.report.interval import intervals
from geval.report.page import json_block, json_text, shell
from geval.report.prompts import prompts_of
from geval.runs.run import Run

FILE = "report.html"
CANARY = "canary.json"


def write_report(
    run: Run, path: Path | None = None, *, word: Mapping[str, Any] | None = None
) -> Path:
    """Write the report of a run (default: `report.html` in its folder) and return its path.

    `word` are report words in place of those of the template's locale. The results are read once,
    as a stream. Raises RunError where they cannot be read or the file cannot be written.
    """
    target = path or run.folder / FILE
    told = word or report_words(run.manifest["template"].get("locale") or "en")
    with tempfile.TemporaryFile() as rows:
        collected = Collector(run.manifest, rows)
        for record in run.results():
            try:
                collected.add(record)
            except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
                raise RunError(
                    f"row {record.get('id')!r}, criterion {record.get('criterion')!r}: a value is "
                    f"of another kind than geval writes ({error})",
                    where=str(run.folder / "results.jsonl"),
                    hint="Restore the line as geval wrote it.",
                ) from None
        try:
            _write(target, _page(run, collected, told))
        except OSError as error:
            raise RunError(
                f"the report cannot be written: {error.strerror or error}", where=str(target)
            ) from None
    return target


def _page(run: Run, collected: Collector, word: Mapping[str, Any]) -> Iterator[str]:
    spans, how = intervals(collected.sums)
    view = parts.View(run.manifest, collected, word, spans, how)
    lowest = collected.lowest()
    prompts = prompts_of(run, [parts.told_by(records) for records in lowest])
    body: list[Iterable[str]] = [
        ['<main class="page">'],
        parts.head(view),
        parts.notes(view, _canary(run)),
        parts.criteria(view),
        parts.panel(view),
        parts.lowest(view, lowest, prompts),
        parts.rows(view, min(collected.rows, MOST_ROWS)),
        parts.settings(view),
        ["</main>"],
        json_block("meta", [json_text(parts.meta(view))]),
        json_block("rows", _listed(collected.places.chosen(MOST_ROWS))),
    ]
    return shell(
        parts.title(view),
        str(run.manifest["template"].get("locale") or "en"),
        (text for some in body for text in some),
        style=_own("report.css"),
        script=_own("report.js"),
    )


def _listed(lines: Iterator[str]) -> Iterator[str]:
    start = "[\n"
    for line in lines:
        yield start + line
        start = ",\n"
    yield "[]" if start == "[\n" else "\n]"


def _canary(run: Run) -> Mapping[str, Any] | None:
    """What `geval template canary` measured, where its result lies in the run folder."""
    try:
        found = json.loads((run.folder / CANARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _own(name: str) -> str:
    return (resources.files("geval.report") / name).read_text(encoding="utf-8")


def _write(path: Path, pieces: Iterable[str]) -> None:
    """The whole file or none of it; a bounded piece of it is held in memory."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            for text in pieces:
                file.write(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
