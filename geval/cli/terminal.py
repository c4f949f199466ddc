"""Text on a terminal: what was judged, or what a judge said, is shown and never acts.

An escape sequence inside an answer could clear the screen, change the title or write what was
never said; marks that turn the direction of text could show another order than the file has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

# C0 without line feed and tab, DEL, C1, marks of direction, halves of characters.
_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def shown(text: object) -> str:
    """Text with everything that a terminal would obey written out: ESC becomes `\\x1b`."""
    return _ACTS.sub(_written, str(text).replace("\r\n", "\n"))


def line(text: object, most: int | None = None) -> str:
    """Text on one line, cut to `most` characters."""
    told = " ".join(shown(text).split())
    return told if most is None or len(told) <= most else told[: most - 1] + "…"


def plain(text: object, style: str = "") -> Text:
    """Text for a table or a panel in which no markup is read either."""
    return Text(shown(text), style=style)


def json_safe(text: str) -> str:
    """A line of JSON whose control characters are escaped: it means the same and acts on nothing.

    JSON itself allows DEL and C1 inside a text.
    """
    return _ACTS.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


class SafeConsole(Console):
    """A console through which no text can send control characters, whoever prints it."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments with control characters written out; rich's own stay."""
        for segment in super().render(renderable, options):
            if segment.control is None and _ACTS.search(segment.text):
                yield Segment(shown(segment.text), segment.style)
            else:
                yield segment


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
