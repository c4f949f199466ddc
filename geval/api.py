"""The public functions. `ascore` is the one implementation; `score` and the command wrap it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geval.asking import Price, RunAsker, patiently
from geval.data import FileRows, Rows, header_names, load_samples, read_rows
from geval.data.validate import Loaded
from geval.engine import Juror, OnProgress, judge_samples
from geval.errors import ConfigError, DataError, TemplateError
from geval.judges.base import METHODS, Judge, open_judge
from geval.jury import Pool
from geval.limits import Budget, Limits
from geval.locale import column_families, guess_locale
from geval.plan import Plan, plan
from geval.run import Run, Writer, new_folder, unfinished
from geval.scoring import Reasons, Settings, choose_methods
from geval.template import Template, available, find, locale_folders, parse, search_path

if TYPE_CHECKING:
    from geval.cache import Cache

Note = Callable[[str], None]
ColumnMap = Mapping[str, str | Sequence[str]] | Iterable[str]


def _silent(note: str) -> None:
    return None


@dataclass(frozen=True)
class Job:
    """What `ascore` will do, checked: template chosen, rows validated. Nothing was judged yet."""

    template: Template
    data: Loaded
    note: Note = _silent


def prepare(
    data: Any = None,
    *,
    template: str | Path | Template,
    locale: str | None = None,
    templates: Iterable[str | Path] = (),
    columns: ColumnMap = (),
    skip_invalid: bool = False,
    note: Note = _silent,
) -> Job:
    """Load the template, choose its locale, map the columns and check every row.

    Without `data` the template's own examples are taken. Raises TemplateError or DataError with
    every fault found.
    """
    folders = search_path(templates)
    rows = None if data is None else read_rows(data)
    if isinstance(template, Template):
        chosen = template
    else:
        chosen = _load(template, locale, folders, rows, note)
    if rows is None:
        examples = chosen.examples()
        if examples is None:
            raise DataError(
                f"template {chosen.name!r} has no examples file, so there is nothing to score",
                hint="Give a data file: geval score DATA --template "
                f"{chosen.name} (.jsonl, .csv, ...).",
            )
        note(f"no data given: scoring the template's own examples ({examples.name})")
        rows = read_rows(examples)
    families = column_families(locale_folders(chosen.folders))
    inputs = chosen.front.inputs
    if isinstance(rows, FileRows):
        rows.header = header_names(inputs, families)
    loaded = load_samples(
        rows,
        inputs,
        families,
        columns,
        skip_invalid=skip_invalid,
        criteria=[c.name for c in chosen.criteria],
    )
    note(f"columns: {loaded.mapping}")
    for text in loaded.notes:
        note(text)
    first = next(iter(loaded.samples()))
    for criterion in chosen.criteria:  # what fails on every row fails before the first call
        chosen.renderer.render(first, criterion)
    return Job(chosen, loaded, note)


def _load(
    name: str | Path,
    locale: str | None,
    folders: Sequence[Path],
    rows: Rows | None,
    note: Note,
) -> Template:
    """The template; among several locales the one of the data's language."""
    path = find(name, locale, folders)
    chosen = parse(path.read_bytes(), path, folders)
    if locale is not None and chosen.front.locale != locale:
        raise TemplateError(
            f"is written for locale {chosen.front.locale!r}, not {locale!r}", where=str(path)
        )
    locales = available(folders).get(str(name), {})
    if locale is None and rows is not None and len(locales) > 1:
        guess = _language(rows, locales)
        if guess and guess != chosen.front.locale:
            path = locales[guess]
            chosen = parse(path.read_bytes(), path, folders)
        told = "by the language of the data" if guess else "by default"
        note(f"locale {chosen.front.locale} {told} (--locale chooses)")
    return chosen


