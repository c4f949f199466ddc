"""Rank statistics of many bootstrap draws without ranking anew in each.

A draw weights groups, and the statistics are sums over pairs of rows, so they are quadratic forms
of the groups' weights: which rows lie above which is counted once. No step approximates; the sums
are whole numbers. With a_i, b_i the mid-ranks of judge and people, centred, in a draw with w_g
copies of group g:

    a_i = sum_j w_j sign(judge_i - judge_j) / 2
    sum_i w_i a_i^2 = (n^3 - sum_v t_v^3) / 12      t_v: rows of the draw with the value v
    sum_i w_i a_i b_i = sum_L b_L sum_{i of level L} w_i a_i

(Kendall 1948, "Rank correlation methods", for the ties.) People use few levels, so the last sum
has few terms.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from geval.agreement.resample import in_chunks
from geval.stats import numpy

if TYPE_CHECKING:
    from geval.agreement.pairs import Pairs

TABLE_CELLS = 400
"""Pairs of values up to which a draw's table of judge by people is made."""
FORM_CELLS = 24_000_000
"""Numbers of the forms (levels, groups, groups) that are held (8 bytes each)."""
_BLOCK = 8_000_000


class Ties:
    """Sums of squares and cubes of how often each value stands in a draw."""

    def __init__(self, number: Any, group: Any, groups: int) -> None:
        np = numpy()
        values = int(number.max()) + 1
        cells, count = np.unique(number * groups + group, return_counts=True)
        value, of = cells // groups, cells % groups
        alone = np.bincount(value, minlength=values) == 1
        own = alone[value]
        # A value of one group only needs no sum over groups.
        self.two, self.three = (
            np.bincount(of[own], weights=count[own].astype(float) ** k, minlength=groups)
            for k in (2, 3)
        )
        _, shared = np.unique(value[~own], return_inverse=True)
        self.shared = np.zeros((groups, int(shared.max()) + 1 if len(shared) else 0))
        self.shared[of[~own], shared] = count[~own]

    def sums(self, w: Any) -> tuple[Any, Any]:
        """(sum of squares, sum of cubes), each (draws,)."""
        np = numpy()

        def chunk(some: Any) -> Any:
            mass = some @ self.shared
            square = mass * mass
            return np.stack([square.sum(axis=1), (square * mass).sum(axis=1)], axis=1)

        two, three = in_chunks(chunk, w, self.shared.shape[1]).T
        return two + (w**2) @ self.two, three + (w**3) @ self.three


