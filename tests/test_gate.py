"""The gate of a run: exit codes, and what is not scored never passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import FULL, ROWS, recording, write_lines, write_template
from typer.testing import CliRunner

from geval import score
from geval.cli import app
from geval.errors import ConfigError, Exit, RunError
from geval.runs.gate import judge_run, line
from geval.runs.run import Run


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "templates").mkdir()
    write_template(tmp_path / "templates")
    write_lines(tmp_path / "rows.jsonl", ROWS)
    return tmp_path


def scored(work: Path, without: str | None = None) -> Run:
    replies = recording(work, {key: p for key, p in FULL.items() if key[0] != without})
    return score(
        str(work / "rows.jsonl"),
        template=str(work / "templates" / "fit.en.jinja"),
        judge=replies,
        out=work / "run",
        cache=False,
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
    verdict = judge_run(scored(work), fail_under, on)
    assert verdict.code == code
    assert bool(verdict.failed) == (code == Exit.GATE)
    if (fail_under, on) == (0.3, "row"):
        assert [check.name for check in verdict.failed] == ["b"]
        assert "1 of 3 under: b 0." in line(verdict)


@pytest.mark.parametrize("bad", [float("nan"), -0.1, 1.5])
def test_a_limit_that_is_no_share_is_refused(work: Path, bad: float) -> None:
    run = scored(work)
    with pytest.raises(ConfigError, match="--fail-under"):
        judge_run(run, bad)
    with pytest.raises(ConfigError, match="--max-unscored"):
        judge_run(run, 0.5, max_unscored=bad)
    with pytest.raises(ConfigError, match="mean, row, criterion"):
        judge_run(run, 0.5, "rows")


def test_an_unscored_row_never_passes(work: Path) -> None:
    run = scored(work, without="c")
    strict = judge_run(run, 0.0)
    assert strict.code == Exit.UNSCORED
    assert "1 of 3 unscored" in line(strict)
    assert judge_run(run, 0.0, max_unscored=0.5).code == Exit.OK
    row = judge_run(run, 0.0, "row", 0.5)
    assert row.code == Exit.GATE
    assert [(check.name, check.value) for check in row.failed] == [("c", None)]


def test_an_incomplete_run_is_refused(work: Path) -> None:
    run = scored(work)
    run.manifest["status"] = "running"
    with pytest.raises(RunError, match="not complete"):
        judge_run(run, 0.0)


def test_the_command_prints_one_line_and_its_exit_code(work: Path) -> None:
    scored(work)
    done = CliRunner().invoke(app, ["gate", str(work / "run"), "--fail-under", "0.9"])
    assert done.exit_code == Exit.GATE
    assert len(done.stdout.splitlines()) == 1
    assert "gate failed: mean 0." in done.stdout
