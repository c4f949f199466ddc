"""docs/templates.md: generated parts are true, and its commands run."""

from __future__ import annotations

import re
from pathlib import Path

from test_cli import geval

from geval.authoring.reference import filled, reference
from geval.front import FrontMatter

PAGE = Path(__file__).parent.parent / "docs" / "templates.md"


def test_generated_parts_are_what_the_code_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text) == text, "run python -m geval.authoring.reference docs/templates.md"
    assert "| `finance_qa` |" in text


def test_the_reference_has_every_key() -> None:
    told = reference()
    assert all(f"| `{key}` |" in told for key in FrontMatter.model_fields)


def test_the_commands_of_the_page_run_in_their_order(tmp_path: Path) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    commands = [line.split() for block in blocks for line in block.split("\n") if line.strip()]
    assert len(commands) >= 7
    for command in commands:
        assert command[0] == "geval"
        done = geval(*command[1:], cwd=tmp_path, stdin="")
        assert done.returncode == 0, (command, done.stderr)
