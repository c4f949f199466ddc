"""Columns to fields, cells to values, ids and labels."""

from __future__ import annotations

import datetime
import tracemalloc
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from geval.data import Input, Invalid, Loaded, load_samples, map_columns, read_rows
from geval.data.columns import clean, fold
from geval.errors import DataError
from geval.locale import column_families
from geval.sample import Sample

FAMILIES = {
    "question": ["question", "query", "input", "질문", "사용자 질의"],
    "answer": ["answer", "response", "output", "gen_answer", "답변", "모델답변"],
    "contexts": ["contexts", "context", "문맥", "source"],
    "reference": ["reference", "gt_answer", "정답"],
    "label": ["label", "score", "점수"],
    "id": ["id", "no", "no.", "번호"],
    "group": ["group", "doc_id", "문서번호"],
    "reason": ["reason", "사유"],
}


@dataclass(frozen=True)
class Spec:
    type: Any = "text"
    required: bool = True
    aliases: tuple[str, ...] = ()


FINANCE: dict[str, Input] = {
    "question": Spec(),
    "contexts": Spec("texts"),
    "answer": Spec(),
    "reference": Spec(required=False),
}
ANSWER: dict[str, Input] = {"answer": Spec()}
CONTEXTS: dict[str, Input] = {"contexts": Spec("texts")}


def load(rows: list[Any], inputs: dict[str, Input], **options: Any) -> Loaded:
    return load_samples(read_rows(rows), inputs, FAMILIES, **options)


def sample(row: dict[str, Any], inputs: dict[str, Input], **options: Any) -> Sample:
    (found,) = load([row], inputs, **options).samples()
    return found


def faults(row: dict[str, Any], inputs: dict[str, Input], **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        load([row], inputs, **options)
    return str(caught.value)


def mapped(columns: list[str], inputs: dict[str, Input], user: Any = ()) -> str:
    return str(map_columns(columns, inputs, FAMILIES, user))


def refused(columns: list[str], inputs: dict[str, Input], user: Any = ()) -> str:
    with pytest.raises(DataError) as caught:
        map_columns(columns, inputs, FAMILIES, user)
    return str(caught.value)


def test_common_columns_map_without_flags() -> None:
    assert mapped(["context", "question", "gen_answer", "gt_answer", "비고"], FINANCE) == (
        "question <- question, contexts <- context, answer <- gen_answer, "
        "reference <- gt_answer, id <- (row number)"
    )
    found = mapped(["번호", "문서번호", "사용자질의", "문맥", "답변", "점수"], FINANCE)
    assert found == (
        "question <- 사용자질의, contexts <- 문맥, answer <- 답변, reference <- (none), "
        "id <- 번호, group <- 문서번호, label <- 점수"
    )


def test_the_shipped_locales_name_the_columns_of_korean_sheets() -> None:
    columns = ["연번", "질의문", "근거 문서", "챗봇 답변", "모범답안", "평가점수", "문서 번호"]
    found = map_columns(columns, FINANCE, column_families())
    assert found.fields == {
        "question": ("질의문",),
        "contexts": ("근거 문서",),
        "answer": ("챗봇 답변",),
        "reference": ("모범답안",),
    }
    assert (found.id, found.label, found.group) == ("연번", "평가점수", "문서 번호")


def test_order_of_the_steps() -> None:
    inputs: dict[str, Input] = {"answer": Spec(aliases=("submission",))}
    columns = ["response", "submission", "ANSWER", "answer"]
    assert mapped(columns, inputs, ["answer=response"]).startswith("answer <- response")
    assert mapped(columns, inputs).startswith("answer <- answer,")
    assert mapped(columns[:3], inputs).startswith("answer <- ANSWER")
    assert mapped(columns[:2], inputs).startswith("answer <- submission")
    assert mapped(columns[:1], inputs).startswith("answer <- response")


def test_names_compare_folded() -> None:
    for name in ("Gen Answer", "GEN_ANSWER", "genanswer ", "*gen_answer (필수)", "gen\nanswer"):
        assert fold(name) == "genanswer"
        assert name in mapped([name], ANSWER)
    nfd = unicodedata.normalize("NFD", "모델 답변")
    assert nfd in mapped([nfd], ANSWER)
    assert mapped([nfd], ANSWER, ["answer=모델답변"]).startswith(f"answer <- {nfd}")
    assert clean("\ufeff 기대\u00a0\n답변（필수）* ") == "기대 답변"


def test_two_candidates_are_asked_about() -> None:
    message = refused(["response", "output"], ANSWER)
    assert "'response', 'output'" in message
    assert "--map answer=response" in message
    assert "answer <- output" in mapped(["response", "output"], ANSWER, {"answer": "output"})
    message = refused(["Answer", "ANSWER_"], ANSWER)
    assert "'Answer', 'ANSWER_'" in message
    message = refused(["답변_A", "답변_B"], ANSWER)
    assert "answer may be '답변_A' or '답변_B'" in message
    assert "--map answer=답변_A" in message
    columns = ["question", "contexts", "answer", "gt_answer", "정답"]
    assert "(or --map reference= for none)" in refused(columns, FINANCE)
    assert "reference <- (none)" in mapped(columns, FINANCE, ["reference="])


def test_a_mapping_error_lists_each_fault_once_and_the_broken_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"답변_A": "a", "답변_B": "b"}\nbroken\n', encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_samples(read_rows(path), ANSWER, FAMILIES)
    assert caught.value.faults == (
        "answer may be '답변_A' or '답변_B'",
        "row 2: column 1: no valid JSON: Expecting value",
    )
    assert str(caught.value).count("may be") == 1
    assert str(caught.value).startswith("a.jsonl: no column for answer\n")


