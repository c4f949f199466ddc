from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from geval.agreement import orders
from geval.agreement.metrics import METRICS, krippendorff, leave_one_out, reliability
from geval.agreement.pairs import Pairs
from geval.agreement.resample import draw_weights, interval

DATA = Path(__file__).parent / "data"


def value(p: Pairs, name: str) -> float:
    return float(METRICS[name].fn(p, p.ones)[0])


@pytest.mark.fault("A11")
@pytest.mark.parametrize(
    "aspect",
    ["naturalness", "coherence", "engagingness", "groundedness", "understandability", "overall"],
)
def test_published_correlations_to_six_decimals(aspect: str) -> None:
    with gzip.open(DATA / "unieval_topical_chat.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    wanted = json.loads((DATA / "unieval_topical_chat.expected.json").read_text())[aspect]
    p = Pairs(
        [r["pred"][aspect] for r in rows],
        [r["human"][aspect] for r in rows],
        [r["group"] for r in rows],
    )
    for name in ("pearson", "spearman", "kendall_b"):
        assert value(p, name) == pytest.approx(wanted["pooled"][name], abs=5e-7)
        assert value(p, f"{name}@per_group") == pytest.approx(wanted["per_group"][name], abs=5e-7)


def test_krippendorff_known_values() -> None:
    """Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", example C."""
    n = float("nan")
    ratings = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, n, n, n],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, n, 3],
            [n, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, n],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, n],
        ]
    ).T
    assert krippendorff(ratings, "nominal") == pytest.approx(0.743, abs=5e-4)
    assert krippendorff(ratings, "ordinal") == pytest.approx(0.815, abs=5e-4)
    assert krippendorff(ratings, "interval") == pytest.approx(0.849, abs=5e-4)


def test_kappa_by_hand() -> None:
    """Table [[20, 5], [10, 15]]: seen .7, by chance .5, so kappa .4 (Cohen 1960)."""
    human = [0] * 25 + [1] * 25
    judge = [0] * 20 + [1] * 5 + [0] * 10 + [1] * 15
    p = Pairs(judge, human, levels=[0, 1])
    assert value(p, "kappa_linear") == pytest.approx(0.4)
    assert value(p, "kappa_quadratic") == pytest.approx(0.4)
    assert value(p, "exact") == pytest.approx(0.7)
    assert value(p, "base_rate") == pytest.approx(0.5)


def test_kappa_weights_by_hand() -> None:
    """Levels 1, 2, 3: seen cost 1/3 a row, chance 1 quadratic: 1 - .25 = .75; linear 1 - .375."""
    p = Pairs([1, 2, 3, 2], [1, 2, 3, 1], levels=[1, 2, 3])
    # chance: people 2/4, 1/4, 1/4; judge 1/4, 2/4, 1/4
    linear = (2 * (2 * 1 + 1 * 2) + 1 * (1 * 1 + 1 * 1) + 1 * (1 * 2 + 2 * 1)) / 16
    quadratic = (2 * (2 * 1 + 1 * 4) + 1 * (1 * 1 + 1 * 1) + 1 * (1 * 4 + 2 * 1)) / 16
    assert value(p, "kappa_linear") == pytest.approx(1 - 0.25 / linear)
    assert value(p, "kappa_quadratic") == pytest.approx(1 - 0.25 / quadratic)


def test_two_levels_by_hand() -> None:
    p = Pairs([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0], levels=[0, 1])
    assert value(p, "auc") == pytest.approx(0.75)
    assert value(p, "average_precision") == pytest.approx((1 + 2 / 3) / 2)
    tied = Pairs([0.5, 0.5], [1, 0], levels=[0, 1])
    assert value(tied, "auc") == pytest.approx(0.5)


def test_distribution_metrics_by_hand() -> None:
    p = Pairs([2.0, 3.0], [1, 3], levels=[1, 2, 3], probs=[[0.5, 0.0, 0.5], [0.0, 0.0, 1.0]])
    assert value(p, "rps") == pytest.approx((0.25 + 0.25) / 2 / 2)
    assert value(p, "ece") == pytest.approx(0.25)  # .5 sure and right once of the two
    assert [(b["n"], b["confidence"], b["right"]) for b in reliability(p)] == [
        (1, 0.5, 1.0),
        (1, 1.0, 1.0),
    ]


@pytest.mark.fault("A9")
def test_a_harsh_judge_shows_in_bias_and_not_in_rank() -> None:
    human = np.tile([3.0, 4.0, 5.0], 10)
    p = Pairs(human - 2, human, levels=[1, 2, 3, 4, 5])
    assert value(p, "spearman") == pytest.approx(1)
    assert value(p, "mean_bias") == pytest.approx(-2)
    assert value(p, "exact") == 0
    assert value(p, "kappa_quadratic") < 0.3


def test_constant_scores_have_no_correlation() -> None:
    p = Pairs([3, 3, 3], [1, 2, 3], levels=[1, 2, 3])
    for name in ("pearson", "spearman", "kendall_b"):
        assert np.isnan(value(p, name))


scores = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(0, 3)), min_size=4, max_size=40
)


