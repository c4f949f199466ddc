"""From a judge's reply to probabilities over the levels of a scale.

Five ways of asking (`geval.judges.base.Method`) end in one `Distribution`. The rules and their
numbers are those of G-Eval (Liu et al. 2023, expected value over the score token), made exact:
an answer is found by its place and never by its text, spellings of one level are merged, levels
of several tokens are followed, and the probability that is not on a level stays visible.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from geval.judges.base import Alternative, Choice, Method, Token
from geval.scale import NA, Kind, Scale, is_half

MIN_COVERAGE = 0.90
MAX_AMBIGUOUS = 0.02
MAX_ASSUMED = 0.20

_FOLLOW = 0.005
"""`exact` asks on behind every open prefix that holds at least this much probability."""

_NO_INFORMATION = -9000.0
"""Servers write -9999 (vLLM, OpenAI) or -inf where they know nothing of a token."""


@dataclass(frozen=True)
class Distribution:
    """Probabilities over the levels of `scale`, and how they were got.

    `probs[i]` belongs to `scale.levels[i]`; they sum to 1. Before normalisation the judge's
    probability was: `coverage` on levels (and the not-applicable answer), `ambiguous` on text
    that could still become one level or another, `outside` on other text, `unseen` not told.
    `assumed` (part of coverage) lay on a beginning that only one level has. `not_applicable` is
    the share of the coverage on that answer. `se` is the standard error of `mean` in units of
    the scale, for samples; None where the distribution was read whole.
    """

    scale: Scale
    probs: tuple[float, ...]
    method: Method
    coverage: float = 1.0
    ambiguous: float = 0.0
    assumed: float = 0.0
    outside: float = 0.0
    unseen: float = 0.0
    not_applicable: float = 0.0
    n_samples: int | None = None
    se: float | None = None

    @property
    def mean(self) -> float:
        """Expected value, in units of the scale."""
        return math.fsum(p * v for p, v in zip(self.probs, self.scale.values, strict=True))

    @property
    def sd(self) -> float:
        """Standard deviation over the levels, in units of the scale."""
        mean = self.mean
        squares = (p * (v - mean) ** 2 for p, v in zip(self.probs, self.scale.values, strict=True))
        return math.sqrt(max(0.0, math.fsum(squares)))

    @property
    def mode(self) -> float:
        """Value of the likeliest level (the lower one of equals)."""
        return self.scale.values[max(range(len(self.probs)), key=lambda i: (self.probs[i], -i))]

    @property
    def normalized(self) -> float:
        """Expected value on 0..1."""
        return self.scale.normalize(self.mean)


@dataclass
class Reading:
    """Probability as it was read, not yet divided by the coverage. The parts sum to 1."""

    scale: Scale
    levels: list[float] = field(default_factory=list)
    not_applicable: float = 0.0
    ambiguous: float = 0.0
    assumed: float = 0.0
    outside: float = 0.0
    unseen: float = 0.0

    def __post_init__(self) -> None:
        self.levels = self.levels or [0.0] * len(self.scale.levels)

    @property
    def coverage(self) -> float:
        """Probability on levels and on the not-applicable answer."""
        return math.fsum(self.levels) + self.not_applicable

    def add(self, index: int, mass: float) -> None:
        """Put `mass` on the level `index`, or on not-applicable."""
        if index == NA:
            self.not_applicable += mass
        else:
            self.levels[index] += mass

    def assume(self, reach: Iterable[int], mass: float) -> None:
        """`mass` on a beginning: of one level it counts as assumed, of several as ambiguous."""
        targets = set(reach)
        if len(targets) == 1:
            self.add(targets.pop(), mass)
            self.assumed += mass
        else:
            self.ambiguous += mass

    def accepted(
        self,
        *,
        min_coverage: float = MIN_COVERAGE,
        max_ambiguous: float = MAX_AMBIGUOUS,
        max_assumed: float = MAX_ASSUMED,
    ) -> bool:
        """Whether enough of the probability lies on levels to speak of a score."""
        tiny = 1e-9  # .9 + .1 - .1 must not fail by rounding
        return (
            self.coverage >= min_coverage - tiny
            and self.ambiguous <= max_ambiguous + tiny
            and self.assumed <= max_assumed + tiny
        )

    def distribution(self, method: Method) -> Distribution:
        """Divide by the probability on levels. Raises ValueError when there is none."""
        on_levels = math.fsum(self.levels)
        coverage = self.coverage
        if coverage <= 0:
            raise ValueError("no probability on any level")
        if on_levels > 0:
            probs = tuple(p / on_levels for p in self.levels)
        else:  # all of it on not-applicable: no level is likelier than another
            probs = tuple(1 / len(self.levels) for _ in self.levels)
        return Distribution(
            self.scale,
            probs,
            method,
            coverage=coverage,
            ambiguous=self.ambiguous,
            assumed=self.assumed,
            outside=self.outside,
            unseen=self.unseen,
            not_applicable=self.not_applicable / coverage,
        )


def merged(token: Token) -> dict[str, float] | None:
    """Probabilities of all candidates at a position, the sampled one included.

    None where the server told nothing: no alternatives at all, or none with a usable number.
    An empty list beside a sampled "certainty" (logprob 0.0) is no information either.
    """
    listed = _listed(token.alternatives)
    if listed is None or (token.logprob == 0.0 and listed.keys() == {token.text}):
        return None
    if token.text not in listed:
        own = _probability(token.logprob)
        if own is None:  # the sampled token itself is masked: the list describes something else
            return None
        listed[token.text] = own
    return _at_most_one(listed)


def _listed(alternatives: Sequence[Alternative]) -> dict[str, float] | None:
    """Probability by text; None where there is none. A candidate that is repeated counts once."""
    listed: dict[str, float] = {}
    for a in dict.fromkeys(alternatives):
        p = _probability(a.logprob)
        if p is not None:
            # Tokens that print alike (several that end the reply, halves written as U+FFFD) add up.
            listed[a.text] = listed.get(a.text, 0.0) + p
    return _at_most_one(listed) if listed else None


def _at_most_one(listed: dict[str, float]) -> dict[str, float]:
    """Rounding by the server must not make more than everything."""
    total = math.fsum(listed.values())
    return {text: p / total for text, p in listed.items()} if total > 1.0 else listed


def _probability(logprob: float | None) -> float | None:
    if logprob is None or math.isnan(logprob) or logprob <= _NO_INFORMATION or logprob > 0.01:
        return None
    return math.exp(min(logprob, 0.0))


def read_choice(choice: Choice, scale: Scale, start: int) -> Reading | None:
    """Read the probabilities at character `start` of a reply, along the sampled path.

    None where the alternatives are missing there, or where the tokens do not spell the text.
    """
    tokens = choice.tokens
    if not tokens:
        return None
    spelled = "".join(t.text for t in tokens)
    if _decoded(spelled) != choice.text[choice.offset : choice.offset + len(_decoded(spelled))]:
        return None
    if start < choice.offset:
        return None
    found = _token_at(tokens, len(_bytes(choice.text[choice.offset : start])))
    if found is None:
        return None
    position, head = found
    reading = Reading(scale)
    prefix, mass = "", 1.0
    tail = choice.text[start:]
    while position < len(tokens):
        token = tokens[position]
        candidates = merged(token)
        if candidates is None:
            return None if mass == 1.0 else _stop(reading, prefix, mass)
        own = _alternative(token.text, head)
        sampled_p = 0.0
        for text, p in candidates.items():
            tail_of = _alternative(text, head)
            if text == token.text:
                sampled_p = p
            elif tail_of is None:
                reading.outside += mass * p
            else:
                _place(reading, prefix, tail_of, mass * p, candidates)
        reading.unseen += mass * max(0.0, 1.0 - math.fsum(candidates.values()))
        mass *= sampled_p
        if own is None:
            reading.outside += mass
            return reading
        prefix += own
        head = ""
        match = scale.match(prefix, end=False)
        if (
            match.kind is Kind.OPEN
            and match.index is not None
            and _grown_alone(reading, prefix, candidates)
        ):
            match = scale.match(prefix, end=True)
        if match.kind is Kind.WHOLE:
            _settle(reading, scale, match.index, tail, mass)
            return reading
        if match.kind is Kind.OUTSIDE:
            reading.outside += mass
            return reading
        position += 1
    return _stop(reading, prefix, mass)


def _settle(reading: Reading, scale: Scale, index: int | None, tail: str, mass: float) -> None:
    """The sampled path has reached a level: what the reply says next may still undo it."""
    assert index is not None
    if scale.parse(tail) == index:
        reading.add(index, mass)
    else:
        reading.outside += mass


def _stop(reading: Reading, prefix: str, mass: float) -> Reading:
    """The tokens end while the sampled path is still open: only what is certain is counted."""
    match = reading.scale.match(prefix)
    if match.kind is Kind.OPEN:
        reading.assume(match.reach, mass)
    else:
        reading.unseen += mass
    return reading


def _place(
    reading: Reading, prefix: str, text: str, mass: float, candidates: dict[str, float]
) -> None:
    """Count an alternative that was not sampled; nothing is known of how it would go on."""
    match = reading.scale.match(prefix + text, end=text == "")
    if match.kind is Kind.WHOLE:
        assert match.index is not None
        reading.add(match.index, mass)
    elif (
        match.kind is Kind.OPEN
        and match.index is not None
        and _grown_alone(reading, prefix + text, candidates)
    ):
        reading.add(match.index, mass)
    elif match.kind is Kind.OPEN:
        if is_half((prefix + text)[-1]):
            reading.outside += mass
        else:
            reading.assume(match.reach, mass)
    elif match.kind is Kind.SKIP:
        reading.ambiguous += mass
    else:
        reading.outside += mass


def _grown_alone(reading: Reading, text: str, candidates: dict[str, float]) -> bool:
    """Whether each longer level ("10") stands among the candidates as a token of its own.

    Then the tokenizer writes it as one token, and "1" at this position is the level 1: byte-pair
    tokenizers do not spell a text in pieces that they hold whole.
    """
    match = reading.scale.match(text)
    longer = match.reach - {match.index}
    seen = {
        m.index
        for c in candidates
        if c != text and (m := reading.scale.match(c)).kind is Kind.WHOLE and m.index in longer
    }
    return longer <= seen


def _alternative(text: str, head: str) -> str | None:
    """`text` without `head`, the part of the token that stands before the answer."""
    return text[len(head) :] if text.startswith(head) else None


def _token_at(tokens: Sequence[Token], start: int) -> tuple[int, str] | None:
    """The token in which byte `start` lies, and the part of it that stands before.

    Counted in bytes, because a token may hold half a character.
    """
    seen = 0
    for position, token in enumerate(tokens):
        piece = _bytes(token.text)
        if seen + len(piece) > start:
            return position, piece[: start - seen].decode("utf-8", "surrogateescape")
        seen += len(piece)
    return None


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that is no byte
        return text.encode("utf-8", "surrogatepass")


def _decoded(text: str) -> str:
    return _bytes(text).decode("utf-8", "replace")


Ask = Callable[[str], Awaitable[Sequence[Alternative]]]
"""Answers with the candidates for the next token behind a prefix of the answer."""


async def read_exact(ask: Ask, scale: Scale) -> Reading | None:
    """Probability of every level by the chain rule; None where `ask` tells nothing.

    `ask("")` gives the candidates at the answer place; each beginning that is still open is
    asked on. A candidate with empty text means that the reply ends there.
    """
    reading = Reading(scale)
    frontier: list[tuple[str, float]] = [("", 1.0)]
    limit = scale.longest + 4  # more tokens than characters, and some marks before them
    for depth in range(limit):
        following: list[tuple[str, float]] = []
        for prefix, mass in frontier:
            listed = _listed(await ask(prefix))
            if listed is None:
                if depth == 0:
                    return None
                reading.unseen += mass
                continue
            for text, p in listed.items():
                _expand(reading, following, prefix, text, mass * p, depth + 1 == limit)
            reading.unseen += mass * max(0.0, 1.0 - math.fsum(listed.values()))
        frontier = following
        if not frontier:
            break
    return reading


def _expand(
    reading: Reading,
    following: list[tuple[str, float]],
    prefix: str,
    text: str,
    mass: float,
    last: bool,
) -> None:
    match = reading.scale.match(prefix + text, end=text == "")
    # A prefix that ends in half a character cannot be said again as text.
    can_ask = not last and mass >= _FOLLOW and not is_half((prefix + text or "x")[-1])
    if match.kind is Kind.WHOLE:
        assert match.index is not None
        reading.add(match.index, mass)
    elif match.kind is Kind.OUTSIDE:
        reading.outside += mass
    elif can_ask:
        following.append((prefix + text, mass))
    elif match.kind is Kind.OPEN:
        reading.assume(match.reach, mass)
    else:
        reading.ambiguous += mass


def from_counts(counts: Sequence[int], scale: Scale, *, not_applicable: int = 0) -> Distribution:
    """Counts per level of independent samples: p = counts / n, with a standard error of the mean.

    The posterior of the level probabilities is Dirichlet with 1/K added to each of the K counts;
    `se` is the posterior standard deviation of the expected value.
    """
    n = sum(counts)
    total = n + not_applicable
    if total <= 0:
        raise ValueError("no samples")
    probs = tuple(c / n for c in counts) if n else tuple(1 / len(counts) for _ in counts)
    return Distribution(
        scale,
        probs,
        "samples",
        not_applicable=not_applicable / total,
        n_samples=total,
        se=posterior_se(counts, scale),
    )


def posterior_se(counts: Sequence[int], scale: Scale) -> float:
    """Posterior standard deviation of the mean under Dirichlet(counts + 1/K), scale units."""
    k = len(counts)
    alpha = [c + 1 / k for c in counts]
    a0 = math.fsum(alpha)
    values = scale.values
    mean = math.fsum(a * v for a, v in zip(alpha, values, strict=True)) / a0
    second = math.fsum(a * v * v for a, v in zip(alpha, values, strict=True)) / a0
    return math.sqrt(max(0.0, second - mean * mean) / (a0 + 1))


def from_levels(probabilities: Sequence[float], scale: Scale) -> Reading:
    """Probabilities per level, lowest first, as a decision endpoint gives them."""
    if len(probabilities) != len(scale.levels):
        raise ValueError(f"{len(probabilities)} probabilities for {len(scale.levels)} levels")
    if any(not math.isfinite(p) or p < 0 for p in probabilities):
        raise ValueError(f"not probabilities: {list(probabilities)}")
    total = math.fsum(probabilities)
    if total > 1.0 + 1e-3:
        raise ValueError(f"probabilities sum to {total:.4f}")
    scaled = [p / total for p in probabilities] if total > 1 else list(probabilities)
    return Reading(scale, levels=scaled, unseen=max(0.0, 1.0 - math.fsum(scaled)))


def certain(index: int, scale: Scale) -> Distribution:
    """One answer without alternatives: all probability on it (method `single`)."""
    if index == NA:
        uniform = tuple(1 / len(scale.levels) for _ in scale.levels)
        return Distribution(scale, uniform, "single", not_applicable=1.0, n_samples=1)
    probs = tuple(float(i == index) for i in range(len(scale.levels)))
    return Distribution(scale, probs, "single", n_samples=1)
