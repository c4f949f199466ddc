"""Where a key stands in a TOML file: `tomllib` does not tell.

Good for messages, not for parsing: it reads a text that `tomllib` has accepted, line by line, and
leaves out what stands inside inline tables, arrays and strings of several lines.
"""

from __future__ import annotations

import re

Key = tuple[str, ...]

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?\s*(?:\#.*)?")
_PAIR = re.compile(rf"\s*({_DOTTED})\s*=(.*)")
_QUOTES = re.compile(r'"""|\'\'\'')


def key_lines(text: str) -> dict[Key, int]:
    """The line (counted from 1) at which each table and each key of it begins."""
    lines: dict[Key, int] = {}
    table: Key = ()
    inside = ""  # the quotes of a string of several lines that is open
    for number, line in enumerate(text.split("\n"), 1):
        if inside:
            if inside in line:
                inside = ""
            continue
        if header := _HEADER.fullmatch(line):
            table = _parts(header[1])
            _note(lines, table, 0, number)
        elif pair := _PAIR.fullmatch(line):
            key = (*table, *_parts(pair[1]))
            _note(lines, key, len(table), number)
            quotes = _QUOTES.search(pair[2])
            if quotes and pair[2].count(quotes[0]) % 2:
                inside = quotes[0]
    return lines


def _note(lines: dict[Key, int], key: Key, known: int, number: int) -> None:
    for length in range(known + 1, len(key) + 1):
        lines.setdefault(key[:length], number)


def _parts(dotted: str) -> Key:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in re.findall(_PART, dotted))
