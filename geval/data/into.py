"""A copy of the user's workbook with the results beside its rows; the original is left alone."""

from __future__ import annotations

import hashlib
import math
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geval.data.rows import find_file
from geval.data.sheet_xml import BrokenArchive, check_archive
from geval.data.table import check_same
from geval.data.write import Notes, atomically, cell_text
from geval.errors import DataError
from geval.locale import load_locale, words
from geval.result import OVERALL
from geval.runs.run import Run

_LOST: Mapping[str, str] = {
    "xl/charts/": "charts",
    "xl/media/": "images",
    "xl/drawings/drawing": "drawings and shapes",
    "xl/slicers/": "slicers",
    "xl/threadedComments/": "threaded comments",
    "xl/ctrlProps/": "form controls",
    "xl/embeddings/": "embedded objects",
    "xl/queryTables/": "data queries",
    "customXml/": "custom XML",
}

Place = tuple[str, int]


def lost(path: Path) -> list[str]:
    """What of a workbook the copy may lose or change: charts, images, ...

    Raises DataError for a file that is no .xlsx or .xlsm.
    """
    try:
        with path.open("rb") as stream:
            check_archive(stream)
            names = zipfile.ZipFile(stream).namelist()
    except BrokenArchive as error:
        raise DataError(
            f"is no .xlsx that can be written: {error}",
            where=str(path),
            hint="Save it as .xlsx, without a password or DRM.",
        ) from error
    found = [word for part, word in _LOST.items() if any(n.startswith(part) for n in names)]
    if path.suffix.lower() != ".xlsm" and any(n.endswith("vbaProject.bin") for n in names):
        found.append("macros")
    return found


def write_into(run: Run, book: str | Path, *, force: bool = False) -> tuple[Path, Notes]:
    """Write BOOK_geval_<time>.xlsx: results after the last used column, by sheet and row.

    Adds a summary sheet. Raises DataError where the run did not judge this workbook (`force`
    goes on all the same: rows are then matched by number alone).
    """
    path = find_file(Path(book))
    results = _by_place(run)
    if not results:
        raise DataError(
            f"the run judged {run.manifest['data']['name']!r}, which is no workbook",
            where=str(path),
            hint="Write a new file instead: geval export RUN --to xlsx",
        )
    lost(path)
    if not force:
        check_same(run, hashlib.sha256(path.read_bytes()).hexdigest(), str(path))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = path.with_name(f"{path.stem}_geval_{stamp}{path.suffix}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.stem}_geval_{stamp}-{number}{path.suffix}")
    notes = atomically(target, lambda temporary: _write(run, results, path, temporary))
    return target, notes


def _by_place(run: Run) -> dict[Place, list[dict[str, Any]]]:
    found: dict[Place, list[dict[str, Any]]] = {}
    for record in run.results():
        sheet, row = record["source"].get("sheet"), record["source"].get("row")
        if sheet is not None and row is not None:
            found.setdefault((sheet, row), []).append(record)
    return found


def _write(
    run: Run, results: Mapping[Place, list[dict[str, Any]]], source: Path, target: Path
) -> Notes:
    from openpyxl import load_workbook
    from openpyxl.styles import Alignment, Font

    try:
        book = load_workbook(source, keep_vba=source.suffix.lower() == ".xlsm", rich_text=True)
    except Exception as error:  # openpyxl raises what its parts happen to raise
        raise DataError(
            f"cannot be copied: {type(error).__name__}: {error}", where=str(source)
        ) from error
    titles = _titles(run)
    cut = 0

    def put(sheet: Any, row: int, column: int, value: Any) -> Any:
        nonlocal cut
        cell = sheet.cell(row, column)
        if isinstance(value, str):
            text, was_cut = cell_text(value)
            cut += was_cut
            cell.value, cell.data_type = text, "s"
        else:
            cell.value = value
        return cell

    for name in dict.fromkeys(sheet for sheet, _ in results):
        if name not in book.sheetnames:
            raise DataError(f"has no sheet {name!r} any more", where=str(source))
        sheet = book[name]
        rows = sorted(row for place, row in results if place == name)
        last = _last_column(sheet)
        header = _header_row(sheet, rows[0])
        for offset, title in enumerate(titles.values(), 1):
            cell = put(sheet, header, last + offset, title)
            cell.font = Font(bold=True)
            sheet.column_dimensions[cell.column_letter].width = 16
        for row in rows:
            values = _cells(run, results[name, row], titles)
            for offset, value in enumerate(values, 1):
                cell = put(sheet, row, last + offset, value)
                cell.alignment = Alignment(vertical="top", wrap_text=isinstance(value, str))
                if isinstance(value, float):
                    cell.number_format = "0.000" if offset == 1 else "0.00"
    word = words(load_locale(run.manifest["template"]["locale"]))
    summary = book.create_sheet(f"geval_{word.get('summary', 'summary')}")
    for number, pair in enumerate(_summary(run, word), 1):
        for column, value in enumerate(pair, 1):
            put(summary, number, column, value)
    summary.column_dimensions["A"].width, summary.column_dimensions["B"].width = 28, 60
    book.save(target)
    notes = ["formulas are computed again when the copy is opened"] if _formulas(book) else []
    if cut:
        notes.append(f"{cut} cells were cut at 32,767 characters, the most of Excel")
    return notes


