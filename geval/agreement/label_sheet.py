"""Which rows people should label next, as a sheet that annotators fill in.

Rows the judge is least sure of come first (highest standard deviation), one per group before a
second of any group; without a run, rows are drawn by chance with a seed. Labels chosen so are
good for finding faults and for calibration; a mean over all rows needs rows drawn by chance.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geval.errors import DataError, UsageError

_FORMULA = ("=", "+", "@", "\t", "\r")


def choose(
    ids: Sequence[str], groups: Mapping[str, str], sd: Mapping[str, float] | None, n: int, seed: int
) -> list[str]:
    """`n` of `ids`: by falling `sd` (None: by chance), spread over groups."""
    draw = random.Random(seed)
    order = list(ids)
    draw.shuffle(order)
    if sd is None:
        return _by_chance(order, groups, n, draw)
    order = sorted((i for i in order if i in sd), key=lambda i: -sd[i])
    turn: dict[str, int] = {}
    ranked = []
    for rank, i in enumerate(order):
        group = groups.get(i, f"id:{i}")
        ranked.append((turn.get(group, 0), rank, i))
        turn[group] = turn.get(group, 0) + 1
    return [i for _, _, i in sorted(ranked)[:n]]


def _by_chance(
    order: Sequence[str], groups: Mapping[str, str], n: int, draw: random.Random
) -> list[str]:
    """Every row as likely as any other, and each group with its share: a systematic sample.

    One row per group before a second of any would count the rows of small groups for more, and the
    mean of the labels would be that of no one's rows.
    """
    held: dict[str, list[str]] = {}
    for i in order:
        held.setdefault(groups.get(i, f"id:{i}"), []).append(i)
    line = [i for rows in held.values() for i in rows]
    if n >= len(line):
        return line
    step = len(line) / n
    start = draw.random() * step
    chosen = [line[min(int(start + k * step), len(line) - 1)] for k in range(n)]
    draw.shuffle(chosen)
    return chosen


def write_sheet(
    path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], asked: Sequence[str]
) -> None:
    """A CSV (UTF-8 with a mark, for Excel) or .xlsx: `columns` of the rows, then empty `asked`.

    Text that a spreadsheet would run as a formula gets an apostrophe. Raises UsageError for
    another format or a file that is already there.
    """
    if path.exists():
        raise UsageError(f"{str(path)!r} is already there; labels in it would be lost")
    header = [*columns, *asked]
    lines = [[_safe(row.get(c, "")) for c in columns] + [""] * len(asked) for row in rows]
    ending = path.suffix.lower()
    if ending == ".csv":
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows([header, *lines])
    elif ending == ".xlsx":
        from openpyxl import Workbook

        book = Workbook(write_only=True)
        sheet = book.create_sheet("labels")
        for line in [header, *lines]:
            sheet.append([_printable(cell) for cell in line])
        book.save(path)
    else:
        raise UsageError(f"a label sheet is .csv or .xlsx, not {ending!r}")


def _safe(value: Any) -> str:
    from geval.data.values import as_text, is_missing

    text = "" if is_missing(value) else as_text(value)
    return "'" + text if text.startswith(_FORMULA) else text


def _printable(text: str) -> str:
    """Control characters are not allowed in a workbook."""
    return "".join(c for c in text if c >= " " or c in "\n\t")


def asked_columns(criteria: Sequence[str], annotators: Sequence[str]) -> list[str]:
    """A column per criterion, or per criterion and annotator: `accuracy/Kim`."""
    for name in annotators:
        if "/" in name or not name.strip():
            raise DataError(f"{name!r} is no name for an annotator's column")
    return [f"{c}/{a}" for c in criteria for a in annotators] if annotators else list(criteria)
