"""What the checks of lint look at: a template, and the place of each of its words in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError, nodes

from geval.errors import TemplateError
from geval.locale import LintPatterns, Locale, load_locale, locale_codes, united
from geval.template import Template, locale_folders, source, split
from geval.yaml import Tree, decode, load_yaml


@dataclass(frozen=True)
class Text:
    """A text of the front matter that a judge reads: its place, and whose it is."""

    where: tuple[Any, ...]
    text: str
    criterion: str | None = None


@dataclass(frozen=True)
class Subject:
    """A template file under check; `method` is how its score will be read."""

    template: Template
    path: Path
    lines: tuple[str, ...]
    tree: Tree
    folders: tuple[Path, ...]
    method: str

    @cached_property
    def locales(self) -> tuple[Locale, ...]:
        """Every locale that the template could be written in."""
        folders = locale_folders(self.folders)
        return tuple(load_locale(code, folders) for code in locale_codes(folders))

    def says(self, what: str) -> re.Pattern[str]:
        """The patterns of all locales for `what` (a key of `lint` of a locale file), as one."""
        patterns = getattr(united(LintPatterns, locale_folders(self.folders)), what)
        return re.compile("|".join(patterns) or r"(?!)", re.IGNORECASE)

    def line(self, where: Sequence[Any], words: str = "") -> int:
        """The line of a key of the front matter, or of `words` in what stands below it."""
        first = self.tree.line(where)
        if not words:
            return first
        indent = _indent(self.lines[first - 1])
        for number in range(first, self.template.body_line):
            line = self.lines[number - 1]
            if number > first and line.strip() and _indent(line) <= indent:
                break
            if words in line:
                return number
        return first

    @cached_property
    def texts(self) -> tuple[Text, ...]:
        """Every text of criteria, steps and anchors, in the order of the file."""
        return tuple(self._texts())

    def _texts(self) -> Iterator[Text]:
        front = self.template.front
        for number, step in enumerate(front.steps):
            yield Text(("steps", number), step)
        for name, spec in front.criteria.items():
            short = isinstance(self.tree.data["criteria"][name], str)
            at = ("criteria", name)
            yield Text(at if short else (*at, "text"), spec.text, name)
            for number, step in enumerate(spec.steps):
                yield Text((*at, "steps", number), step, name)
            if spec.scale is not None:
                yield from self._anchors(spec.scale, (*at, "scale"), name)
        if front.scale is not None:
            yield from self._anchors(front.scale, ("scale",), None)

    @staticmethod
    def _anchors(scale: Any, at: tuple[Any, ...], name: str | None) -> Iterator[Text]:
        for value, anchor in scale.levels.items():
            if anchor:
                key = int(value) if float(value).is_integer() else value
                yield Text((*at, "levels", key), anchor, name)
        if scale.not_applicable:
            yield Text((*at, "not_applicable"), scale.not_applicable, name)

    @cached_property
    def body(self) -> nodes.Template | None:
        """The parsed body with the line numbers of the file; None where it is no Jinja."""
        text = "\n" * (self.template.body_line - 1) + self.template.body
        from geval.rendering.sandbox import Environment

        try:
            return Environment().parse(text)
        except TemplateSyntaxError:
            return None

    @cached_property
    def parts(self) -> tuple[nodes.Template, ...]:
        """The parsed parts that the body extends or includes directly."""
        from geval.prompt import referenced
        from geval.rendering.sandbox import Environment

        found = []
        for name in referenced(self.template.body):
            try:
                found.append(Environment().parse(source(name, self.template.folders)))
            except (TemplateError, TemplateSyntaxError):
                continue
        return tuple(found)

    @cached_property
    def used(self) -> frozenset[str]:
        """Names that the body or its parts read, and the fields that the frame prints as units."""
        trees = [*self.parts, *([self.body] if self.body else [])]
        names = {n.name for t in trees for n in t.find_all(nodes.Name) if n.ctx == "load"}
        own = self.body.find_all(nodes.Name) if self.body else ()
        return frozenset(names | self.template.front.shown_as_units({n.name for n in own}))

    def body_lines(self) -> Iterator[tuple[int, str]]:
        """The lines of the body with their numbers."""
        start = self.template.body_line
        yield from enumerate(self.lines[start - 1 :], start=start)

    def printed(self) -> Iterator[tuple[int, str]]:
        """The literal texts of the body, each line with its number."""
        if self.body is None:
            return
        for node in self.body.find_all(nodes.TemplateData):
            for offset, line in enumerate(node.data.split("\n")):
                if line.strip():
                    yield node.lineno + offset, line


def subject_of(
    template: Template, path: Path, content: bytes, folders: Sequence[Path], method: str
) -> Subject | None:
    """The subject for a template that was read from `content`; None where its locale is unknown."""
    try:
        template.criteria  # noqa: B018 - checks need the built scales
    except TemplateError:
        return None
    except Exception:  # told already by the faults of the template
        return None
    text = decode(content, str(path))
    head, _, _ = split(text)
    tree = load_yaml(head or "", str(path), first_line=2)
    return Subject(template, path, tuple(text.split("\n")), tree, tuple(folders), method)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
