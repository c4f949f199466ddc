"""Lint: every fault of a template at once, with file and line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from geval.errors import TemplateError
from geval.template import SUFFIX, Template, examine, search_path, split
from geval.yaml import Fault, decode, load_yaml

_NUMBER_OUTSIDE = re.compile(r"(?<![\w.,])(\d{1,2})\s*점(?!\s*만점)|\bscore of (\d{1,2})\b")


def lint_paths(paths: Iterable[Path]) -> tuple[list[Path], list[tuple[Path, Fault]]]:
    """Files that were checked and what is wrong with them; folders are searched for templates.

    Raises TemplateError for a path that does not exist.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(p for p in path.rglob(f"*.*{SUFFIX}") if not p.name.startswith("_"))
        elif path.is_file():
            files.append(path)
        else:
            raise TemplateError(f"there is no template file {str(path)!r}")
    found = [(path, fault) for path in files for fault in lint_file(path)]
    return files, found


def lint_file(path: Path) -> list[Fault]:
    """What is wrong with one template file, by line."""
    content = path.read_bytes()
    template, faults = examine(content, path, search_path())
    if template is None or any(fault.severity == "error" for fault in faults):
        return faults
    head, _, _ = split(decode(content, str(path)))
    tree = load_yaml(head or "", str(path), first_line=2)
    faults = [*faults, *_named_like(template, path)]
    for criterion in template.criteria:
        where = tree.line(["criteria", criterion.name])
        for number in _numbers(criterion.text, criterion.steps):
            if not criterion.scale.low <= number <= criterion.scale.high:
                faults.append(
                    Fault(
                        where,
                        f"criterion {criterion.name!r} speaks of the score {number:g}, outside its "
                        f"scale {criterion.scale.low:g} to {criterion.scale.high:g}",
                        "warning",
                    )
                )
    faults += _siblings(template, path)
    return sorted(faults, key=lambda fault: fault.line)


def _named_like(template: Template, path: Path) -> list[Fault]:
    """A file is found by its name, so name and front matter must agree."""
    expected = f"{template.name}.{template.front.locale}{SUFFIX}"
    if path.name == expected:
        return []
    return [
        Fault(1, f"the file is called {path.name}, its front matter says {expected}", "warning")
    ]


def _numbers(text: str, steps: Sequence[str]) -> list[float]:
    matches = (m for part in (text, *steps) for m in _NUMBER_OUTSIDE.finditer(part))
    return [float(m[1] or m[2]) for m in matches]


def _siblings(template: Template, path: Path) -> list[Fault]:
    """Locales of one template must agree in all but their words."""
    faults = []
    for other_path in sorted(path.parent.glob(f"{template.name}.*{SUFFIX}")):
        if other_path == path:
            continue
        other, _ = examine(other_path.read_bytes(), other_path, search_path())
        if other is None:
            continue
        for what in disagreements(template, other):
            faults.append(Fault(1, f"differs from {other_path.name} in its {what}", "warning"))
    return faults


def disagreements(a: Template, b: Template) -> list[str]:
    """What two locales of a template should share and do not."""

    def shape(t: Template) -> dict[str, object]:
        return {
            "inputs": {n: (s.type, s.required) for n, s in t.front.inputs.items()},
            "criteria": [c.name for c in t.criteria],
            "weights": [c.weight for c in t.criteria],
            "levels": [c.scale.values for c in t.criteria],
            "not-applicable levels": [bool(c.scale.not_applicable) for c in t.criteria],
            "units": t.front.units,
            "unit aggregate": (t.front.aggregate_name, t.front.aggregate_parameters),
            "output": t.front.output,
            "caps": t.front.cap,
        }

    one, two = shape(a), shape(b)
    return [name for name in one if one[name] != two[name]]
