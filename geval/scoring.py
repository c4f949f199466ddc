"""One sample and one criterion -> one score. The only scoring path.

Every entry point (command line, Python, the optimiser) comes through `score_criterion`; it asks
through an `Asker`, so it knows nothing of concurrency, retries or files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from geval.distribution import (
    Distribution,
    Reading,
    certain,
    from_counts,
    from_levels,
    posterior_se,
)
from geval.errors import RejectedError, TemplateError, TransientError
from geval.judges.base import (
    Alternative,
    Call,
    Choice,
    Message,
    Method,
    Reply,
    Request,
    Token,
    Usage,
    prompt_sha256,
)
from geval.judges.records import at_answer
from geval.reading.answer import Failure, Order, locate, parse_answer, reason_text
from geval.reading.language import Language, field_texts, language_of
from geval.reading.reader import read_choice, read_exact
from geval.result import Score, Status
from geval.sample import Sample
from geval.scale import NA, Kind, Scale
from geval.settings import Settings
from geval.template import Criterion, Template
from geval.units.parts import Unit

ANSWER_TOKENS = 8
"""Room for a level with a blank or mark before it, and for what may undo it behind ("4" ".5")."""

EXACT_ALTERNATIVES = 1000
"""Candidates asked for where the whole distribution can be had: what is left is under 1e-3."""

OTHERS_KEPT = 20
"""Candidates that are no level which are kept in the record of an exact reading."""


class Asker(Protocol):
    """Puts a request to a judge within a run: limits, retries and recording are behind it."""

    async def ask(self, request: Request, refine: Callable[[Reply], Reply] = ...) -> Reply:
        """The reply, trimmed by `refine`; a JudgeError once retrying is over."""
        ...

    def keep(self, request: Request, reply: Reply, answers: Sequence[int | None]) -> None:
        """Record a reply; `answers` are the characters at which each choice's answer begins."""
        ...


async def score_criterion(
    template: Template,
    criterion: Criterion,
    sample: Sample,
    asker: Asker,
    methods: Sequence[Method],
    settings: Settings,
    repeat: int = 0,
    unit: Unit | None = None,
) -> Score:
    """Judge one criterion of one sample, or of one `unit` of it.

    `methods` are tried in order until one gives an acceptable distribution; a single one is
    tried alone. A failure of the judge, or of the template on this row, is a result and never a
    number; only errors that no other row would escape (FatalError, ConfigError) are raised.
    """
    try:
        judgement = _Judgement(template, criterion, sample, asker, settings, repeat, unit)
    except TemplateError as error:
        failure = Failure("template_error", str(error))
        return Score(sample.id, criterion.name, "unscored", failure=failure, repeat=repeat)
    return await judgement.run(methods)


