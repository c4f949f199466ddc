"""What a failed HTTP call means: try again, leave this row, or stop the run.

Used by every network judge. Messages name the host, the model and the way out; the caller
redacts the key before text of a server comes here.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from geval.errors import FatalError, JudgeError, RejectedError, TransientError

_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "insufficient_balance"}
_NO_MODEL = {"model_not_found", "model_not_available", "deployment_not_found"}
_NO_MODEL_TEXT = re.compile(
    r"model\b.{0,80}\b(?:does not exist|not found|is not available)|no such model"
    r"|unknown model|invalid model",
    re.IGNORECASE | re.DOTALL,
)
_SPENT = re.compile(r"credit balance is too low", re.IGNORECASE)
_TOO_LONG = re.compile(r"context[ _](?:length|window|size)|too long|too many tokens", re.IGNORECASE)
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class ServerError:
    """The parts of an error body, whatever its shape (OpenAI, FastAPI, Google, plain text)."""

    message: str = ""
    code: str = ""
    kind: str = ""
    param: str = ""
    fields: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        """Code and type, lower case."""
        return {self.code.casefold(), self.kind.casefold()} - {""}


def read_error(body: object) -> ServerError:
    """The error in a decoded response body."""
    if isinstance(body, list) and body:
        first = body[0]
        if isinstance(first, Mapping) and "loc" not in first:
            return read_error(first)
        body = {"detail": body}
    if isinstance(body, str):
        return ServerError(" ".join(body.split()))
    if not isinstance(body, Mapping):
        return ServerError()
    inner = body.get("error", body)
    if isinstance(inner, str):
        return ServerError(inner, _text(body.get("code")), _text(body.get("type")))
    if not isinstance(inner, Mapping):
        inner = body
    message, fields = _text(inner.get("message")), _located(inner.get("detail"))
    if not message:
        message = _detail_message(inner.get("detail"))
    return ServerError(
        message,
        _text(inner.get("code")),
        _text(inner.get("type")) or _text(inner.get("status")),
        _text(inner.get("param")),
        fields,
    )


def refused_parameters(error: ServerError, sent: Iterable[str]) -> tuple[str, ...]:
    """The parameters among `sent` that the server names in its refusal, most telling first."""
    names = set(sent)
    named = [n for n in (error.param, *error.fields) if n in names]
    if named:
        return tuple(dict.fromkeys(named))
    if error.param and error.param.split(".")[0].split("[")[0] in ("messages", "model", "input"):
        return ()
    text = error.message[:500]
    found = [
        (match.start(), name)
        for name in names
        if (match := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE))
    ]
    return tuple(name for _, name in sorted(found))


def http_error(
    status: int,
    error: ServerError,
    headers: Mapping[str, str],
    *,
    where: str,
    key_name: str = "",
    route: str = "",
) -> JudgeError:
    """The JudgeError for an HTTP status. `where` names judge and host, `key_name` the variable."""
    said = _said(error)
    if status == 429 and not (error.names & _QUOTA or "quota" in error.code):
        return TransientError(
            f"{where}: too many requests (429){said}",
            retry_after=retry_after(headers),
            status=status,
        )
    if status in (402, 429) or (status == 400 and _SPENT.search(error.message)):
        return FatalError(
            f"the quota is spent ({status}){said}",
            where=where,
            hint="Add credit or wait for the next period, then run again: the run resumes.",
            status=status,
        )
    if status in (408, 409, 425) or (status >= 500 and status not in (501, 505)):
        return TransientError(
            f"{where}: the server failed ({status}){said}",
            retry_after=retry_after(headers),
            status=status,
        )
    if status in (401, 403):
        hint = (
            f"Check the key in {key_name} and that it may use this model."
            if key_name
            else "No key was sent to this host: name the variable that holds it with api_key_env."
        )
        return FatalError(f"access refused ({status}){said}", where=where, hint=hint, status=status)
    if _no_model(status, error):
        return FatalError(
            f"the endpoint has no such model ({status}){said}",
            where=where,
            hint="Check the model name; the endpoint lists its models under /models.",
            status=status,
            param="model",
        )
    if status in (404, 405, 501):
        return FatalError(
            f"the endpoint has no route {route} ({status}){said}",
            where=where,
            hint="Check the base URL: most servers want it to end in /v1.",
            status=status,
        )
    if 300 <= status < 400:
        target = headers.get("location", "")
        return FatalError(
            f"the endpoint sends calls on to another address ({status})",
            where=where,
            hint=f"Give that address as base URL, if you trust it: {target}" if target else None,
            status=status,
        )
    too_long = status == 413 or "context_length_exceeded" in error.names
    shorten = too_long or _TOO_LONG.search(error.message)
    return RejectedError(
        f"the request is refused ({status}){said}",
        where=where,
        hint="Shorten the row, or take a judge with a longer context." if shorten else None,
        status=status,
        param=error.param or None,
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait (`Retry-After`, also as a date, or `retry-after-ms`)."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if not value:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _no_model(status: int, error: ServerError) -> bool:
    if status not in (400, 404, 422):
        return False
    if error.names & _NO_MODEL or error.param == "model":
        return True
    if "not_found_error" in error.names and error.message.startswith("model:"):  # Anthropic
        return True
    return bool(_NO_MODEL_TEXT.search(error.message[:500]))


def _said(error: ServerError) -> str:
    text = " ".join(error.message.split())
    if not text:
        return ""
    return f": {text[:_SHOWN]}..." if len(text) > _SHOWN else f": {text}"


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _located(detail: object) -> tuple[str, ...]:
    """Field names of a FastAPI validation error: `[{"loc": ["body", "seed"], ...}]`."""
    if not isinstance(detail, list):
        return ()
    return tuple(
        str(item["loc"][1])
        for item in detail
        if isinstance(item, Mapping) and isinstance(item.get("loc"), list) and len(item["loc"]) > 1
    )


def _detail_message(detail: Any) -> str:
    if isinstance(detail, str):
        return detail
    if isinstance(detail, list):
        said = [
            f"{'.'.join(map(str, item.get('loc', [])[1:]))}: {item.get('msg', '')}"
            for item in detail
            if isinstance(item, Mapping)
        ]
        return "; ".join(said)
    if isinstance(detail, Mapping):
        return _text(detail.get("message")) or _text(detail.get("error_type"))
    return ""
