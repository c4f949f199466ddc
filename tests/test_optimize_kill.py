"""kill -9 and the same command again: the same bytes as an unbroken study. And the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tuning_judge import PromptJudge, rows, template
from typer.testing import CliRunner

from geval.cli import app
from geval.judges import base

HERE = Path(__file__).parent
BUDGET, ROWS = 190, 70


def start(out: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        str(HERE / "tuning_run.py"),
        str(out),
        str(BUDGET),
        str(ROWS),
        "0",
        "0",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(out: Path) -> list[str]:
    process = start(out)
    told, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return told.split("\n")


def files(out: Path) -> dict[str, bytes]:
    found = {p.name: p.read_bytes() for p in out.glob("*.jinja")}
    found |= {f"candidate/{p.name}": p.read_bytes() for p in out.glob("candidate/*.jinja")}
    return {**found, "result": (out / "study" / "result.json").read_bytes()}


@pytest.mark.fault("C7")
@pytest.mark.fault("A3")
def test_killed_at_random_moments_it_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    whole = finish(tmp_path / "whole")
    calls = sum(line.isdigit() for line in whole)
    rng = Random(7)
    broken = tmp_path / "broken"
    for _ in range(2):
        process = start(broken)
        assert process.stdout is not None
        moment = rng.randrange(1, calls // 2)
        for line in process.stdout:
            if line.strip() == str(moment):
                os.kill(process.pid, signal.SIGKILL)
                break
        process.wait()
    rest = finish(broken)
    assert sum(line.isdigit() for line in rest) < calls
    assert files(broken) == files(tmp_path / "whole")
    ledger = (broken / "study" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    keys = {json.loads(line)["key"]: json.loads(line)["requests"] for line in ledger}
    assert sum(keys.values()) <= BUDGET


@pytest.fixture
def labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A labelled file, a template file, and the judge `fake`, in the working folder."""
    monkeypatch.chdir(tmp_path)
    template().save(tmp_path / "tuned.en.jinja")
    with (tmp_path / "labels.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(r) + "\n" for r in rows(70))
    monkeypatch.setitem(base.JUDGES, "fake", "tuning_judge:FAKE")  # type: ignore[arg-type]
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["optimize", *arguments], catch_exceptions=True)


def test_the_command_plans_tunes_continues_and_reports(labelled: Path) -> None:
    base_options = ["-t", "tuned.en.jinja", "--labels", "labels.jsonl", "--judge", "fake", "--group",
                    "document", "--budget", "150", "--out", "out"]  # fmt: skip
    planned = run(*base_options, "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert "150 requests" in planned.output
    assert not (labelled / "out").exists()
    PromptJudge.total = 0
    done = run(*base_options)
    assert done.exit_code == 0, done.output
    assert "fake: no_evidence" in done.output or "fake: better" in done.output
    assert 0 < PromptJudge.total <= 150
    page = (labelled / "out" / "report.html").read_text(encoding="utf-8")
    assert "Plan and cost" in page
    told = json.loads(run("status", "out", "--json").output)
    assert told["finished"] is True
    assert told["verdict"] in ("better", "no_evidence", "worse")
    before = PromptJudge.total
    again = run("resume", "out")
    assert again.exit_code == 0, again.output
    assert PromptJudge.total == before
    (labelled / "out" / "report.html").unlink()
    assert run("report", "out").exit_code == 0
    assert (labelled / "out" / "report.html").read_text(encoding="utf-8") == page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--labels", "labels.jsonl"], "needs --template"),
        (["-t", "tuned.en.jinja"], "needs --labels"),
        (["-t", "tuned.en.jinja", "--labels", "labels.jsonl", "--judge", "fake", "--metric", "rho"],
         "unknown metric"),
        (["-t", "tuned.en.jinja", "--labels", "labels.jsonl", "--judge", "fake", "--map", "x=y"],
         "no field or criterion 'x'"),
        (["-t", "tuned.en.jinja", "--labels", "labels.jsonl", "--judge", "fake", "--order", "last"],
         "unknown order"),
        (["status", "nowhere"], "is no study"),
        (["report", "nowhere"], "is not finished"),
    ],
)  # fmt: skip
@pytest.mark.fault("R1")
def test_wrong_use_is_one_clear_error(labelled: Path, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    from geval.errors import GevalError

    assert isinstance(result.exception, GevalError)
    assert message in str(result.exception)
    assert result.exception.exit_code == 2
