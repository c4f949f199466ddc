"""The judges of a run, opened, with how each is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from geval.errors import ConfigError
from geval.judges.base import METHODS, Judge, open_judge
from geval.settings import Reasons, Settings
from geval.traffic.asking import Price
from geval.traffic.limits import Limits


@dataclass(frozen=True)
class Seat:
    """A judge of the run with what its configuration says of how it is asked."""

    judge: Judge
    limits: Limits
    method: str | None = None
    temperature: float | None = None
    settings: Settings = field(default_factory=Settings)

    def settled(self, settings: Settings, method: str | None) -> Seat:
        """With the run's settings, where neither the command nor its configuration says more."""
        own = settings
        if self.method is not None and method in (None, "auto"):
            own = _with_method(own, self.method)
        if self.temperature is not None and own.temperature is None:
            own = replace(own, temperature=self.temperature)
        return replace(self, settings=own)


def open_seat(
    judge: str | Judge,
    base_url: str | None,
    verbose: bool,
    limits: Limits,
    *,
    in_panel: bool = False,
    unasked: bool = False,
) -> Seat:
    """Open a judge by its spec or its name in the configuration.

    `unasked` is for a plan: nothing will be sent, so no key is needed.
    """
    if not isinstance(judge, str):
        return Seat(judge, limits)
    from geval.config import RUN_OPTIONS, resolve_judge

    # In a panel an endpoint is meant for the judges that have one; alone it is a mistake.
    skipped = in_panel and judge.partition(":")[0] in ("local", "replay")
    spec, options = resolve_judge(judge, {"base_url": None if skipped else base_url})
    own = {name: options.pop(name) for name in RUN_OPTIONS if name in options}
    if verbose and spec.partition(":")[0] == "local":
        options["verbose"] = True
    if spec.partition(":")[0] not in ("local", "replay"):
        options.setdefault("timeout", limits.attempt_timeout)  # the probe keeps it too
        if unasked:
            options["api_key"] = "none"
    bounds = replace(limits, rpm=limits.rpm or own.get("rpm"), tpm=limits.tpm or own.get("tpm"))
    return Seat(open_judge(spec, **options), bounds, own.get("method"), own.get("temperature"))


def _with_method(settings: Settings, method: str) -> Settings:
    if method not in (*METHODS, "auto"):
        raise ConfigError(f"unknown method {method!r}", hint=f"Known: auto, {', '.join(METHODS)}.")
    return replace(settings, method=method)  # type: ignore[arg-type]


def price_for(judge: Judge) -> Price:
    """What usage of this judge costs in US dollars; None where its price is unknown."""
    from geval.traffic.prices import price_of

    return price_of(judge.identity())


def default_reasons(specs: Iterable[str]) -> Reasons:
    """For low or uncertain scores where each reason costs local seconds, else for all."""
    return "low" if any(spec.partition(":")[0] == "local" for spec in specs) else "all"


def run_settings(
    settings: Settings | None,
    judges: Sequence[Judge],
    method: str | None,
    reasons: Reasons | None,
    repeat: int | None,
) -> Settings:
    """Settings with what was named; reasons for low rows only where each costs local minutes."""
    chosen = settings or Settings()
    if chosen.reasons is None:
        chosen = replace(chosen, reasons=default_reasons([judge.spec for judge in judges]))
    if method is not None:
        chosen = _with_method(chosen, method)
    if reasons is not None:
        if reasons not in ("none", "low", "all"):
            raise ConfigError(f"unknown reasons {reasons!r}", hint="Known: none, low, all.")
        chosen = replace(chosen, reasons=reasons)
    if repeat is not None:
        if repeat < 1:
            raise ConfigError(f"repeat is {repeat}; it must be at least 1")
        chosen = replace(chosen, repeat=repeat)
    return chosen
