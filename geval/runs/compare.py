"""Two runs over the same rows, compared row by row.

Only rows that are scored in both count: the mean of the survivors of one run against those of
another flatters whoever fails on the hard rows. Everything is on 0..1 of a criterion's scale, and
a difference is the second run's minus the first's; repeats of a row are averaged first.

Rows of one document are not independent. Where the data names groups, the intervals draw groups
and the tests are over the groups' mean differences. The sign test is the exact binomial one, the
signed-rank test is Wilcoxon's (ties left out of both); over criteria their p-values are corrected
by Holm's step-down procedure (1979). The overall score stands by itself.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from geval.errors import RunError, UsageError
from geval.report.collect import Clusters, unit
from geval.report.interval import intervals
from geval.result import OVERALL
from geval.runs import look
from geval.runs.listing import judges_of, status_of
from geval.runs.run import Run
from geval.runs.tally import Tally
from geval.stats import numpy, scipy_stats

MOST = 10
FEW = 20
"""Clusters below which an interval is rough."""
SAME = 1e-9
ALPHA = 0.05


@dataclass(frozen=True)
class Difference:
    """One criterion over the `n` rows scored in both runs; `clusters` are groups, else rows.

    `sign_p` and `wilcoxon_p` are as they come out, `_holm` corrected over the criteria. `wins` are
    rows in which the second run is better.
    """

    criterion: str
    title: str
    n: int
    clusters: int
    mean_a: float | None = None
    mean_b: float | None = None
    diff: float | None = None
    low: float | None = None
    high: float | None = None
    wins: int = 0
    losses: int = 0
    ties: int = 0
    sign_p: float | None = None
    wilcoxon_p: float | None = None
    sign_holm: float | None = None
    wilcoxon_holm: float | None = None
    verdict: str = "no_evidence"


@dataclass(frozen=True)
class Changed:
    """A row that changed much: its overall scores, and the criterion that changed most."""

    id: str
    a: float
    b: float
    criterion: str
    criterion_a: float | None
    criterion_b: float | None
    reason_a: str | None = None
    reason_b: str | None = None


@dataclass(frozen=True)
class Note:
    """Something that makes two runs hard to compare: a word of the locale and what fills it."""

    code: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def told(self, word: Mapping[str, Any]) -> str:
        """In words."""
        return str(word[f"compare_{self.code}"]).format_map(self.values)


@dataclass(frozen=True)
class Comparison:
    """What two runs have in common and in what they differ.

    `counts`: rows in `both`, `scored_both`, `only_a`, `only_b`, and of those in both
    `unscored_a`, `unscored_b` (in that run alone), `unscored_both`, `not_applicable` (in one or
    both).
    """

    a: Run
    b: Run
    counts: Mapping[str, int]
    overall: Difference
    criteria: tuple[Difference, ...]
    most: tuple[Changed, ...]
    notes: tuple[Note, ...]
    grouped: bool
    how: str | None
    lower_is_better: bool
    points: tuple[tuple[float, float], ...]
    means: tuple[Mapping[str, Any], Mapping[str, Any]]

    @property
    def locale(self) -> str:
        """The language in which the comparison is told: that of the first run."""
        return str(self.a.manifest["template"].get("locale") or "en")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {
            "a": _about(self.a, self.means[0]),
            "b": _about(self.b, self.means[1]),
            "counts": dict(self.counts),
            "grouped": self.grouped,
            "interval": self.how,
            "lower_is_better": self.lower_is_better,
            "overall": asdict(self.overall),
            "criteria": [asdict(one) for one in self.criteria],
            "most": [asdict(one) for one in self.most],
            "notes": [{"code": n.code, **n.values} for n in self.notes],
        }


def compare(a: Run, b: Run) -> Comparison:
    """Compare run `b` with run `a`. Needs the extra `stats`.

    Raises UsageError for a run compared with itself, RunError where no row is scored in both or a
    line is damaged, ConfigError where numpy or scipy is missing.
    """
    numpy()
    scipy_stats()
    if a.folder.resolve() == b.folder.resolve():
        raise UsageError(
            f"{str(a.folder)!r} would be compared with itself", hint="Name two runs: `geval runs`."
        )
    names = [n for n in look.criteria_of(a) if n in look.criteria_of(b)]
    one, two = _read(a, names), _read(b, names)
    counts = _counts(one, two)
    if not counts["scored_both"]:
        raise RunError(
            f"no row is scored in both runs: {counts['both']} rows are in both",
            where=f"{a.folder}, {b.folder}",
            hint=f"Rows are matched by id: {_some(one.rows)} there, {_some(two.rows)} here.",
        )
    lower = Tally.of_run(a.manifest).worst > 0
    grouped = any(g is not None for g in one.groups.values())
    clusters = Clusters([OVERALL, *names])
    pairs: dict[str, tuple[list[float], list[float]]] = {n: ([], []) for n in clusters.names}
    most: list[tuple[float, int, str]] = []
    for number, (key, own) in enumerate(one.rows.items()):
        other = two.rows.get(key)
        if other is None:
            continue
        moved: dict[str, float | None] = {}
        for name in clusters.names:
            x, y = own.get(name), other.get(name)
            if x is not None and y is not None:
                pairs[name][0].append(x)
                pairs[name][1].append(y)
                moved[name] = y - x
        group = one.groups.get(key)
        clusters.add(f"g:{group}" if group is not None else None, moved)
        change = moved.get(OVERALL)
        if change is not None and abs(change) > SAME:
            heapq.heappush(most, (abs(change), -number, key))
            if len(most) > MOST:
                heapq.heappop(most)
    spans, how = intervals(clusters)
    titles = a.manifest["template"].get("titles") or {}
    found = {
        name: _difference(name, str(titles.get(name) or name), pairs[name], clusters, spans, lower)
        for name in clusters.names
    }
    criteria = _corrected([found[name] for name in names])
    ids = [key for _, _, key in sorted(most, key=lambda m: (-m[0], -m[1]))]
    whole = found[OVERALL]
    return Comparison(
        a,
        b,
        counts,
        replace(whole, verdict=_verdict(whole.wilcoxon_p, whole.diff, lower)),
        tuple(replace(c, verdict=_verdict(c.wilcoxon_holm, c.diff, lower)) for c in criteria),
        _with_reasons(a, b, [_changed(key, one, two, names) for key in ids]),
        tuple(_notes(a, b, one, two, found[OVERALL].clusters)),
        grouped,
        how,
        lower,
        tuple(zip(*pairs[OVERALL], strict=True)),
        (one.summary, two.summary),
    )


def holm(values: Sequence[float | None]) -> list[float | None]:
    """p-values corrected by Holm's step-down procedure; what is None takes no part."""
    known = sorted((p, i) for i, p in enumerate(values) if p is not None)
    found: list[float | None] = [None] * len(values)
    least = 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - rank)))
        found[i] = least
    return found


