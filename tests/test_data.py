"""Readers: bytes of a file to rows, twice the same, every fault with its place."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import tempfile
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geval.data import READERS, Input, Invalid, Loaded, load_samples, read_rows
from geval.data.values import is_missing
from geval.errors import DataError
from geval.sample import Sample

FAMILIES = {
    "question": ["question", "query", "질문"],
    "answer": ["answer", "response", "답변"],
    "contexts": ["contexts", "context", "문맥"],
    "id": ["id", "번호"],
}
KOREAN = "번호,질문,답변\r\n가-1,매출은?,1조 2345억원\r\n가-2,이익은?,△12억원\r\n"


@dataclass(frozen=True)
class Spec:
    type: Any = "text"
    required: bool = True
    aliases: tuple[str, ...] = ()


QA: dict[str, Input] = {"question": Spec(), "answer": Spec()}


def load(data: Any, inputs: dict[str, Input] | None = None, **options: Any) -> Loaded:
    return load_samples(read_rows(data), inputs or QA, FAMILIES, **options)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def contents(loaded: Loaded) -> list[tuple[str, dict[str, Any]]]:
    return [(sample.id, dict(sample.fields)) for sample in loaded.samples()]


def refusal(data: Any, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(data, **options)
    return str(caught.value)


@pytest.mark.fault("D7")
@pytest.mark.fault("D8")
def test_encodings_of_a_korean_csv_give_identical_samples(tmp_path: Path) -> None:
    expected = [
        ("가-1", {"question": "매출은?", "answer": "1조 2345억원"}),
        ("가-2", {"question": "이익은?", "answer": "△12억원"}),
    ]
    said = {}
    for encoding in ("utf-8", "utf-8-sig", "cp949", "utf-16"):
        loaded = load(write(tmp_path / f"{encoding}.csv", KOREAN.encode(encoding)))
        assert contents(loaded) == expected
        said[encoding] = " ".join(loaded.notes)
    assert said["utf-8"] == said["utf-8-sig"] == ""
    assert "cp949" in said["cp949"]
    assert "UTF-16" in said["utf-16"]


@pytest.mark.fault("D8")
def test_cp949_holds_what_euc_kr_does_not(tmp_path: Path) -> None:
    text = "question,answer\n펲시콜라 똠방각하,햏\n"
    with pytest.raises(UnicodeDecodeError):
        text.encode("cp949").decode("euc-kr")
    sample = next(load(write(tmp_path / "a.csv", text.encode("cp949"))).samples())
    assert sample.fields == {"question": "펲시콜라 똠방각하", "answer": "햏"}


@pytest.mark.fault("D8")
def test_a_byte_of_no_encoding_is_named(tmp_path: Path) -> None:
    raw = "question,answer\n질문,답\n".encode("cp949") + b"a,\xff\n"
    message = refusal(write(tmp_path / "a.csv", raw))
    offset = raw.index(0xFF)
    assert f"0xFF at offset {offset}, line 3, is not cp949" in message
    assert "line 2, is not UTF-8" in message
    # a mark says UTF-8: no other encoding is tried
    message = refusal(write(tmp_path / "b.csv", b"\xef\xbb\xbf" + raw))
    assert "is not UTF-8" in message
    assert "cp949" not in message
    cut = KOREAN.encode("utf-16")[:-1]
    assert f"at offset {len(cut) - 1} is not UTF-16" in refusal(write(tmp_path / "c.csv", cut))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\n \n", "no text"),
        (b"question,answer\n", "a header and no rows"),
        (b"question,answer\na,b\0\n", "NUL at offset 19, line 2"),
        ("question,answer\na,b\n".encode("utf-16-le"), "NUL"),
        ("question,answer\na,\0\n".encode("utf-16"), "NUL"),
        (b"question,answer,question *\na,b,c\n", "columns 1 and 3 are both named 'question'"),
        (b'question,answer\na,b\n"c,d\ne,f\n', "row 3: a quoted cell that begins here is never"),
        (b'question,answer\na,"b" c\n', "row 2: broken quoting"),
    ],
)
def test_broken_csv(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in refusal(write(tmp_path / "a.csv", content))


@pytest.mark.fault("D9")
def test_every_fault_is_listed_with_its_row(tmp_path: Path) -> None:
    text = 'id,question,answer\n1,"a\nb",c\n2,only\n\n3,x, \n3,y,z,more\n3,u,v\n4,u,v\n"5,'
    message = refusal(write(tmp_path / "a.csv", text), skip_invalid=True)
    assert "a.csv: 6 faults; no row was judged" in message
    assert "row 4: 2 cells where the header has 3" in message
    assert "row 6: column answer: is missing or blank" in message
    assert "row 7: 4 cells where the header has 3" in message
    for row in (7, 8):
        assert f"row {row}: the id '3' stands already in row 6" in message
    assert "row 10: a quoted cell" in message


def test_cells_keep_their_text_and_rows_their_line(tmp_path: Path) -> None:
    text = 'question,answer\n\n" 첫 줄\r\n둘째\n줄\r끝 ","인용 ""x"", 끝"\n{{ a }},{% raw %}\n'
    rows = list(read_rows(write(tmp_path / "a.csv", text)))
    assert [row.source.row for row in rows] == [3, 7]  # a lone \r is a line as well
    assert rows[0].values["question"] == " 첫 줄\r\n둘째\n줄\r끝 "
    assert rows[0].values["answer"] == '인용 "x", 끝'
    assert rows[1].values == {"question": "{{ a }}", "answer": "{% raw %}"}


def test_delimiters(tmp_path: Path) -> None:
    expected = [("1", {"question": "a;b", "answer": "c\td,e"})]
    for name, text, said in (
        ("a.tsv", 'question\tanswer\na;b\t"c\td,e"\n', ""),
        ("a.csv", 'question;answer\n"a;b";c\td,e\n', "semicolons"),
        ("b.csv", 'question\tanswer\na;b\t"c\td,e"\n', "tabs"),
        ("c.csv", 'question,answer\na;b,"c\td,e"\n', ""),
    ):
        loaded = load(write(tmp_path / name, text))
        assert contents(loaded) == expected
        assert said in "".join(loaded.notes)
        assert bool(said) == bool(loaded.notes)


def test_headers_are_cleaned(tmp_path: Path) -> None:
    header = [
        unicodedata.normalize("NFD", "질문"),
        "\u200b답변\u00a0(필수)*",
        "평가\n의견",
        "",
    ]
    out = io.StringIO(newline="")
    csv.writer(out).writerows([header, ["a", "b", "c", "d"]])
    loaded = load(write(tmp_path / "a.csv", out.getvalue()))
    sample = next(loaded.samples())
    assert str(loaded.mapping) == "question <- 질문, answer <- 답변, id <- (row number)"
    assert sample.extra == {"평가 의견": "c", "column 4": "d"}


def test_long_cells_and_empty_records(tmp_path: Path) -> None:
    long = "가" * 200_000
    loaded = load(write(tmp_path / "a.csv", f"question,answer\n{long},b\n,\n , \nc,d\n"))
    assert [(s.id, s.source.row) for s in loaded.samples()] == [("1", 2), ("2", 5)]
    assert loaded.notes == ("2 rows without any text skipped",)


def test_a_cell_cut_by_excel_is_told(tmp_path: Path) -> None:
    cut = "가" * 32_767
    loaded = load(write(tmp_path / "a.csv", f"question,answer\na,{cut}\nb,{cut}x\n"))
    assert loaded.notes == (
        "row 2: column answer: exactly 32,767 characters, probably cut by Excel",
    )


def test_gzip(tmp_path: Path) -> None:
    plain = load(write(tmp_path / "a.csv", KOREAN.encode("cp949")))
    packed = load(write(tmp_path / "a.csv.gz", gzip.compress(KOREAN.encode("cp949"))))
    assert contents(packed) == contents(plain)
    assert packed.rows.sha256() == plain.rows.sha256()
    raw = b'{"question": "a", "answer": "b"}\n' * 1000
    assert load(write(tmp_path / "a.jsonl.gz", gzip.compress(raw))).n == 1000
    cut = write(tmp_path / "b.jsonl.gz", gzip.compress(raw)[:-20])
    assert "damaged or cut off" in refusal(cut)
    assert "damaged" in refusal(write(tmp_path / "c.jsonl.gz", b"no gzip"))


@pytest.mark.fault("D7")
def test_jsonl(tmp_path: Path) -> None:
    text = '\ufeff{"질문": "a\u2028b", "답변": "c", "n": NaN}\r\n\n{"질문": 1.0, "답변": true}'
    loaded = load(write(tmp_path / "a.jsonl", text))
    first, second = loaded.samples()
    assert first.fields == {"question": "a\u2028b", "answer": "c"}
    assert first.extra == {"n": None}
    assert second.fields == {"question": "1.0", "answer": "true"}
    assert (second.id, str(second.source)) == ("2", "a.jsonl, row 3")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"question": "a" "answer": "b"}', "column 18: no valid JSON: Expecting ','"),
        (b'["a"]', "is list, not a JSON object"),
        (b"null", "is null, not a JSON object"),
        (b'{"question": "\xb0\xa1", "answer": "b"}', "byte 15 of the line, 0xB0, is not UTF-8"),
        (b'{"question": "a", "answer": "b", "answer": "c"}', "key 'answer' stands twice"),
        (b'{"question": "\\ud83d", "answer": "b"}', "half a character"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"question": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"question": NaN, "answer": "b"}', "column question: is missing or blank"),
    ],
)
@pytest.mark.fault("D9")
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, words: str) -> None:
    good = b'{"question": "a", "answer": "b"}'
    path = write(tmp_path / "a.jsonl", b"\n".join([good, line, good]))
    message = refusal(path)
    assert "1 fault;" in message
    assert "row 2: " in message
    assert words in message
    assert "--skip-invalid" in message
    loaded = load(path, skip_invalid=True)
    assert [type(item) for item in loaded] == [Sample, Invalid, Sample]
    assert [item.id for item in loaded.samples()] == ["1", "3"]
    assert (loaded.n, loaded.n_invalid) == (2, 1)
    assert loaded.notes == ("1 of 3 rows are invalid and left out",)


def test_only_broken_lines(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "a.jsonl", "{\nx\n"), skip_invalid=True)
    assert "row 1: column 2" in message
    assert "row 2: column 1" in message
    assert "no rows" in refusal(write(tmp_path / "b.jsonl", "\n"))
    assert ".json" in refusal(write(tmp_path / "c.jsonl", '[{"question": "a"}]'))
    assert "UTF-16" in refusal(write(tmp_path / "d.jsonl", "{}".encode("utf-16")))


def test_json(tmp_path: Path) -> None:
    rows = [{"question": "질문", "answer": "b"}, {"question": "c", "answer": "d"}]
    loaded = load(write(tmp_path / "a.json", json.dumps(rows, indent=1)))
    assert [s.fields["question"] for s in loaded.samples()] == ["질문", "c"]
    assert "line 2, column 1" in refusal(write(tmp_path / "b.json", "[\n}"))
    assert "no list" in refusal(write(tmp_path / "c.json", "{}"))
    assert "row 2: is int" in refusal(write(tmp_path / "d.json", json.dumps([rows[0], 1])))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    message = refusal(tmp_path / "a.jsn")
    assert "Did you mean 'json'?" in message
    assert all(name in message for name in READERS)
    assert "no such file" in refusal(tmp_path / "a.jsonl")
    (tmp_path / "b.csv").mkdir()
    assert "folder" in refusal(tmp_path / "b.csv")
    path = write(tmp_path / "c.csv", KOREAN)
    with pytest.raises(DataError, match="no sheets"):
        read_rows(path, sheet="1")
    with pytest.raises(DataError, match="iterable of dicts"):
        read_rows({"question": ["a"]})


def test_a_decomposed_file_name_is_found(tmp_path: Path) -> None:
    stored = (
        tmp_path
        / unicodedata.normalize("NFD", "평가자료")
        / unicodedata.normalize("NFD", "질문.csv")
    )
    stored.parent.mkdir()
    write(stored, KOREAN)
    asked = tmp_path / "평가자료" / "질문.csv"
    assert [s.source.file for s in load(asked).samples()] == ["질문.csv"] * 2
    assert [s.source.file for s in load(stored).samples()] == ["질문.csv"] * 2


def test_a_file_changed_between_the_passes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", KOREAN)
    loaded = load(path)
    assert contents(loaded) == contents(loaded)
    write(path, KOREAN + "3,a,b\n")
    with pytest.raises(DataError, match="changed"):
        list(loaded)


def test_stdin_is_read_twice_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    raw = '{"질문": "a", "답변": "b"}\n'.encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    loaded = load("-")
    assert contents(loaded) == contents(loaded) == [("1", {"question": "a", "answer": "b"})]
    assert loaded.rows.name == "stdin"
    assert len(list(tmp_path.iterdir())) == 1
    del loaded
    assert not list(tmp_path.iterdir())


def test_rows_in_memory() -> None:
    rows = [{"question": "a", "answer": "b"}, {"question": "c", "answer": "d"}]
    listed = load(rows)
    once = load(dict(reversed(row.items())) for row in rows)
    assert contents(once) == contents(once) == contents(listed)
    assert once.rows.sha256() == listed.rows.sha256()
    assert load(rows[:1]).rows.sha256() != listed.rows.sha256()
    assert "row 2: is of type list" in refusal([rows[0], ["a"]])
    assert "no rows" in refusal([])


@pytest.mark.fault("D6")
def test_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    numpy = pytest.importorskip("numpy")
    frame = pandas.DataFrame(
        {
            "question": ["nan", "b", "c", "d", "e"],
            "답변": ["NA", float("nan"), pandas.NaT, pandas.NA, numpy.float32("nan")],
            "count": [1, 2, 3, 4, 5],
        }
    )
    message = refusal(frame)
    assert [f"row {n}: column 답변 (answer): is missing" in message for n in (1, 2, 3, 4, 5)] == [
        False,
        True,
        True,
        True,
        True,
    ]
    loaded = load(frame, skip_invalid=True)
    (sample,) = loaded.samples()
    assert sample.fields == {"question": "nan", "answer": "NA"}
    assert json.dumps(sample.extra) == '{"count": 1}'
    assert len(loaded.rows.sha256()) == 64
    lists = pandas.DataFrame({"question": [1.0], "contexts": [numpy.array(["a", "b"])]})
    (sample,) = load(lists, {"question": Spec(), "contexts": Spec("texts")}).samples()
    assert sample.fields == {"question": "1", "contexts": ("a", "b")}
    twice = pandas.DataFrame([["a", "b"]], columns=["question", "question"])
    assert "two columns" in refusal(twice)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
names = st.text(st.characters(categories=["L", "N"], max_codepoint=0x2FF), min_size=1)


@given(st.lists(names, min_size=1, max_size=4, unique_by=lambda n: n.casefold()), st.data())
@settings(max_examples=150, deadline=None)
def test_text_survives_files(columns: list[str], data: st.DataObject) -> None:
    columns = list(dict.fromkeys(unicodedata.normalize("NFC", name) for name in columns))
    rows = data.draw(
        st.lists(st.fixed_dictionaries(dict.fromkeys(columns, texts)), min_size=1, max_size=5)
    )
    rows = [{"row": str(number), **row} for number, row in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder:
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            path = Path(folder) / f"{encoding}.csv"
            with path.open("w", encoding=encoding, newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), quoting=csv.QUOTE_ALL)
                writer.writeheader()
                writer.writerows(rows)
            assert [row.values for row in read_rows(path)] == rows
        path = Path(folder) / "a.jsonl"
        with path.open("w", encoding="utf-8", newline="") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        assert [row.values for row in read_rows(path)] == rows


@given(st.lists(texts.filter(lambda text: not is_missing(text)), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_judged_text_is_never_changed(answers: list[str]) -> None:
    loaded = load([{"question": "q", "answer": answer} for answer in answers])
    assert [sample.fields["answer"] for sample in loaded.samples()] == answers
