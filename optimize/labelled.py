"""Rows to judge, joined with people's labels and checked: enough rows, groups and spread."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geval.agreement.labels import Wanted, parse_label_map, read_labels
from geval.errors import DataError, TemplateError, nearest
from geval.job import Note, prepare, silent
from geval.reading.language import field_texts
from geval.sample import Sample
from geval.stats import numpy
from geval.template import Template

LEAST_ROWS, LEAST_GROUPS = 20, 5


@dataclass(frozen=True)
class Labelled:
    """n rows with labels on the tuned criteria.

    `human`: criterion -> (n,), people's mean in units of the scale, NaN where nobody said
    anything; `ratings`: criterion -> (n, raters) with NaN. `group`: (n,) numbers 0..G-1, in the
    order of `groups`. `grouped` is False where no column named the document of a row.
    """

    template: Template
    samples: tuple[Sample, ...]
    criteria: tuple[str, ...]
    human: Mapping[str, Any]
    ratings: Mapping[str, Any]
    group: Any
    groups: tuple[str, ...]
    grouped: bool
    sha256: str
    notes: tuple[str, ...] = field(default=())

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.samples)

    def level(self) -> Any:
        """Mean label of each row over the criteria, on 0..1 of their scales: (n,)."""
        np = numpy()
        scaled = []
        for name in self.criteria:
            scale = self.template.criterion(name).scale
            scaled.append((self.human[name] - scale.low) / (scale.high - scale.low))
        return np.nanmean(np.array(scaled), axis=0)

    def row_sha256(self, index: int) -> str:
        """Hash of a row's fields and labels, to name it without its text."""
        said = {name: float(self.human[name][index]) for name in self.criteria}
        text = json.dumps([list(field_texts(self.samples[index])), said], ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def load(
    labels: Any,
    *,
    data: Any = None,
    template: str | Path | Template,
    locale: str | None = None,
    templates: Iterable[str | Path] = (),
    columns: Mapping[str, str | Sequence[str]] | Iterable[str] = (),
    label_map: Mapping[str, float | None] | Iterable[str] = (),
    label_scale: tuple[float, float] | None = None,
    group: str | None = None,
    id: str | None = None,
    sheet: str | None = None,
    criteria: Sequence[str] = (),
    skip_invalid: bool = False,
    note: Note = silent,
) -> Labelled:
    """Read the rows (from `data`, or from `labels` where one file holds both) and their labels.

    `columns` maps fields of the template and criteria to columns. Raises DataError that says what
    is needed: no row with a label, too few rows or groups, labels that never differ or lie
    outside the scale.
    """
    np = numpy()
    pairs = _pairs(columns)
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        note(text)

    job = prepare(
        labels if data is None else data,
        template=template,
        locale=locale,
        templates=templates,
        columns=_fields(pairs, template, locale, templates),
        sheet=sheet,
        skip_invalid=skip_invalid,
        note=tell,
    )
    chosen = job.template
    _can_be_tuned(chosen)
    for name in criteria:
        chosen.criterion(name)
    scales = {c.name: c.scale.values for c in chosen.criteria if not criteria or c.name in criteria}
    of_labels = {k: v for k, v in pairs.items() if k in scales}
    read = read_labels(
        labels,
        Wanted(
            scales=scales,
            titles={c.name: c.title for c in chosen.criteria},
            columns=of_labels,
            label_map=label_map if isinstance(label_map, Mapping) else parse_label_map(label_map),
            id=id or (job.data.mapping.id if data is None else None),
            group=group or (job.data.mapping.group if data is None else None),
        ),
        sheet=sheet,
    )
    for text in read.notes():
        tell(text)
    tuned = tuple(name for name in scales if read.values.get(name))
    missing = [name for name in criteria if name not in tuned]
    if missing:
        raise DataError(
            f"criterion {missing[0]!r} has no labels", where=read.name,
            hint=nearest(missing[0], tuned),
        )  # fmt: skip
    everything = list(job.data.samples())
    kept = [s for s in everything if any(read.values[c].get(s.id) for c in tuned)]
    _joined(everything, kept, read, tell)
    _enough(len(kept), "rows with a label", LEAST_ROWS, read.name)
    ratings = {name: _ratings(read.values[name], kept) for name in tuned}
    for name in tuned:
        ratings[name] = _on_scale(name, ratings[name], chosen, label_scale, kept)
    human = {name: _mean(values) for name, values in ratings.items()}
    for name in tuned:
        _varies(name, human[name], chosen, read.name)
    names = [read.groups.get(s.id) or s.group for s in kept]
    grouped = any(names)
    keys = [name or f"id:{s.id}" for name, s in zip(names, kept, strict=True)]
    groups, number = np.unique(keys, return_inverse=True)
    _enough(len(groups), "groups (documents)", LEAST_GROUPS, read.name)
    if not grouped:
        tell(
            "no column names the document of a row, so each row is a group of its own; where "
            "several rows share a document, name its column with --group"
        )
    content = [
        [s.id, list(field_texts(s)), keys[i], [float(human[c][i]) for c in tuned]]
        for i, s in enumerate(kept)
    ]
    text = json.dumps(content, ensure_ascii=False)
    return Labelled(
        chosen, tuple(kept), tuned, human, ratings, number, tuple(map(str, groups)), grouped,
        hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), tuple(told),
    )  # fmt: skip