# Reading


@dataclass
class _Side:
    """Scores of one run by row and criterion, repeats averaged; the rows' status and group."""

    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    levels: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    revisions: set[str] = field(default_factory=set)


def _read(run: Run, names: Sequence[str]) -> _Side:
    from geval.runs.listing import counted

    side, tally = _Side(), Tally.of_run(run.manifest)
    repeated: dict[tuple[str, str], int] = {}
    for lines in look.rows(run):
        key = str(lines[-1]["id"])
        scores = side.rows.setdefault(key, {})
        for record in lines:
            counted(run, tally, record)
            name, value = record["criterion"], unit(record["normalized"])
            if record["status"] != "scored" or value is None or name not in (*names, OVERALL):
                continue
            if name in scores:
                n = repeated.get((key, name), 1)
                scores[name] += (value - scores[name]) / (n + 1)
                repeated[key, name] = n + 1
            else:
                scores[name] = value
            levels = record.get("levels")
            if name not in side.levels and isinstance(levels, list):
                side.levels[name] = tuple(levels)
        whole = lines[-1]
        if side.status.get(key) != "scored":
            side.status[key] = str(whole["status"])
        source = whole["source"] if isinstance(whole["source"], dict) else {}
        side.groups[key] = source.get("group")
        if whole.get("revision"):
            side.revisions.add(str(whole["revision"]))
    side.summary = tally.to_dict()[OVERALL]
    return side


