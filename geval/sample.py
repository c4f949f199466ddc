"""One row to judge, and how its columns become a template's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """Where a row came from: `row` is the physical row (line, sheet row), counted from 1."""

    file: str = ""
    row: int | None = None
    sheet: str | None = None

    def __str__(self) -> str:
        parts = [self.file] if self.file else []
        if self.sheet:
            parts.append(f"sheet {self.sheet}")
        if self.row is not None:
            parts.append(f"row {self.row}")
        return ", ".join(parts) or "the data"


@dataclass(frozen=True, slots=True)
class Sample:
    """One row to judge.

    `fields` holds the template's inputs by their declared names: text as str, `texts` as a tuple
    of str, an absent optional input as None. `labels` are human judgements by criterion name,
    `group` the document a row belongs to, `extra` the columns no field took.
    """

    id: str
    fields: Mapping[str, Any]
    group: str | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    source: Source = field(default_factory=Source)
