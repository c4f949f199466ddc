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


def covered(draws: list[ppi.Mean | None], truth: float) -> float:
    """Share of intervals that hold the truth; all must have one."""
    ends = [(one.low, one.high) for one in draws if one is not None]
    assert len(ends) == len(draws)
    return float(np.mean([low is not None and low <= truth <= high for low, high in ends]))  # type: ignore[operator]


def test_coverage_where_rows_come_in_groups() -> None:
    rng = np.random.default_rng(RNG_SEED)
    group = np.repeat(np.arange(80), 5)
    draws = []
    for _ in range(2_000):
        human = rng.normal(0, 1, 80)[group] + rng.normal(0, 0.5, 400)
        judge = human + 0.5 + rng.normal(0, 0.5, 400)
        draws.append(ppi.mean(judge, np.where(np.arange(400) < 200, human, np.nan), group))
    assert 0.93 <= covered(draws, 0) <= 0.97


@pytest.mark.parametrize("labelled", ["groups", "rows"])
@pytest.mark.parametrize("several", [False, True])
def test_coverage_per_system_and_of_paired_differences(several: bool, labelled: str) -> None:
    """Two systems over documents, one row or several of each, documents or rows labelled.

    The second has more rows in easy documents: rows counted alike would put it ahead by that.
    """
    rng = np.random.default_rng(RNG_SEED)
    documents, truth = 120, 0.3
    per_system, paired, wrong = [], [], []
    for _ in range(2_000):
        easy = rng.normal(0, 1, documents)
        many = 1 + (easy > 0) * 3 if several else np.ones(documents, int)
        counts = [np.minimum(many, 2) if several else many, many]
        group = np.concatenate([np.repeat(np.arange(documents), c) for c in counts])
        first = np.arange(len(group)) < counts[0].sum()
        cell = rng.normal(0, 0.4, (2, documents))[(~first).astype(int), group]
        human = easy[group] + cell + truth * first + rng.normal(0, 0.6, len(group))
        judge = 0.8 * human + 0.5 - 0.4 * first + rng.normal(0, 0.6, len(group))
        seen = rng.permutation(documents)[group] < 40
        if labelled == "rows":
            seen = rng.random(len(group)) < 0.4
        known = np.where(seen, human, np.nan)
        system = np.where(first, "a", "b")
        paired.append(ppi.differences(judge, known, group, system)["a", "b"])
        wrong.append(human[first].mean() - human[~first].mean() - truth)
        if not several:
            per_system.append(ppi.mean(judge[first], known[first], group[first]))
    assert 0.93 <= covered(list(paired), truth) <= 0.97
    assert abs(np.mean([one.value for one in paired]) - truth) < 0.02
    if several:
        assert np.mean(wrong) < -0.1
    else:
        assert 0.93 <= covered(per_system, truth) <= 0.97


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
    assert (one.n_labelled, one.n_rest, one.groups, one.groups_labelled) == (40, 20, 30, 20)
    assert one.low is not None
    assert one.low > 0.9


def test_every_row_of_a_system_in_a_group_counts_in_a_paired_difference() -> None:
    """Two rows of each system per document: the difference is that of all, not of the last."""
    group = np.repeat(np.arange(12), 4)
    system = np.tile(["a", "a", "b", "b"], 12)
    human = np.tile([5.0, 1.0, 2.0, 2.0], 12) + np.repeat(np.arange(12) % 3, 4)
    one = ppi.differences(human + 1, human, group, system)["a", "b"]
    assert one.value == pytest.approx(1)
    assert one.naive == pytest.approx(1)
    assert (one.n_labelled, one.n_rest) == (48, 0)
    backwards = ppi.differences(human[::-1] + 1, human[::-1], group[::-1], system[::-1])["a", "b"]
    assert backwards.value == pytest.approx(1)
    apart = ppi.differences(human, human, np.arange(48), system)
    assert apart == {}  # no document holds both: nothing to pair
