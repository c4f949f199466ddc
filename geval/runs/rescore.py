"""A run's scores computed anew from its own result lines: no judge is asked.

New weights, calibration, aggregate of units or threshold make another run folder; the first stays
as it is. Scores come from the functions that scored the run (`geval.result.overall`,
`geval.calibration.apply`, `geval.units.scoring.combine_units`), over a template that stands in
for the one that was judged with: names, scales and units are those of the results. What a
judge would have to be asked for again (another prompt, units that were not judged) is refused.
"""

from __future__ import annotations

import heapq
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from geval.calibration import with_file
from geval.errors import RunError, UsageError, nearest
from geval.front import FrontMatter
from geval.runs import look
from geval.runs.again import Again, Sides, sides_of
from geval.runs.listing import counted, status_of
from geval.runs.run import REPLIES, Run, Writer, new_folder
from geval.runs.tally import Tally
from geval.template import Template
from geval.units.parts import AGGREGATES

MOST = 5
_SAME = 1e-9
_IDENTITY = ("geval", "template", "judges", "settings", "data")
_ONE_SIDE = ("precision", "recall")


@dataclass(frozen=True)
class Moved:
    """A row whose overall score (0..1) changed."""

    id: str
    repeat: int
    before: float | None
    after: float | None


@dataclass(frozen=True)
class Rescored:
    """The new run, what was changed, and what that did: `moved` of `rows` have another score."""

    run: Run
    source: Run
    changes: tuple[str, ...]
    rows: int
    moved: int
    most: tuple[Moved, ...]
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {
            "run": str(self.run.folder),
            "from": str(self.source.folder),
            "changes": list(self.changes),
            "rows": self.rows,
            "moved": self.moved,
            "most": [
                {"id": m.id, "repeat": m.repeat, "before": m.before, "after": m.after}
                for m in self.most
            ],
            "before": dict(self.before),
            "after": dict(self.after),
        }


@dataclass
class _Seen:
    """What the result lines tell of the template: scales of criteria, sets of units."""

    levels: dict[str, list[float]] = field(default_factory=dict)
    sets: list[Sides] = field(default_factory=list)


def rescore(
    run: Run,
    *,
    weights: Mapping[str, float] | None = None,
    threshold: float | None = None,
    calibration: str | Path | None = None,
    aggregate: Mapping[str, Mapping[str, float]] | None = None,
    template: str | Path | Template | None = None,
    templates: Iterable[str | Path] = (),
    out: str | Path | None = None,
) -> Rescored:
    """Score `run` anew into a folder of its own.

    `template` (a name or a file) brings weights, caps, calibration and aggregate, the other
    options come on top. `calibration` is a file of `geval calibrate`, or "none". `threshold` is
    on 0..1 of the overall score: each overall line then says whether the row `passed`.

    Raises UsageError where nothing would change or an option does not fit, RunError where
    another prompt would be needed, where a line is damaged, or where `out` is taken.
    """
    if status_of(run) == "running":
        raise RunError("the run is being written", where=str(run.folder), hint="Wait for its end.")
    if threshold is not None and not 0 <= threshold <= 1:
        raise UsageError(f"threshold {threshold:g}: expected a number from 0 to 1")
    seen = _look(run)
    old = _stand_in(run, seen)
    new = old if template is None else _same_prompts(run, template, templates)
    if aggregate is not None and template is None:
        _bothsides_of(old, aggregate)
    new = _changed(new, weights, aggregate)
    if calibration == "none":
        new = replace(new, front=new.front.model_copy(update={"calibration": None}))
    elif calibration is not None:
        new = with_file(new, calibration)
    _units_judged(new, seen)
    told = _described(run, new, named=template is not None, calibrated=calibration is not None)
    before = run.manifest.get("rescored")
    had = before.get("threshold") if isinstance(before, dict) else None
    changes = _changes(run, told, had, threshold)
    if not changes:
        raise UsageError(
            "nothing would change: the run has these weights, aggregate and calibration",
            hint="Name what is to be another: --weights, --threshold, --calibration, --aggregate.",
        )
    kept = had if threshold is None else threshold
    return _write(run, Again(run, old, new), told, kept, changes, out)


# What was judged


