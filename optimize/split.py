"""Which rows are learned from, chosen on, and kept locked for the one test.

Rows of one document stay together. `train` gives demos and rows to reflect on and is never
scored for the choice; `dev` is what candidates are compared on; `test` is opened once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geval.stats import numpy

EXPLORE_ROWS, EXPLORE_GROUPS = 60, 20
"""Under these nothing can be shown: six test groups are the fewest whose swaps reach p < .025."""

SMALL_ROWS = 150
"""Under this, train keeps only what demos and reflection need, and dev gets the rest."""

SHARES = {False: (0.4, 0.3, 0.3), True: (0.2, 0.5, 0.3)}
"""train, dev, test; True for few rows."""


@dataclass(frozen=True)
class Split:
    """Row numbers of each part; `order` are the dev groups in the order they are evaluated."""

    train: Any
    dev: Any
    test: Any
    order: tuple[int, ...]
    explore: bool


def split(group: Any, level: Any, seed: int) -> Split:
    """Split rows by group (n,), stratified on the groups' mean `level` (n,), seeded.

    Groups are sorted by level and dealt in small runs, so that each part sees the whole range.
    """
    np = numpy()
    group, level = np.asarray(group), np.asarray(level, float)
    groups = int(group.max()) + 1
    size = np.bincount(group, minlength=groups)
    mean = np.bincount(group, weights=np.nan_to_num(level, nan=0.5), minlength=groups) / size
    rng = np.random.default_rng([seed, 1])
    explore = len(group) < EXPLORE_ROWS or groups < EXPLORE_GROUPS
    wanted = np.array(SHARES[len(group) < SMALL_ROWS])
    ranked = np.lexsort((rng.random(groups), mean))
    part = np.empty(groups, int)
    filled = np.zeros(3)
    for at in range(0, groups, 10):
        for g in rng.permutation(ranked[at : at + 10]):
            # The part that is furthest behind its share, so that the shares hold by rows.
            behind = wanted * (filled.sum() + size[g]) - filled
            part[g] = int(np.argmax(behind))
            filled[part[g]] += size[g]
    for p in range(3):  # with few or unequal groups a part may have got none
        if not (part == p).any():
            richest = int(np.argmax(np.bincount(part, minlength=3)))
            part[np.flatnonzero(part == richest)[0]] = p
    dev_groups = np.flatnonzero(part == 1)
    order = _spread(dev_groups, mean, rng)
    rows = [np.flatnonzero(part[group] == p) for p in range(3)]
    return Split(rows[0], rows[1], rows[2], tuple(int(g) for g in order), explore)


def _spread(groups: Any, mean: Any, rng: Any) -> Any:
    """Groups in an order whose every beginning has low and high ones."""
    np = numpy()
    ranked = groups[np.argsort(mean[groups], kind="stable")]
    cells = np.array_split(ranked, min(4, len(ranked)))
    shuffled = [list(rng.permutation(cell)) for cell in cells]
    longest = max(len(cell) for cell in shuffled)
    return [cell[i] for i in range(longest) for cell in shuffled if i < len(cell)]


def blocks(order: tuple[int, ...], group: Any, rows: Any) -> list[Any]:
    """Rows of dev in the pieces they are evaluated in; a candidate may be given up after each.

    The first piece has at least 8 groups and 24 rows: fewer say nothing. The others are about
    an eighth of the whole.
    """
    np = numpy()
    own = [rows[group[rows] == g] for g in order]
    total = sum(len(r) for r in own)
    pieces: list[Any] = []
    piece: list[Any] = []
    for one in own:
        piece.append(one)
        least_groups, least_rows = (8, 24) if not pieces else (2, max(6, total // 8))
        if len(piece) >= least_groups and sum(map(len, piece)) >= least_rows:
            pieces.append(np.concatenate(piece))
            piece = []
    if piece:
        rest = np.concatenate(piece)
        if pieces and len(rest) < total // 12:
            pieces[-1] = np.concatenate([pieces[-1], rest])
        else:
            pieces.append(rest)
    return pieces
