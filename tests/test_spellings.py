"""What a judge's Korean and English words mean on a scale, whole words only."""

from __future__ import annotations

import pytest

from geval.locale import column_families, load_locale
from geval.scale import NA, Scale, scale_from


def scale(code: str, values: dict[str, float] | list[float]) -> Scale:
    locale = load_locale(code)
    return scale_from(
        values,
        groups=locale.levels,
        not_applicable="-",
        not_applicable_spellings=locale.not_applicable,
    )


YES_NO = {"아니요": 0.0, "예": 1.0}
SIGNS = {"X": 0.0, "△": 1.0, "O": 2.0}
GRADES = {"하": 0.0, "중": 1.0, "상": 2.0}
TRUTH = {"거짓": 0.0, "참": 1.0}
DIGITS = [1.0, 2.0, 3.0, 4.0, 5.0]

MEANT = [
    *((YES_NO, t, 1) for t in (
        "예", " 예", '"예"', "**예**", "예.", "예, 확인됩니다", "예입니다", "네", "네.", "넵", "그렇습니다",
        "그렇다", "맞습니다", "뒷받침됩니다", "뒷받침됨", "확인됨", "yes", "Yes", "YES.", "true",
    )),
    *((YES_NO, t, 0) for t in (
        "아니요", "아니오", "아뇨", "아니요.", "아니다", "아닙니다", "아님", "뒷받침되지 않음", "뒷받침되지 않습니다",
        "확인할 수 없음", "확인되지 않음", "맞지 않습니다", "no", "No.", "‘아니요’",
    )),
    *((SIGNS, t, 2) for t in ("O", "o", "Ｏ", "○", "〇", "◯", "ㅇ", "⭕", "O.", "동그라미")),
    *((SIGNS, t, 1) for t in ("△", "세모", "△.")),
    *((SIGNS, t, 0) for t in ("X", "x", "Ｘ", "×", "✕", "✗", "❌", "엑스")),
    *((GRADES, t, 2) for t in ("상", "상.", "상입니다", "높음", "**상**")),
    *((GRADES, t, 1) for t in ("중", "중입니다", "중간")),
    *((GRADES, t, 0) for t in ("하", "하입니다", "낮음", "「하」")),
    *((TRUTH, t, 1) for t in ("참", "참입니다", "사실이다")),
    *((TRUTH, t, 0) for t in ("거짓", "거짓입니다", "사실이 아니다", "사실 아님")),
    *((DIGITS, t, 3) for t in ("4", "４", "4점", "４점", "4점입니다", " 4", "**4**", "4점.", "4\n이유")),
    *((DIGITS, t, NA) for t in ("해당없음", "해당 없음", "해당사항 없음", "‘해당없음’", "N/A", "판정 불가")),
]  # fmt: skip
OUTSIDE = [
    *((YES_NO, t) for t in (
        "예상", "예상됨", "예를 들어", "네이버", "네트워크", "아마", "아직", "아니면", "yesterday", "north", "뒷받침", "확인",
    )),
    *((GRADES, t) for t in ("하락", "하락함", "상승", "상승함", "중요", "중요함", "중립", "상장사")),
    *((TRUTH, t) for t in ("참고", "참고하면", "참여", "거짓말")),
    *((SIGNS, t) for t in ("OO증권", "Oracle", "XYZ", "△12억원")),
    *((DIGITS, t) for t in (
        "5점 만점에 4점", "1~5점 중 4점", "4.5", "4개", "45", "4%", "4분기", "②", "²", "4-5", "1, 2, 3, 4, 5",
        "4조 원", "3건",
    )),
]  # fmt: skip


@pytest.mark.fault("P10")
@pytest.mark.parametrize(("values", "text", "level"), MEANT)
def test_a_word_means_its_level(values: dict[str, float], text: str, level: int) -> None:
    assert scale("ko", values).parse(text) == level


@pytest.mark.fault("P10")
@pytest.mark.parametrize(("values", "text"), OUTSIDE)
def test_a_longer_word_is_no_level(values: dict[str, float], text: str) -> None:
    assert scale("ko", values).parse(text) is None


@pytest.mark.fault("P8")
def test_a_denial_never_counts_for_what_it_holds() -> None:
    yes_no = scale("ko", YES_NO)
    for text in ("뒷받침되지 않음", "확인되지 않음", "맞지 않습니다", "그렇지 않다"):
        for end in range(1, len(text) + 1):
            match = yes_no.match(text[:end], end=end == len(text))
            assert match.index != 1, text[:end]


@pytest.mark.parametrize("code", ["en", "ko"])
def test_no_spelling_names_two_words_of_a_usual_scale(code: str) -> None:
    groups = load_locale(code).levels
    pairs = [("예", "아니요"), ("참", "거짓"), ("O", "X"), ("적합", "부적합"), ("일치", "불일치"), ("yes", "no"), ("pass", "fail")]  # fmt: skip
    for high, low in pairs:
        if high in groups:
            built = scale(code, {low: 0.0, high: 1.0})
            for index, word in enumerate((low, high)):
                for spelling in groups[word]:
                    assert built.parse(spelling) == index, spelling


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("question", "질문 문항 질의 질의문 사용자질문"),
        (
            "answer",
            "답변 생성답변 모델답변 모델응답 챗봇답변 예측답변 gen_answer model_answer pred",
        ),
        ("reference", "정답 모범답안 기준답변 기대답변 참조답변 gt gt_answer"),
        ("contexts", "문맥 맥락 본문 지문 근거문서 참고문서 컨텍스트 검색결과 검색문서"),
        ("label", "점수 평점 평가점수 수동평가"),
        ("annotator", "평가자 검수자 작업자"),
        ("id", "번호 순번 no 연번 문항번호"),
        ("reason", "사유 평가의견"),
    ],
)
def test_names_of_columns_in_korean_workbooks(field: str, names: str) -> None:
    families = column_families()
    assert set(names.split()) <= set(families[field])
    assert all("배점" not in known and "근거" not in known for known in families.values())
