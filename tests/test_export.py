"""A run as a file for people: nothing is run as a formula, nothing is lost on the way back."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from helpers import FULL, ROWS, recording, replay, write_lines, write_template
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.chart import BarChart, Reference
from test_cli import REPLAY, geval

from geval.data import read_rows
from geval.data.write import MARK, defuse, undo, write_table
from geval.template import Template

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufffe\uffff"))
cells = (
    st.sampled_from(["=1+1", "'=1", "''@x", "-12%", "+82", "\t=x", "\rx", "△12", "'", ""]) | texts
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "templates").mkdir()
    write_template(tmp_path / "templates")
    write_lines(tmp_path / "rows.jsonl", ROWS)
    recording(tmp_path, FULL)
    return tmp_path


@given(cells)
def test_defused_text_is_no_formula_and_comes_back(text: str) -> None:
    safe = defuse(text)
    assert not safe.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert undo(safe) == text


@pytest.mark.fault("R6")
@given(st.lists(st.tuples(cells, st.lists(cells, max_size=3)), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_csv_and_xlsx_come_back_as_they_were(rows: list[tuple[str, list[str]]]) -> None:
    records = [
        {"id": str(number), "reason": text, "warnings": items, MARK: "r"}
        for number, (text, items) in enumerate(rows)
    ]
    with tempfile.TemporaryDirectory() as folder:
        for form in ("csv", "xlsx"):
            path = Path(folder) / f"a.{form}"
            assert write_table(records, path, form) == []
            found = [row.values for row in read_rows(path)]
            # a cell of blanks is an empty cell to a workbook
            texts_found = [v["reason"] or "" for v in found]
            assert [t.strip() and t for t in texts_found] == [
                r["reason"].strip() and r["reason"] for r in records
            ]
            assert [json.loads(v["warnings"]) for v in found] == [r["warnings"] for r in records]


def test_text_beyond_what_a_cell_holds_is_cut_and_told(tmp_path: Path) -> None:
    record = {"id": "1", "reason": "가" * 40_000, MARK: "r"}
    (note,) = write_table([record], tmp_path / "a.xlsx", "xlsx")
    assert "1 cells were cut" in note
    assert not write_table([record], tmp_path / "a.csv", "csv")
    (row,) = read_rows(tmp_path / "a.csv")
    assert row.values["reason"] == record["reason"]


@pytest.mark.fault("R6")
@pytest.mark.fault("R11")
def test_every_format_holds_the_scores(work: Path) -> None:
    geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "--out", "run", cwd=work)
    expected = {
        (r["id"], r["criterion"]): r["score"]
        for r in map(
            json.loads, (work / "run/results.jsonl").read_text(encoding="utf-8").splitlines()
        )
    }
    tables: dict[str, list[dict[str, Any]]] = {}
    for form in ("csv", "xlsx", "parquet", "jsonl"):
        if form == "parquet":
            pytest.importorskip("pyarrow")
        done = geval("export", "run", "--to", form, "--data", "rows.jsonl", cwd=work)
        assert done.returncode == 0, done.stderr
        path = work / done.stdout.strip()
        tables[form] = [row.values for row in read_rows(path)]
    assert (work / "run/results.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    for rows in tables.values():
        assert [row["id"] for row in rows] == ["a", "b", "c"]
        for row in rows:
            for name in ("overall", "accuracy", "style"):
                assert float(row[name]) == pytest.approx(expected[row["id"], name])
            assert row["accuracy_reason"] == "Because."
            assert row["accuracy_method"] == "logprobs"
            assert row["input_question"].startswith("Q")
    sheet = openpyxl.load_workbook(work / "run/results.xlsx").active
    assert sheet is not None
    assert sheet.freeze_panes == "B2"
    done = geval("export", "run", "--to", "csv", "--long", "-o", "long.csv", cwd=work)
    with (work / "long.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 9
    assert json.loads(lines[0]["levels"]) == [1, 2, 3, 4, 5]
    # the run folder still continues
    assert (
        geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "--out", "run", cwd=work).returncode == 0
    )


def test_refusals_of_export(work: Path) -> None:
    geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "--out", "run", cwd=work)
    write_lines(work / "other.jsonl", ROWS[:2])
    book = openpyxl.Workbook()
    book.save(work / "book.xlsx")
    for arguments, said in (
        (["run", "--to", "xls"], "Did you mean 'xlsx'"),
        (["run"], "--to"),
        (["nowhere", "--to", "csv"], "there is no run 'nowhere'"),
        (["run", "--to", "csv", "--data", "other.jsonl"], "is not the data that was judged"),
        (["run", "--into", "book.xlsx"], "which is no workbook"),
        (["run", "--to", "csv", "--out", "templates"], "is a folder"),
    ):
        done = geval("export", *arguments, cwd=work)
        assert done.returncode == 2, arguments
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    done = geval("score", "rows.jsonl", "-t", "fit", *REPLAY, "--out", "rows.jsonl", cwd=work)
    assert done.returncode == 2
    assert "names a file" in done.stderr


def korean_book(path: Path) -> None:
    """A title, merged contexts, a blank row, a total, a chart, formats; a second sheet."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "평가"
    for row in (
        ["챗봇 답변 평가표"],
        ["context", "question", "gen_answer", "gt_answer", "비율"],
        ["연결 매출은 1,234억원이다.", "매출은?", "1,234억원", "1,234억원", 0.5],
        [None, "이익은?", "△12억원", None, 0.25],
        [],
        ["수주는 35건이다.", "수주는?", "=35", "35건", "=E3+E4"],
        ["합계", None, None, None, 0.75],
    ):
        sheet.append(row)
    sheet["C6"].data_type = "s"
    sheet.merge_cells("A3:A4")
    sheet["E3"].number_format = "0.0%"
    chart = BarChart()
    chart.add_data(Reference(sheet, min_col=5, min_row=3, max_row=4))
    sheet.add_chart(chart, "H2")
    book.create_sheet("메모").append(["그대로"])
    book.save(path)


