"""Templates made from prompts of other tools: ragas (installed or saved) and Haystack examples.

The words come from the user's own installation or file; what has no place in a template is named.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geval.authoring.saving import head_of, write_whole
from geval.errors import ConfigError, DataError, TemplateError, nearest
from geval.locale import authoring, guess_locale, load_locale, locale_codes, own_folders
from geval.template import SUFFIX, Template, parse, search_path

INSTALL = (
    'pip install "ragas>=0.4" "langchain-community<0.4" "langchain<1" "langchain-core<1" '
    '"langchain-openai<1"'
)
_SCORES = ("verdict", "score", "rating", "attributed", "label", "classification", "output")
_JUDGED = ("answer", "response", "statements", "statement", "summary", "submission", "output")


@dataclass(frozen=True)
class Source:
    """A prompt of another tool: its instruction, its fields and its examples."""

    name: str
    origin: str
    instruction: str
    examples: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    lost: list[str] = field(default_factory=list)


def load(what: str, name: str | None = None) -> Source:
    """`ragas:METRIC`, or a JSON file of a ragas prompt or of Haystack examples."""
    if what.startswith("ragas:"):
        return _installed(what.removeprefix("ragas:"), name)
    path = Path(what)
    if not path.is_file():
        raise DataError(
            f"there is no file {what!r}",
            hint="Give a .json file, or ragas:METRIC (ragas:faithfulness).",
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", where=what) from None
    name = name or re.sub(r"\W", "_", path.stem.split(".")[0])
    if isinstance(data, Mapping) and isinstance(data.get("instruction"), str):
        examples = _pairs(data.get("examples") or [], "input", "output", what)
        version = data.get("ragas_version", "of unknown version")
        return Source(name, f"a saved prompt of ragas {version}", data["instruction"], examples)
    if isinstance(data, list):
        examples = _pairs(data, "inputs", "outputs", what)
        lost = ["the instruction: Haystack examples hold none, so write the criterion's text"]
        return Source(name, "Haystack examples", "", examples, lost=lost)
    raise DataError(
        "neither a saved ragas prompt nor Haystack examples",
        where=what,
        hint='A ragas prompt has "instruction" and "examples"; Haystack examples are a list of '
        '{"inputs": {...}, "outputs": {...}}.',
    )


def _pairs(
    items: Any, one: str, two: str, where: str
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    faults, found = [], []
    for number, item in enumerate(items if isinstance(items, list) else [items], start=1):
        good = isinstance(item, Mapping) and all(
            isinstance(item.get(k), Mapping) for k in (one, two)
        )
        if good:
            found.append((dict(item[one]), dict(item[two])))
        else:
            faults.append(f"example {number} has no objects {one!r} and {two!r}")
    if faults:
        raise DataError("the examples cannot be read", where=where, faults=faults)
    return found


def _installed(metric: str, name: str | None) -> Source:
    try:
        found = importlib.import_module("ragas.metrics.collections")
        version = importlib.import_module("ragas").__version__
        base = importlib.import_module("ragas.prompt.metrics.base_prompt").BasePrompt
    except Exception as error:  # a broken set of versions fails in many ways
        raise ConfigError(
            f"ragas >= 0.4 cannot be imported: {error}",
            hint=f"{INSTALL}\nIt needs these pins of langchain; give it an environment of its own.",
        ) from None
    metrics = {
        _snake(n): c
        for n, c in vars(found).items()
        if inspect.isclass(c) and n[0].isupper() and c.__module__.count(".") > 3
    }
    wanted = _snake(metric)
    if wanted not in metrics:
        raise ConfigError(f"ragas has no metric {metric!r}", hint=nearest(wanted, metrics))
    own = metrics[wanted].__module__
    candidates: dict[str, Any] = {}
    for module in (f"{own.rpartition('.')[0]}.util", own):
        try:
            candidates.update(vars(importlib.import_module(module)))
        except ImportError:  # not every metric has both
            continue
    prompts: list[Any] = [
        c for c in candidates.values()
        if inspect.isclass(c) and issubclass(c, base) and c is not base
        and isinstance(getattr(c, "instruction", None), str)
    ]  # fmt: skip
    if not prompts:
        raise ConfigError(f"the ragas metric {wanted!r} has no prompt of its own that can be read")
    chosen = next(
        (p for p in prompts if _scores_in(p.output_model.model_json_schema())), prompts[0]
    )
    lost = [f"the prompt {p.__name__}: {len(prompts)} prompts are one template's unit settings here"
            for p in prompts if p is not chosen]  # fmt: skip
    examples = [(a.model_dump(), b.model_dump()) for a, b in chosen.examples]
    return Source(
        name or wanted, f"ragas {version}, {chosen.__name__}", chosen.instruction, examples,
        list(chosen.input_model.model_fields), list(chosen.output_model.model_fields), lost,
    )  # fmt: skip


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _scores_in(schema: Mapping[str, Any]) -> bool:
    text = json.dumps(schema)
    return any(f'"{name}"' in text for name in _SCORES)


def _score(outputs: Mapping[str, Any]) -> float | None:
    """The one number that an example's output is about, where there is one."""
    for name in sorted(outputs, key=lambda n: n not in _SCORES):
        value = outputs[name]
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, Mapping):
            inner = _score(value)
            if inner is not None:
                return inner
        if isinstance(value, bool | int | float):
            return float(value)
        if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value.strip()):
            return float(value)
    return None


