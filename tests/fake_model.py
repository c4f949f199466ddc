"""The mind of the fake judge: a table of answers, cut into tokens, as a true language model.

A `Table` gives the probability of each answer text. A splitter cuts texts into tokens (bytes).
From both, `Story` knows every reply there can be, so the probability of a token at any position
is the true conditional one, whatever the tokens are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

Splitter = Callable[[str], list[bytes]]

END = b""
"""Stands for "the reply ends here" among the candidates of a position."""

_PIECE = re.compile(r" ?[A-Za-z]+|\d| ?[가-힣]+|\n+|[^\S\n]+|.", re.DOTALL)


def pieces(text: str) -> list[bytes]:
    """Words with the blank before them, single digits, single marks."""
    return [piece.encode() for piece in _PIECE.findall(text)]


def characters(text: str) -> list[bytes]:
    """One token per character."""
    return [c.encode() for c in text]


def hangul_halves(text: str) -> list[bytes]:
    """Like `pieces`, but a Hangul syllable is two tokens: its first two bytes, and the last one.

    아, 안 and 압 begin with the same token, as in byte-level tokenizers.
    """
    tokens: list[bytes] = []
    for piece in _PIECE.findall(text):
        for part in re.findall(r"[가-힣]|[^가-힣]+", piece):
            data = part.encode()
            hangul = len(part) == 1 and "가" <= part <= "힣"
            tokens += [data[:2], data[2:]] if hangul else [data]
    return tokens


def whole(*words: str, rest: Splitter = pieces) -> Splitter:
    """`rest`, but each of `words` is one token where a text is exactly it ("10", "매우 좋음")."""

    def split(text: str) -> list[bytes]:
        return [text.encode()] if text in words else rest(text)

    return split


@dataclass(frozen=True)
class Table:
    """Probability of each answer; what is missing to 1 goes to `prose`, an answer that is none."""

    answers: Mapping[str, float]
    prose: str = "That depends"

    def outcomes(self) -> dict[str, float]:
        left = 1.0 - sum(self.answers.values())
        assert left > -1e-9, "a table sums to 1 at most"
        found = {text: p for text, p in self.answers.items() if p > 0}
        return {**found, self.prose: left} if left > 1e-9 else found


@dataclass(frozen=True)
class Step:
    """One generated token and the probability of every candidate at its position."""

    token: bytes
    candidates: Mapping[bytes, float]
    answer: bool = False


@dataclass(frozen=True)
class Story:
    """Every reply that can be given: token sequences with their probabilities.

    `before` and `after` stand around the answer and are the same in each reply; `answer_at` is
    the position of the first token of the answer.
    """

    replies: tuple[tuple[tuple[bytes, ...], float], ...]
    answer_at: int

    @classmethod
    def tell(cls, table: Table, split: Splitter, before: str = "", after: str = "") -> Story:
        head, tail = tuple(split(before)), tuple(split(after))
        replies = tuple(
            ((*head, *split(text), *tail, END), p) for text, p in table.outcomes().items()
        )
        return cls(replies, len(head))

    def said(self, text: bytes) -> Story:
        """What can follow when `text` is already said (it must end where a token ends)."""
        following = []
        for tokens, p in self.replies:
            rest = text
            for position, token in enumerate(tokens):
                if not rest:
                    following.append((tokens[position:], p))
                    break
                if token == END or not rest.startswith(token):
                    break
                rest = rest[len(token) :]
        return Story(tuple(following), 0)

    def candidates(self, position: int = 0) -> dict[bytes, float]:
        """Probability of each token at `position`, among the replies that are left."""
        total = sum(p for _, p in self.replies)
        found: dict[bytes, float] = {}
        for tokens, p in self.replies:
            found[tokens[position]] = found.get(tokens[position], 0.0) + p / total
        return found

    def follow(self, position: int, token: bytes) -> Story:
        """The replies that have `token` at `position`."""
        kept = tuple((t, p) for t, p in self.replies if t[position] == token)
        return self if len(kept) == len(self.replies) else Story(kept, self.answer_at)

    def generate(
        self,
        rng: Random,
        *,
        temperature: float,
        max_tokens: int,
        processed: bool = False,
        end: bool = False,
    ) -> tuple[list[Step], str]:
        """The steps of one reply, and why it ended: stop or length.

        `temperature` 0 takes the likeliest token; `processed` reports probabilities after it.
        The end of the reply is a step where `end`.
        """
        story: Story = self
        steps: list[Step] = []
        position = 0
        while story.replies:
            raw = story.candidates(position)
            warm = _tempered(raw, temperature)
            token = _drawn(warm, rng)
            shown = warm if processed else raw
            if token == END:
                return [*steps, *([Step(END, shown)] if end else [])], "stop"
            if len(steps) == max_tokens:
                return steps, "length"
            steps.append(Step(token, shown, answer=position == self.answer_at))
            story = story.follow(position, token)
            position += 1
        return steps, "stop"


def _tempered(raw: Mapping[bytes, float], temperature: float) -> Mapping[bytes, float]:
    if temperature == 1 or len(raw) == 1:
        return raw
    if temperature == 0:
        best = max(raw, key=lambda token: raw[token])
        return {token: float(token == best) for token in raw}
    powers = {token: p ** (1 / temperature) for token, p in raw.items()}
    total = sum(powers.values())
    return {token: p / total for token, p in powers.items()}


def _drawn(probabilities: Mapping[bytes, float], rng: Random) -> bytes:
    if len(probabilities) == 1:
        return next(iter(probabilities))
    left = rng.random()
    for token, p in probabilities.items():
        left -= p
        if left < 0:
            return token
    return max(probabilities, key=lambda token: probabilities[token])


def joined(steps: Sequence[Step]) -> bytes:
    """The bytes of a reply."""
    return b"".join(step.token for step in steps)
