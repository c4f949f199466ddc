"""All rows are checked before the first is judged; then they come as samples, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geval.data.columns import UserMap, map_columns
from geval.data.mapping import ColumnMapping, Input, Invalid, Warn, flatten
from geval.data.rows import Rows
from geval.errors import DataError
from geval.notes import told
from geval.sample import Sample, Source

_KEPT = 10_000  # faults whose text is kept; the rest is counted
_HASH = 2**60 - 1


@dataclass(frozen=True, slots=True)
class Loaded:
    """Checked rows. Iterating reads the source again and yields each row, in order.

    `n` counts the samples, `n_invalid` the rows left out (with `skip_invalid`); `notes` is what
    the user should hear: encoding, warnings of cells, rows left out.
    """

    rows: Rows
    mapping: ColumnMapping
    n: int
    n_invalid: int
    notes: tuple[str, ...]
    _first: Mapping[str, tuple[int, Source]] = field(repr=False)

    def __iter__(self) -> Iterator[Sample | Invalid]:
        return _items(self.rows, self.mapping, self._first)

    def samples(self) -> Iterator[Sample]:
        """The valid rows only."""
        return (item for item in self if isinstance(item, Sample))


def load_samples(
    rows: Rows,
    inputs: Mapping[str, Input],
    families: Mapping[str, Sequence[str]],
    map: UserMap = (),
    *,
    skip_invalid: bool = False,
    criteria: Iterable[str] = (),
    readers: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Loaded:
    """Map the columns and check every row.

    Memory does not grow with the rows but for one hash of each id.
    Raises DataError with every fault of every row; with `skip_invalid` only for what spoils the
    whole source: a column that is missing, an encoding, no valid row at all.
    """
    inputs = dict(inputs)
    columns, broken = _scan(rows, inputs)
    try:
        mapping = map_columns(columns, inputs, families, map, criteria=criteria, readers=readers)
    except DataError as error:
        faults = [*error.faults, *broken.texts()]
        raise DataError(error.what, where=rows.name, hint=error.hint, faults=faults) from error
    checked = _check(rows, mapping, {})
    first: dict[str, tuple[int, Source]] = {}
    if checked.suspects:
        first = _first(rows, mapping, checked.suspects)
        checked = _check(rows, mapping, first)
    if checked.fatal or not checked.n or (checked.n_invalid and not skip_invalid):
        raise _refusal(rows, checked)
    notes = [*rows.notes, *checked.warnings.texts()]
    if checked.n_invalid:
        total = checked.n + checked.n_invalid
        notes.append(told("invalid_left_out", n=checked.n_invalid, total=total))
    return Loaded(rows, mapping, checked.n, checked.n_invalid, tuple(notes), first)


class _Faults:
    """Faults in order; all are counted, the text of the first ones is kept."""

    def __init__(self) -> None:
        self.count = 0
        self._texts: list[str] = []

    def add(self, source: Source, texts: Iterable[str]) -> None:
        place = _place(source)
        for text in texts:
            self.count += 1
            if self.count <= _KEPT:
                self._texts.append(f"{place}: {text}")

    def texts(self) -> list[str]:
        more = self.count - len(self._texts)
        return [*self._texts, *([f"{more} further faults"] if more else [])]


class _Warnings:
    """Warnings, each said once with its first row and the number of rows."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Source, int]] = {}

    def __call__(self, text: str, source: Source) -> None:
        first, count = self._found.get(text, (source, 0))
        self._found[text] = (first, count + 1)

    def texts(self) -> list[str]:
        return [
            told("at", place=_where(first, count - 1), text=text)
            for text, (first, count) in self._found.items()
        ]


class _Met:
    """Tells whether a hash was perhaps met before: a Bloom filter (Bloom 1970) of 8 MB.

    It takes no more for a million rows; about one hash in a thousand is then suspected wrongly,
    which a second pass over the ids themselves clears up.
    """

    _BITS = 26

    def __init__(self) -> None:
        self._field = bytearray(1 << (self._BITS - 3))

    def again(self, key: int) -> bool:
        """Whether `key` was met, perhaps; it is from now on."""
        known, mask = True, (1 << self._BITS) - 1
        for place in (key & mask, key >> self._BITS & mask):
            byte, bit = place >> 3, 1 << (place & 7)
            known = known and bool(self._field[byte] & bit)
            self._field[byte] |= bit
        return known


