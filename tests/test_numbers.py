"""Figures: read, compared, looked up in sources; any spelling, any text."""

from __future__ import annotations

import datetime
import unicodedata
from decimal import Decimal
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geval.numbers import Figure, compare, figures, unmatched


def one(text: str, locale: str | None = None) -> Figure:
    found = figures(text, locale)
    assert len(found) == 1, (text, found)
    return found[0]


def same(a: str, b: str) -> str:
    match = compare(one(a), one(b))
    assert compare(one(b), one(a)) == match
    return match.outcome


# The examples of one value

SPELLINGS = [
    "1,234억원", "1234억원", "1,234 억 원", "0.1234조원", "123,400백만원", "123,400,000,000원",
    "1천2백34억원", "천이백삼십사억원", "１,２３４억원", "매출 1,234억", "KRW 123.4 billion",
    "KRW123.4bn", "₩123.4bn", "123.4 billion won", "1,234억원은", "1,234억원이다.", "(1,234억원)",
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), list(combinations(SPELLINGS, 2)))
def test_every_spelling_of_the_reference_note_is_equal(a: str, b: str) -> None:
    assert same(a, b) == "equal"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("매출 1조 2,345억", "12,345억원"), ("1조2345억원", "1.2345조원"), ("12.3%", "12.30%"),
        ("12.3 percent", "12.3%"), ("12.3％", "12.3 퍼센트"), ("25bp", "0.25%p"),
        ("25 basis points", "0.25 percentage points"), ("0.25%포인트", "0.25%p"),
        ("-12%", "12% 감소"), ("fell by 12%", "12% 하락"), ("a 12% decrease", "-12%"),
        ("2025.9.30", "'25.9.30"), ("2025년 9월 30일", "Sep 30, 2025"), ("2025-09-30", "25.9.30"),
        ("30 September 2025", "2025. 9. 30."), ("3Q25", "25.3Q"), ("2025년 3분기", "Q3 2025"),
        ("third quarter of 2025", "3Q2025"), ("25년 3분기", "2025 Q3"), ("1H25", "2025년 상반기"),
        ("FY2025", "FY25"), ("35건", "35 orders"), ("1위", "1st"), ("3번째", "세 번째"),
        ("10~12%", "10%~12%"), ("10-12%", "10 to 12%"), ("100억~120억원", "100~120억원"),
        ("△12억원", "-12억원"), ("−12억원", "마이너스 12억원"), ("영업손실 12억원", "영업이익 △12억원"),
        ("12억원의 영업손실", "-12억원"), ("net loss of $51 million", "-$51m"), ("$1.2bn", "US$1,200 million"),
        ("123,412백만원", "1,234억원"), ("약 1,200억원", "1,234억원"), ("1,200여억원", "1,234억원"),
        ("-0.97%", "-1.0%"), ("5% 초과", "more than 5%"), ("5% 이상", "at least 5%"),
        ("15:30", "15시 30분"), ("3년", "36개월"), ("2주간", "14일간"), ("twelve percent", "12%"),
        ("1.2M", "1.2 million"), ("1.5배", "1.5x"), ("£412.6m", "£0.4126 billion"),
        ("3 years", "3년"), ("₩5백만", "5,000,000원"), ("1억 주", "100,000,000주"),
    ],
)  # fmt: skip
def test_equal(a: str, b: str) -> None:
    assert compare(one(a), one(b)).held
    assert same(a, b) in ("equal", "equal_with_note")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("매출 1,234억원", "매출 1,243억원"), ("1,234억원", "1,234백만원"), ("1,234억원", "1.234조원"),
        ("3.1%", "3.1%p"), ("12.2% 증가", "12.2% 감소"), ("12% 감소", "-12% 감소"),
        ("3분기", "4분기"), ("3,600억원", "1,234억원"), ("420건", "35건"), ("35건", "35명"), ("1위", "2위"),
        ("△12억원", "12억원의 영업이익"), ("12억원의 영업손실", "12억원의 영업이익"),
        ("약 1,300억원", "1,234억원"), ("1,234억 달러", "1,234억원"), ("$12m", "€12m"),
        ("9월 30일", "11월 6일"), ("-12/1,234", "-10%"), ("5% 초과", "5% 이상"), ("5%", "5% 초과"),
        ("1,230억원", "1,234억원"), ("2025년 3분기", "2024년 3분기"), ("1~3분기", "3분기"),
        ("0.123", "12.3%"), ("fell 6.6%", "rose 6.6%"), ("10~12%", "10~13%"), ("1억 주", "1억원"),
        ("12%", "-12%"), ("1.5배", "1.6배"), ("3년", "3개월"), ("12kg", "12톤"),
    ],
)  # fmt: skip
def test_not_equal(a: str, b: str) -> None:
    assert not any(compare(x, y).held for x in figures(a) for y in figures(b))


