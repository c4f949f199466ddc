"""The command line: messages, exit codes, what goes where."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import FULL, ROWS, recording, write_lines, write_template


def geval(
    *arguments: object,
    cwd: Path,
    stdin: str | None = None,
    columns: str = "160",
    encoding: str = "utf-8",
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, with no terminal."""
    return subprocess.run(
        [sys.executable, "-m", "geval", *map(str, arguments)],
        cwd=cwd, input=stdin, capture_output=True, text=True, encoding="utf-8", errors="replace",
        env={**os.environ, "COLUMNS": columns, "NO_COLOR": "1", "PYTHONIOENCODING": encoding},
        check=False,
    )  # fmt: skip


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "templates").mkdir()
    write_template(tmp_path / "templates")
    write_lines(tmp_path / "rows.jsonl", ROWS)
    recording(tmp_path, FULL)
    return tmp_path


REPLAY = ("--judge", "replay:replies.jsonl")


@pytest.mark.fault("R9")
def test_a_table_on_stdout_and_the_rest_on_stderr(work: Path) -> None:
    done = geval("score", "rows.jsonl", "-t", "fit", *REPLAY, cwd=work)
    assert done.returncode == 0, done.stderr
    assert "4.40" in done.stdout
    assert "3/3" in done.stdout
    assert "logprobs" in done.stdout
    assert "runs/" in done.stdout
    assert "columns: question <- question" in done.stderr
    assert "columns:" not in done.stdout
    (folder,) = (work / "runs").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == "complete"
    assert len((folder / "results.jsonl").read_text(encoding="utf-8").splitlines()) == 9


def test_json_lines_on_stdout_from_json_lines_on_stdin(work: Path) -> None:
    text = (work / "rows.jsonl").read_text(encoding="utf-8")
    done = geval("score", "-", "-t", "fit", *REPLAY, "--json", "-q", cwd=work, stdin=text)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["criterion"] for line in done.stdout.splitlines()].count(
        "overall"
    ) == 3
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["score", "rows.jsonl", "-t", "fti", *REPLAY], "Did you mean 'fit'?"),
        (["score", "rows.jsonl", *REPLAY], "name a template"),
        (["score", "none.jsonl", "-t", "fit", *REPLAY], "none.jsonl"),
        (["score", "rows.docx", "-t", "fit", *REPLAY], "docx"),
        (["score", "rows.jsonl", "-t", "finance_qa", *REPLAY], "contexts"),
        (["score", "rows.jsonl", "-t", "fit", "-j", "loca"], "Did you mean 'local'?"),
        (["score", "rows.jsonl", "-t", "fit", "-j", "replay:none.jsonl"], "none.jsonl"),
        (["score", "rows.jsonl", "-t", "fit", "-j", "local:none.gguf"], "none.gguf"),
        (["score", "rows.jsonl", "-t", "fit", "--method", "exact", *REPLAY], "exact"),
        (["score", "rows.jsonl", "-t", "fit", "--reasons", "some", *REPLAY], "none, low, all"),
        (["score", "rows.jsonl", "-t", "fit", "--map", "answer=nope", *REPLAY], "nope"),
        (["score", "-t", "fit", *REPLAY], "no examples file"),
        (["score", "rows.jsonl", "-t", "fit", "--lokale", "ko", *REPLAY], "--locale"),
        (["template", "show", "fti"], "Did you mean 'fit'?"),
        (["template", "render", "fit", "rows.jsonl", "--row", "9"], "no row 9"),
        (["template", "lint", "none.en.jinja"], "none.en.jinja"),
    ],
)  # fmt: skip
@pytest.mark.fault("R1")
def test_bad_input_gets_one_message_and_code_2(work: Path, arguments: list[str], said: str) -> None:
    done = geval(*arguments, cwd=work)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (work / "runs").exists()


@pytest.mark.fault("D9")
def test_every_fault_of_the_data_is_told_before_anything_is_judged(work: Path) -> None:
    rows = [
        ROWS[0],
        {"id": "b", "question": "Q?", "answer": " "},
        {"id": "a", "question": "Q?", "answer": "x"},
    ]
    write_lines(work / "bad.jsonl", rows)
    done = geval("score", "bad.jsonl", "-t", "fit", *REPLAY, cwd=work)
    assert done.returncode == 2
    assert "row 2" in done.stderr
    assert "row 3" in done.stderr
    assert not (work / "runs").exists()
    skipped = geval(
        "score", "bad.jsonl", "-t", "fit", *REPLAY, "--skip-invalid", "--json", cwd=work
    )
    statuses = [json.loads(line)["status"] for line in skipped.stdout.splitlines()]
    assert statuses.count("unscored") == 6
    assert statuses.count("scored") == 3


@pytest.mark.fault("R10")
@pytest.mark.skipif(
    os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root can write everywhere"
)
def test_an_unwritable_folder_is_found_first(work: Path) -> None:
    locked = work / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    done = geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "-o", "locked/run", cwd=work)
    assert done.returncode == 2
    assert "cannot write" in done.stderr


