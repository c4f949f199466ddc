"""What stands beside the labels: whose row it is, and whether its reference can be right.

A reference that states a figure which none of its documents holds was written from something else,
or is wrong: people who compared answers with it labelled by a wrong key. Such rows are named, and
the figures are given without them too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geval.data import read_rows
from geval.data.columns import fold
from geval.data.mapping import flatten
from geval.data.values import as_text, as_texts, is_missing
from geval.errors import DataError, nearest
from geval.figures.model import DERIVABLE
from geval.locale import column_families, own_folders
from geval.numbers import unmatched


@dataclass
class Beside:
    """Group, system and contradicted figures of the reference, by id."""

    groups: dict[str, str] = field(default_factory=dict)
    systems: dict[str, str] = field(default_factory=dict)
    contradicted: dict[str, list[str]] = field(default_factory=dict)


def find_column(columns: Sequence[str], kind: str, given: str | None = None) -> str | None:
    """The column of `kind` (id, group, system, reference ...): the one given, or of a known name.

    Raises DataError where the given one is not there.
    """
    if given is not None:
        found = [c for c in columns if fold(c) == fold(given)]
        if not found:
            raise DataError(f"no column {given!r} for {kind}", hint=nearest(given, columns))
        return given if given in found else found[0]
    names = {fold(n) for n in (kind, *column_families(own_folders()).get(kind, ()))}
    found = [c for c in columns if c == kind] or [c for c in columns if fold(c) in names]
    return found[0] if len(found) == 1 else None


class References:
    """Looks up the figures of references in the documents of their rows."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.reference = find_column(columns, "reference")
        self.sources = [
            c for kind in ("contexts", "source", "fact") if (c := find_column(columns, kind))
        ]
        self.question = find_column(columns, "question")

    def contradicted(self, row: Mapping[str, Any]) -> list[str]:
        """Figures of the row's reference that no document of it holds; none without either.

        A figure of the question, and one that follows from two of the documents, is no fault.
        """
        said = row.get(self.reference) if self.reference else None
        held = [t for c in self.sources if not is_missing(row.get(c)) for t in _texts(row[c])]
        if is_missing(said) or not any(text.strip() for text in held):
            return []
        if self.question and not is_missing(row.get(self.question)):
            held += _texts(row[self.question])
        found = (f for text in _texts(said) for f in unmatched(text, held))
        return list(dict.fromkeys(f.text for f in found if f.note != DERIVABLE))


def read_beside(
    data: Any, *, id: str | None = None, group: str | None = None, system: str | None = None
) -> Beside:
    """What the judged rows themselves say. Raises DataError for a column that is not there."""
    rows = read_rows(data)
    known = [flatten(row.values)[0] for row in rows]
    columns = list(dict.fromkeys(c for row in known for c in row))
    key = find_column(columns, "id", id if id in columns else None)
    named = {
        "groups": find_column(columns, "group", group),
        "systems": find_column(columns, "system", system),
    }
    references, found = References(columns), Beside()
    for number, row in enumerate(known, 1):
        raw = row.get(key) if key else number
        if is_missing(raw):
            continue
        name = unicodedata.normalize("NFC", as_text(raw)).strip()
        for target, column in named.items():
            if column and not is_missing(row.get(column)):
                getattr(found, target)[name] = as_text(row[column])
        if figures := references.contradicted(row):
            found.contradicted[name] = figures
    return found


def shown(contradicted: Mapping[str, Sequence[str]], ids: Iterable[str], most: int = 5) -> str:
    """`id (figure, figure), ...` of the rows in `ids`."""
    rows = [i for i in ids if i in contradicted]
    told = [f"{i} ({', '.join(contradicted[i][:3])})" for i in rows[:most]]
    return ", ".join(told) + (", ..." if len(rows) > most else "")


def _texts(value: Any) -> list[str]:
    return list(as_texts(value, lambda *_: None))
