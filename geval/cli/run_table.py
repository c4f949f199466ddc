"""The table of a run on standard output: the first rows, whatever their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geval.runs.rows import Row
    from geval.runs.run import Run

SHOWN = 50


def words_of(run: Run, template: str, templates: Sequence[Path]) -> Mapping[str, Any]:
    """Report words of the run's locale, which may lie beside the user's own templates."""
    from geval.locale import report_words
    from geval.template import locale_folders, search_path

    folders = [Path(template).resolve().parent, *search_path(templates)]
    return report_words(run.manifest["template"]["locale"], locale_folders(folders))


def print_table(run: Run, word: Mapping[str, Any]) -> None:
    """Print the first rows, a legend, and on standard error the first rows that failed."""
    from rich.markup import escape
    from rich.table import Table

    from geval.cli import ui
    from geval.runs.rows import First, rows_of, why
    from geval.runs.run import table_rows

    names = list(run.manifest["template"]["weights"])
    titles = _titles(run)
    shown, failed, figures = First(SHOWN), First(5, why), First(5, _figures)
    for judged in rows_of(run.results()):
        for kept in (shown, failed, figures):
            kept.add(judged)
    rows = table_rows(record for row in shown.rows() for record in row)
    spread = ui.out.width >= 40 + 14 * len(names)  # a narrow terminal keeps the scores
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(word["id"], overflow="fold", min_width=6)
    for name in names:
        table.add_column(
            escape(titles.get(name, name)), justify="right", overflow="fold", min_width=4
        )
    table.add_column(f"{word['overall']} (0–1)", justify="right", style="bold", min_width=6)
    table.add_column(word["coverage"], justify="right", min_width=5)
    for row in rows:
        whole = row.get("status") != "unscored"
        table.add_row(
            escape(_short(str(row["id"]))) + (f" #{row['repeat']}" if row["repeat"] else ""),
            *(_score_cell(row, name, word["not_applicable"], spread) for name in names),
            word["not_applicable"]
            if row.get("status") == "not_applicable"
            else _cell(row.get("overall"), "{:.3f}") + ("*" if row.get("capped") else ""),
            _cell(row.get("coverage") if whole else None, "{:.3f}"),
        )
    ui.out.print(table)
    if legend := _legend(rows, word, spread):
        ui.out.print(legend, style="dim", markup=False, soft_wrap=True)
    if shown.seen > SHOWN:
        more = word["more_rows"].format(n=shown.seen - SHOWN, path=run.folder / "results.jsonl")
        ui.out.print(more, markup=False, soft_wrap=True)
    for kept_row in failed.rows():
        told = f"{kept_row[-1]['id']}: {why(kept_row)}"
        ui.err.print(told, style="red", markup=False, soft_wrap=True)
    for kept_row in figures.rows():
        texts = ", ".join(_short(text, 40) for text in _figures(kept_row)[:8])
        told = f"{_short(str(kept_row[-1]['id']))}: numbers_unmatched: {texts}"
        ui.err.print(told, style="yellow", markup=False, soft_wrap=True)


def _figures(row: Row) -> list[str]:
    return list(row[-1].get("numbers_unmatched") or ())


def _short(text: str, most: int = 24) -> str:
    """A long id must not push the scores off the screen; results.jsonl has it whole."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _score_cell(row: dict[str, Any], name: str, not_applicable: str, spread: bool) -> str:
    """Score and, with `spread`, its ±; "-" is unscored.

    That is the standard deviation over the levels, or the standard error of an aggregate of units.
    """
    if row.get(f"{name}_status") == "not_applicable":
        return not_applicable
    score, sd, se = (row.get(key) for key in (name, f"{name}_sd", f"{name}_se"))
    told = f" ±{sd:.1f}" if sd is not None else "" if se is None else f" ±{se:.2f}"
    return _cell(score, "{:.2f}") + (told if score is not None and spread else "")


def _legend(rows: Sequence[dict[str, Any]], word: Mapping[str, Any], spread: bool) -> str:
    told = [word["legend_sd"]] if spread else []
    if any(row.get("capped") for row in rows):
        told.append(word["legend_capped"])
    if any(row.get("status") == "unscored" for row in rows):
        told.append(word["legend_unscored"])
    return " · ".join(told)


def _titles(run: Run) -> dict[str, str]:
    titles = run.manifest["template"].get("titles", {})
    return dict(titles)


def _cell(value: Any, form: str) -> str:
    return "-" if value is None else form.format(value)
