from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from geval.agreement import ppi
from geval.agreement.label_sheet import choose
from geval.agreement.planning import plan, within_correlation


def rows(rng: np.random.Generator, groups: int, each: int, noise: float) -> tuple[np.ndarray, ...]:
    """Judge, people and group: half of what people say is the document's."""
    group = np.repeat(np.arange(groups), each)
    human = 3 + rng.normal(0, 0.7, groups)[group] + rng.normal(0, 0.7, groups * each)
    # What the judge gets wrong, it gets wrong in the whole document.
    wrong = rng.normal(0, noise, groups)[group] + rng.normal(0, noise, groups * each)
    return human + wrong, human, group


def test_correlation_within_groups() -> None:
    rng = np.random.default_rng(1)
    _, human, group = rows(rng, 400, 6, 0)
    assert within_correlation(human, group) == pytest.approx(0.5, abs=0.06)
    assert within_correlation(rng.normal(size=600), np.repeat(np.arange(100), 6)) == pytest.approx(
        0, abs=0.07
    )
    assert within_correlation([1.0, 2.0, 3.0], [0, 1, 2]) is None


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_the_interval_has_the_width_that_was_planned_for(noise: float) -> None:
    """Labels spread over 60 documents of 20 rows, where documents matter."""
    rng = np.random.default_rng(2)
    width = 0.3 if noise < 1 else 0.5
    planned, alone, seen, blind = [], [], [], []
    for _ in range(25):
        judge, human, group = rows(rng, 60, 20, noise)
        pilot = np.where(np.isin(np.arange(1_200), rng.permutation(1_200)[:240]), human, np.nan)
        wanted = plan(judge, pilot, width, group)
        if wanted.rows is None:
            continue
        assert wanted.groups == min(60, wanted.rows)
        planned.append(wanted.rows)
        alone.append(wanted.people_rows)
        blind.append(plan(judge, pilot, width).rows)
        ids = [str(i) for i in range(1_200)]
        chosen = choose(ids, {i: str(group[int(i)]) for i in ids}, None, wanted.rows, 3)
        got = ppi.mean(judge, np.where(np.isin(ids, chosen), human, np.nan), group)
        assert got is not None
        assert got.low is not None
        assert got.high is not None
        seen.append(got.high - got.low)
    assert len(seen) > 15
    assert np.mean(seen) == pytest.approx(width, rel=0.25)
    if noise < 1:
        assert np.mean(planned) < np.mean(alone)
    assert np.mean([b or 0 for b in blind]) <= np.mean(planned)


def test_more_groups_are_asked_for_where_the_rows_of_these_would_not_do() -> None:
    rng = np.random.default_rng(3)
    judge, human, group = rows(rng, 20, 30, 0.5)
    wanted = plan(judge, human, 0.1, group)
    assert wanted.people_groups > 20
    assert wanted.people_rows == wanted.people_groups
    assert wanted.rows is None


def test_a_good_judge_saves_labels_and_precision_costs_them() -> None:
    rng = np.random.default_rng(5)
    human = rng.integers(1, 6, 1000).astype(float)
    good, poor = human + rng.normal(0, 0.3, 1000), human + rng.normal(0, 3, 1000)
    seen = np.where(np.arange(1000) < 100, human, np.nan)
    with_good, with_poor = plan(good, seen, 0.3), plan(poor, seen, 0.3)
    assert with_good.rows is not None
    assert with_good.rows < with_good.people_rows / 2
    assert with_poor.rows is None or with_poor.rows > with_good.rows
    narrower = plan(good, seen, 0.2)
    assert narrower.rows is None or narrower.rows > with_good.rows


def test_rows_drawn_by_chance_are_equally_likely_whatever_their_group() -> None:
    ids = [str(i) for i in range(40)]
    groups = {i: "big" if int(i) < 30 else f"g{i}" for i in ids}
    drawn = [choose(ids, groups, None, 8, seed) for seed in range(1_500)]
    assert all(len(set(one)) == 8 for one in drawn)
    counts = Counter(i for one in drawn for i in one)
    assert all(0.15 < counts[i] / 1_500 < 0.25 for i in ids)
    # the big group has its three quarters each time, give or take one
    assert {sum(int(i) < 30 for i in one) for one in drawn} <= {5, 6, 7}
