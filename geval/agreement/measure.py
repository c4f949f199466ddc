"""How well a run matches people: `agree(run, labels)`.

Every figure names its level (pooled, within groups and then averaged, between systems), the
read it is of (`score`, `mode`: the likeliest level, `raw`: before calibration), how many rows and
groups it rests on, and a bootstrap interval over groups.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from geval.agreement import metrics, ppi
from geval.agreement.labels import Labels, Wanted, parse_label_map, read_labels
from geval.agreement.metrics import METRICS
from geval.agreement.pairs import Pairs
from geval.agreement.resample import draw_weights, interval, sign_p
from geval.calibration import CalibrationSpec, corrected
from geval.errors import DataError, UsageError
from geval.result import OVERALL
from geval.runs.lines import complete_lines
from geval.runs.run import REPLIES, Run
from geval.stats import numpy

__all__ = ["METRICS", "Agreement", "CriterionAgreement", "Figure", "agree"]

Misses = Literal["missing", "zero"]
DRAWS, SEED, LEAST_FOR_P = 2_000, 20261130, 10
_FAMILIES = (
    "gpt", "claude", "gemini", "gemma", "qwen", "llama", "mistral", "deepseek", "exaone",
    "hyperclova", "solar", "phi", "grok", "kanana", "midm",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One statistic: None as `value` where it has none (constant scores)."""

    metric: str
    level: str
    read: str
    value: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    groups_used: int
    groups_skipped: int