@pytest.mark.fault("R10")
def test_a_folder_that_cannot_be_made_or_holds_other_files(work: Path) -> None:
    (work / "file").write_text("mine", encoding="utf-8")
    done = geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "-o", "file/run", cwd=work)
    assert (done.returncode, "cannot write" in done.stderr) == (2, True)
    (work / "full").mkdir()
    (work / "full" / "thesis.txt").write_text("mine", encoding="utf-8")
    done = geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "-o", "full", cwd=work)
    assert (done.returncode, "thesis.txt" in done.stderr) == (2, True)
    assert sorted(p.name for p in (work / "full").iterdir() if p.name[0] != ".") == ["thesis.txt"]


@pytest.mark.fault("R1")
def test_too_many_unscored_rows_end_with_code_3(work: Path) -> None:
    recording(work, {k: v for k, v in FULL.items() if k[0] == "a"}, "part.jsonl")
    done = geval("score", "rows.jsonl", "-t", "fit", "--judge", "replay:part.jsonl", cwd=work)
    assert done.returncode == 3
    assert "2 of 3 rows are unscored" in done.stderr
    loose = geval(
        "score", "rows.jsonl", "-t", "fit", "--judge", "replay:part.jsonl", "--max-unscored", "0.7",
        "-o", "loose", cwd=work,
    )  # fmt: skip
    assert loose.returncode == 0


@pytest.mark.fault("R8")
def test_the_rendered_prompt_can_be_seen(work: Path) -> None:
    done = geval(
        "template", "render", "fit", "rows.jsonl", "--row", "2", "--criterion", "style", cwd=work
    )
    assert done.returncode == 0
    assert "A2." in done.stdout
    assert "well written" in done.stdout
    assert "Is the answer right?" not in done.stdout


def test_lint_shows_every_fault_and_ends_with_code_1(work: Path) -> None:
    good = geval("template", "lint", "templates", cwd=work)
    assert (good.returncode, good.stdout.count("\n"), "info" in good.stdout) == (0, 1, True)
    assert "0 errors, 0 warnings" in good.stderr
    bad = work / "templates" / "bad.en.jinja"
    text = (work / "templates" / "fit.en.jinja").read_text(encoding="utf-8")
    bad.write_text(text.replace("inputs:", "input:").replace("scale:", "scal:"), encoding="utf-8")
    done = geval("template", "lint", bad, cwd=work)
    assert done.returncode == 1
    assert "bad.en.jinja:4: error: unknown key 'input'" in done.stdout
    assert "bad.en.jinja:7: error: unknown key 'scal'" in done.stdout


def test_the_shipped_templates_are_listed_shown_and_clean(tmp_path: Path) -> None:
    listed = geval("template", "list", cwd=tmp_path)
    assert "finance_qa" in listed.stdout
    assert "en, ko" in listed.stdout
    shown = geval("template", "show", "finance_qa", "--locale", "ko", cwd=tmp_path)
    assert shown.stdout.startswith("---\nname: finance_qa\nlocale: ko\n")
    rendered = geval("template", "show", "finance_qa", "-l", "ko", "--rendered", cwd=tmp_path)
    assert "답변" in rendered.stdout


@pytest.mark.fault("C7")
@pytest.mark.fault("C8")
def test_a_killed_run_continues_with_what_is_missing(work: Path) -> None:
    first = geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "-o", "run", cwd=work)
    assert first.returncode == 0
    run = work / "run"
    whole = (run / "results.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    # As kill -9 leaves it: one sample done, one without its overall line, a torn line.
    (run / "results.jsonl").write_text("".join(whole[:5]) + whole[5][:40], encoding="utf-8")
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    (run / "manifest.json").write_text(
        json.dumps({**manifest, "status": "running"}), encoding="utf-8"
    )
    second = geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "-o", "run", cwd=work)
    assert second.returncode == 0, second.stderr
    assert "1 of 3 rows are done" in second.stderr
    after = (run / "results.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    key = lambda line: (json.loads(line)["id"], json.loads(line)["criterion"])  # noqa: E731
    assert sorted(map(key, after)) == sorted(map(key, whole))


@pytest.mark.fault("C8")
def test_a_run_folder_of_another_run_is_refused(work: Path) -> None:
    geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "-o", "run", cwd=work)
    before = (work / "run" / "results.jsonl").read_bytes()
    write_lines(work / "rows.jsonl", ROWS[:2])
    done = geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "-o", "run", cwd=work)
    assert done.returncode == 2
    assert "data: " in done.stderr
    assert (work / "run" / "results.jsonl").read_bytes() == before
    forced = geval(
        "score", "rows.jsonl", "-t", "fit", *REPLAY, "-o", "run", "--force-new", cwd=work
    )
    assert forced.returncode == 0
    assert len((work / "run" / "results.jsonl").read_text(encoding="utf-8").splitlines()) == 6


def test_an_unfinished_run_continues_without_out(work: Path) -> None:
    geval("score", "rows.jsonl", "-t", "fit", *REPLAY, cwd=work)
    (folder,) = (work / "runs").iterdir()
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**manifest, "status": "interrupted"}), encoding="utf-8")
    done = geval("score", "rows.jsonl", "-t", "fit", *REPLAY, cwd=work)
    assert "continuing the run in" in done.stderr
    assert list((work / "runs").iterdir()) == [folder]
