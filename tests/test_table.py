"""What the summary table tells, and what it must not hide."""

from __future__ import annotations

from pathlib import Path

from helpers import FULL, ROWS, recording, write_lines, write_template
from test_cli import geval

from geval.template import Template


def table(folder: Path, answers: dict[tuple[str, str], dict[str, float]]) -> str:
    path = write_template(folder)
    write_lines(folder / "rows.jsonl", ROWS)
    done = geval("score", "rows.jsonl", "-t", path, "-j", recording(folder, answers), cwd=folder)
    return done.stdout + done.stderr


def test_spread_cap_and_the_range_of_the_overall_score_are_shown(tmp_path: Path) -> None:
    shown = table(tmp_path, dict(FULL))
    assert "1.50 ±0.5" in shown
    assert "0.250*" in shown
    assert "capped by a core criterion" in shown
    assert "(0–1)" in shown


def test_not_applicable_and_unscored_look_different(tmp_path: Path) -> None:
    word = Template.load(write_template(tmp_path)).criteria[0].scale.allowed[-1]
    answers = {
        **FULL,
        ("a", "accuracy"): {word: 0.9, "5": 0.1},
        ("b", "style"): {"The": 0.9, "5": 0.1},
    }
    shown = table(tmp_path, answers)
    row_a = next(line for line in shown.splitlines() if line.startswith("a "))
    row_b = next(line for line in shown.splitlines() if line.startswith("b "))
    assert "not applicable" in row_a.casefold()
    assert " - " in row_b
    assert row_b.rstrip().endswith("-")
    assert "unscored, which is not 0" in shown
    assert "style: coverage 0.100" in shown


def test_a_narrow_terminal_keeps_the_overall_score(tmp_path: Path) -> None:
    write_template(tmp_path)
    rows = [{**row, "id": row["id"] * 60} for row in ROWS]
    write_lines(tmp_path / "rows.jsonl", rows)
    answers = {(i * 60, c): p for (i, c), p in FULL.items()}
    judge = recording(tmp_path, answers)
    done = geval(
        "score", "rows.jsonl", "-t", "fit.en.jinja", "-j", judge, cwd=tmp_path, columns="60"
    )
    assert "0.250*" in done.stdout, done.stderr


def test_a_console_that_cannot_print_a_letter_ends_no_run(tmp_path: Path) -> None:
    rows = [{**row, "answer": "✅ " + row["answer"]} for row in ROWS]
    write_lines(tmp_path / "rows.jsonl", rows)
    path = write_template(tmp_path)
    for extra in (["--json"], [], ["--dry-run"]):
        done = geval(
            "score", "rows.jsonl", "-t", path, "-j", recording(tmp_path, dict(FULL)), *extra,
            cwd=tmp_path, encoding="cp949",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_replies_recorded_for_other_prompts_are_told_on_each_result(tmp_path: Path) -> None:
    path = write_template(tmp_path)
    write_lines(tmp_path / "rows.jsonl", ROWS)
    judge = recording(tmp_path, dict(FULL))
    first = geval("score", "rows.jsonl", "-t", path, "-j", judge, "-o", "first", cwd=tmp_path)
    assert first.returncode == 0
    write_lines(tmp_path / "rows.jsonl", [{**row, "answer": "Another."} for row in ROWS])
    told = geval(
        "score", "rows.jsonl", "-t", path, "-j", "replay:first", "-o", "second", "-q", cwd=tmp_path
    )
    assert "6 results rest on recordings of other prompts" in told.stderr
    lines = (tmp_path / "second" / "results.jsonl").read_text("utf-8")
    assert lines.count("prompt_differs_from_recording") == 6
