"""Rows of a run as a stream: the lines of a sample stand together, its overall line ends them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from geval.result import OVERALL

Record = dict[str, Any]
Row = list[Record]
"""Result lines of one sample and repeat: its criteria, then the overall line."""


def rows_of(results: Iterable[Record]) -> Iterator[Row]:
    """Result lines by sample, in the order of the file; one without an overall line is not done."""
    held: Row = []
    for record in results:
        if held and (held[0]["id"], held[0]["repeat"]) != (record["id"], record["repeat"]):
            held = []
        held.append(record)
        if record["criterion"] == OVERALL:
            yield held
            held = []


def row_name(record: Record) -> str:
    """The id of a row, with its repeat where it is not the first."""
    return f"{record['id']} #{record['repeat']}" if record["repeat"] else str(record["id"])


def why(row: Row) -> str | None:
    """Why a row is unscored: what its first failed criterion tells, or its overall line."""
    for record in row:
        if record["error"] and record["criterion"] != OVERALL:
            return f"{record['criterion']}: {record['error']['message']}"
    return row[-1]["error"]["message"] if row[-1]["error"] else None


@dataclass
class First:
    """The first `most` rows by their place in the data, whatever order they were judged in."""

    most: int
    wanted: Callable[[Row], object] = lambda row: True
    seen: int = 0
    _heap: list[tuple[float, int, int, Row]] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Take a row into account; memory holds `most` of them."""
        if not self.wanted(row):
            return
        self.seen += 1
        source = row[-1]["source"]
        order = source.get("order", self.seen) if isinstance(source, dict) else self.seen
        item = (-order, -row[-1]["repeat"], -self.seen, row)
        if len(self._heap) < self.most:
            heapq.heappush(self._heap, item)
        elif self.most:
            heapq.heappushpop(self._heap, item)

    def rows(self) -> list[Row]:
        """They, in order."""
        return [row for *_, row in sorted(self._heap, key=lambda i: (-i[0], -i[1], -i[2]))]
