"""What people would have said on all scored rows, from labels on a part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from geval.agreement import ppi
from geval.agreement.judged import Judged
from geval.agreement.labels import Labels
from geval.agreement.results import CriterionAgreement
from geval.stats import numpy


def fill_people(
    out: CriterionAgreement,
    one: Judged,
    said: Mapping[str, Mapping[str, float]],
    ids: Sequence[str],
    human: Any,
    read: Labels,
    word: Mapping[str, Any],
) -> None:
    """What people would have said on all scored rows, per system, and paired differences."""
    np = numpy()
    every = list(one.score)
    known = dict(zip(ids, human, strict=True))
    judge = np.array([one.score[i] for i in every])
    people = np.array([known.get(i, np.nan) for i in every])
    group = np.array([read.groups.get(i, f"id:{i}") for i in every])
    out.every_row = (judge, people, group)
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
            out.notes.append(word["agree_unpaired"])