@settings(deadline=None, max_examples=60)
@given(scores, st.randoms())
def test_same_as_scipy_and_blind_to_order(rows: list[tuple[int, int, int]], random: object) -> None:
    judge, human, group = map(list, zip(*rows, strict=True))
    p = Pairs(judge, human, group, levels=[1, 2, 3, 4, 5])
    if len(set(judge)) > 1 and len(set(human)) > 1:
        assert value(p, "spearman") == pytest.approx(stats.spearmanr(judge, human).statistic)
        assert value(p, "pearson") == pytest.approx(stats.pearsonr(judge, human).statistic)
        for variant in "bc":
            expected = stats.kendalltau(judge, human, variant=variant).statistic
            assert value(p, f"kendall_{variant}") == pytest.approx(expected)
    turned = Pairs(judge[::-1], human[::-1], group[::-1], levels=[1, 2, 3, 4, 5])
    for name, metric in METRICS.items():
        if set(metric.needs) <= {"scale", "groups"}:
            assert value(turned, name) == pytest.approx(value(p, name), nan_ok=True)


@settings(deadline=None, max_examples=40)
@given(scores)
def test_weights_are_rows_repeated(rows: list[tuple[int, int, int]]) -> None:
    """A draw's value is the value of the rows it stands for, written out."""
    judge, human, group = (np.array(x) for x in zip(*rows, strict=True))
    p = Pairs(judge, human, group, levels=[1, 2, 3, 4, 5])
    weights = draw_weights(p.groups, 3, 7)
    names = np.unique(group)
    for b, draw in enumerate(weights):
        take = np.concatenate(
            [
                np.repeat(np.flatnonzero(group == g), int(k))
                for g, k in zip(names, draw, strict=True)
            ]
        ).astype(int)
        written = Pairs(judge[take], human[take], levels=[1, 2, 3, 4, 5])
        for name in ("spearman", "pearson", "kendall_b", "kappa_linear", "alpha_ordinal", "mae"):
            got = METRICS[name].fn(p, weights)[b]
            assert got == pytest.approx(value(written, name), nan_ok=True, abs=1e-9), name


@pytest.mark.parametrize("way", ["forms", "table", "ranks"])
@pytest.mark.parametrize("levels", [2, 5])
@pytest.mark.parametrize("fine", [True, False])
def test_rank_statistics_of_a_draw_are_scipy_s_of_its_rows(
    monkeypatch: pytest.MonkeyPatch, way: str, levels: int, fine: bool
) -> None:
    """Each way of counting gives what ranking the written-out rows anew gives."""
    monkeypatch.setattr(orders, "TABLE_CELLS", 10**6 if way == "table" else 0)
    if way == "ranks":
        monkeypatch.setattr(orders, "FORM_CELLS", 0)
    monkeypatch.setattr(orders, "_BLOCK", 1_000)  # several blocks of groups
    rng = np.random.default_rng(8)
    group = rng.integers(0, 30, 400)
    human = rng.integers(1, levels + 1, 400).astype(float)
    judge = human + rng.normal(0, 1, 400)
    judge = judge if fine else np.round(judge)
    judge[:40] = judge[0]  # a tie over many groups
    p = Pairs(judge, human, group, levels=[1, 2, 3, 4, 5])
    weights = draw_weights(30, 4, 2)
    for b, draw in enumerate(weights):
        take = np.concatenate(
            [np.tile(np.flatnonzero(group == g), int(draw[g])) for g in range(30)]
        )
        x, y = judge[take.astype(int)], human[take.astype(int)]
        wanted = {
            "spearman": stats.spearmanr(x, y).statistic,
            "kendall_b": stats.kendalltau(x, y).statistic,
        }
        if levels == 2:
            up, down = x[y == 2], x[y == 1]
            wanted["auc"] = stats.mannwhitneyu(up, down).statistic / (len(up) * len(down))
        for name, expected in wanted.items():
            assert METRICS[name].fn(p, weights)[b] == pytest.approx(expected), name


def test_correlation_of_systems_and_groups_is_that_of_their_own_rows() -> None:
    rng = np.random.default_rng(4)
    group, system = np.repeat(np.arange(12), 6), np.tile(np.arange(6), 12)
    human = rng.integers(1, 6, 72).astype(float) + system / 3
    judge = np.round(human + rng.normal(0, 1, 72), 1)
    judge[:6] = 3.0  # a constant group
    p = Pairs(judge, human, group, system=system)
    draw = np.array([[2.0, 0, 1, 0, 3, 1, 1, 0, 1, 2, 1, 0]])
    copies = np.repeat(np.arange(12), draw[0].astype(int))
    rows = np.concatenate([np.flatnonzero(group == g) for g in copies])
    means = [
        [round(v[rows][system[rows] == s].mean(), 9) for s in range(6)] for v in (judge, human)
    ]
    for name, of in (
        ("pearson", stats.pearsonr), ("spearman", stats.spearmanr), ("kendall_b", stats.kendalltau)
    ):  # fmt: skip
        inside = [of(judge[group == g], human[group == g]).statistic for g in copies if g]
        assert METRICS[f"{name}@system"].fn(p, draw)[0] == pytest.approx(of(*means).statistic)
        assert METRICS[f"{name}@per_group"].fn(p, draw)[0] == pytest.approx(np.mean(inside))


def test_interval_of_a_mean_holds_it() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        noise = rng.normal(size=(30, 1)) + rng.normal(size=(30, 4))
        p = Pairs(noise.ravel(), np.zeros(120), np.repeat(np.arange(30), 4), levels=[0, 1])
        ends = interval(METRICS["mean_bias"].fn(p, draw_weights(30, 400, 1)))
        assert ends
        hits += ends[0] <= 0 <= ends[1]
    assert 0.88 <= hits / 300 <= 0.98  # rows drawn singly would give about .6


def test_one_annotator_against_the_others() -> None:
    same = np.array([[1, 1, 1], [2, 2, 2], [3, 3, 3], [5, 5, 5]], float)
    assert leave_one_out(same) == pytest.approx(1)
