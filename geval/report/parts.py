"""The sections of a run's report as HTML. Every text from the run goes through `escape`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geval.report import draw
from geval.report.collect import Collector, Figures, number, text, unit
from geval.report.interval import DRAWS, Intervals
from geval.report.page import escape
from geval.report.words import warning_words
from geval.result import OVERALL

Record = Mapping[str, Any]
FEW = 20
"""Clusters below which a bootstrap interval comes out too narrow to be taken at its word."""


@dataclass(frozen=True)
class View:
    """What the sections are made from; `how` says how the intervals were got, None: not."""

    manifest: Mapping[str, Any]
    collected: Collector
    word: Mapping[str, Any]
    spans: Intervals
    how: str | None

    @property
    def template(self) -> Mapping[str, Any]:
        """The template's part of the manifest."""
        found: Mapping[str, Any] = self.manifest["template"]
        return found

    @property
    def counts(self) -> dict[str, Any]:
        """Rows by status and the means of the overall score."""
        found: dict[str, Any] = self.collected.tally.to_dict()["overall"]
        return found

    def name(self, criterion: str) -> str:
        """A criterion as people call it."""
        figures = self.collected.criteria.get(criterion)
        return figures.title if figures else criterion

    def warning(self, code: str) -> str:
        """A warning in words, as far as they are known."""
        return warning_words(code, self.word, self.name)


def title(view: View) -> str:
    """Of the page."""
    return f"{view.word['page_title']}: {view.template.get('name')}"


def head(view: View) -> Iterator[str]:
    """Title, what was judged by what, and the figures a reader looks for first."""
    word, counts, manifest = view.word, view.counts, view.manifest
    judges = " + ".join(str(j.get("spec")) for j in manifest["judges"] if isinstance(j, dict))
    told = [manifest["data"].get("name"), judges, str(manifest.get("started") or "")[:10]]
    line = " · ".join(escape(t) for t in told if t)
    yield f'<header><p class="kicker">{escape(word["page_title"])}</p>'
    yield f"<h1>{escape(view.template.get('name'))}</h1>"
    yield f'<p class="about">{line}</p></header>'
    rows = sum(counts[s] for s in ("scored", "unscored", "not_applicable"))
    mean, span = counts.get("mean"), view.spans.get(OVERALL)
    cards = [
        _card(
            f"{word['mean']} (0–1)",
            _n(mean),
            f"{word['interval']} {_span(span)}" if span else "",
            draw.meter(mean, span, f"{word['mean']} {_n(mean)}") if mean is not None else "",
            "main",
        ),
        _card(
            word["scored"],
            word["page_scored_of"].format(scored=counts["scored"], rows=rows),
            _listed(
                f"{word[s]} {counts[s]:,}" for s in ("unscored", "not_applicable") if counts[s]
            ),
        ),
        _card(
            word["page_pessimistic"],
            _n(counts.get("pessimistic_mean")),
            word["page_pessimistic_note"],
        ),
        _coverage(view),
        _methods(view),
    ]
    yield '<section class="cards">' + "".join(cards) + "</section>"


def _card(name: str, value: str, note: str = "", more: str = "", kind: str = "") -> str:
    return (
        f'<div class="card {kind}"><h2>{escape(name)}</h2><p class="big">{escape(value)}</p>'
        f'{more}<p class="note">{escape(note)}</p></div>'
    )


def _coverage(view: View) -> str:
    some = view.collected.criteria.values()
    n = sum(f.covered for f in some)
    if not n:
        return _card(view.word["coverage"], "-")
    share = sum(f.coverage_low for f in some) / n
    told = view.word["page_low_coverage"].format(share=share, least=view.collected.min_coverage)
    return _card(view.word["coverage"], _n(sum(f.coverage_sum for f in some) / n), told)


def _methods(view: View) -> str:
    methods = view.collected.tally.methods
    first = max(methods, key=lambda m: methods[m], default="-")
    each = (view.word["page_methods"].format(method=m, n=n) for m, n in methods.items())
    return _card(view.word["method"], first, _listed(each))