def test_a_name_of_two_families_is_asked_about() -> None:
    message = refused(["근거"], CONTEXTS)
    assert "'근거' may be contexts or reason" in message
    assert "--map contexts=근거" in message
    assert mapped(["근거"], CONTEXTS, ["contexts=근거"]).startswith("contexts <- 근거")
    assert mapped(["근거", "문맥"], CONTEXTS).startswith("contexts <- 문맥,")
    assert mapped(["근거", "답변"], ANSWER).startswith("answer <- 답변,")
    own: dict[str, Input] = {"contexts": Spec("texts", aliases=("근거",))}
    assert mapped(["근거"], own).startswith("contexts <- 근거")


def test_a_column_of_another_field_is_not_taken() -> None:
    inputs: dict[str, Input] = {"contexts": Spec("texts"), "source": Spec(required=False)}
    assert mapped(["source", "context"], inputs).startswith("contexts <- context, source <- source")
    assert mapped(["context"], inputs).startswith("contexts <- context, source <- (none)")
    assert "no column for contexts" in refused(["source"], inputs)
    assert mapped(["source"], CONTEXTS).startswith("contexts <- source")
    two: dict[str, Input] = {"output": Spec(), "response": Spec()}
    assert "'답변' may be output or response" in refused(["답변"], two)


@pytest.mark.fault("T3")
def test_a_missing_column_is_named_with_its_nearest() -> None:
    message = refused(["quesion", "문맥", "memo"], FINANCE)
    assert "no column for question, answer" in message
    assert "Did you mean 'quesion'? Known: memo, quesion, 문맥." in message
    assert "--map question=" in message
    assert "Did you mean 'answer'?" in refused(["답변"], ANSWER, ["anser=답변"])
    assert "Did you mean '답변'?" in refused(["답변"], ANSWER, ["answer=답변1"])
    assert "expected field=column" in refused(["답변"], ANSWER, ["answer"])


@pytest.mark.fault("D1")
def test_numbered_columns_become_one_list() -> None:
    row = {"문맥10": "j", "문맥_2": "b", "문맥1": "a", "문맥3": " ", "answer": "x"}
    both = {**CONTEXTS, **ANSWER}
    found = load([row], both)
    assert str(found.mapping).startswith("contexts <- 문맥1 + 문맥_2 + 문맥3 + 문맥10, ")
    assert next(found.samples()).fields["contexts"] == ("a", "b", "j")
    assert next(found.samples()).extra == {}
    assert sample({"contexts2": "b", "contexts1": ["a", "c"]}, CONTEXTS).fields["contexts"] == (
        "a",
        "c",
        "b",
    )
    assert "2 columns may be contexts" in refused(["context1", "context2", "문맥"], CONTEXTS)
    assert "no column" in refused(["answer1", "answer2"], ANSWER)
    chosen = sample({"p": "a", "q": "b"}, CONTEXTS, map=["contexts=q", "contexts=p"])
    assert chosen.fields["contexts"] == ("b", "a")


