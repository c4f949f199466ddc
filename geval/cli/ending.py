"""How a command ends: message and exit code, from one function.

0 fine, 1 a gate failed, 2 usage or configuration, 3 too many rows unscored or a limit reached,
130 interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from geval.errors import Exit, GevalError

if TYPE_CHECKING:
    from geval.runs.gate import Verdict


def ending(
    outcome: BaseException | Verdict, word: Mapping[str, Any] | None = None
) -> tuple[str, Exit]:
    """Message and exit code of an error or of the verdict on a run.

    `word` are report words of a run's language. An error that is a bug is raised again.
    """
    if isinstance(outcome, (KeyboardInterrupt, typer.Abort)):
        return "interrupted; the same command continues the run", Exit.INTERRUPTED
    if isinstance(outcome, GevalError):
        return f"geval: {outcome}", outcome.exit_code
    if isinstance(outcome, OSError):  # a full disk, a folder that went away
        place = f"{outcome.filename or 'writing the output'}: "
        return f"geval: {place}{outcome.strerror or outcome}", Exit.USAGE
    if isinstance(outcome, BaseException):
        raise outcome
    return _of_verdict(outcome, word or {}), outcome.code


def _of_verdict(verdict: Verdict, word: Mapping[str, Any]) -> str:
    """The line of a gate; where none was asked for, only what is wrong."""
    from geval.runs.gate import line

    if verdict.gate.fail_under is not None:
        return line(verdict, word)
    if verdict.code == Exit.OK:
        return ""
    return str(
        word["too_many_unscored"].format(
            n=verdict.counts["unscored"], rows=verdict.rows, most=verdict.gate.max_unscored
        )
    )