@pytest.mark.parametrize(
    ("a", "b", "note"),
    [
        ("1,234억원", "123,470백만원", "truncated"),
        ("▲12억원", "-12억원", "sign_ambiguous"),
        ("1.5배로", "50% 증가", "multiple"),
        ("FY2025", "2025년", "fiscal"),
        ("2025년", "2025년 3분기", "less_precise"),
        ("영업손실 △12억원", "-12억원", "sign_twice"),
        ("1,200억원 이상", "1,234억원", "bound"),
        ("1,234", "1,234억원", "unit_unstated"),
        ("11~12%", "12%", "end_of_range"),
    ],
)
def test_equal_with_a_note(a: str, b: str, note: str) -> None:
    match = compare(one(a), one(b))
    assert (match.outcome, match.note) == ("equal_with_note", note)
    assert compare(one(b), one(a)) == match


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(단위: 억원)\n매출 1,234\n영업이익 (12)", [1234 * 10**8, -12 * 10**8]),
        ("($ million): revenue 940, net income (51).", [940 * 10**6, -51 * 10**6]),
        ("매출액(억원) 1,234", [1234 * 10**8]),
        ("부채비율은 5.6%p 개선", [Decimal("5.6")]),
        ("Net loss widened to $51m from 2024", [-51 * 10**6, 20240000]),
        ("증가한 거래(353건)", [353]),
        ("전체의 일부 (12%)를 차지", [12]),
        ("손익 | 1,100 | (12)", [1100, -12]),
        ("▲ 상승 ▼ 하락\n종가 ▲150원", [150]),
        ("(▲는 손실) 영업이익 ▲12억원", [-12 * 10**8]),
        ("▲12억원", [12 * 10**8]),
        ("1,300억원에서 1,234억원으로 감소", [1300 * 10**8, 1234 * 10**8]),
        ("fell from 8.9% to 6.4%", [Decimal("8.9"), Decimal("6.4")]),
        ("2.5% 하락한 1,234억원", [Decimal("-2.5"), 1234 * 10**8]),
        ("매출 12억 3,400만원", [1234 * 10**6]),
        ("영업이익 (12)억원", [-12 * 10**8]),
        ("- 매출 12억원", [12 * 10**8]),
        ("매출 1,2", [1, 2]),
    ],
)
def test_signs_and_cells(text: str, value: list[Decimal | int]) -> None:
    assert [f.value for f in figures(text)] == [Decimal(v) for v in value]


@pytest.mark.parametrize(
    "text",
    [
        "삼성전자(005930)", "종목코드 373220", "가온(373220)은", "02-123-4567", "1588-1234", "010-1234-5678",
        "상법 제3조 제2항", "IFRS 17", "K-IFRS 제1115호", "K-IFRS 1115호", "https://a.kr/2025/12?x=35",
        "a1234@example.com", "v1.2.3", "1.2.3", "1. 항목", "S&P 500", "코스피200", "5G", "CO2", "Form 10-K",
        "A380", "Note 12", "제56기", "구조원", "이사 이천만", "9" * 40,
    ],
)  # fmt: skip
def test_names_with_digits_are_no_figures(text: str) -> None:
    assert figures(text) == []


def test_money_needs_its_context() -> None:
    assert one("매출은 1,234억이다").dimension == "money:KRW"
    assert one("1,234억").dimension == "number"
    assert one("3억 주").dimension == one("2억 건").dimension == "count"


def test_slashed_dates_by_locale() -> None:
    assert same("9/10/2025", "2025.9.10") == "equal"
    assert one("9/10/2025", "en-GB").value == 20251009
    assert one("30/9/2025").value == 20250930