def notes(view: View, canary: Mapping[str, Any] | None) -> Iterator[str]:
    """What a reader of the mean should know: cautions, an unfinished run, canaries."""
    from geval.runs.told import cautions

    word = view.word
    told = []
    rows = (number(view.manifest["data"].get("rows")) or 0) * view.collected.repeats
    if view.manifest.get("status") != "complete":
        told.append(word["page_incomplete"].format(done=view.collected.rows, rows=int(rows)))
    told += cautions(view.collected.tally.to_dict(), word)
    told += [
        f"{view.warning(code)}: {n:,}"
        for code, n in view.collected.tally.warnings.items()
        if code.startswith("capped_by_") or code in ("no_reason", "reason_language_mixed")
    ]
    if told:
        items = "".join(f"<li>{escape(t)}</li>" for t in told)
        yield f'<section class="cautions"><h2>{escape(word["warnings"])}</h2>'
        yield f"<ul>{items}</ul></section>"
    if canary is not None and (largest := unit(canary.get("largest"))) is not None:
        line = word["page_canary"].format(
            canaries=int(number(canary.get("canaries")) or 0),
            rows=int(number(canary.get("rows")) or 0),
            largest=largest,
            mean=unit(canary.get("mean")) or 0.0,
        )
        yield f'<p class="canary">{escape(line)}</p>'


def criteria(view: View) -> Iterator[str]:
    """A panel for the overall score and each criterion: mean, histogram, spread against score."""
    word = view.word
    yield f'<section><h2>{escape(word["page_criteria"])}</h2><div class="grid">'
    several = len(view.collected.criteria) > 1
    if several:
        yield _criterion(view, view.collected.overall, word["overall"], None)
    for name, figures in view.collected.criteria.items():
        weight = number((view.template.get("weights") or {}).get(name))
        yield _criterion(view, figures, figures.title, weight if several else None)
    yield "</div>"
    what = word["groups"] if view.collected.grouped else word["page_rows"]
    if view.how is None:
        line = word["page_interval_missing"]
    else:
        known = {"n": view.collected.sums.n, "what": what, "draws": DRAWS}
        line = word[f"page_interval_{view.how}"].format_map(known)
        if view.collected.sums.n < FEW:
            line += " " + word["page_interval_few"].format(what=what)
    yield f'<p class="note">{escape(line)}</p></section>'


def _criterion(view: View, figures: Figures, name: str, weight: float | None) -> str:
    word, first = view.word, figures.name == OVERALL
    tally = view.collected.tally
    counts = tally.n.get(figures.name, {"scored": 0, "unscored": 0, "not_applicable": 0})
    mean, span = tally.mean(figures.name), view.spans.get(figures.name)
    wide = figures.high - figures.low
    own = None if mean is None else figures.low + mean * wide
    ticks = figures.levels or [0, 0.25, 0.5, 0.75, 1]
    of = word["page_of"].format(high=f"{figures.high:g}")
    told = [f"{word['scored']} {counts['scored']:,}"]
    told += [f"{word[s]} {counts[s]:,}" for s in ("unscored", "not_applicable") if counts[s]]
    if figures.covered:
        told.append(f"{word['coverage']} {figures.coverage_sum / figures.covered:.3f}")
    if weight is not None:
        told.append(f"{word['page_weight']} {weight:g}")
    digits = 3 if wide <= 1 else 2
    around = ""
    if span is not None:
        low, high = (figures.low + v * wide for v in span)
        around = f'<span class="span">{low:.{digits}f}–{high:.{digits}f}</span>'
    told_chart = word["page_histogram_told"].format(title=name, n=counts["scored"], mean=_n(own))
    # The overall score has a wide picture, and one for narrow screens that the style sheet picks.
    chart = "".join(
        draw.histogram(
            figures.bins,
            ticks,
            low=figures.low,
            high=figures.high,
            mean=mean,
            span=span,
            told=told_chart,
            across=across,
        )
        for across in ((draw.WIDE * 3, draw.WIDE) if first else (draw.WIDE,))
    )
    caption = word["page_histogram_first" if first else "page_histogram"]
    plane = ""
    if figures.cells:
        kind = word["page_se" if figures.by_units else "page_sd"]
        drawn = draw.plane(
            figures.cells,
            ticks,
            low=figures.low,
            high=figures.high,
            told=word["page_plane_told"].format(title=name, n=sum(figures.cells.values())),
        )
        below = f"{word['page_plane']} ({kind})"
        plane = f"<figure>{drawn}<figcaption>{escape(below)}</figcaption></figure>"
    return (
        f'<article class="panel{" first" if first else ""}"><h3>{escape(name)}</h3>'
        f'<p class="mean"><b>{"-" if own is None else f"{own:.{digits}f}"}</b> '
        f'<span class="of">{escape(of)}</span> {around}</p>'
        f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"
        f'{plane}<p class="note">{escape(" · ".join(told))}</p></article>'
    )


