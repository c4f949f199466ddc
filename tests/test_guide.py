"""Criteria and anchors that come with the data or the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import write_lines, write_template
from typer.testing import CliRunner

import geval
from geval.cli import app
from geval.errors import DataError, GevalError, TemplateError, UsageError
from geval.job import prepare
from geval.sample import Sample
from geval.template import Template

HEAD = """---
name: own
locale: en
inputs:
  answer: {type: text}
  guide: {type: text}
judged: answer
criteria:
  own: {CRITERION}
output: {order: score_first, reason: false}
---
{% extends "_geval.jinja" %}
{% block sample %}
Answer: {{ answer }}
{% endblock %}
"""
ASPECT = HEAD.replace("{CRITERION}", "{text_from: guide, scale: {labels: {no: 0, yes: 1}}}")
RUBRIC = HEAD.replace(
    "{CRITERION}",
    "{text: How good is it?, anchors_from: guide, scale: {levels: {1: bad, 2: , 3: good}}}",
)


def prompt(template: Template, **fields: Any) -> str:
    return template.render(Sample("a", fields))[0]["content"]


def test_a_criterion_of_the_row_is_printed_as_text_and_never_rendered(tmp_path: Path) -> None:
    template = Template.load(write_template(tmp_path, ASPECT, "own.en.jinja"))
    text = prompt(template, answer="A.", guide="Is {{ 7 * 7 }} {% raw %} shown?")
    assert "Is {{ 7 * 7 }} {% raw %} shown?" in text
    assert "49" not in text


def test_anchors_of_the_row_stand_in_place_of_the_template_s(tmp_path: Path) -> None:
    template = Template.load(write_template(tmp_path, RUBRIC, "own.en.jinja"))
    text = prompt(template, answer="A.", guide={"3": "names the {{ date }}", 1: "names nothing"})
    assert "3: names the {{ date }}" in text
    assert "1: names nothing" in text
    assert "good\n" not in text
    assert "1: bad" not in text
    words = prompt(template, answer="A.", guide="It names the date.")
    assert "It names the date." in words
    assert "1: bad" in words


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ({"1": "a", "9": "b"}, "'9', which is no level"),
        ({"1": "a", "score1_description": "b"}, "level 1 twice"),
        ({"1": "a", "3": " "}, "no text for level 3"),
        ({"3": "a"}, "fewer than two levels"),
        ('{"1": "a", ', "begins like JSON and is none"),
        ('["a", "b", "c"]', "is a list"),
        ("x" * 9000, "at most 8,000"),
        ({"1": "a [/0123abcd] b", "3": "c"}, "looks like a mark"),
        ("12", "describes no levels"),
        ("", "missing or blank"),
    ],
)
def test_a_bad_rubric_is_a_fault_with_row_and_column(tmp_path: Path, cell: Any, told: str) -> None:
    path = write_template(tmp_path, RUBRIC, "own.en.jinja")
    good = {"answer": "A.", "Guide": {"1점": "low", "score3_description": "high"}}
    rows = [good, {"answer": "A.", "Guide": cell}]
    with pytest.raises(DataError) as caught:
        prepare(rows, template=path)
    (fault,) = caught.value.faults
    assert told in fault
    assert "row 2" in fault
    assert "Guide" in fault
    assert prepare(rows, template=path, skip_invalid=True).data.n_invalid == 1


def test_one_criterion_for_all_rows_is_in_the_run_and_a_changed_one_is_no_continuation(
    tmp_path: Path,
) -> None:
    path = write_template(tmp_path, ASPECT, "own.en.jinja")
    records = [
        {"id": "1", "criterion": "own", "alternatives": {"yes": 0.75, "no": 0.25}, "text": "yes"}
    ]
    judge = f"replay:{write_lines(tmp_path / 'recorded.jsonl', records)}"

    def run(text: str) -> geval.Run:
        return geval.score(
            [{"answer": "A.", "guide": "of the row"}],
            template=path,
            judge=judge,
            parameters={"guide": text},
            out=tmp_path / "run",
        )

    first = run("Is it polite?")
    assert first.manifest["template"]["parameters"] == {"guide": "Is it polite?"}
    (score,) = [line["score"] for line in first.results() if line.get("criterion") == "own"]
    assert score == pytest.approx(0.75)
    with pytest.raises(GevalError, match="Is it short"):
        run("Is it short?")


def test_a_criterion_that_nobody_gave_is_one_error_with_the_way_out(tmp_path: Path) -> None:
    path = write_template(tmp_path, ASPECT, "own.en.jinja")
    with pytest.raises(DataError, match="no column for guide") as caught:
        prepare([{"answer": "A."}, {"answer": "B."}], template=path)
    assert "--param guide=TEXT" in str(caught.value.hint)
    for bad in ({"guide": " "}, {"guide": "x" * 9000}, {"gide": "x"}):
        with pytest.raises(UsageError):
            prepare([{"answer": "A."}], template=path, parameters=bad)


def test_the_command_takes_text_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_template(tmp_path, ASPECT, "own.en.jinja")
    data = write_lines(tmp_path / "rows.jsonl", [{"answer": "A."}])
    (tmp_path / "guide.txt").write_text("답변이 정중한가?", encoding="utf-8")
    run = CliRunner().invoke
    call = ["score", str(data), "-t", str(path), "--dry-run"]
    shown = run(app, [*call, "--param", f"guide=@{tmp_path / 'guide.txt'}"])
    assert shown.exit_code == 0
    assert "답변이 정중한가?" in shown.output
    assert "Is it 1 = 1?" in run(app, [*call, "--param", "guide=Is it 1 = 1?"]).output
    for wrong in ("guide", "guide=@nowhere.txt"):
        failed = run(app, [*call, "--param", wrong])
        assert isinstance(failed.exception, UsageError)
        assert "--param" in str(failed.exception)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("text_from: guide", "text_from: gide"), "unknown input 'gide'"),
        (("text_from: guide", "text_from: answer"), "not judged"),
        (("text_from: guide", "text: x, text_from: guide"), "either"),
        (("Answer: {{ answer }}", "{{ answer }} {{ guide }}"), "shown as the criterion"),
        (("labels: {no: 0, yes: 1}", "labels: {no: 0, yes: 1}, anchors: {ja: x}"), "'ja'"),
    ],
)
def test_a_template_that_misuses_such_an_input_is_refused(
    tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    with pytest.raises(TemplateError, match=told):
        Template.load(write_template(tmp_path, ASPECT.replace(*change), "own.en.jinja"))


def test_the_source_of_a_criterion_is_in_the_fingerprint(tmp_path: Path) -> None:
    one = Template.load(write_template(tmp_path, ASPECT, "own.en.jinja")).fingerprint
    other = ASPECT.replace("text_from: guide", "text: guide").replace(
        "Answer: {{ answer }}", "Answer: {{ answer }}{{ guide }}"
    )
    assert Template.load(write_template(tmp_path, other, "own.en.jinja")).fingerprint != one
