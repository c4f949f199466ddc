"""A run and labels brought together: by id, by the names of criteria, on one scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geval.agreement.judged import Judged, mean_of, read_judged
from geval.agreement.labels import Labels, Wanted, parse_label_map, read_labels
from geval.calibration import CalibrationSpec, corrected
from geval.errors import DataError, UsageError
from geval.locale import report_words
from geval.runs.run import Run
from geval.stats import numpy


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
        columns=columns_of(columns),
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
        means = np.array([mean_of(said[i].values()) for i in ids])
        human, same = on_scale(means, one.levels, label_scale, [], report_words("en"))
        if same:
            found[name] = JoinedRows(
                one.levels,
                np.array([one.raw[i] for i in ids]),
                human,
                np.array([read.groups.get(i, f"id:{i}") for i in ids]),
                [one.probs[i] for i in ids] if all(i in one.probs for i in ids) else None,
            )
    return found


def columns_of(columns: Mapping[str, str | Sequence[str]] | Iterable[str]) -> dict[str, list[str]]:
    """Label columns by criterion, from a mapping or `CRITERION=COLUMN` texts."""
    found: dict[str, list[str]] = {}
    if isinstance(columns, Mapping):
        return {k: [v] if isinstance(v, str) else list(v) for k, v in columns.items()}
    for pair in columns:
        criterion, equals, column = pair.partition("=")
        if not equals or not column:
            raise DataError(f"--map: {pair!r} is no CRITERION=COLUMN")
        found.setdefault(criterion.strip(), []).append(column.strip())
    return found


def join_told(judged: Mapping[str, Judged], read: Labels) -> dict[str, Any]:
    """How many rows of either side met, and the ids that did not."""
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


def on_scale(
    ratings: Any,
    levels: Sequence[float] | None,
    given: tuple[float, float] | None,
    notes: list[str],
    word: Mapping[str, Any],
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
        notes.append(word["agree_other_scale"].format(least=least, most=most, low=low, high=high))
        return ratings, False
    return ratings, True
