"""`geval runs`, and the names by which every command finds a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import FULL, ROWS, recording, write_template
from test_cli import geval
from typer.testing import CliRunner

from geval import score
from geval.cli import app
from geval.errors import RunError
from geval.runs.find import find_run
from geval.runs.listing import runs_in
from geval.runs.run import Run

KOREAN = """---
name: 적합
locale: ko
inputs: {question: text, answer: text}
scale: {levels: {1: 틀림, 2: 대체로 틀림, 3: 보통, 4: 대체로 맞음, 5: 맞음}}
criteria:
  accuracy: {title: 정확성, text: 답변이 맞는가?, weight: 2}
  style: {title: 문장, text: 글이 바른가?}
---
{% extends "_geval.jinja" %}
{% block sample %}
질문: {{ question }}
답변: {{ answer }}
{% endblock %}
"""


def make(folder: Path, out: str = "runs/one", *, without: str | None = None, **more: Any) -> Run:
    """A run over three rows, with the replies of `without` missing."""
    known = {k: v for k, v in FULL.items() if k[0] != without}
    options: dict[str, Any] = {"out": folder / out, "cache": False, **more}
    if "template" not in more:
        options["template"] = write_template(folder)
    if "judge" not in more:
        options["judge"] = recording(folder, known, f"{Path(out).name}.jsonl")
    return score(ROWS, **options)


def make_korean(folder: Path, out: str = "runs/ko", **more: Any) -> Run:
    template = write_template(folder, KOREAN, "적합.ko.jinja")
    return make(folder, out, template=template, **more)


def started_at(run: Run, when: str) -> Run:
    manifest = {**run.manifest, "started": when}
    (run.folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return Run(run.folder)


def interrupted(run: Run, lines: int = 4) -> Run:
    """The run as a killed process leaves it: no summary, a torn last line."""
    manifest = {k: v for k, v in run.manifest.items() if k not in ("summary", "paid")}
    told = json.dumps({**manifest, "status": "running"})
    (run.folder / "manifest.json").write_text(told, encoding="utf-8")
    path = run.folder / "results.jsonl"
    kept = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(kept[:lines]) + kept[lines][:25], encoding="utf-8")
    return Run(run.folder)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_found_by_path_name_file_and_last(here: Path) -> None:
    started_at(make(here, "runs/one"), "2026-11-30T10:00:00+0900")
    started_at(make(here, "runs/two"), "2026-11-30T02:00:00+0000")  # an hour later than one
    started_at(make(here, "elsewhere/three"), "2026-12-01T00:00:00+0000")
    assert find_run("runs/one") == Path("runs/one")
    assert find_run("one") == Path("runs/one")
    assert find_run(here / "elsewhere/three") == here / "elsewhere/three"
    assert find_run("runs/one/results.jsonl") == Path("runs/one")
    assert find_run("last") == Path("runs/two")
    assert find_run("last", here / "elsewhere") == here / "elsewhere/three"
    shutil.copytree("runs/one", "two")  # a folder here comes before a name under runs
    assert find_run("two") == Path("two")


def test_a_name_that_is_none_gets_the_nearest(here: Path) -> None:
    with pytest.raises(RunError, match="holds no runs"):
        find_run("one")
    with pytest.raises(RunError, match="no last run"):
        find_run("last")
    make(here, "runs/20261130-fit")
    with pytest.raises(RunError, match="Did you mean '20261130-fit'"):
        find_run("20261130-fti")
    with pytest.raises(RunError, match=r"has no manifest\.json(.|\n)*20261130-fit"):
        find_run("runs")
    for odd in ("a\0b", "x" * 5000, "../runs", "", "한글 이름"):
        with pytest.raises(RunError):
            find_run(odd)


COMMANDS = (
    ["report", "{}", "--open", "no"],
    ["export", "{}", "--to", "csv"],
    ["gate", "{}", "--fail-under", "0.1"],
    ["agree", "{}", "--labels", "labels.csv", "--draws", "0"],
    ["calibrate", "{}", "--unlabelled"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_every_command_takes_the_same_names(here: Path, command: list[str]) -> None:
    make(here, "runs/20261130-fit")
    Path("labels.csv").write_text("id,accuracy,style\na,5,5\nb,1,5\nc,3,2\n", encoding="utf-8")
    told = {}
    for name in ("last", "20261130-fit", "runs/20261130-fit"):
        done = CliRunner().invoke(app, [part.format(name) for part in command])
        assert not isinstance(done.exception, RunError), (name, done.exception)
        told[name] = f"{done.exit_code} {done.stdout} {done.exception}"
    assert len(set(told.values())) == 1
    wrong = geval(*[part.format("20261130-fut") for part in command], cwd=here)
    assert wrong.returncode == 2
    assert "Did you mean '20261130-fit'" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_runs_are_listed_newest_first_with_what_became_of_them(here: Path) -> None:
    started_at(make(here, "runs/one"), "2026-11-30T10:00:00+0000")
    started_at(make(here, "runs/two", without="c"), "2026-11-30T12:00:00+0000")
    interrupted(started_at(make(here, "runs/cut"), "2026-11-30T11:00:00+0000"))
    damaged = started_at(make(here, "runs/bad"), "2026-11-30T09:00:00+0000")
    (damaged.folder / "manifest.json").write_text('{"template": ', encoding="utf-8")
    os.utime(damaged.folder / "manifest.json", (0, 0))
    (here / "runs/.hidden").mkdir()
    (here / "runs/notes").mkdir()
    found = runs_in(here / "runs")
    assert [one.name for one in found] == ["two", "cut", "one", "bad"]
    two, cut, one, bad = found
    assert (one.scored, one.done, one.rows, one.status) == (3, 3, 3, "complete")
    assert one.mean == pytest.approx(Run(here / "runs/one").summary["overall"]["mean"])
    assert (two.scored, two.done, two.rows) == (2, 3, 3)
    assert (cut.scored, cut.done, cut.rows, cut.status) == (1, 1, 3, "interrupted")
    assert (bad.status, bad.scored, bad.rows) == ("damaged", None, None)
    assert "manifest.json" in (bad.fault or "")

    done = geval("runs", cwd=here)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["two", "cut", "one", "bad"]
    assert "2/3" in lines[1]
    assert "complete" in lines[1]
    assert "fit.en" in lines[1]
    assert "1/3" in lines[2]
    assert "interrupted" in lines[2]
    assert "bad" in done.stderr
    assert "the same `geval score` command" in done.stderr
    as_json = [json.loads(line) for line in geval("runs", "--json", cwd=here).stdout.splitlines()]
    assert [one["name"] for one in as_json] == ["two", "cut", "one", "bad"]
    assert as_json[1]["scored"] == 1


def test_a_run_with_a_damaged_line_does_not_hide_the_others(here: Path) -> None:
    interrupted(make(here, "runs/one"))
    path = here / "runs/one/results.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")  # the torn line ends
    make(here, "runs/two")
    found = {one.name: one for one in runs_in(here / "runs")}
    assert found["two"].status == "complete"
    assert found["one"].status == "damaged"
    assert "line 5" in (found["one"].fault or "")
    assert found["one"].template == "fit"


@pytest.mark.skipif(sys.platform == "win32", reason="writers are not told apart there")
def test_a_run_that_is_being_written_is_running(here: Path) -> None:
    run = interrupted(make(here, "runs/one"))
    code = (
        "import fcntl, sys\n"
        f"file = open({str(run.folder / '.lock')!r}, 'a')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\nprint('held', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        assert runs_in(here / "runs")[0].status == "running"
        other.stdin.close()
    assert runs_in(here / "runs")[0].status == "interrupted"


def test_no_runs_yet_and_no_such_folder(here: Path) -> None:
    none = geval("runs", cwd=here)
    assert (none.returncode, none.stdout) == (0, "")
    assert "no runs" in none.stderr
    assert geval("runs", "--json", cwd=here).stdout == ""
    wrong = geval("runs", "rnus", cwd=here)
    assert wrong.returncode == 2
    assert "rnus" in wrong.stderr


def test_a_run_over_no_rows_is_listed(here: Path) -> None:
    run = make(here, "runs/one")
    (run.folder / "results.jsonl").write_text("", encoding="utf-8")
    interrupted_at = {**run.manifest, "status": "interrupted", "summary": {}}
    (run.folder / "manifest.json").write_text(json.dumps(interrupted_at), encoding="utf-8")
    (one,) = runs_in(here / "runs")
    assert (one.scored, one.mean, one.status) == (0, None, "interrupted")
    assert "0/3" in geval("runs", cwd=here).stdout


def test_korean_runs_are_told_in_korean(here: Path) -> None:
    make_korean(here)
    told = geval("runs", cwd=here).stdout
    assert "완료" in told
    assert "심사 모델" in told
    assert "적합.ko" in told
    make(here, "runs/en")
    assert "complete" in geval("runs", cwd=here).stdout


def test_names_of_runs_cannot_act_on_the_terminal(here: Path) -> None:
    run = make(here, "runs/a\x1b[2Jb")
    (run.folder / "manifest.json").write_text(
        json.dumps(
            {**run.manifest, "template": {**run.manifest["template"], "name": "[red]x\x9b"}}
        ),
        encoding="utf-8",
    )
    for options in ((), ("--json",)):
        told = geval("runs", *options, cwd=here).stdout
        assert "\x1b" not in told
        assert "\x9b" not in told
        assert "[red]x" in told
