"""Many samples: order, concurrency, retries, progress, resume."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from geval.answer import Failure
from geval.data import Invalid
from geval.errors import TransientError
from geval.judges.base import Judge, Method, Reply, Request
from geval.run import OVERALL, Writer, result_record
from geval.sample import Sample, Source
from geval.scoring import Score, Settings, overall, score_criterion
from geval.template import Template

WINDOW = 1_000
"""Samples looked at together to put those with a shared beginning next to each other."""

ATTEMPTS = 5
LONGEST_WAIT = 120.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What a progress bar shows; handed to the callback after each sample."""

    done: int
    total: int | None
    scored: int
    unscored: int
    tokens: int


OnProgress = Callable[[Progress], None]


class _Asker:
    """Puts requests to the judge: bounded concurrency, retries with back-off, every reply kept."""

    def __init__(self, judge: Judge, writer: Writer, notes: Callable[[str], None]) -> None:
        self._judge, self._writer, self._notes = judge, writer, notes
        self._places = asyncio.Semaphore(judge.concurrency)
        self._told: set[str] = set()

    async def ask(self, request: Request) -> Reply:
        """The reply; a TransientError once the attempts are used up."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self._places:
                    reply = await self._judge.complete(request)
                break
            except TransientError as error:
                if attempt == ATTEMPTS:
                    raise
                # Full jitter: many callers that failed together must not come back together.
                backoff = random.uniform(0.5, 1.0) * min(30.0, 0.5 * 2**attempt)
                wait = backoff if error.retry_after is None else error.retry_after + random.random()
                if wait > LONGEST_WAIT:
                    raise
                await asyncio.sleep(wait)
        for note in reply.notes:
            if note not in self._told:
                self._told.add(note)
                self._notes(note)
        return reply

    def keep(self, request: Request, reply: Reply, answers: Sequence[int | None]) -> None:
        """Append to the run's replies."""
        self._writer.reply(request, reply, answers)


async def judge_samples(
    template: Template,
    samples: Iterable[Sample | Invalid],
    judge: Judge,
    methods: Sequence[Method],
    settings: Settings,
    writer: Writer,
    *,
    total: int | None = None,
    on_progress: OnProgress | None = None,
    notes: Callable[[str], None] = lambda note: None,
) -> None:
    """Judge every sample that the run has not done yet, and write each as it comes.

    A failure of one row becomes an unscored result; an error that no row would escape is raised
    after what was judged is written.
    """
    asker = _Asker(judge, writer, notes)
    work = _in_good_order(_outstanding(samples, settings.repeat, writer), template, judge)
    report = _Reporter(writer, total, on_progress)
    report()

    async def worker() -> None:
        for order, item, repeat in work:
            source = _source(item.source, order)
            if isinstance(item, Invalid):
                scores = _invalid(template, item)
            else:
                scores = await _judge_one(template, item, asker, methods, settings, repeat, judge)
            scores = [*scores, overall(template, scores)]
            coverage = min(
                (s.distribution.coverage for s in scores if s.distribution), default=None
            )
            records = [
                result_record(s, fingerprint=template.fingerprint, judge=judge.spec, source=source)
                for s in scores
            ]
            records[-1]["coverage"] = None if coverage is None else round(coverage, 6)
            writer.sample(records)
            report()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(judge.concurrency):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that stopped the run; the others fell with it."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _judge_one(
    template: Template,
    sample: Sample,
    asker: _Asker,
    methods: Sequence[Method],
    settings: Settings,
    repeat: int,
    judge: Judge,
) -> list[Score]:
    calls = [
        score_criterion(template, criterion, sample, asker, methods, settings, repeat)
        for criterion in template.criteria
    ]
    if judge.concurrency == 1:  # in order, so that each prompt finds its prefix still evaluated
        return [await call for call in calls]
    return list(await asyncio.gather(*calls))


def _outstanding(
    samples: Iterable[Sample | Invalid], repeats: int, writer: Writer
) -> Iterator[tuple[int, Sample | Invalid, int]]:
    for order, sample in enumerate(samples):
        for repeat in range(repeats):
            if (sample.id, repeat) not in writer.done:
                yield order, sample, repeat


def _in_good_order(
    work: Iterator[tuple[int, Sample | Invalid, int]], template: Template, judge: Judge
) -> Iterator[tuple[int, Sample | Invalid, int]]:
    """A judge that keeps one prefix gets the prompts of a window sorted: a walk over their tree."""
    if judge.concurrency > 1:
        yield from work
        return

    def prompt(item: tuple[int, Sample | Invalid, int]) -> str:
        sample = item[1]
        return "" if isinstance(sample, Invalid) else template.render(sample)[-1]["content"]

    while window := list(islice(work, WINDOW)):
        yield from sorted(window, key=prompt)


def _invalid(template: Template, row: Invalid) -> list[Score]:
    failure = Failure("invalid_row", "; ".join(row.faults))
    return [Score(row.id, c.name, "unscored", failure=failure) for c in template.criteria]


def _source(source: Source, order: int) -> dict[str, Any]:
    """Where a row stands: physical row and sheet, and its place among the samples."""
    return {"sheet": source.sheet, "row": source.row, "order": order}


class _Reporter:
    def __init__(self, writer: Writer, total: int | None, call: OnProgress | None) -> None:
        self._writer, self._total, self._call = writer, total, call

    def __call__(self) -> None:
        if self._call is None:
            return
        counts = self._writer.tally.n.get(OVERALL, {})
        usage = self._writer.tally.usage
        self._call(
            Progress(
                sum(counts.values()),
                self._total,
                counts.get("scored", 0),
                counts.get("unscored", 0),
                usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0),
            )
        )