def panel(view: View) -> Iterator[str]:
    """What each judge of a panel said on the whole, in units of the scales."""
    names = list(dict.fromkeys(j for f in view.collected.criteria.values() for j in f.jurors))
    if not names:
        return
    word, some = view.word, view.collected.criteria.values()
    heads = "".join(f'<th scope="col">{escape(f.title)}</th>' for f in some)
    yield f'<section><h2>{escape(word["page_jurors"])}</h2><div class="scroll"><table>'
    yield f'<tr><th scope="col">{escape(word["judge"])}</th>{heads}</tr>'
    for judge in names:
        cells = []
        for figures in some:
            n, total, failed = figures.jurors.get(judge, [0, 0.0, 0])
            shown = f"{total / n:.2f}" if n else "-"
            more = f" ({word['unscored']} {failed:,.0f})" if failed else ""
            cells.append(f"<td>{escape(shown + more)}</td>")
        yield f'<tr><th scope="row">{escape(judge)}</th>{"".join(cells)}</tr>'
    yield "</table></div></section>"


def told_by(records: Sequence[Record]) -> Record | None:
    """The record that says most about a row: its lowest criterion, if possible with a reason."""
    own = [
        r for r in records if r["criterion"] != OVERALL and unit(r.get("normalized")) is not None
    ]
    given = [r for r in own if r.get("reason")]
    return min(given or own, key=lambda r: r["normalized"], default=None)


def lowest(
    view: View, worst: Sequence[Sequence[Record]], prompts: Mapping[str, str]
) -> Iterator[str]:
    """The worst rows with their scores, the reason of the lowest criterion, and its prompt."""
    if not worst:
        return
    word = view.word
    title = word["page_highest" if view.collected.lower_is_better else "page_lowest"]
    yield f'<section><h2>{escape(title)}</h2><ol class="lowest">'
    for records in worst:
        whole = records[-1]
        scores = "".join(_chip(view, r) for r in records[:-1])
        about = told_by(records)
        yield f'<li><div class="line"><b class="id">{escape(text(whole["id"], 120))}</b>'
        yield f'<b class="total">{_n(number(whole["score"]))}</b>'
        yield f'<div class="chips">{scores}</div></div>'
        yield _flags(view, records)
        if about is not None:
            reason = about.get("reason")
            shown = escape(text(reason) or word["page_no_reason"])
            name, kind = escape(view.name(about["criterion"])), "" if reason else " none"
            yield f'<p class="reason{kind}"><b>{name}</b>{shown}</p>'
            if prompt := prompts.get(str(about.get("prompt_sha256"))):
                yield f"<details><summary>{escape(word['page_prompt'])}</summary>"
                yield f"<pre>{escape(prompt)}</pre></details>"
        yield "</li>"
    yield "</ol></section>"


def _chip(view: View, record: Record) -> str:
    score, value = number(record["score"]), unit(record.get("normalized"))
    shown = "-" if score is None else f"{score:.2f}"
    drawn = ""
    probs = [p for p in map(unit, record.get("probs") or ()) if p is not None]
    levels = [f"{v:g}" for v in map(number, record.get("levels") or ()) if v is not None]
    if probs and len(probs) == len(levels) <= 11:
        drawn = draw.levels(
            probs, levels, ", ".join(f"{n}: {p:.0%}" for n, p in zip(levels, probs, strict=True))
        )
    grade = "none" if value is None else str(min(4, int(value * 5)))
    return (
        f'<span class="chip"><span class="name">{escape(view.name(record["criterion"]))}</span>'
        f'<span class="value q{grade}">{shown}</span>{drawn}</span>'
    )


