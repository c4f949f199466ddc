"""Looking into a run: its rows, why rows are unscored, one row with its prompts and replies.

Files are read as streams: what is held is one row, some lowest rows and some causes.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from geval.errors import RunError, UsageError, nearest
from geval.judges.records import dumps
from geval.result import OVERALL
from geval.runs.lines import Key, complete_lines
from geval.runs.listing import counted, damaged, rows_of, status_of
from geval.runs.run import REPLIES, Run
from geval.runs.tally import Tally

Record = dict[str, Any]
LOWEST = 5
MOST_CAUSES = 8
"""Causes of one kind that are told apart; the rest is counted."""
MOST_IDS = 3
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def rows(run: Run) -> Iterator[list[Record]]:
    """The lines of each row that is done, its overall line last; repeats are rows of their own."""
    held: list[Record] = []
    for record in run.results():
        if held and _key(held[0]) != _key(record):
            held = []  # without its overall line a row is not done
        held.append(record)
        if record["criterion"] == OVERALL:
            yield held
            held = []


def criteria_of(run: Run, named: str | None = None) -> list[str]:
    """Criteria of a run, or the one that is named. Raises UsageError with the nearest."""
    template = run.manifest["template"]
    known = [str(n) for n in (template.get("weights") or template.get("titles") or {})]
    if named is None:
        return known
    if named not in known:
        titles = {str(t): str(n) for n, t in (template.get("titles") or {}).items()}
        if named in titles:
            return [titles[named]]
        raise UsageError(f"the run has no criterion {named!r}", hint=nearest(named, known))
    return [named]


@dataclass
class Overview:
    """What a run came to: its counts, and the rows with the worst scores, worst first."""

    run: Run
    tally: Tally
    lowest: list[list[Record]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        told = self.run.manifest
        return {
            "run": str(self.run.folder),
            "status": status_of(self.run),
            "started": told.get("started"),
            "ended": told.get("ended"),
            "seconds": told.get("seconds"),
            "rows": rows_of(told),
            "template": told["template"],
            "judges": told["judges"],
            "settings": told["settings"],
            "data": told["data"],
            "paid": told.get("paid"),
            "rescored": told.get("rescored"),
            "summary": self.tally.to_dict(),
            "lowest": [
                {
                    "id": whole[-1]["id"],
                    "repeat": whole[-1]["repeat"],
                    "scores": {r["criterion"]: r["score"] for r in whole},
                }
                for whole in self.lowest
            ],
        }


def overview(run: Run, criterion: str = OVERALL, most: int = LOWEST) -> Overview:
    """The counts of a run and its worst rows by `criterion`, in one pass."""
    tally = Tally.of_run(run.manifest)
    worst: list[tuple[float, int, list[Record]]] = []
    for number, lines in enumerate(rows(run)):
        for record in lines:
            counted(run, tally, record)
        value = next((r["normalized"] for r in lines if r["criterion"] == criterion), None)
        if isinstance(value, int | float):
            bad = value if tally.worst else 1 - value
            heapq.heappush(worst, (bad, -number, lines))
            if len(worst) > most:
                heapq.heappop(worst)
    found = sorted(worst, key=lambda w: (-w[0], -w[1]))
    return Overview(run, tally, [lines for _, _, lines in found])


@dataclass
class Cause:
    """One cause of failures: messages that differ in their numbers alone are one."""

    message: str
    n: int = 0
    ids: list[str] = field(default_factory=list)


@dataclass
class Group:
    """Unscored judgements of one kind; `retryable` of them may pass on another try."""

    kind: str
    n: int = 0
    retryable: int = 0
    causes: dict[str, Cause] = field(default_factory=dict)
    others: int = 0
    criteria: dict[str, int] = field(default_factory=dict)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one line."""
        message = str(record["error"].get("message") or "")
        self.n += 1
        self.retryable += bool(record["error"].get("retryable"))
        name = record["criterion"]
        self.criteria[name] = self.criteria.get(name, 0) + 1
        shape = _NUMBER.sub("#", message)[:400]
        if shape not in self.causes and len(self.causes) >= MOST_CAUSES:
            self.others += 1
            return
        cause = self.causes.setdefault(shape, Cause(message))
        cause.n += 1
        if len(cause.ids) < MOST_IDS and str(record["id"]) not in cause.ids:
            cause.ids.append(str(record["id"]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "kind": self.kind,
            "n": self.n,
            "retryable": self.retryable,
            "criteria": self.criteria,
            "causes": [
                {"message": c.message, "n": c.n, "ids": c.ids} for c in self.causes.values()
            ],
            "others": self.others,
        }


def errors(run: Run, criteria: Iterable[str] | None = None) -> list[Group]:
    """Why judgements of a run are unscored, the commonest kind first.

    The overall line of a row repeats what a criterion says, so it is not counted.
    """
    wanted = None if criteria is None else set(criteria)
    found: dict[str, Group] = {}
    for record in run.results():
        name = record["criterion"]
        if not record["error"] or name == OVERALL or (wanted is not None and name not in wanted):
            continue
        try:
            kind = str(record["error"]["kind"])
            found.setdefault(kind, Group(kind)).add(record)
        except (TypeError, KeyError, AttributeError) as error:
            raise damaged(run, record, error) from None
    return sorted(found.values(), key=lambda g: -g.n)


@dataclass
class Row:
    """One row: its result lines by repeat, and the calls that they rest on, in their order."""

    id: str
    lines: dict[int, list[Record]]
    calls: list[Record]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "id": self.id,
            "results": [record for own in self.lines.values() for record in own],
            "calls": self.calls,
        }


