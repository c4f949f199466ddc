"""Lint of locale files: what keeps one from loading, and particles that do not fit every word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from geval.errors import TemplateError
from geval.lint.subject import Subject
from geval.lint.words import glued
from geval.locale import read_locale
from geval.template import locale_folders
from geval.yaml import Fault

SUFFIX = ".yaml"


def lint_locale(path: Path) -> list[Fault]:
    """What is wrong with one locale file, by line."""
    content = path.read_bytes()
    try:
        locale = read_locale(content, str(path))
    except TemplateError as error:
        place = re.search(r":(\d+)$", error.where or "")
        line = int(place[1]) if place else 1
        return [_placed(text, line) for text in error.faults or (error.what,)]
    if "Hangul" not in locale.scripts:
        return []
    lines = enumerate(content.decode("utf-8-sig").split("\n"), start=1)
    return list(glued((n, text) for n, text in lines if not text.lstrip().startswith("#")))


def _placed(text: str, line: int) -> Fault:
    match = re.match(r"line (\d+): (.*)", text, re.DOTALL)
    return Fault(int(match[1]), match[2]) if match else Fault(line, text)


def wording(subject: Subject) -> Iterator[Fault]:
    """The locale file beside the folder of a template, told at its own lines."""
    name = f"{subject.template.locale.code}{SUFFIX}"
    for folder in locale_folders(subject.folders):
        path = folder / name
        if path.is_file():
            yield from (replace(fault, path=path) for fault in lint_locale(path))
            return
