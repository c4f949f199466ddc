"""Reasons come in the template's language: told by words, asked again once, then flagged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import ROWS, TEMPLATE, replay, write_lines, write_template
from test_cli import geval

from geval.locale import load_locale
from geval.reading.language import language_of

KO, EN = load_locale("ko"), load_locale("en")
GIVEN = [
    "Dasom Electronics의 매출은 얼마인가?",
    "Revenue rose to KRW 1,234억원. Operating margin fell.",
]

KOREAN = [
    "ROE 12.3%, EBITDA 1,234억원 모두 일치.",
    "3Q25 OP는 YoY +12.3%로 다르다.",
    "前日比 기준이 다르다",
    "문맥에 없음.",
    "답변의 값이 근거 문서의 값과 같다.",
    "Dasom Electronics의 매출 1,234억원이 문서와 일치한다.",
    "문서의 “Revenue rose to KRW 1,234억원”과 답변의 값이 같다.",
    "`revenue_total`의 값과 다르다.",
    "자세한 내용은 https://example.com/a/very/long/english/path 에 있으나 답변과 다르다.",
    "Samsung Corp.의 영업이익이 문서와 다르다.",
    "전년 同期 대비 증가율이 다르다.",
    "매출은 3,600억원(누계)인데 3분기 값으로 답함.",
    "근거 문서에는 △12억원으로 적혀 있음",
    "Operating margin이 하락한 것이 맞다.",
]
OTHER_KO = [
    "The answer matches the documents.",
    "답변의 数值与上下文不符",
    "The value in the answer is wrong, it should be higher.",
    "数值与文档一致，方向正确。",
    "回答の値は文書と一致しています。",
    "Значение в ответе неверно.",
    "The answer 답변 is not supported by any of the documents given.",
    "Correct. All values match, including the sign and the direction.",
    "Le montant indiqué est exact.",
    "이 answer does not match the documents because the period is different",
]
UNDETERMINED = ["", "12.3%", "1,234", "O", "OK", "4", "...", "ROE 12.3%", "→ 5", "없음"]
MIXED_KO = [
    "The final verdict here is 값이 다르고 기간도 다르다.",
    "Amount mismatch: period wrong, 값이 다르다",
]
ENGLISH = [
    "The answer matches the documents.",
    "Revenue of 1,234억원 matches the document.",
    "The revenue of 다솜전자 is stated correctly.",
    "ROE is 12.3% in both.",
    "No such figure is in the documents.",
    "It doesn't match; the period isn't the one asked for.",
    "Café revenue is naïvely rounded.",
    "The document says “매출은 얼마인가”, the answer differs.",
]
OTHER_EN = [
    "답변의 값이 근거 문서의 값과 같다.",
    "数值与文档一致，方向正确。",
    "回答の値は文書と一致しています。",
    "ROE 12.3%, EBITDA 1,234억원 모두 일치.",
    "Значение в ответе неверно.",
    "문맥에 없음.",
    "답변의 value가 문서와 다르다.",
]


@pytest.mark.fault("T9")
@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        *((t, "ko", "same") for t in KOREAN),
        *((t, "ko", "other") for t in OTHER_KO),
        *((t, "ko", "undetermined") for t in UNDETERMINED),
        *((t, "ko", "mixed") for t in MIXED_KO),
        *((t, "en", "same") for t in ENGLISH),
        *((t, "en", "other") for t in OTHER_EN),
        ("12.3%", "en", "undetermined"),
        ("EBITDA", "en", "undetermined"),
    ],
)
def test_words_tell_the_language(text: str, code: str, expected: str) -> None:
    assert language_of(text, load_locale(code), GIVEN) == expected


def test_decomposed_letters_are_the_same_letters() -> None:
    import unicodedata

    for text in KOREAN:
        assert language_of(unicodedata.normalize("NFD", text), KO, GIVEN) == "same"


def test_a_language_of_two_scripts() -> None:
    japanese = KO.model_copy(update={"script": "Kana+Han", "sentence_endings": ()})
    assert language_of("回答の値は文書と一致しています。", japanese) == "same"
    assert language_of("数值与文档一致，方向正确。", japanese) == "other"
    assert language_of("답변의 값이 문서와 같다.", japanese) == "other"


ENGLISH_REASON = "The answer matches the documents well."
KOREAN_REASON = "답변의 값이 문서와 같다."


def run(
    folder: Path, replies: list[dict[str, object]], *more: str, order: str = "score_first"
) -> dict[str, dict[str, object]]:
    text = TEMPLATE.replace("locale: en", "locale: ko").replace(
        "order: score_first", f"order: {order}"
    )
    text = text.replace("  style: Is the answer well written?\n", "")
    path = write_template(folder, text, "fit.ko.jinja")
    write_lines(folder / "rows.jsonl", ROWS[:1])
    judges = more or ("-j", replay(folder, replies))
    done = geval(
        "score", "rows.jsonl", "-t", path, *judges, "--reasons", "all", "--json", "--no-cache", cwd=folder
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {r["criterion"]: r for r in map(json.loads, done.stdout.splitlines())}
    return {**found, "said": {"stderr": done.stderr}}


def reply(text: str, purpose: str = "score", **more: object) -> dict[str, object]:
    return {"id": "a", "criterion": "accuracy", "purpose": purpose, "text": text, **more}


SCORE = {"alternatives": {"4": 0.6, "5": 0.4}}


@pytest.mark.fault("T9")
def test_a_reason_in_the_same_reply_is_asked_for_again_and_the_score_stays(tmp_path: Path) -> None:
    found = run(
        tmp_path, [reply(f"4\n{ENGLISH_REASON}", **SCORE), reply(KOREAN_REASON, "reason_retry")]
    )
    line = found["accuracy"]
    assert line["score"] == pytest.approx(4.4)
    assert line["reason"] == KOREAN_REASON
    assert line["warnings"] == []


@pytest.mark.fault("T9")
@pytest.mark.parametrize("second", [ENGLISH_REASON, "", "5", None])
def test_a_second_failure_is_flagged_and_counted(tmp_path: Path, second: str | None) -> None:
    more = [] if second is None else [reply(second, "reason_retry")]
    found = run(tmp_path, [reply(f"4\n{ENGLISH_REASON}", **SCORE), *more])
    line = found["accuracy"]
    assert (line["status"], line["reason"]) == ("scored", ENGLISH_REASON)
    assert line["score"] == pytest.approx(4.4)
    assert line["warnings"] == ["reason_language"]
    assert "1" in str(found["said"]["stderr"])


def test_a_korean_reason_is_not_asked_for_again(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        [reply(f"4\n{KOREAN_REASON}", **SCORE), reply("다시 쓴 판단 이유이다.", "reason_retry")],
    )
    assert found["accuracy"]["reason"] == KOREAN_REASON


@pytest.mark.fault("T9")
def test_reason_first_and_single_are_checked(tmp_path: Path) -> None:
    text = f"{ENGLISH_REASON}\n최종 점수: 4"
    found = run(
        tmp_path, [], "-j", replay(tmp_path, [reply(text), reply(KOREAN_REASON, "reason_retry")]),
        "--method", "single", order="reason_first",
    )  # fmt: skip
    assert found["accuracy"]["score"] == 4
    assert found["accuracy"]["reason"] == KOREAN_REASON


@pytest.mark.fault("T9")
def test_a_reason_of_its_own_turn_is_checked(tmp_path: Path) -> None:
    replies = [reply("4"), reply(ENGLISH_REASON, "reason"), reply(KOREAN_REASON, "reason_retry")]
    found = run(tmp_path, [], "-j", replay(tmp_path, replies), "--method", "single")
    assert found["accuracy"]["reason"] == KOREAN_REASON


@pytest.mark.fault("T9")
def test_the_reason_of_a_panel_keeps_its_flag(tmp_path: Path) -> None:
    wrong = replay(tmp_path, [reply(f"4\n{ENGLISH_REASON}", **SCORE)])
    found = run(tmp_path, [], "-j", wrong, "-j", wrong)
    assert found["accuracy"]["warnings"] == ["reason_language"]


@pytest.mark.fault("T9")
def test_the_second_question_shows_the_first_reason_and_asks_for_nothing_else(
    tmp_path: Path,
) -> None:
    replies = [reply(f"4\n{ENGLISH_REASON}", **SCORE), reply(KOREAN_REASON, "reason_retry")]
    run(tmp_path, replies, "-j", replay(tmp_path, replies), "-o", "run")
    lines = (tmp_path / "run" / "replies.jsonl").read_text(encoding="utf-8").splitlines()
    first, second = map(json.loads, lines)
    *shared, said, asked = second["messages"]
    assert shared == first["messages"]
    assert said["content"] == f"4\n{ENGLISH_REASON}"
    assert asked["content"] == KO.frame["reason_retry"]
