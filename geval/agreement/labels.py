"""People's labels from any table: which column is what, what a cell means, who said it.

A label file has an id and, per criterion, one column or several (annotators in columns), or an
annotator column (annotators in rows), or a sheet each. Cells are numbers or spellings ("4점",
상, O/△/X); what each spelling was taken for is told.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geval.agreement.beside import References, find_column
from geval.data import Row, Rows, read_rows
from geval.data.columns import fold
from geval.data.mapping import flatten
from geval.data.values import as_text, is_missing
from geval.errors import DataError, nearest
from geval.locale import (
    DataWords,
    column_families,
    load_locale,
    locale_codes,
    own_folders,
    report_words,
    united,
)
from geval.result import OVERALL


@dataclass
class Labels:
    """Labels by criterion and id: what each annotator said (None: nothing), in their order."""

    name: str
    rows: int = 0
    values: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """criterion -> id -> annotator -> value"""
    ids: dict[str, None] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    systems: dict[str, str] = field(default_factory=dict)
    contradicted: dict[str, list[str]] = field(default_factory=dict)
    """Figures of a row's reference that its documents do not hold."""
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    taken: dict[str, dict[str, float]] = field(default_factory=dict)
    missing: int = 0

    def notes(self, word: Mapping[str, Any] | None = None) -> list[str]:
        """The columns, and what spellings were taken for, in sentences of a locale (English)."""
        word = word or report_words("en")
        told = [
            word["agree_columns"].format(criterion=c, columns=" + ".join(names))
            for c, names in self.columns.items()
        ]
        for criterion, taken in self.taken.items():
            spelled = ", ".join(f"{text} = {value:g}" for text, value in taken.items())
            told.append(word["agree_label_map"].format(criterion=criterion, spelled=spelled))
        if self.missing:
            told.append(word["agree_missing"].format(n=self.missing))
        return told


@dataclass(frozen=True)
class Wanted:
    """What to look for: scales by criterion, and what the user says of columns and cells."""

    scales: Mapping[str, Sequence[float]]
    titles: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    label_map: Mapping[str, float | None] = field(default_factory=dict)
    id: str | None = None
    group: str | None = None
    system: str | None = None
    annotators: Sequence[str] = ()


def read_labels(source: Any, wanted: Wanted, *, sheet: str | None = None) -> Labels:
    """The labels of `source`: a path, a DataFrame, or dicts.

    Raises DataError: a column that is not there (with the nearest), a cell that is no label
    (with its row), two labels of one annotator for one row.
    """
    rows = read_rows(source, sheet=sheet)
    if sheet is None and str(source).lower().endswith((".xlsx", ".xlsm")):
        rows = _every_sheet(source, rows)
    known = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(c for _, values in known for c in values))
    reader = _Reader(rows.name, columns, wanted)
    for number, (row, values) in enumerate(known, 1):
        reader.take(row, values, number)
    if reader.faults:
        raise DataError(
            f"{len(reader.faults)} cells are no labels",
            where=rows.name,
            faults=reader.faults,
            hint="Say what such a spelling means: --label-map 상=5,중=3,하=1,보류=",
        )
    return reader.labels


def _every_sheet(source: Any, rows: Rows) -> Rows:
    """All sheets where people have one each; a workbook of one sheet as it is."""
    try:
        next(iter(rows))
    except DataError:
        return read_rows(source, sheet="*")
    return rows


def _flat(row: Row) -> tuple[Row, dict[str, Any]]:
    """A row with the objects `inputs`, `labels` and `annotators` spread out."""
    columns, labels, _ = flatten(row.values)
    own = columns.get("annotators")
    if isinstance(own, Mapping):
        del columns["annotators"]
        for criterion, said in own.items():
            many = said if isinstance(said, list) else [said]
            if not any(isinstance(one, (Mapping, list)) for one in many):
                columns |= {f"{criterion}/{i}": one for i, one in enumerate(many, 1)}
    spread = {c: v for c, v in labels.items() if not any(k.startswith(f"{c}/") for k in columns)}
    return row, {**columns, **spread}