def _look(run: Run) -> _Seen:
    seen = _Seen()
    for record in run.results():
        name, levels = record["criterion"], record.get("levels")
        if name not in seen.levels and isinstance(levels, list) and len(levels) > 1:
            seen.levels[name] = levels
        for one in record.get("units") or ():
            sides = sides_of(one)
            if sides not in seen.sets:
                seen.sets.append(sides)
    return seen


def _stand_in(run: Run, seen: _Seen) -> Template:
    """A template with the criteria, scales, units and settings of a run, and no prompt."""
    told = run.manifest["template"]
    weights, titles = told.get("weights"), told.get("titles") or {}
    by_units = "unit_aggregate" in told
    fields = {side: "text" for sides in seen.sets for side in sides} if by_units else {}
    content: dict[str, Any] = {
        "name": told.get("name"),
        "inputs": fields or {"answer": "text"},
        "criteria": {
            name: {
                "text": "-",
                "title": str(titles.get(name) or ""),
                "weight": weight,
                # No line tells the scale of a criterion that was never scored.
                "scale": {"levels": dict.fromkeys(seen.levels.get(name, [0, 1]))},
            }
            for name, weight in (weights or {}).items()
        },
        "cap": [c for c in told.get("cap") or () if c.get("criterion") in seen.levels],
        "calibration": {
            name: spec
            for name, spec in (told.get("calibration") or {}).items()
            if name in seen.levels
        }
        or None,
    }
    if by_units and seen.sets:
        content["units"] = [{"of": a, "against": b, "by": "item"} for a, b in seen.sets]
        content["unit_aggregate"] = told["unit_aggregate"]
    try:
        return Template(FrontMatter.model_validate(content), "")
    except (ValidationError, AttributeError) as error:
        raise RunError(
            f"the manifest and the results do not fit together: {_first(error)}",
            where=str(run.folder),
            hint="Restore the files as geval wrote them.",
        ) from None


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        return f"{place}: {fault['msg']}" if place else str(fault["msg"])
    return str(error)


def _same_prompts(
    run: Run, template: str | Path | Template, folders: Iterable[str | Path]
) -> Template:
    """The template, refused where a judge would have to be asked again."""
    told = run.manifest["template"]
    if not isinstance(template, Template):
        template = Template.load(template, told.get("locale"), folders)
    if template.fingerprint != told.get("fingerprint"):
        raise RunError(
            f"template {template.name!r} has fingerprint {template.fingerprint}, the run was "
            f"judged with {told.get('fingerprint')}: its prompts or scales differ",
            where=str(run.folder),
            hint="Only weights, cap, calibration and aggregate can differ. "
            "Score the rows with the template instead: geval score DATA --template.",
        )
    return template


# What is to be another


def _changed(
    template: Template,
    weights: Mapping[str, float] | None,
    aggregate: Mapping[str, Mapping[str, float]] | None,
) -> Template:
    front = template.front.model_dump()
    for name, weight in (weights or {}).items():
        if name not in front["criteria"]:
            raise UsageError(
                f"weights: no criterion {name!r}", hint=nearest(name, front["criteria"])
            )
        front["criteria"][name]["weight"] = weight
    if aggregate is not None:
        if not template.front.units:
            raise UsageError("aggregate: the template of this run judges no units")
        for name in aggregate:
            if name not in AGGREGATES:
                raise UsageError(f"aggregate: unknown {name!r}", hint=nearest(name, AGGREGATES))
        front["unit_aggregate"] = {name: dict(given) for name, given in aggregate.items()}
    try:
        return replace(template, front=FrontMatter.model_validate(front))
    except ValidationError as error:
        raise UsageError(_first(error).removeprefix("Value error, ")) from None


def _bothsides_of(old: Template, aggregate: Mapping[str, Any]) -> None:
    """Of two sets of units `precision` and `recall` have one judged: which, the run cannot tell."""
    was = old.front.aggregate_name
    if was in _ONE_SIDE and any(name in _ONE_SIDE and name != was for name in aggregate):
        raise UsageError(
            f"aggregate: the run judged the units that {was} reads, not those of the other side",
            hint="Score the rows with a template whose aggregate reads both, such as f1.",
        )


def _units_judged(new: Template, seen: _Seen) -> None:
    if not new.front.units or not seen.sets:
        return
    lost = [s for s in new.front.unit_sets if (s.of, s.against) not in seen.sets]
    if lost:
        raise UsageError(
            f"aggregate: {new.front.aggregate_name} reads the units of {lost[0].of!r} held against "
            f"{lost[0].against!r}, and the run judged none of them",
            hint="Score the rows with the new template.",
        )


