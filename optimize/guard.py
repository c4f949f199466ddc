"""What a written text must be to be tried: in its place, in the language, short, and nobody's copy.

A proposal is data for one slot of the front matter. What lint would complain of in a file of the
author's (numbers outside the scale, Jinja, orders to the judge, another language) is refused here.
"""

from __future__ import annotations

import re
import tempfile
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from geval.authoring.diff import flat
from geval.authoring.saving import head_of
from geval.authoring.steps import LONGEST, MOST
from geval.errors import TemplateError
from geval.lint.check import lint_file
from geval.reading.language import field_texts, language_of
from geval.template import SUFFIX, Template, faults_of
from geval.yaml import Tree

from .labelled import Labelled
from .space import Change

RUN = 8
"""Words in a row that are taken for a copy of a row."""

TEXT_CAP, TEXT_TIMES, ANCHOR_CAP = 600, 3, 240
"""Characters a criterion's text may have (or so many times the author's), and an anchor."""

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|\w+")
_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s+(.+?)\s*$")
_MARKS = ("{{", "}}", "{%", "%}", "{#", "#}")


class RefusedError(Exception):
    """A proposal that is not taken; the message says why."""


class Guard:
    """Checks proposals for one template; rows of every part, the test's too, may not be copied."""

    def __init__(self, rows: Labelled) -> None:
        self.template = rows.template
        own = self._runs(str(v) for _, v in flat(self.template.front.model_dump(mode="json")))
        texts = (t for s in rows.samples for t in (*field_texts(s), *_strings(s.extra)))
        self._copied = self._runs(texts) - own
        self._faults = _complaints(self.template)

    def text_cap(self, criterion: str) -> int:
        """Characters a new text of this criterion may have."""
        return max(TEXT_CAP, TEXT_TIMES * len(self.template.front.criteria[criterion].text))

    def text(self, criterion: str, proposed: str) -> str:
        """A criterion's text, tidied. Raises RefusedError."""
        text = _tidy(proposed)
        self._common(text, self.text_cap(criterion))
        old = self.template.front.criteria[criterion].text
        for name in self.template.front.inputs:
            names = {name, self.template.locale.labels.get(name, name)}
            if any(_names(old, n) for n in names) and not any(_names(text, n) for n in names):
                raise RefusedError(f"loses the input {name!r}")
        if text == old:
            raise RefusedError("is the text there is")
        return text

    def steps(self, proposed: str) -> tuple[str, ...]:
        """The steps of a numbered list, tidied. Raises RefusedError."""
        steps = tuple(_tidy(m[1]) for line in proposed.splitlines() if (m := _ITEM.match(line)))
        if not 2 <= len(steps) <= MOST + 2:
            raise RefusedError(f"{len(steps)} numbered steps, not 2 to {MOST + 2}")
        for step in steps:
            self._common(step, LONGEST, alone=False)
        self._common("\n".join(steps), LONGEST * len(steps))
        return steps

    def anchors(self, criterion: str, proposed: str) -> dict[float, str]:
        """A text for every level, by value, from lines `level: text`. Raises RefusedError."""
        scale = self.template.criterion(criterion).scale
        found: dict[float, str] = {}
        for level in scale.levels:
            line = re.search(
                rf"^[ \t*\-]*{re.escape(level.word)}[ \t*]*[:：.)\-–][ \t*]*(\S.*)$", proposed, re.M
            )
            if line is None:
                raise RefusedError(f"loses the level {level.word}")
            text = _tidy(line[1])
            self._common(text, ANCHOR_CAP, alone=False)
            found[level.value] = text
        if len(set(found.values())) < len(found):
            raise RefusedError("two levels have the same text")
        self._common("\n".join(found.values()), ANCHOR_CAP * len(found))
        return found

    def candidate(self, change: Change) -> None:
        """Refuse a change whose template lint complains of, or that cannot be rendered."""
        try:
            made = replace(self.template, front=change(self.template.front))
            faults = faults_of(made, Tree({}, {}, 0))
            if faults:
                raise RefusedError(faults[0].message)
            new = [m for m in _complaints(made) if m not in self._faults]
        except TemplateError as error:
            raise RefusedError(str(error).splitlines()[0]) from None
        if new:
            raise RefusedError(new[0])

    def _common(self, text: str, cap: int, *, alone: bool = True) -> None:
        if not any(c.isalpha() for c in text):
            raise RefusedError("says nothing")
        if len(text) > cap:
            raise RefusedError(f"{len(text):,} characters (at most {cap:,})")
        mark = next((m for m in _MARKS if m in text), None)
        if mark:
            raise RefusedError(f"holds Jinja: {mark}")
        if any(unicodedata.category(c) in ("Cc", "Cs", "Co") and c != "\n" for c in text):
            raise RefusedError("holds control characters")
        if alone and language_of(text, self.template.locale) == "other":
            raise RefusedError(f"is not in the template's language ({self.template.front.locale})")
        if self._runs([text]) & self._copied:
            raise RefusedError(f"shares {RUN} words in a row with a row of the data")

    @staticmethod
    def _runs(texts: Iterable[str]) -> set[int]:
        """Hashes of every run of `RUN` words."""
        runs: set[int] = set()
        for text in texts:
            words = _words(text)
            runs.update(hash(tuple(words[i : i + RUN])) for i in range(len(words) - RUN + 1))
        return runs


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _strings(extra: Mapping[str, Any]) -> list[str]:
    """Texts of columns that no field took: rationales among them."""
    return [value for value in extra.values() if isinstance(value, str)]


def _names(text: str, name: str) -> bool:
    """Whether a text names a field, as a word of its own (Korean particles may follow)."""
    end = "" if any("가" <= c <= "힣" for c in name) else r"(?![A-Za-z0-9_])"
    return bool(
        re.search(rf"(?<![A-Za-z0-9_]){re.escape(name.casefold())}s?{end}", text.casefold())
    )


def _tidy(text: str) -> str:
    """NFC, without quotes or a heading around it, blanks in a line collapsed."""
    text = unicodedata.normalize("NFC", text).strip()
    text = re.sub(r"^```\w*\n(.*)\n```$", r"\1", text, flags=re.DOTALL).strip()
    for a, b in ('""', "''", "“”", "「」"):
        if len(text) > 1 and text[0] == a and text[-1] == b and a not in text[1:-1]:
            text = text[1:-1].strip()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def _complaints(template: Template) -> Sequence[str]:
    """What lint says of the template as a file."""
    content = f"---\n{head_of(template)}---\n{template.body}"
    with tempfile.TemporaryDirectory(prefix="geval-") as folder:
        path = Path(folder) / f"{template.name}.{template.front.locale}{SUFFIX}"
        path.write_bytes(content.encode("utf-8", "backslashreplace"))
        return [fault.message for fault in lint_file(path, template.folders)]
