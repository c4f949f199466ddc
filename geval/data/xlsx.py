"""Workbooks: .xlsx, .xlsm, .xls, .xlsb, .ods; `Source.row` is the row of the sheet.

calamine reads the cells; number formats, hidden rows and filters come from the XML of an .xlsx.
The sheet is the named one, or the only visible one with the best header: never silently the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import python_calamine as calamine

from geval.data.columns import clean, fold
from geval.data.number_format import show
from geval.data.protected import protection, remove_protection
from geval.data.rows import FileRows, Row
from geval.data.sheet_xml import (
    BrokenArchive,
    CellFact,
    Package,
    RowFacts,
    SheetFacts,
    check_archive,
    column_letter,
)
from geval.data.values import Number, Unreadable, is_missing
from geval.errors import DataError, nearest
from geval.locale import DataWords, own_folders, united
from geval.notes import told

SHEETS = True
WITHIN = 20
"""Rows of a sheet among which a header is looked for."""

_MOST_CELLS = 50_000_000
_HIDDEN = (calamine.SheetVisibleEnum.Hidden, calamine.SheetVisibleEnum.VeryHidden)

Cells = list[Any]


@dataclass(slots=True)
class _Sheet:
    """One sheet: cells by row and column from 0, where its header ends, what its columns are."""

    name: str
    hidden: bool
    cells: Sequence[Cells]
    merged: Sequence[tuple[tuple[int, int], tuple[int, int]]]
    header: int = 0
    hits: int = 0
    first: int = 1  # first data row, from 0
    columns: dict[int, str] = field(default_factory=dict)


def read(file: FileRows) -> Iterator[Row]:
    """A row for each row of the sheets below their headers; blank rows and totals are skipped."""
    with ExitStack() as stack:
        stream = stack.enter_context(file.open())
        book = _open(file, stream)
        stack.callback(book.close)
        package = _package(file, stream)
        every = file.sheet is not None and file.sheet.strip() == "*"
        try:
            _check_extent(file, book, package)
            for sheet in _chosen(file, book):
                yield from _rows(file, sheet, package, every)
        except BrokenArchive as error:
            raise DataError(str(error), where=file.name) from error


def _open(file: FileRows, stream: BinaryIO) -> calamine.CalamineWorkbook:
    start = stream.read(512)
    if "checked" not in file.memo:
        if not start:
            raise DataError("the file is empty", where=file.name)
        if reason := protection(start):
            raise DataError(reason, where=file.name, hint=remove_protection())
        if start.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"<":
            raise DataError(
                "is a web page or XML named like a workbook",
                where=file.name,
                hint="Open it in Excel and save it as .xlsx.",
            )
        if start.startswith(b"PK"):
            try:
                check_archive(stream)
            except BrokenArchive as error:
                raise DataError(str(error), where=file.name) from error
        file.memo["checked"] = True
    stream.seek(0)
    try:
        return calamine.CalamineWorkbook.from_filelike(stream)
    except calamine.PasswordError as error:
        raise DataError(
            "is protected by a password", where=file.name, hint=remove_protection()
        ) from error
    except calamine.CalamineError as error:
        if start.startswith(b"\xd0\xcf\x11\xe0"):
            raise DataError(
                "cannot be opened: it is protected by a password or by DRM, or damaged",
                where=file.name,
                hint=remove_protection(),
            ) from error
        raise DataError(
            f"is no workbook that can be read, or protected by DRM: {error}",
            where=file.name,
            hint=remove_protection(),
        ) from error


def _package(file: FileRows, stream: BinaryIO) -> Package | None:
    """The XML of an .xlsx; None for other workbooks."""
    stream.seek(0)
    if stream.read(2) == b"PK":
        try:
            package = Package(stream)
        except BrokenArchive as error:
            raise DataError(str(error), where=file.name) from error
        if "[Content_Types].xml" in package.names and "xl/workbook.bin" not in package.names:
            return package
    file.note(told("xlsx_no_formats"))
    return None


def _check_extent(file: FileRows, book: calamine.CalamineWorkbook, package: Package | None) -> None:
    """Refuse a sheet whose cells lie so far apart that the table between them fits no memory."""
    if package is None or "extent" in file.memo:
        return
    for name in book.sheet_names:
        part = package.sheet_path(name)
        if part is None or part not in package.names:
            continue
        cell, area = package.extent(part)
        if area > _MOST_CELLS:
            raise DataError(
                f"sheet {name!r} reaches to the cell {cell}: {area:,} cells are too many",
                where=file.name,
                hint="Delete what stands far out (Ctrl+End in Excel goes there) and save again.",
            )
    file.memo["extent"] = True


def _chosen(file: FileRows, book: calamine.CalamineWorkbook) -> list[_Sheet]:
    """The sheets to read, with their headers found."""
    if (kept := file.memo.get("chosen")) and kept[:2] == (file.sheet, file.header):
        return [_load(file, book, *one) for one in kept[2]]
    found = _search(file, book)
    kept = (file.sheet, file.header, [(sheet.name, sheet.hidden) for sheet in found])
    file.memo["chosen"] = kept
    return found


def _search(file: FileRows, book: calamine.CalamineWorkbook) -> list[_Sheet]:
    known = [m for m in book.sheets_metadata if m.typ is calamine.SheetTypeEnum.WorkSheet]
    hidden = [m.name for m in known if m.visible in _HIDDEN]
    names = [m.name for m in known]
    if file.sheet is not None and file.sheet.strip() != "*":
        name = _named(file, names)
        if name in hidden:
            file.note(told("sheet_hidden", sheet=name))
        return [_load(file, book, name, name in hidden)]
    loaded = [_load(file, book, name, name in hidden) for name in names]
    found = [sheet for sheet in loaded if not sheet.hidden and sheet.cells]
    best = max((sheet.hits for sheet in found), default=0)
    if file.sheet is not None:
        found = [sheet for sheet in found if sheet.hits or not file.header]
    elif best or len(found) > 1:
        found = [sheet for sheet in found if sheet.hits == best]
    if not found:
        unseen = [s.name for s in loaded if s.hidden and s.hits]
        more = f"; the hidden sheet {unseen[0]!r} looks like it" if unseen else ""
        raise DataError(
            f"no visible sheet holds rows to judge{more}",
            where=file.name,
            hint=f"Name one: --sheet NAME or NUMBER. Known: {_listed(names)}.",
        )
    if len(found) > 1 and file.sheet is None:
        raise DataError(
            f"{len(found)} sheets may be meant: {', '.join(repr(s.name) for s in found)}",
            where=file.name,
            hint=f"Say which: --sheet {found[0].name!r}, its number, or --sheet '*' for all.",
        )
    if len(names) > 1:
        read_names = [sheet.name for sheet in found]
        left = [n for n in names if n not in read_names]
        of = {"read": ", ".join(map(repr, read_names))}
        said = tuple(told("hidden", name=n) if n in hidden else repr(n) for n in left)
        file.note(told("sheets_left", **of, left=said) if left else told("sheets_read", **of))
    return found


def _named(file: FileRows, names: Sequence[str]) -> str:
    """The sheet with the user's name for it, else with that number, from 1."""
    wanted = str(file.sheet)
    for name in names:
        if fold(name) == fold(wanted):
            return name
    if wanted.strip().isdecimal() and 1 <= int(wanted) <= len(names):
        return names[int(wanted) - 1]
    raise DataError(f"no sheet {wanted!r}", where=file.name, hint=nearest(wanted, names))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"{number} {name!r}" for number, name in enumerate(names, 1))


