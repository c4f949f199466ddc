"""Korean particles that fit the word before them: `{{ word|josa('은/는') }}`.

Whether a word ends in a final consonant is told by how it is read aloud: Hangul by its letters,
figures by their digits and places ("10" 십, "1,000" 천), Latin letters by their Korean names.
The field's packages read neither places, percent signs nor brackets, hence this module.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

OPEN, CLOSED, RIEUL = "open", "closed", "rieul"
"""Endings: a vowel, a consonant, or ㄹ, which takes 로 and not 으로."""

_PAIRS = (
    # After a consonant, after a vowel. Ordered, so that a pair can be named either way round.
    ("은", "는"),
    ("이", "가"),
    ("을", "를"),
    ("과", "와"),
    ("으로", "로"),
    ("으로서", "로서"),
    ("으로써", "로써"),
    ("으로부터", "로부터"),
    ("이라", "라"),
    ("이라고", "라고"),
    ("이라는", "라는"),
    ("이라면", "라면"),
    ("이란", "란"),
    ("이다", "다"),
    ("이며", "며"),
    ("이고", "고"),
    ("이면", "면"),
    ("이나", "나"),
    ("이든", "든"),
    ("이랑", "랑"),
    ("이야", "야"),
    ("이여", "여"),
    ("아", "야"),
)
_DIGITS = {"0": CLOSED, "1": RIEUL, "3": CLOSED, "6": CLOSED, "7": RIEUL, "8": RIEUL}
_PLACES = {1: CLOSED, 2: CLOSED, 3: CLOSED, 4: CLOSED, 8: CLOSED, 12: OPEN, 16: CLOSED, 20: OPEN}
"""Zeros at the end: 십 백 천 만 억 조 경 해."""

_LETTERS = {"L": RIEUL, "M": CLOSED, "N": CLOSED, "R": RIEUL}
_CLOSING = "\"'`”’」』》〉)]}】〕…."
_PERCENT = re.compile(r"%[pP]?$")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?$")
_LATIN = re.compile(r"[A-Za-z]+$")


def ending(word: str) -> str | None:
    """OPEN, CLOSED or RIEUL for the last sound of `word`; None where its reading is not known.

    Closing quotes and brackets behind the word are not read, nor is what brackets hold
    ("삼성(A)을" is said with 삼성).
    """
    text = unicodedata.normalize("NFKC", str(word)).rstrip()
    text = re.sub(r"(?<=\w)\s*\([^()]*\)$", "", text).rstrip(_CLOSING + " ")
    if not text:
        return None
    last = text[-1]
    if "가" <= last <= "힣":
        final = (ord(last) - ord("가")) % 28
        return OPEN if final == 0 else RIEUL if final == 8 else CLOSED
    if _PERCENT.search(text):
        return OPEN
    if number := _NUMBER.search(text):
        return _of_number(number[0])
    if latin := _LATIN.search(text):
        return _of_latin(latin[0])
    return None


def _of_number(digits: str) -> str:
    """A fraction and a lone 0 are read digit by digit, whole numbers by their last place."""
    whole = digits.replace(",", "")
    zeros = len(whole) - len(whole.rstrip("0"))
    if "." in whole or not zeros or zeros == len(whole):
        return _DIGITS.get(whole[-1], OPEN)
    return _PLACES.get(zeros) or _PLACES.get(zeros % 4) or OPEN


def _of_latin(letters: str) -> str | None:
    """Letters spelled out (ROE, GDP); a word in small letters has a reading that is not known."""
    if len(letters) > 1 and not letters.isupper():
        return None
    return _LETTERS.get(letters[-1].upper(), OPEN)


def josa(word: Any, pair: str) -> str:
    """`word` with the fitting one of `pair`: `josa("매출", "은/는")` is "매출은".

    Where the reading of the word is not known both are written: "Apple을(를)". Raises
    ValueError for a pair that is none.
    """
    return f"{word}{particle(str(word), pair)}"


def particle(word: str, pair: str) -> str:
    """The particle alone (see `josa`)."""
    with_final, without = _sides(pair)
    kind = ending(word)
    if kind is None:
        return _both(with_final, without)
    if kind == OPEN or (kind == RIEUL and with_final.startswith("으로")):
        return without
    return with_final


def _both(with_final: str, without: str) -> str:
    """The written form for either: 을(를), (으)로, (이)라고."""
    if with_final.endswith(without):
        return f"({with_final.removesuffix(without)}){without}"
    return f"{with_final}({without})"


def _sides(pair: str) -> tuple[str, str]:
    one, slash, two = unicodedata.normalize("NFC", pair).partition("/")
    for known in _PAIRS:
        if (one, two) in (known, known[::-1]) and slash:
            return known
    raise ValueError(no_pair(pair))


def is_pair(pair: str) -> bool:
    """Whether `pair` names two forms of one particle."""
    one, _, two = unicodedata.normalize("NFC", pair).partition("/")
    return any((one, two) in (known, known[::-1]) for known in _PAIRS)


def no_pair(pair: str) -> str:
    """What to say of a pair that is none."""
    return (
        f"josa({pair!r}) is no pair of particles: write one like '은/는', '이/가', '을/를', "
        "'과/와', '으로/로', '이라고/라고'"
    )
