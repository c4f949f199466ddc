"""Many samples: order, concurrency, a panel of judges, progress, what was done before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from geval.calibration import apply
from geval.checks import checked
from geval.data import Invalid
from geval.judges.base import Method
from geval.judges.jury import Pool, combine
from geval.locale import Locale
from geval.reading.answer import Failure
from geval.result import OVERALL, Score, overall_with_raw, result_record
from geval.runs.run import Writer
from geval.sample import Sample
from geval.scoring import score_criterion
from geval.settings import Settings
from geval.template import Template
from geval.traffic.asking import RunAsker, heartbeat
from geval.traffic.limits import Limits
from geval.units.parts import Unit
from geval.units.scoring import score_by_units

WINDOW = 1_000
"""Samples looked at together to put those with a shared beginning next to each other."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a progress bar shows; handed to the callback after each sample."""

    done: int
    total: int | None
    scored: int
    unscored: int
    tokens: int
    locale: Locale | None = None


@dataclass(frozen=True)
class Juror:
    """One judge of a run: how it is asked, and the methods that are tried with it."""

    asker: RunAsker
    methods: tuple[Method, ...]
    settings: Settings

    @property
    def serial(self) -> bool:
        """Whether it answers one call at a time, and faster in an order that shares beginnings."""
        return self.asker.judge.concurrency == 1


OnProgress = Callable[[Progress], None]
Item = tuple[int, Sample | Invalid, int]


async def judge_samples(
    template: Template,
    samples: Iterable[Sample | Invalid],
    panel: Sequence[Juror],
    writer: Writer,
    *,
    limits: Limits,
    repeats: int = 1,
    pool: Pool = "mean",
    total: int | None = None,
    on_progress: OnProgress | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Judge every sample that the run has not done yet, and write each as it comes.

    A failure of one row becomes an unscored result; an error that no row would escape is raised
    after what was judged is written.
    """
    work = _in_good_order(
        _outstanding(samples, repeats, writer),
        template,
        all(juror.serial for juror in panel),
    )
    report = _Reporter(writer, total, on_progress, template.locale)
    report()

    async def worker() -> None:
        for order, item, repeat in work:
            if isinstance(item, Invalid):
                scores = _invalid(template, item, repeat)
            else:
                scores = await _judge(template, item, panel, repeat, pool)
            writer.sample(_records(template, scores, panel, item, order))
            report()

    beat = asyncio.create_task(heartbeat([j.asker for j in panel], limits.heartbeat, note))
    workers = min(64, max(1, *(limits.concurrency or j.asker.judge.concurrency for j in panel), 1))
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    finally:
        beat.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beat


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that stopped the run; the others fell with it."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _judge(
    template: Template,
    sample: Sample,
    panel: Sequence[Juror],
    repeat: int,
    pool: Pool,
) -> list[Score]:
    """Scores of one sample, in the order of the criteria, calibrated as the template says."""
    return [apply(template, score) for score in await _raw(template, sample, panel, repeat, pool)]


async def _raw(
    template: Template,
    sample: Sample,
    panel: Sequence[Juror],
    repeat: int,
    pool: Pool,
) -> list[Score]:
    """Scores of the whole sample or by its units, as they were read."""
    if not template.front.units:
        return await _by_panel(template, sample, panel, repeat, pool)
    return await score_by_units(
        template,
        sample,
        panel,
        lambda unit: _by_panel(template, sample, panel, repeat, pool, unit),
        serial=all(juror.serial for juror in panel),
        repeat=repeat,
    )


async def _by_panel(
    template: Template,
    sample: Sample,
    panel: Sequence[Juror],
    repeat: int,
    pool: Pool,
    unit: Unit | None = None,
) -> list[Score]:
    """Scores of a sample or a unit of it, from each judge or the one there is."""
    if len(panel) == 1:
        return await _by_one(template, sample, panel[0], repeat, unit)
    verdicts = await asyncio.gather(
        *(_by_one(template, sample, juror, repeat, unit) for juror in panel)
    )
    names = [juror.asker.judge.spec for juror in panel]
    return [
        combine(list(zip(names, of_one, strict=True)), pool)
        for of_one in zip(*verdicts, strict=True)
    ]


async def _by_one(
    template: Template, sample: Sample, juror: Juror, repeat: int, unit: Unit | None
) -> list[Score]:
    calls = [
        score_criterion(
            template, c, sample, juror.asker, juror.methods, juror.settings, repeat, unit
        )
        for c in template.criteria
    ]
    if juror.serial:  # in order, so that each prompt finds its prefix still evaluated
        return [await call for call in calls]
    return list(await asyncio.gather(*calls))


def _records(
    template: Template,
    scores: Sequence[Score],
    panel: Sequence[Juror],
    item: Sample | Invalid,
    order: int,
) -> list[dict[str, Any]]:
    """Result lines of one sample: its criteria, then the overall line with the checks."""
    judge = " + ".join(juror.asker.judge.spec for juror in panel)
    revision = " + ".join(juror.asker.revision or "" for juror in panel).strip(" +") or None
    place: dict[str, Any] = {"sheet": item.source.sheet, "row": item.source.row, "order": order}
    if isinstance(item, Sample) and item.group is not None:
        place["group"] = item.group
    records = [
        result_record(
            s, fingerprint=template.fingerprint, judge=judge, revision=revision, source=place
        )
        for s in (*scores, overall_with_raw(template, scores))
    ]
    covered = [r["coverage"] for r in records if r["coverage"] is not None]
    records[-1]["coverage"] = min(covered, default=None)
    if isinstance(item, Sample):
        for finding in checked(template, item):
            records[-1]["warnings"].append(finding.warning)
            records[-1][finding.warning] = list(finding.texts)
    return records


def _outstanding(
    samples: Iterable[Sample | Invalid], repeats: int, writer: Writer
) -> Iterator[Item]:
    for order, sample in enumerate(samples):
        for repeat in range(repeats):
            if (sample.id, repeat) not in writer.done:
                yield order, sample, repeat


def _in_good_order(work: Iterator[Item], template: Template, serial: bool) -> Iterator[Item]:
    """A judge that keeps one prefix gets the prompts of a window sorted: a walk over their tree."""
    if not serial:
        yield from work
        return

    def prompt(item: Item) -> str:
        sample = item[1]
        return "" if isinstance(sample, Invalid) else template.render(sample)[-1]["content"]

    while window := list(islice(work, WINDOW)):
        yield from sorted(window, key=prompt)


def _invalid(template: Template, row: Invalid, repeat: int) -> list[Score]:
    failure = Failure("invalid_row", row.reason)
    return [
        Score(row.id, c.name, "unscored", failure=failure, repeat=repeat) for c in template.criteria
    ]


class _Reporter:
    def __init__(
        self, writer: Writer, total: int | None, call: OnProgress | None, locale: Locale
    ) -> None:
        self._writer, self._total, self._call, self._locale = writer, total, call, locale

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
                self._locale,
            )
        )
