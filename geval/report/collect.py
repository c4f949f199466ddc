"""One pass over the result lines of a run: what its report shows, in bounded memory.

Rows of the table go to a file as they come; of each row stay its place there and some numbers
(under 100 bytes). Lines changed by hand may hold anything: what is no number is none here.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from geval.report.page import json_text
from geval.result import OVERALL
from geval.runs.tally import Tally

BINS = 20
LOWEST = 10
MOST_TEXT = 1200
MOST_UNITS = 60
MOST_ROWS = 20_000
"""Rows that the table of one page holds; a browser gets slow with more."""


@dataclass
class Figures:
    """Counts of one criterion, all on 0..1 of its scale."""

    name: str
    title: str
    low: float = 0.0
    high: float = 1.0
    levels: list[float] = field(default_factory=list)
    bins: list[int] = field(default_factory=lambda: [0] * BINS)
    cells: dict[tuple[int, int], int] = field(default_factory=dict)
    by_units: bool = False
    covered: int = 0
    coverage_sum: float = 0.0
    coverage_low: int = 0
    methods: dict[str, int] = field(default_factory=dict)
    jurors: dict[str, list[float]] = field(default_factory=dict)
    """By judge: rows scored, sum of scores in units of the scale, rows unscored."""


class Collector:
    """Fed the result lines in the order of the file."""

    def __init__(self, manifest: Mapping[str, Any], rows: BinaryIO) -> None:
        told = manifest["template"]
        titles = told.get("titles") or {}
        names = list(told.get("weights") or titles)
        self.tally = Tally.of_run(manifest)
        self.lower_is_better = self.tally.worst > 0
        self.overall = Figures(OVERALL, OVERALL)
        self.criteria = {n: Figures(n, str(titles.get(n) or n)) for n in names}
        self.min_coverage = number(manifest["settings"].get("min_coverage")) or 0.9
        self.repeats = int(manifest["settings"].get("repeat") or 1)
        self.sums = Clusters([OVERALL, *names])
        self.worst: list[tuple[float, int, list[dict[str, Any]]]] = []
        self.places = Places(rows)
        self.grouped = False
        self._pending: list[dict[str, Any]] = []
        self._seen = 0

    def add(self, record: dict[str, Any]) -> None:
        """Count one result line; the overall line of a row ends it."""
        self.tally.add(record)
        held = self._pending
        if held and (held[0]["id"], held[0]["repeat"]) != (record["id"], record["repeat"]):
            held.clear()  # a row without its overall line is not done yet
        if record["criterion"] in self.criteria or record["criterion"] == OVERALL:
            held.append(record)
        figures = self.criteria.get(record["criterion"])
        if figures is not None:
            _count(figures, record, self.min_coverage)
        if record["criterion"] == OVERALL:
            self._row(record, list(held))
            held.clear()

    def _row(self, whole: dict[str, Any], records: list[dict[str, Any]]) -> None:
        self._seen += 1
        source = whole["source"] if isinstance(whole["source"], dict) else {}
        value = unit(whole.get("normalized"))
        if value is not None:
            self.overall.bins[_bin(value)] += 1
        group = source.get("group")
        self.grouped = self.grouped or group is not None
        # Repeats of one row are no more independent than rows of one document.
        cluster = (
            f"g:{group}" if group is not None else f"i:{whole['id']}" if self.repeats > 1 else None
        )
        self.sums.add(cluster, {r["criterion"]: unit(r.get("normalized")) for r in records})
        if value is not None:
            badness = value if self.lower_is_better else 1 - value
            heapq.heappush(self.worst, (badness, -self._seen, records))
            if len(self.worst) > LOWEST:
                heapq.heappop(self.worst)
        line = json_text(_table_row(whole, records, list(self.criteria)))
        order = number(source.get("order"))
        place = (self._seen if order is None else order) + whole["repeat"] / 1e6
        bad = math.inf if value is None else value if self.lower_is_better else 1 - value
        self.places.add(line, place, bad)

    @property
    def rows(self) -> int:
        """Rows that are done, repeats counted."""
        return self._seen

    def lowest(self) -> list[list[dict[str, Any]]]:
        """The records of the worst scored rows, worst first: of few rows a third."""
        found = sorted(self.worst, key=lambda w: (-w[0], -w[1]))
        scored = self.tally.n.get(OVERALL, {}).get("scored", 0)
        return [records for _, _, records in found[: max(3, scored // 3)]]


class Places:
    """Lines in a file, and where each begins: `order` sorts them, `badness` chooses among many."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._order, self._bad = array("d"), array("d")
        self._start = array("q", [0])

    def add(self, line: str, order: float, badness: float) -> None:
        """Append one line."""
        written = self._file.write(line.encode("utf-8"))
        self._start.append(self._start[-1] + written)
        self._order.append(order)
        self._bad.append(badness)

    def chosen(self, most: int) -> Iterator[str]:
        """At most `most` lines, the worst where there are more, in order."""
        kept: Sequence[int] = range(len(self._order))
        if len(kept) > most:
            kept = heapq.nlargest(most, kept, key=lambda i: (self._bad[i], -i))
        for i in sorted(kept, key=lambda i: self._order[i]):
            self._file.seek(self._start[i])
            yield self._file.read(self._start[i + 1] - self._start[i]).decode("utf-8")