def _flags(view: View, records: Sequence[Record]) -> str:
    """Warnings of a row, and the figures that it makes up."""
    codes = dict.fromkeys(str(w) for r in records for w in r["warnings"])
    figures = records[-1].get("numbers_unmatched") or ()
    told = [view.warning(c) for c in codes if not (figures and c == "numbers_unmatched")]
    if figures:
        told.append(f"{view.word['page_figures']}: {', '.join(str(f)[:60] for f in figures[:8])}")
    if not told:
        return ""
    return f'<p class="flags">{"".join(f"<span>{escape(t)}</span>" for t in told)}</p>'


def rows(view: View, shown: int) -> Iterator[str]:
    """Where the page's script puts the table."""
    word = view.word
    yield f'<section class="rows"><h2>{escape(word["page_table"])}</h2>'
    if shown < view.collected.rows:
        cut = word["page_cut"].format(shown=shown, rows=view.collected.rows)
        yield f'<p class="note">{escape(cut)}</p>'
    yield f'<noscript><p class="note">{escape(word["page_no_script"])}</p></noscript>'
    yield '<div id="table"></div></section>'


def settings(view: View) -> Iterator[str]:
    """All that the scores rest on."""
    word, manifest, template = view.word, view.manifest, view.template
    data, usage = manifest["data"], view.collected.tally.usage
    paid = manifest.get("paid") or {}
    told: list[tuple[str, Any]] = [
        (word["page_template"], f"{template.get('name')}.{template.get('locale')}"),
        (word["page_version"], template.get("version")),
        (word["page_fingerprint"], template.get("fingerprint")),
        (word["page_parameters"], _pairs(template.get("parameters"))),
        (word["page_calibration"], word["page_yes"] if template.get("calibration") else None),
    ]
    revisions = manifest.get("revisions") or []
    for i, judge in enumerate(manifest["judges"]):
        told.append((word["judge"], _pairs(judge)))
        if i < len(revisions) and revisions[i]:
            told.append((word["page_model"], revisions[i]))
    told += [
        (word["page_setting"], _pairs(manifest["settings"])),
        (word["page_data"], data.get("name")),
        (word["page_rows"], data.get("rows")),
        (word["columns"], data.get("columns")),
        (word["page_hash"], data.get("sha256")),
        (word["page_started"], manifest.get("started")),
        (word["page_ended"], manifest.get("ended")),
        (word["page_took"], _seconds(number(manifest.get("seconds")), word["seconds"])),
        (word["page_calls"], usage.get("calls")),
        (word["tokens"], usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)),
        (word["page_cost"], _money(number(paid.get("cost_usd")))),
        (word["page_geval"], manifest.get("geval")),
    ]
    yield f'<section><h2>{escape(word["page_settings"])}</h2><dl class="settings">'
    for name, value in told:
        if value not in (None, ""):
            shown = f"{value:,}" if isinstance(value, (int, float)) and value >= 1000 else value
            yield f"<dt>{escape(name)}</dt><dd>{escape(text(shown, 2000))}</dd>"
    made = word["page_made"].format(version=manifest.get("geval"))
    yield f"</dl></section><footer>{escape(made)}</footer>"


def meta(view: View) -> dict[str, Any]:
    """What the page's script needs beside the rows: criteria, words, names of warnings."""
    codes = view.collected.tally.warnings
    return {
        "criteria": [
            {"name": f.name, "title": f.title, "low": f.low, "high": f.high, "levels": f.levels}
            for f in view.collected.criteria.values()
        ],
        "word": {k: v for k, v in view.word.items() if k.startswith("page_") or k in _SHORT},
        "warning": {code: view.warning(code) for code in codes},
    }


_SHORT = (
    *("id", "score", "overall", "coverage", "scored", "unscored", "not_applicable", "status"),
    *("method", "judge", "reason", "warnings"),
)


def _n(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _span(span: tuple[float, float]) -> str:
    return f"{span[0]:.3f}–{span[1]:.3f}"


def _listed(some: Any) -> str:
    return " · ".join(some)


def _pairs(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None if value is None else str(value)
    return " · ".join(f"{k} {text(v, 300)}" for k, v in value.items() if v is not None)


def _seconds(value: float | None, word: str) -> str | None:
    return None if value is None else f"{value:,.1f} {word}"


def _money(value: float | None) -> str | None:
    return None if value is None else f"${value:,.4f}" if value else "$0"
