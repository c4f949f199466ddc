"""What a run tells, in the language of the run."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openpyxl
import pytest
from helpers import write_lines

from geval.api import score
from geval.cli import ui
from geval.engine import Progress
from geval.judges import adapt, anthropic, local
from geval.locale import load_locale
from geval.notes import say, told
from geval.traffic.asking import PLACE, REPLY, heartbeat

KO, EN = load_locale("ko"), load_locale("en")
ENGLISH = re.compile(r"(?:[A-Za-z]{2,} ){2,}[a-z]{2,}")
"""Three Latin words in a row: a sentence, not a name."""


def test_both_locales_have_the_same_notes_with_the_same_values() -> None:
    def fields(text: str) -> set[str]:
        return set(re.findall(r"\{(\w+)", text))

    assert set(KO.notes) == set(EN.notes)
    for key, text in EN.notes.items():
        assert fields(KO.notes[key]) == fields(text), key
        assert not ENGLISH.search(KO.notes[key]), key


def test_what_judges_write_as_it_stands_has_a_translation() -> None:
    fixed = [*adapt._TOLD.values(), *anthropic._TOLD.values(), local._DEFUSED]
    for text in filter(None, fixed):
        assert not ENGLISH.search(say(text, KO)), text
        note = told("at", place="openai:m", text=text)
        assert note == f"openai:m: {text}"
        assert say(note, KO) == f"openai:m: {say(text, KO)}"


def test_a_note_is_english_until_it_is_said_in_a_language() -> None:
    note = told("column", column="C 문맥", text=told("list_of_one"))
    assert note == "column C 문맥: one text where a list belongs: taken as a list of one"
    assert say(note, EN) == note
    assert say(note, KO) == "C 문맥 열: 목록이 올 칸에 글 하나만 있어 항목이 하나인 목록으로 봄"
    assert say("something else", KO) == "something else"


def workbook(path: Path) -> Path:
    """As Korean offices keep them: a title, merged contexts, a blank row, a total, more sheets."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "평가"
    for row in (
        ["2025년 평가표"], ["질문", "문맥", "답변"],
        ["매출은?", "매출은 1,234억원이다.", "1,234억원이다."], ["이익은?", None, "12억원이다."],
        [None, None, None], ["건수는?", "수주는 35건이다.", "35건이다."], ["합계", 3, None],
    ):  # fmt: skip
        sheet.append(row)
    sheet.merge_cells("B3:B4")
    sheet.row_dimensions[6].hidden = True
    book.create_sheet("메모").append(["비고"])
    book["메모"].sheet_state = "hidden"
    book.save(path)
    return path


def test_a_korean_run_tells_everything_in_korean(tmp_path: Path) -> None:
    rows = workbook(tmp_path / "평가.xlsx")
    criteria = ("numeric_accuracy", "question_fit", "groundedness", "completeness")
    write_lines(
        tmp_path / "replies.jsonl",
        [
            {"id": str(n), "criterion": c, "alternatives": {"4": 0.9, "5": 0.1}, "text": "4\n값이 문서와 같다."}
            for n in (1, 2, 3)
            for c in criteria
        ],
    )  # fmt: skip
    notes: list[str] = []
    score(
        rows,
        template="finance_qa",
        judge=f"replay:{tmp_path / 'replies.jsonl'}",
        out=tmp_path / "run",
        cache=False,
        reasons="all",
        note=notes.append,
    )
    said = "\n".join(notes)
    for part in ("머리글로 읽음", "병합된 칸 1개", "빈 행 1개", "합계·평균 행 1개", "숨긴 행 1개", "(숨김)", "열 대응"):  # fmt: skip
        assert part in said, said
    assert [line for line in notes if ENGLISH.search(line)] == []
    assert "(row number)" not in said


def test_progress_and_heartbeat_speak_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(ui, "note", said.append)
    show = ui._Lines("finance_qa")
    show(Progress(1, 10, 0, 1, 1234, KO))
    show(Progress(10, 10, 9, 1, 5678, EN))
    assert said == [
        "finance_qa: 1/10, 토큰 1,234, 채점 안 됨 1",
        "finance_qa: 10/10, 5,678 tokens, 1 unscored",
    ]

    waiting = {0: ("7", "accuracy", 0.0, REPLY), 1: ("8", "accuracy", 0.0, PLACE)}
    asker: Any = SimpleNamespace(arrived=-100.0, waiting=waiting)
    beats: list[str] = []

    async def beat() -> None:
        came = asyncio.Event()
        task = asyncio.create_task(
            heartbeat([asker], 0.01, lambda text: (beats.append(text), came.set())[0])
        )
        await came.wait()
        task.cancel()

    asyncio.run(beat())
    assert "waiting for a reply: 7 (accuracy" in beats[0]
    korean = say(beats[0], KO)
    assert "답을 기다리는 행: 7 (accuracy" in korean
    assert "호출 차례를 기다리는 행: 8" in korean
