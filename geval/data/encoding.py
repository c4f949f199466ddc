"""Which encoding a text file is in, decided over the whole file and never by guessing."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from geval.data.protected import protection, remove_protection
from geval.data.rows import FileRows
from geval.errors import DataError
from geval.notes import told

_HINT = "Save the file as UTF-8 (in Excel: CSV UTF-8)."


class _Bad(NamedTuple):
    """The first byte that does not fit; `line` is None where lines cannot be told."""

    offset: int
    line: int | None
    byte: int

    def __str__(self) -> str:
        line = f", line {self.line}," if self.line else ""
        return f"byte 0x{self.byte:02X} at offset {self.offset}{line}"


def text_encoding(file: FileRows) -> str:
    """The encoding of a CSV file: UTF-8 (with or without BOM), UTF-16 with BOM, else cp949.

    cp949 is what Korean Excel writes; it contains euc-kr. Anything but UTF-8 is noted aloud.
    Raises DataError that names the first byte which fits none of them, or a NUL.
    """
    if "encoding" not in file.memo:
        file.memo["encoding"] = _find(file)
    return str(file.memo["encoding"])


def _find(file: FileRows) -> str:
    with file.open() as stream:
        start = stream.read(512)
    if not start:
        raise DataError("the file is empty", where=file.name)
    if reason := protection(start):
        raise DataError(reason, where=file.name, hint=remove_protection())
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        if bad := _first_bad_utf16(file):
            raise DataError(f"{bad} is not UTF-16", where=file.name, hint=_HINT)
        file.note(told("utf16"))
        return "utf-16"
    bad = _first_bad(file, "utf-8")
    if bad is None:
        return "utf-8-sig"
    if start.startswith(codecs.BOM_UTF8):
        raise DataError(f"{bad} is not UTF-8", where=file.name, hint=_HINT)
    korean = _first_bad(file, "cp949")
    if korean is not None:
        raise DataError(
            f"{bad} is not UTF-8, and {korean} is not cp949", where=file.name, hint=_HINT
        )
    file.note(told("cp949"))
    return "cp949"


def _first_bad(file: FileRows, encoding: str) -> _Bad | None:
    # line by line: no character of UTF-8 or cp949 holds the byte of a line feed
    offset = 0
    with file.open() as lines:
        for number, raw in enumerate(lines, 1):
            if b"\0" in raw:
                raise _nul(file, f" at offset {offset + raw.index(0)}, line {number}")
            try:
                raw.decode(encoding)
            except UnicodeDecodeError as error:
                return _Bad(offset + error.start, number, raw[error.start])
            offset += len(raw)
    return None


def _first_bad_utf16(file: FileRows) -> _Bad | None:
    decoder = codecs.getincrementaldecoder("utf-16")()
    read = 0
    with file.open() as stream:
        while True:
            block = stream.read(1 << 20)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                kept = len(error.object) - len(block)  # bytes left over from the block before
                return _Bad(read - kept + error.start, None, error.object[error.start])
            if "\0" in text:
                raise _nul(file)
            if not block:
                return None
            read += len(block)


def _nul(file: FileRows, place: str = "") -> DataError:
    return DataError(
        f"a NUL{place}: the file is binary (a workbook?) or UTF-16 without its mark",
        where=file.name,
        hint=_HINT,
    )
