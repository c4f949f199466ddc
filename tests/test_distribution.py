"""The reader: every rule and number of the scoring rules, and properties over all distributions."""

import math
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geval.distribution import (
    Reading,
    certain,
    from_counts,
    from_levels,
    posterior_se,
)
from geval.judges.base import Alternative, Choice, Token
from geval.reading.reader import read_choice, read_exact
from geval.scale import Scale, scale_from

FIVE = Scale.of(1, 2, 3, 4, 5)
TEN = Scale.of(*range(1, 11))
YES_NO = scale_from({"아니요": 0, "예": 1}, groups={"예": ["네"], "아니요": ["아니오"]})


def token(sampled: str, candidates: Mapping[str, float]) -> Token:
    """A token with its alternatives, from probabilities."""
    # A model never gives a token all of its probability; "all" is how missing lists look.
    candidates = {"…": 1e-12, **candidates}
    alternatives = tuple(Alternative(t, math.log(p)) for t, p in candidates.items() if p > 0)
    return Token(sampled, math.log(candidates.get(sampled, 1e-9) or 1e-9), alternatives)


def read(
    scale: Scale, *positions: tuple[str, Mapping[str, float]], start: int = 0, more: str = ""
) -> Reading | None:
    tokens = tuple(token(s, c) for s, c in positions)
    return read_choice(Choice("".join(t.text for t in tokens) + more, tokens), scale, start)


def mean(reading: Reading | None) -> float:
    assert reading is not None
    return reading.distribution("logprobs").mean


def total(reading: Reading) -> float:
    return reading.coverage + reading.ambiguous + reading.outside + reading.unseen


@pytest.mark.fault("S3")
def test_spellings_of_one_level_are_merged() -> None:
    assert mean(read(FIVE, ("4", {"4": 0.5, " 4": 0.2, "3": 0.3}))) == pytest.approx(3.7)


async def test_a_level_of_two_tokens_is_followed_under_exact() -> None:
    asked = []

    async def ask(prefix: str) -> Sequence[Alternative]:
        asked.append(prefix)
        table = {"": {"1": 0.8, "9": 0.15, "8": 0.05}, "1": {"0": 0.9, "": 0.1}}[prefix]
        return [Alternative(t, math.log(p)) for t, p in table.items()]

    reading = await read_exact(ask, TEN)
    assert mean(reading) == pytest.approx(9.03)
    assert asked == ["", "1"]


def test_without_the_second_look_it_is_ambiguous() -> None:
    reading = read(TEN, ("1", {"1": 0.8, "9": 0.15, "8": 0.05}))
    assert reading is not None
    assert reading.ambiguous == pytest.approx(0.8)
    assert not reading.accepted()


def test_a_tokenizer_that_writes_ten_in_one_token_leaves_no_doubt() -> None:
    reading = read(TEN, ("1", {"1": 0.3, "10": 0.6, "9": 0.1}))
    assert reading is not None
    assert reading.accepted()
    assert mean(reading) == pytest.approx(0.3 * 1 + 0.6 * 10 + 0.1 * 9)


@pytest.mark.fault("S1")
def test_reason_first_reads_at_the_place_of_the_answer() -> None:
    text = "항목 4개 중 2개 누락\n최종 점수: "
    tokens = [(c, {c: 1.0}) for c in text]
    reading = read(FIVE, *tokens, ("2", {"2": 0.6, "3": 0.4}), start=len(text))
    assert mean(reading) == pytest.approx(2.4)


@pytest.mark.fault("S1")
def test_score_first_ignores_numbers_in_the_reason() -> None:
    later = [("\n", {"\n": 1.0}), ("4", {"4": 1.0}), ("개", {"개": 1.0})]
    assert mean(read(FIVE, ("4", {"4": 0.6, "5": 0.4}), *later)) == pytest.approx(4.4)


def test_a_longer_number_is_outside() -> None:
    reading = read(FIVE, ("4", {"4": 0.6, "90": 0.4}))
    assert reading is not None
    assert reading.coverage == pytest.approx(0.6)
    assert not reading.accepted()


@pytest.mark.fault("S2")
def test_little_mass_on_digits_is_never_a_confident_score() -> None:
    reading = read(FIVE, ("The", {"The": 0.6, "답": 0.35, "4": 0.05}))
    assert reading is not None
    assert reading.coverage == pytest.approx(0.05)
    assert not reading.accepted()


