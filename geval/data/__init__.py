"""Data to judge: readers by format, columns to fields, and validation before any call.

A format is one module (see `geval.data.rows`) and one line in `READERS`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from geval.data.columns import header_names, map_columns
from geval.data.mapping import ColumnMapping, Input, Invalid
from geval.data.rows import (
    FileRows,
    MemoryRows,
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
    "read_rows",
]

READERS: dict[str, str] = {
    "csv": "geval.data.csv",
    "json": "geval.data.json",
    "jsonl": "geval.data.jsonl",
    "ndjson": "geval.data.jsonl",
    "tsv": "geval.data.csv",
}


def read_rows(data: Any, *, sheet: str | None = None, header: Collection[str] = ()) -> Rows:
    """Rows of `data`, which can be iterated more than once.

    `data` is a path (also `.gz`), `-` for JSON Lines on standard input, a pandas DataFrame, or an
    iterable of dicts (one that can be iterated only once is kept in memory). `sheet` names a
    sheet of a workbook; `header` are names by which a header row is found (`header_names`).
    Raises DataError for an unknown format or a missing file.
    """
    if isinstance(data, Rows):
        return data
    if isinstance(data, (str, Path)):
        return _file(data, sheet, header)
    if sheet is not None:
        raise DataError("data in memory has no sheets", hint="Leave the sheet out.")
    if hasattr(data, "itertuples") and hasattr(data, "columns"):
        return MemoryRows(lambda: frame_records(data), "the DataFrame")
    if isinstance(data, (bytes, Mapping)) or not isinstance(data, Iterable):
        raise DataError(
            f"cannot read rows from {type(data).__name__}",
            hint="Give a path, '-', a DataFrame or an iterable of dicts.",
        )
    records: Iterable[Any] = list(data) if isinstance(data, Iterator) else data
    return MemoryRows(lambda: records, "the rows given")


def _file(data: str | Path, sheet: str | None, header: Collection[str]) -> FileRows:
    stdin = str(data) == "-"
    ending = "jsonl" if stdin else extension(Path(data))
    if ending not in READERS:
        raise DataError(
            f"no reader for the extension {ending!r}",
            where=str(data),
            hint=nearest(ending, READERS),
        )
    module = importlib.import_module(READERS[ending])
    if sheet is not None and not getattr(module, "SHEETS", False):
        raise DataError(f"{ending} has no sheets", where=str(data), hint="Leave the sheet out.")
    reader = cast(Callable[[FileRows], Iterator[Row]], module.read)
    if stdin:
        return spool(sys.stdin.buffer, reader)
    return FileRows(find_file(Path(data)), reader, sheet=sheet, header=header)
