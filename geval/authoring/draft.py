"""`geval template new`: a commented starter, or the skeleton of another locale's template.

What is written loads, lints clean and scores at once, so that an author changes what works.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geval.authoring.saving import default_body, write_whole
from geval.errors import TemplateError, UsageError
from geval.front import FrontMatter
from geval.locale import Locale, authoring, load_locale
from geval.template import SUFFIX, Template, locale_folders, parse, search_path

LEVELS = ("1-5", "yes-no")
_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Plan:
    """What a new template judges; the defaults make a starter that works."""

    name: str
    locale: str = "en"
    judged: str = "answer"
    inputs: Sequence[str] = ("question",)
    levels: str = "1-5"
    criterion: str = ""

    @property
    def words(self) -> Mapping[str, Any]:
        """Comments and example texts in the template's language, else in English."""
        return authoring(self.language)

    @property
    def language(self) -> Locale:
        """The template's language. Raises TemplateError for an unknown locale."""
        return load_locale(self.locale, locale_folders(search_path()))


def new(plan: Plan, folder: Path, source: Template | None = None) -> tuple[Path, Path]:
    """Write a template and its examples file into `folder`; returns both paths.

    With `source` it has the same inputs, scales and criteria; in another locale the source's
    words stand in comments beside what is to be written. Raises TemplateError where a file is
    there already or a name cannot be used; then nothing is written.
    """
    if not _NAME.fullmatch(plan.name):
        raise TemplateError(
            f"{plan.name!r} cannot be the name of a template",
            hint="Letters, digits and underscores, beginning with a letter: polite_answers.",
        )
    if source is None:
        text = starter(plan)
    elif source.front.locale == plan.locale:
        text = _renamed(source, plan.name)
    else:
        text = skeleton(source, plan)
    path = folder / f"{plan.name}.{plan.locale}{SUFFIX}"
    beside = path.with_name(f"{plan.name}.{plan.locale}.examples.jsonl")
    for each in (path, beside):
        if each.exists():
            raise TemplateError(
                f"{each} is there already and stays as it is",
                hint="Choose another name or --dir, or move the file away.",
            )
    made = parse(text.encode(), path, search_path())
    rows = _rows(made, plan.words)
    if source is not None and source.front.locale == plan.locale and source.examples():
        content = source.examples().read_bytes()  # type: ignore[union-attr]
    else:
        content = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(beside, content)
    try:
        write_whole(path, text.encode())
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return path, beside


def starter(plan: Plan) -> str:
    """The text of a new template with comments in its language."""
    words = plan.words
    fields = [*dict.fromkeys(name.strip() for name in plan.inputs if name.strip())]
    fields = [name for name in fields if name != plan.judged] + [plan.judged]
    for name in fields:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of an input")
    several = {"contexts", "documents"}
    kinds = {n: "texts" if n in several else "messages" if n == "history" else "text"
             for n in fields}  # fmt: skip
    criterion = plan.criterion.strip() or words["criterion"].format(judged=plan.judged)
    head = [
        f"# {words['head'].format(name=plan.name)}",
        f"name: {plan.name}",
        f"locale: {plan.locale}",
        "version: 1",
        f"description: {_quoted(words['description'].format(judged=plan.judged))}",
        f"inputs:  # {words['inputs']}",
        *(f"  {name}: {{type: {kind}}}" for name, kind in kinds.items()),
        f"judged: {plan.judged}  # {words['judged']}",
        f"scale:  # {words['scale']}",
        *_levels(plan),
        f"criteria:  # {words['criteria']}",
        *_criterion(words.get("title", ""), criterion),
        f"output: {{order: score_first, reason: true}}  # {words['output']}",
    ]
    front = FrontMatter.model_validate(
        {"name": plan.name, "locale": plan.locale, "inputs": kinds, "criteria": {"q": "q"},
         "scale": {"levels": {1: None, 2: None}}}
    )  # fmt: skip
    return "\n".join(["---", *head, "---", default_body(front)])


def _criterion(title: str, text: str) -> list[str]:
    """The entry `quality`; it has a title where its key would stand in the prompt untranslated."""
    if not title:
        return [f"  quality: {_quoted(text)}"]
    return ["  quality:", f"    title: {_quoted(title)}", f"    text: {_quoted(text)}"]


def _levels(plan: Plan) -> list[str]:
    text = plan.levels.strip()
    if text == "1-5":
        anchors = enumerate(plan.words["anchors"], start=1)
        return ["  levels:", *(f"    {v}: {_quoted(a)}" for v, a in anchors)]
    if text == "yes-no":
        return [
            "  labels:",
            *(f"    {_quoted(w)}: {v}" for v, w in [*enumerate(plan.language.verdict)][::-1]),
        ]
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) < 2:
        raise UsageError(
            f"{plan.levels!r} are no levels",
            hint=f"Write {' or '.join(LEVELS)}, numbers (0,1,2) or words, worst first (bad,good).",
        )
    if all(re.fullmatch(r"-?\d+(\.\d+)?", word) for word in words):
        return ["  levels:", *(f"    {w}: null" for w in sorted(words, key=float))]
    return ["  labels:", *(f"    {_quoted(word)}: {value}" for value, word in enumerate(words))]


