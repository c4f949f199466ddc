"""What calamine does not tell of an .xlsx: number formats, hidden rows and columns, filters.

The XML is read as a stream with expat. A document type (which alone can define entities) is
refused, and so is an archive that unpacks to more than `MOST_BYTES`.
"""

from __future__ import annotations

import posixpath
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.parsers import expat

from geval.data.number_format import BUILT_IN

MOST_BYTES = 2 << 30
_STEP = 1 << 20


class BrokenArchive(ValueError):
    """The workbook's archive or XML cannot be read; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class CellFact:
    """What is particular about a cell: its number format, or why it has no value."""

    form: str | None = None
    broken: str | None = None


@dataclass(slots=True)
class RowFacts:
    """One `<row>`: number from 1, and the cells (column from 0) with something particular."""

    number: int
    hidden: bool = False
    cells: dict[int, CellFact] = field(default_factory=dict)
    used: int = 0  # number of its last column with a value, from 1


@dataclass(slots=True)
class SheetFacts:
    """What holds for a whole sheet; complete when its rows have been read."""

    hidden_columns: list[tuple[int, int]] = field(default_factory=list)
    filtered: bool = False


Start = Callable[[str, dict[str, str]], None]
End = Callable[[str], None]


def check_archive(stream: BinaryIO) -> None:
    """Refuse an archive that unpacks to more than MOST_BYTES, whatever its directory says.

    Raises BrokenArchive.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
        unpacked = 0
        for member in members:
            unpacked += _unpacked(stream, member, MOST_BYTES - unpacked)
            if unpacked > MOST_BYTES:
                raise BrokenArchive(
                    f"unpacks to more than {MOST_BYTES >> 30} GiB, which no workbook needs"
                )
    except (zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError) as error:
        if isinstance(error, BrokenArchive):
            raise
        raise BrokenArchive(f"the archive is damaged: {error}") from error


def _unpacked(stream: BinaryIO, member: zipfile.ZipInfo, most: int) -> int:
    """Bytes a member truly unpacks to, or a few more than `most`."""
    if member.compress_type != zipfile.ZIP_DEFLATED:
        return member.compress_size
    if 1032 * member.compress_size < _STEP:  # deflate packs no better: too small to matter
        return member.file_size
    stream.seek(member.header_offset + 26)
    name, extra = struct.unpack("<HH", stream.read(4))
    stream.seek(name + extra, 1)
    inflate, left, size = zlib.decompressobj(-15), member.compress_size, 0
    while left > 0 and size <= most and not inflate.eof:
        block = stream.read(min(65_536, left))
        if not block:
            break
        left -= len(block)
        size += len(inflate.decompress(block))  # at most 1032 times the block
    return size