class _Judgement:
    """State of one judgement: what was asked, spent and noticed on the way to a score."""

    def __init__(
        self,
        template: Template,
        criterion: Criterion,
        sample: Sample,
        asker: Asker,
        settings: Settings,
        repeat: int,
        unit: Unit | None = None,
    ) -> None:
        self.template, self.criterion, self.sample = template, criterion, sample
        self.asker, self.settings, self.repeat, self.unit = asker, settings, repeat, unit
        self.scale: Scale = criterion.scale
        self.order: Order = template.front.output.order
        self.labels = template.locale.answer_labels
        self.form = (self.order, self.labels, self.scale.wording)
        self.messages = template.renderer.render(sample, criterion, unit=unit)
        self.prompt_sha256 = prompt_sha256(self.messages)
        self.usage = Usage()
        self.warnings: list[str] = []
        self.reading: Reading | None = None
        self.reason: str | None = None
        self._model = ""

    async def run(self, methods: Sequence[Method]) -> Score:
        outcome: Distribution | Failure = Failure("no_method", "the judge serves no method")
        for position, method in enumerate(methods):
            try:
                outcome = await self._by(method)
            except TransientError as error:
                return self._unscored(Failure("judge_error", str(error), retryable=True))
            except RejectedError as error:
                outcome = Failure("rejected", str(error))
            if isinstance(outcome, Distribution):
                if position:
                    self.warnings.append(f"method_{method}")
                break
        if isinstance(outcome, Failure):
            return self._unscored(outcome)
        applies = outcome.not_applicable <= 0.5
        if applies and self.reason is None and self._wants_reason(outcome):
            await self._ask_reason(outcome)
        if self.reason is not None:
            word = self._likeliest(outcome) if applies else self.scale.allowed[-1]
            await self._in_the_language(self.reason, word)
        return self._score("scored" if applies else "not_applicable", outcome)

    def _score(self, status: Status, distribution: Distribution) -> Score:
        value = distribution.mean if status == "scored" else None
        return Score(
            self.sample.id,
            self.criterion.name,
            status,
            distribution,
            score=value,
            raw_score=value,
            reason=self.reason,
            warnings=tuple(self.warnings),
            usage=self.usage,
            prompt_sha256=self.prompt_sha256,
            repeat=self.repeat,
            reading=self.reading,
        )

    def _unscored(self, failure: Failure) -> Score:
        return Score(
            self.sample.id,
            self.criterion.name,
            "unscored",
            failure=failure,
            reason=self.reason,
            warnings=tuple(self.warnings),
            usage=self.usage,
            prompt_sha256=self.prompt_sha256,
            repeat=self.repeat,
            reading=self.reading,
        )

    # Asking

    def _request(self, method: Method, **changes: Any) -> Request:
        base = Request(
            self.messages,
            method,
            ANSWER_TOKENS,
            scale=self.scale,
            index=self.repeat,
            call=Call(
                self.sample.id,
                self.criterion.name,
                self.unit.index if self.unit else None,
                self.repeat,
                "score",
                self.template.fingerprint,
            ),
        )
        return replace(base, **changes)

    async def _ask(self, request: Request, *, answered: bool = True) -> Reply:
        """Ask and record; where the answer begins in each choice is found here."""
        reply = await self.asker.ask(request, self._answers_only if answered else _as_it_is)
        self.usage += reply.usage
        self.warnings += [w for w in reply.warnings if w not in self.warnings]
        starts = [self._start(choice) if answered else None for choice in reply.choices]
        self.asker.keep(request, reply, starts)
        return reply

    def _answers_only(self, reply: Reply) -> Reply:
        """The reply with the tokens at the answers: those of the reasons are never looked at."""
        choices = []
        for choice in reply.choices:
            if choice.tokens:
                start, room = self._start(choice) or 0, self.scale.longest + 4
                tokens, offset = at_answer(choice.tokens, choice.offset, start, room)
                choice = replace(choice, tokens=tokens, offset=offset)
            choices.append(choice)
        return replace(reply, choices=tuple(choices))

    def _start(self, choice: Choice) -> int | None:
        start = locate(choice.text, *self.form)
        return None if isinstance(start, Failure) else start

    async def _by(self, method: Method) -> Distribution | Failure:
        if method == "samples":
            return await self._by_samples()
        if method == "single":
            return await self._by_single()
        outcome = await self._by_reading(method, self.messages)
        if isinstance(outcome, Failure) and outcome.kind != "no_alternatives":
            again = self.template.renderer.render(
                self.sample, self.criterion, only_number=True, unit=self.unit
            )
            second = await self._by_reading(method, again)
            if isinstance(second, Distribution):
                self.warnings.append("asked_again")
                return second
        return outcome

    async def _by_reading(
        self, method: Method, messages: tuple[Message, ...]
    ) -> Distribution | Failure:
        """Methods that read probabilities: `decision`, `exact`, `logprobs`."""
        found: Reading | Failure
        if method == "exact":
            found = await self._exact(messages)
        elif method == "decision":
            found = await self._decision(messages)
        else:
            found = await self._logprobs(messages)
        if isinstance(found, Failure):
            return found
        self.reading = found
        s = self.settings
        if found.accepted(
            min_coverage=s.min_coverage, max_ambiguous=s.max_ambiguous, max_assumed=s.max_assumed
        ):
            return found.distribution(method)
        return Failure(
            "low_coverage" if found.coverage < s.min_coverage else "ambiguous",
            f"coverage {found.coverage:.3f} (at least {s.min_coverage:g}), "
            f"ambiguous {found.ambiguous:.3f} (at most {s.max_ambiguous:g}), "
            f"assumed {found.assumed:.3f} (at most {s.max_assumed:g})",
        )

    async def _exact(self, messages: tuple[Message, ...]) -> Reading | Failure:
        prefix = ""
        if self.order == "reason_first":
            reply = await self._ask(
                self._request("exact", messages=messages, max_tokens=self.settings.reply_tokens)
            )
            text = reply.choices[0].text
            start = locate(text, *self.form)
            if isinstance(start, Failure):
                return _cut_off(reply.choices[0], start, self.settings.reply_tokens)
            prefix = text[:start]
            self.reason = reason_text(text, *self.form)

        async def ask(said: str) -> Sequence[Alternative]:
            request = self._request(
                "exact",
                messages=messages,
                max_tokens=1,
                alternatives=EXACT_ALTERNATIVES,
                prefill=prefix + said,
            )
            reply = await self.asker.ask(request, lambda r: _legible(r, self.scale, said))
            self.usage += reply.usage
            self.warnings += [w for w in reply.warnings if w not in self.warnings]
            self.asker.keep(request, reply, [0])
            tokens = reply.choices[0].tokens
            return tokens[0].alternatives if tokens else ()

        reading = await read_exact(ask, self.scale)
        return reading or Failure("no_alternatives", "the judge gave no probabilities")

    async def _decision(self, messages: tuple[Message, ...]) -> Reading | Failure:
        reply = await self._ask(self._request("decision", messages=messages), answered=False)
        if reply.level_probs is None:
            refused = reply.choices and reply.choices[0].finish == "refusal"
            kind = "refusal" if refused else "no_alternatives"
            return Failure(kind, "the decision endpoint gave no probabilities")
        try:
            return from_levels(reply.level_probs, self.scale)
        except ValueError as error:
            return Failure("unparseable", f"the decision endpoint: {error}")

    async def _logprobs(self, messages: tuple[Message, ...]) -> Reading | Failure:
        whole = self.order == "reason_first" or (
            self.order == "score_first"
            and self.settings.reasons == "all"
            and self.template.front.output.reason
        )
        room = self.settings.reply_tokens if whole else ANSWER_TOKENS
        choice = (
            await self._text(
                self._request(
                    "logprobs",
                    messages=messages,
                    max_tokens=room,
                    alternatives=self.settings.alternatives,
                )
            )
        ).choices[0]
        if isinstance(failure := refused(choice), Failure):
            return failure
        start = locate(choice.text, *self.form)
        if isinstance(start, Failure):
            return _cut_off(choice, start, room)
        reading = read_choice(choice, self.scale, start)
        if reading is None:
            return Failure("no_alternatives", "the reply has no usable token probabilities")
        if whole:
            self.reason = reason_text(choice.text, *self.form) or None
        return reading

    async def _text(self, request: Request) -> Reply:
        """Ask; a reply that was cut off before its answer is asked once more with more room."""
        reply = await self._ask(request)
        choice = reply.choices[0]
        if choice.finish == "length" and self._start(choice) is None:
            reply = await self._ask(replace(request, max_tokens=4 * max(request.max_tokens, 256)))
        return reply

    async def _by_single(self) -> Distribution | Failure:
        reasoned = self.order == "reason_first"
        room = self.settings.reply_tokens if reasoned else ANSWER_TOKENS
        choice = (await self._text(self._request("single", max_tokens=room))).choices[0]
        index = self._level(choice)
        if isinstance(index, Failure):
            return _cut_off(choice, index, room)
        if reasoned:
            self.reason = reason_text(choice.text, *self.form) or None
        return certain(index, self.scale)

    def _level(self, choice: Choice) -> int | Failure:
        """The level that a reply names."""
        return refused(choice) or parse_answer(choice.text, self.scale, self.order, self.labels)

    async def _by_samples(self) -> Distribution | Failure:
        """Independent answers, until the posterior standard error of the mean is small."""
        s = self.settings
        counts = [0] * len(self.scale.levels)
        outside, failures, index = 0, [], 0
        room = s.reply_tokens if self.order == "reason_first" else ANSWER_TOKENS
        reasons: list[tuple[int, str]] = []
        while index < s.samples_max:
            # Blocks, because a call pays for its prompt once however many answers it brings.
            block = s.samples_min - index if index < s.samples_min else s.samples_min
            wanted = min(block, s.samples_max - index)
            request = self._request(
                "samples",
                max_tokens=room,
                temperature=s.temperature,
                n=wanted,
                # Each repeat of a run draws its own samples.
                index=self.repeat * s.samples_max + index,
            )
            reply = await self._text(request)
            # A server may ignore n and return one: the choices are counted, the rest asked for.
            for choice in reply.choices[:wanted]:
                index += 1
                level = self._level(choice)
                if isinstance(level, Failure):
                    failures.append(_cut_off(choice, level, room))
                elif level == NA:
                    outside += 1
                else:
                    counts[level] += 1
                    if self.order == "reason_first":
                        text = reason_text(choice.text, *self.form)
                        reasons.append((level, text))
            drawn = sum(counts) + outside
            if (
                index >= s.samples_min
                and len(failures) <= s.max_failed_samples * index
                and (
                    outside == drawn
                    or posterior_se(counts, self.scale) < s.samples_se * self.scale.step
                )
            ):
                break
        if len(failures) > s.max_failed_samples * index:
            worst = failures[0]
            return Failure(
                "too_few_samples",
                f"{len(failures)} of {index} samples failed: {worst.message}",
                retryable=worst.retryable,
            )
        if failures:
            self.warnings.append(f"failed_samples_{len(failures)}_of_{index}")
        distribution = from_counts(counts, self.scale, not_applicable=outside)
        if reasons:
            self.reason = (
                min(reasons, key=lambda r: abs(self.scale.values[r[0]] - distribution.mean))[1]
                or None
            )
        return distribution

    # Reasons

    def _wants_reason(self, distribution: Distribution) -> bool:
        wanted = self.settings.reasons
        if wanted == "none" or not self.template.front.output.reason:
            return False
        spread = distribution.sd / (self.scale.high - self.scale.low)
        return wanted == "all" or distribution.normalized < 0.5 or spread >= self.settings.uncertain

    async def _ask_reason(self, distribution: Distribution) -> None:
        """Ask why, behind the score that was read; a failure here leaves the score alone."""
        word = self._likeliest(distribution)
        messages: tuple[Message, ...] = (
            *self.messages,
            {"role": "assistant", "content": word},
            {"role": "user", "content": self.template.renderer.say("reason_after", score=word)},
        )
        request = self._request("single", messages=messages, max_tokens=self.settings.reply_tokens)
        request = replace(request, call=replace(request.call, purpose="reason"))
        try:
            reply = await self._ask(request, answered=False)
        except (TransientError, RejectedError):
            self.warnings.append("no_reason")
            return
        self.reason = reply.choices[0].text.strip() or None
        bare = self.reason is not None and not any(c.isalpha() for c in self.reason)
        if self.reason is None or bare or refused(reply.choices[0]):
            self.reason = None
            self.warnings.append("no_reason")

    def _likeliest(self, distribution: Distribution) -> str:
        probs = distribution.probs
        return self.scale.levels[max(range(len(probs)), key=lambda i: probs[i])].word

    def _language(self, text: str) -> Language:
        """Whether a text is in the template's language, quotations from the row apart."""
        return language_of(text, self.template.locale, field_texts(self.sample))

    async def _in_the_language(self, reason: str, word: str) -> None:
        """Ask once more for a reason in another language; the score is not touched."""
        found = self._language(reason)
        if found == "mixed":
            self.warnings.append("reason_language_mixed")
        if found != "other":
            return
        messages: tuple[Message, ...] = (
            *self.messages,
            {"role": "assistant", "content": f"{word}\n{reason}"},
            {"role": "user", "content": self.template.renderer.say("reason_retry")},
        )
        request = self._request("single", messages=messages, max_tokens=self.settings.reply_tokens)
        request = replace(request, call=replace(request.call, purpose="reason_retry"))
        try:
            choice = (await self._ask(request, answered=False)).choices[0]
        except (TransientError, RejectedError):
            choice = Choice("")
        again = choice.text.strip()
        if any(c.isalpha() for c in again) and not refused(choice):
            found = self._language(again)
            if found != "other":
                self.reason = again
        if found == "other":
            self.warnings.append("reason_language")


