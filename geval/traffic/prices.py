"""What calls cost, where that is known: a dated table, and the user's own prices over it.

Unknown is None and never 0: a model that is not in the table, tokens that a server did not
count, cached tokens without a price of their own. Amounts are US dollars.
"""

from __future__ import annotations

import datetime as dt
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from geval.errors import ConfigError, nearest
from geval.judges.base import Usage

MILLION = 1_000_000

Layer = Mapping[str, Mapping[str, "Price"]]
"""Prices by host (or name of a judge without one) and model."""


class Rates(BaseModel):
    """US dollars per million tokens; None is unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)

    @property
    def free(self) -> bool:
        """Whether nothing costs anything."""
        return not (self.input or self.output or self.cached or self.cache_write)


class LongRates(Rates):
    """The rates of a call whose prompt has more than `above` tokens."""

    above: int = Field(gt=0)


class Price(Rates):
    """What a model costs at one place, the day for which that is known, and who says so."""

    long: LongRates | None = None
    date: dt.date | None = None
    source: str = ""

    def rates(self, prompt: float) -> Rates:
        """The rates of a call with a prompt of this many tokens."""
        return self.long if self.long is not None and prompt > self.long.above else self


class Range(NamedTuple):
    """From the least to the most that something may cost, in US dollars."""

    low: float
    high: float


class Prices:
    """Prices of judges; of several layers the first that knows a judge is asked."""

    def __init__(self, *layers: Layer) -> None:
        self._layers = [
            {
                where.casefold(): {model.casefold(): price for model, price in models.items()}
                for where, models in layer.items()
            }
            for layer in layers
        ]

    def find(self, identity: Mapping[str, Any]) -> Price | None:
        """The price of the judge with this `identity()`, None where it is unknown."""
        where = str(identity.get("endpoint") or identity.get("judge") or "").casefold()
        model = str(identity.get("model") or "").casefold()
        for layer in self._layers:
            models = layer.get(where, {})
            price = models.get(model) or models.get("*")
            if price is not None:
                return price
        return None

    def cost(self, usage: Usage, identity: Mapping[str, Any]) -> float | None:
        """What `usage` cost in US dollars; None where price or tokens are unknown.

        Give the usage of one call: of a sum only the average prompt tells which rates apply.
        Tokens that were written to a provider's cache are not told by `usage` and are taken as
        plain input, so such a call may have cost a little more.
        """
        price = self.find(identity)
        if price is None:
            return None
        rates = price.rates(usage.prompt / max(usage.calls, 1))
        if rates.free or usage.calls == 0:
            return 0.0
        if usage.prompt == 0 or usage.cached > usage.prompt:
            return None  # a prompt has tokens: the server did not count them, or counts otherwise
        if usage.cached and rates.cached is None:
            return None
        dollars = (usage.prompt - usage.cached) * rates.input + usage.completion * rates.output
        return (dollars + usage.cached * (rates.cached or 0.0)) / MILLION

    def estimate(
        self, identity: Mapping[str, Any], prompts: Iterable[int], max_completion: int
    ) -> Range | None:
        """What calls may cost, before they are made; None where the price is unknown.

        `prompts` are the prompt tokens of each call, `max_completion` the most tokens of an
        answer. The low end is every prompt found in the provider's cache and answers of one
        token; the high end every prompt written to that cache and answers of full length.
        """
        price = self.find(identity)
        if price is None:
            return None
        low = high = 0.0
        for prompt in prompts:
            rates = price.rates(prompt)
            cached = rates.input if rates.cached is None else min(rates.cached, rates.input)
            dearest = max(rates.input, rates.cache_write or 0.0)
            low += prompt * cached + min(1, max_completion) * rates.output
            high += prompt * dearest + max_completion * rates.output
        return Range(low / MILLION, high / MILLION)


def load_prices(
    configured: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Prices:
    """The shipped table under the user's: GEVAL_PRICES (a file), then `configured`.

    `configured` is the `[prices]` table of `geval.toml`. Raises ConfigError for a file that
    cannot be read, and with every fault of its entries.
    """
    layers = []
    named = (os.environ if environ is None else environ).get("GEVAL_PRICES", "").strip()
    if named:
        layers.append(_read(Path(named).expanduser()))
    if configured:
        layers.append(parse_prices(configured, "[prices]"))
    text = resources.files("geval.traffic").joinpath("prices.toml").read_text(encoding="utf-8")
    return Prices(*layers, parse_prices(tomllib.loads(text), "geval/traffic/prices.toml"))


def price_of(
    identity: Mapping[str, Any], prices: Prices | None = None
) -> Callable[[Usage], float | None]:
    """`Prices.cost` for one judge, by default with all prices that the user and geval know."""
    if prices is None:
        from geval.config import load_config

        prices = load_prices(load_config().prices)
    return partial(prices.cost, identity=identity)


def parse_prices(table: Mapping[str, Any], where: str) -> Layer:
    """Check prices as they stand in a TOML file. Raises ConfigError with every fault found."""
    faults: list[str] = []
    layer = check_prices(table, lambda key, text: faults.append(f"{'.'.join(key)}: {text}"))
    if faults:
        raise ConfigError(
            "prices that cannot be read",
            where=where,
            faults=faults,
            hint='An entry looks like ["api.openai.com"."MODEL"] with input and output in US '
            "dollars per million tokens.",
        )
    return layer


def check_prices(table: Mapping[str, Any], fault: Callable[[tuple[str, ...], str], None]) -> Layer:
    """The prices that are in order; `fault` is told the key and the message of each other thing."""
    layer: dict[str, dict[str, Price]] = {}
    for host, models in table.items():
        if not isinstance(models, Mapping):
            fault((host,), "prices stand in a table per host and model")
            continue
        for model, entry in models.items():
            try:
                layer.setdefault(host, {})[model] = Price.model_validate(entry)
            except ValidationError as error:
                for one in error.errors():
                    path = tuple(str(part) for part in one["loc"])
                    fault((host, model, *path), _told(one))
    return layer


def _told(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        known = LongRates.model_fields if len(error["loc"]) > 1 else Price.model_fields
        return f"unknown key. {nearest(str(error['loc'][-1]), known)}"
    return str(error["msg"])


def _read(path: Path) -> Layer:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read the prices: {error}",
            where=str(path),
            hint="GEVAL_PRICES names a TOML file; the shipped prices.toml shows its form.",
        ) from None
    return parse_prices(table, str(path))
