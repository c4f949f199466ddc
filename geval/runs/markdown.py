"""A run and its verdict as Markdown, for the summary page of a CI job."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from geval.errors import Exit
from geval.result import OVERALL
from geval.runs.gate import STATUSES, Verdict, line, number
from geval.runs.rows import Row, row_name, rows_of, why

if TYPE_CHECKING:
    from geval.runs.run import Run

SHOWN = 10
MOST_TEXT = 300
_ENTITIES = {ord(c): f"&#{ord(c)};" for c in string.punctuation if c not in ",%"}


def markdown(run: Run, verdict: Verdict, word: Mapping[str, Any]) -> str:
    """A heading, the line of the gate, a table of the criteria, and the lowest rows.

    Texts of the data and of the judge stand there as text: nothing in them can be markup, a link
    or a mention.
    """
    return "\n".join(_lines(run, verdict, word)) + "\n"


def _lines(run: Run, verdict: Verdict, word: Mapping[str, Any]) -> Iterator[str]:
    told = run.manifest["template"]
    mark = {Exit.OK: "✅", Exit.GATE: "❌"}.get(verdict.code, "⚠️")
    yield f"### {mark} geval: {safe(told.get('name', '-'))}"
    yield ""
    yield safe(line(verdict, word), 1_000)
    yield ""
    judges = " + ".join(str(judge.get("spec", "-")) for judge in run.manifest["judges"])
    yield f"{safe(word['judge'])}: {safe(judges)}"
    yield ""
    titles = told.get("titles") or {}
    header = [word["criterion"], word["mean"], *(word[status] for status in STATUSES)]
    yield from _table(header, _criteria(verdict, titles, word), "lrrrr")
    lowest = _lowest(run, verdict)
    if lowest:
        yield ""
        yield f"**{safe(word['page_lowest'])}**"
        yield ""
        header = [word["id"], word["overall"], word["reason"]]
        cells = (
            [
                row_name(row[-1]),
                number(row[-1]["normalized"]),
                why(row)
                or " / ".join(str(r["reason"]) for r in row[:-1] if r.get("reason"))
                or "-",
            ]
            for row in lowest
        )
        yield from _table(header, cells, "lrl")


def _criteria(
    verdict: Verdict, titles: Mapping[str, str], word: Mapping[str, Any]
) -> Iterator[list[str]]:
    tally = verdict.tally
    for name in [*(n for n in tally.n if n != OVERALL), OVERALL]:
        shown = word["overall"] if name == OVERALL else str(titles.get(name) or name)
        counts = tally.n.get(name, {})
        yield [shown, number(tally.mean(name)), *(f"{counts.get(s, 0):,}" for s in STATUSES)]


def _lowest(run: Run, verdict: Verdict) -> list[Row]:
    """The lowest rows where the gate is not passed; an unscored one is lower than any score."""
    import heapq

    if verdict.code == Exit.OK:
        return []
    bad = -1 if verdict.tally.worst else 1

    def height(numbered: tuple[int, Row]) -> tuple[float, int]:
        value = numbered[1][-1]["normalized"]
        return (-2.0 if value is None else bad * value, numbered[0])

    judged = (row for row in rows_of(run.results()) if row[-1]["status"] != "not_applicable")
    return [row for _, row in heapq.nsmallest(SHOWN, enumerate(judged), key=height)]


def _table(header: Sequence[str], rows: Iterator[list[str]], align: str) -> Iterator[str]:
    yield f"| {' | '.join(map(safe, header))} |"
    yield f"|{'|'.join({'l': '---', 'r': '---:'}[a] for a in align)}|"
    for row in rows:
        yield f"| {' | '.join(map(safe, row))} |"


def safe(text: object, most: int = MOST_TEXT) -> str:
    """Text as one line that Markdown shows as it is.

    Punctuation stands as entities, which cannot open a structure (CommonMark 0.31, 2.5), nor make
    a link out of an address. Characters that are not printed, those that turn the direction of
    writing among them, become spaces.
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    cut = plain if len(plain) <= most else plain[: most - 1] + "…"
    return cut.translate(_ENTITIES)
