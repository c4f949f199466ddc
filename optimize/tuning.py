"""`geval.tune`: a study from rows and labels to a template, in a folder that continues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geval.errors import UsageError
from geval.job import Note, silent
from geval.judges.base import Judge, Reply, Request
from geval.judges.panel import open_seat, run_settings
from geval.settings import Settings
from geval.template import Template
from geval.traffic.asking import patiently
from geval.traffic.cache import Cache
from geval.traffic.limits import Limits

from .export import provenance, result_record, write_templates
from .judging import JudgeEvaluator
from .labelled import Labelled, load
from .ledger import BudgetSpent, Ledger, StudyAsker
from .loop import Options, Outcome, Study, Tried
from .report import write_report
from .study import Folder, default_out
from .verdict import Verdict, check_metric

if TYPE_CHECKING:
    from .loop import Proposer

BUDGET = 2_000


@dataclass(frozen=True)
class Tuned:
    """How a study ended.

    `template` is the one to use: the tuned one where `verdict` is "better", else the seed's
    prompt with its calibration. `candidate` is the path of a tuned template that was not shown to
    be better. `result` is the content of `study/result.json`; `paid` are the calls that no cache
    answered, in all sittings.
    """

    verdict: Verdict
    template: Template
    path: Path
    candidate: Path | None
    report: Path | None
    result: dict[str, Any]
    paid: dict[str, int]


@dataclass(frozen=True)
class Plan:
    """What a study would ask for. Tokens are a high guess at those of prompts."""

    rows: dict[str, int]
    groups: int
    explore: bool
    choices: dict[str, list[str]]
    budget: int
    seed_requests: int
    test_requests: int
    candidates: int
    tokens_per_request: int
    prompt: list[dict[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Wish:
    """What the user asked for; the same wish continues the same study."""

    labels: Any
    data: Any = None
    template: str | Path | Template = ""
    locale: str | None = None
    templates: tuple[str | Path, ...] = ()
    judge: str | Judge = "local"
    base_url: str | None = None
    proposer: str | Judge | None = None
    proposer_url: str | None = None
    method: str | None = None
    columns: Any = ()
    label_map: Any = ()
    label_scale: tuple[float, float] | None = None
    group: str | None = None
    id: str | None = None
    sheet: str | None = None
    criteria: tuple[str, ...] = ()
    metric: str = "spearman"
    budget: int = BUDGET
    rounds: int = 2
    seed: int = 0
    orders: tuple[str, ...] | None = None
    skip_invalid: bool = False

    def command(self) -> dict[str, Any]:
        """The wish as plain values, where it can be told in them."""
        told: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name in ("labels", "data", "template", "judge", "proposer"):
                if not isinstance(value, (str, Path, type(None))):
                    return {}
                if value is not None and Path(value).is_file():
                    value = Path(value).resolve()
            if name == "templates":
                value = [str(Path(v).resolve()) for v in value]
            told[name] = str(value) if isinstance(value, Path) else value
        return told


def tune(labels: Any, *, template: str | Path | Template, **options: Any) -> Tuned:
    """Tune a template against people's labels; the better file, or the honest word that none was
    found.

        tuned = geval.tune("labels.jsonl", template="finance_qa", judge="openai:MODEL",
                           proposer="openai:STRONGER", budget=3000)
        tuned.verdict, tuned.path

    `labels` are rows with a column per criterion (`data` names the rows to judge where they are
    in another file; ids join the two). `judge` is what the template is tuned for, `proposer` what
    writes texts: None takes the judge itself where it can write, "none" nobody. `budget` counts
    distinct requests to both, cached or not. `metric` (spearman, kendall, pearson, qwk, mae, auc)
    is that of the test. Further options: `locale`, `templates`, `base_url`, `proposer_url`,
    `method`, `columns` (fields and criteria to columns), `label_map`, `label_scale`, `group` (the
    column of the document), `id`, `sheet`, `criteria` (default: all with labels), `rounds`,
    `seed`, `orders`, `skip_invalid`, `out` (default `tuned/NAME.LOCALE`), `force_new`, `limits`,
    `cache`, `report`, `note`. Needs the extra `optimize`.

    The same call continues a study that was interrupted. Raises a GevalError for bad input before
    anything is asked; it has an event loop of its own, so it also works inside a running one.
    """
    run = {k: options.pop(k) for k in list(options) if k in _RUN}
    wish = make_wish(labels, template, options)
    return _in_thread(lambda: _tune(wish, **run))


def plan(labels: Any, *, template: str | Path | Template, **options: Any) -> Plan:
    """What `tune` with these arguments would ask for; everything is checked, nothing is asked."""
    run = {k: options.pop(k) for k in list(options) if k in _RUN}
    return _plan(make_wish(labels, template, options), run.get("note", silent))


_RUN = ("out", "force_new", "limits", "cache", "report", "note", "progress")


def make_wish(labels: Any, template: str | Path | Template, options: Mapping[str, Any]) -> Wish:
    """The options as a `Wish`. Raises UsageError for one that is unknown or out of range."""
    from geval.errors import nearest

    fields = Wish.__dataclass_fields__
    unknown = [name for name in options if name not in fields]
    if unknown:
        raise UsageError(f"tune has no option {unknown[0]!r}", hint=nearest(unknown[0], fields))
    given = {k: v for k, v in options.items() if v is not None}
    for name in ("templates", "criteria", "orders"):
        if name in given:
            value = given[name]
            given[name] = (value,) if isinstance(value, (str, Path)) else tuple(value)
    wish = Wish(labels, template=template, **given)
    if wish.budget < 1 or wish.rounds < 1:
        raise UsageError("budget and rounds must be at least 1")
    return wish


def _load(wish: Wish, note: Note) -> Labelled:
    rows = load(
        wish.labels,
        data=wish.data,
        template=wish.template,
        locale=wish.locale,
        templates=wish.templates,
        columns=wish.columns,
        label_map=wish.label_map,
        label_scale=wish.label_scale,
        group=wish.group,
        id=wish.id,
        sheet=wish.sheet,
        criteria=wish.criteria,
        skip_invalid=wish.skip_invalid,
        note=note,
    )
    check_metric(wish.metric, rows.human)
    return rows


def _orders(wish: Wish, local: bool, rows: Labelled, note: Note) -> tuple[str, ...]:
    """Orders that may be tried. Writing a reason first costs a local model minutes a row."""
    known = ("score_only", "score_first", "reason_first")
    if wish.orders is not None:
        wrong = [o for o in wish.orders if o not in known]
        if wrong:
            raise UsageError(f"unknown order {wrong[0]!r}", hint=f"Known: {', '.join(known)}.")
        return wish.orders
    own = rows.template.front.output.order
    if local and own != "reason_first":
        note("the order reason_first is not tried: a local model takes long to write reasons "
             "(--order reason_first tries it)")  # fmt: skip
        return known[:2]
    return known


def _is_local(judge: str | Judge) -> bool:
    spec = judge if isinstance(judge, str) else judge.spec
    return spec.partition(":")[0] == "local"


def _plan(wish: Wish, note: Note) -> Plan:
    from geval.judges.base import Request
    from geval.traffic.asking import likely_tokens

    from .space import demo_sets, structural
    from .split import split

    rows = _load(wish, note)
    orders = _orders(wish, _is_local(wish.judge), rows, note)
    parts = split(rows.group, rows.level(), wish.seed)
    demos, _ = demo_sets(rows, parts.train, wish.seed)
    space = structural(rows.template, rows.criteria, orders, demos)
    criteria = len(rows.criteria)
    one = rows.template.renderer.render(rows.samples[0], rows.template.criterion(rows.criteria[0]))
    tokens = [
        likely_tokens(
            Request(rows.template.renderer.render(s, rows.template.criterion(c)), "single", 8)
        )
        for s in rows.samples[:200]
        for c in rows.criteria
    ]
    seed_requests = criteria * len(parts.dev)
    test_requests = 2 * criteria * len(parts.test)
    free = wish.budget - seed_requests - test_requests
    return Plan(
        {"train": len(parts.train), "dev": len(parts.dev), "test": len(parts.test)},
        len(rows.groups),
        parts.explore,
        {key: list(options) for key, options in space.choices.items()},
        wish.budget,
        seed_requests,
        test_requests,
        max(0, free // max(1, seed_requests)),
        round(sum(tokens) / len(tokens)),
        [dict(m) for m in one],  # type: ignore[arg-type]
    )


def _in_thread(job: Callable[[], Tuned]) -> Tuned:
    """Run where no event loop is; a loop in the caller's thread is left alone."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return job()
    outcome: list[Tuned] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(job())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body, name="geval-tune", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _tune(
    wish: Wish,
    *,
    out: str | Path | None = None,
    force_new: bool = False,
    limits: Limits | None = None,
    cache: bool = True,
    report: bool = True,
    note: Note = silent,
    progress: Callable[[str, Sequence[Tried], Ledger], None] = lambda phase, tried, ledger: None,
) -> Tuned:
    from .search import optuna

    optuna()
    rows = _load(wish, note)
    bounds = limits or Limits()
    with ExitStack() as opened:
        runner = opened.enter_context(asyncio.Runner())
        seat = open_seat(wish.judge, wish.base_url, False, bounds)
        if isinstance(wish.judge, str):
            opened.callback(lambda: runner.run(seat.judge.aclose()))
        settings = run_settings(None, [seat.judge], wish.method, None, None)
        settings = seat.settled(settings, wish.method).settings
        identity = _identity(wish, rows, seat.judge, settings)
        folder = Folder(out or default_out(rows.template.name, rows.template.front.locale))
        command = wish.command()
        continued = folder.open(
            identity, {**command, "cache": cache} if command else {}, force_new=force_new
        )
        opened.callback(folder.close)
        if continued:
            note(f"continuing the study in {folder.out}: what was judged is not asked again")
        ledger = Ledger(wish.budget, folder.path("ledger.jsonl"))
        opened.callback(ledger.close)
        own = Cache(folder.path("replies.sqlite"), note=note)
        opened.callback(own.close)
        shared = Cache(note=note) if cache else None
        if shared is not None:
            opened.callback(shared.close)

        async def served() -> Any:
            return await patiently(seat.judge.methods, seat.limits)

        async def asker_for(judge: Judge, its: Limits) -> StudyAsker:
            return StudyAsker(judge, ledger, own, shared, its, note)

        asker = runner.run(asker_for(seat.judge, seat.limits))
        evaluate = JudgeEvaluator(
            rows, asker, runner.run(served()), settings, runner, seat.limits.concurrency
        )
        local = _is_local(wish.judge)
        study = Study(
            rows,
            evaluate,
            ledger,
            Options(wish.metric, wish.rounds, wish.seed, _orders(wish, local, rows, note)),
            proposer=_proposer(wish, rows, runner, asker, asker_for, bounds, opened, note),
            journal=folder.path("optuna.journal"),
            note=note,
            progress=lambda phase, tried: _told(folder, ledger, phase, tried, progress),
        )
        outcome = study.run()
        return _finish(rows, identity, outcome, folder, ledger, asker, report, note)