class Clusters:
    """Sums and counts by cluster and criterion: rows, or groups of rows that belong together."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.sums = {name: array("d") for name in names}
        self.counts = {name: array("I") for name in names}
        self._index: dict[str, int] = {}
        self.n = 0

    def add(self, cluster: str | None, values: Mapping[str, float | None]) -> None:
        """Add a row; None is a cluster of its own."""
        at = self.n if cluster is None else self._index.setdefault(cluster, self.n)
        if at == self.n:
            self.n += 1
            for name in self.names:
                self.sums[name].append(0.0)
                self.counts[name].append(0)
        for name, value in values.items():
            if value is not None:
                self.sums[name][at] += value
                self.counts[name][at] += 1


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def unit(value: Any) -> float | None:
    """A number on 0..1, else None."""
    found = number(value)
    return None if found is None or not 0 <= found <= 1 else found


def text(value: Any, most: int = MOST_TEXT) -> str | None:
    """Text that is not longer than the page can bear; results.jsonl has it whole."""
    if value is None:
        return None
    told = str(value)
    return told if len(told) <= most else told[: most - 1] + "…"


def _bin(value: float) -> int:
    return min(BINS - 1, int(value * BINS))


def _count(figures: Figures, record: Mapping[str, Any], min_coverage: float) -> None:
    levels = [v for v in map(number, record.get("levels") or ()) if v is not None]
    if len(levels) > 1 and not figures.levels:
        figures.levels = levels
        figures.low, figures.high = min(levels), max(levels)
    value = unit(record.get("normalized"))
    sd, se = number(record.get("sd")), number(record.get("se"))
    spread = se if record.get("units") else sd
    figures.by_units = figures.by_units or bool(record.get("units"))
    if value is not None:
        figures.bins[_bin(value)] += 1
        if spread is not None and figures.high > figures.low:
            y = int(min(0.5, spread / (figures.high - figures.low)) * 2 * BINS)
            cell = (min(2 * BINS - 1, int(value * 2 * BINS)), min(BINS - 1, y))
            figures.cells[cell] = figures.cells.get(cell, 0) + 1
    covered = unit(record.get("coverage"))
    if covered is not None:
        figures.covered += 1
        figures.coverage_sum += covered
        figures.coverage_low += covered < min_coverage
    if method := record.get("method"):
        figures.methods[method] = figures.methods.get(method, 0) + 1
    for juror in record.get("jurors") or ():
        held = figures.jurors.setdefault(str(juror.get("judge")), [0, 0.0, 0])
        score = number(juror.get("score"))
        if score is None:
            held[2] += juror.get("status") == "unscored"
        else:
            held[0] += 1
            held[1] += score


def _table_row(
    whole: Mapping[str, Any], records: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, Any]:
    """What the page's script reads: short keys, nothing where there is nothing."""
    by_name = {r["criterion"]: r for r in records}
    source = whole["source"] if isinstance(whole["source"], dict) else {}
    return _some(
        id=text(whole["id"], 200),
        repeat=whole["repeat"] or None,
        row=number(source.get("row")),
        sheet=text(source.get("sheet"), 60),
        group=text(source.get("group"), 60),
        score=_short(whole["score"]),
        status=None if whole["status"] == "scored" else text(whole["status"], 40),
        error=text((whole["error"] or {}).get("message")),
        warnings=_texts(whole["warnings"]),
        figures=_texts(whole.get("numbers_unmatched")),
        cells=[_cell(by_name[n]) if n in by_name else {} for n in names],
    )


def _cell(record: Mapping[str, Any]) -> dict[str, Any]:
    score, raw = _short(record["score"]), _short(record.get("raw_score"))
    units = record.get("units") or ()
    return _some(
        score=score,
        raw=raw if raw != score else None,
        status=None if record["status"] == "scored" else text(record["status"], 40),
        sd=_short(record.get("sd")),
        se=_short(record.get("se")),
        probs=_probs(record.get("probs")),
        coverage=_short(record.get("coverage")),
        method=text(record.get("method"), 40),
        reason=text(record.get("reason")),
        warnings=_texts(record["warnings"]),
        error=text((record["error"] or {}).get("message")),
        spread=_short(record.get("spread")),
        units=[_unit(u) for u in units[:MOST_UNITS]] or None,
        more_units=max(0, len(units) - MOST_UNITS) or None,
        jurors=[
            _some(
                judge=text(j.get("judge"), 120),
                score=_short(j.get("score")),
                sd=_short(j.get("sd")),
                probs=_probs(j.get("probs")),
                reason=text(j.get("reason")),
                error=text(j.get("error")),
            )
            for j in record.get("jurors") or ()
        ]
        or None,
    )


def _unit(one: Mapping[str, Any]) -> dict[str, Any]:
    return _some(
        text=text(one.get("text"), 400),
        of=text(one.get("of"), 60),
        p=_short(one.get("p")),
        status=None if one.get("status") == "scored" else text(one.get("status"), 40),
        reason=text(one.get("reason"), 400),
        error=text(one.get("error"), 400),
    )


def _some(**values: Any) -> dict[str, Any]:
    return {k: v for k, v in values.items() if v is not None}


def _short(value: Any) -> float | None:
    found = number(value)
    return None if found is None else round(found, 3)


def _probs(values: Any) -> list[int] | None:
    """In thousandths."""
    found = [unit(v) for v in values or ()]
    return [round(1000 * v) for v in found if v is not None] or None


def _texts(values: Any) -> list[str] | None:
    return [str(v)[:200] for v in values or ()][:20] or None
