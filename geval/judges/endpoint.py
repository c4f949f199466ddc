"""Where a network judge lives, and which key may go there.

A key goes only to the host it belongs to: that of a provider's variable to the provider's own
host, or to the one that its address variable names beside it (OPENAI_API_KEY and OPENAI_BASE_URL);
to any other host only a key that the user named for it (`api_key_env`). Nothing else of the
environment travels along.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, quote, urlsplit

from geval.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Home:
    """Where a provider lives, and which variables of the environment name its address and key.

    `hosts` matches the provider's own host names. `one_key` tells that one key is good for all of
    them (regions of OpenAI), and not for one resource each (Azure).
    """

    name: str
    url: str = ""
    url_env: str = ""
    key_env: str = ""
    hosts: str = ""
    one_key: bool = False


OPENAI = Home(
    "OpenAI",
    "https://api.openai.com/v1",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    r"(?:[\w-]+\.)*api\.openai\.com",
    one_key=True,
)
ANTHROPIC = Home(
    "Anthropic",
    "https://api.anthropic.com",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_KEY",
    r"api\.anthropic\.com",
    one_key=True,
)
AZURE = Home(
    "Azure",
    url_env="AZURE_OPENAI_ENDPOINT",
    key_env="AZURE_OPENAI_API_KEY",
    hosts=r"[\w-]+\.(?:openai|cognitiveservices|services\.ai)\.azure\.(?:com|us|cn)",
)

_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|pk|key|gsk|xai)-[\w*.\-]{8,}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL and what may be sent to it.

    `key` is None where none is sent; `key_name` is the variable (or option) it came from, for
    messages, and `key_header` the header it goes into. `query` is put behind each address.
    `official` is the provider's own host. `ambient` tells that the URL is the provider's or the
    environment's own, so that organisation and project ids of the environment belong to it.
    """

    base_url: str
    key: str | None = field(default=None, repr=False)
    key_name: str = ""
    official: bool = False
    ambient: bool = False
    key_header: str = "authorization"
    query: tuple[tuple[str, str], ...] = ()

    @property
    def address(self) -> str:
        """Scheme, host and path: two gateways on one host are two endpoints."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"

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


def find_endpoint(
    home: Home,
    base_url: str | None = None,
    *,
    api_key: str | None = None,
    api_key_env: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Endpoint:
    """The endpoint of a judge of this kind.

    `base_url` None takes the provider's address variable, else the provider's address.
    `api_key_env` names the variable that holds the key of this host. Raises ConfigError for a bad
    URL, or none at all, and where the provider's own host would be called without a key.
    """
    env = os.environ if environ is None else environ
    named = env.get(home.url_env, "").strip() if home.url_env else ""
    url = (base_url or named or home.url).strip()
    if not url:
        raise ConfigError(
            f"no address of {home.name}", hint=f"Set {home.url_env}, or give --base-url."
        )
    parts = _checked(url)
    official = parts.scheme == "https" and bool(re.fullmatch(home.hosts, parts.hostname or ""))
    # Key and address of the environment are set together; a URL given by option is not theirs.
    ambient = bool(named) or official
    if base_url and not _same_origin(parts, named):
        ambient = official and home.one_key
    default = home.key_env if ambient else ""
    key, key_name = _key(api_key, api_key_env, env, default)
    if key is None and official:
        raise ConfigError(
            f"no key for {home.name}",
            where=parts.netloc,
            hint=f"Set {home.key_env}, or name the variable that holds the key with api_key_env.",
        )
    return Endpoint(url.rstrip("/"), key, key_name, official=official, ambient=ambient)


def azure_endpoint(
    deployment: str,
    base_url: str | None = None,
    *,
    api_key: str | None = None,
    api_key_env: str | None = None,
    api_version: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Endpoint:
    """The endpoint of an Azure deployment: AZURE_OPENAI_ENDPOINT or `base_url`, the resource.

    With `api_version` (or OPENAI_API_VERSION) the dated route of the deployment, else the v1
    route, which needs no date.
    """
    env = os.environ if environ is None else environ
    found = find_endpoint(
        AZURE, base_url, api_key=api_key, api_key_env=api_key_env, environ=environ
    )
    version = (api_version or env.get("OPENAI_API_VERSION", "")).strip()
    url = found.base_url
    if "/openai" not in urlsplit(url).path:
        url += f"/openai/deployments/{quote(deployment, safe='')}" if version else "/openai/v1"
    return replace(
        found,
        base_url=url,
        key_header="api-key",
        query=(("api-version", version),) if version else (),
    )


def local_url(url: str) -> str:
    """The address of a server as it is typed: without a path it means the /v1 of that server."""
    url = url.strip()
    if url and "://" not in url:
        url = f"http://{url}"
    return f"{url.rstrip('/')}/v1" if url and urlsplit(url).path in ("", "/") else url


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
    if parts.query or parts.fragment:
        raise ConfigError(
            f"the base URL of {parts.hostname} ends in a query or fragment, which no call would "
            "carry",
            hint="Leave out what stands behind '?' or '#'; for Azure set OPENAI_API_VERSION.",
        )
    return parts


def _same_origin(parts: SplitResult, url: str) -> bool:
    other = urlsplit(url) if url else None
    return other is not None and (parts.scheme, parts.netloc) == (other.scheme, other.netloc)


def _key(
    given: str | None, variable: str | None, env: Mapping[str, str], default: str
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
    if default and env.get(default, "").strip():
        return _sendable(env[default], default), default
    return None, ""


def _sendable(key: str, name: str) -> str:
    stripped = key.strip()
    # The value itself is never shown: not even a part of it belongs into a message.
    if not stripped or not all("!" <= c <= "~" for c in stripped):
        raise ConfigError(f"the key in {name} is empty or holds letters that no key has")
    return stripped
