"""Optuna chooses the next combination. The only file that imports it.

A round is one Optuna study, since the choices of a study cannot grow. Nothing here depends on
time or on the order in which calls come back, so the same replies give the same trials.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geval.errors import ConfigError

STARTUP = 8
"""Combinations drawn at random before the sampler learns from the others."""

REPEATS = 25
"""Known combinations proposed one after the other before unknown ones are drawn at random."""


@dataclass
class Trial:
    """One combination, and how it did. `complete` is False where it was given up early."""

    number: int
    params: dict[str, str]
    value: float
    complete: bool
    groups: dict[int, float] = field(default_factory=dict)


class Report:
    """What an objective tells of a candidate while it is evaluated."""

    def __init__(self, trial: Any) -> None:
        self._trial = trial
        self.groups: dict[int, float] = {}

    def __call__(self, losses: Mapping[int, float]) -> None:
        """Tell mean losses of groups, by their place in the order."""
        for step, value in losses.items():
            if step not in self.groups:
                self.groups[step] = value
                self._trial.report(value, step)


Objective = Callable[[dict[str, str], Report], tuple[float, bool]]
"""Loss of a combination, and whether it was evaluated to its end."""


def optuna() -> Any:
    """The module. Raises ConfigError with the install line where it is missing."""
    try:
        import optuna as module
    except ImportError:
        raise ConfigError(
            "tuning needs optuna, which is not installed",
            hint='Install it: python -m pip install "geval[optimize]"',
        ) from None
    return module


@contextmanager
def _quiet() -> Iterator[None]:
    module = optuna()
    level = module.logging.get_verbosity()
    module.logging.set_verbosity(module.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            module.logging.set_verbosity(level)


def run_round(
    choices: Mapping[str, Sequence[str]],
    objective: Objective,
    first: Sequence[Mapping[str, str]],
    *,
    seed: int,
    trials: int,
    journal: Path | None = None,
    name: str = "round",
    before: Sequence[Trial] = (),
    told: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Try up to `trials` combinations of `choices`, `first` ones first; those tried, in order.

    `before` are trials of earlier rounds, from which the sampler learns; their choices must still
    be there. `objective` may raise to end the round (a spent budget): what was tried before is
    told by `told` and lost here, so keep it there.
    """
    module = optuna()
    size = 1
    for options in choices.values():
        size *= len(options)
    with _quiet():
        study = module.create_study(
            study_name=name,
            storage=_storage(module, journal),
            direction="minimize",
            sampler=_sampler(module, size, trials, seed),
            pruner=module.pruners.NopPruner(),  # geval.optimize.race gives up
        )
        distributions = {
            key: module.distributions.CategoricalDistribution(list(options))
            for key, options in choices.items()
        }
        for old in before:
            study.add_trial(
                module.trial.create_trial(
                    params=old.params, distributions=distributions, value=old.value
                )
            )
        for params in first:
            study.enqueue_trial(dict(params), skip_if_exists=True)
        return _trials(module, study, choices, objective, size, trials, seed, told)


def _sampler(module: Any, size: int, trials: int, seed: int) -> Any:
    if size <= trials:
        return module.samplers.BruteForceSampler(seed=seed)
    return module.samplers.TPESampler(
        seed=seed, n_startup_trials=STARTUP, multivariate=True, constant_liar=False
    )


def _storage(module: Any, journal: Path | None) -> Any:
    if journal is None:
        return None
    backend = module.storages.journal.JournalFileBackend(str(journal))
    return module.storages.JournalStorage(backend)


def _trials(
    module: Any,
    study: Any,
    choices: Mapping[str, Sequence[str]],
    objective: Objective,
    size: int,
    most: int,
    seed: int,
    told: Callable[[Trial], None],
) -> list[Trial]:
    import random

    rng = random.Random(seed)
    found: list[Trial] = []
    known: dict[tuple[tuple[str, str], ...], Trial] = {}
    again = 0
    while len(known) < min(size, most):
        trial = study.ask()
        params = {key: trial.suggest_categorical(key, list(options))
                  for key, options in choices.items()}  # fmt: skip
        key = tuple(sorted(params.items()))
        if key in known:  # the sampler comes back to what it likes; it costs nothing to tell again
            study.tell(trial, known[key].value)
            again += 1
            if again >= REPEATS:
                study.enqueue_trial(_unknown(choices, known, rng))
                again = 0
            continue
        again = 0
        report = Report(trial)
        try:
            value, complete = objective(params, report)
        except BaseException:
            study.tell(trial, state=module.trial.TrialState.FAIL)
            raise
        study.tell(trial, value)
        one = Trial(len(found), params, value, complete, report.groups)
        known[key] = one
        found.append(one)
        told(one)
    return found


def _unknown(
    choices: Mapping[str, Sequence[str]], known: Mapping[Any, Trial], rng: Any
) -> dict[str, str]:
    """A combination that was not tried; there is one."""
    while True:
        params = {key: rng.choice(list(options)) for key, options in choices.items()}
        if tuple(sorted(params.items())) not in known:
            return params


def importance(
    choices: Mapping[str, Sequence[str]], trials: Sequence[Trial], seed: int
) -> dict[str, float]:
    """Share of the loss's variance that each dimension explains; {} where too few were tried."""
    if len(trials) < 4 or len({t.value for t in trials}) < 2:
        return {}
    module = optuna()
    with _quiet():
        study = module.create_study(direction="minimize")
        distributions = {
            key: module.distributions.CategoricalDistribution(list(options))
            for key, options in choices.items()
        }
        for trial in trials:
            study.add_trial(
                module.trial.create_trial(
                    params=trial.params, distributions=distributions, value=trial.value
                )
            )
        try:
            found = module.importance.get_param_importances(
                study, evaluator=module.importance.PedAnovaImportanceEvaluator()
            )
        except (ValueError, RuntimeError):
            return {}
    return {key: float(value) for key, value in found.items()}
