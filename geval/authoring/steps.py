"""Evaluation steps drafted by a judge, once, into the template file.

A draft is data: it is put into the slot `steps` and is never template code. An author reviews it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from geval.errors import RejectedError, TemplateError
from geval.judges.base import Call, Judge, Message, Request
from geval.locale import Locale, authoring, load_locale, locale_codes
from geval.reading.language import mismatch
from geval.template import Criterion, Template

LEAST, MOST, LONGEST = 3, 5, 300
"""Steps a criterion may have, and characters of one."""

_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s+(.+?)\s*$")


def question(template: Template, criterion: Criterion) -> tuple[Message, ...]:
    """The prompt that asks for steps, in the template's language."""
    locale = template.locale
    anchors = "".join(f"{v.word}: {v.anchor}\n" for v in criterion.scale.levels if v.anchor)
    text = str(authoring(locale)["steps"]).format(
        language=locale.name,
        judged=locale.labels.get(template.judged, template.judged),
        text=criterion.text,
        anchors=anchors,
        inputs=", ".join(locale.labels.get(n, n) for n in template.front.inputs),
        least=LEAST,
        most=MOST,
    )
    return ({"role": "user", "content": text},)


def read(reply: str, locale: Locale) -> tuple[str, ...]:
    """The steps in a judge's reply. Raises TemplateError that says why they cannot be used."""
    steps = tuple(m[1] for line in reply.splitlines() if (m := _ITEM.match(line)))
    if not LEAST <= len(steps) <= MOST:
        raise TemplateError(f"{len(steps)} steps, not {LEAST} to {MOST}")
    for step in steps:
        if any(mark in step for mark in ("{{", "{%", "{#", "}}", "%}")):
            raise TemplateError(f"Jinja in a step: {step!r}")
        if len(step) > LONGEST:
            raise TemplateError(f"a step of {len(step)} characters (at most {LONGEST})")
    text = "".join(steps)
    known = (load_locale(code) for code in locale_codes())
    if not any(map(str.isalpha, text)) or mismatch(text, locale, known):
        raise TemplateError(f"the steps are not in the template's language ({locale.code})")
    return steps


async def draft(template: Template, judge: Judge, *, force: bool = False) -> Template:
    """The template with steps for each criterion; nothing else is changed.

    Raises TemplateError where steps are there already (unless `force`) or a draft cannot be used;
    a judge gets two attempts for each criterion.
    """
    front = template.front
    have = [n for n, spec in front.criteria.items() if spec.steps] + ["all"] * bool(front.steps)
    if have and not force:
        raise TemplateError(
            f"template {template.name!r} has steps already ({', '.join(have)})",
            hint="They stay as they are; --force drafts new ones over them.",
        )
    criteria = dict(front.criteria)
    for criterion in template.criteria:
        if front.criteria[criterion.name].text:
            steps = await _ask(template, criterion, judge)
            criteria[criterion.name] = criteria[criterion.name].model_copy(update={"steps": steps})
    if not any(spec.text for spec in front.criteria.values()):
        raise TemplateError("every criterion comes from the row, so there is nothing to draft")
    changed = front.model_copy(update={"criteria": criteria, "steps": ()})
    return replace(template, front=changed)


async def _ask(template: Template, criterion: Criterion, judge: Judge) -> Sequence[str]:
    from geval.traffic.asking import patiently
    from geval.traffic.limits import Limits

    told: list[str] = []
    for index in range(2):
        call = Call(template.name, criterion.name, repeat=index, purpose="steps")
        request = Request(
            question(template, criterion), "single", 600, temperature=0.0 if index == 0 else None,
            index=index, call=call,
        )  # fmt: skip
        try:
            reply = await patiently(partial(judge.complete, request), Limits())
        except RejectedError:
            if told:  # the first draft's faults say more
                break
            raise
        try:
            return read(reply.choices[0].text, template.locale)
        except TemplateError as error:
            told.append(error.what)
    raise TemplateError(
        f"the judge's draft for {criterion.name!r} cannot be used; the file is unchanged",
        faults=told,
        hint="Try a stronger judge, or write the steps by hand.",
    )
