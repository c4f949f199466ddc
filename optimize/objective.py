"""What a candidate is worth on rows with labels: its loss, calibrated on other groups.

The loss of a row is the ranked probability score: how far the judge's distribution lies from
people's score, over the range of the scale (0 best). It is taken after an affine map of the
levels that is fitted on other groups, so a prompt is not punished for being strict or mild.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from geval.stats import numpy
from geval.template import Template

FOLDS = 5


@dataclass
class Judged:
    """What a judge said of rows under one template.

    `probs`: criterion -> (n, K), NaN where a row is unscored or was not asked. `asked`: (n,).
    `tokens` and `calls`: (n,) of all criteria together.
    """

    probs: dict[str, Any]
    asked: Any
    tokens: Any
    calls: Any
    failures: dict[str, int] = field(default_factory=dict)

    @classmethod
    def empty(cls, levels: Mapping[str, Sequence[float]], n: int) -> Judged:
        """Nothing asked yet."""
        np = numpy()
        return cls(
            {name: np.full((n, len(values)), np.nan) for name, values in levels.items()},
            np.zeros(n, bool),
            np.zeros(n),
            np.zeros(n, int),
        )

    def mean(self, criterion: str, levels: Sequence[float]) -> Any:
        """Expected score (n,), NaN where unscored."""
        return self.probs[criterion] @ numpy().asarray(levels)


class Evaluator(Protocol):
    """Judges rows under a template; what was judged before is kept and costs nothing."""

    def __call__(self, template: Template, rows: Any) -> Judged:
        """All that is known of `template`, `rows` (numbers) included."""
        ...


def affine(x: Any, y: Any) -> tuple[float, float]:
    """Intercept and slope (never below 0) of people's score on the judge's."""
    np = numpy()
    if len(x) < 3:
        return 0.0, 1.0
    spread = x.var()
    slope = float(((x - x.mean()) * (y - y.mean())).mean() / spread) if spread > 1e-12 else 0.0
    slope = max(0.0, slope)
    return float(np.mean(y) - slope * np.mean(x)), slope


def ranked_probability_score(probs: Any, places: Any, human: Any, low: float, high: float) -> Any:
    """Score (n,) of distributions over `places` (n, K) rising, against `human` (n,).

    The integral of the squared distance of the two cumulated distributions, over `high - low`; for
    equal steps and labels on levels it is the ranked probability score (Epstein 1969).
    """
    np = numpy()
    places = np.clip(places, low, high)
    apart = (probs * np.abs(places - human[:, None])).sum(axis=1)
    upto = probs.cumsum(axis=1)[:, :-1]
    own = (upto * (1 - upto) * np.diff(places, axis=1)).sum(axis=1)
    return (apart - own) / (high - low)


def row_losses(
    judged: Judged,
    levels: Mapping[str, Sequence[float]],
    human: Mapping[str, Any],
    group: Any,
    rows: Any,
) -> Any:
    """Loss (len(rows),): mean over the criteria that have a label.

    An unscored row has the loss of the worst answer there is: a prompt must not win by failing
    on what is hard. The map of a group's rows is fitted on the groups of other folds.
    """
    np = numpy()
    _, first, number = np.unique(group[rows], return_index=True, return_inverse=True)
    # Groups are numbered in the order they come, so that folds do not change as rows are added.
    rank = np.empty(len(first), int)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    fold = rank[number] % min(FOLDS, len(first))
    total, count = np.zeros(len(rows)), np.zeros(len(rows))
    for name, values in levels.items():
        places = np.asarray(values, float)
        low, high = float(places.min()), float(places.max())
        probs, y = judged.probs[name][rows], human[name][rows]
        labelled = np.isfinite(y)
        scored = labelled & np.isfinite(probs).all(axis=1)
        x = np.where(scored, np.nan_to_num(probs) @ places, np.nan)
        loss = np.maximum(y - low, high - y) / (high - low)
        for f in range(int(fold.max()) + 1):
            inside = scored & (fold == f)
            outside = scored & (fold != f)
            if not inside.any():
                continue
            a, b = affine(x[outside], y[outside])
            moved = np.broadcast_to(a + b * places, probs[inside].shape)
            loss[inside] = ranked_probability_score(probs[inside], moved, y[inside], low, high)
        total += np.where(labelled, loss, 0.0)
        count += labelled
    return total / np.maximum(1, count)
