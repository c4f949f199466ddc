"""Canaries: judged texts that order their own score, and how far a judge lets them move it.

Each canary is put behind the judged field of a row; a judge that keeps to the material gives the
score it gave without. The texts are in `templates/_canaries.jsonl` (`locale` null: for all).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geval.data.validate import Loaded
from geval.job import prepare
from geval.locale import Locale
from geval.notes import say, told
from geval.result import OVERALL
from geval.runs.run import Run
from geval.template import Template, shipped_folder

FILE = "_canaries.jsonl"
ROWS = 5


@dataclass(frozen=True, slots=True)
class Canary:
    """A text that tries to move a score; `locale` is its language, None for any."""

    id: str
    locale: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Move:
    """Scores on 0..1 of a row's criterion (or `overall`) without and with a canary."""

    canary: str
    row: str
    criterion: str
    without: float
    with_it: float

    @property
    def change(self) -> float:
        """What the canary did: above 0 where it raised the score."""
        return self.with_it - self.without


@dataclass(frozen=True)
class Report:
    """What canaries did to the scores; `lost` pairs could not be compared (one is unscored)."""

    canaries: tuple[Canary, ...]
    rows: int
    moves: tuple[Move, ...]
    lost: int
    run: Run
    locale: Locale

    @property
    def largest(self) -> Move | None:
        """The move that is farthest from none."""
        return max(self.moves, key=lambda move: abs(move.change), default=None)

    def mean(self, canary: str | None = None) -> float | None:
        """Mean absolute change, of one canary or of all; None where nothing was compared."""
        changes = [abs(m.change) for m in self.moves if canary in (None, m.canary)]
        return sum(changes) / len(changes) if changes else None

    def __str__(self) -> str:
        """The whole in a sentence, in the language of the template."""
        many = "canary_on" if self.rows > 1 else "canary_on_one"
        on = told(many, n=len(self.canaries), rows=self.rows)
        if self.largest is None:
            note = told("canary_none", on=on)
        else:
            largest, mean = abs(self.largest.change), self.mean()
            note = told("canary_moved", on=on, largest=largest, mean=mean)
        if self.lost:
            note = told("both", one=note, two=told("canary_lost", n=self.lost))
        return say(note, self.locale)

    def lines(self) -> Iterator[str]:
        """A line for each canary: its mean absolute change and the largest one."""
        for one in self.canaries:
            moves = [move for move in self.moves if move.canary == one.id]
            if not moves:
                yield f"{one.id:12} {say(told('canary_not_compared'), self.locale)}"
                continue
            most = max(moves, key=lambda move: abs(move.change))
            note = told(
                "canary_line", mean=self.mean(one.id), most=most.change,
                criterion=most.criterion, row=most.row,
            )  # fmt: skip
            yield f"{one.id:12} {say(note, self.locale)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a report or `--json` needs them."""
        return {
            "canaries": len(self.canaries),
            "rows": self.rows,
            "largest": None if self.largest is None else abs(self.largest.change),
            "mean": self.mean(),
            "lost": self.lost,
            "run": str(self.run.folder),
            "moves": [
                {"canary": m.canary, "id": m.row, "criterion": m.criterion, "without": m.without,
                 "with": m.with_it, "change": m.change}
                for m in self.moves
            ],
        }  # fmt: skip


def canaries(locale: str | None = None) -> tuple[Canary, ...]:
    """The shipped canaries that fit a language (default: all of them)."""
    lines = (shipped_folder() / FILE).read_text(encoding="utf-8").splitlines()
    found = (Canary(**json.loads(line)) for line in lines if line.strip())
    return tuple(c for c in found if locale is None or c.locale in (None, locale))


async def measure(
    template: str | Path | Template,
    *,
    rows: int = ROWS,
    locale: str | None = None,
    templates: Sequence[str | Path] = (),
    **scoring: Any,
) -> Report:
    """Score example rows of `template` with and without each canary.

    `scoring` goes to `geval.ascore`: `judge`, `base_url`, `method`, `out`, `cache`, ... Raises a
    GevalError as that does; a template without an examples file is a DataError.
    """
    from geval.api import ascore

    job = await asyncio.to_thread(prepare, template=template, locale=locale, templates=templates)
    chosen = canaries(job.template.front.locale)
    plain = _spread(job.data, rows)
    records = [*plain]
    for canary in chosen:
        records += [_with(row, job.template, canary) for row in plain]
    options = {"reasons": "none", **scoring}
    run = await ascore(records, template=job.template, **options)
    return _compare(run, [row["id"] for row in plain], chosen, job.template.locale)


def _spread(data: Loaded, count: int) -> list[dict[str, Any]]:
    """At most `count` rows, spread over all, as records of the template's own fields."""
    every = max(1, -(-data.n // max(1, count)))
    found = []
    for number, sample in enumerate(data.samples()):
        if number % every == 0:
            fields = {k: _plain(v) for k, v in sample.fields.items() if v is not None}
            found.append({**fields, "id": sample.id})
    return found[:count]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _with(row: Mapping[str, Any], template: Template, canary: Canary) -> dict[str, Any]:
    """The row with a canary behind its judged field."""
    name = template.judged
    value = row.get(name)
    if isinstance(value, list) and value:
        last = value[-1]
        changed = (
            {**last, "content": f"{last.get('content') or ''}\n{canary.text}"}
            if isinstance(last, Mapping)
            else f"{last}\n{canary.text}"
        )
        new: Any = [*value[:-1], changed]
    else:
        new = f"{value or ''}\n{canary.text}"
    return {**row, name: new, "id": _id(row["id"], canary)}


def _id(row: str, canary: Canary) -> str:
    return f"{row} + {canary.id}"


def _compare(run: Run, rows: Sequence[str], chosen: Sequence[Canary], locale: Locale) -> Report:
    scores: dict[tuple[str, str], float | None] = {}
    for record in run.results():
        if record["repeat"] == 0:
            scores[record["id"], record["criterion"]] = record["normalized"]
    criteria = list(dict.fromkeys(criterion for _, criterion in scores))
    moves, lost = [], 0
    for canary, row, criterion in _pairs(chosen, rows, criteria):
        without = scores.get((row, criterion))
        with_it = scores.get((_id(row, canary), criterion))
        if without is None or with_it is None:
            lost += criterion == OVERALL
        else:
            moves.append(Move(canary.id, row, criterion, without, with_it))
    return Report(tuple(chosen), len(rows), tuple(moves), lost, run, locale)


def _pairs(
    chosen: Sequence[Canary], rows: Sequence[str], criteria: Sequence[str]
) -> Iterator[tuple[Canary, str, str]]:
    for canary in chosen:
        for row in rows:
            for criterion in criteria:
                yield canary, row, criterion
