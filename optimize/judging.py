"""Rows judged under a candidate, through the one scoring path, within the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from geval.judges.base import Method
from geval.result import Score
from geval.scoring import score_criterion
from geval.settings import Settings, choose_methods
from geval.stats import numpy
from geval.template import Template

from .labelled import Labelled
from .ledger import BudgetSpent, StudyAsker
from .objective import Judged


class JudgeEvaluator:
    """Judges rows with a judge; keeps what it was told, by the template's fingerprint.

    Rows of one call are asked together, as many at a time as the judge takes. Reasons are not
    asked for: a score is read before its reason. Raises BudgetSpent once all calls in flight are
    back; what they said is in the study's cache.
    """

    def __init__(
        self,
        rows: Labelled,
        asker: StudyAsker,
        served: Sequence[Method],
        settings: Settings,
        runner: asyncio.Runner,
        concurrency: int | None = None,
    ) -> None:
        self.rows, self.asker, self.served, self.settings = rows, asker, served, settings
        self._runner = runner
        self._workers = min(64, max(1, concurrency or asker.judge.concurrency))
        self._known: dict[str, Judged] = {}
        self._levels = {c: rows.template.criterion(c).scale.values for c in rows.criteria}

    def methods(self, template: Template) -> tuple[Method, ...]:
        """What is tried to read a score, as `geval score` would choose it."""
        return choose_methods(self.settings.method, self.served, template, self.settings.reasons)

    def known(self, template: Template) -> Judged:
        """What was judged so far."""
        return self._known.setdefault(template.fingerprint, Judged.empty(self._levels, self.rows.n))

    def __call__(self, template: Template, rows: Any) -> Judged:
        """All that is known of `template`, `rows` included."""
        judged = self.known(template)
        todo = [int(i) for i in rows if not judged.asked[i]]
        if todo:
            with self.asker.ledger.work():
                found = self._runner.run(self._all(template, todo))
            for index, scores in found.items():
                _record(judged, index, scores)
        return judged

    async def _all(self, template: Template, todo: list[int]) -> dict[int, list[Score]]:
        waiting = iter(todo)
        found: dict[int, list[Score]] = {}
        spent: list[BudgetSpent] = []

        async def worker() -> None:
            for index in waiting:
                if spent:
                    return
                try:
                    found[index] = await self._one(template, index)
                except BudgetSpent as error:
                    spent.append(error)

        outcomes = await asyncio.gather(
            *(worker() for _ in range(min(self._workers, len(todo)))), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if spent:
            raise spent[0]
        return found

    async def _one(self, template: Template, index: int) -> list[Score]:
        settings = replace(self.settings, reasons="none")
        methods = self.methods(template)
        return [
            await score_criterion(
                template,
                template.criterion(name),
                self.rows.samples[index],
                self.asker,
                methods,
                settings,
            )
            for name in self.rows.criteria
        ]


def _record(judged: Judged, index: int, scores: Sequence[Score]) -> None:
    np = numpy()
    for score in scores:
        if score.status == "scored" and score.distribution is not None:
            judged.probs[score.criterion][index] = np.asarray(score.distribution.probs)
        else:
            kind = score.failure.kind if score.failure else score.status
            judged.failures[kind] = judged.failures.get(kind, 0) + 1
        judged.tokens[index] += score.usage.prompt + score.usage.completion
        judged.calls[index] += score.usage.calls
    judged.asked[index] = True
