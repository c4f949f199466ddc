"""The one test: is the promoted template better than the seed on rows nobody has looked at?

The gain is that of the chosen metric, averaged over the criteria, between the two templates on
the same rows, both calibrated. Its p is that of swapping the two templates' scores within groups
(one-sided, exact where the groups are few), its interval that of drawing groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from geval.agreement.metrics import METRICS as ALL
from geval.agreement.metrics import leave_one_out
from geval.agreement.pairs import Pairs
from geval.agreement.resample import CELLS, draw_weights, interval
from geval.errors import UsageError, nearest
from geval.stats import numpy, scipy_stats

Verdict = Literal["better", "no_evidence", "worse"]

METRICS: Mapping[str, tuple[str, float]] = {
    "spearman": ("spearman", 1.0),
    "kendall": ("kendall_b", 1.0),
    "pearson": ("pearson", 1.0),
    "qwk": ("kappa_quadratic", 1.0),
    "mae": ("mae", -1.0),
    "auc": ("auc", 1.0),
}
"""Name -> the statistic of `geval.agreement.metrics`, and whether more of it is better."""

SHOWN = ("spearman", "kendall_b", "pearson", "kappa_quadratic", "mae", "mean_bias")
LEVEL, DRAWS, SWAPS, EXACT = 0.025, 2_000, 4_000, 12
POWER = 2.8
"""Standard errors of a gain that is found with a probability of 80 % at p < .025 one-sided."""


@dataclass(frozen=True)
class Side:
    """One template on the test rows: scores by criterion (n,), NaN where unscored."""

    raw: Mapping[str, Any]
    calibrated: Mapping[str, Any]


@dataclass
class Result:
    """Outcome of the test. `figures`: criterion -> read -> metric -> value or None."""

    verdict: Verdict
    metric: str
    before: float | None
    after: float | None
    gain: float | None
    low: float | None
    high: float | None
    p: float | None
    visible: float | None
    rows: int
    groups: int
    unscored: dict[str, int]
    figures: dict[str, dict[str, dict[str, float | None]]] = field(default_factory=dict)
    ceiling: dict[str, float] = field(default_factory=dict)
    explore: bool = False
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, numbers to six digits."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    np = numpy()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value


def check_metric(name: str, human: Mapping[str, Any]) -> None:
    """Raises UsageError for a metric that is unknown or does not fit the labels."""
    np = numpy()
    if name not in METRICS:
        raise UsageError(f"unknown metric {name!r}", hint=nearest(name, METRICS))
    if name == "auc":
        for criterion, values in human.items():
            kinds = len(np.unique(values[np.isfinite(values)]))
            if kinds != 2:
                raise UsageError(
                    f"--metric auc needs two different labels; {criterion!r} has {kinds}",
                    hint="Take spearman, kendall, qwk or mae.",
                )


def verdict(
    seed_side: Side,
    new_side: Side,
    human: Mapping[str, Any],
    ratings: Mapping[str, Any],
    group: Any,
    levels: Mapping[str, Sequence[float]],
    *,
    metric: str,
    seed: int,
    explore: bool,
    same: bool = False,
) -> Result:
    """Compare two templates on the test rows; all arrays are of these rows alone, (n,).

    `same` says that the promoted prompt is the seed's own: then there is nothing to test.
    """
    np = numpy()
    name, sign = METRICS[metric]
    tables = [
        _Table(seed_side.calibrated[c], new_side.calibrated[c], human[c], group, levels[c], name)
        for c in levels
    ]
    unscored = {
        "seed": sum(t.lost_before for t in tables),
        "tuned": sum(t.lost_after for t in tables),
    }
    result = Result(
        "no_evidence", metric, None, None, None, None, None, None, None,
        len(group), len(np.unique(group)), unscored, explore=explore,
    )  # fmt: skip
    for c in levels:
        sides = {"seed raw": seed_side.raw, "seed calibrated": seed_side.calibrated,
                 "tuned raw": new_side.raw, "tuned calibrated": new_side.calibrated}  # fmt: skip
        both = np.isfinite(seed_side.raw[c]) & np.isfinite(new_side.raw[c]) & np.isfinite(human[c])
        result.figures[c] = {
            read: _figures(values[c][both], human[c][both], group[both], levels[c])
            for read, values in sides.items()
        }
        if ratings[c].shape[1] > 1:
            value = leave_one_out(ratings[c])
            if np.isfinite(value):
                result.ceiling[c] = value
    if any(t.pairs_before is None for t in tables):
        result.notes.append("too few test rows were scored under both templates to compare them")
        return result
    before = float(np.mean([t.value(t.pairs_before) for t in tables]))
    after = float(np.mean([t.value(t.pairs_after) for t in tables]))
    result.before, result.after = before, after
    if same:
        result.gain = 0.0
        result.notes.append("no candidate was better than the template's own prompt")
        return result
    result.gain = sign * (after - before)
    if not np.isfinite(result.gain):
        result.gain = None
        result.notes.append("a template gives every test row the same score")
        return result
    groups = np.unique(group)
    draws = draw_weights(len(groups), DRAWS, seed)
    gains = sign * np.mean([t.drawn(draws, groups) for t in tables], axis=0)
    ends = interval(gains)
    if ends:
        result.low, result.high = ends
        result.visible = POWER * float(np.nanstd(gains))
    result.p = _swap_p(tables, groups, sign, result.gain, seed)
    result.verdict = _say(result)
    if explore and result.verdict == "better":
        result.verdict = "no_evidence"
        result.notes.append("too few rows or documents to call anything better (explore mode)")
    lost = unscored["tuned"] - unscored["seed"]
    if result.verdict == "better" and lost > 0.02 * len(group) * len(tables):
        result.verdict = "no_evidence"
        result.notes.append(
            f"the tuned template leaves {lost} more rows unscored than the seed; on the rows that "
            "both score it is better"
        )
    return result


def _say(result: Result) -> Verdict:
    if result.low is None or result.high is None or result.p is None:
        return "no_evidence"
    if result.high < 0:
        return "worse"
    return "better" if result.p < LEVEL and result.low > 0 else "no_evidence"


class _Table:
    """Both templates on the rows of one criterion that both scored."""

    def __init__(
        self, before: Any, after: Any, human: Any, group: Any, levels: Sequence[float], metric: str
    ) -> None:
        np = numpy()
        labelled = np.isfinite(human)
        self.lost_before = int((labelled & ~np.isfinite(before)).sum())
        self.lost_after = int((labelled & ~np.isfinite(after)).sum())
        both = labelled & np.isfinite(before) & np.isfinite(after)
        self.before, self.after, self.human = before[both], after[both], human[both]
        self.group, self.levels, self.metric = group[both], levels, metric
        enough = both.sum() > 2
        self.pairs_before = self._pairs(self.before) if enough else None
        self.pairs_after = self._pairs(self.after) if enough else None

    def _pairs(self, judge: Any) -> Pairs:
        return Pairs(judge, self.human, self.group, levels=self.levels)

    def value(self, pairs: Pairs | None) -> float:
        """The metric on all rows."""
        assert pairs is not None
        return float(ALL[self.metric].fn(pairs, pairs.ones)[0])

    def drawn(self, draws: Any, groups: Any) -> Any:
        """The gain in each draw of groups."""
        assert self.pairs_before is not None
        assert self.pairs_after is not None
        mine = numpy().isin(groups, self.group)  # a group whose rows were lost has no column here
        weights = draws[:, mine]
        fn = ALL[self.metric].fn
        return fn(self.pairs_after, weights) - fn(self.pairs_before, weights)

    def swapped(self, swap: Any, groups: Any) -> Any:
        """The gain where the two templates change places in some groups: (swaps,)."""
        np = numpy()
        rows = swap[:, np.searchsorted(groups, self.group)]
        a = np.where(rows, self.after, self.before)
        b = np.where(rows, self.before, self.after)
        return self._many(b) - self._many(a)

    def _many(self, judge: Any) -> Any:
        """The metric of many score vectors (swaps, n) against the same labels."""
        np = numpy()
        if self.metric in ("spearman", "pearson"):
            human = self.human
            if self.metric == "spearman":
                rank = scipy_stats().rankdata
                judge, human = rank(judge, axis=1), rank(human)
            judge = judge - judge.mean(axis=1, keepdims=True)
            human = human - human.mean()
            with np.errstate(divide="ignore", invalid="ignore"):
                return (judge @ human) / np.sqrt((judge**2).sum(axis=1) * (human**2).sum())
        if self.metric == "mae":
            return np.abs(judge - self.human).mean(axis=1)
        fn = ALL[self.metric].fn
        made = (self._pairs(one) for one in judge)
        return np.array([float(fn(p, p.ones)[0]) for p in made])


def _swap_p(
    tables: Sequence[_Table], groups: Any, sign: float, gain: float, seed: int
) -> float | None:
    """One-sided p of the gain; a swap without a value counts against it."""
    np = numpy()
    count = len(groups)
    if count <= EXACT:
        numbers = np.arange(2**count)
        swap = (numbers[:, None] >> np.arange(count)) & 1 == 1
    else:
        cheap = tables[0].metric in ("spearman", "pearson", "mae")
        swap = np.random.default_rng([seed, 3]).random((SWAPS if cheap else 1_000, count)) < 0.5
    step = max(1, CELLS // max(1, len(tables[0].human)))
    parts = [
        np.mean([t.swapped(swap[at : at + step], groups) for t in tables], axis=0)
        for at in range(0, len(swap), step)
    ]
    values = sign * np.concatenate(parts)
    reached = int((~(values < gain - 1e-12)).sum())
    if count <= EXACT:
        return reached / len(swap)
    return (reached + 1) / (len(swap) + 1)


def _figures(
    judge: Any, human: Any, group: Any, levels: Sequence[float]
) -> dict[str, float | None]:
    """The usual statistics, pooled and within groups."""
    np = numpy()
    if len(judge) < 3:
        return {}
    pairs = Pairs(judge, human, group, levels=levels)
    found: dict[str, float | None] = {}
    names = [*SHOWN, *(["spearman@per_group"] if pairs.groups < pairs.n else [])]
    for name in names:
        value = float(ALL[name].fn(pairs, pairs.ones)[0])
        found[name] = value if np.isfinite(value) else None
    return found
