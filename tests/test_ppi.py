from __future__ import annotations

import numpy as np
import pytest

from geval.agreement import ppi

RNG_SEED = 11


@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0])
def test_coverage_over_2000_draws(noise: float) -> None:
    """Nominal 95 %: between 93 and 97 %, for a good judge and for a useless one."""
    from scipy import stats

    rng = np.random.default_rng(RNG_SEED)
    draws, n, rest = 2_000, 60, 600
    human = rng.choice(
        [1.0, 2.0, 3.0, 4.0, 5.0], p=[0.1, 0.1, 0.2, 0.3, 0.3], size=(draws, n + rest)
    )
    truth = 0.1 * 1 + 0.1 * 2 + 0.2 * 3 + 0.3 * 4 + 0.3 * 5
    judge = human + 0.7 + rng.normal(0, noise, human.shape)
    value, se, weight = ppi.tuned(human[:, :n], judge[:, :n], judge[:, n:])
    half = stats.t.ppf(0.975, n - 2) * se
    assert 0.93 <= np.mean(abs(value - truth) <= half) <= 0.97
    assert abs(value.mean() - truth) < 0.02  # the judge's bias of .7 is gone
    assert ((weight >= 0) & (weight <= 1)).all()


def test_coverage_where_rows_come_in_groups() -> None:
    rng = np.random.default_rng(RNG_SEED)
    hits, width = 0, []
    for _ in range(1_000):
        of_group = np.repeat(rng.normal(0, 1, 80), 5)
        human = of_group + rng.normal(0, 0.5, 400)
        judge = human + 0.5 + rng.normal(0, 0.5, 400)
        seen = np.where(np.arange(400) < 200, human, np.nan)
        one = ppi.mean(judge, seen, np.repeat(np.arange(80), 5))
        assert one is not None
        assert one.low is not None
        assert one.high is not None
        hits += one.low <= 0 <= one.high
        width.append(one.high - one.low)
    assert 0.93 <= hits / 1_000 <= 0.97


def test_scalar_form_is_the_vector_form() -> None:
    rng = np.random.default_rng(3)
    human = rng.normal(3, 1, 300)
    judge = human + rng.normal(0, 0.5, 300)
    value, se, weight = ppi.tuned(human[:50], judge[:50], judge[50:])
    one = ppi.mean(judge, np.where(np.arange(300) < 50, human, np.nan))
    assert one is not None
    assert one.value == pytest.approx(float(value))
    assert one.weight == pytest.approx(float(weight))
    assert one.low is not None
    assert one.high is not None
    assert (one.high - one.low) / 2 == pytest.approx(2.01 * float(se), rel=0.05)


def test_a_judge_that_tells_nothing_gets_no_weight_and_all_labels_are_their_mean() -> None:
    human = np.tile([1.0, 5.0], 20)
    flat = ppi.mean(np.full(100, 3.0), np.concatenate([human, np.full(60, np.nan)]))
    assert flat is not None
    assert flat.weight == 0
    assert flat.value == pytest.approx(3.0)
    whole = ppi.mean(human + 1, human)
    assert whole is not None
    assert whole.value == pytest.approx(3.0)
    assert whole.naive == pytest.approx(4.0)
    assert ppi.mean([1.0, 2.0], [1.0, np.nan]) is None


def test_two_levels_coverage() -> None:
    rng = np.random.default_rng(RNG_SEED)
    hits = 0
    for _ in range(2_000):
        human = (rng.random(1_200) < 0.3).astype(float)
        judge = np.where(human == 1, rng.random(1_200) < 0.9, rng.random(1_200) < 0.2).astype(float)
        one = ppi.two_levels(judge, np.where(np.arange(1_200) < 200, human, np.nan))
        assert one is not None
        assert one.low is not None
        assert one.high is not None
        hits += one.low <= 0.3 <= one.high
    assert 0.93 <= hits / 2_000 <= 0.97


def test_paired_differences() -> None:
    group = np.repeat(np.arange(30), 2)
    system = np.tile(["a", "b"], 30)
    human = np.where(system == "a", 4.0, 3.0) + np.repeat(np.linspace(-1, 1, 30), 2)
    human[::8] += 0.3
    judge = human + 0.5
    human[40:] = np.nan
    one = ppi.differences(judge, human, group, system)["a", "b"]
    assert one.n_labelled == 20
    assert one.n_rest == 10
    assert one.low is not None
    assert one.low > 0.9


def test_rows_needed_shrink_with_a_good_judge_and_grow_with_precision() -> None:
    rng = np.random.default_rng(5)
    human = rng.integers(1, 6, 1000).astype(float)
    good, poor = human + rng.normal(0, 0.3, 1000), human + rng.normal(0, 3, 1000)
    seen = np.where(np.arange(1000) < 100, human, np.nan)
    with_good, alone = ppi.rows_needed(good, seen, 0.3)
    with_poor, _ = ppi.rows_needed(poor, seen, 0.3)
    assert with_good is not None
    assert with_good < alone / 2
    assert with_poor is None or with_poor > with_good
    narrower, _ = ppi.rows_needed(good, seen, 0.2)
    assert narrower is None or narrower > with_good