def _counts(one: _Side, two: _Side) -> dict[str, int]:
    found = dict.fromkeys(
        (
            *("both", "scored_both", "only_a", "only_b"),
            *("unscored_a", "unscored_b", "unscored_both", "not_applicable"),
        ),
        0,
    )
    found["only_b"] = sum(key not in one.rows for key in two.rows)
    for key, own in one.rows.items():
        if key not in two.rows:
            found["only_a"] += 1
            continue
        found["both"] += 1
        was, now = one.status[key], two.status[key]
        if OVERALL in own and OVERALL in two.rows[key]:
            found["scored_both"] += 1
        elif "not_applicable" in (was, now):
            found["not_applicable"] += 1
        elif was == now:
            found["unscored_both"] += 1
        else:
            found["unscored_a" if was == "unscored" else "unscored_b"] += 1
    return found


def _some(rows: Iterable[str]) -> str:
    first = [repr(key[:40]) for _, key in zip(range(3), rows, strict=False)]
    return ", ".join(first) or "no row"


# Statistics


def _difference(
    name: str,
    title: str,
    pair: tuple[list[float], list[float]],
    clusters: Clusters,
    spans: Mapping[str, tuple[float, float]],
    lower: bool,
) -> Difference:
    np = numpy()
    n = len(pair[0])
    sums, counts = np.asarray(clusters.sums[name]), np.asarray(clusters.counts[name])
    own = sums[counts > 0] / counts[counts > 0]
    empty = Difference(name, title, n, len(own))
    if not n:
        return empty
    moved = np.asarray(pair[1]) - np.asarray(pair[0])
    better, worse = int((moved > SAME).sum()), int((moved < -SAME).sum())
    sign, rank = _tests(own)
    low, high = spans.get(name, (None, None))
    return replace(
        empty,
        mean_a=math.fsum(pair[0]) / n,
        mean_b=math.fsum(pair[1]) / n,
        diff=float(moved.mean()),
        low=low,
        high=high,
        wins=worse if lower else better,
        losses=better if lower else worse,
        ties=n - better - worse,
        sign_p=sign,
        wilcoxon_p=rank,
    )


def _tests(moved: Any) -> tuple[float | None, float | None]:
    """p of the sign test and of the signed-rank test; None where nothing differs."""
    np, stats = numpy(), scipy_stats()
    kept = np.round(moved[np.abs(moved) > SAME], 9)  # equal differences must be equal to rank so
    if not len(kept):
        return None, None
    sign = float(stats.binomtest(int((kept > 0).sum()), len(kept)).pvalue)
    return sign, float(stats.wilcoxon(kept).pvalue)


def _corrected(found: Sequence[Difference]) -> list[Difference]:
    signs = holm([one.sign_p for one in found])
    ranks = holm([one.wilcoxon_p for one in found])
    return [
        replace(one, sign_holm=sign, wilcoxon_holm=rank)
        for one, sign, rank in zip(found, signs, ranks, strict=True)
    ]


def _verdict(p: float | None, diff: float | None, lower: bool) -> str:
    if p is None or diff is None or p >= ALPHA or abs(diff) <= SAME:
        return "no_evidence"
    return "better" if (diff < 0 if lower else diff > 0) else "worse"


# Rows that changed most


def _changed(key: str, one: _Side, two: _Side, names: Sequence[str]) -> Changed:
    own, other = one.rows[key], two.rows[key]
    both = [n for n in names if n in own and n in other]
    about = max(both, key=lambda n: abs(other[n] - own[n]), default=OVERALL)
    return Changed(key, own[OVERALL], other[OVERALL], about, own.get(about), other.get(about))


