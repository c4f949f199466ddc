"""Tables to files: CSV that opens right in Excel, XLSX, Parquet, JSON Lines.

A file is whole or absent. A writer is a function `(records, path) -> notes` and a line in
`WRITERS`.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geval.errors import ConfigError, DataError

MARK = "geval_run"
"""Column that names the run; by it the CSV reader knows a file that geval wrote."""

Record = dict[str, Any]
Notes = list[str]

_RUNS_AS_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_LONGEST = 32_767
_ILLEGAL = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff\ud800-\udfff]|_(?=x[0-9A-Fa-f]{4}_)")


def write_table(records: Sequence[Record], path: Path, form: str) -> Notes:
    """Write records (all with the same keys) to `path` and return what the user should hear.

    Raises DataError where there is nothing to write or no place to write it.
    """
    if form not in WRITERS:
        raise DataError(f"no writer for {form!r}", hint=f"Known: {', '.join(WRITERS)}.")
    if not records:
        raise DataError("the run holds no results yet")
    return atomically(path, lambda temporary: WRITERS[form](records, temporary))


def atomically(path: Path, write: Callable[[Path], Notes]) -> Notes:
    """Write to a temporary file beside `path` and move it there when it is whole."""
    if path.is_dir():
        raise DataError("is a folder, not a file", where=str(path))
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        notes = write(temporary)
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror or error}", where=str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return notes


def defuse(text: str) -> str:
    """Text that a spreadsheet would run as a formula gets an apostrophe; `undo` takes it away."""
    return f"'{text}" if _RUNS_AS_FORMULA.match(text) else text


def undo(text: str) -> str:
    """The text that `defuse` was given."""
    return text[1:] if text.startswith("'") and _RUNS_AS_FORMULA.match(text) else text


def _plain_cell(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False)
    return value


def _csv(records: Sequence[Record], path: Path) -> Notes:
    nuls = 0
    with path.open("w", encoding="utf-8-sig", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow([defuse(name) for name in records[0]])
        for record in records:
            cells = []
            for value in map(_plain_cell, record.values()):
                if isinstance(value, str):
                    nuls += "\0" in value
                    value = defuse(value.replace("\0", "\ufffd"))
                cells.append("" if value is None else value)
            writer.writerow(cells)
    return [f"{nuls} cells held a NUL, which no CSV can; it stands as \ufffd"] if nuls else []


def _jsonl(records: Sequence[Record], path: Path) -> Notes:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return []


def cell_text(text: str) -> tuple[str, bool]:
    """Text as a workbook can hold it, and whether it had to be cut.

    Control characters are written as Excel does (_x0007_), which readers turn back.
    """
    safe = _ILLEGAL.sub(lambda found: f"_x{ord(found[0]):04X}_", text)
    if len(safe.encode("utf-16-le", "surrogatepass")) <= 2 * _LONGEST:
        return safe, False
    cut = safe.encode("utf-16-le", "surrogatepass")[: 2 * (_LONGEST - 1)]
    return cut.decode("utf-16-le", "ignore") + "…", True


def _xlsx(records: Sequence[Record], path: Path) -> Notes:
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Alignment, Font
    from openpyxl.utils import get_column_letter

    book = Workbook(write_only=True)
    sheet = book.create_sheet("geval")
    sheet.freeze_panes = "B2"
    for place, name in enumerate(records[0], 1):
        longest = max(len(str(r[name])) if r[name] is not None else 0 for r in records[:200])
        sheet.column_dimensions[get_column_letter(place)].width = min(
            60, max(8, len(name) + 2, longest + 2)
        )
    cut = 0

    def cell(value: Any, bold: bool = False) -> Any:
        nonlocal cut
        value = _plain_cell(value)
        if not isinstance(value, str):
            return value
        text, was_cut = cell_text(value)
        cut += was_cut
        made = WriteOnlyCell(sheet, text)
        made.data_type = "s"  # never a formula or an error
        made.font = Font(bold=bold)
        made.alignment = Alignment(vertical="top", wrap_text="\n" in text)
        return made

    sheet.append([cell(name, bold=True) for name in records[0]])
    for record in records:
        sheet.append([cell(value) for value in record.values()])
    book.save(path)
    return [f"{cut} cells were cut at 32,767 characters, the most of Excel"] if cut else []


def _parquet(records: Sequence[Record], path: Path) -> Notes:
    try:
        import pyarrow as arrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            "writing Parquet needs pyarrow",
            hint='Install it: python -m pip install "geval[parquet]"',
        ) from None
    columns = {}
    for name in records[0]:
        values = [record[name] for record in records]
        try:
            columns[name] = arrow.array(values)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError):  # of several types: as text
            texts = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False)
                     for v in values]  # fmt: skip
            columns[name] = arrow.array(texts)
    arrow.parquet.write_table(arrow.table(columns), path)
    return []


WRITERS: dict[str, Callable[[Sequence[Record], Path], Notes]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "xlsx": _xlsx,
}
