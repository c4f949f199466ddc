"""`geval show`: summaries, failures with the way out, one row with what it was judged by."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import FULL, ROWS, recording, write_lines, write_template
from test_runs import interrupted, make, make_korean
from typer.testing import CliRunner, Result

from geval import score
from geval.cli import app, ui
from geval.errors import RunError, UsageError
from geval.locale import report_words
from geval.runs import look
from geval.runs.run import Run

Shown = Callable[..., Result]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Run `geval show` in this process, on a wide console."""
    monkeypatch.setattr(ui.out, "_width", 200)
    monkeypatch.setattr(ui.err, "_width", 200)

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, ["show", *map(str, arguments)])

    return run


def test_the_summary_tells_what_a_run_came_to(tmp_path: Path, shown: Shown) -> None:
    run = make(tmp_path, without="c")
    done = shown(run.folder)
    assert done.exit_code == 0, done.exception
    summary = run.summary
    assert "2 of 3" in done.stdout
    assert "complete" in done.stdout
    assert f"{summary['overall']['mean']:.3f}" in done.stdout
    assert f"{summary['overall']['pessimistic_mean']:.3f}" in done.stdout
    for name in ("accuracy", "style"):
        assert f"{summary['criteria'][name]['mean']:.3f}" in done.stdout
    lowest = done.stdout[done.stdout.index("Lowest rows") :].splitlines()
    assert [line.split()[0] for line in lowest[2:4]] == ["b", "a"]
    assert "--errors" in done.stderr
    told = json.loads(shown(run.folder, "--json").stdout)
    assert told["summary"] == json.loads(json.dumps(summary))
    assert [row["id"] for row in told["lowest"]] == ["b", "a"]
    assert (told["status"], told["rows"]) == ("complete", 3)
    by_style = json.loads(shown(run.folder, "--json", "-c", "style").stdout)
    assert [row["id"] for row in by_style["lowest"]] == ["b", "a"]


def test_an_interrupted_and_an_empty_run_are_told_as_they_are(tmp_path: Path, shown: Shown) -> None:
    run = interrupted(make(tmp_path))
    done = shown(run.folder)
    assert done.exit_code == 0
    assert "interrupted" in done.stdout
    assert "1 of 3" in done.stdout
    (run.folder / "results.jsonl").unlink()
    empty = shown(run.folder)
    assert empty.exit_code == 0, empty.exception
    assert "0 of 3" in empty.stdout
    assert "every judgement" in shown(run.folder, "--errors").stdout
    with pytest.raises(RunError, match=r"no row 'a'(.|\n)*interrupted"):
        look.row(run, "a")


@pytest.mark.fault("R7")
def test_failures_stand_by_kind_with_cause_and_way_out(tmp_path: Path, shown: Shown) -> None:
    rows = [{"id": f"r{n}", "question": "Q?", "answer": f"A{n}."} for n in range(30)]
    answers: dict[tuple[str, str], dict[str, float]] = {}
    for n in range(30):
        answers[(f"r{n}", "style")] = {"4": 1.0}
        if n < 20:  # probability off the levels: each message has its own numbers
            answers[(f"r{n}", "accuracy")] = {"4": 0.3 + n / 100, "x": 0.6 - n / 100}
        elif n < 25:
            answers[(f"r{n}", "accuracy")] = {"5": 1.0}
    run = score(
        rows, template=write_template(tmp_path), judge=recording(tmp_path, answers),
        out=tmp_path / "run", reasons="none", cache=False,
    )  # fmt: skip
    groups = look.errors(run)
    assert [(g.kind, g.n) for g in groups] == [("low_coverage", 20), ("rejected", 5)]
    (cause,) = groups[0].causes.values()
    assert (cause.n, cause.ids, groups[0].others) == (20, ["r0", "r1", "r2"], 0)
    assert groups[0].criteria == {"accuracy": 20}
    done = shown(run.folder, "--errors")
    word = report_words("en")
    assert "20  low_coverage: too little of the probability" in done.stdout
    assert word["fix_low_coverage"] in done.stdout
    assert "r0, r1, r2, …" in done.stdout
    assert "criterion_unscored" not in done.stdout
    assert "every judgement" in shown(run.folder, "--errors", "-c", "style").stdout
    as_json = json.loads(shown(run.folder, "--errors", "--json").stdout)
    assert [(g["kind"], g["n"]) for g in as_json] == [("low_coverage", 20), ("rejected", 5)]


