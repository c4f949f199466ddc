"""Filters and tests of templates: few, deterministic, each bounded by what it returns.

They work on a template's own texts, numbers and lists. Judged text refuses them (`fence.Judged`);
those of `PASSING` hand it on whole. A further filter is a function and a line in `FILTERS`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import jinja2
from jinja2.runtime import Undefined

from geval.rendering.fence import Judged

MAX_INDENT = 100


def text_of(value: Any) -> str:
    """The text of a text or number. Raises TemplateRuntimeError for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if isinstance(value, Judged):
        value.refuse()
    if isinstance(value, Undefined):
        return str(value)  # raises, with the variable's name
    if value is None:
        raise jinja2.UndefinedError("a field that this row does not have is printed")
    raise jinja2.TemplateRuntimeError(f"{kind_of(value)} cannot be used as text")


def kind_of(value: Any) -> str:
    """What a value is, in words that a template's author knows."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple, range)):
        return "a list"
    if isinstance(value, float):
        return f"the number {value}"
    return "a function" if callable(value) else f"a value of kind {type(value).__name__}"


def list_of(value: Any) -> list[Any]:
    """The items of a list, or the keys of a mapping; texts are not lists of letters."""
    if isinstance(value, (list, tuple, range)):
        return list(value)
    if isinstance(value, Mapping):
        return list(value)
    if isinstance(value, Judged):
        value.refuse()
    if isinstance(value, Undefined):
        return list(value)  # raises, with the variable's name
    raise jinja2.TemplateRuntimeError(f"{_named(value)} is no list")


def _named(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return "a field that this row does not have" if value is None else kind_of(value)


def number_of(value: Any) -> float:
    """A number that is neither a truth value nor too large to count with."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not abs(value) <= 1e15:
        raise jinja2.TemplateRuntimeError(f"{_named(value)} is no number between -1e15 and 1e15")
    return value  # type: ignore[no-any-return]


def _default(value: Any, other: Any = "", boolean: bool = False) -> Any:
    absent = isinstance(value, Undefined) or value is None
    return other if absent or (boolean and not value) else value


def _first(value: Any) -> Any:
    return next(iter(list_of(value)), None)


def _last(value: Any) -> Any:
    return next(reversed(list_of(value)), None)


def _reverse(value: Any) -> list[Any]:
    return list_of(value)[::-1]


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(list_of(value))


def _replace(value: Any, old: str, new: str) -> str:
    text, old, new = text_of(value), text_of(old), text_of(new)
    if not old:
        raise jinja2.TemplateRuntimeError("replace: the text to be replaced is empty")
    from geval.rendering.sandbox import hold

    hold(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _indent(value: Any, width: int = 4, first: bool = False) -> str:
    if not isinstance(width, int) or not 0 <= width <= MAX_INDENT:
        raise jinja2.TemplateRuntimeError(f"indent: the width is 0 to {MAX_INDENT}")
    from geval.rendering.sandbox import hold

    text, blank = text_of(value), " " * width
    hold(len(text) + (text.count("\n") + 1) * width)
    return (blank if first else "") + text.replace("\n", "\n" + blank)


def _trim(value: Any, chars: str | None = None) -> str:
    return text_of(value).strip(chars)


def _tojson(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        raise jinja2.TemplateRuntimeError(
            "tojson: only texts, numbers, lists and mappings"
        ) from None


def _int(value: Any) -> int:
    return int(number_of(float(value) if isinstance(value, str) else value))


def _float(value: Any) -> float:
    return float(number_of(float(value) if isinstance(value, str) else value))


def _round(value: Any, precision: int = 0) -> float:
    digits = round(number_of(value), int(number_of(precision)))
    return int(digits) if precision == 0 else digits


def _items(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        raise jinja2.TemplateRuntimeError(f"items: {_named(value)} is no mapping")
    return list(value.items())


def _unique(value: Any) -> list[Any]:
    return list(dict.fromkeys(text_of(item) for item in list_of(value)))


def _sort(value: Any, reverse: bool = False) -> list[Any]:
    items = list_of(value)
    for item in items:
        text_of(item)
    return sorted(items, reverse=bool(reverse))


FILTERS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(number_of(value)),
    "capitalize": lambda value: text_of(value).capitalize(),
    "count": _length,
    "d": _default,
    "default": _default,
    "first": _first,
    "float": _float,
    "indent": _indent,
    "int": _int,
    "items": _items,
    "last": _last,
    "length": _length,
    "list": list_of,
    "lower": lambda value: text_of(value).lower(),
    "max": lambda value: max(map(number_of, list_of(value))),
    "min": lambda value: min(map(number_of, list_of(value))),
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "sort": _sort,
    "string": text_of,
    "sum": lambda value: sum(map(number_of, list_of(value))),
    "title": lambda value: text_of(value).title(),
    "tojson": _tojson,
    "trim": _trim,
    "unique": _unique,
    "upper": lambda value: text_of(value).upper(),
}
"""By name; those that print what they are given (`join`, `josa`) are in the sandbox."""

PASSING = frozenset({"d", "default", "first", "last", "list", "reverse"})
"""Filters that look at no text and hand on judged text whole."""

TESTS: dict[str, Callable[..., bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "defined": lambda value: not isinstance(value, Undefined),
    "divisibleby": lambda value, by: number_of(value) % number_of(by) == 0,
    "even": lambda value: number_of(value) % 2 == 0,
    "false": lambda value: value is False,
    "float": lambda value: isinstance(value, float),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "mapping": lambda value: isinstance(value, Mapping),
    "none": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "odd": lambda value: number_of(value) % 2 == 1,
    "sequence": lambda value: isinstance(value, (list, tuple, range)),
    "string": lambda value: isinstance(value, (str, Judged)),
    "true": lambda value: value is True,
    "undefined": lambda value: isinstance(value, Undefined),
    "eq": lambda value, other: value == other,
    "ne": lambda value, other: value != other,
    "lt": lambda value, other: value < other,
    "le": lambda value, other: value <= other,
    "gt": lambda value, other: value > other,
    "ge": lambda value, other: value >= other,
    "in": lambda value, other: value in other,
}
TESTS |= {"equalto": TESTS["eq"], "==": TESTS["eq"], "!=": TESTS["ne"], "lessthan": TESTS["lt"]}
TESTS |= {"greaterthan": TESTS["gt"], "<": TESTS["lt"], "<=": TESTS["le"], ">": TESTS["gt"]}
TESTS |= {">=": TESTS["ge"]}
