"""Every error geval raises on purpose, split by what the reader does next.

    GevalError
    ├── BudgetError           a limit the user set is reached; raise it to continue (exit code 3)
    ├── UsageError            mend the input, then run again (exit code 2)
    │   ├── TemplateError     a rubric template: file and line
    │   ├── DataError         a data file: every fault with row and column
    │   ├── ConfigError       a judge, a setting, an extra, the weights
    │   └── RunError          a run folder
    └── JudgeError            one call brought no usable reply
        ├── TransientError    the same call may succeed later: time-out, 429, 5xx
        ├── RejectedError     this call never will: refused, too long, bad parameter
        └── FatalError        no call will: key, quota, model or host missing; stops the run

A failure of one row is no exception: it is an `unscored` result (`geval.reading.answer.Failure`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    GATE = 1
    USAGE = 2
    UNSCORED = 3
    INTERRUPTED = 130


SHOWN = 20
"""Faults that a message lists; `faults` holds them all."""


class GevalError(Exception):
    """Base of all errors: what is wrong, where it is, and the way out.

    `str(error)` is the whole message; the parts stay available. `faults` are the single things
    found where several are told at once.
    """

    exit_code: Exit = Exit.USAGE

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        faults: Iterable[str] = (),
    ) -> None:
        self.what, self.where, self.hint, self.faults = what, where, hint, tuple(faults)
        shown = list(self.faults[:SHOWN])
        if len(self.faults) > len(shown):
            shown.append(f"... and {len(self.faults) - len(shown)} more")
        first = f"{where}: {what}" if where else what
        super().__init__("\n  ".join([first, *shown]) + (f"\n{hint}" if hint else ""))


class BudgetError(GevalError):
    """A limit on calls, tokens, money or time is reached; the run can be continued."""

    exit_code = Exit.UNSCORED


class UsageError(GevalError):
    """The user mends something and runs again."""


class TemplateError(UsageError):
    """A rubric template that cannot be loaded or rendered."""


class DataError(UsageError):
    """Input rows that cannot be judged; `faults` lists every one found, with row and column."""


class ConfigError(UsageError):
    """A judge, setting, extra or weight file that is missing or wrong."""


class RunError(UsageError):
    """A run folder that cannot be written, read or continued."""


class JudgeError(GevalError):
    """A call to a judge brought no usable reply.

    `status` is the HTTP status where there was one, `param` the refused parameter.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        status: int | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.status, self.param = status, param


class TransientError(JudgeError):
    """The same call may succeed later; `retry_after` is in seconds where the server said it."""

    def __init__(
        self, what: str, *, retry_after: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(what, status=status)
        self.retry_after = retry_after


class RejectedError(JudgeError):
    """This request is refused for good; others may pass."""


class FatalError(JudgeError):
    """No request to this judge can pass: wrong key, spent quota, missing model or host."""


def nearest(name: str, choices: Iterable[str]) -> str:
    """A sentence that names the nearest of `choices` and lists them all."""
    names = sorted(set(choices))
    if not names:
        return "There is none to choose from."
    close = difflib.get_close_matches(
        name.casefold(), [n.casefold() for n in names], n=1, cutoff=0.5
    )
    near = [n for n in names if close and n.casefold() == close[0]]
    guess = f"Did you mean {near[0]!r}? " if near else ""
    return f"{guess}Known: {', '.join(names)}."
