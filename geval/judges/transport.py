"""One HTTP call of a network judge: the decoded JSON object, or the error that it means.

Both SDKs are used in the same way: raw bytes out, raw bytes in. Building their reply objects
takes five times as long as decoding the JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from geval.errors import FatalError, JudgeError, RejectedError, TransientError
from geval.judges.client import Sdk, open_client
from geval.judges.endpoint import Endpoint
from geval.judges.failures import ServerError, http_error, read_error
from geval.judges.records import dumps


class Refused(Exception):
    """A refused request: perhaps one parameter less will do. `final` is what it is otherwise."""

    def __init__(self, error: ServerError, final: JudgeError) -> None:
        super().__init__(str(final))
        self.error, self.final = error, final


class Transport:
    """Calls one endpoint. `timeout` is in seconds per call, `where` names the judge in messages."""

    def __init__(
        self, sdk: Sdk, endpoint: Endpoint, where: str, *, timeout: float, concurrency: int
    ) -> None:
        self.sdk, self.endpoint, self.where = sdk, endpoint, where
        self.timeout, self.concurrency = timeout, concurrency
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answered = False

    async def post(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a POST. Raises a JudgeError, or `Refused`."""
        return await self._call("post", route, {"content": dumps(body).encode()})

    async def get(self, route: str) -> dict[str, Any]:
        """The answer to a GET; `route` may be a whole address of the same server."""
        return await self._call("get", route, {})

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _call(self, verb: str, route: str, content: dict[str, Any]) -> dict[str, Any]:
        import httpx2

        package: Any = importlib.import_module(self.sdk)
        call = getattr(self.open(), verb)
        path = route if "://" in route else f"/{route}"
        try:
            # The SDK's own time-out is per read: a server that drips would hold the row for ever.
            async with asyncio.timeout(self.timeout):
                response = await call(path, cast_to=httpx2.Response, **content)
        except package.APIStatusError as error:
            raise self._failure(
                error.status_code, error.body, error.response.headers, route
            ) from None
        except (package.APIConnectionError, TimeoutError) as error:
            raise self._unreached(error) from None
        self._answered = True
        try:
            data = json.loads(response.content)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise TransientError(
                f"{self.where}: answered {response.status_code} with something else than JSON. "
                "If it stays so, check the base URL: most servers want it to end in /v1."
            )
        if data.get("error") and not data.get("choices"):
            # Routers answer 200 and put the failure of the provider behind them into the body.
            raise self._failure(_status_within(data["error"]), data, response.headers, route)
        return data

    def _failure(
        self, status: int, body: object, headers: Mapping[str, str], route: str
    ) -> JudgeError | Refused:
        self._answered = True
        error = read_error(body)
        error = replace(error, message=self.endpoint.redact(error.message))
        final = http_error(
            status,
            error,
            headers,
            where=self.where,
            key_name=self.endpoint.key_name if self.endpoint.key else "",
            route=f"/{route}",
        )
        return Refused(error, final) if isinstance(final, RejectedError) else final

    def _unreached(self, error: Exception) -> JudgeError:
        import aiohttp

        cause = error.__cause__.__cause__ if error.__cause__ else None
        reason = self.endpoint.redact(str(cause or error.__cause__ or ""))
        if isinstance(cause, aiohttp.ClientConnectorError) and not self._answered:
            # Never reached before: a wrong address or a server that is not running.
            return FatalError(
                f"cannot connect: {reason}",
                where=self.where,
                hint="Check the base URL and that the server runs.",
            )
        if cause is None and isinstance(error, TimeoutError):
            return TransientError(f"{self.where}: no answer within {self.timeout:g} s")
        return TransientError(
            f"{self.where}: the connection failed" + (f": {reason}" if reason else "")
        )

    def open(self) -> Any:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client = open_client(
                self.sdk, self.endpoint, timeout=self.timeout, concurrency=self.concurrency
            )
            self._loop = loop
        return self._client


def _status_within(error: object) -> int:
    """The HTTP status that a body reports beside a 200; 502 where it names none."""
    code = error.get("code") if isinstance(error, Mapping) else None
    try:
        status = int(code) if code is not None else 502
    except (TypeError, ValueError):
        return 502
    return status if 400 <= status < 600 else 502
