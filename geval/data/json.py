"""JSON: one list of objects, UTF-8. Read whole; `Source.row` is the place in the list."""

from __future__ import annotations

import json
from collections.abc import Iterator

from geval.data.jsonl import record
from geval.data.rows import FileRows, Row
from geval.data.values import parse_json
from geval.errors import DataError


def read(file: FileRows) -> Iterator[Row]:
    """A row for each item of the list."""
    with file.open() as stream:
        raw = stream.read()
    try:
        found = parse_json(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise DataError(
            f"byte 0x{byte:02X} at offset {error.start} is not UTF-8", where=file.name
        ) from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"no valid JSON: {error.msg}",
            where=f"{file.name}, line {error.lineno}, column {error.colno}",
        ) from error
    except ValueError as error:
        raise DataError(f"no valid JSON: {error}", where=file.name) from error
    if not isinstance(found, list):
        raise DataError("the file is no list of objects, [{...}, {...}]", where=file.name)
    for number, item in enumerate(found, 1):
        yield record(item, file, number)
