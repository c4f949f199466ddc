"""Rows of a data source, which can be read as often as needed.

A reader is a module with one function, `read(file: FileRows) -> Iterator[Row]`:

- it takes bytes from `file.open()` (decompressed), never from the path;
- it yields one `Row` per record in order, with `file.source(n)`, n the physical line or sheet row;
- a record that cannot be used is yielded too, with its `faults`, so that all are found at once;
- what ends the reading (a wrong encoding, no header) is raised as DataError;
- what the user should hear (an encoding, rows skipped) goes to `file.note()`;
- what is costly to find out is kept in `file.memo` for the next pass;
- `SHEETS = True` in the module says that it reads `file.sheet`.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import json
import os
import shutil
import tempfile
import unicodedata
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, cast

from geval.data.values import plain
from geval.errors import DataError
from geval.sample import Source


class Row(NamedTuple):
    """One record: column -> value as read, where it stands, and what is wrong with it.

    `letters` are the columns' letters in a workbook; `prefix` goes before the id where the rows
    of several sheets are read together.
    """

    values: dict[str, Any]
    source: Source
    faults: tuple[str, ...] = ()
    letters: Mapping[str, str] = MappingProxyType({})
    prefix: str = ""


Reader = Callable[["FileRows"], Iterator[Row]]


class Rows(ABC):
    """Rows that can be iterated more than once.

    `name` is for messages. `notes` is what the user should hear (the encoding used, ...); it is
    complete after the first full pass.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep a note once, however often the source is read."""
        if text not in self.notes:
            self.notes.append(text)

    @abstractmethod
    def __iter__(self) -> Iterator[Row]: ...

    @abstractmethod
    def sha256(self) -> str:
        """Hash of the content: decompressed bytes of a file, canonical JSON of rows in memory."""


class FileRows(Rows):
    """Rows of one file.

    `sheet` names a sheet where the format has sheets; `header` holds folded names (see
    `columns.fold`) by which a reader may recognise a header row below a title.
    """

    def __init__(
        self,
        path: Path,
        reader: Callable[[FileRows], Iterator[Row]],
        *,
        name: str | None = None,
        sheet: str | None = None,
        header: Collection[str] = (),
    ) -> None:
        super().__init__(name or unicodedata.normalize("NFC", path.name))
        self.path, self.sheet, self.header = path, sheet, frozenset(header)
        self.memo: dict[str, Any] = {}
        self._reader = reader
        self._state: tuple[int, int] | None = None

    @property
    def extension(self) -> str:
        """The format's extension, without dot and `.gz`."""
        return extension(self.path)

    def open(self) -> BinaryIO:
        """The bytes of the file, decompressed."""
        if self.path.name.lower().endswith(".gz"):
            return cast(BinaryIO, gzip.open(self.path, "rb"))
        return self.path.open("rb")

    def source(self, row: int | None = None, sheet: str | None = None) -> Source:
        """Where a row of this file stands."""
        return Source(self.name, row, sheet)

    def __iter__(self) -> Iterator[Row]:
        self._check_unchanged()
        empty = True
        try:
            for row in self._reader(self):
                empty = False
                yield row
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(
                f"the compressed file is damaged or cut off: {error}", where=self.name
            ) from error
        except OSError as error:
            raise self._unreadable(error) from error
        if empty:
            raise DataError("the file holds no rows", where=self.name)

    def sha256(self) -> str:
        """Hash of the bytes, decompressed."""
        digest = hashlib.sha256()
        try:
            with self.open() as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except (OSError, EOFError, zlib.error) as error:
            raise self._unreadable(error) from error
        return digest.hexdigest()

    def _check_unchanged(self) -> None:
        # rows are judged in a later pass than they were validated in
        try:
            stat = self.path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        state = (stat.st_size, stat.st_mtime_ns)
        if self._state not in (None, state):
            raise DataError("the file was changed while it was being read", where=self.name)
        self._state = state

    def _unreadable(self, error: Exception) -> DataError:
        reason = error.strerror if isinstance(error, OSError) else None
        return DataError(f"cannot be read: {reason or error}", where=self.name)


