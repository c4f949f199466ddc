"""Split, loss, ledger, promotion and verdict of a study, each by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geval.agreement import metrics
from geval.agreement.pairs import Pairs
from geval.errors import FatalError, RejectedError, TransientError, UsageError
from geval.optimize.ledger import FAILURES_IN_A_ROW, BudgetSpent, Ledger
from geval.optimize.objective import Judged, ranked_probability_score, row_losses
from geval.optimize.promote import Candidate, promote
from geval.optimize.race import give_up
from geval.optimize.split import blocks, split
from geval.optimize.verdict import Side, check_metric, verdict

LEVELS = (1.0, 2.0, 3.0, 4.0, 5.0)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=5, max_size=60),
    seed=st.integers(0, 1000),
)
def test_a_document_is_never_in_two_parts(sizes: list[int], seed: int) -> None:
    group = np.repeat(np.arange(len(sizes)), sizes)
    level = np.random.default_rng(seed).random(len(group))
    parts = split(group, level, seed)
    sets = [set(group[rows]) for rows in (parts.train, parts.dev, parts.test)]
    assert all(sets)
    assert sum(map(len, sets)) == len(sizes)
    everything = np.concatenate([parts.train, parts.dev, parts.test])
    assert sorted(everything) == list(range(len(group)))
    assert sorted(parts.order) == sorted(sets[1])
    pieces = blocks(parts.order, group, parts.dev)
    assert sorted(np.concatenate(pieces)) == sorted(parts.dev)
    again = split(group, level, seed)
    assert again.order == parts.order
    assert list(again.test) == list(parts.test)


def test_parts_have_their_share_and_the_same_mix_of_levels() -> None:
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(80), 5)
    level = np.repeat(rng.random(80), 5)
    parts = split(group, level, 3)
    shares = [len(p) / len(group) for p in (parts.train, parts.dev, parts.test)]
    assert shares == pytest.approx([0.4, 0.3, 0.3], abs=0.03)
    means = [level[p].mean() for p in (parts.train, parts.dev, parts.test)]
    assert max(means) - min(means) < 0.1
    assert not parts.explore


@pytest.mark.parametrize(("rows", "per"), [(59, 1), (160, 16)])
def test_few_rows_or_few_documents_are_explore_mode(rows: int, per: int) -> None:
    group = np.arange(rows) // per
    assert split(group, np.linspace(0, 1, rows), 0).explore


def _judged(probs: Any) -> Judged:
    n = len(probs)
    return Judged({"q": probs}, np.ones(n, bool), np.ones(n), np.ones(n, int))


def _bell(middle: Any, width: float = 0.7) -> Any:
    weights = np.exp(-0.5 * ((np.array(LEVELS) - np.asarray(middle)[:, None]) / width) ** 2)
    return weights / weights.sum(axis=1, keepdims=True)


def test_the_loss_is_the_ranked_probability_score() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(5), 40)
    human = rng.integers(1, 6, 40).astype(float)
    pairs = Pairs(probs @ np.array(LEVELS), human, levels=LEVELS, probs=probs)
    mine = ranked_probability_score(
        probs, np.broadcast_to(np.array(LEVELS), probs.shape), human, 1.0, 5.0
    )
    assert mine.mean() == pytest.approx(float(metrics.rps(pairs, pairs.ones)[0]))


def _loss(probs: Any, human: Any, group: Any) -> float:
    rows = np.arange(len(human))
    return float(row_losses(_judged(probs), {"q": LEVELS}, {"q": human}, group, rows).mean())


def test_a_strict_judge_is_not_punished_and_a_noisy_one_is() -> None:
    rng = np.random.default_rng(1)
    human = rng.integers(1, 6, 300).astype(float)
    group = np.arange(300) // 5
    noise = rng.normal(size=300)
    mild = _loss(_bell(human * 0.5 + 1.9 + 0.2 * noise), human, group)
    strict = _loss(_bell(human * 0.5 + 1.1 + 0.2 * noise), human, group)
    noisy = _loss(_bell(human + 1.5 * noise), human, group)
    raw = ranked_probability_score(
        _bell(human * 0.5 + 1.1), np.broadcast_to(np.array(LEVELS), (300, 5)), human, 1.0, 5.0
    ).mean()
    assert strict == pytest.approx(mild, abs=0.02)
    assert strict < 0.8 * raw
    assert noisy > 1.3 * strict


@pytest.mark.fault("S26")
@pytest.mark.fault("A6")
def test_failing_on_hard_rows_never_pays() -> None:
    rng = np.random.default_rng(2)
    human = rng.integers(1, 6, 200).astype(float)
    group = np.arange(200) // 4
    probs = _bell(human + rng.normal(size=200))
    hard = np.argsort(-np.abs(probs @ np.array(LEVELS) - human))[:20]
    fails = probs.copy()
    fails[hard] = np.nan
    assert _loss(fails, human, group) > _loss(probs, human, group)


def test_a_judge_that_is_the_wrong_way_round_gains_nothing_from_calibration() -> None:
    human = np.tile([1.0, 5.0], 50)
    group = np.arange(100) // 2
    constant = _loss(_bell(np.full(100, 3.0)), human, group)
    assert _loss(_bell(6 - human), human, group) >= constant - 0.02


@pytest.mark.fault("A6")
def test_the_ledger_stops_before_the_call(tmp_path: Any) -> None:
    ledger = Ledger(5, tmp_path / "l.jsonl")
    for n in range(3):
        ledger.enter(f"k{n}", 1)
    ledger.enter("k1", 1)  # the same request is one request
    with pytest.raises(BudgetSpent):
        ledger.enter("samples", 4)  # four answers are four
    ledger.enter("k3", 1)
    assert ledger.used == 4
    assert not issubclass(BudgetSpent, Exception)
    ledger.close()
    again = Ledger(5, tmp_path / "l.jsonl")
    assert again.used == 4
    again.enter("k2", 1)
    again.enter("k4", 1)
    with pytest.raises(BudgetSpent):
        again.enter("k5", 1)


def test_settled_work_does_not_depend_on_what_was_cut_off() -> None:
    ledger = Ledger(10)
    with ledger.work():
        ledger.enter("a", 1)
    with pytest.raises(BudgetSpent), ledger.work():  # noqa: PT012
        ledger.enter("b", 1)
        ledger.enter("c", 100)
    assert (ledger.used, ledger.settled) == (2, 1)
    with ledger.work():
        ledger.enter("b", 1)
    assert (ledger.used, ledger.settled) == (2, 2)


@pytest.mark.fault("A8")
def test_a_dead_endpoint_stops_the_study_and_one_bad_row_does_not(tmp_path: Any) -> None:
    ledger = Ledger(100, tmp_path / "l.jsonl")
    for n in range(FAILURES_IN_A_ROW - 1):
        ledger.enter(f"k{n}", 1)
        ledger.failed(f"k{n}", TransientError("time-out"))
    ledger.enter("good", 1)
    ledger.answered("good", {}, paid=True, tokens=3)
    assert isinstance(ledger.failure("k0"), TransientError)
    ledger.enter("refused", 1)
    ledger.failed("refused", RejectedError("no"))
    with pytest.raises(FatalError, match="in a row"):  # noqa: PT012
        for n in range(20, 40):
            ledger.enter(f"k{n}", 1)
            ledger.failed(f"k{n}", TransientError("down"))
    ledger.close()
    again = Ledger(100, tmp_path / "l.jsonl")
    assert isinstance(again.failure("k0"), TransientError)
    assert isinstance(again.failure("refused"), RejectedError)
    assert again.failure("k20") is None  # the endpoint was down: ask again
    assert again.paid == 1


def test_a_torn_line_of_the_ledger_is_cut(tmp_path: Any) -> None:
    path = tmp_path / "l.jsonl"
    first = Ledger(5, path)
    first.enter("a", 1)
    first.close()
    with path.open("a") as file:
        file.write('{"key": "b", "requ')
    second = Ledger(5, path)
    second.enter("c", 1)
    second.close()
    assert Ledger(5, path).used == 2


def test_racing_gives_up_what_is_clearly_worse_and_only_that() -> None:
    rng = np.random.default_rng(0)
    best = dict(enumerate(rng.random(20)))
    worse = {k: v + 0.2 + 0.05 * rng.random() for k, v in best.items()}
    assert give_up(worse, best)
    assert not give_up({k: worse[k] for k in range(7)}, best)  # too few groups
    assert not give_up(best, best)
    assert not give_up({k: v - 0.1 for k, v in best.items()}, best)


def test_of_equals_the_cheapest_is_promoted_and_a_clear_winner_stays() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(30)
    near = Candidate(1, base - 0.001 + 0.05 * rng.normal(size=30), 900.0)
    seed = Candidate(0, base, 300.0)
    far = Candidate(2, base - 0.2, 900.0)
    assert promote([seed, near], np.ones(30))[0] == 0
    assert promote([seed, near, far], np.ones(30))[0] == 2


def _sides(before: Any, after: Any) -> tuple[Side, Side]:
    return Side({"q": before}, {"q": before}), Side({"q": after}, {"q": after})


def _verdict(before: Any, after: Any, human: Any, group: Any, **options: Any) -> Any:
    a, b = _sides(before, after)
    given = {"metric": "spearman", "seed": 0, "explore": False, **options}
    ratings = {"q": human[:, None]}
    return verdict(a, b, {"q": human}, ratings, group, {"q": LEVELS}, **given)


def _data(n: int, seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng, rng.integers(1, 6, n).astype(float), np.arange(n) // 4


@pytest.mark.parametrize("metric", ["spearman", "kendall", "qwk", "mae", "pearson"])
def test_a_large_gain_is_better_and_a_large_loss_is_worse(metric: str) -> None:
    rng, human, group = _data(120, 0)
    bad = np.clip(human + 3 * rng.normal(size=120), 1, 5)
    good = np.clip(human + 0.3 * rng.normal(size=120), 1, 5)
    assert _verdict(bad, good, human, group, metric=metric).verdict == "better"
    back = _verdict(good, bad, human, group, metric=metric)
    assert back.verdict == "worse"
    assert back.gain is not None
    assert back.gain < 0


@pytest.mark.fault("A12")
def test_two_judges_of_equal_noise_are_seldom_called_better() -> None:
    said = 0
    for seed in range(60):
        rng, human, group = _data(80, seed)
        one, two = (human + 1.5 * rng.normal(size=80) for _ in range(2))
        said += _verdict(one, two, human, group).verdict == "better"
    assert said <= 5  # 1.5 expected at p < .025; more than 5 has a chance of .4 %


def test_explore_mode_never_says_better() -> None:
    rng, human, group = _data(120, 0)
    bad, good = human + 3 * rng.normal(size=120), human
    found = _verdict(bad, good, human, group, explore=True)
    assert found.verdict == "no_evidence"
    assert any("explore" in note for note in found.notes)


def test_swaps_of_few_groups_are_counted_one_by_one() -> None:
    rng, human, group = _data(24, 1)
    before, after = (human + rng.normal(size=24) for _ in range(2))
    found = _verdict(before, after, human, group)
    reached = 0
    for mask in range(2**6):
        swap = np.array([bool(mask >> g & 1) for g in group])
        a, b = np.where(swap, after, before), np.where(swap, before, after)
        gain = _spearman(b, human) - _spearman(a, human)
        reached += gain >= found.gain - 1e-9
    assert found.p == pytest.approx(reached / 64)


def _spearman(judge: Any, human: Any) -> float:
    pairs = Pairs(judge, human)
    return float(metrics.spearman(pairs, pairs.ones)[0])


@pytest.mark.fault("S24")
def test_only_rows_that_both_scored_are_compared_and_losing_rows_is_not_better() -> None:
    rng, human, group = _data(120, 0)
    bad, good = human + 3 * rng.normal(size=120), human + 0.1 * rng.normal(size=120)
    good[:12] = math.nan
    found = _verdict(bad, good, human, group)
    assert found.unscored == {"seed": 0, "tuned": 12}
    assert found.verdict == "no_evidence"
    assert any("unscored" in note for note in found.notes)


def test_a_constant_judge_has_no_verdict_and_no_number() -> None:
    _, human, group = _data(80, 0)
    found = _verdict(np.full(80, 3.0), human, human, group)
    assert found.verdict == "no_evidence"
    assert found.gain is None
    assert "NaN" not in str(found.to_dict())


def test_metrics_are_checked_before_anything_is_asked() -> None:
    with pytest.raises(UsageError, match="spearmann"):
        check_metric("spearmann", {})
    with pytest.raises(UsageError, match="two different labels"):
        check_metric("auc", {"q": np.array([1.0, 2.0, 3.0])})
