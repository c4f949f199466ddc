"""Prompts of a few judgements, found in replies.jsonl by their hash."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from geval.runs.run import REPLIES, Run

MOST_TEXT = 6000
MOST_BYTES = 1_000_000_000
"""A bigger file is not looked through for the sake of ten prompts."""


def prompts_of(run: Run, records: Iterable[Mapping[str, Any] | None]) -> dict[str, str]:
    """The messages that `records` were judged by, as text, by `prompt_sha256`.

    What cannot be found is left out: a prompt is a detail of the report.
    """
    wanted = {str(r["prompt_sha256"]) for r in records if r and r.get("prompt_sha256")}
    found: dict[str, str] = {}
    path = run.folder / REPLIES
    try:
        if not wanted or path.stat().st_size > MOST_BYTES:
            return found
        with path.open("rb") as file:
            for line in file:
                # The hash is a line's first field, so other lines are not parsed.
                start = line.find(b'"prompt_sha256":"')
                if not 0 <= start <= 2:
                    continue
                key = line[start + 17 : start + 81].decode("ascii", "replace")
                if key in wanted and (text := _messages(line)) is not None:
                    found[key] = text
                    wanted.discard(key)
                    if not wanted:
                        break
    except OSError:
        pass
    return found


def _messages(line: bytes) -> str | None:
    try:
        told = json.loads(line)["messages"]
        text = "\n\n".join(str(message["content"]) for message in told)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
