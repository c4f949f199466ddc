"""How a run judges: what can change a score, recorded in the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from geval.distribution import MAX_AMBIGUOUS, MAX_ASSUMED, MIN_COVERAGE
from geval.errors import ConfigError
from geval.judges.base import Method
from geval.template import Template

Reasons = Literal["none", "low", "all"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run judges; all of it is recorded in the manifest.

    `method` "auto" takes the best the judge has. `reasons`: for no row, for low or uncertain
    criteria (normalised score under .5, or sd of at least `uncertain` of the scale's range), or
    for all; None is "low" where a judge of the run is local (each reason costs seconds), else
    "all". `temperature` is that of independent samples (None: the provider's default).
    `samples_min`, `samples_max` bound adaptive sampling, which stops when the standard error is
    under `samples_se` of a level step. `reply_tokens` is the room for a reply with a reason.
    """

    method: Method | Literal["auto"] = "auto"
    reasons: Reasons | None = None
    repeat: int = 1
    min_coverage: float = MIN_COVERAGE
    max_ambiguous: float = MAX_AMBIGUOUS
    max_assumed: float = MAX_ASSUMED
    alternatives: int = 20
    temperature: float | None = None
    samples_min: int = 4
    samples_max: int = 20
    samples_se: float = 0.25
    max_failed_samples: float = 0.2
    uncertain: float = 0.3
    reply_tokens: int = 400

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def choose_methods(
    wanted: Method | Literal["auto"],
    served: Sequence[Method],
    template: Template,
    reasons: Reasons | None,
) -> tuple[Method, ...]:
    """The methods to try, in order.

    `auto`: exact, else decision where no reason is wanted, else logprobs, else samples; never
    single. A method asked for by name stands alone: ConfigError where the judge lacks it.
    """
    if wanted != "auto":
        if wanted not in served:
            raise ConfigError(
                f"this judge cannot serve the method {wanted!r}",
                hint=f"It serves: {', '.join(served) or 'none'}.",
            )
        return (wanted,)
    decidable = reasons == "none" and template.front.output.order != "reason_first"
    order: tuple[Method, ...] = ("exact", "decision", "logprobs", "samples")
    chosen = tuple(m for m in order if m in served and (m != "decision" or decidable))
    if not chosen:
        raise ConfigError(
            f"this judge gives no probabilities (it serves: {', '.join(served) or 'nothing'})",
            hint="`--method single` takes one plain answer as certain."
            if "single" in served
            else "",
        )
    return chosen