def _as_it_is(reply: Reply) -> Reply:
    return reply


def _legible(reply: Reply, scale: Scale, said: str) -> Reply:
    """The reply with the candidates that can be a level, and the likeliest of the others.

    The hundreds of others are not levels; their probability stays visible as `unseen`.
    """

    def kept(token: Token) -> Token:
        ranked = sorted(token.alternatives, key=lambda a: -a.logprob)
        return replace(
            token,
            alternatives=tuple(
                a
                for rank, a in enumerate(ranked)
                if rank < OTHERS_KEPT
                or scale.match(said + a.text, end=a.text == "").kind is not Kind.OUTSIDE
            ),
        )

    return replace(
        reply,
        choices=tuple(
            replace(c, tokens=tuple(map(kept, c.tokens)) if c.tokens else None)
            for c in reply.choices
        ),
    )


def refused(choice: Choice) -> Failure | None:
    """The failure of a reply that the judge or its provider withheld."""
    if choice.finish in ("refusal", "content_filter"):
        return Failure("refusal", f"the judge refused to answer ({choice.finish})")
    return None


def _cut_off(choice: Choice, failure: Failure, room: int) -> Failure:
    """Name the real cause where the reply ended before its answer because of its length."""
    if choice.finish != "length" or failure.kind in ("out_of_scale", "conflicting_verdicts"):
        return failure
    where = "inside its reasoning" if choice.reasoning or "reasoning" in failure.kind else "there"
    return Failure(
        "cut_off",
        f"cut off at {room} tokens, {where}: raise --reply-tokens or turn reasoning off "
        f"({failure.message})",
    )
