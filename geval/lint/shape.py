"""Checks of lint on shape: inputs, levels, criteria, prompts, other locales, examples."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

from jinja2 import meta, nodes

from geval.data import load_samples, read_rows
from geval.errors import DataError, GevalError, TemplateError, nearest
from geval.lint.subject import Subject
from geval.locale import column_families
from geval.rendering.guide import guides
from geval.sample import Sample, Source
from geval.template import SUFFIX, Template, examine, locale_folders
from geval.yaml import Fault


def name_of_file(subject: Subject) -> Iterator[Fault]:
    """A file is found by its name, so name and front matter must agree."""
    expected = f"{subject.template.name}.{subject.template.front.locale}{SUFFIX}"
    if subject.path.name != expected:
        told = f"the file is called {subject.path.name}, its front matter says {expected}"
        yield Fault(subject.line(["name"]), told, "warning")


def undeclared(subject: Subject) -> Iterator[Fault]:
    """Every name and required input that the body gets wrong (loading tells only the first)."""
    from geval.prompt import _GIVEN

    if subject.body is None:
        return
    inputs = subject.template.front.inputs
    unknown = meta.find_undeclared_variables(subject.body) - _GIVEN - {"range", "namespace"}
    for name in sorted(unknown - set(inputs)):
        yield Fault(
            min(_lines_of(subject, name), default=subject.template.body_line),
            f"the body uses {name!r}, which is no input. {nearest(name, inputs)}",
        )
    guiding = guides(subject.template)
    for name, spec in inputs.items():
        if spec.required and name not in subject.used and name not in guiding:
            told = f"the body never prints the required input {name!r}"
            yield Fault(subject.template.body_line, told)


def _lines_of(subject: Subject, name: str) -> list[int]:
    tree = subject.body
    return [n.lineno for n in tree.find_all(nodes.Name) if n.name == name] if tree else []


def unused_inputs(subject: Subject) -> Iterator[Fault]:
    """An optional input that no prompt shows."""
    if subject.body is None:
        return
    for name, spec in subject.template.front.inputs.items():
        guiding = name in guides(subject.template)
        if not spec.required and name not in subject.used and not guiding:
            told = f"the body never uses the input {name!r}: print it, or take it out"
            if name == subject.template.judged:
                told = f"the body never prints the judged field {name!r}"
                yield Fault(subject.line(["inputs", name]), told)
            else:
                yield Fault(subject.line(["inputs", name]), told, "warning")


def optional_judged(subject: Subject) -> Iterator[Fault]:
    """A judged field that a row may lack."""
    name = subject.template.judged
    if name in subject.used and not subject.template.front.inputs[name].required:
        yield Fault(
            subject.line(["inputs", name]),
            f"the judged field {name!r} is optional: a row without it would be judged on nothing",
            "warning",
        )


def _scales(subject: Subject) -> Iterator[tuple[list[Any], Any, str]]:
    """(place, spec, whose) of every scale that is written down."""
    front = subject.template.front
    if front.scale is not None:
        yield ["scale"], front.scale, "the scale"
    for name, spec in front.criteria.items():
        if spec.scale is not None:
            yield ["criteria", name, "scale"], spec.scale, f"the scale of {name!r}"


def levels_out_of_order(subject: Subject) -> Iterator[Fault]:
    """Numbers that do not rise from top to bottom read as if the first were the worst.

    Words are named in a prompt as they are written, best or worst first, but not mixed.
    """
    for place, spec, whose in _scales(subject):
        values = list(spec.levels) or list(spec.labels.values())
        up, down = sorted(values), sorted(values, reverse=True)
        if values not in ((up,) if spec.levels else (up, down)):
            first = "lowest" if spec.levels else "best"
            told = f"{whose} is out of order: {_values(values)}; write the {first} level first"
            yield Fault(subject.line([*place, "levels" if spec.levels else "labels"]), told,
                        "warning")  # fmt: skip


def levels_with_a_gap(subject: Subject) -> Iterator[Fault]:
    """A level that seems to be left out: {1, 2, 4, 5}."""
    for place, spec, whose in _scales(subject):
        values = sorted(spec.levels)
        steps = [b - a for a, b in pairwise(values)]
        if len(values) > 2 and max(steps) - min(steps) > 1e-9:
            at = next(i for i, step in enumerate(steps) if step == max(steps))
            yield Fault(
                subject.line([*place, "levels", _key(values[at + 1])]),
                f"{whose} has a gap between {values[at]:g} and {values[at + 1]:g}: "
                f"{_values(values)}",
                "warning",
            )


def _key(value: float) -> Any:
    return int(value) if float(value).is_integer() else value


def _values(values: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def levels_alike(subject: Subject) -> Iterator[Fault]:
    """Levels whose first token may be the same, where only that token is read."""
    if subject.method not in ("auto", "logprobs"):
        return
    severity = "warning" if subject.method == "logprobs" else "info"
    for place, spec, whose in _scales(subject):
        words = [f"{value:g}" for value in spec.levels] or list(spec.labels)
        for one, other in combinations(words, 2):
            if _alike(one, other):
                key = next((k for k in spec.labels if k == other), None)
                where = [*place, "labels", key] if key else [*place, "levels", _key(float(other))]
                yield Fault(
                    subject.line(where),
                    f"{whose}: {one!r} and {other!r} begin alike, so their first token may not "
                    "tell them apart (`--method exact` reads them whole)",
                    severity,
                )


def _alike(one: str, other: str) -> bool:
    """Whether two levels can begin with the same token: a tokenizer-free guess."""
    a, b = one.casefold(), other.casefold()
    if a.startswith(b) or b.startswith(a):
        return True
    first, second = a.split()[0], b.split()[0]
    if first == second:
        return True
    if not a[0].isascii():
        return a[0] == b[0]
    return len(a) > 3 and len(b) > 3 and a[:4] == b[:4]


def equal_texts(subject: Subject) -> Iterator[Fault]:
    """Two criteria that judge by the same text."""
    seen: dict[str, str] = {}
    for name, spec in subject.template.front.criteria.items():
        text = " ".join(spec.text.split()).casefold()
        if text and text in seen:
            told = f"the criteria {seen[text]!r} and {name!r} have the same text"
            yield Fault(subject.line(["criteria", name]), told, "warning")
        seen.setdefault(text, name)


def weights_of_zero(subject: Subject) -> Iterator[Fault]:
    """A criterion that is judged and does not count."""
    for name, spec in subject.template.front.criteria.items():
        if spec.weight == 0:
            told = f"the criterion {name!r} has weight 0: it is judged but does not count"
            yield Fault(subject.line(["criteria", name, "weight"]), told, "info")


_PROBE = (
    "“{name}”: 1,234.5 가나다 αβγ &lt;b&gt; \"quoted\"  two  blanks, and more words so that a "
    "filter that shortens, escapes or changes the case of the text is noticed. " * 4
)  # fmt: skip


def _probe(template: Template, without: str | None = None) -> Sample:
    """A made-up row with every field, but for one."""
    fields: dict[str, Any] = {}
    for name, spec in template.front.inputs.items():
        text = _PROBE.replace("{name}", name)
        if name == without:
            fields[name] = None
        elif spec.type == "texts":
            fields[name] = (f"1 {text}", f"2 {text}")
        elif spec.type == "messages":
            fields[name] = ({"role": "user", "content": text},)
        else:
            fields[name] = text
    return Sample("probe", fields, source=Source("a made-up row"))


def prompts(subject: Subject) -> Iterator[Fault]:
    """The prompt of a made-up row, and of one without each optional field."""
    template = subject.template
    optional = [n for n, spec in template.front.inputs.items() if not spec.required]
    for without in (*optional, None):  # what misses one field tells more
        row = _probe(template, without)
        for criterion in template.criteria:
            try:
                template.renderer.render(row, criterion)
            except TemplateError as error:
                named = [n for n in template.front.inputs if repr(n) in error.what]
                at = [line for n in (without, *named) if n for line in _lines_of(subject, n)]
                told = re.sub(
                    r" ?\(?(?:for )?a made-up row,? ?\(?(?:id 'probe')?\)*", "", error.what
                )
                if without and "does not have" in error.what:
                    told = (
                        f"a row without the optional field {without!r} cannot be rendered: guard "
                        f"it with {{% if {without} %}} ... {{% endif %}}"
                    )
                yield Fault(max(at, default=0) or _line_in(error) or template.body_line, told)
                return


def _line_in(error: GevalError) -> int | None:
    """The line that an error's place ends in."""
    match = re.search(r":(\d+)$", error.where or "")
    return int(match[1]) if match else None