def _load(file: FileRows, book: calamine.CalamineWorkbook, name: str, hidden: bool) -> _Sheet:
    data = book.get_sheet_by_name(name)
    cells = data.to_python(skip_empty_area=False)
    sheet = _Sheet(name, hidden, cells, data.merged_cell_ranges or [])
    _find_header(file, sheet)
    return sheet


# The header


def _find_header(file: FileRows, sheet: _Sheet) -> None:
    """The row with the most names of required fields, else the first with more than one cell."""
    best = None
    for number, cells in enumerate(sheet.cells[:WITHIN]):
        hits = sum(fold(_name(cell)) in file.header for cell in cells if isinstance(cell, str))
        if hits > sheet.hits:
            best, sheet.hits = number, hits
    if best is None:
        filled = [sum(not _blank(cell) for cell in cells) for cells in sheet.cells[:WITHIN]]
        best = next((n for n, count in enumerate(filled) if count > 1), 0)
        if filled and max(filled) == 1:
            best = filled.index(1)
    sheet.header = best
    if sheet.cells:
        _name_columns(file, sheet)


def _name_columns(file: FileRows, sheet: _Sheet) -> None:
    """Names of the columns; two tiers are joined: "평가자" over "1" is "평가자 / 1"."""
    top, below = sheet.header, sheet.header
    wide = _wide(sheet, top)
    if wide and _two_tiers(sheet, top, wide):
        below = top + 1
    elif above := _wide(sheet, top - 1):
        wide, top = above, top - 1
    else:
        # a header cell merged over more rows than one belongs to the header whole
        below = max((end for (start, _), (end, _) in sheet.merged if start == top), default=below)
    sheet.first = max(top, below, sheet.header) + 1
    names: dict[int, str] = {}
    for column in range(max(map(len, sheet.cells))):
        upper = _name(_cell(sheet, top, wide.get(column, column)))
        lower = _name(_cell(sheet, below, column)) if below != top else ""
        if upper and lower and fold(lower) not in file.header:
            names[column] = f"{upper} / {lower}"
        else:
            names[column] = lower or upper
    if wide and below == top:
        _number(names, wide)
    filled = {
        column
        for cells in sheet.cells[sheet.first :]
        for column, cell in enumerate(cells)
        if not _blank(cell)
    }
    letters: dict[str, int] = {}
    for column, name in list(names.items()):
        if not name and column not in filled:
            del names[column]
            continue
        names[column] = name = name or f"column {column_letter(column)}"
        if name in letters:
            raise DataError(
                f"columns {column_letter(letters[name])} and {column_letter(column)} are both "
                f"named {name!r}",
                where=str(file.source(sheet.header + 1, sheet.name)),
                hint="Rename one of them.",
            )
        letters[name] = column
    sheet.columns = names


