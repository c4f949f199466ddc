"""`geval rescore`: new weights, threshold, calibration or aggregate, without a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.cli.run_argument import RunName
from geval.errors import UsageError

if TYPE_CHECKING:
    from geval.runs.rescore import Rescored

_EXAMPLES = """
Examples:

  geval rescore last --weights numeric_accuracy=3,completeness=1

  geval rescore RUN --threshold 0.7 --calibration calibration.yaml

  geval rescore RUN --aggregate f_beta:beta=2

  geval rescore RUN --template templates/mine.ko.jinja --out runs/new-weights
"""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("rescore", epilog=_EXAMPLES)(rescore)


def rescore(
    run: RunName,
    weights: Annotated[
        list[str] | None,
        typer.Option("--weights", "-w", help="CRITERION=WEIGHT, comma-separated or repeated."),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Overall score (0 to 1) that passes.")
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option("--calibration", help="A file of `geval calibrate --out`, or none."),
    ] = None,
    aggregate: Annotated[
        str | None,
        typer.Option("--aggregate", help="How units become a score: mean, min, f_beta:beta=2, ..."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option("--template", "-t", help="A template with the same prompts: its weights, ..."),
    ] = None,
    templates: Annotated[
        list[Path] | None,
        typer.Option("--templates", help="Further folder of templates (repeatable)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder (default: runs/<time>-<template>-rescored)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a run anew from its own results: no judge is asked, the run stays as it is.

    Writes a new run folder and says what changed. A template whose prompts or scales differ from
    those that were judged is refused.
    """
    from geval.cli import ui
    from geval.cli.report import after_score
    from geval.judges.records import dumps
    from geval.locale import report_words
    from geval.runs.find import open_run
    from geval.runs.rescore import rescore as score_anew

    done = score_anew(
        open_run(run),
        weights=_weights(weights or []),
        threshold=threshold,
        calibration=calibration,
        aggregate=None if aggregate is None else _aggregate(aggregate),
        template=template,
        templates=templates or [],
        out=out,
    )
    word = report_words(str(done.run.manifest["template"].get("locale") or "en"))
    if as_json:
        ui.json_lines([dumps(done.to_dict())])
    else:
        _print(done, word)
    ui.note(after_score(done.run, word))


def _weights(given: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in (p for text in given for p in text.split(",") if p.strip()):
        name, equals, value = part.rpartition("=")
        name = name.strip()
        try:
            if not equals or not name:
                raise ValueError
            number = float(value)
        except ValueError:
            raise UsageError(f"--weights {part.strip()}: expected CRITERION=WEIGHT") from None
        if name in found:
            raise UsageError(f"--weights {name} is given twice")
        found[name] = number
    return found


def _aggregate(text: str) -> dict[str, dict[str, float]]:
    name, _, rest = text.partition(":")
    given: dict[str, float] = {}
    for part in (p for p in rest.split(",") if p.strip()):
        key, _, value = part.partition("=")
        try:
            given[key.strip()] = float(value)
        except ValueError:
            raise UsageError(f"--aggregate {text}: expected NAME or NAME:KEY=NUMBER") from None
    return {name.strip(): given}


def _print(done: Rescored, word: Mapping[str, Any]) -> None:
    from rich.table import Table

    from geval.cli import ui
    from geval.cli.terminal import line, plain
    from geval.result import OVERALL

    for change in done.changes:
        ui.out.print(plain(line(change, 300)), soft_wrap=True)
    ui.out.print()
    titles = done.run.manifest["template"].get("titles") or {}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(plain(f"{word['mean']} (0–1)"))
    for key in ("rescore_before", "rescore_after"):
        table.add_column(plain(word[key]), justify="right")
    names = [OVERALL, *done.run.manifest["template"]["weights"]]
    for name in names:
        was, now = (
            (s["overall"] if name == OVERALL else s["criteria"].get(name, {})).get("mean")
            for s in (done.before, done.after)
        )
        title = word["overall"] if name == OVERALL else titles.get(name) or name
        table.add_row(plain(line(title, 60)), _number(was), _number(now))
    ui.out.print(table)
    moved = word["rescore_moved"].format(moved=done.moved, rows=done.rows)
    ui.out.print(plain(moved), soft_wrap=True)
    for one in done.most:
        marked = f" #{one.repeat}" if one.repeat else ""
        told = f"  {line(one.id, 60)}{marked}: {_number(one.before)} → {_number(one.after)}"
        ui.out.print(plain(told), soft_wrap=True)
    if passed := done.after.get("passed"):
        ui.out.print(plain(word["show_passed"].format_map(passed)), soft_wrap=True)
    ui.out.print(plain(f"{word['run_folder']} {done.run.folder}"), soft_wrap=True)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
