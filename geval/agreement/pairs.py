"""Judge and people on the same rows, prepared for statistics over weighted groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from geval.agreement.orders import Orders
from geval.stats import numpy


class Pairs:
    """n rows: the judge's score and the people's, the group of each, and the scale's levels.

    `judge`, `human`: arrays (n,) without missing values, in units of the scale. `group`: (n,)
    numbers 0..G-1. `probs`: (n, K) or None. `system`: (n,) numbers or None. `levels`: (K,) or
    None where the people's scale is another than the judge's.
    """

    def __init__(
        self,
        judge: Any,
        human: Any,
        group: Any = None,
        *,
        levels: Sequence[float] | None = None,
        probs: Any = None,
        system: Any = None,
        grouped: bool | None = None,
    ) -> None:
        np = numpy()
        judge, human = np.asarray(judge, float), np.asarray(human, float)
        if judge.shape != human.shape or judge.ndim != 1:
            raise ValueError(f"shapes differ: {judge.shape} and {human.shape}")
        self.grouped = group is not None if grouped is None else grouped
        group = np.arange(len(judge)) if group is None else np.asarray(group)
        _, number = np.unique(group, return_inverse=True)
        order = np.argsort(number, kind="stable")
        self.order = order
        self.judge, self.human, self.group = judge[order], human[order], number[order]
        self.levels: Any = None if levels is None else np.asarray(levels, float)
        self.probs: Any = None if probs is None else np.asarray(probs, float)[order]
        self.system: Any = None if system is None else np.asarray(system)[order]
        self.n = len(judge)
        self.groups = int(number.max()) + 1 if self.n else 0
        self.ones = np.ones((1, self.groups))
        self._kept: dict[str, tuple[Any, Any]] = {}

    def kept(self, name: str, weights: Any, make: Callable[[Any], Any]) -> Any:
        """`make(weights)`, made once for several statistics that are given the same array."""
        held = self._kept.get(name)
        if held is None or held[0] is not weights:
            held = self._kept[name] = (weights, make(weights))
        return held[1]

    @cached_property
    def orders(self) -> Orders:
        """Which rows lie above which, for statistics of rank."""
        return Orders(self)

    @cached_property
    def starts(self) -> Any:
        """Where each group begins; rows are sorted by group."""
        return numpy().searchsorted(self.group, numpy().arange(self.groups))

    def by_group(self, values: Any) -> Any:
        """Sums of (n, ...) per group: (G, ...)."""
        return numpy().add.reduceat(values, self.starts, axis=0)

    def total(self, weights: Any, values: Any) -> Any:
        """Weighted sums (draws, ...) of values per row (n, ...)."""
        return weights @ self.by_group(values)

    def count(self, weights: Any) -> Any:
        """Rows of each draw."""
        return self.total(weights, numpy().ones(self.n))

    def level_of(self, values: Any) -> Any:
        """Index of the nearest level (the lower of two as near)."""
        np = numpy()
        assert self.levels is not None
        between = (self.levels[1:] + self.levels[:-1]) / 2
        return np.searchsorted(between, values, side="left")

    @cached_property
    def tables(self) -> Any:
        """Confusion table of each group (G, K * K): people's level by judge's level."""
        np = numpy()
        assert self.levels is not None
        k = len(self.levels)
        cell = self.group * k * k + self.level_of(self.human) * k + self.level_of(self.judge)
        return np.bincount(cell, minlength=self.groups * k * k).reshape(-1, k * k).astype(float)

    def table(self, weights: Any) -> Any:
        """Confusion tables (draws, K, K), people in rows."""
        assert self.levels is not None
        k = len(self.levels)
        return (weights @ self.tables).reshape(-1, k, k)

    @cached_property
    def signs(self) -> tuple[Any, Any, Any]:
        """Over pairs of rows, summed by pairs of groups (G, G): agreement of order, and how many
        pairs differ in the judge's score, and in the people's.
        """
        np = numpy()
        out = [np.zeros((self.groups, self.groups)) for _ in range(3)]
        step = max(1, 4_000_000 // max(1, self.n))
        judge, human = self.judge.astype(np.float64), self.human.astype(np.float64)
        for at in range(0, self.n, step):
            part = slice(at, min(at + step, self.n))
            a = _sign(judge[part, None], judge[None, :])
            b = _sign(human[part, None], human[None, :])
            rows = self.group[part]
            first, starts = np.unique(rows, return_index=True)
            for target, cells in zip(out, (a * b, np.abs(a), np.abs(b)), strict=True):
                wide = np.add.reduceat(cells, self.starts, axis=1, dtype=np.int32)
                target[first] += np.add.reduceat(wide, starts, axis=0)
        return out[0], out[1], out[2]

    @cached_property
    def parts(self) -> list[tuple[Any, Any]]:
        """Judge and people of each group."""
        np = numpy()
        cuts = self.starts[1:]
        return list(zip(np.split(self.judge, cuts), np.split(self.human, cuts), strict=True))


def _sign(a: Any, b: Any) -> Any:
    np = numpy()
    return (a > b).view(np.int8) - (a < b).view(np.int8)
