"""What a cell holds: missing or not, and its value as text, list of texts or conversation.

The converters raise ValueError with a sentence that goes behind "row 3, column x".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from geval.notes import told

_BLANK = re.compile(r"[\s\u200b\u200c\u200d\u2060\ufeff]*")
# what pandas and numpy write for a list; as JSON it fails, as one text it would be judged wrongly
_PRINTED_LIST = re.compile(r"\s*\[\s*(['\"]).*['\"]\s*\]\s*", re.DOTALL)
_EXCEL_CELL = 32_767

_DEEPEST = 100

Warn = Callable[[str], None]


class Number(float):
    """A number that also has the text it was written in: 12.50, 1e400, 12.3% of a workbook."""

    __slots__ = ("text",)
    text: str

    @classmethod
    def of(cls, text: str) -> Number:
        """The number written in JSON as `text`; one beyond all floats is infinite."""
        number = cls(text)
        number.text = text
        return number

    @classmethod
    def shown(cls, value: float, text: str) -> Number:
        """The number `value`, displayed as `text`."""
        number = cls(value)
        number.text = text
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        return Number.shown, (float(self), self.text)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A cell that holds something, but no value: `reason` goes behind the column's name."""

    reason: str


def parse_json(text: str) -> Any:
    """JSON, strictly: no key twice. NaN and Infinity, which are no JSON, are read as null.

    Numbers with a point or an exponent keep their text (`Number`). Raises ValueError
    (json.JSONDecodeError where there is a position).
    """
    try:
        found = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=lambda _: None,
            parse_float=Number.of,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count("[") + text.count("{") > _DEEPEST and _depth(found) > _DEEPEST:
        raise ValueError(f"nested too deeply (more than {_DEEPEST} levels)")
    return found


def _depth(value: Any) -> int:
    """Levels of lists and objects; walked level by level, so that no depth is too deep."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        level = [
            inner for item in level for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def json_object(value: Any) -> Mapping[str, Any] | None:
    """`value` where it is an object, or text that is a JSON object; else None."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            found = parse_json(value)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None
    return None


def is_missing(value: Any) -> bool:
    """None, a float that is no number, NaT, blank text, a list of nothing but these.

    The text "nan" or "NA" is text.
    """
    if value is None:
        return True
    if isinstance(value, str):
        return _BLANK.fullmatch(value) is not None
    if isinstance(value, Number):
        return False  # 1e400 was written by somebody
    if isinstance(value, float):
        return not math.isfinite(value)
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas, which is not imported for it
        return True
    if isinstance(value, (list, tuple)):
        return all(is_missing(item) for item in value)
    if isinstance(value, Decimal):
        return not value.is_finite()
    tolist = getattr(value, "tolist", None)  # numpy's arrays and scalars
    return callable(tolist) and is_missing(tolist())


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy's types become Python's, NaN None, the rest its text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Number):
        return value if math.isfinite(value) else value.text
    if isinstance(value, Unreadable):
        return None
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=repr)
    if is_missing(value):
        return None
    tolist = getattr(value, "tolist", None)  # numpy's arrays and scalars
    if callable(tolist):
        return plain(tolist())
    return str(value)


def as_text(value: Any) -> str:
    """The text a judge is shown: text unchanged, numbers as written, the rest as readable JSON."""
    if isinstance(value, Unreadable):
        raise ValueError(value.reason)
    value = plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Number):
        return value.text
    if isinstance(value, float):
        return _digits(value)
    if not isinstance(value, (str, int)):
        value = _readable(value)
    text = str(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise ValueError(f"holds half a character (U+{code:04X}), which is no text") from None
    return text


def _readable(value: Any) -> str:
    """JSON in which numbers stand as they were written."""
    if isinstance(value, dict):
        items = (f"{_readable(key)}: {_readable(item)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_readable, value)) + "]"
    if isinstance(value, Number):
        return value.text
    return json.dumps(value, ensure_ascii=False)


def _digits(value: float) -> str:
    if value and not 1e-15 <= abs(value) < 1e21:
        return repr(value)
    text = format(Decimal(repr(value)), "f")  # 1e-05 is written 0.00001
    return text.removesuffix(".0")


def as_texts(value: Any, warn: Warn) -> tuple[str, ...]:
    """A list of texts; text that is a JSON list is read as one. Blank items are left out."""
    value = plain(value)
    if isinstance(value, str):
        value = _json_list(value)
    if not isinstance(value, list):
        warn(told("list_of_one"))
        value = [value]
    kept = [item for item in value if not is_missing(item)]
    if len(kept) < len(value):
        warn(told("blank_items"))
    return tuple(as_text(item) for item in kept)


def as_messages(value: Any, warn: Warn) -> tuple[dict[str, Any], ...]:
    """A conversation: a list of objects with `role` and `content`; the content becomes text."""
    value = plain(value)
    if isinstance(value, str):
        value = _json_list(value)
    if isinstance(value, str):
        warn(told("one_message"))
        value = [{"role": "user", "content": value}]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise ValueError("is no list of messages with role and content")
    return tuple(_message(number, item) for number, item in enumerate(value, 1))


def _message(number: int, item: Any) -> dict[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("role"), str):
        raise ValueError(f"message {number} is no object with role and content")
    if is_missing(item.get("content")):
        if len([value for value in item.values() if not is_missing(value)]) < 2:
            raise ValueError(f"message {number} has no content")
        return {**item, "content": ""}  # a message of tool calls only
    return {**item, "content": as_text(_pieces(item["content"]))}


def _pieces(content: Any) -> Any:
    """Pieces of text (`[{"type": "text", "text": ...}]`) as one text; else the content itself."""
    if not isinstance(content, list) or not content:
        return content
    texts = [
        piece["text"]
        for piece in content
        if isinstance(piece, dict)
        and piece.get("type") in ("text", "input_text", "output_text")
        and isinstance(piece.get("text"), str)
    ]
    return "\n".join(texts) if len(texts) == len(content) else content


def _json_list(text: str) -> Any:
    """The list that `text` is in JSON, else `text`."""
    if not text.lstrip().startswith("["):
        return text
    try:
        found = parse_json(text)
    except ValueError:
        if _PRINTED_LIST.fullmatch(text):
            raise ValueError(
                "looks like a list but is no JSON (printed by Python or numpy?); "
                'write it as ["...", "..."]'
            ) from None
        return text
    return found if isinstance(found, list) else text


def cut_by_excel(values: Iterable[Any]) -> bool:
    """Whether a cell has exactly the length at which Excel cuts: 32,767 UTF-16 units."""
    return any(
        isinstance(value, str)
        and _EXCEL_CELL // 2 <= len(value) <= _EXCEL_CELL
        and len(value.encode("utf-16-le", "surrogatepass")) == 2 * _EXCEL_CELL
        for value in values
    )
