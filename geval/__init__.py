"""geval: probability-weighted LLM-as-a-judge scores from task-specific rubric templates.

    import geval

    run = geval.score(rows, template="finance_qa", locale="ko")
    run.to_pandas()

Names are imported when they are first used, so `import geval` is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geval.agreement.measure import Agreement, agree
    from geval.api import ascore, score
    from geval.distribution import Distribution
    from geval.errors import (
        ConfigError,
        DataError,
        GevalError,
        JudgeError,
        RunError,
        TemplateError,
        UsageError,
    )
    from geval.judges.base import Judge, Reply, Request
    from geval.optimize.tuning import Tuned, tune
    from geval.result import Score
    from geval.runs.run import Run
    from geval.sample import Sample
    from geval.scale import Level, Scale
    from geval.settings import Settings
    from geval.template import Criterion, Template

__all__ = [
    "Agreement",
    "ConfigError",
    "Criterion",
    "DataError",
    "Distribution",
    "GevalError",
    "Judge",
    "JudgeError",
    "Level",
    "Reply",
    "Request",
    "Run",
    "RunError",
    "Sample",
    "Scale",
    "Score",
    "Settings",
    "Template",
    "TemplateError",
    "Tuned",
    "UsageError",
    "__version__",
    "agree",
    "ascore",
    "score",
    "tune",
]

_HOMES = {
    "geval.agreement.measure": ("Agreement", "agree"),
    "geval.api": ("ascore", "score"),
    "geval.distribution": ("Distribution",),
    "geval.errors": (
        "ConfigError",
        "DataError",
        "GevalError",
        "JudgeError",
        "RunError",
        "TemplateError",
        "UsageError",
    ),
    "geval.judges.base": ("Judge", "Reply", "Request"),
    "geval.optimize.tuning": ("Tuned", "tune"),
    "geval.runs.run": ("Run",),
    "geval.sample": ("Sample",),
    "geval.scale": ("Level", "Scale"),
    "geval.result": ("Score",),
    "geval.settings": ("Settings",),
    "geval.template": ("Criterion", "Template"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("geval")
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'geval' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
