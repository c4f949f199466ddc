"""Gate: does a run reach a score? What is not scored never passes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from geval.errors import ConfigError, Exit, RunError, nearest
from geval.result import OVERALL
from geval.runs.rows import row_name
from geval.runs.tally import Tally

if TYPE_CHECKING:
    from geval.runs.run import Run
    from geval.template import Template

ON = ("mean", "row", "criterion")
STATUSES = ("scored", "unscored", "not_applicable")
KEPT = 20
"""Checks that failed which a verdict names; it counts them all."""
_ROUNDING = 1e-9  # a mean of scores at the threshold may fall short of it by rounding


@dataclass(frozen=True)
class Gate:
    """What a run is held against.

    `fail_under` is on 0..1 (None: no score is asked for), `max_unscored` a share of the rows.
    `mean` checks the mean of the scored rows, `row` every row, `criterion` every criterion's mean.
    Raises ConfigError for limits outside 0..1 (nan too).
    """

    fail_under: float | None = None
    on: str = "mean"
    max_unscored: float = 0.02

    def __post_init__(self) -> None:
        for name, value in (
            ("--fail-under", self.fail_under),
            ("--max-unscored", self.max_unscored),
        ):
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(
                    f"{name} {value:g}: expected a number from 0 to 1",
                    hint="Scores are held against it on 0..1: level 4 of 1 to 5 is 0.75."
                    if name == "--fail-under"
                    else None,
                )
        if self.on not in ON:
            raise ConfigError(
                f"--on {self.on}: expected {', '.join(ON)}", hint=nearest(self.on, ON)
            )

    def fits(self, template: Template) -> None:
        """Raises ConfigError where the low scores of a template are the good ones."""
        aggregate = (template.front.unit_aggregate or {}) if template.front.units else {}
        self._fits("noise_sensitivity" in aggregate)

    def _fits(self, lower_is_better: bool) -> None:
        if lower_is_better and self.fail_under is not None:
            raise ConfigError(
                "low scores of this template are the good ones: --fail-under is no gate"
            )


@dataclass(frozen=True)
class Check:
    """One thing that does not pass; `value` is on 0..1, None where nothing was scored."""

    name: str
    value: float | None


@dataclass(frozen=True)
class Verdict:
    """How a run stands to a gate.

    `code` is Exit.OK, Exit.GATE (a check failed) or Exit.UNSCORED (too little is scored). `checks`
    are all that were made, `under` those that failed, `failed` the lowest of them, lowest first.
    `crowded` names the criteria of which too many are unscored.
    """

    code: Exit
    gate: Gate
    tally: Tally
    checks: int
    under: int
    failed: tuple[Check, ...]
    crowded: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Rows by status."""
        return {status: self.tally.n.get(OVERALL, {}).get(status, 0) for status in STATUSES}

    @property
    def rows(self) -> int:
        """Rows, repeats counted."""
        return sum(self.counts.values())


def passes(value: float | None, gate: Gate) -> bool:
    """Whether a score on 0..1 reaches the gate; None, which is unscored, never does."""
    return value is not None and value >= (gate.fail_under or 0.0) - _ROUNDING


def judge_run(run: Run, gate: Gate) -> Verdict:
    """Hold a complete run against a gate; the results are read once, as a stream.

    Rows that are not applicable count nowhere. Raises ConfigError for a template whose low scores
    are the good ones, RunError for an incomplete run.
    """
    if run.manifest.get("status") != "complete":
        raise RunError(
            "the run is not complete: rows are missing",
            where=str(run.folder),
            hint="Run the same `geval score` again to finish it.",
        )
    tally = Tally.of_run(run.manifest)
    gate._fits(bool(tally.worst))
    found = _Checks(gate)
    by_row = gate.on == "row" and gate.fail_under is not None
    for record in run.results():
        tally.add(record)
        if by_row and record["criterion"] == OVERALL and record["status"] != "not_applicable":
            found.add(row_name(record), record["normalized"])
    if gate.fail_under is not None and gate.on == "mean":
        found.add(OVERALL, tally.mean())
    elif gate.fail_under is not None and gate.on == "criterion":
        for name, n in tally.n.items():
            if name != OVERALL and n["scored"] + n["unscored"]:
                found.add(name, tally.mean(name))
    looked_at = tally.n if gate.on == "criterion" else [OVERALL]
    crowded = tuple(
        name
        for name in looked_at
        if name in tally.n
        and tally.n[name]["unscored"] > gate.max_unscored * sum(tally.n[name].values())
    )
    nothing = not tally.n.get(OVERALL, {}).get("scored", 0)
    failed = Exit.GATE if found.under else Exit.OK
    code = Exit.UNSCORED if crowded or nothing else failed
    return Verdict(code, gate, tally, found.made, found.under, found.lowest(), crowded)


@dataclass
class _Checks:
    gate: Gate
    made: int = 0
    under: int = 0
    _heap: list[tuple[float, int, Check]] = field(default_factory=list)

    def add(self, name: str, value: float | None) -> None:
        self.made += 1
        if passes(value, self.gate):
            return
        self.under += 1
        # The highest is at the top of the heap and goes first; unscored counts as the lowest.
        item = (1.0 if value is None else -value, -self.under, Check(name, value))
        if len(self._heap) < KEPT:
            heapq.heappush(self._heap, item)
        else:
            heapq.heappushpop(self._heap, item)

    def lowest(self) -> tuple[Check, ...]:
        return tuple(check for *_, check in sorted(self._heap, reverse=True))


def line(verdict: Verdict, word: Mapping[str, Any]) -> str:
    """One line that says why; `word` are the report words of the run's language."""
    v, gate = verdict, verdict.gate
    head = {Exit.OK: "gate_passed", Exit.GATE: "gate_failed"}.get(v.code, "gate_unscored")
    mean = word["gate_mean"].format(
        mean=number(v.tally.mean()), pessimistic=number(v.tally.pessimistic())
    )
    asked = "" if gate.fail_under is None else f", --fail-under {gate.fail_under:g} --on {gate.on}"
    told = [f"{word[head]}: {mean}{asked}"]
    if gate.on != "mean" and v.under:
        names = ", ".join(f"{short(c.name)} {number(c.value)}" for c in v.failed[:3])
        under = word["gate_under"].format(n=v.under, checks=v.checks, names=names)
        more = word["gate_more"].format(n=v.under - 3) if v.under > 3 else ""
        told.append(f"{under}{more}")
    told.append(
        word["gate_share"].format(
            n=v.counts["unscored"], rows=v.rows, most=f"{gate.max_unscored:g}"
        )
    )
    if named := [name for name in v.crowded if name != OVERALL]:
        told.append(f"{word['unscored']}: {', '.join(map(short, named))}")
    return "; ".join(told)


def short(text: str, most: int = 40) -> str:
    """A name on one line: no line breaks or control characters, and not without end."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def number(value: float | None) -> str:
    """A score on 0..1 as it is told."""
    return "-" if value is None else f"{value:.4f}"