def _with_reasons(a: Run, b: Run, rows: Sequence[Changed]) -> tuple[Changed, ...]:
    wanted = {(one.id, one.criterion) for one in rows}
    first, second = _reasons(a, wanted), _reasons(b, wanted)
    return tuple(
        replace(
            one,
            reason_a=first.get((one.id, one.criterion)),
            reason_b=second.get((one.id, one.criterion)),
        )
        for one in rows
    )


def _reasons(run: Run, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for record in run.results():
        key = (str(record["id"]), record["criterion"])
        if key in wanted and record.get("reason"):
            found.setdefault(key, str(record["reason"]))
    return found


# What makes them hard to compare


def _notes(a: Run, b: Run, one: _Side, two: _Side, clusters: int) -> Iterable[Note]:
    for run in (a, b):
        if (status := status_of(run)) != "complete":
            yield Note("incomplete", {"run": run.folder.name, "status": status})
    old, new = a.manifest["template"], b.manifest["template"]
    names = [f"{t.get('name')}.{t.get('locale')}" for t in (old, new)]
    if old.get("fingerprint") != new.get("fingerprint"):
        prints = [str(t.get("fingerprint")) for t in (old, new)]
        told = [f"{n} ({p[:8]})" for n, p in zip(names, prints, strict=True)]
        yield Note("template", {"a": told[0], "b": told[1]})
    for key in ("weights", "cap", "calibration", "unit_aggregate", "parameters"):
        if (old.get(key) or None) != (new.get(key) or None):
            yield Note("scoring", {"what": key})
    if a.manifest["judges"] != b.manifest["judges"]:
        yield Note("judges", {"a": _judges(a, b), "b": _judges(b, a)})
    elif one.revisions and two.revisions and one.revisions != two.revisions:
        yield Note("judges", {"a": _joined(one.revisions), "b": _joined(two.revisions)})
    was, now = a.manifest["settings"], b.manifest["settings"]
    differ = [k for k in {**was, **now} if was.get(k) != now.get(k)]
    if differ:
        what = ", ".join(f"{k} {was.get(k)} → {now.get(k)}" for k in differ)
        yield Note("settings", {"what": what})
    data = [run.manifest["data"] for run in (a, b)]
    if data[0].get("sha256") != data[1].get("sha256"):
        yield Note("data", {"a": str(data[0].get("name")), "b": str(data[1].get("name"))})
    lost = set(look.criteria_of(a)) ^ set(look.criteria_of(b))
    if lost:
        yield Note("criteria", {"what": ", ".join(sorted(lost))})
    scales = [n for n, v in one.levels.items() if two.levels.get(n, v) != v and n != OVERALL]
    if scales:
        yield Note("scales", {"what": ", ".join(scales)})
    if clusters < FEW:
        yield Note("few", {"n": clusters})


def _judges(run: Run, other: Run) -> str:
    """The judges of a run; where the specs are equal, what else differs."""
    spec = judges_of(run.manifest)
    if spec != judges_of(other.manifest):
        return spec
    found = []
    for own, its in zip(run.manifest["judges"], other.manifest["judges"], strict=False):
        if isinstance(own, dict) and isinstance(its, dict):
            found += [f"{k} {own.get(k)}" for k in {**own, **its} if own.get(k) != its.get(k)]
    return f"{spec} ({', '.join(found)})"


def _joined(values: Iterable[str]) -> str:
    return ", ".join(sorted(values))


def _about(run: Run, counts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run": str(run.folder),
        "template": run.manifest["template"].get("name"),
        "locale": run.manifest["template"].get("locale"),
        "fingerprint": run.manifest["template"].get("fingerprint"),
        "judge": judges_of(run.manifest),
        "data": run.manifest["data"].get("name"),
        "status": status_of(run),
        **dict(counts),
    }
