"""What a study leaves behind: templates with their provenance, and the result as plain values.

Nothing written here depends on time, on caches or on how often the study was interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from geval.authoring.diff import diff
from geval.authoring.saving import write_whole
from geval.template import SUFFIX, Template, shipped_folder

from .loop import Outcome

LIBRARIES = ("geval", "dspy", "optuna", "scipy", "numpy")


def versions() -> dict[str, str]:
    """Versions of what decides a study's course."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def provenance(
    outcome: Outcome,
    identity: Mapping[str, Any],
    revisions: Sequence[str],
    demo_hashes: Sequence[str],
) -> dict[str, Any]:
    """The `optimized` block of front matter."""
    result = outcome.result.to_dict()
    judge = identity["judge"]
    return {
        "parent": identity["template"]["fingerprint"],
        "judge": judge["spec"],
        "judge_model": judge["identity"].get("model"),
        "revision": sorted(revisions),
        "proposer": identity["proposer"],
        "versions": versions(),
        "seed": identity["seed"],
        "budget": identity["budget"],
        "data": identity["data"]["sha256"],
        "rows": {"train": len(outcome.split.train), "dev": len(outcome.split.dev),
                 "test": len(outcome.split.test)},
        "demo_rows": list(demo_hashes),
        "requests": outcome.requests,
        "choices": outcome.params,
        "metric": result["metric"],
        "verdict": result["verdict"],
        "test": {k: result[k] for k in ("before", "after", "gain", "low", "high", "p", "visible")},
    }  # fmt: skip


def write_templates(
    out: Path, outcome: Outcome, block: Mapping[str, Any]
) -> tuple[Path, Path | None]:
    """Write the template to use, and beside it a candidate that was not shown to be better.

    The template to use is the tuned one where the verdict is `better`, else the seed's prompt with
    its calibration. Returns both paths.
    """
    better = outcome.result.verdict == "better"
    main = _write(out, outcome.tuned if better else outcome.plain, block)
    folder = out / "candidate"
    if better or outcome.promoted == 0:
        return main, None
    folder.mkdir(exist_ok=True)
    return main, _write(folder, outcome.tuned, block)


def _write(folder: Path, template: Template, block: Mapping[str, Any]) -> Path:
    front = template.front.model_copy(update={"optimized": dict(block)})
    made = replace(template, front=front)
    path = folder / f"{template.name}.{template.front.locale}{SUFFIX}"
    _parts(folder, template)
    return made.save(path, overwrite=True)


def _parts(folder: Path, template: Template) -> None:
    """Parts of the author's own lie beside the template, or it could not be loaded from there."""
    shipped = shipped_folder()
    for name in template.parts:
        source = next((f / name for f in template.folders if (f / name).is_file()), None)
        target = folder / name
        if source is not None and source.parent != shipped and source.resolve() != target.resolve():
            write_whole(target, source.read_bytes())


def result_record(
    outcome: Outcome, identity: Mapping[str, Any], main: Path, candidate: Path | None, out: Path
) -> dict[str, Any]:
    """Everything the report shows, as plain values."""
    tuned, seed = outcome.tuned, outcome.plain
    return {
        "identity": dict(identity),
        "result": outcome.result.to_dict(),
        "promoted": outcome.promoted,
        "choices": outcome.params,
        "tried": [t.to_dict() for t in outcome.tried],
        "importance": {k: float(f"{v:.6g}") for k, v in outcome.importance.items()},
        "proposals": [
            {"dimension": p.dimension, "choice": p.choice, "round": p.round, "text": p.text[:4000],
             "refused": p.refused}
            for p in outcome.proposals
        ],
        "requests": outcome.requests,
        "rows": {"train": len(outcome.split.train), "dev": len(outcome.split.dev),
                 "test": len(outcome.split.test)},
        "explore": outcome.split.explore,
        "notes": outcome.notes,
        "diff": _diff(seed, tuned),
        "template": str(main.relative_to(out)),
        "candidate": None if candidate is None else str(candidate.relative_to(out)),
    }  # fmt: skip


def _diff(seed: Template, tuned: Template) -> list[str]:
    """What the prompt gained or lost; calibrations and provenance stand elsewhere."""
    bare = [
        replace(t, front=t.front.model_copy(update={"calibration": None, "optimized": None}))
        for t in (seed, tuned)
    ]
    return diff(*bare)