def test_korean_verdict_with_an_open_beginning() -> None:
    rejected = read(YES_NO, ("예", {"예": 0.6, "아": 0.3, "네": 0.08, " 예": 0.02}))
    assert rejected is not None
    assert rejected.levels == pytest.approx([0.3, 0.7])
    assert rejected.assumed == pytest.approx(0.3)
    assert not rejected.accepted()
    accepted = read(YES_NO, ("예", {"예": 0.8, "아": 0.1, "네": 0.08, " 예": 0.02}))
    assert accepted is not None
    assert accepted.levels == pytest.approx([0.1, 0.9])
    assert accepted.assumed == pytest.approx(0.1)
    assert accepted.accepted()


async def test_exact_asks_for_the_split_verdict() -> None:
    tables = {
        "": {"예": 0.6, "아": 0.3, "네": 0.08, " 예": 0.02},
        "아": {"니": 0.9, "마": 0.1},
        "아니": {"요": 0.8, "오": 0.2},
    }

    async def ask(prefix: str) -> Sequence[Alternative]:
        return [Alternative(t, math.log(p)) for t, p in tables[prefix].items()]

    reading = await read_exact(ask, YES_NO)
    assert reading is not None
    assert reading.levels == pytest.approx([0.27, 0.7])
    assert (reading.assumed, reading.outside) == (0.0, pytest.approx(0.03))


def test_what_follows_a_level_can_undo_it() -> None:
    for text in ("점 만점에 4점", ".5", "/10", "0", "~5점 중 4점"):
        first = read(FIVE, ("5" if text[0] == "점" else "4", {"4": 0.5, "5": 0.5}), more=text)
        assert first is not None
        assert first.coverage == pytest.approx(0.5)
        assert not first.accepted()


@pytest.mark.fault("S1")
def test_split_characters_in_the_reason_do_not_shift_the_answer() -> None:
    reason = "네 번째 3분기 값\n최종 점수: "
    pieces = list(reason)
    half, rest = (
        b.decode("utf-8", "surrogateescape") for b in ("네".encode()[:2], "네".encode()[2:])
    )
    split = [(half, {half: 1.0}), (rest, {rest: 1.0}), *((c, {c: 1.0}) for c in pieces[1:])]
    tokens = tuple(token(s, c) for s, c in [*split, ("4", {"4": 0.6, "5": 0.4})])
    reading = read_choice(Choice(reason + "4", tokens), FIVE, len(reason))
    assert mean(reading) == pytest.approx(4.4)


@pytest.mark.fault("S7")
@pytest.mark.fault("S8")
@pytest.mark.parametrize(
    "tok",
    [
        Token("4", 0.0, ()),
        Token("4", 0.0, (Alternative("4", 0.0),)),
        Token("4", -9999.0, (Alternative("}", -0.1), Alternative(",", -2.4))),
        Token("4", float("nan"), (Alternative("4", float("nan")),)),
        Token("4", float("-inf"), (Alternative("4", float("-inf")), Alternative("5", -9999.0))),
    ],
)
def test_missing_alternatives_are_no_certainty(tok: Token) -> None:
    assert read_choice(Choice("4", (tok,)), FIVE, 0) is None


@pytest.mark.fault("S8")
def test_unusable_numbers_among_the_alternatives_are_left_out() -> None:
    tok = Token(
        "4",
        math.log(0.6),
        (Alternative("4", math.log(0.6)), Alternative("5", math.log(0.4)), Alternative("3", -9999.0),
         Alternative("2", float("nan")), Alternative("1", float("-inf"))),
    )  # fmt: skip
    assert mean(read_choice(Choice("4", (tok,)), FIVE, 0)) == pytest.approx(4.4)


@pytest.mark.fault("S4")
def test_alternatives_that_are_no_numbers() -> None:
    candidates = {"５": 0.5, "4": 0.45, "five": 0.02, "②": 0.02, "�": 0.01}
    reading = read(FIVE, ("５", candidates))
    assert reading is not None
    assert reading.outside == pytest.approx(0.05)
    assert mean(reading) == pytest.approx((0.5 * 5 + 0.45 * 4) / 0.95)


