"""The argument that names a run, the same in every command."""

from __future__ import annotations

from typing import Annotated

import typer

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run: its folder, its name under ./runs, or `last`.",
        show_default=False,
    ),
]