def _quoted(text: str) -> str:
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def _renamed(source: Template, name: str) -> str:
    head = source.head or ""
    head = re.sub(r"(?m)^name:.*$", f"name: {name}", head, count=1)
    return f"---\n{head}\n---\n{source.body}"


def skeleton(source: Template, plan: Plan) -> str:
    """The source's structure with its words in comments beside what is to be written."""
    words, front = plan.words, source.front

    def said(text: str, indent: int) -> list[str]:
        pad = " " * indent
        return [f"{pad}# {words['source'].format(text=' '.join(text.split()))}"]

    def scale(spec: Any, indent: int) -> list[str]:
        pad, lines = " " * indent, [" " * indent + "scale:"]
        lines.append(f"{pad}  {'levels' if spec.levels else 'labels'}:")
        for value, anchor in spec.levels.items():
            lines += said(anchor, indent + 4) if anchor else []
            placeholder = words["anchor_of"].format(value=f"{value:g}")
            lines.append(f"{pad}    {value:g}: {_quoted(placeholder) if anchor else 'null'}")
        pairs = dict(zip(source.locale.verdict, plan.language.verdict, strict=True))
        for word, value in spec.labels.items():
            mine = pairs.get(word, word)
            lines += said(word, indent + 4) if mine != word else []
            lines.append(f"{pad}    {_quoted(mine)}: {value:g}")
        if spec.not_applicable:
            lines += said(spec.not_applicable, indent + 2)
            lines.append(f"{pad}  not_applicable: {_quoted(words['na_of'])}")
        return lines

    def steps(texts: Sequence[str], indent: int) -> list[str]:
        pad = " " * indent
        lines = [f"{pad}steps:"] if texts else []
        for n, text in enumerate(texts, start=1):
            lines += [*said(text, indent + 2), f"{pad}  - {_quoted(words['step_of'].format(n=n))}"]
        return lines

    lines = [f"# {words['head'].format(name=plan.name)}", f"name: {plan.name}"]
    lines += [f"locale: {plan.locale}", "version: 1"]
    if front.description:
        judged = source.judged
        lines += said(front.description, 0)
        lines.append(f"description: {_quoted(words['description'].format(judged=judged))}")
    kept = front.model_dump(mode="json", exclude_defaults=True)
    lines.append("inputs:")
    for name, spec in front.inputs.items():
        lines.append(f"  {name}: {json.dumps({'type': spec.type, 'required': spec.required})}")
    lines.append(f"judged: {source.judged}")
    if front.scale:
        lines += scale(front.scale, 0)
    lines.append("criteria:")
    for name, one in front.criteria.items():
        lines.append(f"  {name}:")
        if one.title:
            lines += said(one.title, 4)
            lines.append(f"    title: {_quoted(words['title_of'].format(name=name))}")
        if one.text:
            placeholder = words["text_of"].format(name=name)
            lines += [*said(one.text, 4), f"    text: {_quoted(placeholder)}"]
        for key in ("text_from", "anchors_from"):
            lines += [f"    {key}: {getattr(one, key)}"] if getattr(one, key) else []
        lines += [f"    weight: {one.weight:g}"] if one.weight != 1 else []
        lines += steps(one.steps, 4)
        lines += scale(one.scale, 4) if one.scale else []
    lines += steps(front.steps, 0)
    written = {"name", "locale", "version", "description", "inputs", "judged", "scale", "criteria",
               "steps", "demos", "calibration", "optimized"}  # fmt: skip
    for key, value in kept.items():
        if key not in written:
            lines.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
    body = default_body(front).rstrip("\n")
    shown = source.body.strip().replace("{#", "(#").replace("#}", "#)")
    note = words["source"].format(text=f"{source.name}.{front.locale}")
    return "\n".join(["---", *lines, "---", body, f"{{#- {note}\n{shown}\n-#}}", ""])


def _rows(template: Template, words: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Two made-up rows that fit the template."""
    rows = []
    for n in (1, 2):
        row: dict[str, Any] = {"id": str(n)}
        for name, spec in template.front.inputs.items():
            text = words["value"].format(field=template.locale.labels.get(name, name), n=n)
            row[name] = {
                "text": text, "texts": [text], "messages": [{"role": "user", "content": text}],
            }[spec.type]  # fmt: skip
        rows.append(row)
    return rows
