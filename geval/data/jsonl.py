"""JSON Lines: one object a line, UTF-8."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator

from geval.data.rows import FileRows, Row
from geval.data.values import parse_json
from geval.errors import DataError


def read(file: FileRows) -> Iterator[Row]:
    """A row for each line that is not blank; a broken line is a row with its fault."""
    with file.open() as lines:
        for number, raw in enumerate(lines, 1):
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
                if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise DataError("the file is UTF-16", where=file.name, hint="Save it as UTF-8.")
                if raw.lstrip().startswith(b"["):
                    raise DataError(
                        "the file is one JSON list, not one object a line",
                        where=file.name,
                        hint="Give it the extension .json.",
                    )
            if raw.strip():
                yield line(raw, file, number)


def line(raw: bytes, file: FileRows, number: int) -> Row:
    """The row in one line of bytes."""
    source = file.source(number)
    try:
        text = raw.rstrip(b"\r\n").decode()
    except UnicodeDecodeError as error:
        byte, place = raw[error.start], error.start + 1
        return Row({}, source, (f"byte {place} of the line, 0x{byte:02X}, is not UTF-8",))
    try:
        return record(parse_json(text), file, number, escaped="\\u" in text)
    except json.JSONDecodeError as error:
        return Row({}, source, (f"column {error.colno}: no valid JSON: {error.msg}",))
    except ValueError as error:
        return Row({}, source, (str(error),))


def record(value: object, file: FileRows, number: int, *, escaped: bool = True) -> Row:
    """The row that a JSON value is; anything but an object is a fault.

    `escaped` says whether its text may hold escapes, which alone can make half a character.
    """
    source = file.source(number)
    if not isinstance(value, dict):
        kind = "null" if value is None else type(value).__name__
        return Row({}, source, (f"is {kind}, not a JSON object",))
    try:
        if escaped:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Row({}, source, ("holds half a character (a lone \\ud8xx), which is no text",))
    return Row(value, source)