@dataclass
class CriterionAgreement:
    """Agreement on one criterion. `ceiling` is that of people among themselves, or None."""

    criterion: str
    n: int
    groups: int
    levels: list[float] | None
    figures: list[Figure] = field(default_factory=list)
    gain: dict[str, Any] | None = None
    corrected: dict[str, Any] | None = None
    ceiling: dict[str, float | int | None] | None = None
    confusion: list[list[int]] | None = None
    reliability: list[dict[str, float]] | None = None
    people: dict[str, Any] | None = None
    by_system: dict[str, dict[str, Any]] = field(default_factory=dict)
    differences: list[dict[str, Any]] = field(default_factory=list)
    by_group: dict[str, dict[str, Any]] = field(default_factory=dict)
    points: list[tuple[float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def value(self, metric: str, read: str = "score", level: str = "pooled") -> float | None:
        """The value of one figure. Raises KeyError where it was not taken."""
        for f in self.figures:
            if (f.metric, f.read, f.level) == (metric, read, level):
                return f.value
        raise KeyError((metric, read, level))


@dataclass
class Agreement:
    """Agreement of a run with people, by criterion, and how the two were joined."""

    run: str
    judge: str
    template: str
    locale: str
    join: dict[str, Any]
    criteria: dict[str, CriterionAgreement]
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: finite numbers, texts and None."""
        return dict(_finite(asdict(self)))


def agree(
    run: Run | str | Path,
    labels: Any,
    *,
    group: str | None = None,
    system: str | None = None,
    id: str | None = None,
    annotators: str | Sequence[str] = (),
    columns: Mapping[str, str | Sequence[str]] | Iterable[str] = (),
    label_map: Mapping[str, float | None] | Iterable[str] = (),
    label_scale: tuple[float, float] | None = None,
    sheet: str | None = None,
    misses: Misses = "missing",
    draws: int = DRAWS,
    seed: int = SEED,
) -> Agreement:
    """Compare a run with people's labels.

    `labels`: a path or rows with an id and a column per criterion (several: one per annotator);
    `columns` maps criteria to label columns where names differ. `group` names the column of the
    document a row belongs to (intervals draw groups), `system` that of the producer.
    `label_scale` are the ends of the people's scale where it is another than the judge's.
    `misses`: "missing", the default, leaves a sample out that gave no score; "zero" reads samples
    as a published study did, a miss as 0 (`original_scores`). Needs the extra `stats`.

    Raises DataError where nothing matches or a label cannot be read.
    """
    numpy()
    run = run if isinstance(run, Run) else Run(run)
    judged = read_judged(run, misses)
    told = run.manifest.get("template", {})
    wanted = Wanted(
        scales={name: one.levels or (0.0, 1.0) for name, one in judged.items()},
        titles=told.get("titles", {}),
        columns=_columns(columns),
        label_map=label_map if isinstance(label_map, Mapping) else parse_label_map(label_map),
        id=id,
        group=group,
        system=system,
        annotators=[annotators] if isinstance(annotators, str) else list(annotators),
    )
    read = read_labels(labels, wanted, sheet=sheet)
    result = Agreement(
        str(run.folder),
        " + ".join(j["spec"] for j in run.manifest.get("judges", [])),
        told.get("name", ""),
        told.get("locale", "en"),
        _join(judged, read),
        {},
        read.notes(),
    )
    for name, one in judged.items():
        if name in read.values:
            result.criteria[name] = _criterion(name, one, read, label_scale, draws, seed)
        elif name != OVERALL:
            result.notes.append(f"{name}: no labels")
    if not any(c.n for c in result.criteria.values()):
        raise DataError(
            "no scored row has a label",
            where=read.name,
            hint="Ids are compared as text: see how the two files name their rows"
            f" ({_first(next(iter(judged.values())).score)} and {_first(read.ids)}).",
        )
    result.notes += _family(result.judge, read.systems.values())
    return result


@dataclass(frozen=True)
class JoinedRows:
    """Labelled and scored rows of one criterion: (n,) each, in units of the judge's scale."""

    levels: list[float]
    raw: Any
    human: Any
    group: Any
    probs: list[list[float]] | None

    def unmapped(self, spec: CalibrationSpec) -> Any:
        """Raw scores behind the level prior of `spec`, before any map."""
        np = numpy()
        if spec.level_prior is None or self.probs is None:
            return self.raw
        values = np.array(self.levels)
        probs = np.array(self.probs)
        return (
            self.raw + np.array([corrected(p, spec) for p in self.probs]) @ values - probs @ values
        )


def joined(
    run: Run,
    labels: Any,
    *,
    group: str | None = None,
    id: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | Iterable[str] = (),
    label_map: Mapping[str, float | None] | Iterable[str] = (),
    label_scale: tuple[float, float] | None = None,
    sheet: str | None = None,
) -> dict[str, JoinedRows]:
    """Rows that have a score and a label on the judge's scale, by criterion."""
    np = numpy()
    judged = read_judged(run)
    wanted = Wanted(
        scales={name: one.levels or (0.0, 1.0) for name, one in judged.items()},
        titles=run.manifest.get("template", {}).get("titles", {}),
        columns=_columns(columns),
        label_map=label_map if isinstance(label_map, Mapping) else parse_label_map(label_map),
        id=id,
        group=group,
    )
    read = read_labels(labels, wanted, sheet=sheet)
    found = {}
    for name, one in judged.items():
        said = read.values.get(name, {})
        ids = [i for i in one.score if said.get(i)]
        if not ids or not one.levels:
            continue
        means = np.array([_mean(said[i].values()) for i in ids])
        human, same = _on_scale(means, one.levels, label_scale, [])
        if same:
            found[name] = JoinedRows(
                one.levels,
                np.array([one.raw[i] for i in ids]),
                human,
                np.array([read.groups.get(i, f"id:{i}") for i in ids]),
                [one.probs[i] for i in ids] if all(i in one.probs for i in ids) else None,
            )
    return found


@dataclass
class Judged:
    """What a run says of one criterion, by id; repeats are averaged."""

    levels: list[float] | None = None
    score: dict[str, float] = field(default_factory=dict)
    raw: dict[str, float] = field(default_factory=dict)
    mode: dict[str, float] = field(default_factory=dict)
    probs: dict[str, list[float]] = field(default_factory=dict)
    sd: dict[str, float] = field(default_factory=dict)
    unscored: dict[str, None] = field(default_factory=dict)


def read_judged(run: Run, misses: Misses = "missing") -> dict[str, Judged]:
    """Scores of a run by criterion, in the run's order. Raises UsageError for an empty run."""
    if misses not in ("missing", "zero"):
        raise UsageError(f"unknown rule for misses {misses!r}", hint="Known: missing, zero.")
    found: dict[str, Judged] = {}
    held: dict[tuple[str, str], list[dict[str, Any]]] = {}
    original = original_scores(run) if misses == "zero" else {}
    for r in run.results():
        if r.get("unit") is not None:
            continue
        one = found.setdefault(r["criterion"], Judged())
        if r["levels"] and one.levels is None:
            one.levels = list(r["levels"])
        other = original.get((r["criterion"], r["id"], r["repeat"]))
        if r["status"] == "scored" or other is not None:
            kept = {k: r[k] for k in ("score", "raw_score", "probs", "mode", "sd")}
            if other is not None:
                kept |= {"score": other, "raw_score": other}
            held.setdefault((r["criterion"], r["id"]), []).append(kept)
        else:
            one.unscored[r["id"]] = None
    if not held:
        raise UsageError(f"the run {str(run.folder)!r} has no scored row")
    for (criterion, key), lines in held.items():
        one = found[criterion]
        one.unscored.pop(key, None)
        one.score[key] = _mean(line["score"] for line in lines)
        one.raw[key] = _mean(
            line["score"] if line["raw_score"] is None else line["raw_score"] for line in lines
        )
        if all(line["probs"] for line in lines):
            many = [line["probs"] for line in lines]
            probs = [_mean(p[i] for p in many) for i in range(len(many[0]))]
            one.probs[key] = probs
            if one.levels and len(one.levels) == len(probs):
                one.mode[key] = one.levels[max(range(len(probs)), key=lambda i: (probs[i], -i))]
        one.sd[key] = _mean(line["sd"] or 0.0 for line in lines)
    return found


_DIGIT = re.compile(r"\d")


def original_scores(run: Run) -> dict[tuple[str, str, int], float]:
    """(criterion, id, repeat) -> mean over all samples as a published study read them.

    The first digit anywhere in a sample, whatever the scale; a sample without one counts 0:
    the rule that reproduces the figures published for the stored ChatGPT samples on Topical-Chat.
    For comparison with published figures only.
    """
    said: dict[tuple[str, str, int], dict[int, list[float]]] = {}
    for line in complete_lines(run.folder / REPLIES):
        r = json.loads(line)
        if r.get("method") == "samples" and r.get("purpose") == "score":
            values = [_first_digit(choice["text"]) for choice in r["choices"]]
            key = (r["criterion"], r["id"], r["repeat"])
            said.setdefault(key, {})[r["index"]] = values
    return {key: _mean(v for block in by.values() for v in block) for key, by in said.items()}


def _first_digit(text: str) -> float:
    found = _DIGIT.search(text)
    return float(found[0]) if found else 0.0


def _columns(columns: Mapping[str, str | Sequence[str]] | Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if isinstance(columns, Mapping):
        return {k: [v] if isinstance(v, str) else list(v) for k, v in columns.items()}
    for pair in columns:
        criterion, equals, column = pair.partition("=")
        if not equals or not column:
            raise DataError(f"--map: {pair!r} is no CRITERION=COLUMN")
        found.setdefault(criterion.strip(), []).append(column.strip())
    return found


def _join(judged: Mapping[str, Judged], read: Labels) -> dict[str, Any]:
    ids: dict[str, None] = {}
    for one in judged.values():
        ids |= dict.fromkeys(one.score) | one.unscored
    both = [i for i in ids if i in read.ids]
    return {
        "data": len(ids),
        "labels": len(read.ids),
        "matched": len(both),
        "unlabelled": [i for i in ids if i not in read.ids],
        "unknown": [i for i in read.ids if i not in ids],
    }


def _criterion(
    name: str,
    one: Judged,
    read: Labels,
    label_scale: tuple[float, float] | None,
    draws: int,
    seed: int,
) -> CriterionAgreement:
    np = numpy()
    said = read.values[name]
    ids = [i for i in one.score if said.get(i)]
    raters = list(dict.fromkeys(a for i in said for a in said[i]))
    ratings = np.array([[said[i].get(a, np.nan) for a in raters] for i in ids]).reshape(
        -1, len(raters)
    )
    levels = one.levels
    out = CriterionAgreement(name, len(ids), 0, levels)
    lost = sum(i in one.unscored for i in said)
    if lost:
        out.notes.append(f"{lost} labelled rows are unscored and in no figure")
    if not ids:
        out.notes.append("no scored row has a label")
        return out
    ratings, same = _on_scale(ratings, levels, label_scale, out.notes)
    human = np.nanmean(ratings, axis=1)
    groups = None
    if read.groups:
        groups = np.array([read.groups.get(i, f"id:{i}") for i in ids])
    systems = np.array([read.systems.get(i, "") for i in ids]) if read.systems else None
    with_probs = bool(levels) and all(i in one.probs for i in ids)
    reads = {"score": one.score, "mode": one.mode, "raw": one.raw}
    if all(abs(one.raw[i] - one.score[i]) < 1e-12 for i in ids):
        del reads["raw"]
    if not with_probs:
        del reads["mode"]
    ready = {
        read_name: Pairs(
            [values[i] for i in ids],
            human,
            groups,
            levels=levels if same else None,
            probs=np.array([one.probs[i] for i in ids]) if with_probs else None,
            system=systems,
        )
        for read_name, values in reads.items()
    }
    p = ready["score"]
    out.groups = p.groups
    weights = draw_weights(p.groups, draws, seed) if p.groups > 1 else np.zeros((0, p.groups))
    drawn: dict[tuple[str, str], Any] = {}
    for read_name, pairs in ready.items():
        for metric in METRICS:
            if _applies(metric, pairs, read_name):
                figure, values = _figure(metric, read_name, pairs, weights)
                out.figures.append(figure)
                drawn[read_name, metric] = values
    best = (
        "spearman@per_group"
        if p.grouped and ("score", "spearman@per_group") in drawn
        else "spearman"
    )
    out.gain = _difference(out, drawn, best, "mode")
    out.corrected = _difference(out, drawn, "exact" if same else best, "raw")
    if same:
        out.confusion = p.table(p.ones)[0].astype(int).tolist()
        if with_probs:
            out.reliability = metrics.reliability(p)
    out.ceiling = _ceiling(ratings, len(raters))
    out.points = [(float(h), float(j)) for h, j in zip(p.human, p.judge, strict=True)]
    if read.groups:
        _by_group(out, p, groups)
    if same:
        _people(out, one, said, ids, human, read)
    return out


def _on_scale(
    ratings: Any,
    levels: Sequence[float] | None,
    given: tuple[float, float] | None,
    notes: list[str],
) -> tuple[Any, bool]:
    """Ratings in units of the judge's scale, and whether they are."""
    np = numpy()
    if not levels:
        return ratings, False
    low, high = min(levels), max(levels)
    if given is not None:
        a, b = given
        if a == b:
            raise UsageError("--label-scale needs two different ends")
        return low + (ratings - a) / (b - a) * (high - low), True
    least, most = float(np.nanmin(ratings)), float(np.nanmax(ratings))
    if least < low - 1e-9 or most > high + 1e-9:
        notes.append(
            f"labels run from {least:g} to {most:g}, the judge's scale from {low:g} to {high:g}: "
            "only ranks are compared (--label-scale LOW:HIGH maps them)"
        )
        return ratings, False
    return ratings, True


def _applies(metric: str, p: Pairs, read: str) -> bool:
    np = numpy()
    checks = {
        "scale": p.levels is not None,
        "probs": p.probs is not None and read == "score",
        "two_levels": len(np.unique(p.human)) == 2,
        "groups": p.grouped and p.groups < p.n,
        "systems": p.system is not None and len(np.unique(p.system)) > 2,
    }
    return all(checks[need] for need in METRICS[metric].needs)


def _figure(metric: str, read: str, p: Pairs, weights: Any) -> tuple[Figure, Any]:
    np = numpy()
    spec = METRICS[metric]
    value = float(spec.fn(p, p.ones)[0])
    values = spec.fn(p, weights) if len(weights) else np.array([])
    ends = interval(values) if math.isfinite(value) else None
    used, skipped = p.groups, 0
    if metric.endswith("@per_group"):
        kept = np.isfinite(metrics.group_values(p, metric.partition("@")[0]))
        used, skipped = int(kept.sum()), int((~kept).sum())
    name = metric.partition("@")[0]
    # Few rows: a p-value would be read as more than it is (A9).
    p_value = sign_p(values) if spec.correlation and p.n >= LEAST_FOR_P and ends else None
    figure = Figure(
        name,
        spec.level,
        read,
        value if math.isfinite(value) else None,
        ends[0] if ends else None,
        ends[1] if ends else None,
        p_value,
        p.n,
        used,
        skipped,
    )
    return figure, values


def _difference(
    out: CriterionAgreement, drawn: Mapping[tuple[str, str], Any], metric: str, other: str
) -> dict[str, Any] | None:
    """Score minus another read on the same draws: the value of what lies between them."""
    if ("score", metric) not in drawn or (other, metric) not in drawn:
        return None
    name, level = metric.partition("@")[0], METRICS[metric].level
    a, b = out.value(name, "score", level), out.value(name, other, level)
    if a is None or b is None:
        return None
    ends = interval(drawn["score", metric] - drawn[other, metric])
    low, high = ends or (None, None)
    told = {"metric": name, "level": level, "against": other, "value": a - b}
    verdict = "no_evidence"
    if low is not None and high is not None and (low > 0 or high < 0):
        verdict = "better" if low > 0 else "worse"
    return {**told, "low": low, "high": high, "verdict": verdict}


def _ceiling(ratings: Any, raters: int) -> dict[str, float | int | None] | None:
    """Agreement of people among themselves; None with one annotator."""
    np = numpy()
    if raters < 2 or not (np.isfinite(ratings).sum(axis=1) > 1).any():
        return None
    told: dict[str, float | int | None] = {
        "annotators": raters,
        "rows": int((np.isfinite(ratings).sum(axis=1) > 1).sum()),
        "one_against_others": metrics.leave_one_out(ratings),
    }
    for kind in ("nominal", "ordinal", "interval"):
        told[f"alpha_{kind}"] = metrics.krippendorff(ratings, kind)
    return told


def _by_group(out: CriterionAgreement, p: Pairs, groups: Any) -> None:
    np = numpy()
    names = np.unique(groups)
    values = metrics.group_values(p, "spearman")
    for name, value, (judge, human) in zip(names, values, p.parts, strict=True):
        out.by_group[str(name)] = {
            "n": len(judge),
            "spearman": float(value) if math.isfinite(value) else None,
            "judge": float(judge.mean()),
            "people": float(human.mean()),
        }


def _people(
    out: CriterionAgreement,
    one: Judged,
    said: Mapping[str, Mapping[str, float]],
    ids: Sequence[str],
    human: Any,
    read: Labels,
) -> None:
    """What people would have said on all scored rows, per system, and paired differences."""
    np = numpy()
    every = list(one.score)
    known = dict(zip(ids, human, strict=True))
    judge = np.array([one.score[i] for i in every])
    people = np.array([known.get(i, np.nan) for i in every])
    group = np.array([read.groups.get(i, f"id:{i}") for i in every])
    whole = ppi.mean(judge, people, group)
    out.people = whole.to_dict() if whole else None
    labels = set(known.values())
    if out.people and len(labels) == 2 and out.levels and labels == {out.levels[0], out.levels[-1]}:
        low, high = out.levels[0], out.levels[-1]
        share = ppi.two_levels(
            (judge > (low + high) / 2).astype(float), (people - low) / (high - low)
        )
        out.people["two_levels"] = share.to_dict() if share else None
    if not read.systems:
        return
    system = np.array([read.systems.get(i, "") for i in every])
    for name in sorted(set(system) - {""}):
        mine = system == name
        own = ppi.mean(judge[mine], people[mine], group[mine])
        if own:
            out.by_system[str(name)] = own.to_dict()
    if len(out.by_system) <= 20:
        kept = system != ""
        pairs = ppi.differences(judge[kept], people[kept], group[kept], system[kept])
        out.differences = [{"a": a, "b": b, **m.to_dict()} for (a, b), m in pairs.items()]
        if not pairs and len(out.by_system) > 1:
            out.notes.append(
                "no differences between systems: under 2 groups hold rows of both (--group COLUMN)"
            )


def _family(judge: str, systems: Iterable[str]) -> list[str]:
    """A judge tends to like its own family (A13)."""
    names = sorted(set(systems))
    shared = [
        f for f in _FAMILIES if f in judge.casefold() and any(f in s.casefold() for s in names)
    ]
    return [f"the judge and a judged system are of one family: {', '.join(shared)}"] * bool(shared)


def _mean(values: Iterable[float]) -> float:
    many = list(values)
    return math.fsum(many) / len(many)


def _first(ids: Iterable[str]) -> str:
    return repr(next(iter(ids), "none"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