def differing(a: Template, b: Template) -> list[tuple[str, list[Any]]]:
    """What two locales of a template should share and do not, with its place in a file."""

    def shape(t: Template) -> dict[str, tuple[Any, list[Any]]]:
        front = t.front
        return {
            "inputs": ({n: (s.type, s.required) for n, s in front.inputs.items()}, ["inputs"]),
            "judged field": (t.judged, ["judged"]),
            "criteria": ([c.name for c in t.criteria], ["criteria"]),
            "weights": ([c.weight for c in t.criteria], ["criteria"]),
            "levels": ([c.scale.values for c in t.criteria], ["scale"]),
            "not-applicable levels": (
                [bool(c.scale.not_applicable) for c in t.criteria], ["scale"],
            ),
            "number of steps": ([len(c.steps) for c in t.criteria], ["steps"]),
            "output": (front.output, ["output"]),
            "caps": (front.cap, ["cap"]),
            "units": (front.units, ["units"]),
            "unit aggregate": (
                (front.aggregate_name, front.aggregate_parameters), ["unit_aggregate"],
            ),
            "aggregate": (front.aggregate, ["aggregate"]),
        }  # fmt: skip

    one, two = shape(a), shape(b)
    return [(name, place) for name, (value, place) in one.items() if two[name][0] != value]


