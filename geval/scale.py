"""Scale: the ordered levels of a criterion, and what a judge's words mean on it.

One `Scale` object serves the prompt, the reader, the normaliser and the optimiser, so none of
them can think of another range. `Scale.match` classifies a piece of text at the answer place
(scoring.md, reader rule 3):

    WHOLE    a level, alone or with a harmless tail:  "4", " 4", "4점", "4,"
    OPEN     a level or its beginning that can still become another:  "1" where 10 exists, "아"
    SKIP     nothing yet (blank, quote, markdown mark): look at the next position
    OUTSIDE  anything else:  "40", "4.5", "예상", "②"
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from geval.errors import UsageError
from geval.reading.halves import decode, encode
from geval.reading.wording import Wording
from geval.reading.wording import wording as shipped_wording

NA = -1
"""Index that stands for the `not_applicable` answer beside the level indices 0..K-1."""

_LEAD = " \t\r\n\v\f\u00a0\u3000\u200b\ufeff▁ĠĊ\"'`“”‘’「『《*_#("
_LISTED = re.compile(r"\s*([.):=\-–—|])\s*\S.*?\n\s*[*_]*\d+\s*[*_]*\1", re.DOTALL)
_NEXT_LINE_A_NUMBER = re.compile(r"\s*\n\s*-?\d+(?:\.\d+)?\s*(?:\n|$)")


class Kind(Enum):
    """What a text at the answer place is."""

    WHOLE = "whole"
    OPEN = "open"
    SKIP = "skip"
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class Match:
    """Result of `Scale.match`.

    `index` is the level that the text is already (WHOLE, or OPEN and complete), NA for the
    not-applicable answer, None otherwise. `reach` are the levels an OPEN text can become.
    """

    kind: Kind
    index: int | None = None
    reach: frozenset[int] = frozenset()


_OUTSIDE = Match(Kind.OUTSIDE)
_SKIP = Match(Kind.SKIP)


@dataclass(frozen=True, slots=True)
class Level:
    """One level: `spellings[0]` is the form a judge is asked to print."""

    value: float
    spellings: tuple[str, ...]
    name: str = ""
    anchor: str = ""

    @property
    def word(self) -> str:
        """The form a judge is asked to print."""
        return self.spellings[0]


@dataclass(frozen=True)
class Scale:
    """Levels in rising order of value, and optionally an answer outside them.

    `not_applicable` is the anchor text of that answer and `not_applicable_spellings` its forms;
    empty where the scale has none. `wording` says what may stand behind a level. `order`
    holds the indices of the levels as a prompt names them, where that is not upward. Raises
    UsageError for fewer than two levels, equal or non-finite values, or a spelling that names two
    levels.
    """

    levels: tuple[Level, ...]
    not_applicable: str = ""
    not_applicable_spellings: tuple[str, ...] = ()
    wording: Wording = field(default_factory=shipped_wording, repr=False, compare=False)
    order: tuple[int, ...] = ()
    _spelled: dict[str, int] = field(init=False, repr=False, compare=False)
    _seen: dict[tuple[str, bool], Match] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        if len(self.levels) < 2:
            raise UsageError(f"a scale needs at least two levels, this one has {len(self.levels)}")
        values = [level.value for level in self.levels]
        if not all(math.isfinite(v) for v in values):
            raise UsageError(f"a level's value is not a finite number: {values}")
        if any(b <= a for a, b in pairwise(values)):
            raise UsageError(
                f"level values must rise and differ: {', '.join(f'{v:g}' for v in values)}"
            )
        spelled: dict[str, int] = {}
        answers = [*enumerate(level.spellings for level in self.levels)]
        if self.not_applicable:
            answers.append((NA, self.not_applicable_spellings))
        for index, spellings in answers:
            if not spellings or not any(fold(s) for s in spellings):
                raise UsageError("a level has no spelling")
            for spelling in spellings:
                key = fold(spelling)
                if spelled.setdefault(key, index) != index:
                    raise UsageError(f"the spelling {spelling!r} names two levels of one scale")
        spelled.pop("", None)
        object.__setattr__(self, "_spelled", spelled)

    @classmethod
    def of(cls, *values: float) -> Scale:
        """A plain numeric scale, e.g. `Scale.of(1, 2, 3, 4, 5)`."""
        return cls(tuple(Level(float(v), (f"{v:g}",)) for v in values))

    @property
    def values(self) -> tuple[float, ...]:
        """Values of the levels, rising."""
        return tuple(level.value for level in self.levels)

    @property
    def low(self) -> float:
        """The least value."""
        return self.levels[0].value

    @property
    def high(self) -> float:
        """The greatest value."""
        return self.levels[-1].value

    @property
    def step(self) -> float:
        """Mean distance of neighbouring levels."""
        return (self.high - self.low) / (len(self.levels) - 1)

    def normalize(self, value: float) -> float:
        """`value` mapped so that the least level is 0 and the greatest 1."""
        return (value - self.low) / (self.high - self.low)

    @property
    def named(self) -> tuple[Level, ...]:
        """The levels in the order in which a prompt names them."""
        return tuple(self.levels[i] for i in self.order) or self.levels

    @property
    def allowed(self) -> tuple[str, ...]:
        """The forms a judge may print, lowest level first, then the not-applicable word."""
        return (*(level.word for level in self.levels), *self.beside)

    @property
    def beside(self) -> tuple[str, ...]:
        """The not-applicable word, where the scale has one."""
        return self.not_applicable_spellings[:1] if self.not_applicable else ()

    @property
    def longest(self) -> int:
        """Characters of the longest form a judge may print."""
        return max(len(word) for word in self.allowed)

    @property
    def numeric(self) -> bool:
        """Whether the levels are printed as numbers."""
        return all(_is_number(level.word) for level in self.levels)

    def match(self, text: str, *, end: bool = False) -> Match:
        """Classify `text`, which stands at the answer place; `end` when nothing can follow it."""
        match = self._seen.get((text, end))
        if match is None:
            match = self._classify(text, end)
            # The same few hundred tokens come back for every row: classify each once.
            if len(self._seen) < 65536:
                self._seen[text, end] = match
        return match

    def parse(self, text: str) -> int | None:
        """The level (index, or NA) that `text` begins with, read with all that follows it.

        None where it is no level, or where what follows undoes it ("4.5", "5점 만점에 4점").
        """
        body = fold(text)
        index, rest = self._longest_spelling(body)
        if index is None or not self._harmless(index, body, rest):
            return None
        return index

    def _classify(self, text: str, end: bool) -> Match:
        body = _rejoin(fold(text))
        if not body:
            return _OUTSIDE if end else _SKIP
        spelled = self._spelled
        reach = frozenset(i for s, i in spelled.items() if s.startswith(body) and s != body)
        if body in spelled:
            index = spelled[body]
            if end or reach <= {index}:
                return Match(Kind.WHOLE, index)
            return Match(Kind.OPEN, index, reach | {index})
        if reach:
            return _OUTSIDE if end else Match(Kind.OPEN, None, reach)
        if is_half(body[-1]):
            reach = frozenset(i for s, i in spelled.items() if encode(s).startswith(encode(body)))
            return Match(Kind.OPEN, None, reach) if reach and not end else _OUTSIDE
        level = self.parse(text)
        return _OUTSIDE if level is None else Match(Kind.WHOLE, level)

    # The following work on folded text.

    def _longest_spelling(self, body: str) -> tuple[int | None, str]:
        best = max((s for s in self._spelled if body.startswith(s)), key=len, default=None)
        return (None, "") if best is None else (self._spelled[best], body[len(best) :])

    def _harmless(self, index: int, body: str, rest: str) -> bool:
        """Whether `rest`, right behind a level, leaves it what it is."""
        if not rest:
            return True
        spelling = body[: len(body) - len(rest)]
        number = _is_number(spelling)
        if number:
            fraction = self.wording.out_of.match(rest)
            if fraction:
                return float(fraction[1]) == self.high
            if self.wording.no_level.match(rest) or self._echoes_the_scale(rest):
                return False
        head = rest[0]
        if not (head.isalnum() or head == "_" or is_half(head)):
            return head not in "%‰"
        if body.startswith(self.wording.own_words):
            return False
        return self.wording.tail.match(rest) is not None

    def _echoes_the_scale(self, rest: str) -> bool:
        """Whether a number is part of a scale that is named or listed, or counts something.

        `rest` follows it: "5점 척도에서 4점", "5-point scale: 4", "1\n2\n3", "1: bad\n2: good",
        "4 of 10", "4 1/2". A reason behind a blank may hold words, not figures, to be harmless.
        """
        line = rest.partition("\n")[0]
        if _LISTED.match(rest) or _NEXT_LINE_A_NUMBER.match(rest):
            return True
        if re.match(r"\s*=", line):  # a legend: "1 = bad, 5 = good"
            return True
        if self.wording.of_scale.search(line[:40]) or self.wording.counted.match(line):
            return True
        direct = self.wording.direct.match(line)
        if direct is None:
            return False
        return direct[0] == "-" or any(c.isdigit() for c in line)


def fold(text: str) -> str:
    """The comparison form: NFKC, case-folded, without leading blanks, quotes and marks.

    Superscript, subscript and circled digits keep their own form, because NFKC would turn "²"
    into a level; half characters (lone surrogates) stay as they are.
    """
    kept = "".join(c if _looks_like_digit(c) else unicodedata.normalize("NFKC", c) for c in text)
    # Marks of tokenizers ("Ġ") go before case does.
    return unicodedata.normalize("NFC", kept).lstrip(_LEAD).casefold().replace("\u2212", "-")


def _looks_like_digit(char: str) -> bool:
    dressed = ("<super>", "<sub>", "<circle>", "<fraction>", "<compat>")
    return unicodedata.decomposition(char).startswith(dressed) and any(
        c.isdigit() for c in unicodedata.normalize("NFKC", char)
    )


def is_half(char: str) -> bool:
    """Whether `char` is a piece of a character that a tokenizer cut in two."""
    return "\ud800" <= char <= "\udfff" or char == "\ufffd"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?", text) is not None


def _rejoin(text: str) -> str:
    """Halves of one character that stand together become that character."""
    if not any("\udc80" <= c <= "\udcff" for c in text):
        return text
    return decode(encode(text))


def scale_from(
    values: Mapping[str, float] | Sequence[float],
    *,
    anchors: Mapping[float, str] | None = None,
    names: Sequence[str] = (),
    groups: Mapping[str, Iterable[str]] | None = None,
    not_applicable: str = "",
    not_applicable_spellings: Sequence[str] = (),
    wording: Wording | None = None,
) -> Scale:
    """Build a scale from numbers, or from words with values (`{"하": 0, "중": 1, "상": 2}`).

    `groups` maps a word to its other spellings (a locale's `levels`), `names` are words for the
    levels in rising order, used in prompts only. `wording` says what may stand behind a level.
    """
    groups = groups or {}
    pairs: list[tuple[str, float]] = (
        [(word, float(value)) for word, value in values.items()]
        if isinstance(values, Mapping)
        else [(f"{float(value):g}", float(value)) for value in values]
    )
    written = [word for word, _ in pairs]
    pairs.sort(key=lambda pair: pair[1])
    order = tuple([word for word, _ in pairs].index(word) for word in written)
    taken = {fold(word) for word, _ in pairs}
    levels = []
    for position, (word, value) in enumerate(pairs):
        # A spelling that is another level's own word ("O" beside "0") stays with that level.
        more = [s for s in groups.get(word, ()) if fold(s) not in taken]
        levels.append(
            Level(
                value,
                tuple(dict.fromkeys((word, *more))),
                names[position] if len(names) == len(pairs) else "",
                (anchors or {}).get(value, ""),
            )
        )
    na = (
        tuple(s for s in not_applicable_spellings if fold(s) not in taken) if not_applicable else ()
    )
    named = order if isinstance(values, Mapping) and [*order] != sorted(order) else ()
    return Scale(tuple(levels), not_applicable, na, wording or shipped_wording(), named)
