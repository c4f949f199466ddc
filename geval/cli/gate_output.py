"""What `geval gate` and `geval score --fail-under` share: options, files for CI, the ending."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geval.cli.ending import ending
from geval.errors import ConfigError, Exit

if TYPE_CHECKING:
    from geval.runs.gate import Gate
    from geval.runs.run import Run

VARIABLE = "GITHUB_STEP_SUMMARY"

OnOption = Annotated[
    str, typer.Option("--on", help="What must reach --fail-under: mean, row or criterion.")
]
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write the verdict as JUnit XML.", dir_okay=False),
]
SummaryOption = Annotated[
    Path | None,
    typer.Option("--summary", metavar="FILE", help="Write the verdict and means as Markdown."),
]
GithubOption = Annotated[
    bool,
    typer.Option(
        "--github-summary",
        help=f"Append the same Markdown to the job's summary page (${VARIABLE}).",
    ),
]


@dataclass(frozen=True)
class Files:
    """Files of a verdict; those that cannot be written are refused before anything is judged."""

    junit: Path | None = None
    summary: Path | None = None
    github: Path | None = None

    @classmethod
    def asked(cls, junit: Path | None, summary: Path | None, github: bool) -> Files:
        """Raises ConfigError or UsageError where a file is not named or cannot be written."""
        from geval.runs.files import writable

        page = None
        if github:
            named = os.environ.get(VARIABLE, "").strip()
            if not named:
                raise ConfigError(
                    f"--github-summary: the variable {VARIABLE} is not set",
                    hint="GitHub sets it in a job's step; elsewhere use --summary FILE.",
                )
            page = Path(named)
        for path, option in (
            (junit, "--junit"), (summary, "--summary"), (page, "--github-summary")
        ):  # fmt: skip
            if path is not None:
                writable(path, option)
        return cls(junit, summary, page)


def conclude(run: Run, gate: Gate, files: Files, word: Mapping[str, Any]) -> tuple[str, Exit]:
    """Judge a run, write what was asked for; the message and the exit code."""
    from geval.runs.gate import judge_run

    verdict = judge_run(run, gate)
    if files.junit:
        from geval.runs.junit import write_junit

        write_junit(run, verdict, files.junit, word)
    if files.summary or files.github:
        from geval.runs.files import written_whole
        from geval.runs.markdown import markdown

        text = markdown(run, verdict, word)
        if files.summary:
            with written_whole(files.summary) as file:
                file.write(text)
        if files.github:  # other steps of the job write there too
            with files.github.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text + "\n")
    return ending(verdict, word)
