"""Where a network judge lives, and which key may go there.

A key goes only to the host it belongs to: OPENAI_API_KEY to OpenAI, or to the host that
OPENAI_BASE_URL names beside it; to any other host only a key that the user named for it
(`api_key_env`). Nothing else of the environment travels along.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from geval.errors import ConfigError

OPENAI_URL = "https://api.openai.com/v1"

_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|pk|key|gsk|xai)-[\w*.\-]{8,}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL and what may be sent to it.

    `key` is None where none is sent; `key_name` is the variable (or option) it came from, for
    messages. `official` is OpenAI's own host. `ambient` tells that the URL is the provider's or
    the environment's own, so that organisation and project ids of the environment belong to it.
    """

    base_url: str
    key: str | None = field(default=None, repr=False)
    key_name: str = ""
    official: bool = False
    ambient: bool = False

    @property
    def host(self) -> str:
        """Host, with the port where the URL names one."""
        return urlsplit(self.base_url).netloc

    @property
    def hostname(self) -> str:
        """Host without the port."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine."""
        if self.hostname == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.hostname).is_loopback
        except ValueError:
            return False

    def redact(self, text: str) -> str:
        """`text` without the key: servers echo it in their messages."""
        if self.key:
            text = text.replace(self.key, "[key]")
        return _LOOKS_LIKE_A_KEY.sub("[key]", text)


def openai_endpoint(
    base_url: str | None = None,
    *,
    api_key: str | None = None,
    api_key_env: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Endpoint:
    """The endpoint of an OpenAI-compatible judge.

    `base_url` None takes OPENAI_BASE_URL, else OpenAI. `api_key_env` names the variable that
    holds the key of this host. Raises ConfigError for a bad URL, and where a key is missing.
    """
    env = os.environ if environ is None else environ
    named = env.get("OPENAI_BASE_URL", "").strip()
    url = (base_url or named or OPENAI_URL).strip()
    parts = _checked(url)
    official = _is_openai(parts)
    # OPENAI_API_KEY and OPENAI_BASE_URL are set together; a URL given by option is not theirs.
    ambient = official if base_url and not _same_origin(parts, named) else bool(named) or official
    key, key_name = _key(api_key, api_key_env, env, may_use_default=ambient)
    if key is None and official:
        raise ConfigError(
            "no key for OpenAI",
            where=parts.netloc,
            hint="Set OPENAI_API_KEY, or name the variable that holds the key with api_key_env.",
        )
    return Endpoint(url.rstrip("/"), key, key_name, official=official, ambient=ambient)


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"base URL {url!r} cannot be read: {error}") from None
    if "@" in parts.netloc:
        raise ConfigError(
            f"the base URL of {parts.hostname} holds a user name or password",
            hint="Leave it out and name the variable that holds the key with api_key_env.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"base URL {url!r} is no http or https address",
            hint="It looks like http://localhost:8000/v1 or https://api.openai.com/v1.",
        )
    return parts


def _is_openai(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    return parts.scheme == "https" and (
        host == "api.openai.com" or host.endswith(".api.openai.com")
    )


def _same_origin(parts: SplitResult, url: str) -> bool:
    other = urlsplit(url) if url else None
    return other is not None and (parts.scheme, parts.netloc) == (other.scheme, other.netloc)


def _key(
    given: str | None, variable: str | None, env: Mapping[str, str], *, may_use_default: bool
) -> tuple[str | None, str]:
    if given is not None:
        return _sendable(given, "api_key"), "api_key"
    if variable:
        if not env.get(variable, "").strip():
            raise ConfigError(
                f"the environment variable {variable} (api_key_env) is not set",
                hint=f"Set {variable} to the key of this endpoint.",
            )
        return _sendable(env[variable], variable), variable
    if may_use_default and env.get("OPENAI_API_KEY", "").strip():
        return _sendable(env["OPENAI_API_KEY"], "OPENAI_API_KEY"), "OPENAI_API_KEY"
    return None, ""


def _sendable(key: str, name: str) -> str:
    stripped = key.strip()
    # The value itself is never shown: not even a part of it belongs into a message.
    if not stripped or not all("!" <= c <= "~" for c in stripped):
        raise ConfigError(f"the key in {name} is empty or holds letters that no key has")
    return stripped