def test_decomposed_hangul_is_read_and_its_span_is_that_of_the_source() -> None:
    text = unicodedata.normalize("NFD", "매출은 1,234억원이다")
    (figure,) = figures(text)
    assert figure.value == 1234 * 10**8
    assert unicodedata.normalize("NFC", text[slice(*figure.span)]) == "1,234억원"


# Any value in every spelling

DIGIT = "영일이삼사오육칠팔구"


def hangul(number: int) -> str:
    """Korean reading of 1..9999 with the place words, as it is written in contracts."""
    said = ""
    for place, word in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit = number // place % 10
        if digit:
            said += (DIGIT[digit] if digit > 1 or not word else "") + word
    return said


def mixed(number: int) -> str:
    """1천2백34."""
    said = ""
    for place, word in ((1000, "천"), (100, "백")):
        digit = number // place % 10
        said += f"{digit}{word}" if digit else ""
    return said + (str(number % 100) if number % 100 else "")


@given(st.integers(11, 9999))
@example(1234)
@example(1000)
@example(2010)
def test_all_spellings_of_a_value_are_equal(number: int) -> None:
    won = number * 10**8
    spelled = [
        f"{number:,}억원", f"{number}억 원", f"{number / Decimal(10000):f}조원", f"{number * 100:,}백만원",
        f"{won:,}원", f"{won}원", f"{hangul(number)}억원", f"{mixed(number)}억원",
        f"KRW {number / Decimal(10):f} billion", f"{number * 100:,} million won",
        f"매출 {number:,}억", f"{number:,}억원으로", f"약 {number:,}억원",
        str(number).translate(str.maketrans("0123456789", "０１２３４５６７８９")) + "억원",
    ]  # fmt: skip
    read = [one(text) for text in spelled]
    assert all(f.value == won for f in read), [
        (t, f.value) for t, f in zip(spelled, read, strict=True)
    ]
    assert all(compare(a, b).held for a, b in combinations(read, 2))


@given(st.integers(1, 9999), st.integers(1, 9999))
def test_other_values_are_not_equal(number: int, other: int) -> None:
    a = one(f"{number:,}억원")
    if number != other:
        assert not compare(a, one(f"{other * 100:,}백만원")).held
        assert not compare(a, one(f"KRW {other / Decimal(10):f} billion")).held
    assert not compare(a, one(f"△{number:,}억원")).held
    assert not compare(a, one(f"{number:,}억원 감소")).held
    assert not compare(a, one(f"{number:,}억 달러")).held
    assert not compare(a, one(f"{number:,}백만원")).held
    assert not compare(a, one(f"{number:,}억 주")).held


@given(st.decimals(0, 999, places=2), st.sampled_from([1, 2]))
def test_percentages(value: Decimal, places: int) -> None:
    text = f"{value:.{places}f}"
    assert compare(one(f"{text}%"), one(f"{text} percent")).outcome == "equal"
    assert compare(one(f"{value}%"), one(f"{text}%")).held
    assert not compare(one(f"{text}%"), one(f"{text}%p")).held
    assert compare(one(f"{text}%p"), one(f"{Decimal(text) * 100:f}bp")).held
    if Decimal(text):
        assert compare(one(f"{text}% 감소"), one(f"-{text}%")).outcome == "equal"
        assert not compare(one(f"{text}% 감소"), one(f"{text}% 증가")).held


@given(st.dates(datetime.date(2001, 1, 1), datetime.date(2049, 12, 30)))
def test_all_spellings_of_a_date_are_equal(day: datetime.date) -> None:
    y, m, d = day.year, day.month, day.day
    name = ["Jan", "Feb", "Mar", "Apr", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec"][
        m - 1
    ]
    spelled = [
        f"{y}.{m}.{d}", f"{y}. {m}. {d}.", f"'{y % 100:02}.{m}.{d}", f"{y}년 {m}월 {d}일", f"{y}년{m}월{d}일",
        f"{y}-{m:02}-{d:02}", f"{y}/{m}/{d}", f"{name} {d}, {y}", f"{d} {name} {y}", f"{y % 100:02}년 {m}월 {d}일",
    ]  # fmt: skip
    read = [one(text) for text in spelled]
    assert all(compare(a, b).outcome == "equal" for a, b in combinations(read, 2))
    other = day + datetime.timedelta(days=1)
    assert not compare(read[0], one(f"{other.year}.{other.month}.{other.day}")).held


