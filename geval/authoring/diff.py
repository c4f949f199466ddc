"""What changed between two templates: front matter by path, body line by line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from geval.template import Template


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings and lists as (dotted path, value)."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and value:
        for index, inner in enumerate(value):
            yield from flat(inner, f"{path}[{index}]")
    else:
        yield path, value


def diff(a: Template, b: Template) -> list[str]:
    """Lines: `path: old -> new`, `+ path: new`, `- path: old`, the body as a unified diff.

    Two templates that are equal give no line. What is a default on one side and written out on
    the other is no change.
    """
    one = dict(flat(a.front.model_dump(mode="json", exclude_defaults=True)))
    two = dict(flat(b.front.model_dump(mode="json", exclude_defaults=True)))
    lines = []
    for path in dict.fromkeys([*one, *two]):
        if path not in two:
            lines.append(f"- {path}: {one[path]!r}")
        elif path not in one:
            lines.append(f"+ {path}: {two[path]!r}")
        elif one[path] != two[path]:
            lines.append(f"{path}: {one[path]!r} -> {two[path]!r}")
    old, new = (t.body.strip("\n").split("\n") for t in (a, b))
    names = [str(t.path or t.name) for t in (a, b)]
    return [*lines, *difflib.unified_diff(old, new, names[0], names[1], lineterm="")]