@pytest.mark.fault("P11")
@pytest.mark.fault("P12")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (" 앞뒤 \r\n공백 ", " 앞뒤 \r\n공백 "),
        (5930.0, "5930"),
        (12, "12"),
        (0.1, "0.1"),
        (1e-05, "0.00001"),
        (1e16, "10000000000000000"),
        (-1.5e300, "-1.5e+300"),
        (10**30, "1" + "0" * 30),
        (Decimal("12.30"), "12.30"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        ({"매출": [1, None, "억"]}, '{"매출": [1, null, "억"]}'),
        (["가", 1.5], '["가", 1.5]'),
        (datetime.date(2025, 9, 30), "2025-09-30"),
        ("NA", "NA"),
        ("nan", "nan"),
        ("None", "None"),
        ("[]", "[]"),
    ],
)
def test_text_of_values(value: Any, text: str) -> None:
    assert sample({"answer": value}, ANSWER).fields["answer"] == text


@pytest.mark.fault("D2")
@pytest.mark.fault("D3")
@pytest.mark.fault("D6")
@pytest.mark.parametrize(
    "value", [None, "", " \n\u3000\u200b", float("nan"), Decimal("nan"), [], [""], [None, [" "]]]
)
def test_missing_values(value: Any) -> None:
    for kind in ("text", "texts", "messages"):
        inputs: dict[str, Input] = {"answer": Spec(kind)}
        assert "row 1: column answer: is missing or blank" in faults({"answer": value}, inputs)
    optional: dict[str, Input] = {"question": Spec(), "contexts": Spec("texts", required=False)}
    assert sample({"question": "a", "contexts": value}, optional).fields["contexts"] is None


@pytest.mark.fault("D3")
@pytest.mark.parametrize("value", ["[]", '[""]', "[null]"])
def test_an_empty_list_in_a_cell_is_missing(value: str) -> None:
    assert "column 문맥 (contexts): is missing" in faults({"문맥": value}, CONTEXTS)


@pytest.mark.fault("D1")
def test_lists_of_texts() -> None:
    rows: list[Any] = [
        {"contexts": ["가", 1.0, {"본문": "나"}]},
        {"contexts": ' ["a", "b"]'},
        {"contexts": "한 문맥"},
        {"contexts": "[표 1] 매출"},
        {"contexts": ["a", "", None]},
    ]
    loaded = load(rows, CONTEXTS)
    assert [item.fields["contexts"] for item in loaded.samples()] == [
        ("가", "1", '{"본문": "나"}'),
        ("a", "b"),
        ("한 문맥",),
        ("[표 1] 매출",),
        ("a",),
    ]
    assert loaded.notes == (
        "row 3 and 1 more: column contexts: one text where a list belongs: taken as a list of one",
        "row 5: column contexts: blank items of a list left out",
    )
    for printed in ("['a', 'b']", "['a'\n 'b']", "[\"a\" 'b']"):
        assert "no JSON" in faults({"contexts": printed}, CONTEXTS)


def test_conversations() -> None:
    inputs: dict[str, Input] = {"history": Spec("messages")}
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "가"},
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
    ]
    expected = (turns[0], {**turns[1], "content": ""})
    assert sample({"history": turns}, inputs).fields["history"] == expected
    text = '[{"role": "user", "content": ["가"]}]'
    assert sample({"history": text}, inputs).fields["history"] == (
        {"role": "user", "content": '["가"]'},
    )
    alone = load([{"history": "안녕"}], inputs)
    assert next(alone.samples()).fields["history"] == ({"role": "user", "content": "안녕"},)
    assert "one message of the user" in alone.notes[0]
    assert "message 1 is no object" in faults({"history": ["안녕"]}, inputs)
    assert "message 1 has no content" in faults({"history": [{"role": "user"}]}, inputs)
    assert "no list of messages" in faults({"history": 3}, inputs)


