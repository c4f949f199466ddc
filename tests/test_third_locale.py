"""A language is one YAML file and template files: no code knows which there are."""

from __future__ import annotations

import json
from pathlib import Path

import openpyxl
import pytest
from helpers import ROWS, TEMPLATE, write_lines, write_template
from test_cli import geval

from geval.agreement.labels import Wanted, read_labels
from geval.authoring import draft
from geval.data.columns import clean
from geval.errors import TemplateError
from geval.job import prepare
from geval.lint.check import lint_file
from geval.locale import guess_locale, load_locale
from geval.reading.answer import parse_answer, reason_text
from geval.template import Template, search_path

SHIPPED = Path(__file__).parent.parent / "locales"
GREEK = "Η απάντηση συμφωνεί με τα έγγραφα."


def made_up(folder: Path, **changes: str) -> Path:
    """Locale `xx`, written in Greek letters, and a template in it."""
    text = (SHIPPED / "en.yaml").read_text(encoding="utf-8")
    text = (
        text[: text.index("\nreport:")]
        + "\nreport:\n  mean: μέσος\n  caution_language: '{n} λόγοι σε άλλη γλώσσα'\n"
    )
    text = text.replace("code: en", "code: xx").replace("script: Latin", "script: Greek")
    text = text.replace("Question to decide:", "Ερώτηση:")
    for old, new in changes.items():
        assert f"\n  {old}:" in text
        text = text.replace(f"\n  {old}:", f"\n  {new}:")
    (folder / "locales").mkdir()
    (folder / "locales" / "xx.yaml").write_text(text, encoding="utf-8")
    (folder / "templates").mkdir()
    template = TEMPLATE.replace("locale: en", "locale: xx")
    return write_template(folder / "templates", template, "fit.xx.jinja")