class MemoryRows(Rows):
    """Rows that are in memory: each record a mapping; `records` gives a fresh iterator."""

    def __init__(self, records: Callable[[], Iterable[Any]], name: str) -> None:
        super().__init__(name)
        self._records = records

    def __iter__(self) -> Iterator[Row]:
        number = 0
        for number, record in enumerate(self._records(), 1):
            source = Source(row=number)
            if isinstance(record, Mapping):
                yield Row({str(key): value for key, value in record.items()}, source)
            else:
                kind = type(record).__name__
                yield Row({}, source, (f"is of type {kind}, not a dict of column and value",))
        if not number:
            raise DataError("there are no rows", where=self.name)

    def sha256(self) -> str:
        """Hash of the rows as JSON with sorted keys, one a line."""
        digest = hashlib.sha256()
        for record in self._records():
            text = json.dumps(
                plain(record), ensure_ascii=False, sort_keys=True, separators=(",", ":")
            )
            digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        return digest.hexdigest()


class Filled(Rows):
    """Rows with columns that hold one value for all rows, in place of columns of that name."""

    def __init__(self, rows: Rows, values: Mapping[str, Any]) -> None:
        super().__init__(rows.name)
        self.rows, self.values = rows, dict(values)
        self.notes = rows.notes

    def __iter__(self) -> Iterator[Row]:
        for row in self.rows:
            yield row._replace(values={**row.values, **self.values})

    def sha256(self) -> str:
        """Hash of the rows as they were read; the values added are not in it."""
        return self.rows.sha256()


def frame_records(frame: Any) -> Iterator[dict[str, Any]]:
    """Records of a pandas or polars DataFrame; neither package is imported."""
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"two columns are named {twice[0]!r}", where="the DataFrame")
    if hasattr(frame, "itertuples"):
        tuples = frame.itertuples(index=False, name=None)
    else:
        tuples = frame.iter_rows()
    for values in tuples:
        yield dict(zip(names, values, strict=True))


def spool(stream: BinaryIO, reader_of: Callable[[str], Reader]) -> FileRows:
    """Rows of a stream that can be read only once: copied to a temporary file for the time.

    The format is told by the content: JSON Lines, JSON, a workbook, Parquet, else CSV.
    """
    start = stream.read(64)
    ending = _format_of(start)
    handle, name = tempfile.mkstemp(prefix="geval-", suffix=f".{ending}")
    with os.fdopen(handle, "wb") as copy:
        copy.write(start)
        shutil.copyfileobj(stream, copy)
    path = Path(name)
    rows = FileRows(path, reader_of(ending.removesuffix(".gz")), name="stdin")
    weakref.finalize(rows, path.unlink, missing_ok=True)
    return rows


def _format_of(start: bytes) -> str:
    if start.startswith(b"\x1f\x8b"):
        return "jsonl.gz"
    if start.startswith((b"PK", b"\xd0\xcf\x11\xe0")):
        return "xlsx"
    if start.startswith(b"PAR1"):
        return "parquet"
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text or text.startswith(b"{"):
        return "jsonl"
    return "json" if text.startswith(b"[") else "csv"


def extension(path: Path) -> str:
    """Extension that names the format: lower case, without dot and `.gz`."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix.removeprefix(".")


def find_file(path: Path) -> Path:
    """The existing file `path`; a name stored decomposed (NFD, as macOS does) is found as well.

    Raises DataError where there is none.
    """
    found = path if path.exists() else _decomposed(path)
    if found is None:
        raise DataError("there is no such file", where=str(path), hint=_near(path))
    if found.is_dir():
        raise DataError("is a folder, not a file", where=str(path))
    return found


def _near(path: Path) -> str:
    """What there is in place of a missing file: the nearest names of its folder, or no folder."""
    folder = path.parent
    try:
        names = [entry.name for entry in folder.iterdir() if entry.is_file()]
    except OSError:
        return f"There is no folder {str(folder)!r}."
    shown = {unicodedata.normalize("NFC", name): name for name in names}
    wanted = unicodedata.normalize("NFC", path.name)
    close = difflib.get_close_matches(wanted, shown, n=3, cutoff=0.5)
    same = [name for name in shown if Path(name).stem == Path(wanted).stem and name not in close]
    found = [*close, *same][:3]
    place = f"the folder {str(folder)!r}" if path.parent.name else "this folder"
    if not found:
        return f"No file in {place} has a name like it."
    return f"In {place} there is: {', '.join(map(repr, found))}."


def _decomposed(path: Path) -> Path | None:
    """`path` with each part spelled as the file system has it; parts compare after NFC."""
    found = Path(path.anchor)
    for part in path.parts[1:] if path.anchor else path.parts:
        if not (found / part).exists():
            wanted = unicodedata.normalize("NFC", part)
            try:
                names = [entry.name for entry in found.iterdir()]
            except OSError:
                return None
            same = [name for name in names if unicodedata.normalize("NFC", name) == wanted]
            if not same:
                return None
            part = same[0]
        found = found / part
    return found