def test_half_a_character_is_a_fault() -> None:
    assert "U+D83D" in faults({"answer": "a\ud83d"}, ANSWER)


def test_inputs_and_labels_are_flattened() -> None:
    row = {
        "inputs": {"question": "a", "contexts": ["b"]},
        "answer": "c",
        "labels": {"numeric_accuracy": 4, "completeness": None},
        "groundedness": "3점",
        "memo": "d",
    }
    found = sample(row, FINANCE, criteria=["groundedness", "numeric_accuracy"])
    assert found.fields == {"question": "a", "contexts": ("b",), "answer": "c", "reference": None}
    assert found.labels == {"numeric_accuracy": 4, "groundedness": "3점"}
    assert found.extra == {"memo": "d"}
    assert "stands beside `inputs`" in faults({**row, "question": "x"}, FINANCE)
    own: dict[str, Input] = {"inputs": Spec()}
    assert sample({"inputs": {"a": 1}}, own).fields == {"inputs": '{"a": 1}'}
    assert sample({"inputs": '{"answer": "a"}'}, ANSWER).fields == {"answer": "a"}


def test_labels() -> None:
    for value, labels in (
        (4, {"overall": 4}),
        ("상", {"overall": "상"}),
        ("", {}),
        (float("nan"), {}),
        ({"a": 1, "b": None}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
    ):
        assert sample({"answer": "x", "점수": value}, ANSWER).labels == labels
    both = {"answer": "x", "labels": {"overall": 1}, "label": 2}
    assert "two labels for overall: 1 and 2" in faults(both, ANSWER)
    assert sample({**both, "label": 1}, ANSWER).labels == {"overall": 1}
    assert sample({"answer": "x", "labels": 3}, ANSWER).labels == {"overall": 3}


def test_ids() -> None:
    nfd = unicodedata.normalize("NFD", "가-1")
    rows: list[Any] = [
        {"id": "가-1", "answer": "a"},
        {"id": 2.0, "answer": "b"},
        {"id": nfd, "answer": "c"},
        {"id": "2", "answer": ""},
        {"id": None, "answer": "e"},
    ]
    with pytest.raises(DataError) as caught:
        load(rows, ANSWER)
    assert caught.value.faults == (
        "row 3: the id '가-1' stands already in row 1",
        "row 4: column answer: is missing or blank",
        "row 4: the id '2' stands already in row 2",
        "row 5: column id: the id is missing",
    )
    items = list(load(rows, ANSWER, skip_invalid=True))
    assert [item.id for item in items] == [
        "가-1", "2", "가-1 (again in row 3)", "2 (again in row 4)", "@5",
    ]  # fmt: skip
    assert [isinstance(item, Invalid) for item in items] == [False, False, True, True, True]
    assert isinstance(items[3], Invalid)
    assert items[3].reason == "column answer: is missing or blank; " + (
        "the id '2' stands already in row 2"
    )


def test_group() -> None:
    assert sample({"answer": "a", "문서번호": 7.0}, ANSWER).group == "7"
    assert sample({"answer": "a", "doc_id": " "}, ANSWER).group is None


def test_nothing_valid_is_refused_even_when_skipping() -> None:
    assert "no row was judged" in faults({"answer": ""}, ANSWER, skip_invalid=True)


class Many:
    """Rows that are made as they are read."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[dict[str, str]]:
        return ({"id": f"row {i}", "answer": "x" * 100} for i in range(self.n))


def test_memory_does_not_grow_with_rows() -> None:
    def peak(n: int) -> int:
        tracemalloc.start()
        loaded = load_samples(read_rows(Many(n)), ANSWER, FAMILIES)
        assert sum(1 for _ in loaded) == loaded.n == n
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    # A row itself takes over a kilobyte; what finds repeated ids has a fixed size.
    assert (peak(6_000) - peak(1_000)) / 5_000 < 250


def test_many_faults_are_counted_and_not_all_kept() -> None:
    rows = [{"answer": ""}] * 10_050 + [{"answer": "a"}]
    with pytest.raises(DataError, match="10050 faults") as caught:
        load(rows, ANSWER)
    assert len(caught.value.faults) == 10_001
    assert caught.value.faults[-1] == "50 further faults"
