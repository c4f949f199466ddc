"""Data to judge: readers by format, columns to fields, and validation before any call.

A format is one module (see `geval.data.rows`) and one line in `READERS`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from geval.data.columns import header_names, map_columns, mapped_names
from geval.data.mapping import ColumnMapping, Input, Invalid
from geval.data.rows import (
    FileRows,
    MemoryRows,
    Reader,
    Row,
    Rows,
    extension,
    find_file,
    frame_records,
    spool,
)
from geval.data.validate import Loaded, load_samples
from geval.errors import DataError, nearest

__all__ = [
    "READERS",
    "ColumnMapping",
    "FileRows",
    "Input",
    "Invalid",
    "Loaded",
    "MemoryRows",
    "Row",
    "Rows",
    "header_names",
    "load_samples",
    "map_columns",
    "mapped_names",
    "read_rows",
]

READERS: dict[str, str] = {
    "csv": "geval.data.csv",
    "json": "geval.data.json",
    "jsonl": "geval.data.jsonl",
    "ndjson": "geval.data.jsonl",
    "ods": "geval.data.xlsx",
    "parquet": "geval.data.parquet",
    "tsv": "geval.data.csv",
    "txt": "geval.data.csv",
    "xls": "geval.data.xlsx",
    "xlsb": "geval.data.xlsx",
    "xlsm": "geval.data.xlsx",
    "xlsx": "geval.data.xlsx",
}


def read_rows(data: Any, *, sheet: str | None = None, header: Collection[str] = ()) -> Rows:
    """Rows of `data`, which can be iterated more than once.

    `data` is a path (also `.gz`), `-` for standard input (JSON Lines, or what the content is), a
    pandas or polars DataFrame, or an iterable of dicts such as a Hugging Face data set (one that
    can be iterated only once is kept in memory). `sheet` names a
    sheet of a workbook; `header` are names by which a header row is found (`header_names`).
    Raises DataError for an unknown format or a missing file.
    """
    if isinstance(data, Rows):
        return data
    if isinstance(data, (str, Path)):
        return _file(data, sheet, header)
    if sheet is not None:
        raise DataError("data in memory has no sheets", hint="Leave the sheet out.")
    if hasattr(data, "columns") and (hasattr(data, "itertuples") or hasattr(data, "iter_rows")):
        return MemoryRows(lambda: frame_records(data), "the DataFrame")
    if isinstance(data, Mapping) and type(data).__name__ == "DatasetDict":
        raise DataError(
            "the data set has several splits", hint=f"Give one of them: {', '.join(data)}."
        )
    if isinstance(data, (bytes, Mapping)) or not isinstance(data, Iterable):
        raise DataError(
            f"cannot read rows from {type(data).__name__}",
            hint="Give a path, '-', a DataFrame or an iterable of dicts.",
        )
    records: Iterable[Any] = list(data) if isinstance(data, Iterator) else data
    return MemoryRows(lambda: records, "the rows given")


def _file(data: str | Path, sheet: str | None, header: Collection[str]) -> FileRows:
    if str(data) == "-":
        rows = spool(sys.stdin.buffer, lambda ending: _reader(ending, "stdin", sheet))
        rows.sheet, rows.header = sheet, frozenset(header)
        return rows
    reader = _reader(extension(Path(data)), str(data), sheet)
    return FileRows(find_file(Path(data)), reader, sheet=sheet, header=header)


def _reader(ending: str, where: str, sheet: str | None) -> Reader:
    """The function that reads a format. Raises DataError for one that is not known."""
    if ending not in READERS:
        raise DataError(
            f"no reader for the extension {ending!r}", where=where, hint=nearest(ending, READERS)
        )
    module = importlib.import_module(READERS[ending])
    if sheet is not None and not getattr(module, "SHEETS", False):
        raise DataError(f"{ending} has no sheets", where=where, hint="Leave the sheet out.")
    return cast(Reader, module.read)
