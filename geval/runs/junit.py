"""The verdict on a run as JUnit XML, which CI servers show as test results.

The file tells what the exit code tells: it holds a failure where a check failed, an error where
what is unscored keeps the run from passing, and neither where the gate is passed. Elements and
attributes are those of the common JUnit schema (testsuites, testsuite, testcase, failure, error,
skipped), which has no official text; Jenkins' `junit-10.xsd` and what GitLab reads are the guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from geval.errors import Exit
from geval.result import OVERALL
from geval.runs.files import written_whole
from geval.runs.gate import STATUSES, Verdict, number, passes
from geval.runs.rows import Record, Row, row_name, rows_of, why

if TYPE_CHECKING:
    from geval.runs.run import Run

MOST_TEXT = 2_000
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(run: Run, verdict: Verdict, path: Path, word: Mapping[str, Any]) -> None:
    """Write the test cases of a verdict; results are read as a stream, the file replaced whole.

    Cases: what the gate checks of the run as a whole, then one per row (`--on mean`, `row`) or one
    per row and criterion (`--on criterion`).
    """
    with written_whole(path) as file:
        for part in _document(run, verdict, word):
            file.write(part)


def _document(run: Run, verdict: Verdict, word: Mapping[str, Any]) -> Iterator[str]:
    told = run.manifest["template"]
    name = f"geval.{told.get('name', 'run')}.{told.get('locale', '')}".rstrip(".")
    seconds = f"{float(run.manifest.get('seconds') or 0):.3f}"
    stamp = str(run.manifest.get("started") or "1970-01-01T00:00:00")[:19]  # without its zone
    gates = list(_gate_cases(verdict, name, word))
    rows = _row_counts(verdict)
    counts = {
        "tests": rows["tests"] + len(gates),
        "failures": rows["failures"] + sum("<failure" in case for case in gates),
        "errors": rows["errors"] + sum("<error" in case for case in gates),
        "skipped": rows["skipped"],
    }
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"<testsuites{_attributes(name=name, **counts, time=seconds)}>\n"
    yield f"<testsuite{_attributes(name=name, **counts, time=seconds, timestamp=stamp)}>\n"
    yield from gates
    for row in rows_of(run.results()):
        yield from _row_cases(row, verdict, name, word)
    yield "</testsuite>\n</testsuites>\n"


def _gate_cases(verdict: Verdict, name: str, word: Mapping[str, Any]) -> Iterator[str]:
    """What is checked of the run as a whole: means, and the share of unscored rows."""
    gate = verdict.gate
    if gate.fail_under is not None and gate.on != "row":
        names = [OVERALL] if gate.on == "mean" else [n for n in verdict.tally.n if n != OVERALL]
        for criterion in names:
            n = verdict.tally.n.get(criterion, {})
            body = ""
            value = verdict.tally.mean(criterion)
            if n.get("scored", 0) + n.get("unscored", 0) and not passes(value, gate):
                body = _tag("failure", _under(value, verdict, word), "score")
            yield _case(f"{name}.gate", f"{word['mean']}: {criterion}", body)
    error = ""
    if verdict.code == Exit.UNSCORED:
        counts = verdict.counts
        share = word["gate_share"].format(
            n=counts["unscored"], rows=verdict.rows, most=f"{gate.max_unscored:g}"
        )
        error = _tag("error", share, "unscored")
    yield _case(f"{name}.gate", word["unscored"], error)


def _row_counts(verdict: Verdict) -> dict[str, int]:
    """Numbers of the cases that `_row_cases` makes, which stand in front of them in the file."""
    names = (
        [name for name in verdict.tally.n if name != OVERALL]
        if verdict.gate.on == "criterion"
        else [OVERALL]
    )
    n = {s: sum(verdict.tally.n.get(name, {}).get(s, 0) for name in names) for s in STATUSES}
    unscored = n["unscored"]
    by_row = verdict.gate.on == "row" and verdict.gate.fail_under is not None
    return {
        "tests": sum(n.values()),
        "failures": verdict.under - unscored if by_row else 0,
        "errors": unscored if _unscored_counts(verdict) else 0,
        "skipped": n["not_applicable"] + (0 if _unscored_counts(verdict) else unscored),
    }


def _unscored_counts(verdict: Verdict) -> bool:
    """Whether an unscored row keeps the run from passing; else the gate allows it."""
    by_row = verdict.gate.on == "row" and verdict.gate.fail_under is not None
    return by_row or verdict.code == Exit.UNSCORED


def _row_cases(row: Row, verdict: Verdict, name: str, word: Mapping[str, Any]) -> Iterator[str]:
    if verdict.gate.on == "criterion":
        for record in row[:-1]:
            reason = record["error"]["message"] if record["error"] else None
            body = _body(record, reason, verdict, word, "")
            yield _case(f"{name}.{record['criterion']}", row_name(record), body)
        return
    whole = row[-1]
    reasons = "\n".join(
        f"{r['criterion']} {number(r['normalized'])}: {r.get('reason') or '-'}" for r in row[:-1]
    )
    yield _case(
        f"{name}.{OVERALL}", row_name(whole), _body(whole, why(row), verdict, word, reasons)
    )


def _body(
    record: Record, error: str | None, verdict: Verdict, word: Mapping[str, Any], reasons: str
) -> str:
    """What stands in the case of a row: nothing where it passes."""
    if record["status"] == "not_applicable":
        return _tag("skipped", word["not_applicable"])
    if record["status"] == "unscored":
        kind = (record["error"] or {}).get("kind") or "unscored"
        told = f"{word['unscored']}: {error or kind}"
        if _unscored_counts(verdict):
            return _tag("error", told, str(kind), reasons)
        return _tag("skipped", told)
    by_row = verdict.gate.on == "row" and verdict.gate.fail_under is not None
    if by_row and not passes(record["normalized"], verdict.gate):
        return _tag("failure", _under(record["normalized"], verdict, word), "score", reasons)
    return ""


def _under(value: float | None, verdict: Verdict, word: Mapping[str, Any]) -> str:
    told = word["gate_value_under"]
    return str(told.format(value=number(value), least=f"{verdict.gate.fail_under:g}"))


def _case(classname: str, name: str, body: str) -> str:
    opened = f"<testcase{_attributes(classname=classname, name=name, time='0')}"
    return f"{opened}>{body}</testcase>\n" if body else f"{opened}/>\n"


def _tag(tag: str, message: str, kind: str | None = None, text: str = "") -> str:
    named = _attributes(message=message, **({} if kind is None else {"type": kind}))
    return f"<{tag}{named}>{escape(clean(text))}</{tag}>" if text else f"<{tag}{named}/>"


def _attributes(**values: object) -> str:
    return "".join(f" {name}={quoteattr(clean(str(value)))}" for name, value in values.items())


def clean(text: str) -> str:
    """Text that XML 1.0 may hold (section 2.2): other characters are replaced, length bounded."""
    cut = text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
    return _FORBIDDEN.sub("�", cut)
