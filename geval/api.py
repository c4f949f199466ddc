"""The public functions. `ascore` is the one implementation; `score` and the command wrap it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geval.asking import Price, RunAsker
from geval.data import FileRows, Rows, header_names, load_samples, read_rows
from geval.data.validate import Loaded
from geval.engine import Juror, OnProgress, judge_samples
from geval.errors import ConfigError, DataError, TemplateError
from geval.judges.base import METHODS, Judge, open_judge
from geval.jury import Pool
from geval.limits import Budget, Limits
from geval.locale import column_families, guess_locale
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
    bounds = limits or Limits()
    async with AsyncExitStack() as opened:
        judges: list[Judge] = []
        for one in named:
            if isinstance(one, str):
                judges.append(_open(one, base_url, verbose))
                opened.push_async_callback(judges[-1].aclose)
            else:
                judges.append(one)
        chosen = _settings(settings, judges, method, reasons, repeat)
        methods = [
            choose_methods(chosen.method, await j.methods(), job.template, chosen.reasons)
            for j in judges
        ]
        writer = await asyncio.to_thread(_writer, job, judges, chosen, pool, out, force_new)
        held = await asyncio.to_thread(_cache, cache, note)
        if held is not None:
            opened.callback(held.close)
        budget = Budget(bounds)
        panel = [
            Juror(
                RunAsker(j, writer, bounds, budget, cache=held, price=_price(j), note=note),
                served,
            )
            for j, served in zip(judges, methods, strict=True)
        ]
        return await _judge(job, panel, chosen, pool, writer, budget, on_progress)


def _open(spec: str, base_url: str | None, verbose: bool) -> Judge:
    options: dict[str, Any] = {}
    if base_url is not None:
        options["base_url"] = base_url
    if verbose and spec.partition(":")[0] == "local":
        options["verbose"] = True
    return open_judge(spec, **options)


def _cache(wanted: bool, note: Note) -> Cache | None:
    """The reply cache; recorded replies are answered from their own file all the same."""
    if not wanted:
        return None
    from geval.cache import Cache

    return Cache(note=note)


def _price(judge: Judge) -> Price:
    from geval.prices import price_of

    from geval.prices import price_of

    return price_of(judge.identity())


def _settings(
    settings: Settings | None,
    judges: Sequence[Judge],
    method: str | None,
    reasons: Reasons | None,
    repeat: int | None,
) -> Settings:
    """Settings with what was named; reasons for low rows only where each costs local minutes."""
    local = any(judge.spec.partition(":")[0] == "local" for judge in judges)
    chosen = settings or Settings(reasons="low" if local else "all")
    if method is not None:
        if method not in (*METHODS, "auto"):
            raise ConfigError(
                f"unknown method {method!r}", hint=f"Known: auto, {', '.join(METHODS)}."
            )
        chosen = replace(chosen, method=method)  # type: ignore[arg-type]
    if reasons is not None:
        if reasons not in ("none", "low", "all"):
            raise ConfigError(f"unknown reasons {reasons!r}", hint="Known: none, low, all.")
        chosen = replace(chosen, reasons=reasons)
    if repeat is not None:
        if repeat < 1:
            raise ConfigError(f"repeat is {repeat}; it must be at least 1")
        chosen = replace(chosen, repeat=repeat)
    return chosen


def run_identity(
    job: Job, judges: Sequence[Judge], settings: Settings, pool: Pool
) -> dict[str, Any]:
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
            {"spec": j.spec, **{k: v for k, v in j.identity().items() if k != "revision"}}
            for j in judges
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
    judges: Sequence[Judge],
    settings: Settings,
    pool: Pool,
    out: str | Path | None,
    force_new: bool,
) -> Writer:
    identity = run_identity(job, judges, settings, pool)
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
            settings,
            writer,
            limits=budget.limits,
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
