"""The templates that can be found, as plain rows: for `template list` and the docs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geval.errors import TemplateError
from geval.template import available, parse, shipped_folder


def catalogue(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """One row a template: name, locales, description, inputs, levels, criteria, from, error."""
    rows = []
    for name, locales in available(folders).items():
        path = locales.get("en") or next(iter(locales.values()))
        shipped = path.resolve().parent == shipped_folder().resolve()
        row: dict[str, Any] = {"name": name, "locales": sorted(locales), "error": None}
        row["from"] = "geval" if shipped else str(path.parent)
        try:
            found = parse(path.read_bytes(), path, folders)
        except TemplateError as error:
            rows.append({**row, "error": error.what.splitlines()[0]})
            continue
        row["description"] = found.front.description
        row["inputs"] = [n if s.required else f"{n}?" for n, s in found.front.inputs.items()]
        row["levels"] = sorted({", ".join(c.scale.allowed) for c in found.criteria})
        row["criteria"] = [c.name for c in found.criteria]
        rows.append(row)
    return rows


def markdown() -> str:
    """The shipped templates as a Markdown table."""
    lines = ["| template | inputs | criteria | levels | locales |", "|---|---|---|---|---|"]
    for row in catalogue([shipped_folder()]):
        parts = [", ".join(row[key]) for key in ("inputs", "criteria")]
        parts += [" or ".join(row["levels"]), ", ".join(row["locales"])]
        lines.append(f"| `{row['name']}` | {' | '.join(parts)} |")
    return "\n".join(lines) + "\n"
