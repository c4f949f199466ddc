"""Criteria that come with the task: a text for all rows or one a row, and anchors by row.

A criterion with `text_from: FIELD` takes its text, one with `anchors_from: FIELD` its anchors,
from an input of the template. Such an input is guidance, not material to judge: it is printed as
the criterion, outside the fences, and never rendered as a template. That is why it is bounded and
must hold nothing that looks like a fence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from geval.data.values import as_text, json_object, plain

if TYPE_CHECKING:
    from geval.scale import Scale
    from geval.template import Criterion, Template

MAX_GUIDE = 8_000
"""Characters of a criterion or rubric that comes with the data."""

_FENCE = re.compile(r"\[/?[0-9a-f]{8,64}\]", re.IGNORECASE)


def guides(template: Template) -> dict[str, Callable[[Any], Any]]:
    """By input that guides the judge: what reads a cell of it, raising ValueError."""
    found: dict[str, Callable[[Any], Any]] = {}
    for criterion in template.criteria:
        if criterion.text_from:
            found[criterion.text_from] = guide_text
        if criterion.anchors_from:
            found[criterion.anchors_from] = partial(rubric, scale=criterion.scale)
    return found


def guide_text(cell: Any) -> str:
    """A text that the prompt shows as a criterion."""
    text = as_text(cell).strip()
    if len(text) > MAX_GUIDE:
        raise ValueError(f"has {len(text):,} characters (at most {MAX_GUIDE:,})")
    fence = _FENCE.search(text)
    if fence:
        raise ValueError(f"holds {fence[0]}, which looks like a mark around judged text")
    return text


def rubric(cell: Any, *, scale: Scale) -> str | dict[float, str]:
    """Anchors by level (a mapping, or JSON of one, for two levels or more), or a rubric in words.

    Keys are levels of `scale`: 1, "1", "1점", "score1_description".
    """
    cell = plain(cell)
    if isinstance(cell, list) or (isinstance(cell, str) and cell.lstrip().startswith("[")):
        raise ValueError('is a list, which names no levels: write {"1": "...", "5": "..."}')
    found = json_object(cell)
    if found is None:
        if isinstance(cell, str) and cell.lstrip().startswith("{"):
            raise ValueError('begins like JSON and is none: write {"1": "...", "5": "..."}')
        text = guide_text(cell)
        if not any(char.isalpha() for char in text):
            raise ValueError(f"is {text!r}, which describes no levels")
        return text
    anchors: dict[float, str] = {}
    for key, value in found.items():
        match = scale.wording.rubric_key.fullmatch(str(key).strip())
        level = float(match[1]) if match else None
        if level is None or level not in scale.values:
            levels = ", ".join(f"{v:g}" for v in scale.values)
            raise ValueError(f"has the key {str(key)!r}, which is no level ({levels})")
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"has no text for level {level:g}")
        if level in anchors:
            raise ValueError(f"describes level {level:g} twice")
        anchors[level] = value.strip()
    if len(anchors) < 2:
        raise ValueError("describes fewer than two levels")
    guide_text("\n".join(anchors.values()))
    return dict(sorted(anchors.items()))


def resolved(criterion: Criterion, fields: Mapping[str, Any]) -> Criterion:
    """The criterion with the text and anchors of this row.

    Raises ValueError for a row without them, or with some that cannot be used.
    """
    if criterion.text_from:
        text = guide_text(_given(criterion.text_from, fields))
        criterion = replace(criterion, text=text)
    if criterion.anchors_from:
        found = rubric(_given(criterion.anchors_from, fields), scale=criterion.scale)
        if isinstance(found, str):
            return replace(criterion, rubric=found)
        levels = tuple(replace(v, anchor=found.get(v.value, "")) for v in criterion.scale.levels)
        criterion = replace(criterion, scale=replace(criterion.scale, levels=levels))
    return criterion


def _given(name: str, fields: Mapping[str, Any]) -> Any:
    value = fields.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{name} is missing or blank")
    return value
