"""Workbooks as Korean offices keep them, written by openpyxl, read by the reader."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geval.data import header_names, load_samples, read_rows
from geval.data.number_format import show
from geval.data.sheet_xml import column_index, column_letter
from geval.data.validate import Loaded
from geval.errors import DataError
from geval.locale import column_families
from geval.template import Template

TEMPLATE = Template.load("finance_qa", "ko")
FAMILIES = column_families()
HEADER = header_names(TEMPLATE.front.inputs, FAMILIES)


def load(path: Path, sheet: str | None = None, **options: Any) -> Loaded:
    rows = read_rows(path, sheet=sheet, header=HEADER)
    return load_samples(rows, TEMPLATE.front.inputs, FAMILIES, **options)


def refusal(path: Path, sheet: str | None = None) -> str:
    with pytest.raises(DataError) as caught:
        load(path, sheet)
    return str(caught.value)


def book_with(path: Path, *rows: list[Any], title: str = "평가") -> openpyxl.Workbook:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = title
    for row in rows:
        sheet.append(row)
    book.save(path)
    return book


def korean_book(path: Path) -> None:
    """Title, blank row, header, merged contexts, blank row, hidden row, total; a hidden sheet."""
    book = openpyxl.Workbook()
    hidden = book.active
    assert hidden is not None
    hidden.title = "원본"
    hidden.append(["질문", "문맥", "답변", "정답"])
    hidden.append(["숨은 질문", "숨은 문맥", "숨은 답변", ""])
    hidden.sheet_state = "hidden"
    sheet = book.create_sheet("평가")
    for row in (
        ["2025년 3분기 챗봇 답변 평가표"],
        [],
        ["번호", "질문\n(필수)", "문맥 *", "모델 답변", "모범답안", "코드", "비율", "억원"],
        [1, "매출은?", "연결 매출 1,234억원", "1,234억원", None, 5930, 0.123, 123_400_000_000],
        [2, "이익률은?", None, 0.123, 0.12, 660, -0.01, -1_200_000_000],
        [],
        [3, "종목 코드는?", "다솜전자", 5930, "005930", 1, 1, 0],
        ["합계", None, None, None, None, 6591, 1.0, 0],
    ):
        sheet.append(row)
    sheet.merge_cells("A1:H1")
    sheet.merge_cells("C4:C5")
    sheet["D5"].number_format = sheet["E5"].number_format = "0.0%"
    sheet["D7"].number_format = "000000"
    for row in range(4, 8):
        sheet[f"F{row}"].number_format = "000000"
        sheet[f"G{row}"].number_format = "0.0%"
        sheet[f"H{row}"].number_format = '#,##0,,"백만";"△"#,##0,,"백만"'
    sheet.row_dimensions[7].hidden = True
    sheet.column_dimensions["F"].hidden = True
    book.save(path)


def test_a_korean_workbook(tmp_path: Path) -> None:
    path = tmp_path / "평가표.xlsx"
    korean_book(path)
    loaded = load(path)
    assert str(loaded.mapping) == (
        "question <- 질문, contexts <- 문맥, answer <- 모델 답변, reference <- 모범답안, id <- 번호"
    )
    samples = list(loaded.samples())
    assert [(s.id, s.source.row, s.source.sheet) for s in samples] == [
        ("1", 4, "평가"), ("2", 5, "평가"), ("3", 7, "평가"),
    ]  # fmt: skip
    assert [s.fields["answer"] for s in samples] == ["1,234억원", "12.3%", "005930"]
    assert samples[1].fields["contexts"] == ("연결 매출 1,234억원",)
    assert samples[1].fields["reference"] == "12.0%"
    told = "\n".join(loaded.notes)
    for said in (
        "sheet '평가' read; not read: '원본' (hidden)",
        "header found in row 3",
        "1 merged cells filled down",
        "1 blank rows skipped",
        "1 rows of totals or means skipped",
        "1 rows are hidden; they are read",
        "hidden columns are read: F 코드",
    ):
        assert said in told
    values = [row.values for row in read_rows(path, header=HEADER)]
    assert [v["코드"].text for v in values] == ["005930", "000660", "000001"]
    assert [v["비율"].text for v in values] == ["12.3%", "-1.0%", "100.0%"]
    assert [v["억원"].text for v in values] == ["123,400백만", "△1,200백만", "0백만"]
    assert [v["억원"] for v in values] == [123_400_000_000, -1_200_000_000, 0]


@pytest.mark.fault("D9")
def test_faults_name_sheet_row_and_letter(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book_with(
        path,
        ["제목"],
        ["질문", "문맥", "답변"],
        ["q", "c", "a"],
        ["q", "c", " "],
        ["q", None, "=1+1"],
    )
    message = refusal(path)
    assert "sheet 평가, row 4: column C 답변 (answer): is missing or blank" in message
    assert "sheet 평가, row 5: column B 문맥 (contexts): is missing" in message
    assert "row 5: column C 답변 (answer): holds a formula that was never computed" in message
    assert "3 faults" in message


def test_the_sheet_is_never_silently_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book = book_with(path, ["질문", "문맥", "답변"], ["q1", "c", "a"], title="1차")
    for title, rows in {
        "2차": [["질문", "문맥", "답변"], ["q2", "c", "a"]],
        "안내": [["질문 하나마다 한 줄을 쓴다"]],
    }.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    message = refusal(path)
    assert "2 sheets may be meant: '1차', '2차'" in message
    assert "--sheet" in message
    for name in ("2차", "2"):
        assert [s.fields["question"] for s in load(path, name).samples()] == ["q2"]
    every = list(load(path, "*").samples())
    assert [(s.id, s.source.sheet) for s in every] == [("1차:1", "1차"), ("2차:2", "2차")]
    assert "Did you mean" in refusal(path, "2채") or "Known: 1차, 2차" in refusal(path, "2채")


def test_two_tiers_and_one_cell_over_several_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book = book_with(
        path,
        ["질문", "문맥", None, "답변", "평가자", None],
        [None, None, None, None, 1, 2],
        ["q", "c1", "c2", "a", 4, 5],
    )
    sheet = book["평가"]
    for place in ("A1:A2", "D1:D2", "E1:F1"):
        sheet.merge_cells(place)
    sheet["C1"] = "문맥2"
    book.save(path)
    (row,) = read_rows(path, header=HEADER)
    assert row.source.row == 3
    assert row.values == {
        "질문": "q", "문맥": "c1", "문맥2": "c2", "답변": "a", "평가자 / 1": 4, "평가자 / 2": 5,
    }  # fmt: skip
    path = tmp_path / "b.xlsx"
    book = book_with(path, ["질문", "문맥", None, "답변"], ["q", "c1", "c2", "a"])
    book["평가"].merge_cells("B1:C1")
    book.save(path)
    (sample,) = load(path).samples()
    assert sample.fields["contexts"] == ("c1", "c2")


def test_a_header_named_by_the_user_is_found_below_a_title(tmp_path: Path) -> None:
    from geval.job import prepare

    path = tmp_path / "a.xlsx"
    book_with(path, ["제목", "2025"], ["물음", "자료", "결과"], ["매출은?", "c", "a"])
    job = prepare(
        path, template="finance_qa", columns=["question=물음", "contexts=자료", "answer=결과"]
    )
    assert [s.fields["answer"] for s in job.data.samples()] == ["a"]
    assert job.template.front.locale == "ko"


def test_protected_and_broken_files(tmp_path: Path) -> None:
    cases = {
        "ole.xlsx": bytes.fromhex("D0CF11E0A1B11AE1") + bytes(2000),
        "drm.xlsx": b"SCDSA002" + b"\x9b" * 2000,
        "drm.csv": b"<## NASCA DRM FILE - VER1.00 ##>" + b"\x9b\0" * 900,
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        assert "보안(DRM) 해제 후 저장하십시오" in refusal(tmp_path / name)
    for name, content, said in (
        ("a.xls", b"<html><table>", "web page"),
        ("b.xlsx", b"", "empty"),
        ("c.xlsx", b"PK\x03\x04 and no more", "damaged"),
    ):
        (tmp_path / name).write_bytes(content)
        assert said in refusal(tmp_path / name)


def test_a_bomb_and_entities_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.xlsx"
    book_with(path, ["질문", "문맥", "답변"], ["q", "c", "a"])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    def rewrite(**changed: bytes) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in {**parts, **changed}.items():
                archive.writestr(name, content)

    name = "xl/worksheets/sheet1.xml"
    rewrite(**{name: b'<!DOCTYPE x [<!ENTITY a "b">]>' + parts[name]})
    assert "document type" in refusal(path)
    monkeypatch.setattr("geval.data.sheet_xml.MOST_BYTES", 3 << 20)
    bomb = parts[name].replace(b"<sheetData>", b" " * (8 << 20) + b"<sheetData>")
    rewrite(**{name: bomb})
    raw = bytearray(path.read_bytes())
    size = len(bomb).to_bytes(4, "little")
    while (at := raw.find(size)) >= 0:  # the directory lies about the size
        raw[at : at + 4] = (100).to_bytes(4, "little")
    path.write_bytes(raw)
    assert "unpacks to more than" in refusal(path)


def test_duplicate_headers_and_unnamed_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book_with(path, ["질문", "문맥", "답변", "메모", "메모"], ["q", "c", "a", 1, 2])
    assert "columns D and E are both named '메모'" in refusal(path)
    book_with(path, ["질문", "문맥", "답변", None, None], ["q", "c", "a", None, 3])
    (sample,) = load(path).samples()
    assert sample.extra == {"column E": 3}


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (0.123, "0.0%", "12.3%"),
        (0.005, "0%", "1%"),
        (5930, "000000", "005930"),
        (123_412_000_000, "#,##0,,", "123,412"),
        (-12, '#,##0;"△"#,##0', "△12"),
        (-12, "#,##0_);(#,##0)", "(12)"),
        (1234, "[$₩-412]#,##0", "₩1,234"),
        (12, "0.0##", "12.0"),
        (12.5, "0.00", "12.50"),
        (7, '[>5]0"건";0', "7건"),
        (0, "0;-0;-", "-"),
        (-0.0001, "0.0", "0.0"),
        (45_000, "yyyy-mm-dd", None),
        (0.5, "# ?/?", None),
        (5, "General", None),
    ],
)
def test_number_formats(value: float, form: str, text: str | None) -> None:
    assert show(value, form) == text


@given(st.integers(0, 16_383))
def test_column_letters(index: int) -> None:
    assert column_index(f"{column_letter(index)}7") == index


texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"),
    min_size=1,
    max_size=30,
).filter(lambda text: text.strip() and "_x" not in text)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_text_of_a_workbook_is_never_changed(pairs: list[tuple[str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.xlsx"
        book = openpyxl.Workbook()
        sheet = book.active
        assert sheet is not None
        sheet.append(["question", "answer", "row"])
        for number, pair in enumerate(pairs, 2):
            for column, text in enumerate((*pair, str(number)), 1):
                cell = sheet.cell(number, column)
                cell.value, cell.data_type = text, "s"
        book.save(path)
        found = [row.values for row in read_rows(path, header={"question"})]
    assert [(v["question"], v["answer"]) for v in found] == pairs


def test_a_workbook_on_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import SimpleNamespace

    path = tmp_path / "a.xlsx"
    book_with(path, ["질문", "문맥", "답변"], ["q", "c", "a"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    rows = read_rows("-", header=HEADER)
    assert [row.values["질문"] for row in rows] == ["q"]


def test_a_cell_far_out_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book = book_with(path, ["질문", "문맥", "답변"], ["q", "c", "a"])
    book["평가"]["XFD1048576"] = "x"
    book.save(path)
    message = refusal(path)
    assert "XFD1048576" in message
    assert "Ctrl+End" in message