class Package:
    """The parts of an .xlsx that are read here; `stream` must stay open."""

    def __init__(self, stream: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(stream)
        except zipfile.BadZipFile as error:
            raise BrokenArchive(f"the archive is damaged: {error}") from error
        self.names = frozenset(self._zip.namelist())
        self._book = self._target("", "/officeDocument") or "xl/workbook.xml"
        self._sheets = self._find_sheets()
        self._formats: list[str | None] | None = None

    def sheet_path(self, sheet: str) -> str | None:
        """The part that holds a sheet's cells."""
        return self._sheets.get(sheet)

    def relations(self, part: str) -> Mapping[str, tuple[str, str]]:
        """Relations of a part: id -> (last word of the type, path of the target)."""
        folder, name = posixpath.split(part)
        found: dict[str, tuple[str, str]] = {}

        def start(tag: str, attributes: dict[str, str]) -> None:
            if tag == "Relationship" and attributes.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, attributes["Target"]))
                kind = attributes["Type"].rpartition("/")[2]
                found[attributes["Id"]] = (kind, target.lstrip("/"))

        path = posixpath.join(folder, "_rels", f"{name}.rels")
        if path in self.names:
            self._parse(path, start)
        return found

    def _target(self, part: str, kind: str) -> str | None:
        relations = self.relations(part).values()
        return next((path for word, path in relations if f"/{word}" == kind), None)

    def _find_sheets(self) -> dict[str, str]:
        targets = self.relations(self._book)
        found: dict[str, str] = {}

        def start(tag: str, attributes: dict[str, str]) -> None:
            relation = next(
                (v for k, v in attributes.items() if k.endswith("relationships id")), ""
            )
            if tag == "sheet" and relation in targets:
                found[attributes["name"]] = targets[relation][1]

        if self._book in self.names:
            self._parse(self._book, start)
        return found

    def formats(self) -> list[str | None]:
        """The number format of each cell style, by its index; None where there is none."""
        if self._formats is not None:
            return self._formats
        own: dict[int, str] = {}
        styles: list[int] = []
        inside: list[str] = []

        def start(tag: str, attributes: dict[str, str]) -> None:
            if tag == "numFmt":
                own[int(attributes["numFmtId"])] = attributes["formatCode"]
            elif tag == "xf" and inside and inside[-1] == "cellXfs":
                styles.append(int(attributes.get("numFmtId", 0)))
            elif tag in ("cellXfs", "cellStyleXfs", "dxfs"):
                inside.append(tag)

        def end(tag: str) -> None:
            if inside and tag == inside[-1]:
                inside.pop()

        path = self._target(self._book, "/styles")
        if path in self.names and path is not None:
            self._parse(path, start, end)
        self._formats = [own.get(number, BUILT_IN.get(number)) for number in styles]
        return self._formats

    def rows(self, part: str, facts: SheetFacts) -> Iterator[RowFacts]:
        """The rows of a sheet, streamed; `facts` is filled on the way."""
        reader = _SheetReader(self.formats(), facts)
        parser = _parser(reader.start, reader.end)
        parser.CharacterDataHandler = reader.text
        with self._zip.open(part) as stream:
            while block := stream.read(_STEP):
                _feed(parser, block, part, False)
                yield from reader.taken()
            _feed(parser, b"", part, True)
            yield from reader.taken()

    def extent(self, part: str) -> tuple[str, int]:
        """The cell farthest out ("XFD1048576") and how many cells a full table up to it has."""
        last_row = last_column = 0
        for row in self.rows(part, SheetFacts()):
            if row.used:
                last_row, last_column = row.number, max(last_column, row.used)
        return f"{column_letter(max(0, last_column - 1))}{last_row}", last_row * last_column

    def _parse(self, path: str, start: Start, end: End = lambda tag: None) -> None:
        parser = _parser(start, end)
        try:
            with self._zip.open(path) as stream:
                while block := stream.read(_STEP):
                    _feed(parser, block, path, False)
            _feed(parser, b"", path, True)
        except (KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            if isinstance(error, BrokenArchive):
                raise
            raise BrokenArchive(f"{path} is damaged: {error}") from error


class _SheetReader:
    """Rows out of the events of a sheet's XML."""

    def __init__(self, formats: list[str | None], facts: SheetFacts) -> None:
        self._formats, self._facts = formats, facts
        self._ready: list[RowFacts] = []
        self._row = RowFacts(0)
        self._column = -1
        self._style = 0
        self._type = ""
        self._formula = self._value = self._inside = False

    def taken(self) -> list[RowFacts]:
        ready, self._ready = self._ready, []
        return ready

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "c":
            place = attributes.get("r")
            self._column = column_index(place) if place else self._column + 1
            self._style = int(attributes.get("s", 0))
            self._type = attributes.get("t", "n")
            self._formula = self._value = False
        elif tag in ("v", "is"):
            self._inside = tag == "v"
            self._row.used = max(self._row.used, self._column + 1)
        elif tag == "f":
            self._formula = True
        elif tag == "row":
            number = int(attributes.get("r", self._row.number + 1))
            self._row = RowFacts(number, _true(attributes.get("hidden")))
            self._column = -1
        elif tag == "col" and _true(attributes.get("hidden")):
            first, last = int(attributes["min"]) - 1, int(attributes["max"]) - 1
            self._facts.hidden_columns.append((first, last))
        elif tag == "filterColumn":
            self._facts.filtered = True

    def text(self, text: str) -> None:
        self._value = self._value or (self._inside and bool(text.strip()))

    def end(self, tag: str) -> None:
        if tag == "v":
            self._inside = False
        elif tag == "c":
            fact = None
            if self._type == "e":
                fact = CellFact(broken="holds an error of the spreadsheet (#N/A, #REF!, ...)")
            elif self._formula and not self._value and self._type != "str":
                fact = CellFact(
                    broken="holds a formula that was never computed; "
                    "open the file in Excel and save it"
                )
            elif self._type == "n" and self._style < len(self._formats):
                form = self._formats[self._style]
                fact = CellFact(form) if form else None
            if fact:
                self._row.cells[self._column] = fact
        elif tag == "row":
            self._ready.append(self._row)


def column_index(place: str) -> int:
    """The column (from 0) of a cell such as "AB12"."""
    index = 0
    for char in place:
        if not char.isalpha():
            break
        index = 26 * index + ord(char.upper()) - 64
    return index - 1


def column_letter(index: int) -> str:
    """The letters of a column (from 0): 0 is A, 27 is AB."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def _true(value: str | None) -> bool:
    return value in ("1", "true")


def _parser(start: Start, end: End) -> expat.XMLParserType:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def doctype(*_: object) -> None:
        raise BrokenArchive("holds an XML document type, which no workbook needs")

    def begin(tag: str, attributes: dict[str, str]) -> None:
        start(tag.rpartition(" ")[2], attributes)

    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda tag: end(tag.rpartition(" ")[2])
    return parser


def _feed(parser: expat.XMLParserType, block: bytes, part: str, last: bool) -> None:
    try:
        parser.Parse(block, last)
    except expat.ExpatError as error:
        raise BrokenArchive(f"{part} is no valid XML: {error}") from error
