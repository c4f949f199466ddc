"""The HTTP client of a network judge: the SDK's, with nothing on it that is not ours.

The SDKs read more of the environment than a judge may pass on (organisation, project, admin key,
custom headers) and add headers about the machine. A hook on the last step before the wire keeps
what belongs to the endpoint and refuses any other host.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from geval.errors import ConfigError
from geval.judges.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx2

Sdk = Literal["openai", "anthropic"]

_CLIENTS: dict[Sdk, str] = {"openai": "AsyncOpenAI", "anthropic": "AsyncAnthropic"}
_CONNECT_SECONDS = 30.0


def open_client(sdk: Sdk, endpoint: Endpoint, *, timeout: float, concurrency: int) -> Any:
    """A client for one endpoint, to be used and closed in the running event loop.

    It is the SDK's, on aiohttp. Retries are off (they are the engine's) and redirects are not
    followed (they would carry the judged data to a host that nobody named).
    """
    try:
        import httpx2

        package = importlib.import_module(sdk)
    except ImportError as error:  # pragma: no cover - both are dependencies of geval
        raise ConfigError(
            f"the judge {sdk} needs the package {error.name}", hint=f"pip install '{sdk}[aiohttp]'"
        ) from None

    http = package.DefaultAioHttpClient(
        # The time of a whole attempt is measured by the judge; here only that of connecting.
        timeout=httpx2.Timeout(None, connect=min(timeout, _CONNECT_SECONDS)),
        limits=httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
        follow_redirects=False,
        event_hooks={"request": [_Gate(sdk, endpoint)]},
        # A proxy of the environment is for the network; calls to this machine stay on it.
        trust_env=not endpoint.loopback,
    )
    return getattr(package, _CLIENTS[sdk])(
        # The SDK wants a key even where none is sent: the gate takes this one off again. With one
        # given it looks for no other credentials either.
        api_key=endpoint.key or "none",
        base_url=endpoint.base_url,
        default_query=dict(endpoint.query),
        max_retries=0,
        timeout=http.timeout,
        http_client=http,
    )


class _Gate:
    """Lets a request through to its endpoint with the headers that belong there."""

    def __init__(self, sdk: Sdk, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        parts = urlsplit(endpoint.base_url)
        self._origin = (parts.scheme, parts.hostname, parts.port)
        self._foreign = set() if endpoint.ambient else _environment_headers(sdk)

    async def __call__(self, request: httpx2.Request) -> None:
        url = request.url
        if (url.scheme, url.host, url.port) != self._origin:
            raise ConfigError(f"refused to call {url.host}: the judge is elsewhere")
        headers = request.headers
        for name in [*headers]:
            if name.startswith("x-stainless-") or name in self._foreign:
                del headers[name]
        for name in ("authorization", "x-api-key", "api-key"):
            headers.pop(name, None)
        if self._endpoint.key:
            where = self._endpoint.key_header
            bearer = "Bearer " if where == "authorization" else ""
            headers[where] = f"{bearer}{self._endpoint.key}"


def _environment_headers(sdk: Sdk) -> set[str]:
    """Names of the headers that the SDK takes from the environment."""
    lines = os.environ.get(f"{sdk.upper()}_CUSTOM_HEADERS", "").split("\n")
    custom = {line.partition(":")[0].strip().lower() for line in lines if ":" in line}
    needed = {"content-type", "content-length", "host", "accept", "accept-encoding"}
    return (custom | {"openai-organization", "openai-project"}) - needed