def _one_by_one(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """An example that judges a list, item by item, as one example an item.

    So ragas asks: `{context, statements: [...]}` -> `{statements: [{verdict}, ...]}`.
    """
    lists = [name for name, value in inputs.items() if isinstance(value, list)]
    verdicts = [value for value in outputs.values() if isinstance(value, list)]
    if len(lists) != 1 or len(verdicts) != 1:
        return [(inputs, outputs)]
    (name,), (found,) = lists, verdicts
    judged = [one for one in found if isinstance(one, Mapping) and _score(one) is not None]
    if len(judged) != len(found) or len(found) != len(inputs[name]) or not found:
        return [(inputs, outputs)]
    return [({**inputs, name: item}, one) for item, one in zip(inputs[name], found, strict=True)]


def convert(source: Source, locale: str | None = None) -> tuple[Template, list[str]]:
    """The template, and what could not be carried over."""
    lost = list(source.lost)
    pairs = [pair for example in source.examples for pair in _one_by_one(*example)]
    rows = [dict(one) for one, _ in pairs]
    fields = list(source.inputs) or list(dict.fromkeys(k for row in rows for k in row))
    names = {f: re.sub(r"\W", "_", f) for f in fields}
    if not names:
        raise TemplateError(f"{source.origin} names no input fields, so there is nothing to judge")
    texts = [source.instruction, *(str(v) for row in rows for v in row.values())]
    folders = own_folders()
    code = locale or guess_locale(texts, locale_codes(folders), folders) or "en"
    language = load_locale(code, folders)
    lists = {f for f in fields if any(isinstance(row.get(f), list) for row in rows)}
    judged = next((names[n] for n in _JUDGED if n in names), names[fields[-1]])
    scores = [_score(out) for _, out in pairs]
    known = sorted({s for s in scores if s is not None})
    if set(known) <= {0.0, 1.0}:
        no, yes = language.verdict
        scale: dict[str, Any] = {"labels": {yes: 1, no: 0}}
        if not known:
            lost.append("the scale: no example holds one number, so no and yes are levels here")
    else:
        low, high = int(min(*known, 1)), int(max(known)) + (max(known) % 1 > 0)
        scale = {"levels": dict.fromkeys(range(low, max(high, low + 1) + 1))}
    text = " ".join(source.instruction.split())
    if not text:
        text = authoring(language)["text"]
    if "json" in text.lower():
        lost.append("the form of the reply: what the instruction says of JSON may be taken out")
    demos = []
    for number, (row, score) in enumerate(zip(rows, scores, strict=True), start=1):
        whole = all(row.get(f) not in (None, "", []) for f in fields)
        if score is None or not whole or not (float(score).is_integer()):
            why = "it lacks a field" if not whole else "its output is not one number"
            lost.append(f"example {number}: {why}")
            continue
        shown = {names[f]: row[f] if f in lists else _text(row[f]) for f in fields}
        demos.append({**shown, "scores": {"quality": int(score)}})
    template = Template.build(
        name=re.sub(r"\W", "_", source.name), locale=code, criteria={"quality": text},
        inputs={names[f]: {"type": "texts" if f in lists else "text"} for f in fields},
        judged=judged, scale=scale, demos=demos, output={"order": "score_first", "reason": True},
        description=f"from {source.origin}",
    )  # fmt: skip
    return template, lost


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def write(template: Template, lost: Sequence[str], folder: Path) -> Path:
    """Write the template, with what is lost in comments; never over another file."""
    path = folder / f"{template.name}.{template.front.locale}{SUFFIX}"
    if path.exists():
        raise TemplateError(
            f"{path} is there already and stays as it is", hint="Use --name or --dir."
        )
    notes = "".join(f"# not carried over: {' '.join(text.split())}\n" for text in lost)
    content = f"---\n# {template.front.description}\n{notes}{head_of(template)}---\n{template.body}"
    parse(content.encode(), path, search_path())
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, content.encode())
    return path
