"""Split a sample into units: items and sentences by rule, claims by asking the judge.

What a judge says to the question for claims is read strictly: one JSON object with a list of
texts, wherever it stands in the reply. A list that was cut off is not a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from geval.errors import DataError, RejectedError, TemplateError, TransientError
from geval.judges.base import Call, Choice, Message, Request, Usage
from geval.locale import Locale
from geval.reading.answer import Failure
from geval.reading.language import field_texts, language_of
from geval.reading.wording import Wording, wording
from geval.sample import Sample
from geval.scoring import Asker, refused
from geval.settings import Settings
from geval.template import Template
from geval.units.parts import MOST_UNITS, Unit, UnitSpec

_REASONING = re.compile(r"^.*</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
_CLOSING = ("”", "’", '"', "'", "」", "』")


def parts(spec: UnitSpec, sample: Sample, locale: Locale) -> list[str] | None:
    """The texts of a set that needs no judge: items or sentences; None for claims."""
    if spec.by == "claims":
        return None
    texts = [text for text in source_texts(spec, sample) if text.strip()]
    if spec.by == "item":
        return texts
    return [one for text in texts for one in sentences(text, locale.code, wording(locale))]


def source_texts(spec: UnitSpec, sample: Sample) -> list[str]:
    """The field that is split, as a list."""
    value = sample.fields.get(spec.of)
    if value is None:
        return []
    return [str(v) for v in value] if isinstance(value, tuple) else [str(value)]


def sentences(text: str, locale: str, says: Wording | None = None) -> list[str]:
    """The sentences of a text, without blanks around them; each line ends one.

    What goes on after a quotation ("좋다."고 말했다), told by `says`, stays with it.
    """
    import sentencex  # type: ignore[import-untyped]

    goes_on = (says or wording()).quoted_on
    found: list[str] = []
    for piece in sentencex.segment(locale, text):
        continues = found and found[-1].endswith(_CLOSING) and goes_on.match(piece)
        if continues:
            found[-1] += piece.rstrip()
        elif any(c.isalnum() for c in piece):
            found.append(piece.strip())
    return found


def preview(template: Template, sample: Sample, which: int = 0) -> Unit:
    """A unit to render a prompt with before the judge was asked: for claims the whole text."""
    spec = template.front.unit_sets[which]
    texts = parts(spec, sample, template.locale)
    whole = "\n".join(source_texts(spec, sample))
    return Unit(texts[0] if texts else whole, spec, 0, 0)


async def split(
    template: Template, sample: Sample, asker: Asker, settings: Settings, repeat: int
) -> tuple[list[Unit] | Failure, Usage, list[str]]:
    """The units of a sample in the order of their sets, what asking cost, and warnings.

    A Failure where a set has none: `no_claims` (the text holds no claim: a refusal), `no_units`,
    `claims_unreadable`, `too_many_units`, or what the judge's error was.
    """
    by_source: dict[tuple[str, ...], list[str]] = {}
    usage, warnings = Usage(), list[str]()
    units: list[Unit] = []
    for spec in template.front.unit_sets:
        texts: list[str] | Failure | None = by_source.get(spec.source)
        if texts is None:
            texts = parts(spec, sample, template.locale)
        if texts is None:
            try:
                question = _Claims(template, sample, spec, asker, settings, repeat)
            except (TemplateError, DataError) as error:
                return Failure("template_error", str(error)), usage, warnings
            texts = await question.ask()
            usage += question.usage
            warnings += [w for w in question.warnings if w not in warnings]
        if isinstance(texts, Failure):
            return texts, usage, warnings
        if not texts:
            return _none(spec), usage, warnings
        if len(texts) > MOST_UNITS:
            told = f"{spec.of!r} has {len(texts)} units; at most {MOST_UNITS} are judged"
            return Failure("too_many_units", told), usage, warnings
        by_source[spec.source] = texts
        units += [Unit(t, spec, len(units) + rank, rank) for rank, t in enumerate(texts)]
    return units, usage, warnings


def _none(spec: UnitSpec) -> Failure:
    if spec.by == "claims":
        return Failure("no_claims", f"{spec.of!r} makes no claim that could be judged")
    return Failure("no_units", f"{spec.of!r} has no {spec.by.rstrip('s')} to judge")


class _Claims:
    """The question for the claims of one field: asked once, and once more where it must be."""

    def __init__(
        self,
        template: Template,
        sample: Sample,
        spec: UnitSpec,
        asker: Asker,
        settings: Settings,
        repeat: int,
    ) -> None:
        self.template, self.sample, self.spec = template, sample, spec
        self.asker, self.repeat = asker, repeat
        self.messages = template.renderer.render_split(sample, spec)
        # Claims say what the text says in full sentences: three times its tokens, of which a letter
        # of Korean (three bytes) is one and a word of English about one in four letters.
        length = sum(len(t.encode("utf-8", "replace")) for t in source_texts(spec, sample))
        self.room = max(settings.reply_tokens, 300) + min(8_000, length)
        self.usage = Usage()
        self.warnings: list[str] = []

    async def ask(self) -> list[str] | Failure:
        """The claims, equal ones once; a Failure once asking again did not help."""
        try:
            found, choice = await self._once(self.messages, self.room)
            if isinstance(found, Failure) and found.kind != "refusal":
                if choice.finish == "length":
                    found, choice = await self._once(self.messages, 4 * self.room, "claims_retry")
                else:
                    again = self._again(choice.text, "claims_retry")
                    found, choice = await self._once(again, self.room, "claims_retry")
        except TransientError as error:
            return Failure("judge_error", str(error), retryable=True)
        except RejectedError as error:
            return Failure("rejected", str(error))
        if isinstance(found, Failure):
            return found
        return list(dict.fromkeys(await self._in_the_language(found)))

    async def _in_the_language(self, claims: list[str]) -> list[str]:
        """Ask once more for claims in another language than the template's, then flag them."""
        if not self._foreign(claims):
            return claims
        said = json.dumps({"claims": claims}, ensure_ascii=False)
        try:
            messages = self._again(said, "claims_language")
            again, _ = await self._once(messages, self.room, "claims_retry")
        except (TransientError, RejectedError):
            again = []
        if isinstance(again, list) and again and not self._foreign(again):
            return again
        self.warnings.append("claims_language")
        return claims

    def _foreign(self, claims: list[str]) -> bool:
        given = list(field_texts(self.sample))
        locale = self.template.locale
        return any(language_of(claim, locale, given) == "other" for claim in claims)

    def _again(self, said: str, line: str) -> tuple[Message, ...]:
        return (
            *self.messages,
            Message(role="assistant", content=said.strip()[:4_000] or "-"),
            Message(role="user", content=self.template.renderer.say(line)),
        )

    async def _once(
        self, messages: tuple[Message, ...], room: int, purpose: str = "claims"
    ) -> tuple[list[str] | Failure, Choice]:
        call = Call(
            self.sample.id, self.spec.of, None, self.repeat, purpose, self.template.fingerprint
        )
        request = Request(messages, "single", room, index=self.repeat, call=call)
        reply = await self.asker.ask(request)
        self.usage += reply.usage
        self.warnings += [w for w in reply.warnings if w not in self.warnings]
        self.asker.keep(request, reply, [])
        choice = reply.choices[0]
        if failure := refused(choice):
            return failure, choice
        if choice.finish == "length":
            return Failure("claims_unreadable", f"cut off at {room} tokens"), choice
        return read_claims(choice.text), choice