def _formulas(book: Any) -> bool:
    cells = (cell for sheet in book.worksheets for row in sheet.iter_rows() for cell in row)
    return any(cell.data_type == "f" for cell in cells)


def _titles(run: Run) -> dict[str, str]:
    """Headings of the added columns: overall, each criterion, reason, status."""
    template = run.manifest["template"]
    word = words(load_locale(template["locale"]))
    blank = "" if template["locale"] == "ko" else "_"
    named = {
        OVERALL: word["overall"],
        **{name: (template.get("titles") or {}).get(name) or name for name in template["weights"]},
        "reason": word["reason"],
        "status": word["status"],
    }
    return {name: f"geval_{blank.join(str(title).split())}" for name, title in named.items()}


def _cells(run: Run, records: Sequence[dict[str, Any]], titles: Mapping[str, str]) -> list[Any]:
    """The values beside one row; over repeats the mean of those that were scored."""
    template = run.manifest["template"]
    word = words(load_locale(template["locale"]))
    found: list[Any] = []
    for name in (OVERALL, *template["weights"]):
        scores = [r["score"] for r in records if r["criterion"] == name and r["score"] is not None]
        states = [r["status"] for r in records if r["criterion"] == name]
        if scores:
            found.append(math.fsum(scores) / len(scores))
        else:
            found.append(word["not_applicable"] if "not_applicable" in states else None)
    reasons = [
        f"{titles[r['criterion']].removeprefix('geval_')}: {r['reason']}"
        for r in records
        if r["reason"] and r["repeat"] == 0
    ]
    whole = [r for r in records if r["criterion"] == OVERALL]
    errors = [r["error"]["message"] for r in records if r["error"] and r["criterion"] != OVERALL]
    status = ", ".join(dict.fromkeys(str(word[r["status"]]) for r in whole))
    return [*found, "\n".join(reasons) or None, status + (f": {errors[0]}" if errors else "")]


def _last_column(sheet: Any) -> int:
    """The last column that holds something (styles alone do not count)."""
    cells = (cell for row in sheet.iter_rows() for cell in row if cell.value is not None)
    used = max((cell.column for cell in cells), default=0)
    merged = max((area.max_col for area in sheet.merged_cells.ranges), default=0)
    return max(used, merged)


def _header_row(sheet: Any, first: int) -> int:
    """The nearest row with something above the first judged one."""
    for row in range(first - 1, 0, -1):
        if any(cell.value is not None for cell in sheet[row]):
            return row
    return max(1, first - 1)


def _summary(run: Run, word: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    manifest = run.manifest
    told, summary = manifest["template"], run.summary
    counts = summary["overall"]
    rows = sum(counts.get(kind, 0) for kind in ("scored", "unscored", "not_applicable"))
    found: list[tuple[Any, ...]] = [
        (word["run_folder"], str(run.folder)),
        (word.get("template", "template"), f"{told['name']} ({told['fingerprint'][:12]})"),
        (word["judge"], " + ".join(judge["spec"] for judge in manifest["judges"])),
        (word["scored"], f"{counts['scored']}/{rows}"),
        (f"{word['mean']} ({word['overall']}, 0–1)", counts.get("mean")),
        (word["pessimistic"], counts.get("pessimistic_mean")),
    ]
    titles = manifest["template"].get("titles") or {}
    for name, one in summary["criteria"].items():
        found.append((f"{word['mean']} ({titles.get(name) or name})", one.get("mean")))
    return found
