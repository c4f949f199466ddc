"""Streams and disks that refuse: one clear message, nothing lost, and a run that continues."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import TEMPLATE, write_lines, write_template

pytestmark = pytest.mark.skipif(os.name != "posix", reason="closed streams and limits of POSIX")

ROWS = [{"id": str(i), "question": "Q?", "answer": f"A{i}."} for i in range(40)]


def prepare(folder: Path) -> list[str]:
    write_template(folder, TEMPLATE)
    write_lines(folder / "rows.jsonl", ROWS)
    replies = [{"id": row["id"], "criterion": c, "alternatives": {"4": 0.9, "3": 0.1}}
               for row in ROWS for c in ("accuracy", "style")]  # fmt: skip
    write_lines(folder / "replies.jsonl", replies)
    template = next(folder.glob("*.jinja"))
    return [sys.executable, "-m", "geval", "score", "rows.jsonl", "-t", str(template), "-j",
            "replay:replies.jsonl", "-o", "run", "--no-cache"]  # fmt: skip


def results(folder: Path) -> list[str]:
    lines = (folder / "run" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return [record["id"] for record in map(json.loads, lines) if record["criterion"] == "overall"]


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_end_no_run_and_spoil_no_file(tmp_path: Path, closed: str) -> None:
    command = " ".join(f"'{part}'" for part in prepare(tmp_path))
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(results(tmp_path), key=int) == [row["id"] for row in ROWS]
    assert "Traceback" not in done.stderr


def test_a_full_output_is_told_and_the_run_is_kept(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = prepare(tmp_path)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "writing the output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(results(tmp_path)) == len(ROWS)


def test_a_disk_without_room_names_the_file_and_the_same_command_continues(tmp_path: Path) -> None:
    command = prepare(tmp_path)

    def limit() -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=limit
    )
    assert done.returncode == 2, done.stderr
    assert ".jsonl: cannot be written" in done.stderr
    assert "the same command continues the run" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(results(tmp_path)) < len(ROWS)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(results(tmp_path), key=int) == [row["id"] for row in ROWS]
