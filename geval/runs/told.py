"""A run in a few lines: its summary, and what a reader of its mean should know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geval.runs.run import Run


def summary_line(run: Run, word: Mapping[str, Any]) -> str:
    """Mean, rows scored of rows, method, judge, tokens, seconds and run folder in one line."""
    manifest = run.manifest
    summary = manifest["summary"]
    counts, usage = summary["overall"], summary["usage"]
    rows = counts["scored"] + counts["unscored"] + counts["not_applicable"]
    mean = counts.get("mean")
    shown = "-" if mean is None else f"{mean:.3f}"
    if counts["unscored"] and counts.get("pessimistic_mean") is not None:
        shown += f" ({word['pessimistic']} {counts['pessimistic_mean']:.3f})"
    read = usage.get("prompt_tokens", 0)
    cached = usage.get("cached_tokens", 0)
    tokens = f"{read + usage.get('completion_tokens', 0):,}"
    if cached:
        tokens += f" ({word['reused']} {cached:,})"
    if hits := (manifest.get("paid") or {}).get("cache_hits"):
        tokens += f" ({word['from_cache']} {hits:,})"
    methods = "+".join(summary["methods"]) or "-"
    return " · ".join(
        [
            f"{word['mean']} {shown}",
            f"{word['scored']} {counts['scored']}/{rows}",
            f"{word['method']} {methods}",
            f"{word['judge']} {' + '.join(j['spec'] for j in manifest['judges'])}",
            f"{word['tokens']} {tokens}",
            f"{manifest['seconds']:.1f} {word['seconds']}",
            f"{word['run_folder']} {run.folder}",
        ]
    )


def cautions(summary: dict[str, Any], word: Mapping[str, Any]) -> list[str]:
    """Things about a run that a reader of its mean should know."""
    told = []
    if len(summary["methods"]) > 1:
        mixed = ", ".join(f"{name} {count}" for name, count in summary["methods"].items())
        told.append(word["caution_mixed"].format(methods=mixed))
    if summary["failures"]:
        kinds = ", ".join(f"{kind} {count}" for kind, count in summary["failures"].items())
        told.append(f"{word['unscored']}: {kinds}")
    failed = {k: n for k, n in summary["warnings"].items() if k.startswith("juror_failed_")}
    if failed:
        named = ", ".join(f"{k.removeprefix('juror_failed_')} {n}" for k, n in failed.items())
        told.append(word["caution_juror"].format(judges=named))
    differing = summary["warnings"].get("prompt_differs_from_recording")
    if differing:
        told.append(word["caution_recording"].format(n=differing))
    if elsewhere := summary["warnings"].get("reason_language"):
        told.append(word["caution_language"].format(n=elsewhere))
    if figures := summary["warnings"].get("numbers_unmatched"):
        told.append(word["caution_numbers"].format(n=figures))
    if summary["narrow"]:
        told.append(word["caution_narrow"].format(criteria=", ".join(summary["narrow"])))
    noise = summary.get("noise")
    if noise and noise["rows"]:
        told.append(word["caution_noise"].format_map(noise))
    return told
