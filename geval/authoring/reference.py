"""The front matter reference as Markdown, from the pydantic models.

`python -m geval.authoring.reference docs/templates.md` writes it, and the catalogue of the shipped
templates, between their marks in the file; a test keeps both true.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from geval.authoring.catalogue import markdown
from geval.front import FrontMatter

FIRST = "FrontMatter"


def reference() -> str:
    """A table of keys for each part of the front matter, the whole file first."""
    schema = FrontMatter.model_json_schema()
    parts = {FIRST: schema, **schema.get("$defs", {})}
    return "\n".join(_part(name, part) for name, part in parts.items())


def _part(name: str, part: dict[str, Any]) -> str:
    title = "The file" if name == FIRST else f"`{name.removesuffix('Spec').lower()}`"
    said = " ".join(str(part.get("description", "")).split())
    lines = [f"### {title}", "", said, "", "| key | holds | default |", "|---|---|---|"]
    needed = set(part.get("required", ()))
    for key, spec in part.get("properties", {}).items():
        default = "required" if key in needed else _value(spec.get("default"))
        lines.append(f"| `{key}` | {_kind(spec)} | {default} |")
    return "\n".join([*lines, ""])


def _value(value: Any) -> str:
    return "" if value in (None, "", [], {}) else f"`{value}`".replace("|", "\\|")


def _kind(spec: dict[str, Any]) -> str:
    if "$ref" in spec:
        return f"`{spec['$ref'].rpartition('/')[2].removesuffix('Spec').lower()}`"
    if "enum" in spec:
        return ", ".join(f"`{v}`" for v in spec["enum"])
    if "const" in spec:
        return f"`{spec['const']}`"
    if "anyOf" in spec:
        return " or ".join(_kind(one) for one in spec["anyOf"] if one.get("type") != "null")
    kind = spec.get("type")
    if kind == "array":
        return f"list of {_kind(spec.get('items') or {})}"
    if kind == "object":
        inner = spec.get("additionalProperties")
        return f"name: {_kind(inner)}" if isinstance(inner, dict) and inner else "mapping"
    words = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true, false",
    }
    return words.get(str(kind), "anything")


def filled(text: str) -> str:
    """`text` with both generated parts renewed between their marks."""
    for mark, content in (("reference", reference()), ("catalogue", markdown())):
        pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
        text = pattern.sub(lambda m, new=content: f"{m[1]}{new}{m[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
