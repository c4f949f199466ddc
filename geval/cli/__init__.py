"""The command line: one file per sub-command, thin over the library.

Results go to standard output, everything else to standard error. Heavy modules are imported
inside the commands, so `geval --help` stays quick.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from geval.cli import (
    agree,
    cache,
    calibrate,
    canary,
    compare,
    data,
    export,
    gate,
    judge,
    label_sheet,
    optimize,
    report,
    rescore,
    runs,
    score,
    show,
    template,
)
from geval.cli.ending import ending
from geval.errors import Exit, GevalError

app = typer.Typer(
    name="geval",
    help="Probability-weighted LLM-as-a-judge scores from rubric templates, local by default.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
score.add_to(app)
agree.add_to(app)
canary.add_to(template.app)
export.add_to(app)
runs.add_to(app)
show.add_to(app)
rescore.add_to(app)
compare.add_to(app)
report.add_to(app)
gate.add_to(app)
calibrate.add_to(app)
label_sheet.add_to(app)
app.add_typer(template.app, name="template")
app.add_typer(data.app, name="data")
app.add_typer(judge.app, name="judge")
app.add_typer(optimize.app, name="optimize")
app.add_typer(cache.app, name="cache")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"geval {version('geval')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Probability-weighted LLM-as-a-judge scores from rubric templates, local by default."""


def main() -> NoReturn:
    """Entry point of the `geval` command."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a cp949 console must not end a run
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        if code == Exit.INTERRUPTED:  # typer turns Ctrl-C into this code without a word
            raise KeyboardInterrupt
    except BrokenPipeError:  # `geval ... | head`: who reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.OK
    except (KeyboardInterrupt, typer.Abort, GevalError, OSError) as error:
        message, code = ending(error)
        print(message, file=sys.stderr)
    except Exception as error:
        code = _usage(error)
    sys.exit(int(code or 0))


def _open_closed_streams() -> None:
    """Give closed standard streams (`>&-`) somewhere to write.

    Otherwise the next file that is opened takes their place, and what is printed goes into it.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
        continue
    os.close(opened)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _usage(error: Exception) -> int:
    """Errors of the option parser show themselves; anything else is a bug and keeps its trace."""
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return int(getattr(error, "exit_code", Exit.USAGE))
