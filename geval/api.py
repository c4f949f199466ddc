"""The public functions. `ascore` is the one implementation; `score` and the command wrap it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geval.calibration import with_file
from geval.data.values import plain
from geval.engine import Juror, OnProgress, judge_samples
from geval.errors import ConfigError
from geval.job import ColumnMap, Job, Note, prepare, silent
from geval.judges.base import Judge, Usage
from geval.judges.jury import Pool
from geval.judges.panel import Seat, open_seat, price_for, run_settings
from geval.notes import told
from geval.runs.run import Run, Writer, new_folder, unfinished
from geval.settings import Reasons, Settings, choose_methods
from geval.template import Template
from geval.traffic.asking import RunAsker, patiently
from geval.traffic.limits import Budget, Limits
from geval.traffic.plan import Plan, plan

if TYPE_CHECKING:
    from geval.traffic.cache import Cache


async def ascore(
    data: Any = None,
    *,
    template: str | Path | Template,
    locale: str | None = None,
    judge: str | Judge | Sequence[str | Judge] = "local",
    base_url: str | None = None,
    pool: Pool = "mean",
    templates: Iterable[str | Path] = (),
    columns: ColumnMap = (),
    calibration: str | Path | None = None,
    sheet: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    method: str | None = None,
    reasons: Reasons | None = None,
    repeat: int | None = None,
    out: str | Path | None = None,
    skip_invalid: bool = False,
    force_new: bool = False,
    settings: Settings | None = None,
    limits: Limits | None = None,
    cache: bool = True,
    on_progress: OnProgress | None = None,
    note: Note = silent,
    verbose: bool = False,
) -> Run:
    """Score rows with a rubric template and return the `Run`.

    `data`: a path (.jsonl, .json, .csv, .tsv, each also .gz, .xlsx, .parquet), "-" for standard
    input, a list of dicts, a DataFrame; None takes the template's own examples. `sheet` is the
    name or number of a workbook's sheet, "*" for all. `template`: a
    name, a path, or a `Template`. `judge`: a spec ("local", "openai:MODEL", "replay:FILE"), a
    `Judge`, or several of them: then their distributions are averaged (`pool="median"`: the median
    of their scores). `calibration` is a file of `geval calibrate` that takes the place of the
    template's own.
    `columns` maps fields to columns where names differ; `parameters` gives fields one value for
    all rows (the criterion of the template `aspect`, a policy). `method`, `reasons` and `repeat`
    override those of `settings`. `limits` bounds traffic, time and money. `cache` False
    neither reads nor fills the reply cache. `out` is the run folder (default: a new one under
    `runs/`, or the unfinished one of the same template, judge, settings and data).

    Raises a `GevalError` for bad input before anything is judged. A row that cannot be judged is
    `unscored` in the run, with the reason; it is never a number.
    """
    job = await asyncio.to_thread(
        prepare,
        data,
        template=template,
        locale=locale,
        templates=list(templates),
        columns=columns,
        sheet=sheet,
        parameters=parameters,
        skip_invalid=skip_invalid,
        note=note,
    )
    if calibration is not None:
        job = replace(job, template=with_file(job.template, calibration))
    named = _named(judge)
    bounds = limits or Limits()
    async with AsyncExitStack() as opened:
        seats = []
        for one in named:
            seats.append(open_seat(one, base_url, verbose, bounds, in_panel=len(named) > 1))
            if isinstance(one, str):
                opened.push_async_callback(seats[-1].judge.aclose)
        chosen = run_settings(settings, [s.judge for s in seats], method, reasons, repeat)
        seats = [s.settled(chosen, method) for s in seats]
        methods = [
            choose_methods(
                s.settings.method,
                await patiently(s.judge.methods, s.limits),
                job.template,
                chosen.reasons,
            )
            for s in seats
        ]
        for s, served in zip(seats, methods, strict=True):
            if s.settings.method == "auto" and served[0] == "samples":
                job.note(
                    told(
                        "samples_counted",
                        judge=s.judge.spec,
                        low=chosen.samples_min,
                        high=chosen.samples_max,
                    )
                )
        _tuned_for_these(job, seats)
        _needs_prices(seats, bounds)
        writer = await asyncio.to_thread(_writer, job, seats, chosen, pool, out, force_new)
        held = await asyncio.to_thread(_cache, cache, job.note)
        if held is not None:
            opened.callback(held.close)
        budget = Budget(bounds)
        panel = [
            Juror(
                RunAsker(
                    s.judge,
                    writer,
                    s.limits,
                    budget,
                    cache=held,
                    price=price_for(s.judge),
                    note=job.note,
                    revision=before,
                ),
                served,
                s.settings,
            )
            for s, served, before in zip(seats, methods, writer.revisions(len(seats)), strict=True)
        ]
        return await _judge(job, panel, chosen, pool, writer, budget, on_progress)


def _named(judge: str | Judge | Sequence[str | Judge]) -> list[str | Judge]:
    """The judges of a panel, or the one there is."""
    if isinstance(judge, str) or not isinstance(judge, Sequence):
        return [judge]
    named = list(judge)
    if not named:
        raise ConfigError("no judge was named")
    return named


def _tuned_for_these(job: Job, seats: Sequence[Seat]) -> None:
    """Tell where a template was tuned for another judge: what helps one may harm another."""
    tuned = job.template.front.optimized or {}
    own = str(tuned.get("judge") or "")
    model = tuned.get("judge_model")
    others = [
        s.judge.spec
        for s in seats
        if s.judge.spec != own and not (model and s.judge.identity().get("model") == model)
    ]
    if own and others:
        job.note(
            told("tuned_for_other", template=job.template.name, own=own, others=", ".join(others))
        )


def _needs_prices(seats: Sequence[Seat], limits: Limits) -> None:
    """A limit on money can be kept only where each judge's price is known."""
    if limits.max_cost is None:
        return
    for seat in seats:
        if price_for(seat.judge)(Usage(calls=1, prompt=1000, completion=10)) is None:
            raise ConfigError(
                f"--max-cost needs a known price, and that of {seat.judge.spec} is not known",
                hint="Give it in geval.toml ([prices]) or a file named by GEVAL_PRICES, or bound "
                "the run with --max-tokens.",
            )