def test_the_sampled_token_counts_where_its_list_lacks_it() -> None:
    tok = Token("4", math.log(0.5), (Alternative("5", math.log(0.5)),))
    assert mean(read_choice(Choice("4", (tok,)), FIVE, 0)) == pytest.approx(4.5)


def test_tokens_that_do_not_spell_the_reply_are_missing() -> None:
    tok = token("5", {"5": 0.9, "4": 0.1})
    assert read_choice(Choice("4", (tok,)), FIVE, 0) is None


def test_blank_and_quote_before_the_answer_are_walked_over() -> None:
    reading = read(FIVE, ("\n", {"\n": 0.95, "4": 0.05}), ("4", {"4": 0.6, "5": 0.4}))
    assert reading is not None
    assert reading.coverage == pytest.approx(1.0)
    assert mean(reading) == pytest.approx(0.05 * 4 + 0.95 * 4.4)


def test_an_answer_inside_a_token() -> None:
    text = '{"score":4}'
    head = '{"score"'
    reading = read(
        FIVE, (head, {head: 1.0}), (":4", {":4": 0.6, ":5": 0.3, "x": 0.1}), ("}", {"}": 1.0}),
        start=text.index("4"),
    )  # fmt: skip
    assert reading is not None
    assert reading.levels == pytest.approx([0, 0, 0, 0.6, 0.3])
    assert reading.outside == pytest.approx(0.1)


def test_a_half_character_that_was_sampled_is_followed() -> None:
    half, rest = (
        b.decode("utf-8", "surrogateescape") for b in ("네".encode()[:2], "네".encode()[2:])
    )
    tokens = (token(half, {half: 0.7, "아": 0.1, "예": 0.2}), token(rest, {rest: 1.0, "x": 0.0}))
    reading = read_choice(Choice("네", tokens), YES_NO, 0)
    assert reading is not None
    assert reading.levels == pytest.approx([0.1, 0.9])


@pytest.mark.fault("S30")
def test_samples_agree_with_the_probabilities_they_are_drawn_from() -> None:
    rng = random.Random(7)
    n = 4000
    draws = sum(rng.random() < 0.75 for _ in range(n))
    distribution = from_counts([0, 0, n - draws, draws, 0], FIVE)
    assert distribution.se is not None
    assert abs(distribution.mean - 3.75) < 3 * distribution.se
    assert distribution.se == pytest.approx(math.sqrt(0.25 * 0.75 / n), rel=0.05)


def test_the_posterior_error_of_agreeing_samples_is_not_zero() -> None:
    assert posterior_se([0, 0, 0, 4, 0], FIVE) > 0.1
    assert posterior_se([0, 0, 0, 400, 0], FIVE) < 0.02


def test_a_decision_endpoint_gives_levels_directly() -> None:
    reading = from_levels([0.0, 0.0, 0.1, 0.6, 0.3], FIVE)
    assert mean(reading) == pytest.approx(4.2)
    for bad in ([0.5, 0.5], [0.1, 0.2, 0.3, 0.4, float("nan")], [1, 1, 1, 1, 1]):
        with pytest.raises(ValueError, match="probabilit"):
            from_levels(bad, FIVE)


def test_a_single_answer_is_all_on_it() -> None:
    assert certain(3, FIVE).mean == 4.0
    assert certain(3, FIVE).sd == 0.0


# Properties

SCALES = [FIVE, TEN, Scale.of(0, 1), Scale.of(*range(11)), Scale.of(0, 0.5, 1), YES_NO,
          scale_from({"하": 0, "중": 1, "상": 2}), scale_from({"매우 미흡": 1, "매우 우수": 2})]  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> tuple[Scale, list[float], dict[str, tuple[str, ...]]]:
    """A scale, probabilities of its levels, and a cut of each level's word into tokens."""
    scale = draw(st.sampled_from(SCALES))
    weights = draw(
        st.lists(st.floats(0.01, 1), min_size=len(scale.levels), max_size=len(scale.levels))
    )
    pieces = {}
    for level in scale.levels:
        word = draw(st.sampled_from(["", " ", "\n", '"'])) + level.word
        cuts = sorted(draw(st.sets(st.integers(1, len(word)), max_size=4)) | {0, len(word)})
        pieces[level.word] = tuple(word[a:b] for a, b in pairwise(cuts))
    sum_ = math.fsum(weights)
    return scale, [w / sum_ for w in weights], pieces


