"""numpy and scipy, imported late: they come with the extra `stats`."""

from __future__ import annotations

from typing import Any

from geval.errors import ConfigError


def numpy() -> Any:
    """The module numpy. Raises ConfigError with the install line where it is missing."""
    return _load("numpy")


def scipy_stats() -> Any:
    """The module scipy.stats. Raises ConfigError with the install line where it is missing."""
    return _load("scipy.stats")


def scipy_optimize() -> Any:
    """The module scipy.optimize. Raises ConfigError with the install line where it is missing."""
    return _load("scipy.optimize")


def _load(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(
            f"these statistics need {name.partition('.')[0]}, which is not installed",
            hint='Install it: python -m pip install "geval[stats]"',
        ) from None
