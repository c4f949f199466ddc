"""`geval cache`: info, clear."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import typer

from geval.errors import ConfigError

app = typer.Typer(
    help="Look at and empty the cache of judge replies (GEVAL_CACHE names another place).",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def info(as_json: Json = False) -> None:
    """Print where the cache is, how many replies it holds and how old they are."""
    from geval.cli import ui
    from geval.judges.records import dumps
    from geval.traffic.cache import Cache, CacheInfo, cache_path

    path = cache_path()
    told = CacheInfo(path)
    if path.exists():  # looking makes no file
        with Cache(path, note=ui.note) as cache:
            told = cache.info()
    if as_json:
        typer.echo(dumps(told.to_dict()))
        return
    typer.echo(f"path     {told.path}")
    typer.echo(f"replies  {told.entries:,}")
    typer.echo(f"size     {told.bytes / 1e6:,.1f} MB")
    if told.oldest and told.newest:
        typer.echo(f"oldest   {told.oldest:%Y-%m-%d %H:%M} UTC")
        typer.echo(f"newest   {told.newest:%Y-%m-%d %H:%M} UTC")


@app.command()
def clear(
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", min=0, help="Only replies older than this many days."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove replies from the cache; asks first, and needs --yes where nobody can be asked."""
    from geval.cli import ui
    from geval.judges.records import dumps
    from geval.traffic.cache import Cache, cache_path

    path = cache_path()
    removed = 0
    if path.exists():
        with Cache(path, note=ui.note) as cache:
            which = "all" if older_than is None else f"those older than {older_than:g} days of the"
            if not yes and not sys.stdin.isatty():
                raise ConfigError(
                    "replies are removed for good", hint="Say --yes where nobody can be asked."
                )
            if not yes:
                question = f"Remove {which} {cache.info().entries:,} replies in {path}?"
                typer.confirm(question, abort=True, err=True)
            removed = cache.clear(None if older_than is None else timedelta(days=older_than))
    if as_json:
        typer.echo(dumps({"path": str(path), "removed": removed}))
    else:
        typer.echo(f"{removed:,} replies removed from {path}")
