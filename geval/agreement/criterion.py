"""Every figure of one criterion, on the rows that have a score and a label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from geval.agreement import metrics
from geval.agreement.join import on_scale
from geval.agreement.judged import Judged
from geval.agreement.labels import Labels
from geval.agreement.levels import group_values
from geval.agreement.metrics import METRICS
from geval.agreement.pairs import Pairs
from geval.agreement.people import fill_people
from geval.agreement.resample import draw_weights, interval, sign_p
from geval.agreement.results import CriterionAgreement, Figure
from geval.stats import numpy

LEAST_FOR_P = 10


def measured(
    name: str,
    one: Judged,
    read: Labels,
    label_scale: tuple[float, float] | None,
    draws: int,
    seed: int,
    word: Mapping[str, Any],
) -> CriterionAgreement:
    """Figures, intervals from `draws` bootstrap draws, ceiling, tables and people's means."""
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
        out.notes.append(word["agree_lost"].format(n=lost))
    if not ids:
        out.notes.append(word["agree_none"])
        return out
    ratings, same = on_scale(ratings, levels, label_scale, out.notes, word)
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
    out.contradicted = _without(out, p, best, read.contradicted, ids)
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
        fill_people(out, one, said, ids, human, read, word)
    return out


def _without(
    out: CriterionAgreement,
    p: Pairs,
    metric: str,
    contradicted: Mapping[str, Sequence[str]],
    ids: Sequence[str],
) -> dict[str, Any] | None:
    """A figure without the rows whose reference contradicts its documents; None without such."""
    np = numpy()
    keep = np.array([i not in contradicted for i in ids])[p.order]
    if keep.all():
        return None
    name, level = metric.partition("@")[0], METRICS[metric].level
    value = math.nan
    if keep.sum() > 1:
        kept = Pairs(p.judge[keep], p.human[keep], p.group[keep], grouped=p.grouped)
        value = float(METRICS[metric].fn(kept, kept.ones)[0])
    return {
        "rows": [i for i in ids if i in contradicted],
        "metric": name,
        "level": level,
        "value": out.value(name, "score", level),
        "without": value if math.isfinite(value) else None,
    }


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
        kept = np.isfinite(group_values(p, metric.partition("@")[0]))
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
    values = group_values(p, "spearman")
    for name, value, (judge, human) in zip(names, values, p.parts, strict=True):
        out.by_group[str(name)] = {
            "n": len(judge),
            "spearman": float(value) if math.isfinite(value) else None,
            "judge": float(judge.mean()),
            "people": float(human.mean()),
        }
