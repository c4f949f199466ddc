"""What a run says of each row: scores, distributions and spreads, repeats averaged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from geval.errors import UsageError
from geval.runs.lines import complete_lines
from geval.runs.run import REPLIES, Run

Misses = Literal["missing", "zero"]
_DIGIT = re.compile(r"\d")


@dataclass
class Judged:
    """What a run says of one criterion, by id; repeats are averaged."""

    levels: list[float] | None = None
    score: dict[str, float] = field(default_factory=dict)
    raw: dict[str, float] = field(default_factory=dict)
    mode: dict[str, float] = field(default_factory=dict)
    probs: dict[str, list[float]] = field(default_factory=dict)
    sd: dict[str, float] = field(default_factory=dict)
    unscored: dict[str, None] = field(default_factory=dict)
    group: dict[str, str] = field(default_factory=dict)


def read_judged(run: Run, misses: Misses = "missing") -> dict[str, Judged]:
    """Scores of a run by criterion, in the run's order. Raises UsageError for an empty run."""
    if misses not in ("missing", "zero"):
        raise UsageError(f"unknown rule for misses {misses!r}", hint="Known: missing, zero.")
    found: dict[str, Judged] = {}
    held: dict[tuple[str, str], list[dict[str, Any]]] = {}
    original = original_scores(run) if misses == "zero" else {}
    for r in run.results():
        if r.get("unit") is not None:
            continue
        one = found.setdefault(r["criterion"], Judged())
        if of := (r.get("source") or {}).get("group"):
            one.group[r["id"]] = str(of)
        if r["levels"] and one.levels is None:
            one.levels = list(r["levels"])
        other = original.get((r["criterion"], r["id"], r["repeat"]))
        if r["status"] == "scored" or other is not None:
            kept = {k: r[k] for k in ("score", "raw_score", "probs", "mode", "sd")}
            if other is not None:
                kept |= {"score": other, "raw_score": other}
            held.setdefault((r["criterion"], r["id"]), []).append(kept)
        else:
            one.unscored[r["id"]] = None
    if not held:
        raise UsageError(f"the run {str(run.folder)!r} has no scored row")
    for (criterion, key), lines in held.items():
        one = found[criterion]
        one.unscored.pop(key, None)
        one.score[key] = mean_of(line["score"] for line in lines)
        one.raw[key] = mean_of(
            line["score"] if line["raw_score"] is None else line["raw_score"] for line in lines
        )
        if all(line["probs"] for line in lines):
            many = [line["probs"] for line in lines]
            probs = [mean_of(p[i] for p in many) for i in range(len(many[0]))]
            one.probs[key] = probs
            if one.levels and len(one.levels) == len(probs):
                one.mode[key] = one.levels[max(range(len(probs)), key=lambda i: (probs[i], -i))]
        one.sd[key] = mean_of(line["sd"] or 0.0 for line in lines)
    return found


def original_scores(run: Run) -> dict[tuple[str, str, int], float]:
    """(criterion, id, repeat) -> mean over all samples as a published study read them.

    The first digit anywhere in a sample, whatever the scale; a sample without one counts 0:
    the rule that reproduces the figures published for the stored ChatGPT samples on Topical-Chat.
    For comparison with published figures only.
    """
    said: dict[tuple[str, str, int], dict[int, list[float]]] = {}
    for line in complete_lines(run.folder / REPLIES):
        r = json.loads(line)
        if r.get("method") == "samples" and r.get("purpose") == "score":
            values = [_first_digit(choice["text"]) for choice in r["choices"]]
            key = (r["criterion"], r["id"], r["repeat"])
            said.setdefault(key, {})[r["index"]] = values
    return {key: mean_of(v for block in by.values() for v in block) for key, by in said.items()}


def _first_digit(text: str) -> float:
    found = _DIGIT.search(text)
    return float(found[0]) if found else 0.0


def mean_of(values: Iterable[float]) -> float:
    """The mean of at least one value."""
    many = list(values)
    return math.fsum(many) / len(many)