class _Reader:
    def __init__(self, name: str, columns: list[str], wanted: Wanted) -> None:
        self.columns, self.wanted, self.name = columns, wanted, name
        folders = own_folders()
        self.families, self.cells = column_families(folders), _Cells(united(DataWords, folders))
        self.labels = Labels(name)
        self.faults: list[str] = []
        self.id = self._named(wanted.id, "id")
        self.group = self._named(wanted.group, "group")
        self.system = self._named(wanted.system, "system")
        self.references = References(columns)
        self.annotator: str | None = None
        self.of_criterion: str | None = None
        self.words = {
            code_word
            for code in locale_codes(folders)
            for code_word in map(_key, load_locale(code, folders).not_applicable)
        } | self.cells.missing
        self._annotator_columns()

    def _named(self, given: str | None, kind: str) -> str | None:
        """The column the user names, else the one of the family's names."""
        try:
            return find_column(self.columns, kind, given)
        except DataError as error:
            raise DataError(error.what, where=self.name, hint=error.hint) from None

    def _column(self, given: str, what: str) -> str:
        found = [c for c in self.columns if c == given] or [
            c for c in self.columns if fold(c) == fold(given)
        ]
        if not found:
            raise DataError(
                f"no column {given!r} for {what}",
                where=self.name,
                hint=nearest(given, self.columns),
            )
        return found[0]

    def _annotator_columns(self) -> None:
        """Which columns hold the labels of each criterion, by annotator."""
        wanted = self.wanted
        said = [self._column(c, "annotators") for c in wanted.annotators]
        if not said:
            names = {fold(n) for n in ("annotator", *self.families["annotator"])}
            said = [c for c in self.columns if fold(c) in names][:1]
            pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
            said = said or [
                c for c in self.columns if re.fullmatch(rf"(?:{pattern})/?[0-9]+", fold(c))
            ]
        several = said if len(said) > 1 else []
        if len(said) == 1:
            self.annotator = said[0]
        self.of_criterion = self._named(None, "criterion") or next(
            (c for c in self.columns if fold(c) in {fold(n) for n in self.families["criterion"]}),
            None,
        )
        unknown = [c for c in wanted.columns if c not in wanted.scales]
        if unknown:
            raise DataError(
                f"--map: no criterion {unknown[0]!r}", hint=nearest(unknown[0], wanted.scales)
            )
        found: dict[str, tuple[str, ...]] = {}
        for criterion in wanted.scales:
            mine = self._of(criterion)
            if mine:
                found[criterion] = mine
        single = [c for c in wanted.scales if c != OVERALL]
        target = single[0] if len(single) == 1 else OVERALL
        label = self._named(None, "label")
        named = {c for columns in found.values() for c in columns}
        several = [c for c in several if c not in named]  # given to a criterion by --map
        rest = several or [label for label in (label,) if label and label not in named]
        if target not in found and target in wanted.scales and rest:
            found[target] = tuple(rest)
        if self.of_criterion and label:
            found = dict.fromkeys(wanted.scales, (label,))
        if not found:
            raise DataError(
                "no column holds labels of a criterion",
                where=self.name,
                faults=[f"{c}: {nearest(c, self.columns)}" for c in single],
                hint=f"Name it: --map {next(iter(wanted.scales))}=COLUMN",
            )
        self.labels.columns = found

    def _of(self, criterion: str) -> tuple[str, ...]:
        if criterion in self.wanted.columns:
            return tuple(
                self._column(c, f"labels of {criterion}") for c in self.wanted.columns[criterion]
            )
        names = {fold(criterion), fold(self.wanted.titles.get(criterion, criterion))}
        taken = (self.id, self.group, self.system)
        parts = [
            c for c in self.columns if "/" in c and fold(c.partition("/")[0]) in names
        ] or [c for c in self.columns if re.sub(r"[\d()]+$", "", fold(c)) in names]  # fmt: skip
        plain = tuple(c for c in self.columns if fold(c) in names and c not in taken)
        return plain if plain and len(plain) == len(parts) else tuple(parts) or plain

    def take(self, row: Row, values: dict[str, Any], number: int) -> None:
        """One row of labels."""
        raw = values.get(self.id) if self.id else number
        place = f"row {row.source.row or number}"
        if is_missing(raw):
            self.faults.append(f"{place}: the id is missing")
            return
        name = unicodedata.normalize("NFC", as_text(raw)).strip()
        labels = self.labels
        labels.rows += 1
        labels.ids[name] = None
        for column, target in ((self.group, labels.groups), (self.system, labels.systems)):
            if column and not is_missing(values.get(column)):
                target[name] = as_text(values[column])
        if figures := self.references.contradicted(values):
            labels.contradicted[name] = figures
        only = values.get(self.of_criterion) if self.of_criterion else None
        who = values.get(self.annotator) if self.annotator else row.source.sheet
        for criterion, columns in labels.columns.items():
            if only is not None and not self._means(only, criterion):
                continue
            for column in columns:
                value = self._value(values.get(column), criterion, f"{place}, column {column}")
                if value is None:
                    continue
                by = column if len(columns) > 1 else "" if is_missing(who) else as_text(who)
                said = labels.values.setdefault(criterion, {}).setdefault(name, {})
                if by in said and said[by] != value:
                    self.faults.append(
                        f"{place}: a second label of {by or 'the file'} for {name!r}, "
                        f"{criterion}: {value:g} after {said[by]:g}"
                    )
                said[by] = value

    def _means(self, only: Any, criterion: str) -> bool:
        title = self.wanted.titles.get(criterion, criterion)
        return fold(as_text(only)) in (fold(criterion), fold(title))

    def _value(self, cell: Any, criterion: str, place: str) -> float | None:
        if is_missing(cell):
            self.labels.missing += 1
            return None
        if isinstance(cell, bool):
            cell = "true" if cell else "false"
        text = as_text(cell).strip()
        key = _key(text)
        own = {_key(k): v for k, v in self.wanted.label_map.items()}
        value: float | None
        if key in own:
            value = own[key]
            if value is not None:
                self.labels.taken.setdefault(criterion, {})[text] = value
        elif key in self.words:
            value = None
        elif number := self.cells.number.fullmatch(unicodedata.normalize("NFKC", text)):
            value = float(number[1])
            if text != number[1]:
                self.labels.taken.setdefault(criterion, {})[text] = value
        else:
            value = self.cells.of_word(key, self.wanted.scales[criterion])
            if value is None:
                self.faults.append(f"{place}: {text[:40]!r} is no label")
                return None
            self.labels.taken.setdefault(criterion, {})[text] = value
        if value is None:
            self.labels.missing += 1
        return value


