"""Judged text in a prompt: whole, byte-identical, between two markers that it cannot contain.

A template holds a judged field as `Judged`: an object that can be tested for presence, passed
on and printed, and that refuses everything else. Whatever text it gets into (`~`, `join`, a macro,
a `set` block) is `Judged` again. So no operation can hand on judged text without its fence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import jinja2

from geval.data.values import as_text, parse_json


class Fenced(str):
    """A piece of a prompt that holds judged text with its markers; `str()` leaves it one."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


class Judged:
    """Judged text, or a passage that holds some; `{{ it }}` prints `fenced`."""

    __slots__ = ("_name", "fenced", "text")

    def __init__(self, fenced: str, name: str = "", text: str | None = None) -> None:
        self.fenced, self._name = Fenced(fenced), name
        self.text = fenced if text is None else text

    def __bool__(self) -> bool:
        return bool(self.text)

    def refuse(self, *_: Any) -> NoReturn:
        """What every operation on judged text does."""
        what = f"the field {self._name!r}" if self._name else "text that holds judged text"
        shown = f"{{{{ {self._name} }}}}" if self._name else "{{ it }}"
        raise jinja2.TemplateRuntimeError(
            f"{what} can only be printed whole: print it as {shown}, without filters, slices or "
            "comparisons"
        )

    def __eq__(self, other: object) -> bool:
        # `x == none` asks for presence; any other comparison would look into the text.
        return False if other is None else self.refuse()

    __hash__ = None  # type: ignore[assignment]
    __add__ = __radd__ = __mul__ = __rmul__ = __mod__ = __rmod__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = refuse
    __neg__ = __pos__ = __abs__ = __round__ = refuse
    __len__ = __iter__ = __contains__ = __getitem__ = refuse
    __int__ = __float__ = __index__ = refuse
    __str__ = refuse


def fence(fields: Mapping[str, Any], besides: Iterable[str] = ()) -> dict[str, Any]:
    """Fields (text, tuple of texts, or None) as `Judged`.

    A marker is the start of the sha256 of the text between: prompts stay stable, and a shared
    source stays a shared prefix. No text of `fields` or `besides` contains it.
    """
    everything = "\n".join([*texts_of(fields), *besides]).casefold()

    def judged(name: str, text: str) -> Judged:
        marker = _marker(text, everything)
        return Judged(f"[{marker}]{text}[/{marker}]", name, text)

    return {
        name: tuple(judged(name, text) for text in value)
        if isinstance(value, tuple)
        else (None if value is None else judged(name, value))
        for name, value in fields.items()
    }


def size(fields: Mapping[str, Any]) -> tuple[int, int]:
    """Characters and texts of a sample's fields."""
    texts = list(texts_of(fields))
    return sum(map(len, texts)), len(texts)


def texts_of(fields: Mapping[str, Any]) -> Iterable[str]:
    """Every text of a sample's fields."""
    for value in fields.values():
        if isinstance(value, tuple):
            yield from value
        elif value is not None:
            yield value


def _marker(text: str, everything: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    while True:
        for length in range(8, 65):
            if digest[:length] not in everything:
                return digest[:length]
        # A text can quote the whole hash of another; it cannot quote one that hangs on itself.
        digest = hashlib.sha256((digest + everything).encode("utf-8", "surrogatepass")).hexdigest()


def conversation(messages: Iterable[Mapping[str, Any]], speakers: Mapping[str, str]) -> str:
    """A conversation as text, one turn a line: `speaker: content`, tool calls as JSON.

    `speakers` names roles (and `tool_call`) in the prompt's language; another role stands as it
    is. Contents are unchanged. Raises ValueError for half a character.
    """
    lines = []
    for message in messages:
        role = str(message.get("role", ""))
        speaker = speakers.get(role.casefold(), role)
        name = message.get("name")
        if isinstance(name, str) and name.strip():
            speaker = f"{speaker}({name})"
        content = as_text(message.get("content") or "")
        calls = _calls(message)
        if content or not calls:
            lines.append(f"{speaker}: {content}")
        asks = speakers.get("tool_call", "tool_call")
        lines += [f"{speaker} {asks}: {json.dumps(c, ensure_ascii=False)}" for c in calls]
    return as_text("\n".join(lines))


def _calls(message: Mapping[str, Any]) -> list[Any]:
    """Tool calls of a message without the ids of the wire; arguments are decoded."""
    calls = message.get("tool_calls") or message.get("function_call") or []
    found = []
    for call in calls if isinstance(calls, (list, tuple)) else [calls]:
        inner = call.get("function", call) if isinstance(call, Mapping) else call
        if not isinstance(inner, Mapping):
            found.append(inner)
            continue
        kept = {k: v for k, v in inner.items() if k not in ("id", "type")}
        if isinstance(kept.get("arguments"), str):
            with suppress(ValueError):  # else shown as the text that it is
                kept["arguments"] = parse_json(kept["arguments"])
        found.append(kept)
    return found
