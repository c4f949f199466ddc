"""The gate of a run: exit codes, what is not scored never passes, and what CI servers read."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import FULL, ROWS, recording, write_lines, write_template
from test_cli import geval
from typer.testing import CliRunner

from geval import score
from geval.cli import app
from geval.errors import ConfigError, Exit, RunError
from geval.locale import report_words
from geval.runs.gate import Gate, Verdict, judge_run, line
from geval.runs.junit import write_junit
from geval.runs.markdown import markdown, safe
from geval.runs.run import Run

WORD = report_words("en")
HOSTILE = "x\x00\x1b[31m\ud800\ufffe]]> <b>&\"'\n| `c` [l](http://e.example) @all \u202e"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "templates").mkdir()
    write_template(tmp_path / "templates")
    write_lines(tmp_path / "rows.jsonl", ROWS)
    return tmp_path


def scored(work: Path, without: str | None = None, answers: Mapping[Any, Any] = FULL) -> Run:
    replies = recording(work, {key: p for key, p in answers.items() if key[0] != without})
    return score(
        str(work / "rows.jsonl"),
        template=str(work / "templates" / "fit.en.jinja"),
        judge=replies,
        out=work / "run",
        cache=False,
        force_new=True,
    )


@pytest.mark.parametrize(
    ("fail_under", "on", "code"),
    [
        (0.3, "mean", Exit.OK),
        (0.9, "mean", Exit.GATE),
        (0.2, "row", Exit.OK),
        (0.3, "row", Exit.GATE),  # row b is capped at 0.25
        (0.3, "criterion", Exit.OK),
        (0.7, "criterion", Exit.GATE),
    ],
)
def test_each_kind_of_gate(work: Path, fail_under: float, on: str, code: Exit) -> None:
    verdict = judge_run(scored(work), Gate(fail_under, on))
    assert verdict.code == code
    assert bool(verdict.failed) == (code == Exit.GATE)
    if (fail_under, on) == (0.3, "row"):
        assert [check.name for check in verdict.failed] == ["b"]
        assert "1 of 3 under: b 0." in line(verdict, WORD)


@pytest.mark.parametrize("bad", [float("nan"), -0.1, 1.5])
def test_a_limit_that_is_no_share_is_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="--fail-under"):
        Gate(bad)
    with pytest.raises(ConfigError, match="--max-unscored"):
        Gate(0.5, max_unscored=bad)
    with pytest.raises(ConfigError, match="mean, row, criterion"):
        Gate(0.5, "rows")


def test_an_unscored_row_never_passes(work: Path) -> None:
    run = scored(work, without="c")
    strict = judge_run(run, Gate(0.0))
    assert strict.code == Exit.UNSCORED
    assert "1 of 3 unscored" in line(strict, WORD)
    assert judge_run(run, Gate(0.0, max_unscored=0.5)).code == Exit.OK
    row = judge_run(run, Gate(0.0, "row", 0.5))
    assert row.code == Exit.GATE
    assert [(check.name, check.value) for check in row.failed] == [("c", None)]


def test_an_incomplete_run_is_refused(work: Path) -> None:
    run = scored(work)
    run.manifest["status"] = "running"
    with pytest.raises(RunError, match="not complete"):
        judge_run(run, Gate(0.0))


def test_the_command_prints_one_line_and_its_exit_code(work: Path) -> None:
    scored(work)
    done = CliRunner().invoke(app, ["gate", str(work / "run"), "--fail-under", "0.9"])
    assert done.exit_code == Exit.GATE
    assert len(done.stdout.splitlines()) == 1
    assert "gate failed: mean 0." in done.stdout


# --- the same gate at the end of `geval score`


def score_with(work: Path, *options: object) -> Any:
    recording(work, FULL)
    return geval(
        "score", "rows.jsonl", "-t", "fit", "-j", "replay:replies.jsonl", "-o", "run", "--no-cache",
        *options, cwd=work,
    )  # fmt: skip


@pytest.mark.fault("R1")
@pytest.mark.parametrize("fail_under", ["0.3", "0.9"])
def test_score_and_gate_end_with_one_line_and_one_code(work: Path, fail_under: str) -> None:
    done = score_with(work, "--fail-under", fail_under)
    after = geval("gate", "run", "--fail-under", fail_under, cwd=work)
    assert done.returncode == after.returncode == (0 if fail_under == "0.3" else 1)
    assert after.stdout.strip() in done.stderr
    assert "gate" not in done.stdout  # the table is the result, what is said of it is not


@pytest.mark.fault("R1")
def test_with_a_gate_two_rows_in_a_hundred_may_be_unscored_without_one_half(work: Path) -> None:
    recording(work, {k: v for k, v in FULL.items() if k[0] != "c"})
    command = ["score", "rows.jsonl", "-t", "fit", "-j", "replay:replies.jsonl", "-o", "run"]
    assert geval(*command, cwd=work).returncode == 0
    gated = geval(*command, "--fail-under", "0.1", cwd=work)
    assert gated.returncode == 3
    assert "1 of 3 unscored" in gated.stderr
    assert geval(*command, "--fail-under", "0.1", "--max-unscored", "0.5", cwd=work).returncode == 0


@pytest.mark.fault("R10")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--fail-under", "4"), "level 4 of 1 to 5 is 0.75"),
        (("--fail-under", "nan"), "--fail-under nan"),
        (("--fail-under", "0.5", "--on", "rows"), "Did you mean 'row'?"),
        (("--junit", "rows.jsonl/x.xml"), "--junit"),
        (("--summary", "."), "names a folder"),
        (("--github-summary",), "GITHUB_STEP_SUMMARY"),
    ],
)
def test_what_cannot_be_gated_or_written_is_found_before_the_first_call(
    work: Path, options: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    done = score_with(work, *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("geval:") == 1
    assert not (work / "run").exists()


def test_a_template_whose_low_scores_are_good_is_refused_before_the_first_call(
    tmp_path: Path,
) -> None:
    done = geval(
        "score", "-t", "noise_sensitivity", "--fail-under", "0.5", "-j", "replay:none.jsonl",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert "low scores of this template are the good ones" in done.stderr


def test_a_korean_run_is_judged_in_korean(work: Path) -> None:
    text = (work / "templates" / "fit.en.jinja").read_text(encoding="utf-8")
    levels = "{1: 틀림, 2: 대체로 틀림, 3: 절반, 4: 대체로 맞음, 5: 맞음}"
    text = re.sub(r"levels: {.*}", f"levels: {levels}", text.replace("locale: en", "locale: ko"))
    (work / "templates" / "fit.ko.jinja").write_text(text, encoding="utf-8")
    done = score_with(work, "--locale", "ko", "--fail-under", "0.9", "--summary", "s.md")
    assert done.returncode == 1, done.stderr
    assert "기준 미달: 평균 0." in done.stderr
    assert "평가 항목" in (work / "s.md").read_text(encoding="utf-8")


# --- JUnit XML

ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
}
"""What the common JUnit schema allows of what is written; all but `type` is always there."""
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped"},
}


def junit(run: Run, gate: Gate, path: Path) -> tuple[Verdict, ElementTree.Element]:
    """The file, parsed, after its shape and its own counts were checked."""
    verdict = judge_run(run, gate)
    write_junit(run, verdict, path, WORD)
    root = ElementTree.parse(path).getroot()
    assert root.tag == "testsuites"
    for element in root.iter():
        allowed = ATTRIBUTES[element.tag]
        assert set(element.attrib) <= allowed
        assert set(element.attrib) | {"type"} >= allowed
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        if element.tag == "testcase":
            assert len(element) <= 1
    for suite in (root, *root):
        cases = list(suite.iter("testcase"))
        assert int(suite.attrib["tests"]) == len(cases)
        for counter, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[counter]) == sum(c.find(tag) is not None for c in cases)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", root[0].attrib["timestamp"])
    bad = root.find(".//failure") is not None or root.find(".//error") is not None
    assert bad == (verdict.code != Exit.OK)  # the file tells what the exit code tells
    return verdict, root


@pytest.mark.parametrize("without", [None, "c"])
@pytest.mark.parametrize("fail_under", [None, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("max_unscored", [0.02, 0.5])
@pytest.mark.parametrize("on", ["mean", "row", "criterion"])
def test_junit_has_its_shape_and_agrees_with_the_exit_code(
    work: Path, without: str | None, fail_under: float | None, max_unscored: float, on: str
) -> None:
    word = "nothing to judge"
    answers = {**FULL, ("a", "style"): {"5": 0.5, "4": 0.5}, ("b", "style"): {word: 1.0}}
    run = scored(work, without, answers)
    junit(run, Gate(fail_under, on, max_unscored), work / "out.xml")


def test_junit_has_a_case_per_row_or_row_and_criterion_with_the_reason(work: Path) -> None:
    run = scored(work, without="c")
    _, by_row = junit(run, Gate(0.3, "row", 0.5), work / "row.xml")
    cases = {c.attrib["name"]: c for c in by_row.iter("testcase")}
    assert set(cases) == {"a", "b", "c", "unscored"}
    failure = cases["b"].find("failure")
    assert failure is not None
    assert failure.attrib["message"] == "0.2500 is under 0.3"
    assert "Because." in (failure.text or "")
    error = cases["c"].find("error")
    assert error is not None
    assert "accuracy" in error.attrib["message"]
    _, by_criterion = junit(run, Gate(0.7, "criterion", 0.5), work / "criterion.xml")
    names = [(c.attrib["classname"], c.attrib["name"]) for c in by_criterion.iter("testcase")]
    assert names.count(("geval.fit.en.style", "b")) == 1
    assert len(names) == 2 + 1 + 3 * 2
    assert [c.attrib["name"] for c in by_criterion.iter("testcase") if c.find("failure") is not None] == [
        "mean: accuracy"
    ]  # fmt: skip


def hostile(work: Path) -> Run:
    """A run whose ids and reasons hold what XML and Markdown must not take as theirs."""
    run = scored(work)
    path = run.folder / "results.jsonl"
    records = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    for record in records:
        record["id"] += HOSTILE
        record["reason"] = record["reason"] and HOSTILE
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return Run(run.folder)


def test_junit_can_be_parsed_whatever_the_texts_hold(work: Path) -> None:
    _, root = junit(hostile(work), Gate(0.9, "row"), work / "out.xml")
    case = next(c for c in root.iter("testcase") if c.attrib["name"].startswith("a"))
    assert "]]> <b>&\"'" in case.attrib["name"]
    failure = case.find("failure")
    assert failure is not None
    assert "[l](http://e.example) @all" in (failure.text or "")
    assert "\x1b" not in (work / "out.xml").read_text(encoding="utf-8")


def test_a_summary_shows_texts_of_the_data_as_text(work: Path) -> None:
    run = hostile(work)
    text = markdown(run, judge_run(run, Gate(0.9, "row")), WORD)
    for forbidden in ("<b>", "](http", "@all", "`c`", "\x1b", "\u202e", "http://"):
        assert forbidden not in text
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    for table in tables:  # no cell of the data adds a column or a line
        assert len({row.count("|") for row in table.strip().splitlines()}) == 1
    assert safe("a|b\n# c") == "a&#124;b &#35; c"


def test_the_page_of_a_job_is_appended_to(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = work / "page.md"
    page.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    scored(work)
    arguments = ["gate", str(work / "run"), "--fail-under", "0.9"]
    CliRunner().invoke(app, arguments)
    assert page.read_text(encoding="utf-8") == "before\n"  # only when asked
    CliRunner().invoke(app, [*arguments, "--github-summary"])
    told = page.read_text(encoding="utf-8")
    assert told.startswith("before\n### ❌ geval: fit\n")
    assert "gate failed" in told