def _number(names: dict[int, str], wide: dict[int, int]) -> None:
    """One header cell over several columns of data: 문맥1, 문맥2, ..."""
    for column, first in wide.items():
        names[column] = f"{names[first]}{column - first + 1}" if column != first else names[first]
    for first in set(wide.values()):
        names[first] += "1"


def _wide(sheet: _Sheet, row: int) -> dict[int, int]:
    """Columns under a cell of `row` that is merged over several columns, with its first column."""
    return {
        column: left
        for (top, left), (bottom, right) in sheet.merged
        if top == bottom == row and right > left
        for column in range(left, right + 1)
    }


def _two_tiers(sheet: _Sheet, row: int, wide: dict[int, int]) -> bool:
    """Whether the next row still belongs to the header: it is filled under wide cells only."""
    following = sheet.cells[row + 1] if row + 1 < len(sheet.cells) else []
    filled = {column for column, cell in enumerate(following) if not _blank(cell)}
    return bool(filled) and filled <= wide.keys()


def _name(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return clean("" if is_missing(cell) else str(cell))


def _cell(sheet: _Sheet, row: int, column: int) -> Any:
    if not 0 <= row < len(sheet.cells):
        return ""
    cells = sheet.cells[row]
    return cells[column] if column < len(cells) else ""


def _blank(cell: Any) -> bool:
    return cell == "" or is_missing(cell)


# The rows


class _Facts:
    """The facts of the sheet's XML, in step with its rows."""

    def __init__(self, rows: Iterator[RowFacts]) -> None:
        self._rows = rows
        self._next: RowFacts | None = next(rows, None)

    def of(self, number: int) -> RowFacts:
        """Those of row `number` (from 1), which must not go back."""
        while self._next is not None and self._next.number < number:
            self._next = next(self._rows, None)
        if self._next is not None and self._next.number == number:
            return self._next
        return RowFacts(number)

    def finish(self) -> None:
        for _ in self._rows:
            pass


def _rows(file: FileRows, sheet: _Sheet, package: Package | None, every: bool) -> Iterator[Row]:
    part = package.sheet_path(sheet.name) if package else None
    known = SheetFacts()
    facts = _Facts(package.rows(part, known) if package and part else iter(()))
    letters = {name: column_letter(column) for column, name in sheet.columns.items()}
    wanted = [c for c, name in sheet.columns.items() if fold(name) in file.header]
    tall = _Tall(sheet)
    blank = skipped = totals = hidden = 0
    for number in range(sheet.first, len(sheet.cells)):
        its = facts.of(number + 1)
        cells = sheet.cells[number]
        if all(_blank(cell) for cell in cells) and not any(f.broken for f in its.cells.values()):
            blank += 1
            continue
        skipped, blank = skipped + blank, 0  # blank rows at the end are not counted
        values = {
            name: tall.value(number, column, _value(_cell(sheet, number, column), fact))
            for column, name in sheet.columns.items()
            for fact in (its.cells.get(column),)
        }
        if _is_total(cells, values, [sheet.columns[c] for c in wanted]):
            totals += 1
            continue
        hidden += its.hidden
        yield Row(
            values,
            file.source(number + 1, sheet.name),
            letters=letters,
            prefix=f"{sheet.name}:" if every else "",
        )
    facts.finish()
    if sheet.header and sheet.hits:
        file.note(told("header_row", sheet=sheet.name, row=sheet.header + 1))
    for count, key in (
        (tall.filled, "sheet_filled"),
        (skipped, "sheet_blank"),
        (totals, "sheet_totals"),
        (hidden, "sheet_filtered_rows" if known.filtered else "sheet_hidden_rows"),
    ):
        if count:
            file.note(told(key, sheet=sheet.name, n=count))
    unseen = [
        f"{column_letter(column)} {name}"
        for column, name in sheet.columns.items()
        if any(first <= column <= last for first, last in known.hidden_columns)
    ]
    if unseen:
        file.note(told("sheet_hidden_columns", sheet=sheet.name, columns=", ".join(unseen)))


class _Tall:
    """Cells merged over several rows: their value belongs to each of the rows."""

    def __init__(self, sheet: _Sheet) -> None:
        self._top: dict[int, list[tuple[int, int]]] = {}  # column -> its merged rows, sorted
        for (top, left), (bottom, _) in sorted(sheet.merged):
            if bottom > top >= sheet.first:
                self._top.setdefault(left, []).append((top, bottom))
        self._held: dict[int, tuple[int, Any]] = {}  # column -> last merged row and the value
        self.filled = 0

    def value(self, row: int, column: int, own: Any) -> Any:
        """The value of a cell: its own, or that of the merged cell it lies in."""
        ranges = self._top.get(column)
        if not ranges:
            return own
        last, value = self._held.get(column, (-1, None))
        if row <= last:
            if is_missing(own) and not is_missing(value):
                self.filled += 1
                return value
            return own
        while ranges and ranges[0][1] < row:
            ranges.pop(0)
        if ranges and ranges[0][0] <= row:
            self._held[column] = (ranges[0][1], own)
        return own


def _is_total(cells: Cells, values: dict[str, Any], wanted: Sequence[str]) -> bool:
    """Whether a row is a footer such as 합계: named so, and without what a row must have."""
    filled = [cell for cell in cells if not _blank(cell)]
    first = filled[0] if filled else None
    if not isinstance(first, str) or fold(first).rstrip(":.") not in _footers(own_folders()):
        return False
    if wanted:
        return any(is_missing(values[name]) for name in wanted)
    return all(isinstance(cell, (int, float)) for cell in filled[1:])


@lru_cache(maxsize=8)
def _footers(folders: tuple[Path, ...]) -> frozenset[str]:
    return frozenset(map(fold, united(DataWords, folders).footers))


def _value(cell: Any, fact: CellFact | None) -> Any:
    """A cell's value: whole numbers without .0, numbers in their format, dates as ISO text."""
    if fact and fact.broken:
        return Unreadable(fact.broken)
    if cell == "":
        return None
    if isinstance(cell, bool):
        return cell
    if isinstance(cell, float):
        shown = show(cell, fact.form) if fact and fact.form else None
        if shown is not None and shown != _general(cell):
            return Number.shown(cell, shown)
        return int(cell) if cell.is_integer() and abs(cell) < 1e15 else cell
    if isinstance(cell, datetime):
        whole = cell.time() == time()
        return cell.date().isoformat() if whole else cell.isoformat(" ", "seconds")
    if isinstance(cell, (date, time)):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        minutes, seconds = divmod(round(cell.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return cell


def _general(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