def locales_disagree(subject: Subject) -> Iterator[Fault]:
    """Locales of one template must agree in all but their words."""
    template, path = subject.template, subject.path
    for other_path in sorted(path.parent.glob(f"{template.name}.*{SUFFIX}")):
        if other_path.resolve() == path.resolve():
            continue
        other, _ = examine(other_path.read_bytes(), other_path, subject.folders)
        if other is None or other.name != template.name:
            continue
        try:
            found = differing(template, other)
        except GevalError:
            continue  # its own check tells
        for what, place in found:
            more = _only(template, other, what)
            line = subject.line(place) if place[0] in subject.tree.data else 1
            told = f"differs from {other_path.name} in its {what}{more}"
            yield Fault(line, told, "warning")


def _only(a: Template, b: Template, what: str) -> str:
    names = {"inputs": lambda t: set(t.front.inputs), "criteria": lambda t: set(t.front.criteria)}
    if what not in names:
        return ""
    here, there = names[what](a), names[what](b)
    parts = [f"only here: {', '.join(sorted(here - there))}"] if here - there else []
    parts += [f"only there: {', '.join(sorted(there - here))}"] if there - here else []
    return f" ({'; '.join(parts)})" if parts else ""


def examples(subject: Subject) -> Iterator[Fault]:
    """The examples file: there, readable, and labelled on the scale."""
    template = subject.template
    path = template.examples()
    if path is None:
        name = f"{template.name}.{template.front.locale}.examples.jsonl"
        told = f"there is no {name} beside it: nothing is scored without data"
        yield Fault(1, told, "info")
        return
    families = column_families(locale_folders(template.folders))
    try:
        rows = read_rows(path)
        loaded = load_samples(
            rows,
            template.front.inputs,
            families,
            criteria=[c.name for c in template.criteria],
            readers=guides(template),
        )
    except DataError as error:
        for text in error.faults or (error.what,):
            match = re.match(r"(?:row|line) (\d+)[^:]*:\s*(.*)", text, re.DOTALL)
            line, told = (int(match[1]), match[2]) if match else (1, text)
            yield Fault(line, f"does not fit {subject.path.name}: {told}", path=path)
        return
    for sample in loaded.samples():
        line = sample.source.row or 1
        yield from (Fault(line, told, "warning", path=path) for told in _labels(template, sample))
        for criterion in template.criteria:
            try:
                template.renderer.render(sample, criterion)
            except TemplateError as error:
                yield Fault(line, f"cannot be rendered: {error.what}", path=path)
                break


def _labels(template: Template, sample: Sample) -> Iterator[str]:
    """Labels of an example that are no level."""
    given: dict[str, list[Any]] = defaultdict(list)
    for name, value in sample.labels.items():
        given[name] += list(value.values()) if isinstance(value, dict) else [value]
    for criterion in template.criteria:
        for value in given.get(criterion.name, ()):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            known = number and criterion.scale.low <= value <= criterion.scale.high
            words = (*criterion.scale.allowed, "not_applicable")
            if not known and str(value) not in words and value is not None:
                allowed = ", ".join(criterion.scale.allowed)
                yield f"the label {criterion.name} is {value!r}, not on the scale {allowed}"
