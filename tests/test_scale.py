"""What a judge's words mean on a scale."""

import pytest

from geval.errors import UsageError
from geval.scale import NA, Kind, Level, Scale, scale_from

FIVE = Scale.of(1, 2, 3, 4, 5)
TEN = Scale.of(*range(1, 11))
YES_NO = scale_from(
    {"아니요": 0, "예": 1}, groups={"예": ["네", "그렇습니다", "yes"], "아니요": ["아니오", "no"]}
)
GRADES = scale_from({"하": 0, "중": 1, "상": 2})


@pytest.mark.parametrize(
    "text",
    ["4", " 4", "\n4", "４", "4점", "4점입니다", "4입니다", "4.", "4,", "4}", "**4**", '"4"', "(4)",
     "4/5", "4 / 5점", "4 out of 5", "4\n3분기 매출은 맞다", "4 - good", "4점 (우수)"],
)  # fmt: skip
def test_a_level_with_a_harmless_tail_is_that_level(text: str) -> None:
    assert FIVE.parse(text) == 3


@pytest.mark.fault("P10")
@pytest.mark.fault("S4")
@pytest.mark.parametrize(
    "text",
    ["", "40", "90", "4.5", "4,5", "4/10", "4 out of 10", "²", "③", "④점", "five", "-9999", "98989",
     "11", "4e3", "4%", "4개", "4 건", "4~5", "4-5", "4 또는 5", "4 or 5", "4점 이상", "1, 2, 3 중 2",
     "5점 만점에 4점", "5점 만점 중 4점", "1~5점 중 4점", "5점 중 4점", "1. 질문을 본다\n2. 문맥을 본다",
     "4e", "0", "6", "-4", "넷"],
)  # fmt: skip
def test_what_is_no_level_is_never_read_as_one(text: str) -> None:
    assert FIVE.parse(text) is None


@pytest.mark.fault("P10")
@pytest.mark.parametrize(
    "text",
    ["5점 척도에서 4점", "5점 기준 4점", "5점 가운데 4점", "5(최고점) 중 4", "5-point scale: 4",
     "5 point scale: 4", "4 points out of 10", "4 of 10", "4 percent", "4 1/2", "4·5", "4 가지 항목",
     "1\n2\n3\n4\n5", "1 2 3 4 5", "1|2|3|4|5", "1: insulting\n2: curt", "1 = insulting, 5 = warm",
     "1) bad\n2) good", "1 - bad\n2 - good"],
)  # fmt: skip
def test_a_scale_that_is_named_or_echoed_is_no_score(text: str) -> None:
    assert FIVE.parse(text) is None


@pytest.mark.parametrize(
    "text",
    ["4. 매출 1,234억원이 문서와 같다.", "4: The figure 412.6 is right.", "4\n2개 항목이 빠졌다.",
     "4 The answer is right.", "4 - right", "4점 - 일치", "4점\n3분기 매출", "4) fine", "4, but short"],
)  # fmt: skip
def test_a_reason_behind_the_score_leaves_it(text: str) -> None:
    assert FIVE.parse(text) == 3


@pytest.mark.parametrize("text", ["예상", "네이버", "예를", "아마", "아직", "not", "none"])
def test_words_that_begin_like_a_verdict_are_outside(text: str) -> None:
    assert YES_NO.match(text).kind is Kind.OUTSIDE


@pytest.mark.parametrize("text", ["하락", "상승", "중요", "상당"])
def test_words_that_begin_like_a_grade_are_outside(text: str) -> None:
    assert GRADES.match(text).kind is Kind.OUTSIDE


@pytest.mark.parametrize(
    ("text", "level"),
    [("예", 1), ("네", 1), (" 예.", 1), ("예요", 1), ("예입니다", 1), ("Yes", 1), ("그렇습니다", 1),
     ("**예**", 1), ("아니요", 0), ("아니오", 0), ("No", 0)],
)  # fmt: skip
def test_spellings_of_a_verdict(text: str, level: int) -> None:
    assert YES_NO.parse(text) == level
    match = YES_NO.match(text)
    assert (match.kind, match.index) == (Kind.WHOLE, level)


def test_a_beginning_is_open_to_the_levels_it_can_become() -> None:
    assert YES_NO.match("아").reach == {0}
    assert YES_NO.match("아니").reach == {0}
    one = TEN.match("1")
    assert (one.kind, one.index, one.reach) == (Kind.OPEN, 0, {0, 9})
    assert TEN.match("1", end=True).kind is Kind.WHOLE
    assert YES_NO.match("아", end=True).kind is Kind.OUTSIDE


def test_blank_and_marks_are_skipped() -> None:
    for text in ("", " ", "\n", "**", '"', "▁", "Ġ"):
        assert FIVE.match(text).kind is Kind.SKIP


def test_half_characters_join_to_the_character() -> None:
    half, rest = (
        b.decode("utf-8", "surrogateescape") for b in ("네".encode()[:2], "네".encode()[2:])
    )
    assert YES_NO.match(half).kind is Kind.OPEN
    assert YES_NO.match(half + rest).index == 1
    assert FIVE.match(half).kind is Kind.OUTSIDE


def test_not_applicable_is_outside_the_levels() -> None:
    scale = scale_from(
        [1, 2, 3], not_applicable="no figure", not_applicable_spellings=["N/A", "not applicable"]
    )
    assert scale.parse("N/A") == NA
    assert scale.parse("Not applicable.") == NA
    assert scale.allowed == ("1", "2", "3", "N/A")


@pytest.mark.fault("S10")
@pytest.mark.fault("S11")
def test_normalisation_subtracts_the_minimum() -> None:
    assert [FIVE.normalize(v) for v in (1, 3, 5)] == [0.0, 0.5, 1.0]


@pytest.mark.fault("S12")
@pytest.mark.parametrize(
    "levels",
    [
        (Level(1, ("1",)),),
        (Level(1, ("1",)), Level(1, ("2",))),
        (Level(2, ("2",)), Level(1, ("1",))),
        (Level(1, ("x",)), Level(2, ("X",))),
        (Level(1, ("1",)), Level(float("inf"), ("2",))),
        (Level(1, ("1",)), Level(2, ("",))),
    ],
)
def test_a_scale_that_cannot_tell_levels_apart_is_refused(levels: tuple[Level, ...]) -> None:
    with pytest.raises(UsageError):
        Scale(levels)


def test_fractional_and_negative_levels() -> None:
    halves = Scale.of(0, 0.5, 1)
    assert halves.match("0").kind is Kind.OPEN
    assert halves.parse("0.5") == 1
    assert halves.parse("0") == 0
    signed = Scale.of(-1, 0, 1)
    assert signed.parse("-1") == 0
    assert signed.parse("−1") == 0


def test_words_are_named_as_they_were_written_and_numbers_upward() -> None:
    words = scale_from({"예": 1, "보통": 0.5, "아니요": 0})
    assert [level.word for level in words.named] == ["예", "보통", "아니요"]
    assert words.values == (0, 0.5, 1)
    assert words.allowed == ("아니요", "보통", "예")
    numbers = scale_from([5, 1, 3])
    assert [level.word for level in numbers.named] == ["1", "3", "5"]
