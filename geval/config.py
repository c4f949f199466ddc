"""`geval.toml`, or `[tool.geval]` of `pyproject.toml`: judges with a name, and prices.

    [judges.mini]                         geval score ... --judge mini   (or @mini)
    spec = "openai:MODEL"
    base_url = "https://HOST/v1"
    api_key_env = "MY_KEY"                the NAME of an environment variable, never a key

    [prices."HOST"."MODEL"]               see geval/traffic/prices.toml
    input = 0.1
    output = 0.5

The file is looked for in the working folder and above it, up to the root of the repository (else
the home folder); the nearest one counts alone. Nothing is sent anywhere because a file is there:
a judge is used when it is named.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from geval.errors import ConfigError, nearest
from geval.judges.base import JUDGES, METHODS
from geval.toml_lines import key_lines
from geval.traffic.prices import check_prices

RUN_OPTIONS = ("method", "temperature", "rpm", "tpm")
"""Options of a named judge that are for the run; the others are for `open_judge`."""

_TABLES = ("judges", "prices")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"(?:sk|pk|gsk|xai|hf)_")
_SECRETS = ("apikey", "key", "token", "secret", "password", "authorization", "accesstoken")


class JudgeConfig(BaseModel):
    """One named judge: what it is, where it lives, how it is asked.

    `rpm` and `tpm` are requests and tokens per minute, `timeout` is in seconds per attempt,
    `concurrency` the calls in flight. `extra` are parameters put into each call as they are.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    spec: str
    base_url: str | None = None
    api_key_env: str | None = None
    method: str | None = None
    concurrency: int | None = Field(default=None, ge=1)
    rpm: int | None = Field(default=None, ge=1)
    tpm: int | None = Field(default=None, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0, le=2)
    reasoning: str | None = None
    seed: int | None = None
    extra: dict[str, Any] | None = None

    # Messages never show the value: it may be a key that stands at the wrong place.

    @field_validator("spec")
    @classmethod
    def _known(cls, spec: str) -> str:
        name = spec.partition(":")[0]
        if name not in JUDGES:
            raise ValueError(f"unknown judge {name!r}. {nearest(name, JUDGES)}")
        return spec

    @field_validator("method")
    @classmethod
    def _method(cls, name: str) -> str:
        if name not in (*METHODS, "auto"):
            raise ValueError(f"unknown method. {nearest(name, (*METHODS, 'auto'))}")
        return name

    @field_validator("api_key_env")
    @classmethod
    def _variable(cls, name: str) -> str:
        if not _VARIABLE.fullmatch(name) or _KEY.match(name):
            raise ValueError("takes the NAME of an environment variable, such as OPENAI_API_KEY")
        return name

    @field_validator("extra")
    @classmethod
    def _no_key(cls, extra: dict[str, Any]) -> dict[str, Any]:
        for name in _names(extra):
            if _secret(name):
                raise ValueError(f"{name!r} {_HOLDS_A_KEY}")
        return extra

    def options(self) -> dict[str, Any]:
        """What is set besides the spec."""
        return self.model_dump(exclude_none=True, exclude={"spec"})


def _names(value: Any) -> Iterator[str]:
    """Names of all keys in nested tables and lists."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


_HOLDS_A_KEY = (
    "looks like a key, and keys do not belong in a file: put it into an environment variable and "
    'write api_key_env = "NAME_OF_THE_VARIABLE"'
)


@dataclass(frozen=True)
class Config:
    """What a configuration file says; without a file everything is empty."""

    path: Path | None = None
    judges: Mapping[str, JudgeConfig] = field(default_factory=dict)
    prices: Mapping[str, Any] = field(default_factory=dict)


class Resolved(NamedTuple):
    """A judge as `open_judge` takes it, and the options set for it (`RUN_OPTIONS` among them)."""

    spec: str
    options: dict[str, Any]


def find_config(folder: str | Path | None = None) -> Path | None:
    """The configuration file that counts for `folder` (default: the working folder)."""
    start = Path(folder or Path.cwd()).resolve()
    for place in _places(start):
        if (own := place / "geval.toml").is_file():
            return own
        project = place / "pyproject.toml"
        if project.is_file() and _is_ours(project):
            return project
    return None


def _is_ours(project: Path) -> bool:
    # A file that is broken, or not to be read, and does not even name geval is no matter of ours.
    try:
        if b"geval" not in project.read_bytes():
            return False
    except OSError:
        return False
    return "geval" in _load(project)[1].get("tool", {})


def _places(start: Path) -> list[Path]:
    """The folder and those above it, as far as they are the user's: repository, else home."""
    above = [start, *start.parents]
    for number, folder in enumerate(above, 1):
        if (folder / ".git").exists():
            return above[:number]
    home = Path.home()
    return above[: above.index(home) + 1] if home in above else above[:1]


def load_config(folder: str | Path | None = None) -> Config:
    """Read and check the configuration. Raises ConfigError with every fault and its line."""
    path = find_config(folder)
    return Config() if path is None else read_config(path)


