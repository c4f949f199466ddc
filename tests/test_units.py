"""Aggregates of unit verdicts: bounds, agreement with counting, standard errors; splitting."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geval.reading.answer import Failure
from geval.units.parts import (
    AGGREGATES,
    UnitSpec,
    average_precision,
    f_beta,
    mean,
    noise_sensitivity,
)
from geval.units.split import read_claims, sentences

P = st.floats(0, 1)
SET = st.lists(P, min_size=1, max_size=8)
PAIR = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[st.lists(P, min_size=n, max_size=n)] * 2)
)  # fmt: skip


def sets_for(name: str, p: list[float], q: list[float]) -> list[list[float]]:
    return [p, q] if name in ("f1", "f_beta", "noise_sensitivity") else [p]


@given(PAIR)
def test_every_aggregate_stays_on_0_to_1_with_a_finite_error(pair: tuple[list[float], ...]) -> None:
    p, q = pair
    for name, aggregate in AGGREGATES.items():
        sets = sets_for(name, p, q)
        soft = aggregate.compute(sets)
        assert -1e-12 <= soft.value <= 1 + 1e-12, name
        assert [len(s) for s in soft.slopes] == [len(s) for s in sets]
        assert soft.se([[x * (1 - x) for x in own] for own in sets]) >= 0
        assert soft.se([[0.0] * len(own) for own in sets]) == 0


@pytest.mark.parametrize("name", sorted(set(AGGREGATES) - {"noise_sensitivity"}))
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_all_units_hold_is_1_and_none_is_0(name: str, n: int) -> None:
    for verdict in (1.0, 0.0):
        sets = sets_for(name, [verdict] * n, [verdict] * n)
        assert AGGREGATES[name].compute(sets).value == pytest.approx(verdict, abs=1e-9)


@given(PAIR)
def test_slopes_are_the_derivatives(pair: tuple[list[float], ...]) -> None:
    h = 1e-6
    p, q = ([min(max(x, 0.05), 0.95) for x in own] for own in pair)
    for name in set(AGGREGATES) - {"min"}:
        compute = AGGREGATES[name].compute
        sets = sets_for(name, p, q)
        for which, place in ((w, i) for w, own in enumerate(sets) for i in range(len(own))):
            values = []
            for shift in (h, -h):
                moved = [list(own) for own in sets]
                moved[which][place] += shift
                values.append(compute(moved).value)
            slope = compute(sets).slopes[which][place]
            assert slope == pytest.approx((values[0] - values[1]) / (2 * h), abs=1e-5), name


@given(SET)
def test_the_error_of_the_mean_is_that_of_bernoulli_draws(p: list[float]) -> None:
    variance = sum(x * (1 - x) for x in p) / len(p) ** 2
    se = mean([p]).se([[x * (1 - x) for x in p]])
    assert se == pytest.approx(math.sqrt(variance))


@given(st.lists(P, min_size=1, max_size=6))
def test_average_precision_is_the_mean_over_all_relevances(p: list[float]) -> None:
    def hard(relevant: tuple[int, ...]) -> float:
        hits = [sum(relevant[: k + 1]) / (k + 1) for k, r in enumerate(relevant) if r]
        return sum(hits) / len(hits) if hits else 0.0

    expected = 0.0
    for relevant in itertools.product((0, 1), repeat=len(p)):
        chance = math.prod(x if r else 1 - x for x, r in zip(p, relevant, strict=True))
        expected += chance * hard(relevant)
    assert average_precision([p]).value == pytest.approx(expected, abs=1e-9)


@given(st.lists(P, min_size=2, max_size=8))
def test_a_better_rank_never_lowers_average_precision(p: list[float]) -> None:
    best = average_precision([sorted(p, reverse=True)]).value
    assert average_precision([p]).value <= best + 1e-9


def test_an_unlikely_context_alone_is_not_perfect() -> None:
    assert average_precision([[0.01]]).value == pytest.approx(0.01)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.sampled_from([0.5, 1.0, 2.0]))
def test_f_beta_agrees_with_hard_counts(tp: int, fp: int, fn: int, beta: float) -> None:
    p, q = [1.0] * tp + [0.0] * fp, [1.0] * tp + [0.0] * fn
    if not p or not q:
        return
    b = beta**2
    counted = (1 + b) * tp / ((1 + b) * tp + b * fn + fp)
    assert f_beta([p, q], beta=beta).value == pytest.approx(counted)


@given(PAIR, st.integers(0, 5), P)
def test_a_surer_verdict_never_lowers_the_score(
    pair: tuple[list[float], ...], place: int, p: float
) -> None:
    for name in ("mean", "min", "f1", "precision", "recall"):
        sets = sets_for(name, *pair)
        higher = [list(own) for own in sets]
        i = place % len(higher[0])
        higher[0][i] = max(higher[0][i], p)
        compute = AGGREGATES[name].compute
        assert compute(higher).value >= compute(sets).value - 1e-12, name


def test_noise_is_what_the_documents_support_and_the_reference_does_not() -> None:
    assert noise_sensitivity([[1, 1, 0, 0], [0, 1, 0, 1]]).value == 0.25
    assert noise_sensitivity([[0.5], [0.5]]).value == 0.25


def test_which_sets_an_aggregate_reads() -> None:
    assert AGGREGATES["precision"].reads(2) == (0,)
    assert AGGREGATES["recall"].reads(2) == (1,)
    assert AGGREGATES["recall"].reads(1) == (0,)
    assert AGGREGATES["f1"].reads(2) == (0, 1)


# Claims


@pytest.mark.fault("P7")
@pytest.mark.fault("P3")
@pytest.mark.parametrize(
    ("reply", "claims"),
    [
        ('{"claims": ["매출은 1,234억원이다.", "늘었다."]}', ["매출은 1,234억원이다.", "늘었다."]),
        ('```json\n{"claims": ["a"]}\n```', ["a"]),
        ('Here they are: {"claims": ["a {b}", "c"]} Done.', ["a {b}", "c"]),
        ('<think>{"claims": ["x"]} [1]</think>\n{"claims": ["a"]}', ["a"]),
        ('thinking [2] ... </think>["a", "b"]', ["a", "b"]),
        ('{"주장": ["가"]}', ["가"]),
        ('{"claims": [{"claim": "a"}, " b "]}', ["a", "b"]),
        ('{"claims": ["first\nline"]}', ["first\nline"]),
        ('{"claims": []}', []),
        ('{"claims": ["", " "]}', []),
    ],
)
def test_claims_are_read_from_what_judges_say(reply: str, claims: list[str]) -> None:
    assert read_claims(reply) == claims


@pytest.mark.parametrize(
    "reply",
    ["", "I cannot.", '{"claims": ["a", "b', '{"claims": "a"}', '{"claims": [1, 2]}', "{" * 5000],
)
def test_what_is_no_list_of_claims_is_a_failure(reply: str) -> None:
    found = read_claims(reply)
    assert isinstance(found, Failure)
    assert found.kind == "claims_unreadable"


def test_sentences_in_korean_and_english() -> None:
    text = (
        "매출은 1,234.5억원이다. 전년 동기 대비 12.2% 증가했다.\n영업이익은 △12억원임. 왜 그런가? "
        '"좋다."고 말했다.'
    )
    assert sentences(text, "ko") == [
        "매출은 1,234.5억원이다.",
        "전년 동기 대비 12.2% 증가했다.",
        "영업이익은 △12억원임.",
        "왜 그런가?",
        '"좋다."고 말했다.',
    ]
    assert sentences("Dr. Kim said 3.5% is fine. U.S. sales rose.\n", "en") == [
        "Dr. Kim said 3.5% is fine.",
        "U.S. sales rose.",
    ]
    assert sentences(" \n- \n", "ko") == []


def test_a_set_of_units_names_what_decides_its_split() -> None:
    one = UnitSpec(of="answer", against="contexts")
    other = UnitSpec(of="answer", against="reference")
    assert one.source == other.source
    assert one.source != UnitSpec(of="answer", against="contexts", atomicity="low").source
