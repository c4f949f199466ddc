"""`checks: [numbers]` through `geval score`: a warning beside the score that never changes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import TEMPLATE, recording, write_lines, write_template
from test_cli import geval

from geval.template import Template

CONTEXT = "다솜전자의 3분기 연결 매출은 1,234억원이다. 전년 동기는 1,100억원이었다."
ROWS = [
    {"id": "right", "question": "매출은?", "contexts": [CONTEXT], "answer": "0.1234조원이다."},
    {"id": "digit", "question": "매출은?", "contexts": [CONTEXT], "answer": "1,243억원, 또 1,243억원."},
    {"id": "unit", "question": "매출은?", "contexts": [CONTEXT], "answer": "1,234백만원이다."},
    {"id": "derived", "question": "증가율은?", "contexts": [CONTEXT], "answer": "12.2% 증가하였다."},
    {"id": "asked", "question": "4분기 매출은?", "contexts": [CONTEXT], "answer": "4분기 매출은 알 수 없다."},
]  # fmt: skip
CRITERIA = ("numeric_accuracy", "question_fit", "groundedness", "completeness")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    write_lines(tmp_path / "rows.jsonl", ROWS)
    recording(tmp_path, {(r["id"], c): {"5": 0.6, "4": 0.4} for r in ROWS for c in CRITERIA})  # type: ignore[misc]
    return tmp_path


def scored(work: Path, *more: str) -> tuple[list[dict[str, Any]], str, str]:
    done = geval(
        "score", "rows.jsonl", "--judge", "replay:replies.jsonl", "--reasons", "none", "--no-cache",
        "--out", "run", "--force-new", *more, cwd=work,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = (work / "run" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines], done.stdout, done.stderr


def test_a_figure_that_no_source_holds_is_told_on_the_overall_line(work: Path) -> None:
    records, _, err = scored(work, "-t", "finance_qa", "--locale", "ko")
    overall = {r["id"]: r for r in records if r["criterion"] == "overall"}
    assert {i: r["numbers_unmatched"] for i, r in overall.items()} == {
        "right": None,
        "digit": ["1,243억원"],
        "unit": ["1,234백만원"],
        "derived": None,
        "asked": None,
    }
    warned = {i for i, r in overall.items() if "numbers_unmatched" in r["warnings"]}
    assert warned == {"digit", "unit"}
    assert {r["score"] for r in overall.values()} == {overall["right"]["score"]}
    assert all(
        r["numbers_unmatched"] is None and not r["warnings"]
        for r in records
        if r["criterion"] != "overall"
    )
    assert "digit: numbers_unmatched: 1,243억원" in err
    assert "수치가 있는 행 2건 (numbers_unmatched)" in err
    assert "right: " not in err
    manifest = json.loads((work / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["summary"]["warnings"]["numbers_unmatched"] == 2


def test_the_check_changes_no_score_and_no_fingerprint(work: Path) -> None:
    with_check, *_ = scored(work, "-t", "finance_qa", "--locale", "ko")
    shipped = Template.load("finance_qa", "ko")
    assert shipped.path is not None
    text = shipped.path.read_text(encoding="utf-8")
    path = work / "finance_qa.ko.jinja"
    path.write_text(text.replace("checks: [numbers]\n", ""), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    without, _, err = scored(work, "-t", str(path))
    assert Template.load(path).fingerprint == shipped.fingerprint
    assert [r["score"] for r in without] == [r["score"] for r in with_check]
    assert all(r["numbers_unmatched"] is None for r in without)
    assert "numbers_unmatched" not in err


def test_an_unknown_check_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write_template(tmp_path, TEMPLATE.replace("cap:", "checks: [nubmers]\ncap:", 1))
    done = geval("template", "lint", str(path), cwd=tmp_path)
    assert done.returncode == 1
    assert "numbers" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_template_without_other_texts_to_look_in(tmp_path: Path) -> None:
    """Its question is the only source: no crash, and figures of the answer are told."""
    write_template(tmp_path, TEMPLATE.replace("cap:", "checks: [numbers]\ncap:", 1))
    write_lines(
        tmp_path / "rows.jsonl",
        [{"id": "a", "question": "How many in 2025?", "answer": "35 in 2025, 12%"}],
    )
    recording(tmp_path, {("a", "accuracy"): {"4": 0.6, "5": 0.4}, ("a", "style"): {"5": 1.0}})
    done = geval(
        "score", "rows.jsonl", "-t", "./fit.en.jinja", "--judge", "replay:replies.jsonl", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    overall = [json.loads(line) for line in done.stdout.splitlines()][-1]
    assert overall["numbers_unmatched"] == ["35", "12%"]


@pytest.mark.parametrize("locale", ["ko", "en"])
def test_shipped_examples(locale: str) -> None:
    """Right answers state no foreign figure; kinds number, percent, sign and made up do."""
    from geval.checks import checked
    from geval.sample import Sample

    template = Template.load("finance_qa", locale)
    path = template.examples()
    assert path is not None
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        fields = {name: row.get(name) for name in template.front.inputs}
        found = checked(template, Sample(row["id"], fields))
        if row["label"]["overall_right"]:
            assert found == [], row["id"]
        elif row["kind"] in ("number", "unit", "unanswerable", "percent_point", "direction"):
            assert found, row["id"]