def _language(rows: Rows, locales: Iterable[str]) -> str | None:
    """Language of the first rows' texts, among `locales`."""
    try:
        first = [row.values for row in islice(rows, 50)]
    except DataError:
        return None  # its faults are told once, when the rows are checked
    texts = (str(value) for values in first for value in values.values() if value)
    return guess_locale(texts, locales)


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
    note: Note = _silent,
    verbose: bool = False,
) -> Run:
    """Score rows with a rubric template and return the `Run`.

    `data`: a path (.jsonl, .json, .csv, .tsv, each also .gz), "-" for JSON Lines on standard
    input, a list of dicts, a DataFrame; None takes the template's own examples. `template`: a
    name, a path, or a `Template`. `judge`: a spec ("local", "openai:MODEL", "replay:FILE"), a
    `Judge`, or several of them: then their distributions are averaged (`pool="median"`: the median
    of their scores). `columns` maps fields to columns where names differ. `method`, `reasons` and
    `repeat` override those of `settings`. `limits` bounds traffic, time and money. `cache` False
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
        skip_invalid=skip_invalid,
        note=note,
    )
    named = [judge] if isinstance(judge, str) or not isinstance(judge, Sequence) else list(judge)
    if not named:
        raise ConfigError("no judge was named")
    bounds = limits or Limits()
    async with AsyncExitStack() as opened:
        seats = []
        for one in named:
            seats.append(_seat(one, base_url, verbose, bounds))
            if isinstance(one, str):
                opened.push_async_callback(seats[-1].judge.aclose)
        chosen = _settings(settings, [s.judge for s in seats], method, reasons, repeat)
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
        writer = await asyncio.to_thread(_writer, job, seats, chosen, pool, out, force_new)
        held = await asyncio.to_thread(_cache, cache, note)
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
                    price=_price(s.judge),
                    note=note,
                ),
                served,
                s.settings,
            )
            for s, served in zip(seats, methods, strict=True)
        ]
        return await _judge(job, panel, chosen, pool, writer, budget, on_progress)


async def aplan(
    data: Any = None,
    *,
    template: str | Path | Template,
    locale: str | None = None,
    judge: str | Judge | Sequence[str | Judge] = "local",
    base_url: str | None = None,
    templates: Iterable[str | Path] = (),
    columns: ColumnMap = (),
    method: str | None = None,
    reasons: Reasons | None = None,
    repeat: int | None = None,
    skip_invalid: bool = False,
    settings: Settings | None = None,
    note: Note = _silent,
) -> Plan:
    """What `ascore` with these arguments would ask for; everything is checked, nothing asked."""
    job = await asyncio.to_thread(
        prepare,
        data,
        template=template,
        locale=locale,
        templates=list(templates),
        columns=columns,
        skip_invalid=skip_invalid,
        note=note,
    )
    named = [judge] if isinstance(judge, str) or not isinstance(judge, Sequence) else list(judge)
    seats = [_seat(one, base_url, False, Limits()) for one in named]
    chosen = _settings(settings, [s.judge for s in seats], method, reasons, repeat)
    try:
        return plan(job.template, job.data, [s.judge.identity() for s in seats], chosen)
    finally:
        for one, seat in zip(named, seats, strict=True):
            if isinstance(one, str):
                await seat.judge.aclose()


@dataclass(frozen=True)
class Seat:
    """A judge of the run with what its configuration says of how it is asked."""

    judge: Judge
    limits: Limits
    method: str | None = None
    temperature: float | None = None
    settings: Settings = field(default_factory=Settings)

    def settled(self, settings: Settings, method: str | None) -> Seat:
        """With the run's settings, where neither the command nor its configuration says more."""
        own = settings
        if self.method is not None and method in (None, "auto"):
            own = _with_method(own, self.method)
        if self.temperature is not None and own.temperature is None:
            own = replace(own, temperature=self.temperature)
        return replace(self, settings=own)


def _seat(judge: str | Judge, base_url: str | None, verbose: bool, limits: Limits) -> Seat:
    """Open a judge by its spec or its name in the configuration."""
    if not isinstance(judge, str):
        return Seat(judge, limits)
    from geval.config import RUN_OPTIONS, resolve_judge

    spec, options = resolve_judge(judge, {"base_url": base_url})
    own = {name: options.pop(name) for name in RUN_OPTIONS if name in options}
    if verbose and spec.partition(":")[0] == "local":
        options["verbose"] = True
    bounds = replace(limits, rpm=limits.rpm or own.get("rpm"), tpm=limits.tpm or own.get("tpm"))
    return Seat(open_judge(spec, **options), bounds, own.get("method"), own.get("temperature"))


def _with_method(settings: Settings, method: str) -> Settings:
    if method not in (*METHODS, "auto"):
        raise ConfigError(f"unknown method {method!r}", hint=f"Known: auto, {', '.join(METHODS)}.")
    return replace(settings, method=method)  # type: ignore[arg-type]


def _cache(wanted: bool, note: Note) -> Cache | None:
    """The reply cache; recorded replies are answered from their own file all the same."""
    if not wanted:
        return None
    from geval.cache import Cache

    return Cache(note=note)


def _price(judge: Judge) -> Price:
    from geval.prices import price_of

    return price_of(judge.identity())


def default_reasons(specs: Iterable[str]) -> Reasons:
    """For low or uncertain scores where each reason costs local seconds, else for all."""
    return "low" if any(spec.partition(":")[0] == "local" for spec in specs) else "all"


def _settings(
    settings: Settings | None,
    judges: Sequence[Judge],
    method: str | None,
    reasons: Reasons | None,
    repeat: int | None,
) -> Settings:
    """Settings with what was named; reasons for low rows only where each costs local minutes."""
    chosen = settings or Settings(reasons=default_reasons([judge.spec for judge in judges]))
    if method is not None:
        chosen = _with_method(chosen, method)
    if reasons is not None:
        if reasons not in ("none", "low", "all"):
            raise ConfigError(f"unknown reasons {reasons!r}", hint="Known: none, low, all.")
        chosen = replace(chosen, reasons=reasons)
    if repeat is not None:
        if repeat < 1:
            raise ConfigError(f"repeat is {repeat}; it must be at least 1")
        chosen = replace(chosen, repeat=repeat)
    return chosen


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
        job.note(f"continuing the run in {folder}: {rows} of {job.data.n} rows are done")
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
            revisions=[j.asker.judge.identity().get("revision") for j in panel],
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