def read_claims(text: str) -> list[str] | Failure:
    """The claims in a judge's reply: `{"claims": ["...", ...]}` or the bare list.

    Reasoning blocks, fences and prose around it are passed over; the last list counts. Claims are
    texts, or objects with one text. An empty list is an answer: there is no claim.
    """
    body = _REASONING.sub("", text)
    decoder = json.JSONDecoder(strict=False)
    found: list[str] | None = None
    at = 0
    while (start := _opening(body, at)) >= 0:
        try:
            value, at = decoder.raw_decode(body, start)
        except (ValueError, RecursionError):
            at = start + 1
            continue
        claims = _claims(value)
        found = claims if claims is not None else found
    if found is None:
        line = " ".join(body.split())
        shown = repr(line if len(line) <= 60 else line[:57] + "...")
        return Failure("claims_unreadable", f"no JSON list of claims in the reply {shown}")
    return found


def _opening(text: str, at: int) -> int:
    places = [p for p in (text.find("{", at), text.find("[", at)) if p >= 0]
    return min(places, default=-1)


def _claims(value: object) -> list[str] | None:
    """The claims that a JSON value is, or None where it is something else."""
    if isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list)]
        value = value.get("claims", lists[0] if len(lists) == 1 else None)
    if not isinstance(value, list):
        return None
    texts = [_text(item) for item in value]
    if any(text is None for text in texts):
        return None
    return [text.strip() for text in texts if text is not None and text.strip()]


def _text(item: object) -> str | None:
    if isinstance(item, dict):
        own: Sequence[object] = [v for v in item.values() if isinstance(v, str)]
        item = own[0] if len(own) == 1 else None
    return item if isinstance(item, str) else None
