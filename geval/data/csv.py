"""CSV and TSV: a header, then one record a row; `Source.row` is the record's first line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import TextIO

from geval.data.columns import clean
from geval.data.encoding import text_encoding
from geval.data.rows import FileRows, Row
from geval.data.write import MARK, undo
from geval.errors import DataError
from geval.notes import told

_LARGEST_CELL = 2**31 - 1  # the largest a C long takes on every system; the default is 128 KiB


def read(file: FileRows) -> Iterator[Row]:
    """A row for each record; cells are text as written. Records without any text are skipped."""
    encoding = text_encoding(file)
    delimiter = _delimiter(file, encoding)
    header: list[str] = []
    empty, found, ours = 0, False, False
    # newline="" keeps line breaks within cells as they are
    with io.TextIOWrapper(file.open(), encoding=encoding, newline="") as text:
        for number, cells in _records(file, text, delimiter):
            if not any(cell.strip() for cell in cells):
                empty += bool(cells)
            elif not header:
                header = _header(file, cells)
                ours = MARK in header
            else:
                found = True
                cells = [undo(cell) for cell in cells] if ours else cells
                yield _row(file, number, header, cells)
    if not header:
        raise DataError("the file holds no text", where=file.name)
    if not found:
        raise DataError("the file has a header and no rows", where=file.name)
    if empty:
        file.note(told("csv_empty", n=empty))


def _records(file: FileRows, text: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the number of its first line."""
    csv.field_size_limit(_LARGEST_CELL)
    lines = csv.reader(text, delimiter=delimiter, strict=True)
    while True:
        number = lines.line_num + 1
        try:
            cells = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            # raised, not yielded: after a stray quote no later record can be trusted
            reason = (
                "a quoted cell that begins here is never closed"
                if "unexpected end" in str(error)
                else f"broken quoting: {error}"
            )
            raise DataError(
                f"{reason}; rows behind it cannot be told apart",
                where=str(file.source(number)),
                hint='A quote within a quoted cell is written twice: "".',
            ) from error
        yield number, cells


def _delimiter(file: FileRows, encoding: str) -> str:
    if file.extension == "tsv":
        return "\t"
    with io.TextIOWrapper(file.open(), encoding=encoding, newline="") as text:
        first = next((line for line in text if line.strip()), "")
    if "\t" in first and file.extension == "txt":
        return "\t"  # "Unicode text" of Excel
    if "," not in first:
        for mark, name in ((";", "csv_semicolons"), ("\t", "csv_tabs")):
            if mark in first:
                file.note(told(name))
                return mark
    return ","


def _header(file: FileRows, cells: list[str]) -> list[str]:
    """Clean names of the columns; one without a name is called by its place."""
    names = [clean(cell) or f"column {place}" for place, cell in enumerate(cells, 1)]
    for place, name in enumerate(names, 1):
        first = names.index(name) + 1
        if first < place:
            raise DataError(
                f"columns {first} and {place} are both named {name!r}",
                where=file.name,
                hint="Rename one of them.",
            )
    return names


def _row(file: FileRows, number: int, header: list[str], cells: list[str]) -> Row:
    faults: tuple[str, ...] = ()
    if len(cells) != len(header):
        faults = (f"{len(cells)} cells where the header has {len(header)}",)
    return Row(dict(zip(header, cells, strict=False)), file.source(number), faults)
