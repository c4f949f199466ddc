"""What is installed and imported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import geval

ROOT = Path(__file__).parents[1]
HEAVY = (
    "openai",
    "anthropic",
    "dspy",
    "optuna",
    "litellm",
    "xllamacpp",
    "pandas",
    "numpy",
    "aiohttp",
)


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import geval",
        "import geval.cli",
        "from geval.cli import app\n"
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()): app(['--help'], standalone_mode=False)",
        "import geval; geval.score; geval.Template; geval.Run",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code: str) -> None:
    assert not modules_after(code) & set(HEAVY)


def test_import_geval_imports_no_submodule_but_itself() -> None:
    loaded = {m for m in modules_after("import geval") if m.split(".")[0] == "geval"}
    assert loaded == {"geval"}


def test_public_names_are_sorted_and_exist() -> None:
    assert geval.__all__ == sorted(geval.__all__)
    for name in geval.__all__:
        assert getattr(geval, name) is not None
    with pytest.raises(AttributeError):
        geval.scores  # noqa: B018


def test_no_public_function_has_the_name_of_a_submodule() -> None:
    modules = {p.stem for p in (ROOT / "geval").iterdir()}
    assert not modules & {n for n in geval.__all__ if callable(getattr(geval, n))}


def test_every_folder_with_code_is_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    folders = {
        ".".join(p.parent.relative_to(ROOT).parts)
        for p in (ROOT / "geval").rglob("__init__.py")
        if "optimize" not in p.relative_to(ROOT).parts
    } | {"geval.optimize", "geval.templates", "geval.locales"}
    assert sorted(listed) == listed
    assert set(listed) == folders


@pytest.mark.fault("A15")
@pytest.mark.fault("T10")
def test_the_projects_texts_are_utf8_and_readable() -> None:
    for folder in ("geval", "templates", "locales", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".jinja", ".jsonl", ".yaml"):
                text = path.read_text(encoding="utf-8")
                if path.suffix != ".py":
                    assert "\\u" not in text, path