def test_results_beside_the_rows_of_a_korean_workbook(tmp_path: Path) -> None:
    path = tmp_path / "평가.xlsx"
    korean_book(path)
    before = path.read_bytes()
    template = Template.load("finance_qa", "ko")
    names = [c.name for c in template.criteria]
    judge = replay(
        tmp_path,
        [
            {
                "id": i,
                "criterion": c,
                "alternatives": {"5": 0.9, "4": 0.1},
                "text": "5\n=값이 문서와 같다.",
            }
            for i in ("1", "2")
            for c in names
        ],
    )
    done = geval(
        "score", path.name, "-t", "finance_qa", "-l", "ko", "--judge", judge, "--out", "run",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "contexts <- context, answer <- gen_answer, reference <- gt_answer" in done.stderr
    assert "병합된 칸 1개를 같은 값으로 채움" in done.stderr
    done = geval("export", "run", "--into", path.name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "may lose or change charts" in done.stderr
    assert "formulas are computed again" in done.stderr
    target = tmp_path / done.stdout.strip()
    assert target.name.startswith("평가_geval_")
    assert path.read_bytes() == before
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    copy = openpyxl.load_workbook(target)
    sheet = copy["평가"]
    titles = [sheet.cell(2, 6 + n).value for n in range(len(names) + 3)]
    assert titles[0] == "geval_종합"
    assert titles[1] == "geval_수치정확성"
    assert titles[-2:] == ["geval_판단이유", "geval_상태"]
    for row, scored in ((3, True), (4, True), (6, False)):
        values = [sheet.cell(row, 6 + n).value for n in range(len(names) + 3)]
        assert (values[0] is not None) is scored
        if scored:
            assert values[1] == pytest.approx(4.9)
            assert "수치정확성: =값이 문서와 같다." in values[-2]
        assert values[-1].startswith("채점됨" if scored else "채점 안 됨: ")
    for row in (1, 5, 7):
        assert all(sheet.cell(row, 6 + n).value is None for n in range(len(names) + 3))
    assert sheet["E3"].number_format == "0.0%"
    assert sheet["E6"].value == "=E3+E4"
    assert copy["메모"]["A1"].value == "그대로"
    assert any(name.startswith("geval_") for name in copy.sheetnames)
    korean_book(path)
    book = openpyxl.load_workbook(path)
    book["평가"]["B3"] = "바뀐 질문"
    book.save(path)
    done = geval("export", "run", "--into", path.name, cwd=tmp_path)
    assert done.returncode == 2
    assert "changed" in done.stderr


def test_data_check_judges_nothing(tmp_path: Path) -> None:
    korean_book(tmp_path / "평가.xlsx")
    ask = ("data", "check", "평가.xlsx", "-t", "finance_qa")
    done = geval(*ask, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 rows" in done.stdout
    assert "question <- question" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["평가.xlsx"]
    assert geval(*ask, "--sheet", "평가", cwd=tmp_path).returncode == 0
    done = geval(*ask, "--sheet", "3", cwd=tmp_path)
    assert done.returncode == 2
    assert "no sheet '3'" in done.stderr
    book = openpyxl.load_workbook(tmp_path / "평가.xlsx")
    book["평가"]["C4"] = None
    book.save(tmp_path / "평가.xlsx")
    done = geval(*ask, cwd=tmp_path)
    assert done.returncode == 2
    assert "row 4: column C gen_answer (answer): is missing or blank" in done.stderr