def read_config(path: Path) -> Config:
    """Read and check one file. Raises ConfigError with every fault and its line."""
    text, whole = _load(path)
    above: tuple[str, ...] = ()
    table: Any = whole
    if path.name == "pyproject.toml":
        above, table = ("tool", "geval"), whole.get("tool", {}).get("geval", {})
    check = _Check(path, text, above)
    if not isinstance(table, dict):
        check.fault((), "is no table")
        table = {}
    for name in table:
        if name not in _TABLES:
            check.fault((name,), f"unknown key {name!r}. {nearest(name, _TABLES)}")
    judges = check.judges(table.get("judges", {}))
    prices = table.get("prices", {})
    if not isinstance(prices, dict):
        check.fault(("prices",), "prices is no table")
    else:
        check_prices(
            prices,
            lambda key, text: check.fault(("prices", *key), f"prices.{'.'.join(key)}: {text}"),
        )
    if check.faults:
        raise ConfigError("the configuration cannot be used", where=str(path), faults=check.faults)
    return Config(path, judges, prices)


def _load(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        return text, tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path)) from None


class _Check:
    """Collects the faults of one file, each with its line."""

    def __init__(self, path: Path, text: str, above: tuple[str, ...]) -> None:
        self.faults: list[str] = []
        self._path, self._above = path, above
        self._lines = key_lines(text)

    def fault(self, key: Sequence[str], message: str) -> None:
        """Note a fault at a key (without the part that stands above geval's own tables)."""
        path = (*self._above, *key)
        line = next(
            (self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines),
            None,
        )
        place = f"{self._path.name}:{line}" if line else ".".join(path)
        self.faults.append(f"{place}: {message}")

    def judges(self, table: Any) -> dict[str, JudgeConfig]:
        """The named judges that are in order."""
        found: dict[str, JudgeConfig] = {}
        if not isinstance(table, dict):
            self.fault(("judges",), "judges is no table")
            return found
        for name, entry in table.items():
            if not _NAME.fullmatch(name):
                self.fault(
                    ("judges", name),
                    f"{name!r} is no name for a judge: letters, digits, '_', '-' and '.' make one",
                )
            try:
                found[name] = JudgeConfig.model_validate(entry)
            except ValidationError as error:
                for one in error.errors(include_input=False, include_url=False):
                    key = tuple(str(part) for part in one["loc"])
                    self.fault(("judges", name, *key), f"judges.{name}{_message(one, key)}")
        return found


def _message(error: Any, key: tuple[str, ...]) -> str:
    dotted = "".join(f".{part}" for part in key)
    if error["type"] == "extra_forbidden":
        if _secret(key[-1]):
            return f"{dotted} {_HOLDS_A_KEY}"
        return f": unknown key {key[-1]!r}. {nearest(key[-1], JudgeConfig.model_fields)}"
    if error["type"] == "missing":
        return f": {key[-1]} is missing"
    if error["type"] == "model_type":
        return ": is no table"
    return f"{dotted}: {error['msg'].removeprefix('Value error, ')}"


def _secret(name: str) -> bool:
    folded = re.sub(r"[^a-z]", "", name.casefold())
    return folded in _SECRETS or folded.endswith("apikey")


def resolve_judge(
    spec: str, overrides: Mapping[str, Any] | None = None, config: Config | None = None
) -> Resolved:
    """The judge that `spec` names: a built-in one, `@NAME`, or NAME of the configuration.

    A built-in name wins over a configured one, which is then reached as `@NAME`. `overrides`
    that are not None win over the configuration, which is read from the working folder where it
    is not given. Raises ConfigError for an unknown name, and where an override would send a
    configured key to another host.
    """
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    spec = spec.strip()
    if not spec.startswith("@") and spec.partition(":")[0] in JUDGES:
        return Resolved(spec, given)
    config = load_config() if config is None else config
    judge = config.judges.get(spec.removeprefix("@"))
    if judge is None:
        known = sorted(config.judges)
        name = spec.partition(":")[0]
        raise ConfigError(
            f"unknown judge {spec!r}",
            hint=nearest(name, [f"@{n}" for n in known])
            if spec.startswith("@")
            else nearest(name, [*JUDGES, *known]),
        )
    options = judge.options()
    url = given.get("base_url")
    own_key = "api_key_env" in options and not {"api_key_env", "api_key"} & given.keys()
    if url and own_key and _origin(url) != _origin(options.get("base_url") or ""):
        raise ConfigError(
            f"the key of judge {spec!r} ({options['api_key_env']}) belongs to another host "
            f"than {urlsplit(url).hostname}",
            where=str(config.path),
            hint="Give that endpoint a judge of its own in the configuration, with its key.",
        )
    return Resolved(_here(judge.spec, config), {**options, **given})


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.casefold()


def _here(spec: str, config: Config) -> str:
    """A file named in the configuration stands beside it, wherever the command is run."""
    name, _, argument = spec.partition(":")
    if name in ("local", "replay") and argument and config.path is not None:
        beside = config.path.parent / Path(argument).expanduser()
        if beside.exists():
            return f"{name}:{beside}"
    return spec