def test_lint_render_and_score(tmp_path: Path) -> None:
    path = made_up(tmp_path)
    write_lines(tmp_path / "rows.jsonl", ROWS[:1])
    write_lines(
        tmp_path / "replies.jsonl",
        [
            {"id": "a", "criterion": "accuracy", "alternatives": {"4": 0.6, "5": 0.4}, "text": f"4\n{GREEK}"},
            {"id": "a", "criterion": "style", "alternatives": {"4": 0.9, "5": 0.1}, "text": "4\nIt is well written."},
        ],
    )  # fmt: skip
    lint = geval("template", "lint", path, cwd=tmp_path)
    assert lint.returncode == 0, lint.stdout + lint.stderr
    render = geval("template", "render", "fit", "rows.jsonl", cwd=tmp_path)
    assert "Ερώτηση: Is the answer right?" in render.stdout, render.stderr
    for name in ("fit", path):
        done = geval(
            "score", "rows.jsonl", "-t", name, "-j", "replay:replies.jsonl", "--reasons", "all",
            "--force-new", "-o", "run", "--no-cache", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "μέσος 0." in done.stdout
        assert "judge replay" in done.stdout  # a word that the file does not have
        assert "1 λόγοι σε άλλη γλώσσα" in done.stderr
    lines = (tmp_path / "run" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    found = {r["criterion"]: r for r in map(json.loads, lines)}
    assert found["accuracy"]["score"] == pytest.approx(4.4)
    assert found["accuracy"]["warnings"] == []
    assert found["style"]["warnings"] == ["reason_language"]


def test_missing_wording_is_listed(tmp_path: Path) -> None:
    path = made_up(tmp_path, only_number="again", intro="introduction")
    with pytest.raises(TemplateError, match=r"frame\.intro, frame\.only_number"):
        Template.load(path)


def test_an_unknown_script_names_the_nearest(tmp_path: Path) -> None:
    made_up(tmp_path)
    file = tmp_path / "locales" / "xx.yaml"
    file.write_text(file.read_text("utf-8").replace("script: Greek", "script: Grek"), "utf-8")
    with pytest.raises(TemplateError, match="Greek") as caught:
        load_locale("xx", (tmp_path / "locales",))
    assert "line 5" in str(caught.value)


def test_its_data_is_told_by_its_script(tmp_path: Path) -> None:
    made_up(tmp_path)
    folders = (tmp_path / "locales",)
    assert guess_locale([GREEK, "KRW"], ["en", "ko", "xx"], folders) == "xx"
    assert guess_locale(["매출 1,234억원 KRW"], ["en", "ko", "xx"], folders) == "ko"
    assert (
        guess_locale(["Revenue of 다솜 in the third quarter"], ["en", "ko", "xx"], folders) == "en"
    )
    assert guess_locale(["123"], ["en", "ko", "xx"], folders) is None
    assert guess_locale(["Revenue"], ["ko", "xx"], folders) is None


def test_notes_of_a_korean_run_are_korean(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "none.jsonl", [{"id": "1", "criterion": "x", "alternatives": {"4": 0.9}}]
    )
    done = geval("score", "-t", "finance_qa", "-l", "ko", "-j", "replay:none.jsonl", cwd=tmp_path)
    assert "예시 자료(finance_qa.ko.examples.jsonl)를 채점한다" in done.stderr
    assert "열 대응: question <- " in done.stderr
    assert "채점 안 됨: rejected" in done.stderr
    assert "행이 채점되지 않음" in done.stderr


WORDS = """
reading:
  score_keys: [βαθμός]
  reason_keys: [λόγος]
  answer_words: [Τελικός βαθμός]
  tails: [μόρια]
  points: [μόρια]
  counters: [έτη]
data:
  footers: [Σύνολο]
  required_marks: [απαραίτητο]
  ask: {στοιχεία: [contexts, reason]}
  units: [μόρια]
  missing: [άγνωστο]
  top: [άριστα]
lint:
  scores: ['(\\d+) μόρια']
authoring:
  criterion: Είναι σωστή η απάντηση;
"""


def with_words(folder: Path) -> Template:
    """The made-up locale with words of its own for reading, data, lint and new templates."""
    path = made_up(folder)
    file = folder / "locales" / "xx.yaml"
    text = file.read_text("utf-8")
    text = text[: text.index("\nreading:")] + WORDS + text[text.index("\nreport:") :]
    text = text.replace("  answer: [answer,", "  answer: [απάντηση, answer,")
    file.write_text(text, "utf-8")
    return Template.load(path)


def test_a_reply_is_read_by_its_words(tmp_path: Path) -> None:
    template = with_words(tmp_path)
    scale = template.criteria[0].scale
    assert scale.parse("4ΜΌΡΙΑ") == 3
    assert scale.parse("4έτη") is None
    assert scale.parse("4점") == 3  # words of the other locales are known as well
    assert parse_answer('{"βαθμός": 4, "λόγος": "x"}', scale, "score_first") == 3
    assert reason_text('{"βαθμός": 4, "λόγος": "ναι"}', "score_first", (), scale.wording) == "ναι"
    assert parse_answer("Σωστό.\nΤελικός βαθμός: 2", scale, "reason_first") == 1
    shipped = Template.load("finance_qa").criteria[0].scale
    assert shipped.parse("4μόρια") is None


def test_tables_and_labels_are_read_by_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_words(tmp_path)
    monkeypatch.chdir(tmp_path)
    sheet = [["question", "απάντηση (απαραίτητο)"], ["a", "b"], ["Σύνολο", None]]
    book = openpyxl.Workbook()
    for row in sheet:
        book.active.append(row)
    book.save(tmp_path / "rows.xlsx")
    assert clean("απάντηση (απαραίτητο)") == "απάντηση"
    job = prepare("rows.xlsx", template="fit", locale="xx")
    assert job.data.n == 1
    assert job.data.mapping.fields["answer"] == ("απάντηση",)
    assert any("totals" in note for note in job.data.notes)
    cells = [{"id": 1, "accuracy": "4 μόρια"}, {"id": 2, "accuracy": "άριστα"}, {"id": 3, "accuracy": "άγνωστο"}]  # fmt: skip
    labels = read_labels(cells, Wanted({"accuracy": (1, 2, 3, 4, 5)}))
    assert {k: list(v.values()) for k, v in labels.values["accuracy"].items()} == {
        "1": [4.0], "2": [5.0],
    }  # fmt: skip
    assert labels.missing == 1


def test_a_new_template_and_lint_speak_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_words(tmp_path)
    monkeypatch.chdir(tmp_path)
    path, _ = draft.new(draft.Plan("fresh", locale="xx"), tmp_path / "templates")
    text = path.read_text("utf-8")
    assert 'quality: "Είναι σωστή η απάντηση;"' in text
    assert "The lowest level first" in text  # what its file does not say is English
    path.write_text(text.replace("σωστή η απάντηση", "9 μόρια σωστά"), "utf-8")
    told = [fault.message for fault in lint_file(path, search_path())]
    assert any("the score 9, outside its scale 1 to 5" in one for one in told)


def test_a_pattern_that_does_not_compile_is_told_with_its_line(tmp_path: Path) -> None:
    with_words(tmp_path)
    file = tmp_path / "locales" / "xx.yaml"
    file.write_text(file.read_text("utf-8").replace("'(\\d+) μόρια'", "'(\\d+ μόρια'"), "utf-8")
    with pytest.raises(TemplateError, match="no regular expression") as caught:
        load_locale("xx", (tmp_path / "locales",))
    assert "line " in str(caught.value)
