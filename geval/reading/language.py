"""Is a reason, or a claim, in the language that was asked for?

Words are counted, not letters: a Korean sentence about "EBITDA 1,234억원" is Korean. What may
stand in any language is taken out first: code, addresses, what the row itself holds, acronyms,
identifiers, figures. A locale declares its script, so a new one needs no code.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Literal

from geval.locale import Locale
from geval.sample import Sample

Language = Literal["same", "mixed", "other", "undetermined"]

SCRIPTS: dict[str, str] = {
    "Latin": "A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff",
    "Hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3",
    "Kana": "\u3041-\u30ff\u31f0-\u31ff",
    "Han": "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Cyrillic": "\u0400-\u052f",
    "Greek": "\u0370-\u03ff\u1f00-\u1fff",
    "Arabic": "\u0600-\u06ff\u0750-\u077f",
    "Hebrew": "\u0590-\u05ff",
    "Thai": "\u0e00-\u0e7f",
    "Devanagari": "\u0900-\u097f",
}
"""Characters of a script, for use in a regular expression's brackets."""

LEAST_LETTERS = 4
_KANA_ALLOWED = 2
_HAN_RUN = 4

_CODE = re.compile(r"```.*?(?:```|$)|`[^`\n]*`", re.DOTALL)
_URL = re.compile(r"(?:https?://|www\.)[^\s<>\"'）)」』”’]+", re.IGNORECASE)
_QUOTED = re.compile(r"[\"“”‘’「」『』']([^\"“”‘’「」『』']{2,}?)[\"“”‘’「」『』']")
_LATIN = SCRIPTS["Latin"]
_LATIN_WORD = re.compile(rf"[{_LATIN}0-9][{_LATIN}0-9_&./+'’\-]*")
_ACRONYM = re.compile(r"[A-Z][A-Z0-9&./+\-]{0,11}")
_IDENTIFIER = re.compile(r"\w*(?:_\w|[a-z][A-Z])\w*")


def language_of(text: str, locale: Locale, inputs: Iterable[str] = ()) -> Language:
    """Whether `text` is in the language of `locale`, told by its script.

    `inputs` are the texts of the row: quotations and names from them count for no language.
    "same", or "mixed" where words of another script are many beside sentences of this one;
    "undetermined" for too few letters (nothing to complain of); "other" is worth asking again.
    A locale without a script is never checked.
    """
    own = "".join(SCRIPTS[name] for name in locale.scripts)
    if not own:
        return "undetermined"
    given = unicodedata.normalize("NFC", "\n".join(inputs))
    rest = _neutral_removed(unicodedata.normalize("NFC", text), given, "Latin" in locale.scripts)
    letters = sum(c.isalpha() for c in rest)
    if letters < LEAST_LETTERS:
        return "undetermined"
    if _foreign_characters(rest, given, own, locale.scripts):
        return "other"
    if "Latin" in locale.scripts:
        return _by_words(rest, own, given)
    run = re.compile(rf"[{own}]+")
    native = len(run.findall(rest))
    # What is glued to native letters ("Corp.의") is a native word and no Latin one.
    foreign = sum(1 for word in _words(rest) if not run.search(word))
    if native >= 2 * foreign:
        return "same"
    return "mixed" if 2 * native >= foreign and _ends_natively(rest, locale) else "other"


def letters_of(text: str, scripts: Iterable[str]) -> int:
    """How many characters of `text` are of these scripts."""
    return len(re.findall(f"[{''.join(SCRIPTS[name] for name in scripts)}]", text))


def mismatch(text: str, locale: Locale, known: Iterable[Locale]) -> str | None:
    """Where the script of a text is not that of `locale`: what it is, or is not, else None.

    A fifth of the letters decides: names and figures of a text are often Latin. A Latin locale is
    held against the other ones that are `known`.
    """
    letters = sum(map(str.isalpha, text))
    if not locale.scripts or not letters:
        return None
    if "Latin" not in locale.scripts:
        own = letters_of(text, locale.scripts)
        return f"no {locale.english}" if own < 0.2 * letters else None
    others = (one for one in known if one.scripts and "Latin" not in one.scripts)
    return next((o.english for o in others if letters_of(text, o.scripts) > 0.2 * letters), None)


def field_texts(sample: Sample) -> Iterator[str]:
    """Every text of a row's fields."""
    for value in sample.fields.values():
        yield from map(str, value) if isinstance(value, tuple) else [str(value or "")]


def _neutral_removed(text: str, given: str, latin: bool) -> str:
    """`text` without code, addresses, what the row holds, acronyms, identifiers, figures."""
    text = _URL.sub(" ", _CODE.sub(" ", text))
    text = _QUOTED.sub(lambda m: " " if m[1].strip() in given else m[0], text)
    known = {w.casefold() for w in _LATIN_WORD.findall(given)}
    known |= {w.strip(".'’-/").casefold() for w in known}

    def keep(match: re.Match[str]) -> str:
        word = match[0].rstrip(".'’-/")
        if any(c.isdigit() for c in word) or _IDENTIFIER.fullmatch(word):
            return " "
        if latin:  # its words are what is counted, acronyms belong to every language
            return " " if _ACRONYM.fullmatch(word) and len(word) > 1 else match[0]
        behind = match.string[match.end() : match.end() + 1]
        glued = bool(behind) and behind.isalpha()
        if word.casefold() in known or _ACRONYM.fullmatch(word):
            return "" if glued else " "
        return match[0]

    return _LATIN_WORD.sub(keep, text)


def _foreign_characters(text: str, given: str, own: str, scripts: Iterable[str]) -> bool:
    """Kana, runs of Han, or more Han than native letters, where the locale has neither."""
    declared = set(scripts)
    if "Kana" not in declared:
        kana = re.findall(rf"[{SCRIPTS['Kana']}]", text)
        if len([c for c in kana if c != "・"]) > _KANA_ALLOWED:
            return True
    if "Han" in declared:
        # Chinese writes Han alone; a language of Han and Kana has Kana in every sentence.
        return "Kana" in declared and not re.search(rf"[{SCRIPTS['Kana']}]", text)
    runs = re.findall(rf"[{SCRIPTS['Han']}]+", text)
    if any(len(run) >= _HAN_RUN and run not in given for run in runs):
        return True
    return sum(map(len, runs)) > len(re.findall(rf"[{own}]", text))


def _by_words(text: str, own: str, given: str) -> Language:
    """A Latin locale: its words against those of other scripts that the row does not hold."""
    words = _words(text)
    native = sum(1 for word in words if re.search(rf"[{own}]", word))
    foreign = sum(1 for word in words if not re.search(rf"[{own}]", word) and word not in given)
    if native >= 2 * foreign:
        return "same" if native else "undetermined"
    return "mixed" if native >= foreign else "other"


def _words(text: str) -> list[str]:
    """Words with a letter in them; hyphens and points inside belong to the word."""
    found = re.findall(r"[^\W\d_](?:[\w.'’&/+\-]*\w)?", text)
    return [word for word in found if any(c.isalpha() for c in word)]


def _ends_natively(text: str, locale: Locale) -> bool:
    """Whether a sentence ends as one of the locale does (any sentence where it declares none)."""
    if not locale.sentence_endings:
        return True
    ends = "|".join(map(re.escape, locale.sentence_endings))
    return re.search(rf"(?:{ends})(?=[\s.!?。…\"'”’)\]]|$)", text) is not None
