"""A row made a Sample: the mapping from columns to fields, and what is wrong with a row."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from geval.data.rows import Row
from geval.data.values import (
    Number,
    as_messages,
    as_text,
    as_texts,
    cut_by_excel,
    is_missing,
    json_object,
    plain,
)
from geval.notes import told
from geval.sample import Sample, Source

_WHOLE = re.compile(r"(?<=[0-9])\.0$")

Warn = Callable[[str, Source], None]


class Input(Protocol):
    """What a template declares of one field."""

    @property
    def type(self) -> Literal["text", "texts", "messages"]:
        """One text, a list of texts, or a conversation."""

    @property
    def required(self) -> bool:
        """Whether every row must have it, and not blank."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further names of its column."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """A row that cannot be judged; `faults` are all that is wrong with it.

    The id is the row's own, or made from its number (`@7`) where it has none for itself.
    """

    id: str
    source: Source
    faults: tuple[str, ...]

    @property
    def reason(self) -> str:
        """All faults in one line."""
        return "; ".join(self.faults)


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """The columns that fields are read from; `str()` is one line that says so.

    `fields` has every declared input: its columns in order, none where an optional one is absent.
    Without an `id` column a row's number (data rows, from 1) is its id. `readers` read the cells
    of fields whose form the template knows better than the type does, raising ValueError.
    """

    inputs: Mapping[str, Input]
    fields: Mapping[str, tuple[str, ...]]
    id: str | None = None
    group: str | None = None
    label: str | None = None
    criteria: tuple[str, ...] = ()
    used: frozenset[str] = field(default=frozenset(), repr=False)
    readers: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.shown("(none)", "(row number)", "label")

    def shown(self, none: str, number: str, label: str) -> str:
        """One line that says which column each field has, in these words."""
        parts = [
            f"{name} <- {' + '.join(columns) or none}" for name, columns in self.fields.items()
        ]
        parts.append(f"id <- {self.id or number}")
        parts += [
            f"{name} <- {column}"
            for name, column in (("group", self.group), ("label", self.label))
            if column
        ]
        parts += [f"{label} {name} <- {name}" for name in self.criteria]
        return ", ".join(parts)

    def to_sample(
        self, row: Row, number: int, warn: Warn = lambda text, source: None
    ) -> Sample | Invalid:
        """The sample that data row `number` (from 1) is, or all its faults."""
        try:
            return self._sample(row, number, warn)
        except RecursionError:  # rows in memory; files are measured when they are read
            return Invalid(f"@{number}", row.source, ("nested too deeply",))

    def _sample(self, row: Row, number: int, warn: Warn) -> Sample | Invalid:
        flat, labels, faults = flatten(row.values, self.inputs)
        name = row.prefix + self._name(flat, number, faults, row.letters)
        if row.faults:  # what else such a row lacks would only repeat the fault
            return Invalid(name, row.source, row.faults)
        fields: dict[str, Any] = {}
        for key, columns in self.fields.items():
            try:
                fields[key] = self._field(key, columns, flat, row, warn)
            except ValueError as error:
                faults.append(f"column {_columns(key, columns, row.letters)}: {error}")
        group = flat.get(self.group) if self.group else None
        self._labels(flat, labels, faults)
        if faults:
            return Invalid(name, row.source, tuple(faults))
        return Sample(
            id=name,
            fields=fields,
            group=None if is_missing(group) else _key(group),
            labels=labels,
            extra={key: plain(value) for key, value in flat.items() if key not in self.used},
            source=row.source,
        )

    def _name(
        self, flat: Mapping[str, Any], number: int, faults: list[str], letters: Mapping[str, str]
    ) -> str:
        if self.id is None:
            return str(number)
        value = flat.get(self.id)
        if is_missing(value):
            faults.append(f"column {_columns(self.id, (self.id,), letters)}: the id is missing")
            return f"@{number}"
        try:
            return _key(value)
        except ValueError as error:
            faults.append(f"column {_columns(self.id, (self.id,), letters)}: the id {error}")
            return f"@{number}"

    def _field(
        self,
        name: str,
        columns: tuple[str, ...],
        flat: Mapping[str, Any],
        row: Row,
        warn: Warn,
    ) -> Any:
        spec = self.inputs[name]
        cells = [flat[column] for column in columns if not is_missing(flat.get(column))]
        column = _columns(name, columns, row.letters)

        def aloud(text: str) -> None:
            warn(told("column", column=column, text=text), row.source)

        if cut_by_excel(cells):
            aloud(told("cut_by_excel"))
        value: Any = None
        if cells and name in self.readers:
            value = self.readers[name](cells[0])
        elif cells and spec.type == "text":
            value = as_text(cells[0])
        elif cells and spec.type == "messages":
            value = as_messages(cells[0], aloud) or None
        elif cells and len(columns) > 1:
            value = tuple(
                text
                for cell in cells
                for text in (as_texts(cell, aloud) if isinstance(cell, list) else [as_text(cell)])
            )
        elif cells:
            value = as_texts(cells[0], aloud) or None
        if value is None and spec.required:
            raise ValueError("is missing or blank")
        return value

    def _labels(self, flat: Mapping[str, Any], labels: dict[str, Any], faults: list[str]) -> None:
        found = {name: flat.get(name) for name in self.criteria}
        if self.label is not None:
            value = flat.get(self.label)
            given = json_object(value)
            found |= {"overall": value} if given is None else dict(given)
        for name, value in found.items():
            if is_missing(value) or plain(value) is None:
                continue
            if labels.setdefault(name, plain(value)) != plain(value):
                faults.append(f"two labels for {name}: {labels[name]!r} and {value!r}")


def flatten(
    values: Mapping[str, Any], keep: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Columns with an object `inputs` spread out, the object `labels` apart, and faults.

    Names in `keep` (fields of the template) are left as they are.
    """
    columns, labels, faults = dict(values), {}, []
    if "labels" not in keep and (found := json_object(values.get("labels"))) is not None:
        del columns["labels"]
        labels = {str(key): plain(value) for key, value in found.items() if not is_missing(value)}
    if "inputs" not in keep and (found := json_object(values.get("inputs"))) is not None:
        del columns["inputs"]
        for key, value in found.items():
            if key in columns:
                faults.append(f"column {key}: stands beside `inputs` and in it")
            columns[key] = value
    return columns, labels, faults


def _columns(name: str, columns: tuple[str, ...], letters: Mapping[str, str]) -> str:
    text = " + ".join(
        f"{letters[column]} {column}" if column in letters else column for column in columns
    )
    return f"{text} ({name})" if columns != (name,) and text else text or name


def _key(value: Any) -> str:
    text = as_text(value)
    if isinstance(value, Number):  # 7.0 of a JSON file is the id 7 of another
        text = _WHOLE.sub("", text)
    return unicodedata.normalize("NFC", text).strip()