class Orders:
    """What `Pairs` hold of order: exact rank statistics over draws (draws, G).

    `possible` is False where people's values are too many for the groups there are.
    """

    def __init__(self, p: Pairs) -> None:
        np = numpy()
        self.p = p
        self.values, self.judge = np.unique(p.judge, return_inverse=True)
        self.levels, self.human = np.unique(p.human, return_inverse=True)
        v, k = len(self.values), len(self.levels)
        self.by_table = v * k <= TABLE_CELLS and v * k * p.groups <= FORM_CELLS
        self.possible = self.by_table or max(k + 1, v / p.groups) * p.groups**2 <= FORM_CELLS

    @cached_property
    def ties(self) -> tuple[Ties, Ties]:
        """Of the judge's values and the people's."""
        group, groups = self.p.group, self.p.groups
        return Ties(self.judge, group, groups), Ties(self.human, group, groups)

    @cached_property
    def by_level(self) -> Any:
        """Rows of each group and people's level (G, K)."""
        np = numpy()
        k, groups = len(self.levels), self.p.groups
        cells = np.bincount(self.p.group * k + self.human, minlength=groups * k)
        return cells.reshape(groups, k).astype(float)

    @cached_property
    def forms(self) -> Any:
        """(K + 1, G, G): for each level of people, rows of group g above rows of that level in
        group h less those below; last, pairs that judge and people order alike less the others.
        """
        np = numpy()
        p, v, k = self.p, len(self.values), len(self.levels)
        cells, of_row = np.unique(p.group * k + self.human, return_inverse=True)
        order = np.argsort(of_row, kind="stable")
        starts = np.searchsorted(of_row[order], np.arange(len(cells)))
        groups_at = np.searchsorted(cells // k, np.arange(p.groups))
        row_value = self.judge[order]
        out = np.zeros((k + 1, p.groups, p.groups))
        step = max(1, _BLOCK // max(v, p.n))
        for at in range(0, p.groups, step):
            wide = min(step, p.groups - at)
            inside = (p.group >= at) & (p.group < at + wide)
            for level in range(k):
                mine = inside & (self.human == level)
                n = np.bincount(
                    self.judge[mine] * wide + p.group[mine] - at, minlength=v * wide
                ).reshape(v, wide)
                upto = n.cumsum(axis=0, dtype=np.int32)
                above = 2 * upto - n.astype(np.int32) - upto[-1]
                met = np.add.reduceat(above[row_value], starts, axis=0)
                block = slice(at, at + wide)
                out[level, :, block] = np.add.reduceat(met, groups_at, axis=0)
                sign = np.sign(cells % k - level)[:, None]
                out[k, :, block] += np.add.reduceat(met * sign, groups_at, axis=0)
        return out

    @cached_property
    def tables(self) -> Any:
        """Rows of each group by value of judge and people (G, V * K)."""
        np = numpy()
        cells, groups = len(self.values) * len(self.levels), self.p.groups
        at = (self.p.group * len(self.values) + self.judge) * len(self.levels) + self.human
        return np.bincount(at, minlength=groups * cells).reshape(groups, cells).astype(float)

    def above(self, w: Any) -> tuple[Any, Any]:
        """(draws, K): rows above those of each level less rows below, over all pairs; and
        (draws,): pairs ordered alike less pairs ordered the other way, each pair twice.
        """
        np = numpy()
        if not self.by_table:
            found = np.stack([((w @ form) * w).sum(axis=1) for form in self.forms], axis=1)
            return found[:, :-1], found[:, -1]
        v, k = len(self.values), len(self.levels)

        def chunk(some: Any) -> Any:
            t = (some @ self.tables).reshape(-1, v, k)
            rows = t.sum(axis=2)
            upto = rows.cumsum(axis=1)
            over = rows.sum(axis=1)[:, None] - 2 * upto + rows
            levels = np.einsum("bvk,bv->bk", t, over)
            corner = t.cumsum(axis=1).cumsum(axis=2)[:, :-1, :-1]
            alike = (t[:, 1:, 1:] * corner).sum(axis=(1, 2))
            corner = t[:, :, ::-1].cumsum(axis=1).cumsum(axis=2)[:, :-1, :-1]
            other = (t[:, :, ::-1][:, 1:, 1:] * corner).sum(axis=(1, 2))
            return np.concatenate([levels, 2 * (alike - other)[:, None]], axis=1)

        found = in_chunks(chunk, w, v * k)
        return found[:, :-1], found[:, -1]

    def spearman(self, w: Any) -> Any:
        """Rank correlation (draws,); NaN where a draw is constant."""
        np = numpy()
        above, _ = self.sums(w)
        mass = w @ self.by_level
        n = mass.sum(axis=1)
        place = mass.cumsum(axis=1) - mass / 2 - n[:, None] / 2
        shared = -(place * above).sum(axis=1) / 2
        (_, judge), (_, human) = self.tie_sums(w)
        spread = ((n**3 - judge) / 12) * ((n**3 - human) / 12)
        flat = (n**3 - judge < 0.5) | (n**3 - human < 0.5)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(flat, np.nan, np.clip(shared / np.sqrt(spread), -1, 1))

    def kendall(self, w: Any) -> tuple[Any, Any, Any]:
        """(draws,) each, over ordered pairs: alike less other, and pairs that differ in the
        judge's value, and in the people's.
        """
        _, alike = self.sums(w)
        n = w @ self.by_level.sum(axis=1)
        (judge, _), (human, _) = self.tie_sums(w)
        return alike, n**2 - judge, n**2 - human

    def auc(self, w: Any) -> Any:
        """How often a row of the upper of two levels lies above one of the lower."""
        np = numpy()
        above, _ = self.sums(w)
        lower, upper = (w @ self.by_level).T
        with np.errstate(divide="ignore", invalid="ignore"):
            value = 0.5 + above[:, 0] / (2 * lower * upper)
        return np.where(lower * upper > 0, value, np.nan)

    def sums(self, w: Any) -> tuple[Any, Any]:
        """`above`, kept for the statistics that ask for the same draws."""
        return self.p.kept("above", w, self.above)  # type: ignore[no-any-return]

    def tie_sums(self, w: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """`Ties.sums` of judge and people."""
        judge, human = self.ties
        return self.p.kept("ties", w, lambda some: (judge.sums(some), human.sums(some)))  # type: ignore[no-any-return]
