"""Writing templates: new, diff, list, steps, import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import geval

from geval.authoring import Plan, new
from geval.errors import TemplateError, UsageError
from geval.lint import lint_file
from geval.template import Template
from geval.template_diff import diff


@pytest.mark.parametrize("locale", ["en", "ko"])
@pytest.mark.parametrize("levels", ["1-5", "yes-no", "0,1,2", "나쁨,보통,좋음"])
def test_a_starter_lints_clean_and_renders_its_examples(
    tmp_path: Path, locale: str, levels: str
) -> None:
    plan = Plan("mine", locale, "response", ["question", "contexts", "history"], levels)
    path, examples = new(plan, tmp_path / "templates")
    assert [f for f in lint_file(path, hints=True) if f.severity != "info"] == []
    template = Template.load(path)
    assert template.judged == "response"
    row = json.loads(examples.read_text(encoding="utf-8").splitlines()[0])
    assert row["response"] in template.render(row)[0]["content"]


@pytest.mark.parametrize(("source", "locale"), [("en", "ko"), ("ko", "en")])
def test_a_skeleton_has_the_source_in_comments_and_the_same_shape(
    tmp_path: Path, source: str, locale: str
) -> None:
    original = Template.load("finance_qa", source)
    path, _ = new(Plan("finance_qa", locale), tmp_path, original)
    assert [f.message for f in lint_file(path, hints=True)] == []
    text = path.read_text(encoding="utf-8")
    for criterion in original.criteria:
        (line,) = [n for n in text.split("\n") if " ".join(criterion.text.split()) in n]
        assert line.lstrip().startswith("#")
    made = Template.load(path)
    for one, other in zip(made.criteria, original.criteria, strict=True):
        assert (one.name, one.weight, one.scale.values) == (
            other.name,
            other.weight,
            other.scale.values,
        )
    assert made.front.cap == original.front.cap
    assert made.front.inputs.keys() == original.front.inputs.keys()


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "mine.ko.examples.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(TemplateError, match="stays as it is"):
        new(Plan("mine", "ko"), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.ko.examples.jsonl"]
    for plan in (
        Plan("my name"),
        Plan("x", levels="5"),
        Plan("x", inputs=["a b"]),
        Plan("x", "xx"),
    ):
        with pytest.raises(UsageError):
            new(plan, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.ko.examples.jsonl"]


def test_new_from_the_command_line(tmp_path: Path) -> None:
    done = geval("template", "new", "mine", cwd=tmp_path, stdin="")
    assert done.returncode == 0, done.stderr
    assert "defaults" in done.stderr
    assert (tmp_path / "templates" / "mine.en.jinja").is_file()
    again = geval("template", "new", "mine", cwd=tmp_path, stdin="")
    assert (again.returncode, "stays as it is" in again.stderr) == (2, True)
    far = geval("template", "new", "x", "--from", "finance", cwd=tmp_path)
    assert (far.returncode, "finance_qa" in far.stderr) == (2, True)
    listed = geval("template", "list", "--json", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert rows["mine"]["inputs"] == ["question", "answer"]
    assert rows["finance_qa"]["from"] == "geval"
    assert geval("template", "lint", cwd=tmp_path).returncode == 0


def test_diff_tells_paths_body_and_fingerprints(tmp_path: Path) -> None:
    path, _ = new(Plan("mine"), tmp_path)
    text = path.read_text(encoding="utf-8")
    other = tmp_path / "other.en.jinja"
    other.write_text(text.replace("version: 1", "version: 2"), encoding="utf-8")
    one, two = Template.load(path), Template.load(other)
    assert diff(one, one) == []
    assert diff(one, two) == ["+ version: 2"]
    other.write_text(
        text.replace("answers about half", "half").replace("question') }}", "question') }}!"),
        encoding="utf-8",
    )
    lines = diff(one, Template.load(other))
    assert "scale.levels.3.0: 'answers about half' -> 'half'" in lines
    assert any(line.startswith("+") and "!" in line for line in lines)
    done = geval("template", "diff", path, other, cwd=tmp_path)
    assert (done.returncode, "different fingerprints" in done.stderr) == (0, True)
    assert "\x1b" not in done.stdout
