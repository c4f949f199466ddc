"""Pieces of the HTML reports: style, tables, and matplotlib's charts as SVG inside the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from geval.errors import ConfigError

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ddd}
td{font-variant-numeric:tabular-nums}th{text-align:left}.charts{display:flex;flex-wrap:wrap}
figure{margin:0 1em 1em 0}figcaption{color:#555}summary{cursor:pointer}
"""


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; every cell is escaped."""
    cells = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{cells}</tr>{body}</table>"


def chart() -> tuple[Any, Any]:
    """A figure and its axes. Raises ConfigError where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "the charts need matplotlib, which is not installed",
            hint='Install it: python -m pip install "geval[report]"',
        ) from None
    figure = Figure(figsize=(4, 3.4), layout="constrained")
    return figure, figure.add_subplot()


def svg(figure: Any) -> str:
    """The figure as an SVG element, the same bytes each time."""
    import matplotlib

    buffer = io.StringIO()
    with (
        warnings.catch_warnings(),
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "geval"}),
    ):
        warnings.simplefilter("ignore")  # glyphs that only the reader's fonts have
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    # Ids of several charts on one page must differ; the prologue belongs to a file of its own.
    text = text[text.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
