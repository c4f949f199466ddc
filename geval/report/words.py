"""Codes of results in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def warning_words(code: str, word: Mapping[str, Any], name: Callable[[str], str] = str) -> str:
    """A warning in words, as far as they are known; `name` gives a criterion's title."""
    for prefix in ("capped_by_", "juror_failed_"):
        if code.startswith(prefix):
            title = name(code.removeprefix(prefix))
            return str(word[f"warn_{prefix[:-1]}"]).format(title=title)
    return str(word.get(f"warn_{code}", code))


def failure_words(kind: str, word: Mapping[str, Any]) -> tuple[str, str]:
    """What a kind of failure is, and the way out."""
    return str(word.get(f"fail_{kind}", kind)), str(word.get(f"fix_{kind}", word["fix_other"]))
