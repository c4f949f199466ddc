"""What the commands share: consoles, notes, the progress bar."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from geval.cli.terminal import SafeConsole, json_safe
from geval.errors import UsageError
from geval.notes import say, told
from geval.yaml import decode

if TYPE_CHECKING:
    from geval.engine import OnProgress, Progress

out = SafeConsole(highlight=False, soft_wrap=False)
err = SafeConsole(stderr=True, highlight=False)


def json_lines(lines: Iterable[str]) -> None:
    """JSON Lines on standard output: UTF-8, whatever the terminal speaks."""
    sys.stdout.flush()
    for line in lines:
        sys.stdout.buffer.write(json_safe(line).encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """Something the user should know, on standard error."""
    err.print(text, style="dim", markup=False, soft_wrap=True)


def quiet(text: str) -> None:
    """In place of `note` where the user asked for silence."""


def parameters(pairs: Iterable[str], aspect: str | None = None) -> dict[str, str]:
    """Fields with one text for all rows: `--param FIELD=TEXT`, `FIELD=@FILE`, and `--aspect`."""
    found: dict[str, str] = {} if aspect is None else {"aspect": aspect}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"--param {pair}: expected FIELD=TEXT or FIELD=@FILE")
        if name in found:
            raise UsageError(f"--param {name} is given twice")
        if text.startswith("@"):
            try:
                text = decode(Path(text[1:]).read_bytes(), text[1:])
            except OSError as error:
                raise UsageError(f"--param {name}: {text[1:]}: {error.strerror}") from None
        found[name] = text
    return found


@contextlib.contextmanager
def progress(title: str, *, silent: bool = False) -> Iterator[OnProgress]:
    """A bar with rate and estimated end on a terminal; plain lines at each tenth elsewhere."""
    if silent:
        yield lambda state: None
        return
    if not err.is_terminal:
        yield _Lines(title)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[spent]}"),
        TextColumn("{task.fields[unscored]}", style="red"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
    )
    with bar:
        task = bar.add_task(title, total=None, spent="", unscored="")

        def show(state: Progress_) -> None:
            rate = bar.tasks[task].speed or 0.0
            spent = told("bar", rate=rate, tokens=state.tokens)
            failed = told("bar_unscored", unscored=state.unscored) if state.unscored else ""
            bar.update(
                task,
                completed=state.done,
                total=state.total,
                spent=say(spent, state.locale) if state.locale else spent,
                unscored=say(failed, state.locale) if state.locale else failed,
            )

        yield show


class _Lines:
    """Progress where there is no terminal: a line for each tenth of the work."""

    def __init__(self, title: str) -> None:
        self._title, self._next = title, 0

    def __call__(self, state: Progress_) -> None:
        total = state.total or 0
        tenth = 10 * state.done // total if total else state.done // 1000
        if tenth >= self._next:
            self._next = tenth + 1
            of = f"/{total}" if total else ""
            key = "progress_unscored" if state.unscored else "progress"
            line = told(
                key,
                title=self._title,
                done=f"{state.done}{of}",
                tokens=state.tokens,
                unscored=state.unscored,
            )
            note(say(line, state.locale) if state.locale else line)


if TYPE_CHECKING:
    Progress_ = Progress