def _described(run: Run, new: Template, *, named: bool, calibrated: bool) -> dict[str, Any]:
    """The template's part of the new manifest."""
    told = dict(run.manifest["template"])
    told["weights"] = {c.name: c.weight for c in new.criteria}
    if named or calibrated:
        dumped = new.front.model_dump(mode="json", include={"calibration"})
        told["calibration"] = dumped["calibration"]
    if named:
        told["cap"] = [cap.model_dump() for cap in new.front.cap]
        told["version"] = new.front.version
    if new.front.units:
        told["unit_aggregate"] = new.front.unit_aggregate or {"mean": {}}
    return json.loads(json.dumps(told))  # type: ignore[no-any-return]


def _changes(
    run: Run, told: Mapping[str, Any], had: float | None, threshold: float | None
) -> tuple[str, ...]:
    old = run.manifest["template"]
    found = []
    for key in ("weights", "cap", "unit_aggregate", "calibration", "version"):
        was, now = old.get(key), told.get(key)
        if key in ("weights", "calibration"):
            both = {**(was or {}), **(now or {})}
            found += [
                f"{key}.{name}: {_short((was or {}).get(name))} → {_short((now or {}).get(name))}"
                for name in both
                if (was or {}).get(name) != (now or {}).get(name)
            ]
        elif (was or None) != (now or None):
            found.append(f"{key}: {_short(was)} → {_short(now)}")
    if threshold is not None and threshold != had:
        found.append(f"threshold: {_short(had)} → {threshold:g}")
    return tuple(found)


def _short(value: Any) -> str:
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, int | float):
        return f"{value:g}"
    if isinstance(value, str):
        return value
    if isinstance(value, dict):  # of a calibration: what is said, not what is left at its default
        value = {k: v for k, v in value.items() if v is not None}
    return json.dumps(value, ensure_ascii=False)


# Writing


def _write(
    run: Run,
    again: Again,
    template: Mapping[str, Any],
    threshold: float | None,
    changes: tuple[str, ...],
    out: str | Path | None,
) -> Rescored:
    target = new_folder(f"{template['name']}-rescored") if out is None else Path(out)
    taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if taken:
        raise RunError(
            f"{str(target)!r} is there already", hint="Name a new folder with --out DIR."
        )
    origin = {
        "run": run.folder.resolve().name,
        "key": run.manifest.get("key"),
        "changes": list(changes),
        "threshold": threshold,
    }
    identity = {k: run.manifest[k] for k in _IDENTITY if k in run.manifest}
    before, moved = Tally.of_run(run.manifest), 0
    most: list[tuple[float, int, Moved]] = []
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        writer = Writer(beside, {**identity, "template": dict(template)})
        writer.manifest["rescored"] = origin
        writer.tally = Tally.of_run(writer.manifest)
        rows = 0
        for rows, lines in enumerate(look.rows(run), 1):
            for record in lines:
                counted(run, before, record)
            records = again.row(lines)
            old, new = lines[-1]["normalized"], records[-1]["normalized"]
            if threshold is not None:
                records[-1]["passed"] = writer.tally.passes(new)
            writer.sample(records)
            if old is None and new is None:
                continue
            size = 1.0 if old is None or new is None else abs(new - old)
            if size > _SAME:
                moved += 1
                one = Moved(lines[-1]["id"], lines[-1]["repeat"], old, new)
                heapq.heappush(most, (size, -rows, one))
                if len(most) > MOST:
                    heapq.heappop(most)
        complete = run.manifest.get("status") == "complete"
        writer.close(
            "complete" if complete else "interrupted", revisions=run.manifest.get("revisions") or ()
        )
        if (run.folder / REPLIES).exists():  # prompts stay beside the numbers that rest on them
            shutil.copyfile(run.folder / REPLIES, beside / REPLIES)
        if target.exists():
            target.rmdir()
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    made = Run(target)
    largest = tuple(m for _, _, m in sorted(most, key=lambda m: (-m[0], -m[1])))
    return Rescored(
        made, run, changes, rows, moved, largest, before.to_dict(), made.manifest["summary"]
    )
