"""Run folders that were killed, changed by hand or started over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import FULL, ROWS, recording, write_template

import geval
from geval.errors import RunError


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "template": write_template(folder),
        "judge": recording(folder, FULL),
        "out": folder / "run",
        "reasons": "none",
        "cache": False,
        **more,
    }


def lines(folder: Path) -> list[str]:
    text = (folder / "run/results.jsonl").read_text(encoding="utf-8")
    return text.splitlines(keepends=True)


def keys(folder: Path) -> list[tuple[str, str]]:
    return [(r["id"], r["criterion"]) for r in map(json.loads, lines(folder))]


@pytest.mark.fault("C7")
@pytest.mark.parametrize("cut", range(1, 12, 2))
def test_a_run_cut_anywhere_ends_with_each_line_once(cut: int, tmp_path: Path) -> None:
    geval.score(ROWS, **options(tmp_path))
    whole = lines(tmp_path)
    assert len(whole) == 9
    path = tmp_path / "run/results.jsonl"
    # Killed inside a line, with an earlier sample written twice by a second process.
    torn = "".join(whole[: min(cut, 8)]) + "".join(whole[:3]) + whole[min(cut, 8)][:40]
    path.write_text(torn, encoding="utf-8")
    for left in (".results.jsonl.99.tmp", ".probe.99"):
        (tmp_path / "run" / left).write_text("x", encoding="utf-8")
    run = geval.score(ROWS, **options(tmp_path))
    assert sorted(lines(tmp_path)) == sorted(whole)
    assert len(set(keys(tmp_path))) == 9
    assert run.summary["overall"]["scored"] == 3
    assert not [p.name for p in (tmp_path / "run").iterdir() if p.name.endswith((".tmp", ".99"))]


@pytest.mark.parametrize("bad", ["{", "[]", "null", '"text"', '{"id": "a"}', "[" * 100_000, "\x00"])
def test_a_line_changed_by_hand_is_named_and_nothing_is_lost(bad: str, tmp_path: Path) -> None:
    geval.score(ROWS, **options(tmp_path))
    whole = lines(tmp_path)
    path = tmp_path / "run/results.jsonl"
    broken = "".join([*whole[:4], bad + "\n", *whole[4:]])
    path.write_text(broken, encoding="utf-8")
    for act in (
        lambda: geval.Run(tmp_path / "run").summary,
        lambda: geval.score(ROWS, **options(tmp_path)),
    ):
        with pytest.raises(RunError) as caught:
            act()
        assert "line 5" in str(caught.value)
        assert "results.jsonl" in str(caught.value)
        assert path.read_text(encoding="utf-8") == broken


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"template": 1}', "[" * 100_000])
def test_a_manifest_changed_by_hand_is_named(manifest: str, tmp_path: Path) -> None:
    geval.score(ROWS, **options(tmp_path))
    (tmp_path / "run/manifest.json").write_text(manifest, encoding="utf-8")
    for act in (
        lambda: geval.Run(tmp_path / "run"),
        lambda: geval.score(ROWS, **options(tmp_path)),
    ):
        with pytest.raises(RunError, match=r"manifest\.json"):
            act()


def test_starting_over_twice_in_a_second_keeps_both_backups(tmp_path: Path) -> None:
    for _ in range(4):
        geval.score(ROWS, **options(tmp_path, force_new=True))
    kept = list((tmp_path / "run").glob(".*-results.jsonl"))
    assert len(kept) == 3
    assert all(len(p.read_text(encoding="utf-8").splitlines()) == 9 for p in kept)


def test_a_reader_that_has_enough_ends_it_quietly(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "id": str(n), "answer": "x" * 3000} for n in range(300)]
    answers = {(str(n), c): {"4": 1.0} for n in range(300) for c in ("accuracy", "style")}
    run = geval.score(
        rows, **{**options(tmp_path), "judge": recording(tmp_path, answers, "many.jsonl")}
    )
    assert run.summary["overall"]["scored"] == 300
    command = (
        f"{sys.executable} -m geval score rows.jsonl --template fit.en.jinja --judge replay:many.jsonl"
        " --reasons none --json --quiet --out again | head -1"
    )
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8"
    )
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr
    assert json.loads(done.stdout)["id"] == "0"
