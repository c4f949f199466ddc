"""What calls cost: known prices, unknown ones, the user's own."""

from __future__ import annotations

import datetime as dt
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from geval.errors import ConfigError
from geval.judges.base import Usage
from geval.traffic.prices import Price, Prices, load_prices, parse_prices, price_of

LUNA = {"judge": "openai", "endpoint": "api.openai.com", "model": "gpt-6-luna", "revision": ""}
M = 1_000_000


def table(price: Price) -> Prices:
    return Prices({"host": {"m": price}})


HERE = {"endpoint": "host", "model": "m"}
PRICE = Price(input=2, output=10, cached=0.5, cache_write=2.5)


def test_each_shipped_price_has_a_day_and_a_source() -> None:
    text = resources.files("geval.traffic").joinpath("prices.toml").read_text(encoding="utf-8")
    shipped = parse_prices(tomllib.loads(text), "prices.toml")
    for where, models in shipped.items():
        for model, price in models.items():
            assert price.date is not None, (where, model)
            assert price.date <= dt.date.today()
            assert price.source, (where, model)
            assert price.free == (where in ("local", "replay"))
            assert price.cached is not None
            assert price.cached <= price.input <= price.output


def test_a_cost_by_hand() -> None:
    # 0.7 M fresh at 2, 0.3 M cached at 0.5, 0.1 M written at 10
    assert table(PRICE).cost(Usage(1, M, M // 10, 300_000), HERE) == pytest.approx(1.4 + 0.15 + 1)
    assert table(PRICE).cost(Usage(), HERE) == 0.0


def test_a_shipped_price_is_found_by_host_and_model() -> None:
    prices = load_prices(environ={})
    assert prices.cost(Usage(1, M // 10, 1_000), LUNA) == pytest.approx(0.01 + 0.0005)
    assert prices.cost(Usage(1, 1000, 10), {**LUNA, "model": "GPT-6-Luna"}) is not None


@pytest.mark.fault("R2")
@pytest.mark.parametrize(
    "identity",
    [
        {**LUNA, "model": "gpt-6-luna-2027-01-01"},
        {**LUNA, "model": ""},
        {**LUNA, "endpoint": "eu.api.openai.com"},
        {**LUNA, "endpoint": "localhost:8000"},
        {"judge": "openai"},
        {},
    ],
)
def test_what_is_not_in_the_table_has_no_price(identity: dict[str, str]) -> None:
    prices = load_prices(environ={})
    assert prices.find(identity) is None
    assert prices.cost(Usage(1, 1000, 10), identity) is None
    assert prices.cost(Usage(), identity) is None
    assert prices.estimate(identity, [1000], 10) is None


@pytest.mark.fault("R2")
@pytest.mark.parametrize(
    "usage",
    [Usage(1), Usage(3, 0, 7), Usage(1, 100, 5, 200), Usage(1, 100, 5, 50)],
    ids=["nothing counted", "no prompt counted", "more cached than read", "no price for cached"],
)
def test_tokens_that_are_not_known_make_the_cost_unknown(usage: Usage) -> None:
    assert table(Price(input=2, output=10)).cost(usage, HERE) is None


@pytest.mark.parametrize("judge", ["local", "replay"])
def test_what_runs_here_is_known_to_cost_nothing(judge: str) -> None:
    prices = load_prices(environ={})
    identity = {"judge": judge, "model": "any.gguf", "sha256": "0"}
    assert prices.cost(Usage(1, 1000, 10, 500), identity) == 0.0
    assert prices.cost(Usage(1), identity) == 0.0
    assert prices.estimate(identity, [1000, 2000], 400) == (0.0, 0.0)


def test_a_long_prompt_has_its_own_rates() -> None:
    prices = load_prices(environ={})
    at, above = Usage(1, 272_000, 0), Usage(1, 272_001, 0)
    assert prices.cost(at, LUNA) == pytest.approx(0.272 * 0.1)
    assert prices.cost(above, LUNA) == pytest.approx(0.272001 * 0.2)
    assert prices.cost(Usage(10, 1_000_000, 0), LUNA) == pytest.approx(0.1)
    luna = {**LUNA, "model": "gpt-5.6-luna"}
    assert prices.cost(Usage(1, 300_000, 1, 1), luna) is None  # its source gives none for cached


def test_an_estimate_holds_whatever_the_calls_come_to_cost() -> None:
    prices = load_prices(environ={})
    prompts = [900, 120_000, 300_000]
    low, high = prices.estimate(LUNA, prompts, 400) or (0, 0)
    assert 0 < low < high
    for cached in (0, 0.5, 1):
        for completion in (1, 400):
            usages = [Usage(1, n, completion, int(n * cached)) for n in prompts]
            total = sum(prices.cost(u, LUNA) or 0 for u in usages)
            assert low <= total * (1 + 1e-9)
            assert total <= high
    # 1000 prompts of 1000 tokens: cached and 1 token, or written to the cache and 400 tokens
    assert table(PRICE).estimate(HERE, [1000] * 1000, 400) == pytest.approx((0.51, 6.5))
    assert table(PRICE).estimate(HERE, [], 400) == (0.0, 0.0)


def test_the_users_prices_win(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('["api.openai.com"."*"]\ninput = 1\noutput = 1\n', encoding="utf-8")
    configured = {
        "api.openai.com": {"gpt-6-luna": {"input": 7, "output": 7}},
        "localhost:8000": {"*": {"input": 0, "output": 0}},
    }
    by_config = load_prices(configured, environ={})
    by_both = load_prices(configured, environ={"GEVAL_PRICES": str(file)})
    usage = Usage(1, M, 0)
    assert by_config.cost(usage, LUNA) == 7
    assert by_both.cost(usage, LUNA) == 1
    server = {"judge": "openai", "endpoint": "localhost:8000", "model": "x"}
    assert by_both.cost(usage, server) == 0.0
    haiku = {"endpoint": "api.anthropic.com", "model": "claude-haiku-5-5"}
    assert by_both.find(haiku) == load_prices(environ={}).find(haiku)


def test_the_price_of_a_judge_by_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[prices."localhost:8000".m]\ninput = 3\noutput = 1\n'
    (tmp_path / "geval.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEVAL_PRICES", raising=False)
    assert price_of({"endpoint": "localhost:8000", "model": "m"})(Usage(1, M, 0)) == 3
    assert price_of({"endpoint": "localhost:8000", "model": "n"})(Usage(1, M, 0)) is None


def test_every_fault_of_a_price_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[host.a]\ninput = -1\noutput = 1\n[host.b]\ninputs = 1\noutput = "x"\n[flat]\ninput = 1\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load_prices(environ={"GEVAL_PRICES": str(file)})
    message = str(caught.value)
    assert str(file) in message
    for part in ("host.a.input", "host.b.inputs", "Did you mean 'input'", "host.b.output", "flat"):
        assert part in message
    with pytest.raises(ConfigError, match="GEVAL_PRICES"):
        load_prices(environ={"GEVAL_PRICES": str(tmp_path / "missing.toml")})