def _pairs(columns: Mapping[str, str | Sequence[str]] | Iterable[str]) -> dict[str, list[str]]:
    """`FIELD=COLUMN` and `CRITERION=COLUMN` as one mapping."""
    if isinstance(columns, Mapping):
        return {k: [v] if isinstance(v, str) else list(v) for k, v in columns.items()}
    found: dict[str, list[str]] = {}
    for pair in columns:
        name, equals, column = pair.partition("=")
        if not equals or not column.strip() or not name.strip():
            raise DataError(f"--map {pair}: expected FIELD=COLUMN or CRITERION=COLUMN")
        found.setdefault(name.strip(), []).append(column.strip())
    return found


def _fields(
    pairs: Mapping[str, list[str]],
    template: str | Path | Template,
    locale: str | None,
    templates: Iterable[str | Path],
) -> dict[str, list[str]]:
    """The pairs that name fields; the template must be known to tell them from criteria."""
    if not pairs:
        return {}
    known = (
        template
        if isinstance(template, Template)
        else Template.load(template, locale, list(templates))
    )
    names = {*known.front.inputs, *known.front.criteria}
    unknown = [name for name in pairs if name not in names]
    if unknown:
        raise DataError(
            f"--map: no field or criterion {unknown[0]!r}", hint=nearest(unknown[0], names)
        )
    return {k: v for k, v in pairs.items() if k in known.front.inputs}


def _can_be_tuned(template: Template) -> None:
    if template.front.units:
        raise TemplateError(
            f"template {template.name!r} judges by units (claims, items), which cannot be tuned",
            hint="Tune a template that judges the whole sample, or tune the verdict on rows that "
            "are one claim each.",
        )


def _joined(all_rows: Sequence[Sample], kept: Sequence[Sample], read: Any, note: Note) -> None:
    known = {s.id for s in all_rows}
    strangers = [i for i in read.ids if i not in known]
    if not kept:
        raise DataError(
            "no row has a label", where=read.name,
            hint="Ids are compared as text: see how the two files name their rows "
            f"({next((s.id for s in all_rows), 'none')!r} and {next(iter(read.ids), 'none')!r}); "
            "--id names the column.",
        )  # fmt: skip
    note(f"rows {len(all_rows)}, labels {len(read.ids)}, rows with a label {len(kept)}")
    for what, ids in (
        ("rows without a label are left out", [s.id for s in all_rows if s.id not in read.ids]),
        ("labels belong to no row", strangers),
    ):
        if ids:
            more = ", ..." if len(ids) > 5 else ""
            note(f"{len(ids)} {what}: {', '.join(map(str, ids[:5]))}{more}")


def _enough(have: int, what: str, least: int, where: str) -> None:
    if have < least:
        raise DataError(
            f"{have} {what}; tuning needs at least {least}", where=where,
            hint="About 200 rows in 40 documents show gains from .2 in rank correlation, smaller "
            "ones need more. `geval agree` measures a judge on fewer.",
        )  # fmt: skip


def _ratings(said: Mapping[str, Mapping[str, float]], rows: Sequence[Sample]) -> Any:
    np = numpy()
    raters = list(dict.fromkeys(rater for one in said.values() for rater in one))
    return np.array([[said.get(s.id, {}).get(r, np.nan) for r in raters] for s in rows], float)


def _on_scale(
    name: str,
    ratings: Any,
    template: Template,
    given: tuple[float, float] | None,
    rows: Sequence[Sample],
) -> Any:
    """Ratings in units of the judge's scale. Raises DataError with the rows that lie outside."""
    np = numpy()
    scale = template.criterion(name).scale
    if given is not None:
        a, b = given
        if a == b:
            raise DataError("--label-scale needs two different ends")
        ratings = scale.low + (ratings - a) / (b - a) * (scale.high - scale.low)
    with np.errstate(invalid="ignore"):
        outside = ((ratings < scale.low - 1e-9) | (ratings > scale.high + 1e-9)).any(axis=1)
    if outside.any():
        faults = [
            f"{rows[i].source}, id {rows[i].id!r}: {np.nanmax(ratings[i]):g}"
            for i in np.flatnonzero(outside)
        ]
        raise DataError(
            f"{int(outside.sum())} labels of {name!r} lie outside its scale "
            f"{scale.low:g} to {scale.high:g}",
            faults=faults,
            hint="--label-scale LOW:HIGH says what people's scale is.",
        )
    return ratings


def _mean(ratings: Any) -> Any:
    np = numpy()
    known = np.isfinite(ratings)
    total = np.where(known, ratings, 0.0).sum(axis=1)
    return np.where(known.any(axis=1), total / np.maximum(1, known.sum(axis=1)), np.nan)


def _varies(name: str, human: Any, template: Template, where: str) -> None:
    np = numpy()
    values = np.unique(human[np.isfinite(human)])
    if len(values) < 2:
        raise DataError(
            f"every label of {name!r} is {values[0]:g}: nothing can be learned from labels that "
            "never differ",
            where=where,
            hint="Label rows of good and of bad quality.",
        )