def conditional(
    said: tuple[str, ...], probs: Sequence[float], spelled: Sequence[tuple[str, ...]]
) -> dict[str, float]:
    """Next-token probabilities behind the tokens `said`, "" for the end."""
    mass: dict[str, float] = {}
    for p, tokens in zip(probs, spelled, strict=True):
        if tokens[: len(said)] == said:
            nxt = tokens[len(said)] if len(tokens) > len(said) else ""
            mass[nxt] = mass.get(nxt, 0.0) + p
    sum_ = math.fsum(mass.values())
    return {t: p / sum_ for t, p in mass.items()}


@given(tables())
@settings(max_examples=400, deadline=None)
async def test_exact_returns_any_distribution_in_any_spelling(
    table: tuple[Scale, list[float], dict[str, tuple[str, ...]]],
) -> None:
    scale, probs, pieces = table
    spelled = list(pieces.values())

    async def ask(prefix: str) -> Sequence[Alternative]:
        # A prefix of text may be reached along several cuts: mix them by their probability.
        mass: dict[str, float] = {}
        for p, tokens in zip(probs, spelled, strict=True):
            for k in range(len(tokens) + 1):
                if "".join(tokens[:k]) == prefix:
                    nxt = tokens[k] if k < len(tokens) else ""
                    mass[nxt] = mass.get(nxt, 0.0) + p
                    break
        sum_ = math.fsum(mass.values())
        return [Alternative(t, math.log(p / sum_)) for t, p in mass.items()]

    reading = await read_exact(ask, scale)
    assert reading is not None
    assert total(reading) == pytest.approx(1.0)
    # What is under the following threshold may stay unfollowed.
    assert reading.levels == pytest.approx(probs, abs=0.01)


@given(tables(), st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None)
def test_logprobs_return_the_distribution_or_say_what_is_missing(
    table: tuple[Scale, list[float], dict[str, tuple[str, ...]]], rng: random.Random
) -> None:
    scale, probs, pieces = table
    spelled = list(pieces.values())
    sampled = rng.choices(spelled, probs)[0]
    tokens = []
    for k, text in enumerate(sampled):
        tokens.append(token(text, conditional(sampled[:k], probs, spelled)))
    end = conditional(sampled, probs, spelled)
    tokens.append(token("\n", {"\n": end.get("", 1.0), **{t: p for t, p in end.items() if t}}))
    text = "".join(t.text for t in tokens)
    reading = read_choice(Choice(text, tuple(tokens)), scale, 0)
    assert reading is not None
    assert total(reading) == pytest.approx(1.0)
    # No level is ever given more than it has, but for what is told to be assumed.
    for got, truth in zip(reading.levels, probs, strict=True):
        assert got <= truth + reading.assumed + 1e-9
    lost = reading.ambiguous + reading.outside + reading.unseen
    assert sum(abs(a - b) for a, b in zip(reading.levels, probs, strict=True)) <= lost + 2e-9


@given(
    st.lists(
        st.tuples(
            st.text(max_size=6),
            st.lists(st.tuples(st.text(max_size=4), st.floats(allow_nan=True)), max_size=8),
            st.floats(allow_nan=True),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(SCALES),
    st.integers(-1, 12),
)
@settings(max_examples=500, deadline=None)
def test_garbage_never_becomes_a_score(
    raw: list[tuple[str, list[tuple[str, float]], float]], scale: Scale, start: int
) -> None:
    tokens = tuple(
        Token(text, lp, tuple(Alternative(t, p) for t, p in alternatives))
        for text, alternatives, lp in raw
    )
    text = "".join(t.text for t in tokens)
    reading = read_choice(Choice(text, tokens), scale, start)
    if reading is None:
        return
    parts = [*reading.levels, reading.ambiguous, reading.outside, reading.unseen]
    assert all(math.isfinite(p) and -1e-9 <= p <= 1 + 1e-9 for p in parts)
    assert total(reading) == pytest.approx(1.0)
    words = {w for level in scale.levels for w in level.spellings}
    spelled_somewhere = any(
        any(w[0] in (t.casefold() + t) for w in words)
        for t in [text, *(a.text for tok in tokens for a in tok.alternatives)]
    )
    if reading.accepted() and not any(c.isdigit() for c in text) and not spelled_somewhere:
        pytest.fail("a score out of nothing")
