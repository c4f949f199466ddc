"""An HTML page that stands alone: the shell of every report, with its Content-Security-Policy.

Nothing is loaded from elsewhere, and only the style and script given here are let in, by hash.
Text from data goes in through `escape` or `json_block`; neither can end its element.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape as _escape
from typing import Any

from geval.judges.records import dumps

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ddd}
td{font-variant-numeric:tabular-nums}th{text-align:left}.charts{display:flex;flex-wrap:wrap}
figure{margin:0 1em 1em 0}figcaption{color:#555}summary{cursor:pointer}
"""

# Characters that HTML cannot hold, and halves of characters that UTF-8 cannot.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_JSON = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def escape(text: object) -> str:
    """Text for an element or a quoted attribute; what no page can hold becomes U+FFFD."""
    return _escape(_UNPRINTABLE.sub("\ufffd", str(text)))


def json_text(value: object) -> str:
    """JSON that may stand inside a `<script>` element: no `<`, `>`, `&` nor line separator."""
    return dumps(value).translate(_JSON)


def json_block(name: str, parts: Iterable[str]) -> Iterator[str]:
    """A data block `name`, never run as a script; `parts` are pieces of `json_text`."""
    yield f'<script type="application/json" id="{escape(name)}">'
    yield from parts
    yield "</script>\n"


def shell(
    title: str,
    locale: str,
    body: Iterable[str],
    *,
    style: str = STYLE,
    script: str = "",
    inline_styles: bool = False,
) -> Iterator[str]:
    """The pieces of a whole page, in order, so that a big body need not be held in memory.

    `inline_styles` lets in style attributes, which charts of matplotlib carry; use it only on a
    page without a script.
    """
    policy = [
        "default-src 'none'",
        "style-src 'unsafe-inline'" if inline_styles else f"style-src {_hash(style)}",
        f"script-src {_hash(script)}" if script else "script-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ]
    yield (
        f'<!doctype html>\n<html lang="{escape(locale)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )
    for part in body:
        yield part + "\n"
    if script:
        yield f"<script>{script}</script>\n"
    yield "</body>\n</html>\n"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; every cell is escaped."""
    cells = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(v)}</td>" for v in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
