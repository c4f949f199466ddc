"""Fixtures that several test modules share."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest
from fake_judge import FakeJudge

from geval.judges.local import LocalJudge


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What fixtures of a module or session ask is not answered from the user's cache either."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEVAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def own_surroundings(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No test reads the user's reply cache, prices or keys, and none writes there."""
    monkeypatch.setenv("GEVAL_CACHE", str(tmp_path_factory.mktemp("cache")))
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_", "AZURE_", "GEVAL_PRICES")):
            monkeypatch.delenv(name)


@pytest.fixture
def fake_judge() -> Iterator[FakeJudge]:
    """A running fake judge server (`fake_judge.base_url`); its switches may be set at any time."""
    with FakeJudge() as fake:
        yield fake


@pytest.fixture(scope="session")
def local_judge() -> Iterator[LocalJudge]:
    """The real local model, loaded once; for tests marked `local`."""
    judge = LocalJudge()
    yield judge
    asyncio.run(judge.aclose())


@pytest.fixture
def hosts_called(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every host that is looked up or connected to; anything but this machine fails the call.

    Addresses are noted as "host:port", names that are looked up as they are.
    """
    called: set[str] = set()
    connect, lookup = socket.socket.connect, socket.getaddrinfo

    def check(host: str) -> None:
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"the socket guard refuses {host}")

    def guarded_connect(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            assert isinstance(address, tuple)
            called.add(f"{address[0]}:{address[1]}")
            check(address[0])
        connect(self, address)  # type: ignore[arg-type]

    def guarded_lookup(host: object, *rest: object, **named: object) -> object:
        if host is not None:
            name = host.decode() if isinstance(host, bytes) else str(host)
            called.add(name)
            check(name)
        return lookup(host, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_lookup)
    return called