def test_every_kind_of_failure_has_words_and_a_way_out() -> None:
    import re

    kinds: set[str] = set()
    for path in (Path(__file__).parents[1] / "geval").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        kinds |= set(re.findall(r'Failure\(\s*"([a-z_]+)"', text))
    assert {"low_coverage", "refusal", "invalid_row", "unit_unscored"} <= kinds
    for code in ("en", "ko"):
        word = report_words(code)
        for kind in kinds - {"criterion_unscored"}:
            assert word[f"fail_{kind}"], kind
            assert word[f"fix_{kind}"], kind


@pytest.mark.fault("R8")
def test_a_row_is_shown_with_prompt_reply_and_distribution(tmp_path: Path, shown: Shown) -> None:
    run = make(tmp_path, reasons="all")
    done = shown(run.folder, "--row", "b")
    assert done.exit_code == 0, done.exception
    assert "A2." in done.stdout  # the rendered prompt
    assert "A1." not in done.stdout
    assert "Because." in done.stdout
    assert "1.50" in done.stdout
    assert done.stdout.count("50.0%") == 2
    assert "capped by accuracy" in done.stdout
    assert "style" in done.stdout
    one = shown(run.folder, "--row", "b", "--criterion", "style")
    assert "90.0%" in one.stdout
    assert "accuracy:" not in one.stdout
    told = json.loads(shown(run.folder, "--row", "b", "--json").stdout)
    assert [r["criterion"] for r in told["results"]] == ["accuracy", "style", "overall"]
    assert {c["id"] for c in told["calls"]} == {"b"}
    hashes = {r["prompt_sha256"] for r in told["results"]} - {None}
    assert hashes <= {c["prompt_sha256"] for c in told["calls"]}


def test_what_is_not_in_the_run_gets_the_nearest(tmp_path: Path) -> None:
    rows = [{**row, "id": f"question-{row['id']}"} for row in ROWS]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    answers = {(f"question-{i}", c): p for (i, c), p in FULL.items()}
    run = score(
        str(path), template=write_template(tmp_path), judge=recording(tmp_path, answers),
        out=tmp_path / "run", cache=False,
    )  # fmt: skip
    with pytest.raises(RunError, match="Did you mean 'question-a'"):
        look.row(run, "qestion-a")
    with pytest.raises(RunError, match="Row 2 of the data has the id 'question-b'"):
        look.row(run, "2")
    with pytest.raises(UsageError, match="Did you mean 'accuracy'"):
        look.row(run, "question-a", "acuracy")


HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r[bold red]x[/] [/nope] :smile: \x00"


def test_judged_text_cannot_act_on_the_terminal(tmp_path: Path, shown: Shown) -> None:
    rows = [{"id": f"a{HOSTILE}", "question": "Q?", "answer": f"A {HOSTILE} end"}]
    records = [
        {
            "id": rows[0]["id"],
            "criterion": c,
            "alternatives": {"4": 1.0},
            "text": f"4\nWhy: {HOSTILE}",
        }
        for c in ("accuracy", "style")
    ]
    spec = f"replay:{write_lines(tmp_path / 'recorded.jsonl', records)}"
    run = score(
        rows, template=write_template(tmp_path), judge=spec, out=tmp_path / "run",
        reasons="all", cache=False,
    )  # fmt: skip
    row_id = run.to_records()[0]["id"]
    for arguments in (
        (),
        ("--json",),
        ("--row", row_id),
        ("--row", row_id, "--json"),
        ("--errors",),
    ):
        done = shown(run.folder, *arguments)
        assert done.exit_code == 0, done.exception
        for char in "\x1b\x9b\x07\u202e\x00\r":
            assert char not in done.output, (arguments, char)
    assert "[bold red]x[/] [/nope] :smile:" in shown(run.folder, "--row", row_id).stdout