def _key(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold().replace(" ", "")


class _Cells:
    """What cells of labels mean in any locale."""

    def __init__(self, words: DataWords) -> None:
        units = "|".join(map(re.escape, sorted(words.units, key=len, reverse=True)))
        self.number = re.compile(rf"([-+]?\d+(?:\.\d+)?)\s*(?:{units})?", re.IGNORECASE)
        self.missing = frozenset(map(_key, words.missing))
        self._bottom, self._middle, self._top = (
            frozenset(map(_key, ends)) for ends in (words.bottom, words.middle, words.top)
        )

    def of_word(self, key: str, scale: Sequence[float]) -> float | None:
        """A word for the bottom, middle or top of a scale, as its value there."""
        if key in self._bottom:
            return min(scale)
        if key in self._top:
            return max(scale)
        return (min(scale) + max(scale)) / 2 if key in self._middle else None


def parse_label_map(pairs: Iterable[str]) -> dict[str, float | None]:
    """`상=5,중=3,보류=` as a mapping; nothing behind the sign is missing."""
    found: dict[str, float | None] = {}
    for pair in (p for text in pairs for p in text.split(",") if p.strip()):
        text, equals, value = pair.rpartition("=")
        try:
            found[text.strip()] = float(value) if value.strip() else None
        except ValueError:
            equals = ""
        if not equals or not text.strip():
            raise DataError(
                f"--label-map: {pair!r} is no TEXT=NUMBER", hint="Write 상=5,중=3,하=1,보류="
            )
    return found
