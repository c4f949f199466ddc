"""Checks that stand beside a score and never change it; a template's front matter names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from geval.front import Check
from geval.sample import Sample
from geval.template import Template


@dataclass(frozen=True)
class Finding:
    """What a check saw: a warning of the result, and the texts it is about, under the same name."""

    warning: str
    texts: tuple[str, ...]


def numbers_unmatched(template: Template, sample: Sample) -> Finding:
    """Figures of the judged field that no other field of the row holds or simply gives."""
    from geval.figures.model import DERIVABLE
    from geval.numbers import unmatched

    sources = [
        text
        for name in template.front.inputs
        if name != template.judged
        for text in _texts(sample.fields.get(name))
    ]
    answer = "\n".join(_texts(sample.fields.get(template.judged)))
    found = unmatched(answer, sources, template.front.locale)
    texts = dict.fromkeys(f.text for f in found if f.note != DERIVABLE)
    return Finding("numbers_unmatched", tuple(texts))


CHECKS: Mapping[Check, Callable[[Template, Sample], Finding]] = {"numbers": numbers_unmatched}


def checked(template: Template, sample: Sample) -> list[Finding]:
    """The findings of the template's checks on a row, without the empty ones."""
    found = (CHECKS[name](template, sample) for name in template.front.checks)
    return [finding for finding in found if finding.texts]


def _texts(value: Any) -> Iterable[str]:
    """Every text within the value of a field."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _texts(inner)