def test_korean_runs_speak_korean(tmp_path: Path, shown: Shown) -> None:
    run = make_korean(tmp_path, without="c", reasons="all")
    summary = shown(run.folder)
    for text in ("정확성", "문장", "완료", "3행 중 2행", "점수가 가장 낮은 행", "보수적 평균"):
        assert text in summary.stdout
    failed = shown(run.folder, "--errors")
    assert "심사 모델이 요청을 거부함" in failed.stdout
    assert "해결 방법" in failed.stdout
    row = shown(run.folder, "--row", "a")
    for text in ("정확성: 5점 만점에 4.40점", "판단 이유", "프롬프트", "응답", "A1."):
        assert text in row.stdout


def test_units_and_panels_are_shown(tmp_path: Path, shown: Shown) -> None:
    run = make(tmp_path, judge=[recording(tmp_path, FULL, f"j{n}.jsonl") for n in (1, 2)])
    panel = shown(run.folder, "--row", "a")
    assert "j1.jsonl" in panel.stdout
    assert "j2.jsonl" in panel.stdout
    records = run.to_records()
    unit = {"text": "One claim", "of": "answer", "status": "scored", "p": 0.25, "reason": "No."}
    lost = {"text": "Two", "of": "answer", "status": "unscored", "p": None, "error": "cut off"}
    records[0]["units"] = [unit, lost]
    write_lines(run.folder / "results.jsonl", records)
    told = shown(run.folder, "--row", records[0]["id"]).stdout
    assert "0.25" in told
    assert "answer: One claim" in told
    assert "cut off" in told


DAMAGE: tuple[dict[str, Any], ...] = (
    {"probs": "x"}, {"probs": [0.5]}, {"levels": {}}, {"units": 3, "jurors": [1]},
    {"reason": ["x"]}, {"source": None}, {"error": "x"}, {"sd": "wide"}, {"warnings": None},
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda d: next(iter(d)))
def test_a_line_changed_by_hand_is_shown_or_named(
    damage: dict[str, Any], tmp_path: Path, shown: Shown
) -> None:
    run = make(tmp_path)
    records = run.to_records()
    write_lines(run.folder / "results.jsonl", [{**records[0], **damage}, *records[1:]])
    for arguments in ((), ("--errors",), ("--row", records[0]["id"])):
        done = shown(run.folder, *arguments)
        assert done.exit_code == 0 or isinstance(done.exception, RunError), done.exception


def test_a_damaged_line_of_replies_does_not_hide_the_scores(tmp_path: Path, shown: Shown) -> None:
    run = make(tmp_path)
    path = run.folder / "replies.jsonl"
    path.write_text('{"id":"a", nonsense\n["a"]\n' + path.read_text(encoding="utf-8"))
    done = shown(run.folder, "--row", "a")
    assert done.exit_code == 0
    assert "A1." in done.stdout
    path.unlink()
    assert "no call of this row" in shown(run.folder, "--row", "a").stdout


def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    run = make(tmp_path)
    records = run.to_records()
    peaks = []
    for n in (500, 4000):
        with (run.folder / "results.jsonl").open("w", encoding="utf-8") as file:
            for i in range(n):
                for record in records[:3]:
                    file.write(json.dumps({**record, "id": f"row-{i}"}) + "\n")
        tracemalloc.start()
        look.overview(Run(run.folder))
        look.errors(run)
        look.row(run, "row-3")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # `row` keeps at most 5,000 ids for its nearest names.
    assert peaks[1] - peaks[0] < 3500 * 300


def test_what_is_asked_for_twice_is_refused(tmp_path: Path, shown: Shown) -> None:
    run = make(tmp_path)
    assert isinstance(shown(run.folder, "--errors", "--row", "a").exception, UsageError)
