"""A study as one HTML page: tables and charts, no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geval.errors import ConfigError
from geval.report.charts import chart, svg
from geval.report.page import STYLE, escape, shell, table

VERDICTS = {
    "better": "better: shown on rows that nothing had looked at",
    "no_evidence": "no evidence that it is better",
    "worse": "worse",
}
_ADDED = """
.verdict{font-size:1.3em}.better{color:#06632b}.worse{color:#a40000}pre{white-space:pre-wrap;
background:#f6f6f6;padding:.6em}.gone{color:#a40000}.new{color:#06632b}
"""


def write_report(out: Path, record: Mapping[str, Any], paid: Mapping[str, Any]) -> Path:
    """Write `report.html` from the record of a finished study."""
    path = out / "report.html"
    path.write_text(html(record, paid), encoding="utf-8", errors="backslashreplace")
    return path


def html(record: Mapping[str, Any], paid: Mapping[str, Any]) -> str:
    """The whole page; every text from data, proposals or names is escaped."""
    about, result = record["identity"], record["result"]
    judge, template = about["judge"]["spec"], about["template"]
    title = f"{template['name']}.{template['locale']} tuned for {judge}: {result['verdict']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        *_verdict(record),
        *_plan(record, paid),
        *_tests(result),
        *_charts(record),
        *_diff(record["diff"]),
        *_tried(record),
        *_proposals(record["proposals"]),
    ]
    return "".join(shell(title, "en", parts, style=STYLE + _ADDED, inline_styles=True))


def _n(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _verdict(record: Mapping[str, Any]) -> list[str]:
    r = record["result"]
    told = (
        f"Test on {r['rows']} locked rows in {r['groups']} documents: {r['metric']} "
        f"{_n(r['before'])} before, {_n(r['after'])} after; gain {_n(r['gain'])} "
        f"[{_n(r['low'])}, {_n(r['high'])}], one-sided p {_n(r['p'])}."
    )
    lines = [f"<p class='verdict {escape(r['verdict'])}'>{VERDICTS[r['verdict']]}</p>"]
    lines.append(f"<p>{escape(told)}</p>")
    if r["visible"] is not None:
        lines.append(
            f"<p>With this many test rows a gain of about {_n(r['visible'])} is seen four times "
            "in five; a smaller one mostly stays unseen.</p>"
        )
    if r["ceiling"]:
        ceiling = ", ".join(f"{k} {_n(v)}" for k, v in r["ceiling"].items())
        lines.append(f"<p>People among themselves (one against the others, Spearman): "
                     f"{escape(ceiling)}.</p>")  # fmt: skip
    return [*lines, *(f"<p>{escape(n)}</p>" for n in (*r["notes"], *record["notes"]))]


def _plan(record: Mapping[str, Any], paid: Mapping[str, Any]) -> list[str]:
    about = record["identity"]
    rows, requests = record["rows"], record["requests"]
    told = [
        ("judge", about["judge"]["spec"]),
        ("proposer", about["proposer"] or "the judge where it can write"),
        ("rows", f"train {rows['train']}, dev {rows['dev']}, test {rows['test']}"),
        ("documents", about["data"]["groups"]),
        ("criteria", ", ".join(about["data"]["criteria"])),
        ("requests", f"{requests['total']} of {about['budget']} ({requests['search']} before the "
                     "test)"),
        ("paid", f"{paid['requests']} requests, {paid['tokens']} tokens; the rest came from "
                 "caches"),
        ("candidates", f"{len(record['tried'])}, {sum(t['complete'] for t in record['tried'])} of "
                       "them evaluated to the end"),
        ("seed", about["seed"]),
        ("template", record["template"]),
        ("candidate", record["candidate"] or "-"),
        ("versions", ", ".join(f"{k} {v}" for k, v in about["versions"].items())),
    ]  # fmt: skip
    return ["<h2>Plan and cost</h2>", table(["", ""], told)]


def _tests(result: Mapping[str, Any]) -> list[str]:
    parts = [
        "<h2>Before and after, on the test rows</h2>",
        "<p>From “seed raw” to “seed calibrated” is what calibration gains, from “seed calibrated” "
        "to “tuned calibrated” what the prompt gains.</p>",
    ]
    for criterion, reads in result["figures"].items():
        names = list(next(iter(reads.values()), {}))
        rows = [(read, *(_n(values.get(n)) for n in names)) for read, values in reads.items()]
        parts += [f"<h3>{escape(criterion)}</h3>", table(["", *names], rows)]
    unscored = ", ".join(f"{k} {v}" for k, v in result["unscored"].items())
    return [*parts, f"<p>Unscored test rows: {escape(unscored)}. They are in no figure.</p>"]


def _charts(record: Mapping[str, Any]) -> list[str]:
    try:
        drawn = [_history(record["tried"])]
        if record["importance"]:
            drawn.append(_importance(record["importance"]))
    except ConfigError as error:
        return [f"<p>{escape(str(error))}</p>"]
    figures = "".join(f"<figure>{s}<figcaption>{t}</figcaption></figure>" for s, t in drawn)
    return ["<h2>The search</h2>", f"<div class='charts'>{figures}</div>"]


def _history(tried: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    figure, axes = chart()
    for complete, mark in ((True, "o"), (False, "x")):
        some = [t for t in tried if t["complete"] is complete]
        axes.plot([t["number"] for t in some], [t["loss"] for t in some], mark, markersize=4)
    best, line = float("inf"), []
    for t in tried:
        best = min(best, t["loss"]) if t["complete"] else best
        line.append(best)
    axes.step([t["number"] for t in tried], line, where="post", linewidth=1)
    axes.set(xlabel="candidate", ylabel="loss on dev")
    return svg(
        figure
    ), "Loss on dev (0 best); crosses were given up early. Dev chose, so it flatters."


def _importance(shares: Mapping[str, float]) -> tuple[str, str]:
    figure, axes = chart()
    names = sorted(shares, key=lambda k: shares[k])
    axes.barh(names, [shares[k] for k in names])
    axes.set(xlim=(0, 1))
    return svg(figure), "Share of the differences in loss that each choice explains (PED-ANOVA)."


def _diff(lines: Sequence[str]) -> list[str]:
    marks = {"-": "gone", "+": "new"}
    shown = "\n".join(
        f"<span class='{marks.get(line[:1], '')}'>{escape(line)}</span>" for line in lines
    )
    return ["<h2>What changed in the prompt</h2>", f"<pre>{shown or 'nothing'}</pre>"]


def _tried(record: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            t["number"],
            t["round"],
            f"{t['loss']:.4f}",
            "yes" if t["complete"] else "given up",
            t["rows"],
            f"{t['tokens']:.0f}",
            ", ".join(f"{k} {v}" for k, v in t["params"].items() if v != "own") or "as it was",
            "promoted" if t["number"] == record["promoted"] else "",
        )
        for t in record["tried"]
    ]
    head = ["", "round", "loss on dev", "complete", "rows", "tokens a row", "choices", ""]
    return [f"<details><summary>All {len(rows)} candidates</summary>{table(head, rows)}</details>"]


def _proposals(proposals: Sequence[Mapping[str, Any]]) -> list[str]:
    if not proposals:
        return []
    rows = [
        (p["round"] + 1, p["dimension"], p["choice"], p["text"][:600], p["refused"] or "taken")
        for p in proposals
    ]
    kept = sum(not p["refused"] for p in proposals)
    told = f"{len(rows)} proposals, {kept} taken"
    head = ["round", "slot", "choice", "text", ""]
    return [f"<details><summary>{told}</summary>{table(head, rows)}</details>"]
