"""Charts of matplotlib as SVG inside a page: text stays text, so the reader's fonts show it."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

from geval.errors import ConfigError


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
