"""The first call of a prompt goes alone: the others find the prompt in the provider's cache."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakValueDictionary

_MOST = 10_000

_T = TypeVar("_T")


class FirstAlone:
    """Knows which prompts have been called; those are taken to be in the cache."""

    def __init__(self) -> None:
        self._warm: OrderedDict[str, None] = OrderedDict()
        self._first: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __contains__(self, prompt: str) -> bool:
        return prompt in self._warm

    async def call(self, prompt: str, call: Callable[[], Awaitable[_T]]) -> _T:
        """The result of `call`, which waits for the first call of its prompt.

        A first call that fails gives its turn to the next.
        """
        if prompt not in self._warm:
            lock = self._first.setdefault(prompt, asyncio.Lock())
            async with lock:
                if prompt not in self._warm:
                    result = await call()
                    self._warm[prompt] = None
                    if len(self._warm) > _MOST:
                        self._warm.popitem(last=False)
                    return result
        return await call()