@given(
    st.text(
        st.sampled_from(
            "0123456789,.~-+()%△▲▼ \n억조만천백원이삼배주일월년분기건QqHFYKRW$£'’bmk:/제호여약"
        )
    )
)
@settings(max_examples=300)
@example("1,234,56.7.8%,,..~~")
@example("\ud800 1억")
def test_any_text_is_read_and_spans_are_right(text: str) -> None:
    found = figures(text)
    for figure in found:
        start, end = figure.span
        assert text[start:end] == figure.text
        assert figure.value.is_finite()
        assert figure.resolution >= 0
        assert compare(figure, figure).outcome in ("equal", "equal_with_note")
    assert [f.span for f in found] == sorted(f.span for f in found)
    unmatched(text, [text])


@given(st.text())
def test_any_text_of_any_script(text: str) -> None:
    for figure in figures(text):
        assert text[slice(*figure.span)] == figure.text


HOSTILE = [
    "9", "1,", "1,234", "억", "1억", "천", "1.2", "(", "1-", "-", "▲", "a1", "1~", " ", "일이삼",
    "0.", "제1", "IFRS ", "'25.", "Jan 1 ", "1조 ", "약 ", "at most ", "단위: ", "ᄀ", "a@", "1:2",
]  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "size"),
    [*((u, 20_000) for u in HOSTILE), *((u, 1_000_000) for u in ("9", "1,", "억", "1,234"))],
)
def test_long_runs_of_anything_are_read_in_linear_steps(unit: str, size: int) -> None:
    """A quadratic pattern would not end within the patience of the test run."""
    text = unit * (size // len(unit))
    for figure in figures(text)[:10]:
        assert text[slice(*figure.span)] == figure.text


# Beside their sources

BASE = [
    "다솜전자의 2025년 3분기 연결 매출은 1,234억원이다. 전년 동기는 1,100억원, 전분기는 1,300억원이었다.",
    "수주는 35건, 420억원이다. 영업이익은 △12억원이다.",
]


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("매출은 0.1234조원이다.", []),
        ("매출은 1,243억원이다.", ["1,243억원"]),
        ("매출은 1,234백만원이다.", ["1,234백만원"]),
        ("매출은 1.234조원이다.", ["1.234조원"]),
        ("2025년 4분기 매출은 1,400억원이다.", ["2025년 4분기", "1,400억원"]),
        ("12억원의 영업손실을 냈다.", []),
        ("12억원의 영업이익을 냈다.", ["12억원"]),
        ("매출은 약 1,300억원", []),
        ("수주는 420건이다.", ["420건"]),
        ("1,234억 달러", ["1,234억 달러"]),
        ("확인할 수 없습니다.", []),
    ],
)
def test_figures_that_no_source_holds(answer: str, texts: list[str]) -> None:
    assert [f.text for f in unmatched(answer, BASE)] == texts


@pytest.mark.parametrize("answer", ["12.2% 증가", "134억원 증가", "5.1% 감소", "2,334억원"])
def test_what_simple_arithmetic_gives_is_noted(answer: str) -> None:
    (figure,) = unmatched(answer, BASE[:1])
    assert figure.note == "derivable"


def test_derived_values_are_not_looked_for_among_many_figures() -> None:
    many = " ".join(f"{n:,}억원" for n in range(1000, 9000, 7))
    (figure,) = unmatched("12.2% 증가", [many])
    assert figure.note is None


def test_ten_thousand_figures_are_searched() -> None:
    context = " ".join(f"{n}.5%" for n in range(10_000))
    answer = " ".join(f"{n}.5%" for n in range(0, 10_200, 100))
    assert [f.text for f in unmatched(answer, [context])] == ["10000.5%", "10100.5%"]


def test_a_date_may_take_its_year_from_elsewhere() -> None:
    source = ["Third quarter 2025. Results were published on November 6."]
    assert unmatched("Published on November 6, 2025.", source) == []
    assert [f.text for f in unmatched("November 6, 2024", source)] == ["November 6, 2024"]
