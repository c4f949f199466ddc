"""Small rows, templates and recordings that several test modules use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TEMPLATE = """---
name: fit
locale: en
inputs:
  question: {type: text}
  answer: {type: text}
scale:
  levels: {1: wrong, 2: mostly wrong, 3: half right, 4: mostly right, 5: right}
  not_applicable: nothing to judge
criteria:
  accuracy: {text: Is the answer right?, weight: 2}
  style: Is the answer well written?
cap: {criterion: accuracy, below: 3, max: 2}
output: {order: score_first, reason: true}
---
{% extends "_geval.jinja" %}
{% block sample %}
Question: {{ question }}
Answer: {{ answer }}
{% endblock %}
"""

ROWS = [
    {"id": "a", "question": "Q1?", "answer": "A1."},
    {"id": "b", "question": "Q2?", "answer": "A2."},
    {"id": "c", "question": "Q3?", "answer": "A3."},
]


def write_template(folder: Path, text: str = TEMPLATE, name: str = "fit.en.jinja") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path


def replay(folder: Path, records: Iterable[Mapping[str, Any]]) -> str:
    """A replay judge's spec for records written by hand."""
    return f"replay:{write_lines(folder / 'recorded.jsonl', records)}"


def recording(
    folder: Path,
    answers: Mapping[tuple[str, str], Mapping[str, float]],
    name: str = "replies.jsonl",
) -> str:
    """A replay judge's spec for alternatives by (id, criterion), with a reason behind each."""
    records = [
        {"id": i, "criterion": c, "alternatives": dict(p), "text": f"{max(p, key=p.__getitem__)}\nBecause."}
        for (i, c), p in answers.items()
    ]  # fmt: skip
    return f"replay:{write_lines(folder / name, records)}"


FULL = {
    ("a", "accuracy"): {"4": 0.6, "5": 0.4},
    ("a", "style"): {"5": 1.0},
    ("b", "accuracy"): {"1": 0.5, "2": 0.5},
    ("b", "style"): {"5": 0.9, "4": 0.1},
    ("c", "accuracy"): {"3": 0.7, "4": 0.3},
    ("c", "style"): {"3": 0.5, "2": 0.5},
}
FULL[("a", "style")] = {"5": 0.98, "4": 0.02}