def _proposer(
    wish: Wish,
    rows: Labelled,
    runner: asyncio.Runner,
    asker: StudyAsker,
    asker_for: Any,
    bounds: Limits,
    opened: ExitStack,
    note: Note,
) -> Proposer | None:
    """Who writes texts: a judge of its own, the judge itself where it can write, or nobody."""
    from .propose import DspyProposer, can_write

    if wish.proposer == "none":
        note(ALONE)
        return None
    if wish.proposer is not None:
        seat = open_seat(wish.proposer, wish.proposer_url, False, bounds)
        if isinstance(wish.proposer, str):
            opened.callback(lambda: runner.run(seat.judge.aclose()))
        asker = runner.run(asker_for(seat.judge, seat.limits))

    def ask(request: Request) -> Reply:
        return runner.run(asker.ask(request))

    if wish.proposer is None:
        if "single" not in runner.run(patiently(asker.judge.methods, bounds)):
            note(ALONE)
            return None
        try:
            if not can_write(rows, ask, asker.ledger):
                language = rows.template.locale.name
                note(
                    f"{asker.judge.spec} cannot write usable text in {language}, and no "
                    f"--proposer is named. {ALONE}"
                )
                return None
        except BudgetSpent:
            return None
        note(f"{asker.judge.spec} also writes the proposals (--proposer names another model)")
    return DspyProposer(rows, ask, asker.ledger, wish.seed)


