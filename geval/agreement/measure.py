"""How well a run matches people: `agree(run, labels)`.

Every figure names its level (pooled, within groups and then averaged, between systems), the
read it is of (`score`, `mode`: the likeliest level, `raw`: before calibration), how many rows and
groups it rests on, and a bootstrap interval over groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from geval.agreement.beside import Beside, read_beside, shown
from geval.agreement.criterion import measured
from geval.agreement.join import columns_of, join_told
from geval.agreement.judged import Misses, read_judged
from geval.agreement.labels import Wanted, parse_label_map, read_labels
from geval.agreement.metrics import METRICS
from geval.agreement.results import Agreement, CriterionAgreement, Figure
from geval.errors import DataError
from geval.locale import own_folders, report_words
from geval.result import OVERALL
from geval.runs.run import Run
from geval.stats import numpy

__all__ = ["METRICS", "Agreement", "CriterionAgreement", "Figure", "agree"]

DRAWS, SEED = 2_000, 20261130
_FAMILIES = (
    "gpt", "claude", "gemini", "gemma", "qwen", "llama", "mistral", "deepseek", "exaone",
    "hyperclova", "solar", "phi", "grok", "kanana", "midm",
)  # fmt: skip


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
    data: Any = None,
    misses: Misses = "missing",
    draws: int = DRAWS,
    seed: int = SEED,
) -> Agreement:
    """Compare a run with people's labels.

    `labels`: a path or rows with an id and a column per criterion (several: one per annotator);
    `columns` maps criteria to label columns where names differ. `group` names the column of the
    document a row belongs to (intervals draw groups), `system` that of the producer.
    `data` are the judged rows, where the label file lacks the group, the system or the documents
    of a row. `label_scale` are the ends of the people's scale where it is another than the judge's.
    `misses`: "missing", the default, leaves a sample out that gave no score; "zero" reads samples
    as a published study did, a miss as 0 (`original_scores`). Needs the extra `stats`.

    Raises DataError where nothing matches or a label cannot be read.
    """
    numpy()
    run = run if isinstance(run, Run) else Run(run)
    judged = read_judged(run, misses)
    told = run.manifest.get("template", {})
    rows, own_groups = Beside(), group is None
    if data is not None:
        rows = read_beside(data, id=id, group=group, system=system)
        group = system = None
    wanted = Wanted(
        scales={name: one.levels or (0.0, 1.0) for name, one in judged.items()},
        titles=told.get("titles", {}),
        columns=columns_of(columns),
        label_map=label_map if isinstance(label_map, Mapping) else parse_label_map(label_map),
        id=id,
        group=group,
        system=system,
        annotators=[annotators] if isinstance(annotators, str) else list(annotators),
    )
    read = read_labels(labels, wanted, sheet=sheet)
    word = report_words(told.get("locale", "en"), own_folders())
    for one in judged.values() if own_groups else ():
        read.groups = one.group | read.groups
    read.groups |= rows.groups
    read.systems |= rows.systems
    read.contradicted |= rows.contradicted
    result = Agreement(
        str(run.folder),
        " + ".join(j["spec"] for j in run.manifest.get("judges", [])),
        told.get("name", ""),
        told.get("locale", "en"),
        join_told(judged, read),
        {},
        read.notes(word),
    )
    for name, one in judged.items():
        if name in read.values:
            result.criteria[name] = measured(name, one, read, label_scale, draws, seed, word)
        elif name != OVERALL:
            result.notes.append(word["agree_no_labels"].format(criterion=name))
    if not any(c.n for c in result.criteria.values()):
        raise DataError(
            "no scored row has a label",
            where=read.name,
            hint="Ids are compared as text: see how the two files name their rows"
            f" ({_first(next(iter(judged.values())).score)} and {_first(read.ids)}).",
        )
    labelled = [i for i in read.ids if any(i in said for said in read.values.values())]
    if flagged := [i for i in labelled if i in read.contradicted]:
        told = shown(read.contradicted, flagged)
        result.notes.append(word["reference_contradicts"].format(n=len(flagged), rows=told))
    result.notes += _family(result.judge, read.systems.values(), word)
    return result


def _family(judge: str, systems: Iterable[str], word: Mapping[str, Any]) -> list[str]:
    """A judge tends to like its own family (A13)."""
    names = sorted(set(systems))
    shared = [
        f for f in _FAMILIES if f in judge.casefold() and any(f in s.casefold() for s in names)
    ]
    return [word["agree_family"].format(names=", ".join(shared))] * bool(shared)


def _first(ids: Iterable[str]) -> str:
    return repr(next(iter(ids), "none"))
