"""Words of the locales as the patterns by which a judge's reply is read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from geval.locale import Locale, ReadingWords, merged, united

_NEVER = r"(?!)"
_EDGE = r"\b"


def alternatives(words: Iterable[str], before: str = "", after: str = "") -> str:
    """A pattern for any of the words, the longest first; `before` and `after` hold Latin ones.

    Latin words are parted by blanks; a Korean word may be glued to its neighbours.
    """
    ranked = sorted(set(words), key=lambda word: (-len(word), word))
    parts = []
    for word in ranked:
        spelled = r"\s+".join(map(re.escape, word.split()))
        behind = r"\s" if word.endswith(" ") else after if word[-1].isascii() else ""
        parts.append(f"{before if word[0].isascii() else ''}{spelled}{behind}")
    return f"(?:{'|'.join(parts)})" if parts else _NEVER


def _folded(words: Iterable[str]) -> tuple[str, ...]:
    """Words in the form of `geval.scale.fold`, in which answers are compared."""
    return tuple(unicodedata.normalize("NFKC", word).casefold() for word in words)


def _any(words: Iterable[str], before: str = "", after: str = "") -> str:
    return alternatives(_folded(words), before, after)


@dataclass(frozen=True)
class Wording:
    """Patterns of one set of `ReadingWords`, each compiled when it is first needed."""

    words: ReadingWords

    @cached_property
    def score_keys(self) -> tuple[str, ...]:
        """Keys of the score in a JSON reply, folded and without blanks, the first counts."""
        return tuple(key.replace(" ", "") for key in _folded(self.words.score_keys))

    @cached_property
    def reason_keys(self) -> tuple[str, ...]:
        """Keys of the reason in a JSON reply, folded."""
        return _folded(self.words.reason_keys)

    @cached_property
    def final(self) -> tuple[str, ...]:
        """Beginnings of the label of the last verdict, folded."""
        return _folded(self.words.final)

    @cached_property
    def own_words(self) -> tuple[str, ...]:
        """Words that begin like a level with a tail, folded."""
        return _folded(self.words.own_words)

    @cached_property
    def tail(self) -> re.Pattern[str]:
        """An ending right behind a level that leaves it what it is."""
        return re.compile(rf"{_any(self.words.tails)}(?![^\W_])")

    @cached_property
    def no_level(self) -> re.Pattern[str]:
        """What makes the number before it a range, a fraction, an amount, or a bound."""
        w = self.words
        points = rf"(?:{_any(w.points)}\s*)?"
        return re.compile(
            rf"""
              [.,]\d                                     # 4.5   4,000
            | \s*,\s*\d                                  # 1, 2, 3: a list of levels, not one
            | \s*{points}[~∼〜～–—]                       # 1~5
            | \s*-\s*\d                                  # 4-5
            | \s*[%‰+×]                                  # 4%
            | \s*{points}\(?\s*{_any(w.full_marks)}
            | \s*{_any(w.points)}?\s*{_any(w.bounds)}
            | \s+{_any(w.between)}\s+\d
            | \s?{_any(w.counters)}(?![^\W_])
            """,
            re.VERBOSE,
        )

    @cached_property
    def out_of(self) -> re.Pattern[str]:
        """A score with its maximum behind it: "4/5", "4 out of 5"; group 1 is the maximum."""
        w = self.words
        points = _any(w.points)
        return re.compile(
            rf"\s*(?:{points}\s*)?(?:/|{_any(w.out_of)})\s*(\d+(?:\.\d+)?)(?:{points}|\b)"
        )

    @cached_property
    def of_scale(self) -> re.Pattern[str]:
        """The name of a scale with a further number."""
        return re.compile(rf"{_any(self.words.of_scale, _EDGE)}\D*\d", re.IGNORECASE)

    @cached_property
    def counted(self) -> re.Pattern[str]:
        """What makes the number before it an amount."""
        return re.compile(rf"\s*{_any(self.words.counted, after=_EDGE)}", re.IGNORECASE)

    @cached_property
    def direct(self) -> re.Pattern[str]:
        """A level with words behind it."""
        points = _any(self.words.points)
        return re.compile(rf"{points}?\s+(?=[^\W_])|\s*[|·=]\s*(?=\d)|-(?=[^\W_])")

    @cached_property
    def rubric_key(self) -> re.Pattern[str]:
        """A level as the key of a rubric, in group 1: "4", "4점", "score_4_description"."""
        w = self.words
        return re.compile(
            rf"{alternatives(w.level_prefixes)}?[ _]?(-?\d+(?:\.0*[1-9]\d*)?)(?:\.0+)?"
            rf"(?:[ _]?{alternatives(w.level_suffixes)})?",
            re.IGNORECASE,
        )

    @cached_property
    def quoted_on(self) -> re.Pattern[str]:
        """The beginning of what goes on after a quotation."""
        return re.compile(rf"{alternatives(self.words.quoted_on)}(?:\s|$)")


@lru_cache(maxsize=16)
def _compiled(own: ReadingWords | None) -> Wording:
    shipped = united(ReadingWords)
    return Wording(shipped if own is None else merged(ReadingWords, shipped, own))


def wording(locale: Locale | None = None) -> Wording:
    """The patterns of the shipped locales, and of `locale` with them."""
    return _compiled(None if locale is None else locale.reading)
