"""One row of a run on the terminal: scores as bars, reasons, units, judges, prompts, replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from geval.cli import ui
from geval.cli.terminal import line, plain
from geval.report.collect import number, unit
from geval.report.words import failure_words, warning_words
from geval.result import OVERALL

if TYPE_CHECKING:
    from geval.runs.look import Row
    from geval.runs.run import Run

BAR = 30
MOST_CALLS = 12
"""Calls of a row whose prompts and replies are printed; of units there may be hundreds."""


def print_row(run: Run, found: Row, word: Mapping[str, Any]) -> None:
    """Print a row as `look.row` found it."""
    titles = {str(k): str(v) for k, v in (run.manifest["template"].get("titles") or {}).items()}

    def name(criterion: str) -> str:
        return line(titles.get(criterion) or criterion, 80)

    for repeat, records in found.lines.items():
        whole = next((r for r in records if r["criterion"] == OVERALL), None)
        marked = f" #{repeat}" if repeat else ""
        head = f"{line(found.id, 120)}{marked}"
        if whole is not None:
            head += f" · {word['overall']} {_score(whole, word)}"
        ui.out.rule(plain(head, "bold"), align="left")
        source = records[0]["source"] if isinstance(records[0]["source"], dict) else {}
        places = [
            f"{word[key]} {source[field]}"
            for key, field in (
                ("page_sheet", "sheet"),
                ("page_row", "row"),
                ("page_group", "group"),
            )
            if source.get(field) is not None
        ]
        if places:
            ui.out.print(plain(line(" · ".join(places)), "dim"), soft_wrap=True)
        if whole is not None:
            _notes(whole, word, name)
        for record in records:
            if record["criterion"] != OVERALL:
                _criterion(record, word, name)
    _calls(found, word, name)


def _criterion(record: Mapping[str, Any], word: Mapping[str, Any], name: Any) -> None:
    ui.out.print()
    head = f"{name(record['criterion'])}: {_score(record, word)}"
    ui.out.print(plain(head, "bold cyan"), soft_wrap=True)
    told = []
    for key, label, form in (
        ("sd", word["page_sd"], "{:.2f}"),
        ("se", word["page_se"], "{:.2f}"),
        ("coverage", word["coverage"], "{:.3f}"),
        ("spread", word["page_spread"], "{:.2f}"),
    ):
        value = number(record.get(key))
        if value is not None:
            told.append(f"{label} {form.format(value)}")
    raw = number(record.get("raw_score"))
    if raw is not None and raw != record.get("score"):
        told.append(f"{word['page_raw']} {raw:.2f}")
    if record.get("method"):
        told.append(f"{word['method']} {record['method']}")
    if record.get("n_samples"):
        told.append(f"n {record['n_samples']}")
    if told:
        ui.out.print(plain(line(" · ".join(told)), "dim"), soft_wrap=True)
    _bars(record)
    _notes(record, word, name)
    if record.get("reason"):
        ui.out.print(plain(f"{word['reason']}: {record['reason']}"))
    _units(record, word)
    _jurors(record, word)


def _score(record: Mapping[str, Any], word: Mapping[str, Any]) -> str:
    score = number(record.get("score"))
    if score is None:
        return str(word.get(str(record["status"]), record["status"]))
    if record["criterion"] == OVERALL:
        return f"{score:.3f}"
    levels = _levels(record)
    if not levels:
        return f"{score:.2f}"
    return str(word["show_of_max"]).format(score=f"{score:.2f}", high=f"{max(levels):g}")


def _levels(record: Mapping[str, Any]) -> list[float]:
    return [v for v in map(number, _list(record.get("levels"))) if v is not None]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _bars(record: Mapping[str, Any]) -> None:
    """The probability of each level; nothing where a line was damaged."""
    from rich.bar import Bar
    from rich.table import Table

    levels, probs = _levels(record), [unit(p) for p in _list(record.get("probs"))]
    if not levels or len(levels) != len(probs):
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right")
    table.add_column(width=BAR)
    table.add_column(justify="right")
    for level, p in zip(levels, probs, strict=True):
        share = p or 0.0
        table.add_row(f"{level:g}", Bar(1.0, 0.0, share, width=BAR, color="cyan"), f"{share:.1%}")
    ui.out.print(table)


def _notes(record: Mapping[str, Any], word: Mapping[str, Any], name: Any) -> None:
    codes = [warning_words(str(w), word, name) for w in _list(record["warnings"])]
    if codes:
        ui.out.print(plain(line("! " + " · ".join(codes)), "yellow"), soft_wrap=True)
    figures = _list(record.get("numbers_unmatched"))
    if figures:
        told = f"! {word['page_figures']}: {', '.join(map(str, figures))}"
        ui.out.print(plain(line(told, 400), "yellow"), soft_wrap=True)
    error = record["error"]
    if isinstance(error, dict):
        ui.out.print(plain(line(error.get("message")), "red"), soft_wrap=True)
        if record["criterion"] != OVERALL:
            _, way = failure_words(str(error.get("kind")), word)
            ui.out.print(plain(f"→ {word['show_way_out']}: {way}", "green"), soft_wrap=True)


def _units(record: Mapping[str, Any], word: Mapping[str, Any]) -> None:
    from rich.table import Table

    units = [u for u in _list(record.get("units")) if isinstance(u, dict)]
    if not units:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(plain(word["page_units_p"]), justify="right")
    table.add_column(plain(word["page_units"]), ratio=2)
    table.add_column(plain(word["reason"]), ratio=2)
    for one in units:
        p = unit(one.get("p"))
        status = str(word.get(str(one.get("status")), one.get("status")))
        why = one.get("error") or one.get("reason") or ""
        table.add_row(
            plain(status if p is None else f"{p:.2f}"),
            plain(f"{one.get('of')}: {line(one.get('text'))}"),
            plain(line(why)),
        )
    ui.out.print(table)


def _jurors(record: Mapping[str, Any], word: Mapping[str, Any]) -> None:
    from rich.table import Table

    jurors = [j for j in _list(record.get("jurors")) if isinstance(j, dict)]
    if not jurors:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(plain(word["judge"]), overflow="fold")
    table.add_column(plain(word["score"]), justify="right")
    table.add_column(plain(word["method"]))
    table.add_column(plain(word["reason"]), ratio=1)
    for one in jurors:
        score = number(one.get("score"))
        status = str(word.get(str(one.get("status")), one.get("status")))
        table.add_row(
            plain(line(one.get("judge"), 300)),
            plain(status if score is None else f"{score:.2f}"),
            plain(one.get("method") or "-"),
            plain(line(one.get("error") or one.get("reason") or "")),
        )
    ui.out.print(table)


def _calls(found: Row, word: Mapping[str, Any], name: Any) -> None:
    ui.out.print()
    if not found.calls:
        ui.out.print(plain(word["show_no_calls"], "dim"), soft_wrap=True)
        return
    seen: list[tuple[Any, ...]] = []
    for call in found.calls[:MOST_CALLS]:
        parts = [
            name(str(call.get("criterion"))),
            str(call.get("purpose")),
            str(call.get("method")),
        ]
        if call.get("unit") is not None:
            parts.append(f"{word['page_units']} {call['unit']}")
        if call.get("repeat"):
            parts.append(f"#{call['repeat']}")
        if call.get("model"):
            parts.append(str(call["model"]))
        ui.out.rule(plain(line(" · ".join(parts), 160), "dim"), align="left")
        messages = [m for m in _list(call.get("messages")) if isinstance(m, dict)]
        known = _shared(messages, seen)
        seen = [_content(m) for m in messages]
        if known:
            ui.out.print(plain("…", "dim"))
        for message in messages[known:]:
            head = f"{word['show_prompt']} ({message.get('role')})"
            ui.out.print(plain(line(head, 80), "bold"))
            ui.out.print(plain(message.get("content")), soft_wrap=True)
        if call.get("prefill"):
            ui.out.print(plain(f"{word['show_prompt']} (prefill)", "bold"))
            ui.out.print(plain(call["prefill"]), soft_wrap=True)
        for text in _replies(call):
            ui.out.print(plain(word["show_reply"], "bold"))
            ui.out.print(plain(text), soft_wrap=True)
    if len(found.calls) > MOST_CALLS:
        told = word["show_more_calls"].format(n=len(found.calls) - MOST_CALLS)
        ui.out.print(plain(told, "dim"), soft_wrap=True)


def _content(message: Mapping[str, Any]) -> tuple[Any, ...]:
    return (message.get("role"), message.get("content"))


def _shared(messages: list[Any], seen: list[tuple[Any, ...]]) -> int:
    """How many messages the last call began with as well: they are not printed again."""
    n = 0
    for one, before in zip(messages, seen, strict=False):
        if _content(one) != before:
            break
        n += 1
    return n


def _replies(call: Mapping[str, Any]) -> Iterator[str]:
    for choice in _list(call.get("choices")):
        if not isinstance(choice, dict):
            continue
        text = str(choice.get("text") or "")
        if choice.get("reasoning"):
            text = f"<reasoning>\n{choice['reasoning']}\n</reasoning>\n{text}"
        finish = choice.get("finish")
        yield text if finish in (None, "stop") else f"{text}\n[{finish}]"
    if call.get("level_probs"):
        yield ", ".join("-" if p is None else f"{p:.4g}" for p in _list(call["level_probs"]))