async def aplan(
    data: Any = None,
    *,
    template: str | Path | Template,
    locale: str | None = None,
    judge: str | Judge | Sequence[str | Judge] = "local",
    base_url: str | None = None,
    templates: Iterable[str | Path] = (),
    columns: ColumnMap = (),
    sheet: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    method: str | None = None,
    reasons: Reasons | None = None,
    repeat: int | None = None,
    skip_invalid: bool = False,
    settings: Settings | None = None,
    note: Note = silent,
) -> Plan:
    """What `ascore` with these arguments would ask for; everything is checked, nothing asked."""
    job = await asyncio.to_thread(
        prepare,
        data,
        template=template,
        locale=locale,
        templates=list(templates),
        columns=columns,
        sheet=sheet,
        parameters=parameters,
        skip_invalid=skip_invalid,
        note=note,
    )
    named = _named(judge)
    seats = [
        open_seat(one, base_url, False, Limits(), in_panel=len(named) > 1, unasked=True)
        for one in named
    ]
    chosen = run_settings(settings, [s.judge for s in seats], method, reasons, repeat)
    try:
        return plan(job.template, job.data, [s.judge.identity() for s in seats], chosen)
    finally:
        for one, seat in zip(named, seats, strict=True):
            if isinstance(one, str):
                await seat.judge.aclose()


def _cache(wanted: bool, note: Note) -> Cache | None:
    """The reply cache; recorded replies are answered from their own file all the same."""
    if not wanted:
        return None
    from geval.traffic.cache import Cache

    return Cache(note=note)


def run_identity(job: Job, seats: Sequence[Seat], settings: Settings, pool: Pool) -> dict[str, Any]:
    """What a run is about; two runs with equal identity continue each other."""
    front = job.template.front
    return {
        "geval": version("geval"),
        "template": {
            "name": front.name,
            "locale": front.locale,
            "version": front.version,
            "fingerprint": job.template.fingerprint,
            "titles": {c.name: c.title for c in job.template.criteria},
            "weights": {c.name: c.weight for c in job.template.criteria},
            "cap": [cap.model_dump() for cap in front.cap],
            "calibration": front.model_dump(mode="json", include={"calibration"})["calibration"],
            **({"unit_aggregate": front.unit_aggregate or {"mean": {}}} if front.units else {}),
            "parameters": {name: plain(value) for name, value in job.parameters.items()},
        },
        "judges": [
            {
                "spec": s.judge.spec,
                **{k: v for k, v in s.judge.identity().items() if k != "revision"},
                "method": s.settings.method,
                "temperature": s.settings.temperature,
            }
            for s in seats
        ],
        "settings": {**settings.to_dict(), "pool": pool},
        "data": {
            "name": job.data.rows.name,
            "sha256": job.data.rows.sha256(),
            "columns": str(job.data.mapping),
            "rows": job.data.n,
            "invalid": job.data.n_invalid,
        },
    }


def _writer(
    job: Job,
    seats: Sequence[Seat],
    settings: Settings,
    pool: Pool,
    out: str | Path | None,
    force_new: bool,
) -> Writer:
    identity = run_identity(job, seats, settings, pool)
    name = job.template.name
    if out is not None:
        folder = Path(out)
    else:
        folder = (None if force_new else unfinished(identity, name)) or new_folder(name)
    writer = Writer(folder, identity, force_new=force_new)
    if writer.done:
        rows = len(writer.done) // settings.repeat
        job.note(told("continuing", folder=folder, done=rows, rows=job.data.n))
    return writer


async def _judge(
    job: Job,
    panel: Sequence[Juror],
    settings: Settings,
    pool: Pool,
    writer: Writer,
    budget: Budget,
    on_progress: OnProgress | None,
) -> Run:
    started, status = time.monotonic(), "interrupted"
    try:
        await judge_samples(
            job.template,
            job.data,
            panel,
            writer,
            limits=budget.limits,
            repeats=settings.repeat,
            pool=pool,
            total=(job.data.n + job.data.n_invalid) * settings.repeat,
            on_progress=on_progress,
            note=job.note,
        )
        status = "complete"
    finally:
        run = writer.close(
            status,
            seconds=time.monotonic() - started,
            paid=budget.to_dict(),
            revisions=[j.asker.revision for j in panel],
        )
    return run


def score(data: Any = None, **options: Any) -> Run:
    """`ascore`, run to its end: same arguments, same result.

    It has an event loop of its own in a thread of its own, so it also works where one is already
    running (Jupyter, FastAPI, pytest-asyncio). Interrupting it stops the run, which can be
    continued.
    """
    outcome: list[Run] = []
    failure: list[BaseException] = []
    loop = asyncio.new_event_loop()

    async def main() -> None:
        outcome.append(await ascore(data, **options))

    task_ready = threading.Event()
    tasks: list[asyncio.Task[None]] = []

    def body() -> None:
        asyncio.set_event_loop(loop)
        task = loop.create_task(main())
        tasks.append(task)
        task_ready.set()
        try:
            loop.run_until_complete(task)
        except BaseException as error:
            failure.append(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=body, name="geval", daemon=True)
    thread.start()
    task_ready.wait()
    try:
        thread.join()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(tasks[0].cancel)
        thread.join()
        raise
    if failure:
        raise failure[0]
    return outcome[0]
