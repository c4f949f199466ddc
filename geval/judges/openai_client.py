"""The HTTP client of OpenAI-compatible judges: the SDK's, with nothing on it that is not ours.

The SDK reads more of the environment than a judge may pass on (organisation, project, admin key,
custom headers) and adds headers about the machine. A hook on the last step before the wire keeps
what belongs to the endpoint and refuses any other host.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from geval.errors import ConfigError
from geval.judges.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

_CONNECT_SECONDS = 30.0


def open_client(endpoint: Endpoint, *, timeout: float, concurrency: int) -> AsyncOpenAI:
    """A client for one endpoint, to be used and closed in the running event loop.

    Retries are off (they are the engine's) and redirects are not followed (they would carry the
    judged data to a host that nobody named).
    """
    try:
        import httpx2
        from openai import AsyncOpenAI, DefaultAioHttpClient
    except ImportError as error:  # pragma: no cover - both are dependencies of geval
        raise ConfigError(
            f"the judge openai needs the package {error.name}", hint="pip install 'openai[aiohttp]'"
        ) from None

    http = DefaultAioHttpClient(
        # The time of a whole attempt is measured by the judge; here only that of connecting.
        timeout=httpx2.Timeout(None, connect=min(timeout, _CONNECT_SECONDS)),
        limits=httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
        follow_redirects=False,
        event_hooks={"request": [_Gate(endpoint)]},
        # A proxy of the environment is for the network; calls to this machine stay on it.
        trust_env=not endpoint.loopback,
    )
    return AsyncOpenAI(
        # The SDK wants a key even where none is sent: the gate takes this one off again.
        api_key=endpoint.key or "none",
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=http.timeout,
        http_client=http,
    )


class _Gate:
    """Lets a request through to its endpoint with the headers that belong there."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._foreign = set() if endpoint.ambient else _environment_headers()

    async def __call__(self, request: httpx2.Request) -> None:
        if request.url.host != self._endpoint.hostname:
            raise ConfigError(f"refused to call {request.url.host}: the judge is elsewhere")
        headers = request.headers
        for name in [*headers]:
            if name.startswith("x-stainless-") or name in self._foreign:
                del headers[name]
        headers.pop("authorization", None)
        if self._endpoint.key:
            headers["authorization"] = f"Bearer {self._endpoint.key}"


def _environment_headers() -> set[str]:
    """Names of the headers that the SDK takes from the environment."""
    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    custom = {line.partition(":")[0].strip().lower() for line in lines if ":" in line}
    needed = {"content-type", "content-length", "host", "accept", "accept-encoding"}
    return (custom | {"openai-organization", "openai-project"}) - needed
