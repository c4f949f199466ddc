"""Gate: does a run reach a score? What is not scored never passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from geval.errors import ConfigError, Exit, RunError
from geval.result import OVERALL
from geval.runs.tally import Tally

if TYPE_CHECKING:
    from geval.runs.run import Run

ON = ("mean", "row", "criterion")
_ROUNDING = 1e-9  # a mean of scores at the threshold may fall short of it by rounding


@dataclass(frozen=True)
class Check:
    """One thing that passes or not; `value` is on 0..1, None where nothing was scored."""

    name: str
    value: float | None
    passed: bool


@dataclass(frozen=True)
class Verdict:
    """`code` is Exit.OK, Exit.GATE (a check failed) or Exit.UNSCORED (too little is scored)."""

    code: Exit
    on: str
    fail_under: float
    max_unscored: float
    scored: int
    unscored: int
    mean: float | None
    pessimistic: float | None
    checks: tuple[Check, ...]

    @property
    def failed(self) -> list[Check]:
        """The checks that did not pass."""
        return [check for check in self.checks if not check.passed]


def judge_run(run: Run, fail_under: float, on: str = "mean", max_unscored: float = 0.02) -> Verdict:
    """Hold a complete run against `fail_under` (0..1).

    `mean` checks the mean of the scored rows, `row` every row, `criterion` every criterion's mean.
    Rows that are not applicable count nowhere. Raises ConfigError for limits outside 0..1 (nan
    too) and for a template whose low scores are the good ones, RunError for an incomplete run.
    """
    for name, value in (("--fail-under", fail_under), ("--max-unscored", max_unscored)):
        if not 0 <= value <= 1:
            raise ConfigError(f"{name} {value:g}: expected a number from 0 to 1")
    if on not in ON:
        raise ConfigError(f"--on {on}: expected {', '.join(ON)}")
    if run.manifest.get("status") != "complete":
        raise RunError(
            "the run is not complete: rows are missing",
            where=str(run.folder),
            hint="Run the same `geval score` again to finish it.",
        )
    tally = Tally.of_run(run.manifest)
    if tally.worst:
        raise ConfigError("low scores of this template are the good ones: --fail-under is no gate")
    rows: list[Check] = []
    for record in run.results():
        tally.add(record)
        if on == "row" and record["criterion"] == OVERALL and record["status"] != "not_applicable":
            name = f"{record['id']} #{record['repeat']}" if record["repeat"] else record["id"]
            rows.append(_check(name, record["normalized"], fail_under))
    counts = tally.n.get(OVERALL, {})
    scored, unscored = counts.get("scored", 0), counts.get("unscored", 0)
    checks = rows
    if on == "mean":
        checks = [_check(OVERALL, tally.mean(), fail_under)]
    elif on == "criterion":
        checks = [
            _check(name, tally.mean(name), fail_under)
            for name, n in tally.n.items()
            if name != OVERALL and n["scored"] + n["unscored"]
        ]
    shares = [tally.n[n] for n in (tally.n if on == "criterion" else [OVERALL]) if n in tally.n]
    many = any(n["unscored"] > max_unscored * sum(n.values()) for n in shares)
    if many or not scored:
        code = Exit.UNSCORED
    else:
        code = Exit.OK if all(check.passed for check in checks) else Exit.GATE
    return Verdict(
        code, on, fail_under, max_unscored, scored, unscored,
        tally.mean(), tally.pessimistic(), tuple(checks),
    )  # fmt: skip


def _check(name: str, value: float | None, fail_under: float) -> Check:
    return Check(name, value, value is not None and value >= fail_under - _ROUNDING)


def line(verdict: Verdict) -> str:
    """One line that says why."""
    v = verdict
    head = {Exit.OK: "passed", Exit.GATE: "failed"}.get(v.code, "too many unscored")
    mean = f"mean {_number(v.mean)} (pessimistic {_number(v.pessimistic)})"
    told = [f"gate {head}: {mean}, --fail-under {v.fail_under:g} --on {v.on}"]
    if v.on != "mean" and v.failed:
        shown = ", ".join(f"{c.name} {_number(c.value)}" for c in v.failed[:3])
        more = f" and {len(v.failed) - 3} more" if len(v.failed) > 3 else ""
        told.append(f"{len(v.failed)} of {len(v.checks)} under: {shown}{more}")
    told.append(f"{v.unscored} of {v.scored + v.unscored} unscored (at most {v.max_unscored:g})")
    return " ".join("; ".join(told).split())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