ALONE = "Nobody writes texts: the search runs over order, levels' wording, steps and demos alone."


def _told(
    folder: Folder, ledger: Ledger, phase: str, tried: Sequence[Tried], progress: Any
) -> None:
    losses = [t.loss for t in tried if t.complete]
    folder.write(
        "progress.json",
        {"phase": phase, "tried": len(tried), "requests": ledger.used, "budget": ledger.budget,
         "paid": ledger.paid, "first_loss": losses[0] if losses else None,
         "best_loss": min(losses, default=None)},
    )  # fmt: skip
    progress(phase, tried, ledger)


def _identity(wish: Wish, rows: Labelled, judge: Judge, settings: Settings) -> dict[str, Any]:
    """What a study is about; another one may not continue it."""
    from .export import versions

    template = rows.template
    proposer = wish.proposer
    if proposer is not None and not isinstance(proposer, str):
        proposer = proposer.spec
    return {
        "template": {"name": template.name, "locale": template.front.locale,
                     "fingerprint": template.fingerprint},
        "data": {"sha256": rows.sha256, "rows": rows.n, "groups": len(rows.groups),
                 "criteria": list(rows.criteria)},
        "judge": {"spec": judge.spec,
                  "identity": {k: v for k, v in judge.identity().items() if k != "revision"},
                  "method": settings.method, "temperature": settings.temperature},
        "proposer": proposer,
        "metric": wish.metric,
        "budget": wish.budget,
        "rounds": wish.rounds,
        "seed": wish.seed,
        "orders": None if wish.orders is None else list(wish.orders),
        "versions": versions(),
    }  # fmt: skip


def _finish(
    rows: Labelled,
    identity: Mapping[str, Any],
    outcome: Outcome,
    folder: Folder,
    ledger: Ledger,
    asker: StudyAsker,
    report: bool,
    note: Note,
) -> Tuned:
    hashes = [rows.row_sha256(i) for i in outcome.demo_rows]
    block = provenance(outcome, identity, sorted(asker.revisions), hashes)
    main, candidate = write_templates(folder.out, outcome, block)
    record = result_record(outcome, identity, main, candidate, folder.out)
    folder.write("result.json", record)
    paid = {"requests": ledger.paid, "tokens": ledger.paid_tokens, "from_cache": ledger.cached}
    folder.write("paid.json", paid)
    _told(folder, ledger, "done", outcome.tried, lambda *_: None)
    page = write_report(folder.out, record, paid) if report else None
    return Tuned(
        outcome.result.verdict,
        Template.load(main),
        main,
        candidate,
        page,
        record,
        paid,
    )
