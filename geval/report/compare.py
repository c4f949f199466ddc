"""Two runs compared, as one HTML file: tables and charts, no script, nothing loaded.

Charts are matplotlib's SVG with text as text. Every text of the data goes through an escape, and
the page forbids scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geval.errors import RunError
from geval.locale import report_words
from geval.report.charts import chart, svg
from geval.report.collect import text
from geval.report.page import escape, shell, table

if TYPE_CHECKING:
    from geval.runs.compare import Comparison, Difference

MOST_POINTS = 5000
_BETTER, _WORSE, _PLAIN = "#2a7f62", "#b3432b", "#4a6fa5"


def write_report(found: Comparison, path: Path) -> None:
    """Write the page. Raises ConfigError where matplotlib is missing, RunError for the file."""
    page = html(found)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RunError(
            f"the report cannot be written: {error.strerror or error}", where=str(path)
        ) from None


def html(found: Comparison) -> str:
    """The whole page, in the words of the first run's language."""
    word = report_words(found.locale)
    title = f"{word['compare_title']}: {found.a.folder.name}, {found.b.folder.name}"
    return "".join(shell(title, found.locale, _body(found, word), inline_styles=True))


def _body(found: Comparison, word: Mapping[str, Any]) -> Iterator[str]:
    told = found.to_dict()
    yield f"<h1>{escape(word['compare_title'])}</h1>"
    heads = ["", word["runs_name"], word["page_template"], word["judge"], word["page_data"],
             word["scored"], word["mean"], word["page_pessimistic"]]  # fmt: skip
    yield table(
        heads,
        [
            (
                side.upper(),
                told[side]["run"],
                f"{told[side]['template']}.{told[side]['locale']}",
                told[side]["judge"],
                told[side]["data"],
                f"{told[side]['scored']:,}",
                number(told[side].get("mean")),
                number(told[side].get("pessimistic_mean")),
            )
            for side in ("a", "b")
        ],
    )
    if found.notes:
        items = "".join(f"<li>{escape(n.told(word))}</li>" for n in found.notes)
        yield f"<h2>{escape(word['warnings'])}</h2><ul>{items}</ul>"
    yield f"<p>{escape(' · '.join(counts(found, word)))}</p>"
    yield f"<h2>{escape(word['compare_differences'])}</h2>"
    yield table(
        heads_of(found, word), [cells(one, word) for one in (*found.criteria, found.overall)]
    )
    yield f"<p>{escape(method(found, word))}</p>"
    yield '<div class="charts">'
    for drawn, caption in _charts(found, word):
        yield f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"
    yield "</div>"
    if found.most:
        yield f"<h2>{escape(word['compare_most'])}</h2>"
        heads = [word["id"], f"{word['overall']} A", f"{word['overall']} B", "B − A"]
        heads += [word["criterion"], "A", "B", f"{word['reason']} A", f"{word['reason']} B"]
        titles = {one.criterion: one.title for one in found.criteria}
        yield table(
            heads,
            [
                (
                    text(row.id, 120),
                    number(row.a),
                    number(row.b),
                    signed(row.b - row.a),
                    titles.get(row.criterion, row.criterion),
                    number(row.criterion_a),
                    number(row.criterion_b),
                    text(row.reason_a) or "-",
                    text(row.reason_b) or "-",
                )
                for row in found.most
            ],
        )


def heads_of(found: Comparison, word: Mapping[str, Any]) -> list[str]:
    """Heads of the table of differences."""
    what = word["groups"] if found.grouped else word["page_rows"]
    return [
        word["criterion"],
        "n",
        what,
        "A",
        "B",
        "B − A",
        word["interval"],
        word["compare_wins"],
        word["compare_sign"],
        word["compare_wilcoxon"],
        word["compare_verdict"],
    ]


def cells(one: Difference, word: Mapping[str, Any]) -> Sequence[str]:
    """A line of the table of differences; p-values over criteria are the corrected ones."""
    from geval.result import OVERALL

    whole = one.criterion == OVERALL
    span = "-" if one.low is None else f"{signed(one.low)} … {signed(one.high)}"
    return (
        word["overall"] if whole else one.title,
        f"{one.n:,}",
        f"{one.clusters:,}",
        number(one.mean_a),
        number(one.mean_b),
        signed(one.diff),
        span,
        f"{one.wins:,}/{one.losses:,}/{one.ties:,}",
        p_value(one.sign_p if whole else one.sign_holm),
        p_value(one.wilcoxon_p if whole else one.wilcoxon_holm),
        word[f"verdict_{one.verdict}"],
    )


def counts(found: Comparison, word: Mapping[str, Any]) -> list[str]:
    """How many rows were paired, and what became of the others."""
    return [
        str(word[f"compare_n_{key}"]).format(n=n)
        for key, n in found.counts.items()
        if n or key in ("both", "scored_both")
    ]


def method(found: Comparison, word: Mapping[str, Any]) -> str:
    """How the numbers were got."""
    what = word["groups"] if found.grouped else word["page_rows"]
    told = [word["compare_method"].format(what=what)]
    if found.how:
        told.append(word[f"compare_interval_{found.how}"])
    if found.lower_is_better:
        told.append(word["compare_lower"])
    return " ".join(told)


def number(value: float | None) -> str:
    """A score."""
    return "-" if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    """A difference."""
    return "-" if value is None else f"{value:+.3f}"


def p_value(value: float | None) -> str:
    """A p-value."""
    return "-" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def _charts(found: Comparison, word: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield _forest(found, word), word["compare_forest"]
    yield _scatter(found), word["compare_scatter"]
    yield _histogram(found, word), word["compare_histogram"]


def _forest(found: Comparison, word: Mapping[str, Any]) -> str:
    figure, axes = chart()
    lines = [d for d in (found.overall, *reversed(found.criteria)) if d.diff is not None]
    colours = {"better": _BETTER, "worse": _WORSE, "no_evidence": _PLAIN}
    for y, one in enumerate(lines):
        colour = colours[one.verdict]
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [y, y], color=colour, linewidth=1.5)
        axes.plot([one.diff], [y], "o", color=colour, markersize=5)
    names = [word["overall"] if d is found.overall else _short(d.title) for d in lines]
    # A dollar sign is text here, not the beginning of a formula.
    axes.set_yticks(range(len(lines)), names, parse_math=False)
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.axvline(0, color="#888", linewidth=0.8)
    axes.set_xlabel("B − A")
    return svg(figure)


def _scatter(found: Comparison) -> str:
    figure, axes = chart()
    step = max(1, -(-len(found.points) // MOST_POINTS))
    points = found.points[::step]
    axes.plot([0, 1], [0, 1], color="#888", linewidth=0.8)
    axes.scatter([p[0] for p in points], [p[1] for p in points], s=9, alpha=0.4, linewidths=0)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="A", ylabel="B")
    return svg(figure)


def _histogram(found: Comparison, word: Mapping[str, Any]) -> str:
    figure, axes = chart()
    moved = [b - a for a, b in found.points]
    reach = max(0.05, *(abs(d) for d in moved))
    axes.hist(moved, bins=21, range=(-reach, reach), color=_PLAIN)
    axes.axvline(0, color="#888", linewidth=0.8)
    axes.set(xlabel="B − A", ylabel=word["page_rows"])
    return svg(figure)


def _short(title: str, most: int = 24) -> str:
    bare = "".join(c if c.isprintable() else "\ufffd" for c in title)
    return bare if len(bare) <= most else bare[: most - 1] + "…"