@dataclass(slots=True)
class _Checked:
    n: int = 0
    n_invalid: int = 0
    faults: _Faults = field(default_factory=_Faults)
    warnings: _Warnings = field(default_factory=_Warnings)
    suspects: set[int] = field(default_factory=set)
    fatal: DataError | None = None


def _scan(rows: Rows, inputs: Mapping[str, Input]) -> tuple[list[str], _Faults]:
    """The columns of all rows (JSON rows may differ), and the rows no reader could read."""
    columns: dict[str, None] = {}
    faults = _Faults()
    fatal: DataError | None = None
    try:
        for row in rows:
            faults.add(row.source, row.faults)
            columns.update(dict.fromkeys(flatten(row.values, inputs)[0]))
    except DataError as error:
        fatal = error  # with columns it comes again, together with the faults of the rows
    if not columns:
        if fatal and not faults.count:
            raise fatal
        raise DataError("no row can be read", where=rows.name, faults=faults.texts()) from fatal
    return list(columns), faults


def _check(rows: Rows, mapping: ColumnMapping, first: Mapping[str, tuple[int, Source]]) -> _Checked:
    """One pass: counts, faults, warnings, and hashes of ids that seem to stand twice."""
    checked = _Checked()
    met = _Met()
    try:
        for item in _items(rows, mapping, first, checked.warnings):
            if isinstance(item, Sample):
                checked.n += 1
            else:
                checked.n_invalid += 1
                checked.faults.add(item.source, item.faults)
            if mapping.id is not None and not first:
                key = hash(item.id) & _HASH
                if met.again(key):
                    checked.suspects.add(key)
    except DataError as error:
        checked.fatal = error
    return checked


def _first(rows: Rows, mapping: ColumnMapping, suspects: set[int]) -> dict[str, tuple[int, Source]]:
    """Ids that stand more than once, with the row they stand in first."""
    met: dict[str, tuple[int, Source]] = {}
    again: set[str] = set()
    try:
        for number, item in enumerate(_items(rows, mapping, {}), 1):
            if hash(item.id) & _HASH in suspects:
                if item.id in met:
                    again.add(item.id)
                met.setdefault(item.id, (number, item.source))
    except DataError:
        pass  # the check has it
    return {name: met[name] for name in again}


def _items(
    rows: Rows,
    mapping: ColumnMapping,
    first: Mapping[str, tuple[int, Source]],
    warn: Warn = lambda text, source: None,
) -> Iterator[Sample | Invalid]:
    for number, row in enumerate(rows, 1):
        item = mapping.to_sample(row, number, warn)
        earlier = first.get(item.id)
        if earlier and number > earlier[0]:
            fault = f"the id {item.id!r} stands already in {_place(earlier[1])}"
            faults = item.faults if isinstance(item, Invalid) else ()
            # its own id would be taken for the first row's in the results
            item = Invalid(f"{item.id} (again in row {number})", row.source, (*faults, fault))
        yield item


def _refusal(rows: Rows, checked: _Checked) -> DataError:
    faults, fatal, hint = checked.faults.texts(), checked.fatal, None
    if fatal:
        faults.append(f"{fatal.where}: {fatal.what}" if fatal.where else fatal.what)
        hint = fatal.hint
    elif checked.n:
        hint = "Mend them, or leave such rows out with --skip-invalid."
    count = checked.faults.count + bool(fatal)
    return DataError(
        f"{count} fault{'s' if count > 1 else ''}; no row was judged",
        where=rows.name,
        faults=faults,
        hint=hint,
    )


def _where(first: Source, more: int) -> str:
    """The first row that a warning is about, and how many more there are."""
    key = "place_row" if first.sheet is None else "place_sheet_row"
    place = _place(first) if first.row is None else told(key, sheet=first.sheet, row=first.row)
    return told("place_and_more", place=place, n=more) if more else place


def _place(source: Source) -> str:
    return str(Source("", source.row, source.sheet))