def row(run: Run, row_id: str, criterion: str | None = None) -> Row:
    """The row with the id `row_id`, or one criterion of it.

    Raises RunError with the nearest ids, or with the id of the data row of that number.
    """
    names = criteria_of(run, criterion)
    lines: dict[int, list[Record]] = {}
    ids: dict[str, None] = {}
    by_number: str | None = None
    for record in run.results():
        name = str(record["id"])
        if name != row_id:
            if record["criterion"] == OVERALL:
                if len(ids) < 5_000:
                    ids[name] = None
                if (
                    isinstance(record["source"], dict)
                    and str(record["source"].get("row")) == row_id
                ):
                    by_number = name
            continue
        if criterion is None or record["criterion"] in names:
            lines.setdefault(record["repeat"], []).append(record)
    if not lines:
        told = status_of(run)
        hint = _nearest_id(row_id, ids)
        if by_number is not None:
            hint = f"Row {row_id} of the data has the id {by_number!r}."
        elif told != "complete":
            hint = f"The run is {told}: the row may not be judged yet. {hint}"
        raise RunError(f"the run has no row {row_id!r}", where=str(run.folder), hint=hint)
    return Row(row_id, lines, _calls(run, row_id, None if criterion is None else names[0]))


def _calls(run: Run, row_id: str, criterion: str | None) -> list[Record]:
    """Calls of a row; of one criterion with those that split the row into units."""
    found = []
    # Only lines that hold the id are parsed; most of a big file is not.
    needle = dumps(row_id)[1:-1]
    for line in complete_lines(run.folder / REPLIES):
        if needle not in line:
            continue
        try:
            record = json.loads(line)
            own = record["id"] == row_id
        except (ValueError, TypeError, KeyError, RecursionError):
            continue  # a line changed by hand: the scores are told all the same
        split = own and str(record.get("purpose", "")).startswith("claims")
        if own and (criterion is None or split or record.get("criterion") == criterion):
            found.append(record)
    return found


def _nearest_id(row_id: str, ids: Mapping[str, None]) -> str:
    if not ids:
        return "No row is done yet."
    close = nearest(row_id, ids)
    if close.startswith("Did you mean"):
        return close.partition("? ")[0] + "?"
    some = ", ".join(list(ids)[:5])
    return f"Its first rows: {some}."


def _key(record: Mapping[str, Any]) -> Key:
    return record["id"], record["repeat"]
