"""Reading the probabilities of an answer: the rules of G-Eval made exact.

`read_choice` walks along a reply whose tokens came with alternatives (method `logprobs`);
`read_exact` asks for the next token behind every beginning that is still open (method `exact`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from geval.distribution import Reading
from geval.judges.base import Alternative, Choice, Token
from geval.reading.halves import decode, encode
from geval.scale import Kind, Scale, is_half

_FOLLOW = 0.005
"""`exact` asks on behind every open prefix that holds at least this much probability."""

_NO_INFORMATION = -9000.0
"""Servers write -9999 (vLLM, OpenAI) or -inf where they know nothing of a token."""


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
        if math.fsum(listed.values()) > 1.01:
            return None
    return _at_most_one(listed)


def _listed(alternatives: Sequence[Alternative]) -> dict[str, float] | None:
    """Probability by text; None where there is none. A candidate that is repeated counts once."""
    listed: dict[str, float] = {}
    for a in dict.fromkeys(alternatives):
        p = _probability(a.logprob)
        if p is not None:
            # Tokens that print alike (several that end the reply, halves written as U+FFFD) add up.
            listed[a.text] = listed.get(a.text, 0.0) + p
    # Float sums may pass 1 a little; much more than everything describes nothing.
    return _at_most_one(listed) if 0 < math.fsum(listed.values()) < 1.01 else None


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
    found = _token_at(tokens, len(encode(choice.text[choice.offset : start])))
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
        piece = encode(token.text)
        if seen + len(piece) > start:
            return position, decode(piece[: start - seen])
        seen += len(piece)
    return None


def _decoded(text: str) -> str:
    return encode(text).decode("utf-8", "replace")


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
