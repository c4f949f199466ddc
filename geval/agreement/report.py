"""Agreement as one HTML file: tables and charts, no script, nothing loaded from elsewhere.

Charts are matplotlib's SVG with text as text, so the reader's own fonts show Korean. Every text
from data goes through an escape, and the page forbids scripts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from geval.locale import own_folders, report_words
from geval.report.charts import chart, svg
from geval.report.page import escape, shell, table

if TYPE_CHECKING:
    from geval.agreement.results import Agreement, CriterionAgreement

SHOWN_GROUPS = 200


def write_report(found: Agreement, path: Path) -> None:
    """Write the report. Raises ConfigError with the install line where matplotlib is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html(found), encoding="utf-8", errors="backslashreplace")


def html(found: Agreement) -> str:
    """The whole page, in the words of the run's language."""
    word = report_words(found.locale, own_folders())
    join = found.join
    title = f"{word['agreement']}: {found.template}"
    parts = [
        f"<h1>{escape(title)}</h1><p>{word['judge']} {escape(found.judge)}</p>",
        f"<p>{word['joined']}: {word['data_rows']} {join['data']}, {word['label_rows']} "
        f"{join['labels']}, {word['matched']} {join['matched']}</p>",
        *(f"<p>{escape(note)}</p>" for note in found.notes),
    ]
    for one in found.criteria.values():
        parts += _criterion(one, word)
    return "".join(shell(title, found.locale, parts, inline_styles=True))


def _criterion(one: CriterionAgreement, word: Mapping[str, str]) -> list[str]:
    from geval.cli.agree import number, sentences, span

    rows = [
        (
            f.metric,
            word[f"level_{f.level}"],
            word[f"read_{f.read}"],
            number(f.value),
            span(f.low, f.high),
            "-" if f.p is None else f"{f.p:.3g}",
            f.n,
            f.groups_used,
            f.groups_skipped,
        )
        for f in one.figures
    ]
    head = [word[k] for k in ("metric", "level", "read", "value", "interval")]
    parts = [
        f"<h2>{escape(one.criterion)}: n {one.n}, {word['groups']} {one.groups}</h2>",
        *(f"<p>{escape(line)}</p>" for line in (*one.notes, *sentences(one, word))),
        '<div class="charts">',
        *(
            f"<figure>{drawn}<figcaption>{told}</figcaption></figure>"
            for drawn, told in _charts(one, word)
        ),
        "</div>",
        table([*head, "p", "n", word["groups"], word["skipped"]], rows),
    ]
    if one.by_group:
        kept = list(one.by_group.items())[:SHOWN_GROUPS]
        lines = [
            (name, g["n"], number(g["spearman"]), number(g["judge"]), number(g["people"]))
            for name, g in kept
        ]
        names = [word["groups"], "n", "spearman", word["judge"], word["people"]]
        more = f" ({len(kept)}/{len(one.by_group)})" if len(kept) < len(one.by_group) else ""
        parts.append(
            f"<details><summary>{word['groups']}{more}</summary>{table(names, lines)}</details>"
        )
    return parts


def _charts(one: CriterionAgreement, word: Mapping[str, str]) -> list[tuple[str, str]]:
    found = []
    if one.points:
        found.append((_scatter(one, word), f"{word['people']} – {word['judge']}"))
    if one.reliability:
        found.append((_reliability(one, word), escape(word["reliability"])))
    if one.confusion:
        found.append((_confusion(one, word), escape(word["confusion"])))
    return found


def _scatter(one: CriterionAgreement, word: Mapping[str, str]) -> str:
    import numpy as np

    figure, axes = chart()
    points = np.array(one.points[:5000])
    # Labels stand on few values: spread a little, the same way each time.
    shift = np.random.default_rng(0).uniform(-0.06, 0.06, len(points))
    axes.scatter(points[:, 0] + shift, points[:, 1], s=9, alpha=0.4, linewidths=0)
    if one.levels and "mae" in {f.metric for f in one.figures}:
        ends = [one.levels[0], one.levels[-1]]
        axes.plot(ends, ends, color="#888", linewidth=0.8)
    axes.set_xlabel(word["people"])
    axes.set_ylabel(word["judge"])
    return svg(figure)


def _reliability(one: CriterionAgreement, word: Mapping[str, str]) -> str:
    figure, axes = chart()
    bins = one.reliability or []
    most = max(b["n"] for b in bins)
    axes.plot([0, 1], [0, 1], color="#888", linewidth=0.8)
    axes.plot([b["confidence"] for b in bins], [b["right"] for b in bins], linewidth=1)
    axes.scatter(
        [b["confidence"] for b in bins],
        [b["right"] for b in bins],
        s=[15 + 100 * b["n"] / most for b in bins],
    )
    axes.set(xlim=(0, 1.03), ylim=(-0.03, 1.03), xlabel=word["confidence"], ylabel=word["right"])
    return svg(figure)


def _confusion(one: CriterionAgreement, word: Mapping[str, str]) -> str:
    figure, axes = chart()
    cells, levels = one.confusion or [], one.levels or []
    # Rectangles and no `imshow`: that one puts a picture into the page, which its policy refuses.
    axes.pcolormesh(cells, cmap="Blues")
    axes.invert_yaxis()
    names = [f"{v:g}" for v in levels]
    places = [i + 0.5 for i in range(len(names))]
    axes.set_xticks(places, names)
    axes.set_yticks(places, names)
    top = max(max(row) for row in cells)
    for i, row in enumerate(cells):
        for j, n in enumerate(row):
            if n:
                axes.text(j + 0.5, i + 0.5, str(n), ha="center", va="center",
                          color="white" if n > top / 2 else "black")  # fmt: skip
    axes.set_xlabel(word["judge"])
    axes.set_ylabel(word["people"])
    return svg(figure)
