"""What a file says is what a judge sees: digits, depth, names of files, formats, memory."""

from __future__ import annotations

import io
import json
import os
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_data import KOREAN, QA, contents, load, refusal, write

from geval.data import Invalid, read_rows
from geval.data.values import as_text, parse_json, plain


@pytest.mark.parametrize(
    "text", ["12.50", "1e400", "-0.0", "1.0", "6.02E+23", "123456789012345678901234567890"]
)
def test_json_numbers_keep_their_text(tmp_path: Path, text: str) -> None:
    line = f'{{"question": {text}, "answer": {{"값": [{text}, "{text}"]}}}}\n'
    (sample,) = load(write(tmp_path / "a.jsonl", line)).samples()
    inner = f'"{text}"' if text == "1e400" else text  # no JSON number for other readers
    assert sample.fields == {"question": text, "answer": f'{{"값": [{inner}, "{text}"]}}'}


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.integers()
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=5), s, max_size=3),
        max_leaves=8,
    )
)
def test_nested_values_are_shown_as_the_same_json(value: Any) -> None:
    text = json.dumps([value], ensure_ascii=False)
    found = parse_json(text)
    assert as_text(found) == text
    assert json.loads(json.dumps(plain(found))) == [value]


@pytest.mark.parametrize("depth", [101, 400, 900, 10_000, 100_000])
def test_deep_rows_are_a_fault_not_a_crash(tmp_path: Path, depth: int) -> None:
    line = (
        '{"question": "q", "answer": ' + '{"a":[' * (depth // 2) + "1" + "]}" * (depth // 2) + "}"
    )
    good = '{"question": "q", "answer": "a"}'
    message = refusal(write(tmp_path / "a.jsonl", f"{good}\n{line}\n"))
    assert "row 2: nested too deeply" in message
    assert "nested too deeply" in refusal(write(tmp_path / "a.json", f"[{good},{line}]"))
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    if depth > 2_000:
        assert "nested too deeply" in refusal([{"question": "q", "answer": value}])


def test_skipped_rows_keep_their_ids(tmp_path: Path) -> None:
    loaded = load(
        write(tmp_path / "a.csv", "id,question,answer\n가-1,q,a\n가-2,q,\n가-3,q\n"),
        skip_invalid=True,
    )
    assert [item.id for item in loaded] == ["가-1", "가-2", "가-3"]
    assert [isinstance(item, Invalid) for item in loaded] == [False, True, True]


def test_a_missing_file_is_told_by_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "평가자료.csv", KOREAN)
    write(tmp_path / "answers.jsonl", "")
    assert "'평가자료.csv'" in refusal(tmp_path / "평가자로.csv")
    assert "'answers.jsonl'" in refusal(tmp_path / "answers.csv")
    assert "There is no folder" in refusal(tmp_path / "nowhere" / "a.csv")


def test_a_file_name_that_is_no_utf_8(tmp_path: Path) -> None:
    name = os.fsdecode("평가.csv".encode("cp949"))
    try:
        path = write(tmp_path / name, KOREAN)
    except (OSError, UnicodeError):
        pytest.skip("this file system keeps no such name")
    assert len(contents(load(path))) == 2


@pytest.mark.parametrize(
    ("raw", "rows"),
    [
        (KOREAN.encode("cp949"), 2),
        (KOREAN.encode("utf-16"), 2),
        (json.dumps([{"질문": "q", "답변": "a"}]).encode(), 1),
        (b'\n {"question": "q", "answer": "a"}\n', 1),
    ],
)
def test_stdin_is_read_by_its_content(
    monkeypatch: pytest.MonkeyPatch, raw: bytes, rows: int
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    assert load("-").n == rows


def test_unicode_text_of_excel(tmp_path: Path) -> None:
    text = "질문\t답변\r\nq, 1\ta\r\n"
    loaded = load(write(tmp_path / "a.txt", text.encode("utf-16")))
    assert contents(loaded) == [("1", {"question": "q, 1", "answer": "a"})]


def test_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    table = arrow.table({"질문": ["q", "r"], "답변": ["a", None], "점수": [4, 5]})
    parquet.write_table(table, path)
    assert "row 2: column 답변 (answer): is missing" in refusal(path)
    assert [s.extra for s in load(path, skip_invalid=True).samples()] == [{"점수": 4}]
    assert "no Parquet" in refusal(write(tmp_path / "b.parquet", b"PAR1 no more"))


def test_without_pyarrow_the_install_line_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from geval.errors import ConfigError

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"geval\[parquet\]"):
        load(write(tmp_path / "a.parquet", b"PAR1"))


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"question": ["q", "r"], "answer": ["a", None]})
    assert "row 2: column answer: is missing" in refusal(frame)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    def peak(n: int) -> int:
        path = tmp_path / f"{n}.csv"
        with path.open("w", encoding="utf-8") as file:
            file.write("id,question,answer\n")
            file.writelines(f"row-{i},{'질문' * 50},{'답' * 100}\n" for i in range(n))
        loaded = load(path)  # imports and caches are not counted
        del loaded
        tracemalloc.start()
        try:
            for _ in load(path):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak(1_000), peak(20_000)
    assert (large - small) / 19_000 < 200  # a hash of each id and its place in a set that grew


def test_rows_in_files_and_memory_agree(tmp_path: Path) -> None:
    rows = [{"question": "질문", "answer": "답"}]
    assert QA.keys() == rows[0].keys()
    path = write(tmp_path / "a.jsonl", json.dumps(rows[0]))
    assert contents(load(path)) == contents(load(rows))
    assert [row.values for row in read_rows(path)] == rows
