"""Notes to the user that can be said in the language of a run.

A reader or a judge knows no language: it tells `told("header_row", sheet=..., row=7)`, which is
the English sentence and keeps its key and values. Whoever prints it for a run says it with
`say(note, locale)`. The sentences stand under `notes` in the locale files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from geval.locale import DEFAULT, Locale, load_locale


class Told(str):
    """An English sentence with the key and the values that it was made from."""

    __slots__ = ("key", "values")
    key: str
    values: Mapping[str, Any]


def told(key: str, **values: Any) -> Told:
    """The note `key` with its values, which may be notes themselves or tuples of them."""
    shown = {name: ", ".join(v) if isinstance(v, tuple) else v for name, v in values.items()}
    note = Told(load_locale(DEFAULT).notes[key].format(**shown))
    note.key, note.values = key, values
    return note


def say(note: str, locale: Locale) -> str:
    """The note in the language of `locale`; in English where it has no words for it."""
    if isinstance(note, Told):
        key, values = note.key, note.values
    elif (found := _fixed().get(note)) is not None:
        key, values = found, {}
    else:
        return note
    if key not in locale.notes:
        return str(note)
    return locale.notes[key].format(**{name: _said(v, locale) for name, v in values.items()})


def _said(value: Any, locale: Locale) -> Any:
    if isinstance(value, tuple):
        return ", ".join(say(one, locale) for one in value)
    return say(value, locale) if isinstance(value, str) else value


def sayer(note: Callable[[str], None], locale: Locale) -> Callable[[str], None]:
    """`note`, told in the language of `locale`."""
    return lambda text: note(say(text, locale))


@lru_cache(maxsize=1)
def _fixed() -> dict[str, str]:
    """Keys of the sentences without values, which a judge may write as they stand."""
    return {t: key for key, t in load_locale(DEFAULT).notes.items() if "{" not in t}
